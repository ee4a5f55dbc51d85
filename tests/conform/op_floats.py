"""Functions of special values: NaN, infinities, zeros of both signs, halves, denormals; casts of them."""
import numpy as np

UNARY = ("Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Sqrt", "Exp", "Log", "Reciprocal", "Relu", "Sigmoid", "Tanh",
         "Erf", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Softplus", "Softsign", "Selu", "Elu", "LeakyRelu",
         "HardSigmoid", "ThresholdedRelu", "Celu", "Mish", "HardSwish", "Identity")
NEWER = {"Mish": 18, "HardSwish": 14}


def functions(c):
    op = c.pick([op for op in UNARY if NEWER.get(op, 1) <= c.opset])
    dtype = c.pick(("float32", "float64", "float16"), (8, 2, 1))
    x = c.special(c.shape(), dtype)
    if op in ("Sin", "Cos", "Tan"):
        x = np.clip(x, -200, 200)  # onnxruntime's argument reduction of large numbers
    c.node(op, [c.operand(x)])


def powers(c):
    """Every combination of special bases and exponents, also of different types."""
    a, b = c.pick((("float32", "float32"), ("float64", "float64"), ("float32", "int32"), ("float32", "int64"),
                   ("float32", "float64"), ("int32", "float32")), (6, 2, 1, 1, 1, 1))
    shape = c.shape(1, 2, (3, 7, 16, 40))
    base = c.special(shape, a) if a.startswith("float") else c.integers(shape, a, -5, 5)
    e = np.asarray(c.rs.choice([0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.5, np.inf, -np.inf, np.nan], c.like(shape)))
    if not b.startswith("float"):
        e = np.where(np.isfinite(e), e, 2)
    if not a.startswith("float"):  # a result that is an integer
        e = np.where(np.isin(e, (0.0, 1.0, 2.0, 3.0)), e, 2)
    c.node("Pow", [c.operand(base), c.operand(e.astype(b))])


def remainders(c):
    """fmod has the sign of the dividend."""
    dtype = c.pick(("float32", "float64", "float16"), (6, 2, 1))
    shape = c.shape()
    a, b = c.reals(shape, dtype, -9, 9), c.reals(c.like(shape), dtype, -4, 4)
    if c.chance(0.3):
        a = c.special(shape, dtype)
    c.node("Mod", [c.operand(a), c.operand(b)], {"fmod": 1})


def clips(c):
    dtype = c.pick(("float32", "float64"))
    """Without a bound, onnxruntime takes the largest finite number, others infinity."""
    x, given = c.special(c.shape(), dtype), [c.chance(0.8), c.chance(0.8)]
    values = (-1.0, 0.0, 2.0, -0.0, 6.0)
    if all(given):
        values += (np.inf, -np.inf)
    else:
        x = np.where(np.isinf(x), np.asarray(7, dtype), x)
    c.node("Clip", [c.operand(x)] + [c.operand(np.asarray(c.pick(values), dtype)) if g else None for g in given])


def comparisons(c):
    dtype = c.pick(("float32", "float64"))
    shape = c.shape()
    op = c.pick(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    c.node(op, [c.operand(c.special(shape, dtype)), c.operand(c.special(c.like(shape), dtype))])


def tests(c):
    x = c.operand(c.special(c.shape(), c.pick(("float32", "float64"))))
    if c.chance(0.4):
        c.node("IsNaN", [x])
    else:
        c.node("IsInf", [x], {"detect_negative": c.flag(), "detect_positive": c.flag()})


def arithmetic(c):
    dtype = c.pick(("float32", "float64"))
    shape = c.shape()
    op = c.pick(("Add", "Sub", "Mul", "Div", "PRelu"))
    a, b = c.special(shape, dtype), c.special(c.like(shape), dtype)
    if op == "PRelu":
        b = c.reals(np.broadcast_shapes(shape, b.shape)[-b.ndim:] if b.ndim else (), dtype)
    c.node(op, [c.operand(a), c.operand(b)])


def where(c):
    dtype = c.pick(("float32", "float64", "int32", "int64", "uint8", "bool"))
    shape = c.shape()
    c.node("Where", [c.operand(c.array(c.like(shape), "bool")), c.operand(c.array(shape, dtype, special=0.5)),
                     c.operand(c.array(c.like(shape), dtype, special=0.5))])


def casts(c):
    """To integers: what fits after it is cut off; the others are not defined."""
    dtype = c.pick(("float32", "float64", "float16"), (6, 2, 2))
    to = c.pick((1, 10, 11, 2, 3, 5, 6, 7, 9, 12, 13))
    x = c.special(c.shape(), dtype)
    if to not in (1, 10, 11, 9):
        least = {2: 0, 12: 0, 13: 0}.get(to, -100)
        x = np.where(np.isfinite(x), np.clip(x, least, 100), 0).astype(dtype)
    c.node("Cast", [c.operand(x)], {"to": to})


def sums(c):
    """Sum, Mean, Min, Max of several operands."""
    op = c.pick(("Sum", "Mean", "Min", "Max"))
    shape = c.shape()
    make = c.reals if op in ("Min", "Max") else c.special
    c.node(op, [c.operand(make(shape))] + [c.operand(make(c.like(shape))) for _ in range(c.number(0, 3))])


def quantise(c):
    """Round half to even, saturation, infinities."""
    dtype = c.pick(("uint8", "int8") + (("int16", "uint16") if c.opset >= 21 else ()))
    shape = c.shape(1, 3, empty=0)
    per_axis = c.chance(0.4)
    axis = c.number(0, len(shape) - 1)
    n = (shape[axis],) if per_axis else ()
    scale = c.constant(np.asarray(c.rs.choice([0.5, 1.0, 0.25, 2.0], n), np.float32))
    zero = c.constant(c.integers(n, dtype, -5, 5))
    x = c.reals(shape, lo=-300, hi=300)
    if c.chance(0.2):
        x[x > 280] = np.inf
    q = c.node("QuantizeLinear", [c.operand(x), scale, zero], {"axis": axis} if per_axis else {})
    c.node("DequantizeLinear", [q, scale, zero], {"axis": axis} if per_axis else {})


MAKERS = {f.__name__: f for f in (functions, powers, remainders, clips, comparisons, tests, arithmetic, where, casts, sums,
                                  quantise)}
OPSETS = {}
