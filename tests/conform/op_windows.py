"""Convolutions and pools of one to three axes: odd pads, strides, dilations, groups, auto_pad, ceil_mode; operands that
are constants, or not."""
import numpy as np

SIDES = {1: (1, 2, 5, 9, 33), 2: (1, 2, 3, 5, 8, 13), 3: (1, 2, 3, 4, 6)}


def _window(c, n, sides, auto=True, dilated=True, most=5):
    """Attributes of a window that fits; auto_pad and dilations if wanted."""
    kernel = [c.pick([k for k in (1, 2, 3, 4, 5, 7) if k <= most], None) for _ in range(n)]
    strides = [c.pick((1, 2, 3), (5, 3, 1))] * n if c.chance(0.7) else [c.pick((1, 2, 3, 4)) for _ in range(n)]
    dilations = [c.pick((1, 2, 3), (6, 2, 1)) if dilated and k > 1 else 1 for k in kernel]
    attrs = {"kernel_shape": kernel}
    if c.chance(0.8) or max(strides) > 1:
        attrs["strides"] = strides
    if max(dilations) > 1 or (dilated and c.chance(0.3)):
        attrs["dilations"] = dilations
    if auto and c.chance(0.2) and max(dilations) == 1:
        attrs["auto_pad"] = c.pick(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
        if attrs["auto_pad"] != "NOTSET":
            return attrs
    if c.chance(0.7):
        attrs["pads"] = [c.number(0, min(k - 1, 3)) for k in kernel * 2]
    # A window that is larger than what it slides over means something else everywhere: padding that it fits.
    pads = attrs.get("pads", [0] * 2 * n)
    for i, (k, d, side) in enumerate(zip(kernel, dilations, sides)):
        lacks = d * (k - 1) + 1 - side - pads[i] - pads[n + i]
        if lacks > 0 and side > 0:
            attrs["pads"] = pads
            kernel[i] = 1 if lacks > 2 else kernel[i]
            pads[i] += lacks if lacks <= 2 else 0
            if kernel[i] == 1:
                pads[i] = pads[n + i] = 0
    return attrs


def _image(c, dtype="float32", channels=None, most=3):
    n = c.pick((1, 2, 3), (2, 5, 2)) if most == 3 else most
    batch = c.pick((1, 1, 2, 3))
    ch = channels or c.pick((1, 2, 3, 4, 6, 8, 9, 16, 17, 24, 32))
    sides = [c.pick(SIDES[n]) for _ in range(n)]
    return n, (batch, ch, *sides)


def _groups(c, channels):
    return c.pick((1, channels, c.pick([g for g in range(1, channels + 1) if channels % g == 0])), (4, 3, 3))


def conv(c):
    n, dims = _image(c)
    attrs = _window(c, n, dims[2:])
    group = _groups(c, dims[1])
    features = group * c.pick((1, 2, 3)) if group > 1 else c.pick((1, 2, 3, 5, 8, 16, 17, 32))
    dtype = c.pick(("float32", "float64", "float16"), (8, 1, 1))
    w = c.reals((features, dims[1] // group, *attrs["kernel_shape"]), dtype, -1, 1)
    if group > 1 or c.chance(0.2):
        attrs["group"] = group
    if c.chance(0.3):
        attrs.pop("kernel_shape")
    operands = [c.operand(c.reals(dims, dtype)), c.operand(w)] if c.chance(0.3) else [c.input(c.reals(dims, dtype)), c.constant(w)]
    if c.chance(0.6):
        operands.append(c.operand(c.reals((features,), dtype)))
    c.node("Conv", operands, attrs)


def conv_transpose(c):
    n, dims = _image(c)
    attrs = _window(c, n, dims[2:], most=4)
    group = _groups(c, dims[1])
    features = c.pick((1, 2, 3, 8))
    dtype = c.pick(("float32", "float64"), (8, 1))
    w = c.reals((dims[1], features, *attrs["kernel_shape"]), dtype, -1, 1)
    strides = attrs.get("strides", [1] * n)
    if c.chance(0.3) and max(strides) > 1:
        attrs["output_padding"] = [c.number(0, s - 1) for s in strides]
    if c.chance(0.2) and "auto_pad" not in attrs:
        attrs.pop("pads", None)
        attrs["output_shape"] = [d * s + c.number(0, 1) for d, s in zip(dims[2:], strides)]
    if group > 1:
        attrs["group"] = group
    operands = [c.input(c.reals(dims, dtype)), c.constant(w)]
    if c.chance(0.5):
        operands.append(c.operand(c.reals((features * group,), dtype)))
    c.node("ConvTranspose", operands, attrs)


def pools(c):
    n, dims = _image(c)
    op = c.pick(("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), (6, 6, 2, 1, 1, 1))
    types = ("float32", "float64", "float16", "int8", "uint8") if op == "MaxPool" and c.opset >= 12 else ("float32", "float64")
    dtype = c.pick(types, (8,) + (1,) * (len(types) - 1))
    x = c.operand(c.array(dims, dtype))
    if op.startswith("Global"):
        c.node(op, [x], {"p": c.pick((1, 2, 3))} if "Lp" in op else {})
        return
    attrs = _window(c, n, dims[2:], dilated=op == "MaxPool" or c.opset >= 19)
    if op != "LpPool" and c.chance(0.3):
        attrs["ceil_mode"] = 1
    if op == "AveragePool" and c.chance(0.5):
        attrs["count_include_pad"] = 1
    if op == "LpPool":
        attrs["p"] = c.pick((1, 2, 3))
        if c.opset < 18:
            attrs.pop("dilations", None)
    indices = op == "MaxPool" and dtype in ("float32", "float64") and c.chance(0.3)
    if indices and c.chance(0.3):
        attrs["storage_order"] = 1
    c.node(op, [x], attrs, n_out=2 if indices else 1)


def unpool(c):
    """MaxUnpool of what MaxPool gives."""
    n, dims = _image(c, most=2)
    k = c.pick((1, 2, 3))
    attrs = {"kernel_shape": [k] * n, "strides": [k] * n}
    x = c.reals(dims)
    if min(dims[2:]) < k:
        x = c.reals(dims[:2] + tuple(d * k for d in dims[2:]))
    x = x[tuple(slice(0, d - d % k if a > 1 else d) for a, d in enumerate(x.shape))]
    y, i = c.node("MaxPool", [c.input(x)], attrs, n_out=2)
    operands = [y, i]
    if c.chance(0.4):  # of other shapes, onnxruntime counts positions in the result, ONNX's own tests in the default shape
        operands.append(c.constant(np.asarray(x.shape, np.int64)))
    c.node("MaxUnpool", operands, attrs)


def integers(c):
    """ConvInteger and QLinearConv of u8 and s8 with any zero points."""
    n, dims = _image(c)
    attrs = _window(c, n, dims[2:])
    group = _groups(c, dims[1])
    features = group * c.pick((1, 2, 3)) if group > 1 else c.pick((1, 2, 3, 5, 8, 16, 17, 32))
    if group > 1:
        attrs["group"] = group
    xt, wt = c.pick((("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")))
    x, w = c.integers(dims, xt), c.integers((features, dims[1] // group, *attrs["kernel_shape"]), wt)
    xz = c.integers((), xt)
    each = c.chance(0.4)
    wz = c.integers((features,) if each else (), wt)
    if xt == "int8":  # onnxruntime has no kernel for other zero points of these weights
        wz = wz * 0
    if wt == "uint8" and each:
        wz = np.full_like(wz, wz[0])
    if xt == "uint8" and c.chance(0.4):
        # onnxruntime has this operator for u8 only.
        operands = [c.input(x), c.constant(w)]
        if c.chance(0.8):
            operands.append(c.operand(xz))
            if c.chance(0.7) and not each:
                operands.append(c.operand(wz))
        c.node("ConvInteger", operands, attrs)
        return
    scale = c.rs.choice([1 / 256, 1 / 512, 1 / 1024], (features,) if each else ()).astype(np.float32)
    operands = [c.input(x), c.constant(np.float32(0.5)), c.constant(xz), c.constant(w), c.constant(scale), c.constant(wz),
                c.constant(np.float32(c.pick((0.5, 1.0, 2.0)))), c.constant(c.integers((), xt))]
    if c.chance(0.5):
        operands.append(c.constant(c.rs.randint(-3000, 3000, features).astype(np.int32)))
    c.node("QLinearConv", operands, attrs)


MAKERS = {f.__name__: f for f in (conv, conv_transpose, pools, unpool, integers)}
OPSETS = {"pools": (10, 11, 12, 18, 19, 21, 22)}
