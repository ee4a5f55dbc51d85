#!/usr/bin/env python3
"""Random MatMulNBits: few and many rows, ragged sizes, zero points, accuracy levels, activations and scales that
are not finite; kernels of all widths with 1 and 2 threads, compared with onnxruntime.

Activations of level 4 are whole multiples of a scale for each block, so that rounding them to 8 bits is exact and
all processors give the same results.

usage: ms_nbits.py WORKER [--seed N] [--count N] [--only NAME] [--save DIR]
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

import operator_cases
from ms_operators import Y, model, real

ROWS = [(1,), (2,), (5,), (13,), (16,), (23,), (70,), (2, 9), (0,)]


def on_grid(rs, rows, k, block):
    """Each block of a row has whole numbers up to 127, and 127, times a power of two."""
    x = rs.randint(-127, 128, (*rows, k)).astype(np.float32)
    for at in range(0, k, block):
        end = min(at + block, k)
        x[..., rs.randint(at, end)] = rs.choice([-127, 127])
        x[..., at:end] *= 2.0 ** rs.randint(-12, -4)
        if rs.rand() < 0.1:
            x[..., at:end] = 0
    return x


def product(rs, x, k, n, bits, block, attrs, scales=None, groups=None):
    blocks = (k + block - 1) // block
    zeros = None
    if groups is None and rs.rand() < 0.6:
        zeros = ("const", rs.randint(0, 256, (n, (blocks * bits + 7) // 8)).astype(np.uint8))
    if scales is None:
        scales = real(rs, n, blocks) * 0.2
    operands = [("in", x), ("const", rs.randint(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)),
                ("const", scales), zeros, groups, ("const", real(rs, n)) if rs.rand() < 0.3 else None]
    return model("MatMulNBits", {"K": k, "N": n, "bits": bits, "block_size": block, **attrs}, operands, Y)


def sizes(rs):
    return (ROWS[rs.randint(len(ROWS))], int(rs.choice([16, 33, 64, 200, 300, 520])), int(rs.choice([1, 5, 32, 50, 70])),
            int(rs.choice([4, 4, 8, 2])), int(rs.choice([16, 32, 64, 128, 256])))


def floats(rs):
    rows, k, n, bits, block = sizes(rs)
    return product(rs, real(rs, *rows, k), k, n, bits, block, {"accuracy_level": int(rs.choice([0, 1]))})


def level_4(rs):
    rows, k, n, bits, block = sizes(rs)
    return product(rs, on_grid(rs, rows, k, block), k, n, bits, block, {"accuracy_level": 4})


def not_finite(rs):
    """A few activations or scales are not finite. With one row or 2 bits, onnxruntime multiplies sums of activations
    by zero points, where infinities meet each other; it multiplies what pads a block by its scale."""
    rows, k, n, bits, block = sizes(rs)
    rows, bits = rows if rows != (1,) else (3,), max(bits, 4)
    x = real(rs, *rows, k)
    scales = real(rs, n, (k + block - 1) // block)
    special = [np.nan, np.inf, -np.inf, 1e-40]
    for _ in range(2):
        if x.size and rs.rand() < 0.8:
            x[..., rs.randint(k)][rs.rand(*rows) < 0.5] = rs.choice(special)
        if rs.rand() < 0.4 and k % block == 0:
            scales[rs.randint(n), rs.randint(scales.shape[1])] = rs.choice(special)
    return product(rs, x, k, n, bits, block, {}, scales)


def groups(rs):
    """Elements of a row in any group of scales; onnxruntime then ignores zero points, and reads 4 bits only."""
    rows, k, n, _, block = sizes(rs)
    where = np.arange(k) // block if rs.rand() < 0.2 else rs.randint(0, (k + block - 1) // block, k)
    return product(rs, real(rs, *rows, k), k, n, 4, block, {}, groups=("const", where.astype(np.int32)))


MAKERS = {f.__name__: f for f in (floats, level_4, not_finite, groups)}

if __name__ == "__main__":
    operator_cases.main(MAKERS, 40, isas=("", "AVX2"))
