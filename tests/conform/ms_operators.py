#!/usr/bin/env python3
"""Random models of the operators of com.microsoft that onnxruntime's optimisers write, compared with
onnxruntime.

usage: ms_operators.py WORKER [--seed N] [--count N] [--only NAME] [--save DIR]
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

import operator_cases
from onnx_file import Graph, Node, Port

MS = "com.microsoft"


def real(rs, *shape, scale=1.0):
    return (rs.randn(*shape) * scale).astype(np.float32)


def model(op, attrs, operands, outputs, symbols=True, domain=MS, opset=17):
    """operands: list of None, ("in", array) or ("const", array); outputs: names and types, "" for no name, and for
    a name that nothing uses."""
    g = Graph(opset=opset, ir=8)
    inputs, names = {}, []
    for i, o in enumerate(operands):
        if o is None:
            names.append("")
            continue
        kind, a = o
        a = np.asarray(a)
        names.append(f"i{i}")
        if kind == "const":
            g.constants[f"i{i}"] = a
        else:
            inputs[f"i{i}"] = a
            g.inputs.append(Port(f"i{i}", a.dtype.name, list(a.shape)))
    while names and not names[-1]:
        names.pop()
    g.nodes.append(Node(op, names, [n for n, _ in outputs], attrs, domain))
    g.outputs += [Port(n, t) for n, t in outputs if n and t]
    return g, inputs


Y = [("y", "float32")]


def sizes(rs):
    return int(rs.randint(1, 4)), int(rs.choice([1, 3, 8])), int(rs.choice([4, 16, 24]))


def gelus(rs):
    b, s, d = sizes(rs)
    op = ["FastGelu", "BiasGelu", "QuickGelu", "BiasSplitGelu", "Gelu", "FastGelu"][rs.randint(6)]
    x, bias = ("in", real(rs, b, s, d)), ("const", real(rs, d))
    if op == "QuickGelu":
        return model(op, {"alpha": float(rs.choice([1.0, 1.702]))}, [x], Y)
    if op == "Gelu" or (op == "FastGelu" and rs.rand() < 0.5):
        return model(op, {}, [x], Y)
    return model(op, {}, [x, bias], Y)


def skip_norm(rs):
    b, s, d = sizes(rs)
    skip = real(rs, *[(b, s, d), (1, s, d), (s, d)][rs.randint(3)])
    simple = rs.rand() < 0.4
    if simple:
        skip = real(rs, b, s, d)
    operands = [("in", real(rs, b, s, d)), ("in", skip), ("const", real(rs, d))]
    if not simple:
        operands.append(("const", real(rs, d)) if rs.rand() < 0.7 else None)
    operands.append(("const", real(rs, d)) if rs.rand() < 0.6 else None)
    names = ("mean", "deviation") if rs.rand() < 0.5 else ("", "")
    outputs = Y + ([(n, "") for n in names] + [("sum", "float32")] if rs.rand() < 0.6 else [])
    op = "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization"
    return model(op, {"epsilon": 1e-5}, operands, outputs)


def simplified_norm(rs):
    b, s, d = sizes(rs)
    return model("SimplifiedLayerNormalization", {"axis": -1, "epsilon": 1e-5, "stash_type": 1},
                 [("in", real(rs, b, s, d)), ("const", real(rs, d))], Y, domain="")


def embed_norm(rs):
    b, s, d = sizes(rs)
    segments = rs.rand() < 0.6
    ids = rs.randint(0, 9, (b, s)).astype(np.int32)
    operands = [("in", ids), ("in", rs.randint(0, 2, (b, s)).astype(np.int32)) if segments else None,
                ("const", real(rs, 9, d)), ("const", real(rs, s + 2, d)), ("const", real(rs, 2, d)) if segments else None,
                ("const", real(rs, d)), ("const", real(rs, d)),
                ("in", (rs.rand(b, s) < 0.7).astype(np.int32)) if rs.rand() < 0.6 else None]
    return model("EmbedLayerNormalization", {"epsilon": 1e-12}, operands, Y + [("mask", "int32")])


def fused_matmul(rs):
    m, k, n = (int(v) for v in rs.randint(1, 9, 3))
    batch = [int(v) for v in rs.randint(1, 4, rs.randint(0, 3))]
    attrs = {"alpha": float(np.float32(rs.rand() + 0.5)), "transA": int(rs.randint(2)), "transB": int(rs.randint(2))}
    a = batch + ([k, m] if attrs["transA"] else [m, k])
    b = batch + ([n, k] if attrs["transB"] else [k, n])
    if batch and rs.rand() < 0.3:
        attrs["transBatchA"] = 1
        a = [a[-2]] + batch + [a[-1]]
    if batch and rs.rand() < 0.3:
        attrs["transBatchB"] = 1
        b = [b[-2]] + batch + [b[-1]]
    return model("FusedMatMul", attrs, [("in", real(rs, *a)), ("in" if rs.rand() < 0.5 else "const", real(rs, *b))], Y)


def fused_gemm(rs):
    m, k, n = (int(v) for v in rs.randint(1, 9, 3))
    attrs = {"alpha": 0.5, "beta": 2.0, "transA": int(rs.randint(2)), "transB": int(rs.randint(2)),
             **[{"activation": "Relu"}, {"activation": "LeakyRelu", "activation_alpha": 0.2}, {"activation": "Tanh"},
                {"activation": "Sigmoid"}][rs.randint(4)]}
    a, b = real(rs, *([k, m] if attrs["transA"] else [m, k])), real(rs, *([n, k] if attrs["transB"] else [k, n]))
    return model("FusedGemm", attrs, [("in", a), ("const", b), ("const", real(rs, n)) if rs.rand() < 0.7 else None], Y)


def fused_conv(rs):
    b, c, o, h = int(rs.randint(1, 3)), int(rs.choice([3, 16])), int(rs.choice([4, 16])), int(rs.choice([5, 9]))
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1],
             **[{"activation": "Relu"}, {"activation": "LeakyRelu", "activation_params": [0.1]},
                {"activation": "HardSigmoid", "activation_params": [0.2, 0.4]}, {"activation": "Sigmoid"},
                {"activation": "Clip", "activation_params": [-0.5, 0.75]}, {"activation": "Tanh"}][rs.randint(6)]}
    operands = [("in", real(rs, b, c, h, h)), ("const", real(rs, o, c, 3, 3, scale=0.2)), ("const", real(rs, o)),
                ("in", real(rs, b, o, h, h)) if rs.rand() < 0.5 else None]
    return model("FusedConv", attrs, operands, Y)


def padding_mask(rs, b, s, t):
    kind = rs.randint(4)
    if kind == 0:
        return (rs.rand(b, t) < 0.7).astype(np.int32)
    if kind == 1:
        return rs.randint(1, t + 1, b).astype(np.int32)
    return None


def attention(rs):
    b, s, h, e = int(rs.randint(1, 4)), int(rs.choice([1, 3, 8])), int(rs.choice([1, 2, 4])), int(rs.choice([4, 8]))
    past, d, i = int(rs.choice([0, 0, 5])), h * e, int(rs.choice([6, 16]))
    dv = d
    attrs = {"num_heads": h, "unidirectional": int(rs.rand() < 0.4)}
    if not past and rs.rand() < 0.3:
        dv = h * 2
        attrs["qkv_hidden_sizes"] = [d, d, dv]
    if rs.rand() < 0.3:
        attrs["scale"] = 0.3
    mask = padding_mask(rs, b, s, s + past)
    if mask is None and rs.rand() < 0.4:
        mask = (rs.rand(b, s, s + past) < 0.7).astype(np.int32)
    operands = [("in", real(rs, b, s, i)), ("const", real(rs, i, 2 * d + dv, scale=0.3)),
                ("const", real(rs, 2 * d + dv)), ("in", mask) if mask is not None else None,
                ("in", real(rs, 2, b, h, past, e)) if past else None,
                ("in", real(rs, *[(b, h, s, s + past), (1, h, s, s + past)][rs.randint(2)])) if rs.rand() < 0.3 else None]
    return model("Attention", attrs, operands, Y + ([("present", "float32")] if past else []))


def multi_head_attention(rs):
    b, s, h, e = int(rs.randint(1, 4)), int(rs.choice([1, 3, 8])), int(rs.choice([1, 2, 4])), int(rs.choice([4, 8]))
    t, past, d = int(rs.choice([s, 6])), 0, h * e
    attrs = {"num_heads": h}
    bias = ("const", real(rs, 3 * d)) if rs.rand() < 0.5 else None
    form = rs.randint(3)
    if form == 1:  # keys of an encoder
        operands = [("in", real(rs, b, s, d)), ("in", real(rs, b, h, t, e)), ("in", real(rs, b, h, t, e)), None]
    elif form == 2:  # packed
        t = s
        operands = [("in", real(rs, b, s, h, 3, e)), None, None, None]
    else:
        past = int(rs.choice([0, 4]))
        if past:
            t = s
        attrs["unidirectional"] = int(rs.rand() < 0.3 and t == s)
        operands = [("in", real(rs, b, s, d)), ("in", real(rs, b, t, d)), ("in", real(rs, b, t, d)), bias]
    mask = padding_mask(rs, b, s, t + past)
    operands.append(("in", mask) if mask is not None else None)
    operands.append(("in", real(rs, 1, h, s, t + past)) if rs.rand() < 0.3 else None)
    if past:
        operands += [("in", real(rs, b, h, past, e)), ("in", real(rs, b, h, past, e))]
    outputs = Y + ([("k", "float32"), ("v", "float32")] if past else [])
    return model("MultiHeadAttention", attrs, operands, outputs)


def rotary(rs):
    b, s, h, e = int(rs.randint(1, 4)), int(rs.choice([1, 3, 8])), int(rs.choice([1, 2, 4])), int(rs.choice([4, 8]))
    attrs = {"interleaved": int(rs.randint(2))}
    flat = rs.rand() < 0.6
    x = real(rs, b, s, h * e) if flat else real(rs, b, h, s, e)
    where = rs.randint(0, 5, 1) if rs.rand() < 0.4 else rs.randint(0, 12, (b, s))
    angles = rs.rand(16, e // 2) * 6
    if flat and rs.rand() < 0.5:
        attrs["num_heads"] = h
    return model("RotaryEmbedding", attrs, [("in", x), ("in", where.astype(np.int64)),
                                            ("const", np.cos(angles).astype(np.float32)),
                                            ("const", np.sin(angles).astype(np.float32))], Y)


def matmul_nbits(rs):
    bits, block = int(rs.choice([4, 4, 8, 2])), int(rs.choice([16, 32, 128]))
    k, n = int(rs.choice([16, 33, 64, 200])), int(rs.choice([1, 5, 16, 50]))
    blocks = (k + block - 1) // block
    shape = [(1, k), (3, k), (2, 5, k), (20, k)][rs.randint(4)]
    zeros = None
    if rs.rand() < 0.6:
        zeros = ("const", rs.randint(0, 256, (n, (blocks * bits + 7) // 8)).astype(np.uint8))
    operands = [("in", real(rs, *shape)), ("const", rs.randint(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)),
                ("const", np.abs(real(rs, n, blocks)) + 0.1), zeros, None,
                ("const", real(rs, n)) if rs.rand() < 0.4 else None]
    return model("MatMulNBits", {"K": k, "N": n, "bits": bits, "block_size": block}, operands, Y)


MAKERS = {f.__name__: f for f in (gelus, skip_norm, simplified_norm, embed_norm, fused_matmul, fused_gemm, fused_conv,
                                  attention, multi_head_attention, rotary, matmul_nbits)}

if __name__ == "__main__":
    operator_cases.main(MAKERS, 10)
