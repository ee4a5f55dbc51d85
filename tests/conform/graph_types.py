"""Heads of random graphs that change element types: quantised products as quantisers write them (QuantizeLinear and
DequantizeLinear around a float operator), chains in another float type, integers in between. As in graph_heads.py,
None: no value fits.

Quantised values are multiples of a power of two with few bits, weights and biases too: every sum is exact in f32, so
that all implementations round the same number.
"""
import math

import numpy as np

from graph_heads import elements, images, window
from graph_steps import broadcast

# Bits behind the point of a value that counts as exact here, and the largest one: products of two such
# values with eight bits each stay exact.
UNITS, WIDEST = 6, 8.0
TO = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11, "bfloat16": 16}


def _quantisable(test):
    return lambda v: v.dtype == "float32" and v.exact and v.wide <= WIDEST and test(v)


def _pair(m, v, signed=None):
    """v through eight bits: mostly in range, sometimes saturated."""
    kind = m.pick(("int8", "uint8")) if signed is None else ("int8" if signed else "uint8")
    low, high = (-128, 127) if kind == "int8" else (0, 255)
    step = 2.0 ** m.pick((-5, -4, -3))
    zero = m.pick((0, 0, m.rng.randint(-20, 20))) if kind == "int8" else m.pick((128, 0, m.rng.randint(100, 150)))
    if kind == "uint8" and zero == 0 and v.lo < 0 and m.chance(0.7):
        zero = 128
    scale, point = m.constant(np.asarray(step, np.float32)), m.constant(np.asarray(zero, kind))
    lo = min(max(v.lo, (low - zero) * step), (high - zero) * step)
    hi = max(min(v.hi, (high - zero) * step), (low - zero) * step)
    attrs = {"axis": 0} if m.chance(0.1) else {}
    q = m.node("QuantizeLinear", [v, scale, point], v.dims, lo, hi, dtype=kind, attrs=attrs, track=False, exact=True)
    return m.node("DequantizeLinear", [q, scale, point], v.dims, lo - step, hi + step, dtype="float32", exact=True), step


def _weight(m, shape, axis):
    """(name of dequantised weights, their scales): of the whole tensor or of each channel."""
    kind = m.pick(("int8", "uint8"), (5, 1))
    q = m.rng.randint(-127 if kind == "int8" else 0, 128 if kind == "int8" else 256, size=shape).astype(kind)
    each = m.chance(0.6)
    scale = (2.0 ** m.rng.randint(-9, -6, size=shape[axis] if each else ())).astype(np.float32)
    zero = np.full(scale.shape, 0 if kind == "int8" else 128, kind)
    names = [m.constant(q), m.constant(np.asarray(scale)), m.constant(zero)]
    w = _node(m, "DequantizeLinear", names, shape, {"axis": axis} if each else {})
    return w, np.broadcast_to(scale, (shape[axis],))


def _node(m, op, names, shape, attrs):
    """A node of constants only."""
    from graph_maker import Value
    first = Value(names[0], "float32", tuple(shape), -1.0, 1.0)
    return m.node(op, [first] + names[1:], shape, -1, 1, dtype="float32", attrs=attrs, track=False)


def _bias(m, n, step, scale):
    """Multiples of step * scale: i32, dequantised, or f32."""
    q = m.rng.randint(-2000, 2000, size=n).astype(np.int32)
    if m.chance(0.4):
        return m.constant((q * (step * scale)).astype(np.float32))
    names = [m.constant(q), m.constant((step * scale).astype(np.float32))]
    return _node(m, "DequantizeLinear", names, (n,), {"axis": 0})


def _finish(m, y):
    """What stands behind a quantised product: an activation, an operand that is added, the result's eight bits."""
    act = m.pick((None, "Relu", "Clip"), (2, 2, 1))
    if act == "Relu":
        y = m.node("Relu", [y], y.dims, max(y.lo, 0), max(y.hi, 0), exact=True)
    if act == "Clip":
        y = m.node("Clip", [y, m.constant(np.float32(0)), m.constant(np.float32(6))], y.dims, 0, 6, exact=True)
    if m.chance(0.3):
        u = m.recent(lambda w: w.dtype == "float32" and w.exact and w.wide <= WIDEST and broadcast(w.dims, y.dims) == y.dims)
        if u is not None:
            y, _ = _pair(m, y)
            y = m.node("Add", [y, u] if m.chance(0.5) else [u, y], y.dims, y.lo + u.lo, y.hi + u.hi, exact=True)
    return _pair(m, y)[0]


def quantised_matmul(m):
    v = m.recent(_quantisable(lambda u: u.rank >= 2 and u.known(-1) and 0 < u.dims[-1] <= 160 and
                              0 < elements(u.dims) < m.limit(20000)))
    if v is None:
        return None
    v, step = _pair(m, v)
    k, n = v.dims[-1], m.size()
    if v.rank == 2 and m.chance(0.4):
        turn = m.chance(0.5)
        w, scale = _weight(m, (n, k) if turn else (k, n), 0 if turn else 1)
        inputs = [v, w] + ([_bias(m, n, step, scale)] if m.chance(0.7) else [])
        y = m.node("Gemm", inputs, v.dims[:-1] + (n,), -k * v.wide, k * v.wide, attrs={"transB": 1} if turn else {}, exact=True)
    else:
        w, scale = _weight(m, (k, n), 1)
        y = m.node("MatMul", [v, w], v.dims[:-1] + (n,), -k * v.wide, k * v.wide, exact=True)
        if m.chance(0.5):
            y = m.node("Add", [y, _bias(m, n, step, scale)], y.dims, y.lo - 3, y.hi + 3, exact=True)
    return _finish(m, y)


def quantised_conv(m):
    v = m.recent(_quantisable(lambda u: u.rank in (3, 4) and u.known(*range(1, u.rank)) and 0 < elements(u.dims) < m.limit(9000)))
    found = window(m, v) if v is not None else None
    if found is None:
        return None
    attrs, out = found
    c = v.dims[1]
    group = m.pick((1, 1, c))
    features = c if group == c else m.pick((1, 3, 8, 16, 32))
    fan = c // group * math.prod(attrs["kernel_shape"])
    if fan > 400:
        return None
    v, step = _pair(m, v)
    w, scale = _weight(m, (features, c // group, *attrs["kernel_shape"]), 0)
    inputs = [v, w] + ([_bias(m, features, step, scale)] if m.chance(0.7) else [])
    y = m.node("Conv", inputs, (v.dims[0], features, *out), -fan * v.wide, fan * v.wide,
               attrs={**attrs, **({"group": group} if group > 1 else {})}, exact=True)
    return _finish(m, y)


def quantised_move(m):
    """Between pairs of eight bits, an operator that moves or pools."""
    v = m.recent(_quantisable(lambda u: u.rank >= 2 and 0 < elements(u.dims) < m.limit(9000)))
    if v is None:
        return None
    y, _ = _pair(m, v)
    which = m.pick(("Transpose", "Concat", "MaxPool", "GlobalAveragePool", "Sigmoid"))
    if which == "Transpose":
        perm = [int(p) for p in m.rng.permutation(y.rank)]
        y = m.node(which, [y], [y.dims[p] for p in perm], y.lo, y.hi, attrs={"perm": perm}, exact=True)
    elif which == "Concat" and y.known(1):
        y = m.node(which, [y, y], (y.dims[0], 2 * y.dims[1]) + y.dims[2:], y.lo, y.hi, attrs={"axis": 1}, exact=True)
    elif which == "MaxPool" and y.rank == 4 and y.known(1, 2, 3) and min(y.dims[2:]) >= 2:
        dims = y.dims[:2] + tuple(d // 2 for d in y.dims[2:])
        y = m.node(which, [y], dims, y.lo, y.hi, attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, exact=True)
    else:
        return y
    return _pair(m, y)[0]


SIMPLE = ("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Sqrt", "Identity")


def other_float(m):
    """A cast, a few steps in the other type, a cast back; casts in a row too. bfloat16, which onnxruntime hardly
    computes in, is only moved."""
    v = m.recent(lambda u: u.dtype in ("float32", "float16", "float64") and u.wide <= 60 and elements(u.dims) < m.limit(9000))
    if v is None:
        return None
    to = m.pick([t for t in ("float32", "float16", "float64", "bfloat16") if t != v.dtype], None)
    few = to in ("float16", "bfloat16")
    if to == "bfloat16" and not (v.exact and v.wide <= 2):
        to = "float16" if v.dtype != "float16" else "float64"

    def cast(x, dtype, track=False):
        return m.node("Cast", [x], x.dims, x.lo - few, x.hi + few, dtype=dtype, attrs={"to": TO[dtype]}, track=track,
                      exact=x.exact and x.wide <= 2)
    y = cast(v, to)
    if m.chance(0.2):
        y = cast(cast(y, v.dtype), to)
    for _ in range(m.pick((0, 1, 2, 3))):
        if to == "bfloat16" or m.chance(0.15):
            perm = [int(p) for p in m.rng.permutation(y.rank)]
            y = m.node("Transpose", [y], [y.dims[p] for p in perm], y.lo, y.hi, attrs={"perm": perm}, track=False, exact=y.exact)
            continue
        op = m.pick(SIMPLE + ("Add", "Mul"))
        if op in ("Add", "Mul"):
            c = m.pick((0.5, 1.25, -1.5))
            lo, hi = sorted((y.lo * c, y.hi * c)) if op == "Mul" else (y.lo + c, y.hi + c)
            y = m.node(op, [y, m.scalar(c, y)], y.dims, lo, hi, track=False)
        elif op != "Sqrt" or y.lo >= 0.05:
            ends = {"Relu": (max(y.lo, 0), max(y.hi, 0)), "Neg": (-y.hi, -y.lo), "Abs": (0, y.wide), "Tanh": (-1, 1),
                    "Sigmoid": (0, 1), "Sqrt": (0, y.wide + 1), "Identity": (y.lo, y.hi)}[op]
            y = m.node(op, [y], y.dims, *ends, track=False, exact=y.exact and op in ("Relu", "Neg", "Abs", "Identity"))
    return cast(y, v.dtype, track=True)


def through_integers(m):
    """An exact value as integers or bool, arithmetic there, and back."""
    v = m.recent(lambda u: u.dtype in ("float32", "float16", "float64") and u.exact and u.wide <= 30)
    if v is None:
        return None
    to = m.pick(("int32", "int64", "bool"))
    y = m.node("Cast", [v], v.dims, min(v.lo, 0), max(v.hi, 1), dtype=to, attrs={"to": TO[to]}, track=False, exact=True)
    if to != "bool" and m.chance(0.7):
        c = m.rng.randint(-3, 4)
        y = m.node(m.pick(("Add", "Mul")), [y, m.constant(np.asarray(c, to))], y.dims, -4 * y.wide - 4, 4 * y.wide + 4,
                   track=False, exact=True)
    return m.node("Cast", [y], y.dims, y.lo, y.hi, dtype=v.dtype, attrs={"to": TO[v.dtype]}, exact=True)


TYPE_HEADS = ((quantised_matmul, 4), (quantised_conv, 5), (quantised_move, 2), (other_float, 4), (through_integers, 1))
