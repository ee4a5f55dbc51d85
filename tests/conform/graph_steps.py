"""Element-wise steps of random graphs: functions, constants, run-time operands, idioms of exporters."""
import math

import numpy as np

from graph_maker import SMALL


def broadcast(a, b):
    """Dimensions of a result of operands with these; None: they do not fit. A symbol fits itself and 1."""
    out = []
    n = max(len(a), len(b))
    for x, y in zip((1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)):
        if x != y and x != 1 and y != 1:
            return None
        out.append(y if x == 1 else x)
    return tuple(out)


def _sigmoid(x):
    return 1 / (1 + math.exp(-x))


def _erf(x):
    return math.erf(x)


# Monotone functions: (operator, first opset, interval of arguments, function for the ends).
MONOTONE = (
    ("Relu", 1, (-1e9, 1e9), lambda x: max(x, 0.0), 6),
    ("Sigmoid", 1, (-1e9, 1e9), lambda x: _sigmoid(max(min(x, 50), -50)), 4),
    ("Tanh", 1, (-1e9, 1e9), math.tanh, 4),
    ("Neg", 1, (-1e9, 1e9), lambda x: -x, 2),
    ("Identity", 1, (-1e9, 1e9), lambda x: x, 1),
    ("Softplus", 1, (-50, 50), lambda x: math.log1p(math.exp(x)), 1),
    ("Softsign", 1, (-1e9, 1e9), lambda x: x / (1 + abs(x)), 1),
    ("Erf", 9, (-1e9, 1e9), _erf, 1),
    ("Atan", 7, (-1e9, 1e9), math.atan, 0.5),
    ("Exp", 1, (-20, 4), math.exp, 2),
    ("Log", 1, (0.05, 1e9), math.log, 1),
    ("Sqrt", 1, (0.05, 1e9), math.sqrt, 1.5),
    ("Reciprocal", 1, (0.1, 1e9), lambda x: 1 / x, 1),
    ("Sinh", 9, (-3, 3), math.sinh, 0.3),
    ("Selu", 6, (-1e9, 1e9), lambda x: 1.0507 * x if x > 0 else 1.7581 * (math.exp(max(x, -50)) - 1), 0.5),
)
# Others: (operator, first opset, function of (lo, hi) for the interval, weight).
OTHERS = (
    ("Abs", 6, lambda lo, hi: (0 if lo < 0 < hi else min(abs(lo), abs(hi)), max(abs(lo), abs(hi))), 2),
    ("HardSwish", 14, lambda lo, hi: (-0.375, max(hi, 0)), 2),
    ("Gelu", 20, lambda lo, hi: (-0.2, max(hi, 0)), 2),
    ("Mish", 18, lambda lo, hi: (-0.31, max(hi, 0)), 0.5),
    ("Sin", 7, lambda lo, hi: (-1, 1), 0.5),
    ("Cos", 7, lambda lo, hi: (-1, 1), 0.5),
)
# These jump: values that are computed exactly only.
JUMPS = (("Floor", 1), ("Ceil", 1), ("Round", 11), ("Sign", 9))


def function(m, v):
    """One of the functions without parameters."""
    fit = [(op, None, of, w) for op, since, (a, b), of, w in MONOTONE
           if m.graph.opset >= since and a <= v.lo and v.hi <= b]
    fit += [(op, of, None, w) for op, since, of, w in OTHERS if m.graph.opset >= since]
    op, interval, ends, _ = m.pick(fit, [f[3] for f in fit])
    if ends:
        lo, hi = sorted((ends(v.lo), ends(v.hi)))
    else:
        lo, hi = interval(v.lo, v.hi)
    attrs = {"approximate": "tanh"} if op == "Gelu" and m.chance(0.5) else {}
    return m.node(op, [v], v.dims, lo - 1e-3, hi + 1e-3, attrs=attrs,
                  exact=v.exact and op in ("Relu", "Neg", "Identity", "Abs"))


def with_parameters(m, v):
    """LeakyRelu and the like, with unusual parameters too."""
    op = m.pick(("LeakyRelu", "Elu", "HardSigmoid", "Clip", "Celu", "PRelu", "Pow"), (4, 2, 3, 5, 1, 1.5, 1.5))
    a = m.number(0.02, 1.5)
    if op == "LeakyRelu":
        a = m.pick((a, -a, 0.0, 1.0), (6, 2, 1, 1))
        ends = [x if x >= 0 else a * x for x in (v.lo, v.hi, 0.0)]
        return m.node(op, [v], v.dims, min(ends), max(ends), attrs={"alpha": a})
    if op == "Celu" and v.dtype != "float32":
        op = "Elu"
    if op in ("Elu", "Celu"):
        return m.node(op, [v], v.dims, min(v.lo, 0) if -a < v.lo < 0 else -max(a, 0) - 1e-3, max(v.hi, 0) + 1e-3,
                      attrs={"alpha": a})
    if op == "HardSigmoid":
        return m.node(op, [v], v.dims, 0, 1, attrs={"alpha": a, "beta": m.number(-0.5, 1)})
    if op == "Clip":
        return clip(m, v)
    if op == "PRelu":
        dims = operand_dims(m, v)
        if not all(isinstance(d, int) for d in dims):
            return with_parameters(m, v)
        slope = m.constant(m.array(dims, v.dtype, -0.5, 1.5))
        return m.node(op, [v, slope], v.dims, min(v.lo, 1.5 * v.lo, -0.5 * v.wide), max(v.hi, v.wide))
    e = m.pick((2.0, 3.0, 1.0, 0.5, -1.0), (5, 2, 1, 2, 1) if v.lo >= 0.1 else (5, 2, 1, 0, 0))
    if v.wide > 20 and e > 1:
        e = 1.0
    most = v.wide ** e if e > 0 else 1 / v.lo
    return m.node(op, [v, m.scalar(e, v)], v.dims, 0 if e == 2 or v.lo >= 0 else -most, most + 1e-3)


def clip(m, v):
    lo, hi = sorted((m.number(-2, 2), m.number(-2, 4)))
    if m.chance(0.3):
        lo, hi = m.pick(((0.0, 6.0), (0.0, 1.0), (-1.0, 1.0), (lo, lo), (hi, lo)))
    low = m.constant(np.asarray(lo, v.dtype)) if m.chance(0.9) else None
    high = m.constant(np.asarray(hi, v.dtype)) if low is None or m.chance(0.85) else None
    inputs = [v, low, high] if high else [v, low]
    ends = [x for x in (lo if low else None, hi if high else None) if x is not None]
    return m.node("Clip", inputs, v.dims, max(v.lo, min(ends)) if low and v.hi > lo else min(v.lo, *ends),
                  min(v.hi, max(ends)) if high and v.lo < hi else max(v.hi, *ends), exact=v.exact)


def jump(m, v):
    """A function that jumps, of a value that everybody computes exactly; else a comparison."""
    x = v if v.exact else m.recent(lambda u: u.exact and u.dtype == v.dtype and broadcast(u.dims, v.dims) == v.dims)
    if x is None:
        return function(m, v)
    if m.chance(0.4):
        op = m.pick([op for op, since in JUMPS if m.graph.opset >= since])
        y = m.node(op, [x], x.dims, x.lo - 1, x.hi + 1, exact=True)
        return y if x is v else binary_of(m, m.pick(("Add", "Mul")), v, y)
    compare = m.pick(("Greater", "Less", "Equal") + (("GreaterOrEqual", "LessOrEqual") if m.graph.opset >= 16 else ()))
    test = m.node(compare, [x, m.scalar(m.number(-1, 1), x)], x.dims, 0, 1, dtype="bool", exact=True)
    other = constant_operand(m, v, -2, 2)[0] if m.chance(0.6) else v
    return where(m, test, v, other)


def where(m, test, v, other):
    dims = broadcast(test.dims, v.dims)
    pair = [v, other] if m.chance(0.5) else [other, v]
    return m.node("Where", [test, *pair], dims, min(v.lo, -2), max(v.hi, 2), dtype=v.dtype)


# -- Two operands ---------------------------------------------------------------------------------


def operand_dims(m, v):
    """Dimensions of an operand that broadcasts to v: one element, a channel, a row, all, any."""
    rank = v.rank
    kind = m.pick(("scalar", "channel", "last", "full", "any", "plane"), (6, 6, 3, 2, 3, 1))
    if kind == "scalar" or rank == 0:
        return m.pick(((), (1,) * min(rank, 1), (1,) * rank), (6, 2, 1))
    if kind == "channel" and rank >= 2:
        dims = (v.dims[1],) + (1,) * (rank - 2)
        return dims if m.chance(0.5) else (1,) + dims
    if kind == "last":
        return v.dims[-1:]
    if kind == "full":
        return v.dims if m.chance(0.5) else v.dims[m.rng.randint(rank):]
    if kind == "plane" and rank > 2:
        return v.dims[2:] if m.chance(0.5) else (1, 1) + v.dims[2:]
    dims = tuple(d if m.chance(0.5) else 1 for d in v.dims)
    return dims[m.rng.randint(rank):] if m.chance(0.3) else dims


def constant_operand(m, v, lo, hi):
    """(name of a constant that broadcasts to v, its elements)."""
    for _ in range(4):
        dims = operand_dims(m, v)
        if all(isinstance(d, int) for d in dims):
            break
    else:
        dims = ()
    a = np.full(dims, m.number(lo, hi), v.dtype) if math.prod(dims) == 1 else m.array(dims, v.dtype, lo, hi)
    return m.constant(a), a


def interval(op, a, b):
    """Interval of op over two of them."""
    if op == "Add":
        return a[0] + b[0], a[1] + b[1]
    if op == "Sub":
        return a[0] - b[1], a[1] - b[0]
    if op in ("Min", "Max"):
        f = min if op == "Min" else max
        return f(a[0], b[0]), f(a[1], b[1])
    ends = [x * y if op == "Mul" else x / y for x in a for y in b]
    return min(ends), max(ends)


def with_constant(m, v):
    op = m.pick(("Add", "Mul", "Sub", "Div", "Min", "Max"), (6, 6, 3, 3, 1.5, 1.5))
    if op == "Div":
        name, a = constant_operand(m, v, 0.3, 4)
        if m.chance(0.2) and v.lo >= 0.2:
            lo, hi = interval(op, (float(a.min()), float(a.max())), (v.lo, v.hi)) if a.size else (0, 0)
            return m.node(op, [name, v], broadcast(a.shape, v.dims), lo, hi)
    else:
        name, a = constant_operand(m, v, -3, 3)
    c = (float(a.min()), float(a.max())) if a.size else (0.0, 0.0)
    if op == "Div" and not c[0]:
        c = (1.0, 1.0)
    dims = broadcast(a.shape, v.dims)
    if op != "Div" and m.chance(0.3):
        return m.node(op, [name, v], dims, *interval(op, c, (v.lo, v.hi)))
    return m.node(op, [v, name], dims, *interval(op, (v.lo, v.hi), c))


def binary_of(m, op, a, b):
    return m.node(op, [a, b], broadcast(a.dims, b.dims), *interval(op, (a.lo, a.hi), (b.lo, b.hi)))


def with_operand(m, v):
    """A run-time operand: an earlier value (a residual), v itself, or a new input."""
    def fits(u):
        return u.dtype == v.dtype and broadcast(u.dims, v.dims) is not None
    how = m.pick(("old", "same", "new"), (6, 1, 2))
    u = m.recent(fits) if how == "old" else v
    if how == "new" and len(m.graph.inputs) < 5:
        dims = operand_dims(m, v)
        if m.chance(0.1):
            # The operand has the larger dimensions.
            dims = tuple(m.pick(SMALL[:8]) if d == 1 else d for d in v.dims)
        u = m.input(dims, v.dtype)
    op = m.pick(("Add", "Mul", "Sub", "Min", "Max", "Div", "Sum", "Mean", "Max3"), (8, 5, 3, 1, 1, 2, .5, .5, .5))
    if op == "Mul" and u.wide * v.wide > 400:
        op = "Add"
    if op == "Div" and (u.lo < 0.1 or u is v):
        op = "Sub"
    if op in ("Sum", "Mean", "Max3"):
        third = m.recent(lambda w: fits(w) and broadcast(broadcast(u.dims, v.dims), w.dims) is not None) or v
        dims = broadcast(broadcast(u.dims, v.dims), third.dims)
        wide = u.wide + v.wide + third.wide
        return m.node(op.rstrip("3"), [v, u, third], dims, -wide, wide)
    return binary_of(m, op, *((u, v) if op != "Div" and m.chance(0.3) else (v, u)))


# -- Idioms ---------------------------------------------------------------------------------------


def chain(m, v, *steps):
    """Steps (op, constant or None, constant first?) as nodes with scalars; intervals by their own rules."""
    for op, c, first in steps:
        if c is None:
            ends = {"Sigmoid": (0, 1), "Tanh": (-1, 1), "Relu": (max(v.lo, 0), max(v.hi, 0)), "Erf": (-1, 1)}[op]
            v = m.node(op, [v], v.dims, *ends)
            continue
        name = m.scalar(c, v)
        lo, hi = interval(op, (c, c), (v.lo, v.hi)) if first else interval(op, (v.lo, v.hi), (c, c))
        v = m.node(op, [name, v] if first else [v, name], v.dims, lo, hi)
    return v


def idiom(m, v):
    which = m.rng.randint(15)
    a, b = m.number(0.1, 3), m.number(-1, 1)
    if which == 0:    # y * std + mean
        return chain(m, v, ("Mul", a, False), ("Add", b, False))
    if which == 1:    # 2 sigmoid(x) - 1
        return chain(m, v, ("Sigmoid", None, 0), ("Mul", 2.0, m.chance(0.5)), ("Sub", 1.0, False))
    if which == 2:    # soft cap
        cap = m.pick((30.0, 50.0, a + 0.5))
        return chain(m, v, ("Div", cap, False), ("Tanh", None, 0), ("Mul", cap, m.chance(0.5)))
    if which == 3:    # image from tanh
        return chain(m, v, ("Tanh", None, 0), ("Add", 1.0, False), ("Div", 2.0, False), ("Mul", 255.0, False))
    if which == 4:    # hard sigmoid, spelt out
        y = chain(m, v, ("Add", 3.0, False))
        y = m.node("Clip", [y, m.constant(np.asarray(0, v.dtype)), m.constant(np.asarray(6, v.dtype))], v.dims, 0, 6)
        y = chain(m, y, ("Div", 6.0, False))
        return binary_of(m, "Mul", v, y) if m.chance(0.5) else y
    if which == 5:    # two clips
        return clip(m, clip(m, v))
    if which == 6:    # two leaky relus
        y = v
        for alpha in (a / 4, m.number(0.01, 0.5)):
            y = m.node("LeakyRelu", [y], y.dims, min(y.lo, 0), max(y.hi, 0), attrs={"alpha": alpha})
        return y
    if which == 7:    # SiLU; also with the wrong argument, which is not SiLU
        u = v if m.chance(0.8) else chain(m, v, ("Mul", a, False))
        return binary_of(m, "Mul", v, chain(m, u, ("Sigmoid", None, 0)))
    if which == 8:    # GELU by erf
        y = chain(m, v, ("Div", math.sqrt(2), False), ("Erf", None, 0), ("Add", 1.0, False))
        return chain(m, binary_of(m, "Mul", v, y), ("Mul", m.pick((0.5, 0.25)), False))
    if which == 9 and v.wide < 20:   # GELU by tanh
        cube = m.node("Pow", [v, m.scalar(3.0, v)], v.dims, -v.wide ** 3, v.wide ** 3)
        y = binary_of(m, "Add", v, chain(m, cube, ("Mul", 0.044715, False)))
        y = chain(m, y, ("Mul", 0.7978845608, False), ("Tanh", None, 0), ("Add", 1.0, False))
        return chain(m, binary_of(m, "Mul", v, y), ("Mul", 0.5, False))
    if which == 10 and v.rank >= 2 and v.known(-1):   # RMS norm
        return rms_norm(m, v)
    if which == 11 and v.wide < 30:   # mish, spelt out
        y = m.node("Softplus", [v], v.dims, 0, v.wide + 1)
        return binary_of(m, "Mul", v, chain(m, y, ("Tanh", None, 0)))
    if which == 12:   # residual, added twice
        return binary_of(m, "Add", binary_of(m, "Add", v, v), v)
    if which == 13:   # gate: a sigmoid of one half times another linear function
        return binary_of(m, "Mul", chain(m, v, ("Mul", a, False), ("Sigmoid", None, 0)), chain(m, v, ("Add", b, False)))
    return chain(m, v, ("Relu", None, 0), ("Add", b, False), ("Relu", None, 0))


def rms_norm(m, v):
    square = binary_of(m, "Mul", v, v) if m.chance(0.5) else \
        m.node("Pow", [v, m.scalar(2.0, v)], v.dims, 0, v.wide ** 2)
    dims = v.dims[:-1] + (1,)
    axes = m.constant(np.asarray([-1], np.int64))
    mean = m.node("ReduceMean", [square, axes], dims, 0, v.wide ** 2, attrs={"keepdims": 1}) \
        if m.graph.opset >= 18 else \
        m.node("ReduceMean", [square], dims, 0, v.wide ** 2, attrs={"axes": [-1], "keepdims": 1})
    root = m.node("Sqrt", [m.node("Add", [mean, m.scalar(0.01, mean)], dims, 0.01, v.wide ** 2 + 1)], dims, 0.1,
                  v.wide + 1)
    most = math.sqrt(v.dims[-1]) + 1
    y = m.node("Div", [v, root], v.dims, -most, most) if m.chance(0.5) else \
        m.node("Mul", [v, m.node("Reciprocal", [root], dims, 0, 10)], v.dims, -most, most)
    scale = m.constant(m.array((v.dims[-1],), v.dtype, -1, 2))
    return m.node("Mul", [y, scale], v.dims, -2 * most, 2 * most)


def cast_there_and_back(m, v):
    if v.dtype == "float64":
        return function(m, v)
    to = {"float32": 11, "float16": m.pick((1, 11))}[v.dtype]
    back = {"float32": 1, "float16": 10}[v.dtype]
    wide = m.node("Cast", [v], v.dims, v.lo, v.hi, dtype={1: "float32", 11: "float64"}[to], attrs={"to": to},
                  track=False, exact=v.exact)
    return m.node("Cast", [wide], v.dims, v.lo, v.hi, dtype=v.dtype, attrs={"to": back}, exact=v.exact)


STEPS = ((function, 5), (with_parameters, 4), (with_constant, 8), (with_operand, 4), (idiom, 3), (jump, 1),
         (cast_there_and_back, 0.2))


def element_wise(m, v):
    step = m.pick([s for s, _ in STEPS], [w for _, w in STEPS])
    return step(m, v)


def integer_step(m, v):
    """A step on integers; results stay small enough for eight bits."""
    op = m.pick(("Add", "Mul", "Min", "Max", "Sub", "Relu", "Abs", "Neg", "Clip", "Where"))
    if v.wide > 20 or (op in ("Sub", "Neg") and v.dtype == "uint8") or (op == "Relu" and (m.graph.opset < 14 or v.dtype == "uint8")):
        op = "Min"
    if op in ("Relu", "Abs"):
        return m.node(op, [v], v.dims, 0 if v.lo < 0 else v.lo, v.wide, exact=True)
    if op == "Neg":
        return m.node(op, [v], v.dims, -v.hi, -v.lo, exact=True)
    if op == "Clip":
        return m.node(op, [v, m.constant(np.asarray(1, v.dtype)), m.constant(np.asarray(3, v.dtype))], v.dims, 1, 3,
                      exact=True)
    if op == "Where":
        test = m.node("Greater", [v, m.constant(np.asarray(1, v.dtype))], v.dims, 0, 1, dtype="bool", exact=True)
        return m.node(op, [test, v, m.constant(np.asarray(2, v.dtype))], v.dims, min(v.lo, 2), max(v.hi, 2),
                      dtype=v.dtype, exact=True)
    u = m.recent(lambda w: w.dtype == v.dtype and broadcast(w.dims, v.dims) == v.dims and w.wide < 8)
    if u is not None and m.chance(0.4):
        return m.node(op, [v, u], v.dims, *interval(op, (v.lo, v.hi), (u.lo, u.hi)), exact=True)
    name, a = constant_operand(m, v, 0, 3)
    c = (float(a.min()), float(a.max())) if a.size else (0.0, 0.0)
    return m.node(op, [v, name], broadcast(a.shape, v.dims), *interval(op, (v.lo, v.hi), c), exact=True)
