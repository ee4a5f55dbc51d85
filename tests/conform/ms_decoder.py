#!/usr/bin/env python3
"""Random models of com.microsoft's operators for decoders, compared with onnxruntime: GroupQueryAttention with and
without a cache, GatherBlockQuantized.

usage: ms_decoder.py WORKER [--seed N] [--count N] [--only NAME] [--save DIR]
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

import operator_cases
from ms_operators import Y, model, real


def group_query_attention(rs):
    b, kv, g, e = int(rs.randint(1, 4)), int(rs.choice([1, 2])), int(rs.choice([1, 3, 4])), int(rs.choice([16, 32, 64]))
    h, room = kv * g, 0
    first = rs.rand() < 0.4
    s = int(rs.choice([1, 3, 9, 20])) if first else int(rs.choice([1, 1, 1, 3]))
    if first:  # sequences of one length: onnxruntime leaves padded rows unspecified
        total = s
        last = np.full(b, s - 1, np.int32)
        room = int(rs.choice([0, 0, s + 4]))
    else:
        past = int(rs.choice([1, 5, 37]))
        total = past + s
        last = np.array([total - 1] + list(rs.randint(s, total, b - 1)), np.int32)
        room = past if rs.rand() < 0.7 else total + int(rs.randint(0, 4))
        if s > 1:  # all that onnxruntime takes
            b, last = 1, last[:1]
    attrs = {"num_heads": h, "kv_num_heads": kv}
    if rs.rand() < 0.3:
        attrs["scale"] = 0.2
    if rs.rand() < 0.3:
        attrs["softcap"] = 3.0
    if rs.rand() < 0.4:
        attrs["local_window_size"] = int(rs.choice([1, 2, 5, 16]))
    rotary = rs.rand() < 0.5
    if rotary:
        attrs["do_rotary"] = 1
        attrs["rotary_interleaved"] = int(rs.randint(2))
    if rs.rand() < 0.2:
        attrs["smooth_softmax"] = 1
    if rs.rand() < 0.3:
        operands = [("in", real(rs, b, s, (h + 2 * kv) * e)), None, None]
    else:
        operands = [("in", real(rs, b, s, h * e)), ("in", real(rs, b, s, kv * e)), ("in", real(rs, b, s, kv * e))]
    cache = [("in", real(rs, b, kv, room, e)), ("in", real(rs, b, kv, room, e))]
    operands += [None, None] if first and not room and rs.rand() < 0.5 else cache
    operands += [("in", last), ("in" if rs.rand() < 0.5 else "const", np.array([total], np.int32).reshape([[1], []][rs.randint(2)]))]
    if rotary:
        angles = rs.rand(64, e // 2) * 6
        operands += [("const", np.cos(angles).astype(np.float32)), ("const", np.sin(angles).astype(np.float32))]
        if b == 1 and not first and rs.rand() < 0.3:
            operands.append(("in", (total - s + np.arange(s)).reshape(1, s).astype(np.int64)))
    if rs.rand() < 0.3:
        operands += [None] * (10 - len(operands))
        operands.append(("in", real(rs, int(rs.choice([1, b])), int(rs.choice([1, h])), s, total)))
    if rs.rand() < 0.2 and "smooth_softmax" not in attrs:
        operands += [None] * (11 - len(operands))
        operands.append(("const", real(rs, h)))
    return model("GroupQueryAttention", attrs, operands, Y + [("k", "float32"), ("v", "float32")])


def gather_block_quantized(rs):
    bits, block = int(rs.choice([4, 4, 8, 2])), int(rs.choice([16, 32, 128]))
    rows, per_byte = int(rs.choice([7, 40])), 8 // bits
    columns = int(rs.choice([32, 64, 48, 200])) // per_byte * per_byte
    blocks = (columns + block - 1) // block
    data = rs.randint(0, 256, (rows, columns // per_byte)).astype(np.uint8)
    indices = rs.randint(-rows, rows, [(4,), (2, 3), (1, 1), ()][rs.randint(4)]).astype([np.int32, np.int64][rs.randint(2)])
    zeros = None
    if rs.rand() < 0.6:
        zeros = ("const", rs.randint(0, 256, (rows, (blocks + per_byte - 1) // per_byte)).astype(np.uint8))
    return model("GatherBlockQuantized", {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1},
                 [("const", data), ("in", indices), ("const", real(rs, rows, blocks)), zeros], Y, opset=21)


MAKERS = {f.__name__: f for f in (group_query_attention, gather_block_quantized)}

if __name__ == "__main__":
    operator_cases.main(MAKERS, 30)
