"""Arithmetic on integers of every width: wrap-around, division and remainders of negative numbers, shifts, bit
operations, comparisons, casts."""
import numpy as np

from op_case import INTEGERS, SIGNED, UNSIGNED


def _pair(c, dtype, lo=None, hi=None):
    shape = c.shape()
    a, b = c.integers(shape, dtype, lo, hi), c.integers(c.like(shape), dtype, lo, hi)
    return (a, b) if c.chance(0.5) else (b, a)


def arithmetic(c):
    dtype = c.pick(INTEGERS if c.opset >= 14 else ("int32", "int64"))
    op = c.pick(("Add", "Sub", "Mul"))
    a, b = _pair(c, dtype)
    c.node(op, [c.operand(a), c.operand(b)])


def division(c):
    """Towards zero; no zero divides, and not the least by -1."""
    dtype = c.pick(INTEGERS if c.opset >= 14 else ("int32", "int64"))
    a, b = _pair(c, dtype)
    b = np.where(b == 0, np.asarray(3, dtype), b)
    if dtype in SIGNED:
        b = np.where(b == -1, np.asarray(-2, dtype), b)
    c.node("Div", [c.operand(a), c.operand(b)])


def remainder(c):
    dtype = c.pick(INTEGERS)
    a, b = _pair(c, dtype, -100, 100)
    b = np.where(b == 0, np.asarray(7, dtype), b)
    c.node("Mod", [c.operand(a), c.operand(b)], {"fmod": c.flag()} if c.chance(0.7) else {})


def shifts(c):
    dtype = c.pick(UNSIGNED)
    shape = c.shape()
    bits = np.dtype(dtype).itemsize * 8
    amount = c.integers(c.like(shape), dtype, 0, bits - 1)
    c.node("BitShift", [c.operand(c.integers(shape, dtype)), c.operand(amount)],
           {"direction": c.pick(("LEFT", "RIGHT"))})


def bitwise(c):
    c.opset = c.graph.opset = max(c.opset, 18)
    dtype = c.pick(INTEGERS)
    a, b = _pair(c, dtype)
    op = c.pick(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"))
    c.node(op, [c.operand(a)] + ([] if op == "BitwiseNot" else [c.operand(b)]))


def logic(c):
    shape = c.shape()
    a, b = c.array(shape, "bool"), c.array(c.like(shape), "bool")
    op = c.pick(("And", "Or", "Xor", "Not"))
    c.node(op, [c.operand(a)] + ([] if op == "Not" else [c.operand(b)]))


def unary(c):
    op = c.pick(("Neg", "Abs", "Sign", "Relu"))
    dtype = c.pick(SIGNED if op != "Sign" else INTEGERS)
    x = c.integers(c.shape(), dtype)
    c.node(op, [c.operand(x)])


def extremes(c):
    op = c.pick(("Min", "Max", "Clip"))
    dtype = c.pick(INTEGERS)
    shape = c.shape()
    x = c.operand(c.integers(shape, dtype))
    if op == "Clip":
        bounds = [c.operand(c.integers((), dtype)) if c.chance(0.8) else None for _ in range(2)]
        c.node(op, [x] + bounds)
    else:
        c.node(op, [x] + [c.operand(c.integers(c.like(shape), dtype)) for _ in range(c.number(0, 3))])


def comparisons(c):
    op = c.pick(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    dtype = c.pick(("int32", "int64", "uint8", "int8", "bool" if op == "Equal" else "int16"))
    shape = c.shape()
    a, b = c.array(shape, dtype), c.array(c.like(shape), dtype)
    if dtype == "int64" and c.chance(0.4):  # neighbours that one double stands for
        a, b = a + np.int64(1 << 60), b + np.int64(1 << 60)
    c.node(op, [c.operand(a), c.operand(b)])


def casts(c):
    """Between integers, low bits are kept."""
    dtype = c.pick(INTEGERS + ("bool",))
    to = c.pick((2, 3, 4, 5, 6, 7, 9, 12, 13, 1, 11))
    x = c.array(c.shape(), "bool") if dtype == "bool" else c.integers(c.shape(), dtype)
    c.node("Cast", [c.operand(x)], {"to": to})


def far(c):
    """Integers at the ends of 64 bits, moved and changed: the compiler knows small constants as sizes too."""
    dtype = c.pick(("int64", "uint64"))
    info = np.iinfo(dtype)
    n = c.number(1, 6)
    x = c.operand(np.asarray([c.pick((info.min, info.max, info.max - 1, info.min + 1, info.max // 2 + 2, 5)) for _ in range(n)], dtype))
    for _ in range(c.number(1, 3)):
        op = c.pick(("Identity", "Slice", "Concat", "Add", "Reshape", "Max", "Cast", "Neg") if dtype == "int64" else
                    ("Identity", "Slice", "Concat", "Reshape", "Cast"))
        if op == "Slice":
            x = c.node(op, [x, c.constant(np.zeros(1, np.int64)), c.constant(np.array([c.number(1, 9)], np.int64))])
        elif op in ("Concat", "Add", "Max"):
            x = c.node(op, [x, x] if op == "Concat" else [x, c.operand(np.asarray(c.number(0, 3), dtype))],
                       {"axis": 0} if op == "Concat" else {})
        elif op == "Reshape":
            x = c.node(op, [x, c.constant(np.array([-1], np.int64))])
        else:
            x = c.node(op, [x], {"to": 7} if op == "Cast" else {})
            dtype = "int64" if op == "Cast" else dtype


def powers(c):
    dtype = c.pick(("int32", "int64"))
    base, e = c.integers(c.shape(0, 2), dtype, -9, 9), c.integers((), dtype, 0, 9)
    c.node("Pow", [c.operand(base), c.operand(e)])


def products(c):
    """MatMulInteger with zero points of both kinds, MatMul of integers that wrap around."""
    m, k, n = c.number(1, 6), c.pick((1, 3, 16, 33)), c.pick((1, 5, 16))
    if c.chance(0.4):
        dtype = c.pick(("int32", "int64", "uint32", "uint64"))
        c.node("MatMul", [c.operand(c.integers((m, k), dtype)), c.operand(c.integers((k, n), dtype))])
        return
    a, b = c.pick(("uint8", "int8")), c.pick(("uint8", "int8"))
    operands = [c.operand(c.integers((m, k), a)), c.operand(c.integers((k, n), b))]
    if c.chance(0.7):
        operands.append(c.operand(c.integers((), a)) if c.chance(0.8) else None)
        if c.chance(0.7):
            operands.append(c.operand(c.integers(c.pick(((), (n,))), b)))
    c.node("MatMulInteger", operands)


MAKERS = {f.__name__: f for f in (arithmetic, division, remainder, shifts, bitwise, logic, unary, extremes, comparisons,
                                  casts, far, powers, products)}
OPSETS = {}
