"""Heads of the blocks of random graphs: matrix products, convolutions, normalisations, pools, reductions and
movements. A head takes a Maker, chooses an earlier value and returns the new one; None: no value fits."""
import math

import numpy as np

from graph_steps import binary_of
from onnx_file import Node


def floats(test=lambda v: True):
    return lambda v: v.dtype.startswith("float") and test(v)


def elements(dims):
    """Number of elements, a symbol counted as 8."""
    return math.prod(8 if isinstance(d, str) else d for d in dims)


# -- Matrix products --------------------------------------------------------------------------------


def matmul(m):
    v = m.recent(floats(lambda u: u.rank >= 1 and u.known(-1) and elements(u.dims) < m.limit(20000)))
    if v is None:
        return None
    k = v.dims[-1]
    if v.rank == 1 or m.chance(0.05):
        w, most = m.weight((k,), v.dtype, k)
        return m.node("MatMul", [v, w], v.dims[:-1], -k * most * v.wide, k * most * v.wide)
    n = m.size()
    shape = (k, n)
    if m.chance(0.15) and v.rank >= 3 and v.known(-3):
        shape = m.pick(((v.dims[-3], k, n), (1, k, n)))
    elif m.chance(0.05) and v.rank == 2:
        shape = (2, k, n)
    w, most = m.weight(shape, v.dtype, k)
    dims = (shape[:-2] if v.rank == 2 else v.dims[:-2]) + (v.dims[-2], n)
    return m.node("MatMul", [v, w], dims, -k * most * v.wide, k * most * v.wide)


def matmul_left(m):
    """A weight on the left."""
    v = m.recent(floats(lambda u: u.rank >= 2 and u.known(-2) and elements(u.dims) < m.limit(20000)))
    if v is None:
        return None
    k, p = v.dims[-2], m.size()
    w, most = m.weight((p, k), v.dtype, k)
    return m.node("MatMul", [w, v], v.dims[:-2] + (p, v.dims[-1]), -k * most * v.wide, k * most * v.wide)


def attention(m):
    """softmax(q k^T * s) v, or only the scores, or x^T x."""
    q = m.recent(floats(lambda u: u.rank >= 3 and u.known(-1) and elements(u.dims) < m.limit(8000)))
    if q is None:
        return None
    k = m.recent(floats(lambda u: u.dtype == q.dtype and u.dims == q.dims)) or q
    if q.wide * k.wide * q.dims[-1] > 5000:
        q = k = m.calm(m.node("Tanh", [q], q.dims, -1, 1))
    perm = list(range(q.rank))
    perm[-1], perm[-2] = perm[-2], perm[-1]
    t = m.node("Transpose", [k], q.dims[:-2] + (q.dims[-1], q.dims[-2]), k.lo, k.hi, attrs={"perm": perm})
    most = q.wide * k.wide * q.dims[-1]
    s = m.node("MatMul", [q, t], q.dims[:-1] + (q.dims[-2],), -most, most)
    if m.chance(0.3):
        return s
    f = 1 / math.sqrt(q.dims[-1])
    s = m.node(*m.pick((("Mul", [s, m.scalar(f, q)]), ("Div", [s, m.scalar(1 / f, q)]))), s.dims,
               -most * f, most * f)
    if m.chance(0.4):
        mask = m.input(m.pick(((s.dims[0],) + (1,) * (s.rank - 2) + s.dims[-1:], s.dims[-2:])), q.dtype)
        s = binary_of(m, "Add", s, mask)
    p = m.node("Softmax", [s], s.dims, 0, 1, attrs={"axis": -1})
    return m.node("MatMul", [p, k], q.dims, min(k.lo, 0), max(k.hi, 0))


def gemm(m):
    v = m.recent(floats(lambda u: u.rank == 2 and (u.known(0) or u.known(1)) and elements(u.dims) < m.limit(20000)))
    if v is None:
        return None
    turn = v.known(0) and (not v.known(1) or m.chance(0.2))
    k, rows = (v.dims[0], v.dims[1]) if turn else (v.dims[1], v.dims[0])
    n = m.size()
    attrs = {"transA": 1} if turn else {}
    if m.chance(0.5):
        attrs["transB"] = 1
    w, most = m.weight((n, k) if "transB" in attrs else (k, n), v.dtype, k)
    alpha, beta = (m.number(-1.5, 2) if m.chance(0.4) else 1.0), (m.number(-1.5, 2) if m.chance(0.4) else 1.0)
    attrs.update({"alpha": alpha} if alpha != 1 else {}, **({"beta": beta} if beta != 1 else {}))
    inputs = [v, w]
    if m.chance(0.8):
        shape = m.pick(((n,), (1, n), (), (1,), (rows, n), (rows, 1)), (6, 2, 1, 1, 2, 1))
        if isinstance(rows, str) and rows in shape:
            inputs.append(m.input(shape, v.dtype))
        else:
            inputs.append(m.constant(m.array(shape, v.dtype, -2, 2)))
    bound = abs(alpha) * k * most * v.wide + abs(beta) * 2
    return m.node("Gemm", inputs, (rows, n), -bound, bound, attrs=attrs)


# -- Convolutions -----------------------------------------------------------------------------------


def window(m, v, transposed=False, most_kernel=5):
    """(attributes, output's spatial dims) of a window that fits v; None: none was found."""
    spatial = v.dims[2:]
    for _ in range(6):
        kernel = [m.pick((1, 2, 3, 4, 5, 7), (4, 1, 6, 1, 1.5, .5)) for _ in spatial]
        kernel = [min(k, most_kernel) for k in kernel]
        dilation = [m.pick((1, 2, 3), (8, 1, .5)) if k > 1 else 1 for k in kernel]
        stride = [m.pick((1, 2, 3), (6, 3, .5))] * len(spatial) if m.chance(0.8) else \
            [m.pick((1, 2, 3)) for _ in spatial]
        reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
        pads = [[r // 2, (r + 1) // 2] for r in reach] if m.chance(0.6) else \
            [[m.rng.randint(0, r + 1) if r else 0 for _ in range(2)] for r in reach]
        for i, d in enumerate(spatial):
            if isinstance(d, str):
                stride[i], pads[i] = 1, [reach[i] // 2, (reach[i] + 1) // 2]
        attrs = {"kernel_shape": kernel, "strides": stride, "dilations": dilation}
        auto = None
        if not any(isinstance(d, str) for d in spatial) and m.chance(0.15) and not transposed:
            auto = m.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
            attrs["auto_pad"] = auto
            if auto != "VALID":
                # onnxruntime refuses dilations here.
                attrs["dilations"], reach = [1] * len(kernel), [k - 1 for k in kernel]
            pads = [[0, 0]] * len(spatial)
        else:
            attrs["pads"] = [p[0] for p in pads] + [p[1] for p in pads]
        out = []
        for d, r, s, p in zip(spatial, reach, stride, pads):
            if isinstance(d, str):
                out.append(d)
            elif transposed:
                out.append((d - 1) * s + r + 1 - sum(p))
            elif auto in ("SAME_UPPER", "SAME_LOWER"):
                out.append(-(-d // s))
            else:
                out.append((d + sum(p) - r - 1) // s + 1 if d + sum(p) > r else 0)
        if all(isinstance(d, str) or 1 <= d <= 40 for d in out):
            if m.chance(0.3):
                attrs = {k: a for k, a in attrs.items()
                         if k in ("kernel_shape", "auto_pad") or any(x != (0 if k == "pads" else 1) for x in a)}
            return attrs, tuple(out)
    return None


def images(m, most=30000):
    return m.recent(floats(lambda u: 3 <= u.rank <= 5 and u.known(1) and u.dims[1] > 0 and elements(u.dims) < m.limit(most)))


def conv(m):
    v = images(m)
    found = window(m, v) if v is not None else None
    if found is None:
        return None
    attrs, out = found
    c = v.dims[1]
    kind = m.pick(("plain", "depthwise", "grouped"), (6, 2.5, 2))
    group = {"plain": 1, "depthwise": c, "grouped": m.pick([g for g in range(1, c + 1) if c % g == 0])}[kind]
    features = group * m.pick([1, 1, 1, 2, 3]) if kind == "depthwise" else \
        max(1, m.size() // group) * group
    if features > max(64, c):
        features = group
    fan = c // group * math.prod(attrs["kernel_shape"])
    w, most = m.weight((features, c // group, *attrs["kernel_shape"]), v.dtype, fan)
    inputs = [v, w]
    if m.chance(0.7):
        inputs.append(m.constant(m.array((features,), v.dtype, -1, 1)))
    if group > 1 or m.chance(0.2):
        attrs["group"] = group
    bound = fan * most * v.wide + 1
    return m.node("Conv", inputs, (v.dims[0], features, *out), -bound, bound, attrs=attrs)


def conv_transpose(m):
    v = m.recent(floats(lambda u: 3 <= u.rank <= 5 and u.known(*range(1, u.rank)) and elements(u.dims) < m.limit(6000)))
    found = window(m, v, transposed=True, most_kernel=4) if v is not None else None
    if found is None:
        return None
    attrs, out = found
    c = v.dims[1]
    group = m.pick([g for g in range(1, c + 1) if c % g == 0]) if m.chance(0.3) else 1
    features = m.pick((1, 2, 3, 4, 8, 16))
    if features * group > 64:
        features = 1
    fan = c // group * math.prod(attrs["kernel_shape"])
    w, most = m.weight((c, features, *attrs["kernel_shape"]), v.dtype, fan)
    strides = attrs.get("strides", [1] * len(out))
    if m.chance(0.3) and max(strides) > 1:
        extra = [m.rng.randint(0, s) for s in strides]
        attrs["output_padding"], out = extra, tuple(d + e for d, e in zip(out, extra))
    inputs = [v, w] + ([m.constant(m.array((features * group,), v.dtype, -1, 1))] if m.chance(0.6) else [])
    if group > 1:
        attrs["group"] = group
    bound = fan * most * v.wide + 1
    return m.node("ConvTranspose", inputs, (v.dims[0], features * group, *out), -bound, bound, attrs=attrs)


def bottleneck(m):
    """conv, norm, relu, conv, and the input added: a residual block."""
    v = m.recent(floats(lambda u: u.rank == 4 and u.known(1) and u.dims[1] > 0 and elements(u.dims) < m.limit(15000)))
    if v is None:
        return None
    c, y = v.dims[1], v
    for i in range(2):
        w, most = m.weight((c, c, 3, 3), v.dtype, 9 * c)
        y = m.node("Conv", [y, w], v.dims, -9 * c * most * y.wide, 9 * c * most * y.wide, attrs={"pads": [1] * 4})
        y = m.calm(y)
        if m.chance(0.5):
            y = affine_norm(m, y)
        if i == 0:
            y = m.node("Relu", [y], v.dims, max(y.lo, 0), max(y.hi, 0))
    y = binary_of(m, "Add", *((v, y) if m.chance(0.5) else (y, v)))
    return m.node("Relu", [y], v.dims, max(y.lo, 0), max(y.hi, 0)) if m.chance(0.7) else y


def squeeze_excite(m):
    v = m.recent(floats(lambda u: u.rank == 4 and u.known(1) and 0 < u.dims[1] <= 64 and elements(u.dims) < m.limit(20000)))
    if v is None:
        return None
    c, few = v.dims[1], m.pick((1, 4, 8))
    y = m.node("GlobalAveragePool", [v], v.dims[:2] + (1, 1), v.lo, v.hi)
    for features, act in ((few, m.pick(("Relu", "Sigmoid"))), (c, "Sigmoid")):
        w, most = m.weight((features, y.dims[1], 1, 1), v.dtype, y.dims[1])
        bias = m.constant(m.array((features,), v.dtype))
        bound = y.dims[1] * most * y.wide + 1
        y = m.calm(m.node("Conv", [y, w, bias], v.dims[:1] + (features, 1, 1), -bound, bound))
        y = m.node(act, [y], y.dims, 0, 1 if act == "Sigmoid" else max(y.hi, 0))
    return binary_of(m, "Mul", v, y)


# -- Normalisations -----------------------------------------------------------------------------------


def affine_norm(m, v):
    """Batch normalisation of v."""
    c = v.dims[1]
    scale, bias = m.constant(m.array((c,), v.dtype, 0.2, 1.5)), m.constant(m.array((c,), v.dtype))
    mean, var = m.constant(m.array((c,), v.dtype)), m.constant(m.array((c,), v.dtype, 0.3, 2))
    bound = 1.5 * (v.wide + 1) / math.sqrt(0.3) + 1
    return m.node("BatchNormalization", [v, scale, bias, mean, var], v.dims, -bound, bound,
                  attrs={"epsilon": m.pick((1e-5, 1e-3))} if m.chance(0.7) else {})


def batch_norm(m):
    v = m.recent(floats(lambda u: u.rank >= 2 and u.known(1) and u.dims[1] > 0))
    return affine_norm(m, v) if v is not None else None


def layer_norm(m):
    v = m.recent(floats(lambda u: u.rank >= 1 and u.known(-1) and u.dims[-1] > 1))
    if v is None or m.graph.opset < 17:
        return None
    axis = -1
    if v.rank > 2 and v.known(-2) and m.chance(0.2):
        axis = -2
    shape = v.dims[axis:]
    most = 2 * math.sqrt(elements(shape)) + 1
    inputs = [v, m.constant(m.array(shape, v.dtype, -1, 2))]
    if m.chance(0.7):
        inputs.append(m.constant(m.array(shape, v.dtype)))
    return m.node("LayerNormalization", inputs, v.dims, -most, most,
                  attrs={"axis": axis if m.chance(0.5) else v.rank + axis, "epsilon": m.pick((1e-5, 1e-2))})


def instance_norm(m):
    v = m.recent(floats(lambda u: u.rank >= 3 and u.known(1) and u.dims[1] > 0 and elements(u.dims[2:]) > 1))
    if v is None:
        return None
    c = v.dims[1]
    most = 2 * math.sqrt(elements(v.dims[2:])) + 1
    scale, bias = m.constant(m.array((c,), v.dtype, -1, 2)), m.constant(m.array((c,), v.dtype))
    if m.chance(0.4) and m.graph.opset >= 18 and not any(isinstance(d, str) for d in v.dims[2:]):
        groups = m.pick([g for g in range(1, c + 1) if c % g == 0])
        if m.graph.opset < 21:
            scale, bias = m.constant(m.array((groups,), v.dtype, -1, 2)), m.constant(m.array((groups,), v.dtype))
        return m.node("GroupNormalization", [v, scale, bias], v.dims, -most * c, most * c,
                      attrs={"num_groups": groups, "epsilon": 1e-2})
    return m.node("InstanceNormalization", [v, scale, bias], v.dims, -most, most, attrs={"epsilon": 1e-2})


def other_norm(m):
    v = m.recent(floats(lambda u: u.rank >= 1 and u.known(-1) and u.dims[-1] > 0))
    if v is None:
        return None
    op = m.pick(("Softmax", "LogSoftmax", "LRN", "LpNormalization", "MeanVarianceNormalization"), (6, 2, 2, 1, .5))
    axis = m.pick([a for a in range(v.rank) if v.known(a) and v.dims[a] > 0])
    if op in ("Softmax", "LogSoftmax"):
        axis = m.pick((axis, -1))
        lo = -2 * v.wide - math.log(elements(v.dims) + 1)
        return m.node(op, [v], v.dims, *((0, 1) if op == "Softmax" else (lo, 0)), attrs={"axis": axis})
    if op == "LRN" and v.rank == 4 and v.known(1):
        return m.node(op, [v], v.dims, -v.wide, v.wide,
                      attrs={"size": m.pick((1, 3, 5)), "alpha": m.number(0.01, 0.5), "beta": 0.75,
                             "bias": m.number(1, 2)})
    if op == "LpNormalization" and v.lo >= 0.1:
        return m.node(op, [v], v.dims, 0, 1, attrs={"axis": axis, "p": m.pick((1, 2))})
    if op == "MeanVarianceNormalization" and v.dtype != "float16" and v.rank == 4 and elements(v.dims[2:]) > 1 and v.known(2, 3):
        most = math.sqrt(elements(v.dims)) + 1
        return m.node(op, [v], v.dims, -most, most, attrs={"axes": m.pick(([0, 2, 3], [2, 3]))})
    return None


# -- Pools and reductions -----------------------------------------------------------------------------


def pool(m):
    v = images(m)
    if v is None:
        return None
    op = m.pick(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool"),
                (5, 5, 3, 1, 1, .5))
    if op.startswith("Global"):
        hi = v.wide * math.sqrt(elements(v.dims[2:])) if "Lp" in op else v.hi
        return m.node(op, [v], v.dims[:2] + (1,) * (v.rank - 2), 0 if "Lp" in op else v.lo, hi)
    found = window(m, v)
    if found is None:
        return None
    attrs, out = found
    kernel, spatial = attrs["kernel_shape"], v.dims[2:]
    pads = attrs.get("pads", [0] * 2 * len(kernel))
    if any(p >= k for p, k in zip(pads, kernel + kernel)):
        return None
    if "auto_pad" in attrs and any(s > k for s, k in zip(attrs.get("strides", []), kernel)):
        return None
    if op != "MaxPool" and (max(attrs.get("dilations", [1])) > 1 or m.graph.opset < 19):
        if max(attrs.get("dilations", [1])) > 1:
            return None
        attrs.pop("dilations", None)
    if m.chance(0.2) and "auto_pad" not in attrs and op != "LpPool" and all(isinstance(d, int) for d in spatial):
        attrs["ceil_mode"] = 1
        out = []
        n = len(kernel)
        for i, d in enumerate(spatial):
            s, r = attrs.get("strides", [1] * n)[i], attrs.get("dilations", [1] * n)[i] * (kernel[i] - 1) + 1
            o = -(-(d + pads[i] + pads[n + i] - r) // s) + 1
            if (o - 1) * s >= d + pads[i]:
                return None  # a window of padding only: opsets differ in what it means
            out.append(o)
    lo, hi = v.lo, v.hi
    if op == "AveragePool":
        lo, hi = min(lo, 0), max(hi, 0)
        if m.chance(0.4):
            attrs["count_include_pad"] = 1
    if op == "LpPool":
        attrs.pop("dilations", None)
        attrs["p"], lo, hi = 2, 0, v.wide * math.sqrt(math.prod(kernel))
    return m.node(op, [v], v.dims[:2] + tuple(out), lo, hi, attrs=attrs)


def reduce(m, kinds=None):
    v = m.recent(lambda u: u.rank >= 1 and (kinds or u.dtype.startswith("float")) and elements(u.dims) > 0)
    if v is None:
        return None
    op = m.pick(kinds or ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
                          "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum", "ReduceProd"),
                None if kinds else (6, 5, 3, 2, 1, 1.5, 1, 1, .5, .5))
    axes = sorted(a for a in range(v.rank) if m.chance(0.4)) or [v.rank - 1]
    n = elements([v.dims[a] for a in axes])
    known = v.known(*axes)
    lo, hi = v.lo, v.hi
    if op == "ReduceSum":
        lo, hi = min(n * lo, lo), max(n * hi, hi)
    elif op in ("ReduceL1", "ReduceL2"):
        lo, hi = 0, n * v.wide
    elif op == "ReduceSumSquare":
        lo, hi = 0, n * v.wide ** 2
    elif op == "ReduceLogSumExp":
        hi = v.hi + math.log(n + 1)
    elif op == "ReduceLogSum":
        if v.lo < 0.1:
            return None
        lo, hi = math.log(v.lo), math.log(v.hi * (n + 1))
    elif op == "ReduceProd":
        if n > 4 or v.wide > 4:
            return None
        lo, hi = -v.wide ** n - 1, v.wide ** n + 1
    if max(abs(lo), abs(hi)) > 2e4 or not known and op not in ("ReduceMean", "ReduceMax", "ReduceMin"):
        return None
    keep = m.chance(0.6)
    dims = tuple(1 if i in axes else d for i, d in enumerate(v.dims) if keep or i not in axes)
    if m.chance(0.3):
        axes = [a - v.rank for a in axes]
    by_input = m.graph.opset >= (13 if op == "ReduceSum" else 18)
    attrs = {} if keep and m.chance(0.5) else {"keepdims": int(keep)}
    if len(axes) == v.rank and m.chance(0.5):
        return m.node(op, [v], dims, lo, hi, attrs=attrs)
    if by_input:
        return m.node(op, [v, m.constant(np.asarray(axes, np.int64))], dims, lo, hi, attrs=attrs)
    return m.node(op, [v], dims, lo, hi, attrs=dict(attrs, axes=axes))


# -- Movement -------------------------------------------------------------------------------------------


def transpose(m):
    v = m.recent(lambda u: u.rank >= 2)
    if v is None:
        return None
    perm = [int(a) for a in m.rng.permutation(v.rank)]
    return m.node("Transpose", [v], tuple(v.dims[a] for a in perm), v.lo, v.hi, exact=v.exact, attrs={"perm": perm})


def reshape(m):
    v = m.recent(lambda u: u.rank >= 1 and sum(isinstance(d, str) for d in u.dims) <= 1 and 0 not in u.dims)
    if v is None:
        return None
    # Merge two neighbours, or split one.
    dims, target = list(v.dims), [0] * v.rank
    i = m.rng.randint(v.rank)
    if v.rank >= 2 and m.chance(0.5):
        i = min(i, v.rank - 2)
        if not v.known(i, i + 1):
            return None
        dims[i:i + 2] = [dims[i] * dims[i + 1]]
        target = [0] * i + [dims[i] if m.chance(0.5) else -1] + [d if isinstance(d, int) else -1 for d in dims[i + 1:]]
    else:
        if not v.known(i) or v.rank >= 6:
            return None
        f = m.pick([f for f in range(1, v.dims[i] + 1) if v.dims[i] % f == 0])
        dims[i:i + 1] = [f, v.dims[i] // f]
        target = [0] * i + dims[i:i + 2] + [d if isinstance(d, int) else -1 for d in dims[i + 2:]]
    if target.count(-1) > 1:
        return None
    shape = m.constant(np.asarray(target, np.int64))
    return m.node("Reshape", [v, shape], dims, v.lo, v.hi, exact=v.exact)


def flatten(m):
    v = m.recent(lambda u: u.rank >= 2 and u.known(*range(1, u.rank)))
    if v is None:
        return None
    return m.node("Flatten", [v], (v.dims[0], math.prod(v.dims[1:])), v.lo, v.hi, exact=v.exact)


def concat(m):
    v = m.recent(lambda u: u.rank >= 1 and elements(u.dims) < m.limit(10000))
    axes = [a for a in range(v.rank) if v.known(a)] if v is not None else []
    if not axes:
        return None
    axis = m.pick(axes)

    def fits(u):
        return u.dtype == v.dtype and u.rank == v.rank and u.known(axis) and \
            all(i == axis or a == b for i, (a, b) in enumerate(zip(u.dims, v.dims)))
    parts = [v] + [m.recent(fits) for _ in range(m.pick((1, 2, 3), (6, 2, 1)))]
    if m.chance(0.2) and v.known(*range(v.rank)):
        a = m.array(v.dims, v.dtype, 0, 2)
        parts.append(m.constant(a))
    if m.chance(0.5):
        parts = parts[::-1]
    values = [p for p in parts if not isinstance(p, str)]
    size = sum(v.dims[axis] if isinstance(p, str) else p.dims[axis] for p in parts)
    dims = tuple(size if i == axis else d for i, d in enumerate(v.dims))
    return m.node("Concat", parts, dims, min([p.lo for p in values] + [0]), max([p.hi for p in values] + [2]),
                  attrs={"axis": m.pick((axis, axis - v.rank))}, exact=all(p.exact for p in values))


def split(m):
    """Split; sometimes one part gates another, or the parts change places."""
    v = m.recent(lambda u: u.rank >= 1 and any(isinstance(d, int) and d >= 2 for d in u.dims))
    if v is None:
        return None
    axis = m.pick([a for a in range(v.rank) if v.known(a) and v.dims[a] >= 2])
    n = v.dims[axis]
    even = n % 2 == 0 and m.chance(0.6)
    sizes = [n // 2, n // 2] if even else [m.rng.randint(1, n)]
    if not even:
        sizes.append(n - sizes[0])
    parts = []
    for s in sizes:
        dims = tuple(s if i == axis else d for i, d in enumerate(v.dims))
        parts.append(type(v)(m.name(), v.dtype, dims, v.lo, v.hi, v.exact))
    inputs, attrs = [v.name], {"axis": axis}
    if not (even and m.chance(0.5) and m.graph.opset < 18):
        inputs.append(m.constant(np.asarray(sizes, np.int64)))
    m.graph.nodes.append(Node("Split", inputs, [p.name for p in parts], attrs))
    m.values += parts
    m.graph.dtypes.update({p.name: p.dtype for p in parts})
    if even and v.dtype.startswith("float") and m.chance(0.6):
        gate = m.node("Sigmoid", [parts[1]], parts[1].dims, 0, 1)
        return binary_of(m, "Mul", parts[0], gate)
    if m.chance(0.3):
        return m.node("Concat", parts[::-1], v.dims, v.lo, v.hi, attrs={"axis": axis}, exact=v.exact)
    return m.pick(parts)


def slice_(m):
    v = m.recent(lambda u: u.rank >= 1 and any(isinstance(d, int) and d >= 2 for d in u.dims))
    if v is None:
        return None
    axis = m.pick([a for a in range(v.rank) if v.known(a) and v.dims[a] >= 2])
    n, step = v.dims[axis], m.pick((1, 2, -1), (6, 2, 1))
    begin = int(m.rng.randint(0, n - 1))
    end = int(m.rng.randint(begin + 1, n + 1))
    size = len(range(begin, end, abs(step)))
    if step < 0:
        begin, end = end - 1, begin - 1 if begin else -n - 1
    words = [m.constant(np.asarray([x], np.int64)) for x in (begin, end if m.chance(0.7) or end != n else 1 << 40, axis,
                                                              step)]
    return m.node("Slice", [v, *words], tuple(size if i == axis else d for i, d in enumerate(v.dims)), v.lo, v.hi,
                  exact=v.exact)


def pad(m):
    v = m.recent(lambda u: u.rank >= 1 and elements(u.dims) < m.limit(8000) and u.dtype != "float64")
    if v is None:
        return None
    pads = [[m.rng.randint(0, 3), m.rng.randint(0, 3)] if v.known(a) and v.dims[a] > 2 and m.chance(0.5) else [0, 0]
            for a in range(v.rank)]
    mode = m.pick(("constant", "reflect", "edge"), (4, 1, 1))
    dims = tuple(d + sum(p) if isinstance(d, int) else d for d, p in zip(v.dims, pads))
    inputs = [v, m.constant(np.asarray([p[0] for p in pads] + [p[1] for p in pads], np.int64))]
    x = m.pick((0.0, 1.0))
    if mode == "constant" and m.chance(0.6):
        inputs.append(m.constant(np.asarray(x, v.dtype)))
    return m.node("Pad", inputs, dims, min(v.lo, 0), max(v.hi, 1), attrs={"mode": mode}, exact=v.exact)


def squeeze(m):
    v = m.recent(lambda u: 1 <= u.rank <= 5)
    if v is None:
        return None
    ones = [a for a in range(v.rank) if v.dims[a] == 1]
    if ones and m.chance(0.7):
        a = m.pick(ones)
        return m.node("Squeeze", [v, m.constant(np.asarray([a], np.int64))], v.dims[:a] + v.dims[a + 1:], v.lo, v.hi,
                      exact=v.exact)
    a = m.rng.randint(v.rank + 1)
    return m.node("Unsqueeze", [v, m.constant(np.asarray([a], np.int64))], v.dims[:a] + (1,) + v.dims[a:], v.lo, v.hi,
                  exact=v.exact)


def gather(m):
    v = m.recent(lambda u: u.rank >= 1 and any(isinstance(d, int) and d > 0 for d in u.dims)
                 and elements(u.dims) < m.limit(8000))
    if v is None:
        return None
    axis = m.pick([a for a in range(v.rank) if v.known(a) and v.dims[a] > 0])
    shape = m.pick(((), (1,), (3,), (2, 2)))
    index = m.rng.randint(-v.dims[axis], v.dims[axis], size=shape).astype(np.int64)
    return m.node("Gather", [v, m.constant(np.asarray(index))], v.dims[:axis] + shape + v.dims[axis + 1:], v.lo, v.hi,
                  attrs={"axis": axis}, exact=v.exact)


def expand(m):
    v = m.recent(lambda u: u.rank >= 1 and 1 in u.dims and elements(u.dims) < m.limit(3000) and u.known(*range(u.rank)))
    if v is None:
        return None
    dims = tuple(m.pick((1, 2, 3, 5)) if d == 1 else d for d in v.dims)
    if m.chance(0.5):
        return m.node("Tile", [v, m.constant(np.asarray([a // b for a, b in zip(dims, v.dims)], np.int64))], dims,
                      v.lo, v.hi, exact=v.exact) if 0 not in v.dims else None
    return m.node("Expand", [v, m.constant(np.asarray(dims, np.int64))], dims, v.lo, v.hi, exact=v.exact)


def resize(m):
    v = m.recent(floats(lambda u: u.rank == 4 and u.known(1, 2, 3) and elements(u.dims) < m.limit(3000) and 0 not in u.dims))
    if v is None or v.dtype == "float64":
        return None
    f = m.pick((2, 2, 3))
    if m.chance(0.3) and v.dims[1] % 4 == 0:
        return m.node("DepthToSpace", [v], (v.dims[0], v.dims[1] // 4, v.dims[2] * 2, v.dims[3] * 2), v.lo, v.hi,
                      attrs={"blocksize": 2, "mode": m.pick(("DCR", "CRD"))}, exact=v.exact)
    mode, how = m.pick((("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")))
    attrs = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        attrs["nearest_mode"] = "floor"
    scales = m.constant(np.asarray([1, 1, f, f], np.float32))
    return m.node("Resize", [v, None, scales], v.dims[:2] + (v.dims[2] * f, v.dims[3] * f), v.lo, v.hi, attrs=attrs)


def integer_matmul(m):
    v = m.recent(lambda u: u.rank >= 2 and u.known(-1) and u.wide * u.dims[-1] < 60)
    if v is None or v.dtype not in ("int32", "int64"):
        return None
    k, n = v.dims[-1], m.pick((1, 3, 8))
    w = m.constant(m.rng.randint(-1, 2, size=(k, n)).astype(v.dtype))
    return m.node("MatMul", [v, w], v.dims[:-1] + (n,), -k * v.wide, k * v.wide, exact=True)


def integer_reduce(m):
    small = any(u.dtype in ("int8", "uint8") for u in m.values)
    return reduce(m, ("ReduceMax", "ReduceMin") + (() if small else ("ReduceSum",)))


HEADS = ((matmul, 8), (matmul_left, 1.5), (attention, 2), (gemm, 5), (conv, 12), (conv_transpose, 2), (bottleneck, 1),
         (squeeze_excite, 1), (batch_norm, 3), (layer_norm, 3), (instance_norm, 2), (other_norm, 3), (pool, 4),
         (reduce, 3), (transpose, 1.5), (reshape, 1.5), (flatten, 0.5), (concat, 2), (split, 2), (slice_, 1), (pad, 1),
         (squeeze, 0.5), (gather, 0.7), (expand, 0.5), (resize, 0.7))
CHAIN_HEADS = ((matmul, 3), (gemm, 3), (conv, 4), (conv_transpose, 1))
INTEGER_HEADS = ((integer_matmul, 4), (integer_reduce, 2), (transpose, 1), (reshape, 1), (concat, 2), (split, 1),
                 (slice_, 1), (gather, 1), (expand, 1), (squeeze, 1))
