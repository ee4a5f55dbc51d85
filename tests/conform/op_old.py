"""Operators as older opsets have them: what became an input was an attribute, axes counted otherwise."""
import numpy as np

F = np.float32


def slices(c):
    """Attributes before opset 10; negative ends."""
    x = c.array(c.shape(1, 4, empty=0), c.pick(("float32", "int64", "int32")))
    n = c.number(1, x.ndim)
    axes = c.rs.permutation(x.ndim)[:n].tolist()
    starts = [c.number(-x.shape[a] - 1, x.shape[a]) for a in axes]
    ends = [c.pick((c.number(-x.shape[a] - 1, x.shape[a] + 2), (1 << 31) - 1)) for a in axes]
    attrs = {"starts": starts, "ends": ends, "axes": axes}
    if c.chance(0.3):
        attrs.pop("axes")
    c.node("Slice", [c.operand(x)], attrs)


def pads(c):
    x = c.array(c.shape(1, 4, sizes=(2, 3, 5), empty=0), c.pick(("float32", "float64")))
    mode = c.pick(("constant", "reflect", "edge"))
    low = 0 if mode == "reflect" else -1
    words = [c.number(low, 1) for _ in range(2 * x.ndim)]
    attrs = {"pads": words, "mode": mode}
    if mode == "constant" and c.chance(0.7):
        attrs["value"] = c.pick((0.0, 1.5, -2.0))
    c.node("Pad", [c.operand(x)], attrs)


def clips(c):
    attrs = {k: v for k, v in (("min", c.pick((-1.0, 0.0, 2.0))), ("max", c.pick((1.0, 6.0, -0.5)))) if c.chance(0.7)}
    c.node("Clip", [c.operand(c.reals(c.shape()))], attrs)


def upsample(c):
    """Opset 7: scales are an attribute; 9: an input."""
    rank = c.pick((4, 4, 3, 2))
    mode = c.pick(("nearest", "linear"))
    if rank == 3:
        mode = "nearest"
    dims = tuple(c.pick((1, 2, 3, 4)) for _ in range(rank))
    scales = [1.0] * (rank - 2) + [c.pick((1.0, 2.0, 3.0, 1.5, 2.5)) for _ in range(2)]
    if mode == "nearest" and c.chance(0.3):
        scales = [c.pick((1.0, 2.0)) for _ in range(rank)]
    x = c.operand(c.reals(dims))
    if c.opset < 9:
        c.node("Upsample", [x], {"mode": mode, "scales": scales})
    else:
        c.node("Upsample", [x, c.operand(np.asarray(scales, F))], {"mode": mode})


def resize(c):
    """Opset 10: coordinates as Upsample's, smaller ones too."""
    dims = tuple(c.pick((1, 2, 3, 5, 8)) for _ in range(4))
    scales = [1.0, 1.0] + [c.pick((1.0, 2.0, 0.5, 1.5, 0.75, 3.0)) for _ in range(2)]
    scales = [s if int(d * s) > 0 else 2.0 for d, s in zip(dims, scales)]
    c.node("Resize", [c.operand(c.reals(dims)), c.operand(np.asarray(scales, F))], {"mode": c.pick(("nearest", "linear"))})


def squeezes(c):
    x = c.array(c.shape(1, 4, sizes=(1, 1, 2, 3), empty=0), "float32")
    if c.chance(0.5):
        ones = [i for i, d in enumerate(x.shape) if d == 1]
        some = [i for i in ones if c.chance(0.6)]
        if c.opset >= 11:
            some = [i - x.ndim if c.chance(0.4) else i for i in some]
        c.node("Squeeze", [c.operand(x)], {"axes": some} if some else {})
    else:
        n = c.number(1, 2)
        axes = sorted(c.rs.permutation(x.ndim + n)[:n].tolist())
        if c.opset >= 11 and c.chance(0.4):
            axes = [a - x.ndim - n for a in axes]
        c.node("Unsqueeze", [c.operand(x)], {"axes": axes})


def reductions(c):
    op = c.pick(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"))
    x = c.reals(c.shape(1, 4, empty=0))
    axes = [a for a in range(x.ndim) if c.chance(0.5)]
    if c.opset >= 11:
        axes = [a - x.ndim if c.chance(0.4) else a for a in axes]
    attrs = {"keepdims": c.flag()} if c.chance(0.7) else {}
    if axes:
        attrs["axes"] = axes
    c.node(op, [c.operand(x)], attrs)


def splits(c):
    x = c.reals(c.shape(1, 4, empty=0))
    axis = c.axis(x.ndim) if c.opset >= 11 else c.number(0, x.ndim - 1)
    n = x.shape[axis]
    if c.chance(0.5):
        parts = c.pick([p for p in range(1, n + 1) if n % p == 0])
        c.node("Split", [c.operand(x)], {"axis": axis}, n_out=parts)
        return
    cuts = sorted(c.number(0, n) for _ in range(c.number(0, 2)))
    sizes = np.diff([0, *cuts, n]).tolist()
    c.node("Split", [c.operand(x)], {"axis": axis, "split": sizes}, n_out=len(sizes))


def flattened(c):
    """Softmax, LogSoftmax, Hardmax before 13; Flatten's axis."""
    shape = c.shape(1, 4, empty=0)
    x = c.reals(shape, lo=-9, hi=9)
    op = c.pick(("Softmax", "LogSoftmax", "Hardmax", "Flatten"))
    axis = c.number(0, len(shape) - 1) if c.opset < 11 else c.axis(len(shape))
    if op == "Hardmax":
        x = x + np.arange(x.size, dtype=F).reshape(shape) / 256
    c.node(op, [c.operand(x)], {"axis": axis} if c.chance(0.8) else {})


def gemms(c):
    m, k, n = (c.pick((1, 2, 7, 16)) for _ in range(3))
    ta, tb = c.flag(), c.flag()
    third = c.reals(c.pick(((n,), (1, n), (m, 1), (m, n), (1, 1), (1,))))
    c.node("Gemm", [c.operand(c.reals((k, m) if ta else (m, k))), c.operand(c.reals((n, k) if tb else (k, n))), c.operand(third)],
           {"transA": ta, "transB": tb, "alpha": c.pick((1.0, 0.5)), "beta": c.pick((1.0, 3.0))})


def top_k(c):
    x = c.reals(c.shape(1, 3, empty=0))
    axis = c.number(0, x.ndim - 1)
    n = c.number(1, x.shape[axis])
    if c.opset < 10:
        c.node("TopK", [c.operand(x)], {"axis": axis, "k": n}, n_out=2)
    else:
        c.node("TopK", [c.operand(x), c.operand(np.asarray([n], np.int64))], {"axis": axis}, n_out=2)


def one_hot(c):
    depth = c.number(1, 6)
    low = 0 if c.opset < 11 else -depth
    index = np.asarray(c.rs.randint(low, depth, c.shape(1, 3, empty=0))).astype(c.pick((np.int64, np.int32, F)))
    c.node("OneHot", [c.operand(index), c.constant(np.asarray([depth], np.int64)), c.constant(np.asarray([0, 1], F))],
           {"axis": c.pick((-1, 0))})


def scatters(c):
    x = c.reals(c.shape(1, 3, empty=0))
    axis = c.number(0, x.ndim - 1)
    shape = [c.number(1, d) for d in x.shape]
    order = np.argsort(c.rs.random_sample(x.shape), axis)[tuple(slice(0, n) for n in shape)].astype(np.int64)
    c.node("Scatter" if c.opset < 11 else "ScatterElements", [c.operand(x), c.operand(order), c.operand(c.reals(shape))], {"axis": axis})


def casts(c):
    x = c.array(c.shape(), c.pick(("float32", "int64", "int32", "bool", "float64")))
    c.node("Cast", [c.operand(x)], {"to": c.pick((1, 6, 7, 9, 11))})


def extremes(c):
    shape = c.shape()
    c.node(c.pick(("Max", "Min", "Sum", "Mean")), [c.operand(c.reals(shape)) for _ in range(c.number(1, 3))])


def compares(c):
    shape = c.shape()
    op = c.pick(("Greater", "Less", "Equal"))
    dtype = "int32" if op == "Equal" else "float32"
    c.node(op, [c.operand(c.array(shape, dtype)), c.operand(c.array(c.like(shape), dtype))])


def where_nonzero(c):
    x = c.array(c.shape(1, 3), c.pick(("float32", "int64", "bool")))
    c.node("NonZero", [c.operand(x)])


def gather(c):
    x = c.reals(c.shape(1, 4, empty=0))
    axis = c.number(0, x.ndim - 1)
    index = np.asarray(c.rs.randint(0, x.shape[axis], c.shape(0, 2, empty=0))).astype(c.pick((np.int64, np.int32)))
    c.node("Gather", [c.operand(x), c.operand(index)], {"axis": axis} if axis or c.chance(0.5) else {})


def constant_of_shape(c):
    dims = np.asarray(c.shape(1, 3), np.int64)
    attrs = {"value": np.asarray([c.pick((0, 3, -2))], c.pick((np.float32, np.int64, np.int32)))} if c.chance(0.7) else {}
    c.node("ConstantOfShape", [c.operand(dims)], attrs)


def eye(c):
    x = c.array((c.number(1, 5), c.number(1, 5)), c.pick(("float32", "int64", "int32")))
    attrs = {"k": c.number(-3, 3)} if c.chance(0.6) else {}
    if c.chance(0.5):
        attrs["dtype"] = c.pick((1, 7, 11, 6))
    c.node("EyeLike", [c.operand(x)], attrs)


def depth(c):
    b = c.pick((1, 2, 3))
    x = c.reals((c.number(1, 2), c.number(1, 3) * b * b, c.number(1, 3), c.number(1, 4)))
    c.node("DepthToSpace", [c.operand(x)], {"blocksize": b} | ({"mode": c.pick(("DCR", "CRD"))} if c.opset >= 11 else {}))


MAKERS = {f.__name__: f for f in (slices, pads, clips, upsample, resize, squeezes, reductions, splits, flattened, gemms, top_k,
                                  one_hot, scatters, casts, extremes, compares, where_nonzero, gather, constant_of_shape, eye, depth)}
OPSETS = {name: (7, 8, 9, 11, 12) for name in MAKERS} | {
    "slices": (7, 8, 9), "pads": (7, 9, 10), "clips": (7, 9, 10), "upsample": (7, 8, 9), "resize": (10,), "gemms": (7, 9, 10),
    "top_k": (7, 9, 10), "one_hot": (9, 11), "scatters": (9, 10, 11), "where_nonzero": (9, 12), "constant_of_shape": (9, 12),
    "eye": (9, 12), "extremes": (8, 12), "casts": (7, 9, 12)}
