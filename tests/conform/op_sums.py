"""Einsum, Gemm, MatMul of random ranks, and convolutions and pools of odd windows as single operators."""
import numpy as np

LETTERS = "abcdefgh"


def einsum(c):
    """One to three operands; letters summed over, repeated in an operand, under an ellipsis."""
    size = {letter: c.pick((1, 2, 3, 5)) for letter in LETTERS}
    n = c.pick((1, 2, 3), (2, 5, 1))
    used = LETTERS[:c.number(1, 5)]
    more = c.shape(1, 2, (2, 3), empty=0) if c.chance(0.25) else None
    terms = ["".join(c.rs.permutation(list(used))[:c.number(1, len(used))]) for _ in range(n)]
    if c.chance(0.15) and len(terms[0]) < 4:
        terms[0] += terms[0][0]
    present = sorted(set("".join(terms)))
    out = "".join(c.rs.permutation(present)[:c.number(0, len(present))])
    operands = []
    for t in terms:
        shape = tuple(size[letter] for letter in t)
        operands.append(c.operand(c.integers((more or ()) + shape, "int8", -3, 3).astype(np.float32)))
    dots = "..." if more else ""
    equation = ",".join(dots + t for t in terms)
    if c.chance(0.85) or more:
        equation += "->" + dots + out
    c.node("Einsum", operands, {"equation": equation.replace(",", c.pick((",", " , ")))})


def matmul(c):
    """Batch dimensions that broadcast, vectors on either side."""
    k = c.pick((1, 3, 16, 33))
    batch = c.shape(0, 2, (1, 2, 3), empty=0)
    a, b = c.like(batch) + (c.number(1, 5), k), c.like(batch) + (k, c.number(1, 20))
    if c.chance(0.1):
        a = (k,)
    if c.chance(0.1):
        b = (k,)
    dtype = c.pick(("float32", "float64"))
    c.node("MatMul", [c.operand(c.reals(a, dtype)), c.operand(c.reals(b, dtype))])


def gemm(c):
    m, k, n = (c.pick((1, 2, 7, 16, 33)) for _ in range(3))
    ta, tb = c.flag(), c.flag()
    operands = [c.operand(c.reals((k, m) if ta else (m, k))), c.operand(c.reals((n, k) if tb else (k, n)))]
    if c.chance(0.7):
        operands.append(c.operand(c.reals(c.pick(((), (1,), (n,), (1, n), (m, 1), (m, n))))))
    c.node("Gemm", operands, {"transA": ta, "transB": tb, "alpha": c.pick((1.0, 0.5, -2.0)),
                              "beta": c.pick((1.0, 0.0, 3.0))})


MAKERS = {f.__name__: f for f in (einsum, matmul, gemm)}
OPSETS = {}
