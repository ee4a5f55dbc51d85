"""Operators that sample images at computed places, boxes, and transforms of signals, with random attributes."""
import numpy as np


def _image(c, space=2):
    return c.reals((c.number(1, 2), c.number(1, 4), *(c.number(1, 7) for _ in range(space))))


def grid_sample(c):
    """Modes have other names since opset 20; positions between two pixels are rounded in f32."""
    space = 3 if c.opset >= 20 and c.chance(0.2) else 2
    x = _image(c, space)
    modes = ("nearest", "linear", "cubic") if c.opset >= 20 else ("nearest", "bilinear", "bicubic")
    mode = c.pick(modes[:2] if space == 3 else modes)
    places = (x.shape[0], *(c.number(1, 5) for _ in range(space)))
    wide = c.pick((0.9, 1.5, 4.0))
    grid = c.rs.uniform(-wide, wide, (*places, space))
    if mode == "nearest" or c.chance(0.3):
        grid = np.round(grid * 5) / 5
    attrs = {"mode": mode, "padding_mode": c.pick(("zeros", "border", "reflection")), "align_corners": c.flag()}
    c.node("GridSample", [c.operand(x), c.operand(grid.astype(np.float32))], attrs)


def affine_grid(c):
    """One pixel between aligned corners is in the middle, as for PyTorch; onnxruntime has it at the first corner."""
    space, n, align = c.pick((2, 2, 3)), c.number(1, 2), c.flag()
    size = np.asarray([n, c.number(1, 3), *(c.number(1 + align, 5) for _ in range(space))], np.int64)
    c.node("AffineGrid", [c.operand(c.reals((n, space, space + 1))), c.constant(size)], {"align_corners": align})


def roi_align(c):
    x, n = _image(c), c.number(1, 4)
    corners = np.sort(c.rs.uniform(-3, 10, (n, 2, 2)), 1).reshape(n, 4)
    attrs = {"output_height": c.number(1, 4), "output_width": c.number(1, 4), "spatial_scale": c.pick((1.0, 0.5, 0.25)),
             "sampling_ratio": c.pick((0, 1, 2, 3))}
    attrs["mode"] = c.pick(("avg", "max"))
    if c.opset >= 16:
        attrs["coordinate_transformation_mode"] = c.pick(("half_pixel", "output_half_pixel"))
    batch = c.rs.randint(0, x.shape[0], n).astype(np.int64)
    c.node("RoiAlign", [c.operand(x), c.operand(corners.astype(np.float32)), c.operand(batch)], attrs)


def suppression(c):
    n, classes, boxes = c.number(1, 2), c.number(1, 3), c.number(1, 12)
    corners = c.rs.uniform(0, 1, (n, boxes, 4)).astype(np.float32)
    scores = c.rs.permutation(n * classes * boxes).reshape(n, classes, boxes).astype(np.float32) / 50
    more = [c.operand(np.asarray([c.pick((0, 1, 3, 99))], np.int64)), c.operand(np.asarray([c.pick((0.0, 0.3, 0.7))], np.float32)),
            c.operand(np.asarray([c.pick((0.0, 0.1, 9.0))], np.float32))]
    c.node("NonMaxSuppression", [c.operand(corners), c.operand(scores), *more[:c.number(1, 3)]], {"center_point_box": c.flag()})


def col2im(c):
    size, block = [c.number(2, 6) for _ in range(2)], [c.number(1, 3) for _ in range(2)]
    attrs = {"strides": [c.number(1, 2) for _ in range(2)], "dilations": [c.number(1, 2) for _ in range(2)],
             "pads": [c.number(0, 1) for _ in range(4)]}
    spans = [(d + attrs["pads"][i] + attrs["pads"][i + 2] - attrs["dilations"][i] * (k - 1) - 1) // attrs["strides"][i] + 1
             for i, (d, k) in enumerate(zip(size, block))]
    if min(spans) < 1:
        return col2im(c)
    x = c.reals((c.number(1, 2), c.number(1, 3) * block[0] * block[1], spans[0] * spans[1]))
    c.node("Col2Im", [c.operand(x), c.constant(np.asarray(size, np.int64)), c.constant(np.asarray(block, np.int64))], attrs)


def dft(c):
    """The axis is an operand since opset 20."""
    rank, inverse = c.number(2, 3), c.flag()
    shape = tuple(c.number(1, 9) for _ in range(rank))
    axis = c.number(0, rank - 1)
    attrs = {"inverse": inverse, "onesided": 0 if inverse else c.flag()}
    parts = 1 if attrs["onesided"] else c.pick((1, 2))
    operands = [c.operand(c.reals((*shape, parts)))]
    if c.chance(0.4):
        operands.append(c.constant(np.int64(c.number(1, 11))))
    if c.opset >= 20:
        operands = operands + [None] * (2 - len(operands)) + [c.constant(np.int64(axis - rank - 1 if c.chance(0.4) else axis))]
    else:
        attrs["axis"] = axis
    c.node("DFT", operands, attrs)


def unique(c):
    x = np.round(c.reals(c.shape(1, 3, sizes=(1, 2, 3, 6), empty=0)))
    attrs = {"sorted": c.flag()}
    if c.chance(0.5):
        attrs["axis"] = c.axis(x.ndim)
    c.node("Unique", [c.operand(x.astype(c.pick(("float32", "int64"))))], attrs, n_out=4)


def group_norm(c):
    """Scale and bias of groups before opset 21, of channels since."""
    groups, each = c.number(1, 3), c.number(1, 3)
    n = groups if c.opset < 21 else groups * each
    x = c.reals((c.number(1, 2), groups * each, *(c.number(2, 5) for _ in range(c.number(1, 2)))))
    c.node("GroupNormalization", [c.operand(x), c.operand(c.reals((n,))), c.operand(c.reals((n,)))],
           {"num_groups": groups, "epsilon": c.pick((1e-5, 0.1))})


MAKERS = {f.__name__: f for f in (grid_sample, affine_grid, roi_align, suppression, col2im, dft, unique, group_norm)}
OPSETS = {"grid_sample": (16, 20, 22), "affine_grid": (20,), "roi_align": (10, 16), "suppression": (10, 11, 17), "col2im": (18,),
          "dft": (17, 20), "unique": (11, 17), "group_norm": (18, 21)}
