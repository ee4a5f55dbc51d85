"""Movement of elements: gathers, scatters, slices, pads, resizes and the like with random attributes."""
import numpy as np

ANY = ("float32", "float32", "int32", "int64", "uint8", "float64", "bool")
FAR = (1 << 63) - 1


def _x(c, least=1, most=4, empty=0.03, types=ANY):
    return c.array(c.shape(least, most, empty=empty), c.pick(types))


def _index(c, shape, size, dtype=None):
    dtype = dtype or c.pick((np.int64, np.int32))
    return np.asarray(c.rs.randint(-size, size, shape)).astype(dtype)


def gather(c):
    x = _x(c, empty=0)
    axis = c.axis(x.ndim)
    c.node("Gather", [c.operand(x), c.operand(_index(c, c.shape(0, 2), x.shape[axis]))], {"axis": axis})


def gather_elements(c):
    x = _x(c, empty=0)
    axis = c.axis(x.ndim)
    shape = [c.number(1, d) for d in x.shape]
    shape[axis] = c.number(1, 5)
    c.node("GatherElements", [c.operand(x), c.operand(_index(c, shape, x.shape[axis]))], {"axis": axis})


def gather_nd(c):
    x = _x(c, empty=0)
    batch = c.number(0, x.ndim - 1)
    deep = c.number(1, x.ndim - batch)
    outer = x.shape[:batch] + c.shape(0 if batch else 1, 2)
    parts = [_index(c, outer, x.shape[batch + i], np.int64) for i in range(deep)]
    c.node("GatherND", [c.operand(x), c.operand(np.stack(parts, -1))], {"batch_dims": batch})


def scatter_elements(c):
    c.opset = c.graph.opset = 18
    x = _x(c, empty=0, types=("float32", "int64", "float64", "int32"))
    axis = c.axis(x.ndim)
    shape = [c.number(1, d) for d in x.shape]
    reduction = c.pick(("none", "add", "mul", "max", "min"))
    if reduction == "none":  # an element that is written twice may have either value
        order = np.argsort(c.rs.random_sample(x.shape), axis)
        index = order[tuple(slice(0, n) for n in shape)].astype(np.int64)
        index = np.where(c.rs.random_sample(shape) < 0.3, index - x.shape[axis], index)
    else:
        index = _index(c, shape, x.shape[axis])
    c.node("ScatterElements", [c.operand(x), c.operand(index), c.operand(c.array(shape, x.dtype.name))],
           {"axis": axis, "reduction": reduction})


def scatter_nd(c):
    c.opset = c.graph.opset = 18
    x = _x(c, empty=0, types=("float32", "int64", "float64", "int32"))
    deep, n = c.number(1, x.ndim), c.number(1, 4)
    reduction = c.pick(("none", "add", "mul", "max", "min"))
    index = np.stack([_index(c, (n,), x.shape[i], np.int64) for i in range(deep)], -1)
    if reduction == "none":
        index = index[:1]
    updates = c.array((len(index),) + x.shape[deep:], x.dtype.name)
    c.node("ScatterND", [c.operand(x), c.operand(index), c.operand(updates)], {"reduction": reduction})


def slices(c):
    """Ends beyond the tensor, steps of both signs, axes in any order or absent. (onnxruntime takes the largest
    int64 as the end in backward direction, too; ONNX and numpy do not.)"""
    x = _x(c)
    n = c.number(1, x.ndim)
    axes = c.rs.permutation(x.ndim)[:n] if c.chance(0.8) else np.arange(n)
    words = []
    for a in axes:
        d = x.shape[a]
        step = c.pick((1, 1, 2, 3, -1, -2, FAR, -FAR - 1), (5, 5, 2, 1, 2, 1, .5, .5))
        far = FAR if step > 0 else -FAR
        ends = [c.pick((0, c.number(-d - 2, d + 2), far, -1), (3, 5, 1, 1)) for _ in range(2)]
        words.append((*ends, step))
    starts, ends, steps = (np.asarray([w[i] for w in words], np.int64) for i in range(3))
    given = list(axes) != list(range(n)) or c.chance(0.5)
    names = [np.where(c.rs.random_sample(n) < 0.3, axes - x.ndim, axes).astype(np.int64)] if given else [None]
    stepped = bool((steps != 1).any())
    operands = [starts, ends] + names + ([steps] if stepped else [])
    c.node("Slice", [c.operand(x)] + [None if a is None else c.operand(a) for a in operands])


def pads(c):
    mode = c.pick(("constant", "reflect", "edge") + (("wrap",) if c.opset >= 19 else ()))
    x = _x(c, 1, 4, empty=0, types=("float32", "int32", "int64", "uint8", "float64"))
    axes = sorted(c.rs.permutation(x.ndim)[:c.number(1, x.ndim)].tolist()) if c.opset >= 18 and c.chance(0.4) else None
    low, high = [], []
    for a in axes if axes is not None else range(x.ndim):
        most = x.shape[a] - 1 if mode in ("reflect", "wrap") else 3
        low.append(c.number(-1 if x.shape[a] > 2 and mode in ("constant", "edge") else 0, max(most, 0)))
        high.append(c.number(0, max(most, 0)))
    operands = [c.operand(x), c.operand(np.asarray(low + high, np.int64))]
    value = c.operand(c.array((), x.dtype.name)) if mode == "constant" and c.chance(0.6) else None
    operands += [value] + ([c.constant(np.asarray(axes, np.int64))] if axes is not None else [])
    c.node("Pad", operands, {"mode": mode} if mode != "constant" or c.chance(0.5) else {})


def resizes(c):
    """Every mode; sizes or scales. (Of a fractional scale with align_corners, ONNX takes the exact length, onnxruntime
    the rounded one; where half_pixel_symmetric meets an element exactly, onnxruntime may fall below it.)"""
    c.opset = c.graph.opset = c.pick((11, 13, 18, 19))
    rank = c.pick((4, 4, 3, 5))
    shape = (c.number(1, 2), c.number(1, 3)) + tuple(c.pick((1, 2, 3, 5, 8)) for _ in range(rank - 2))
    mode = c.pick(("nearest", "linear", "cubic"), (4, 4, 2))
    if mode == "cubic" and rank != 4:
        mode = "nearest"
    how = c.pick(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel") +
                 (("half_pixel_symmetric",) if c.opset >= 19 else ()))
    attrs = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        attrs["nearest_mode"] = c.pick((() if how == "half_pixel_symmetric" else ("floor", "ceil")) +
                                       ("round_prefer_floor", "round_prefer_ceil"))
    if mode == "cubic":
        attrs.update({"cubic_coeff_a": c.pick((-0.75, -0.5)), "exclude_outside": c.flag()})
    x = c.operand(c.reals(shape))
    none = c.constant(np.zeros(0, np.float32)) if c.opset < 13 else None
    if c.chance(0.5):
        sizes = shape[:2] + tuple(c.pick((1, 2, 3, 4, 7, 9)) for _ in shape[2:])
        c.node("Resize", [x, none, none, c.operand(np.asarray(sizes, np.int64))], attrs)
    else:
        fractions = () if how == "align_corners" else (0.5, 1.5, 0.6, 1.26)
        scales = [1.0, 1.0] + [c.pick((2.0, 3.0, 1.0) + fractions) for _ in shape[2:]]
        lengths = tuple(int(np.floor(d * s)) for d, s in zip(shape, scales))
        if 0 in lengths or lengths == shape:  # of equal lengths onnxruntime makes a copy
            scales = [2.0 if i > 1 else 1.0 for i in range(rank)]
        c.node("Resize", [x, none, c.operand(np.asarray(scales, np.float32))], attrs)


def repeats(c):
    x = _x(c, 1, 3, types=("float32", "int64", "bool", "uint8"))
    if c.chance(0.5):
        c.node("Tile", [c.operand(x), c.operand(np.asarray([c.number(0, 3) for _ in x.shape], np.int64))])
    else:
        target = [d if d != 1 or c.chance(0.5) else c.number(1, 4) for d in x.shape]
        target = [1 if c.chance(0.3) else d for d in target]
        target = [c.number(1, 3) for _ in range(c.number(0, 2))] + target
        c.node("Expand", [c.operand(x), c.operand(np.asarray(target, np.int64))])


def joins(c):
    rank = c.number(1, 4)
    base = list(c.shape(rank, rank, empty=0))
    axis, dtype = c.axis(rank), c.pick(ANY)
    parts = []
    for _ in range(c.number(1, 4)):
        base[axis] = c.number(0, 4)
        parts.append(c.operand(c.array(tuple(base), dtype)))
    c.node("Concat", parts, {"axis": axis})


def splits(c):
    x = _x(c, empty=0)
    axis = c.axis(x.ndim)
    n = x.shape[axis]
    if c.opset >= 18 and c.chance(0.4):
        parts = c.number(1, n)
        if (n + parts - 1) // parts * (parts - 1) >= n:  # the last part would be empty
            parts = 1
        c.node("Split", [c.operand(x)], {"axis": axis, "num_outputs": parts}, n_out=parts)
        return
    cuts = sorted(c.number(0, n) for _ in range(c.number(0, 3)))
    sizes = np.diff([0, *cuts, n]).astype(np.int64)
    c.node("Split", [c.operand(x), c.constant(sizes)], {"axis": axis}, n_out=len(sizes))


def reshapes(c):
    x = _x(c)
    dims = list(x.shape)
    c.rs.shuffle(dims)
    if len(dims) > 1 and c.chance(0.5):
        dims[:2] = [dims[0] * dims[1]]
    if x.size and c.chance(0.6):
        dims[c.number(0, len(dims) - 1)] = -1
    attrs = {"allowzero": 1} if 0 in x.shape and c.opset >= 14 else {}
    if 0 in x.shape and not attrs:
        dims = [0] * x.ndim
    c.node("Reshape", [c.operand(x), c.operand(np.asarray(dims, np.int64))], attrs)


def blocks(c):
    b = c.pick((1, 2, 3))
    if c.chance(0.5):
        x = c.array((c.number(1, 2), c.number(1, 3) * b * b, c.number(1, 3), c.number(1, 4)), "float32")
        c.node("DepthToSpace", [c.operand(x)], {"blocksize": b, "mode": c.pick(("DCR", "CRD"))})
    else:
        x = c.array((c.number(1, 2), c.number(1, 3), c.number(1, 3) * b, c.number(1, 3) * b), "float32")
        c.node("SpaceToDepth", [c.operand(x)], {"blocksize": b})


def triangles(c):
    x = c.array(c.shape(2, 4), c.pick(("float32", "int64")))
    k = c.operand(np.asarray(c.pick((0, 1, -1, 3, -9, FAR // 2)), np.int64)) if c.chance(0.7) else None
    c.opset = c.graph.opset = max(c.opset, 14)
    c.node("Trilu", [c.operand(x), k], {"upper": c.flag()})


def one_hot(c):
    depth = c.number(1, 6)
    index = np.asarray(c.rs.randint(-depth - 1, depth + 1, c.shape(0, 3))).astype(c.pick((np.int64, np.int32, np.float32)))
    rank = index.ndim
    values = c.pick((np.asarray([0, 1], np.float32), np.asarray([-1, 5], np.int64), np.asarray([2, 3], np.int32)))
    c.node("OneHot", [c.operand(index), c.operand(np.asarray(depth, np.int64)), c.constant(values)],
           {"axis": c.number(-rank - 1, rank)} if c.chance(0.6) else {})


def selects(c):
    """Compress, NonZero, Unique: the size of the result depends on data."""
    op = c.pick(("Compress", "NonZero", "Unique"))
    x = c.array(c.shape(1, 3), c.pick(("float32", "int64")))
    if op == "NonZero":
        c.node(op, [c.operand(x)])
    elif op == "Compress":
        axis = c.axis(x.ndim) if c.chance(0.6) else None
        n = x.size if axis is None else x.shape[axis]
        c.node(op, [c.operand(x), c.operand(c.array((c.number(0, n),), "bool"))], {} if axis is None else {"axis": axis})
    else:
        x = c.integers(c.shape(1, 3, empty=0), "int8", 0, 3).astype(np.float32)
        c.node(op, [c.operand(x)], {"sorted": 1, **({"axis": c.axis(x.ndim)} if c.chance(0.5) else {})}, n_out=4)


def reverses(c):
    batch, time = c.number(1, 4), c.number(1, 5)
    major = c.flag()
    x = c.array(((time, batch) if major else (batch, time)) + c.shape(0, 1), "float32")
    c.node("ReverseSequence", [c.operand(x), c.operand(np.asarray(c.rs.randint(1, time + 1, batch), np.int64))],
           {"time_axis": 1 - major, "batch_axis": major})


def top_k(c):
    """Ties keep the order of the positions."""
    x = c.integers(c.shape(1, 3, empty=0), "int8", -3, 3).astype(c.pick(("float32", "int64", "float64", "int32")))
    axis = c.axis(x.ndim)
    k = np.asarray([c.number(0, x.shape[axis])], np.int64)
    c.node("TopK", [c.operand(x), c.operand(k)], {"axis": axis, "largest": c.flag(), "sorted": 1}, n_out=2)


def ranges(c):
    dtype = c.pick(("float32", "int64", "int32", "float64"))
    start, step = c.number(-5, 5), c.pick((1, 2, -1, -3))
    c.node("Range", [c.operand(np.asarray(v, dtype)) for v in (start, start + c.number(-2, 8) * step, step)])


MAKERS = {f.__name__: f for f in (gather, gather_elements, gather_nd, scatter_elements, scatter_nd, slices, pads, resizes,
                                  repeats, joins, splits, reshapes, blocks, triangles, one_hot, selects, reverses, top_k,
                                  ranges)}
OPSETS = {}
