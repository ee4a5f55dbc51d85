"""Normalisations of any rank, axis and type, as each opset has them."""
import numpy as np


def _dims(c, least, most=4):
    return tuple(c.pick((1, 2, 3, 4, 6, 8, 16, 17)) for _ in range(c.number(least, most)))


def batch_norm(c):
    """Of opsets 7 (spatial), 9, 14 and 15 (other types of the statistics)."""
    dims = _dims(c, 2)
    n = dims[1]
    dtype = c.pick(("float32", "float64"), (5, 1))
    attrs = {"epsilon": c.pick((1e-5, 1e-3, 0.1))} if c.chance(0.7) else {}
    if c.opset < 9:
        attrs["spatial"] = 1
    if c.chance(0.3):
        attrs["momentum"] = 0.5
    if c.opset >= 14 and c.chance(0.3):
        attrs["training_mode"] = 0
    stats = [c.reals((n,), dtype), c.reals((n,), dtype), c.reals((n,), dtype), np.abs(c.reals((n,), dtype)) + np.asarray(0.25, dtype)]
    c.node("BatchNormalization", [c.operand(c.reals(dims, dtype))] + [c.operand(s) if c.chance(0.3) else c.constant(s) for s in stats], attrs)


def layer_norm(c):
    c.opset = c.graph.opset = max(c.opset, 17)
    dims = _dims(c, 1)
    axis = c.axis(len(dims))
    shape = dims[axis:] if axis < 0 else dims[axis:]
    dtype = c.pick(("float32", "float16", "float64"), (5, 1, 1))
    operands = [c.operand(c.reals(dims, dtype)), c.operand(c.reals(shape, dtype))]
    if c.chance(0.6):
        operands.append(c.operand(c.reals(shape, dtype)))
    c.node("LayerNormalization", operands, {"axis": axis, "epsilon": c.pick((1e-5, 1e-2))} if axis != -1 or c.chance(0.5) else {},
           n_out=c.pick((1, 3)) if dtype == "float32" else 1)


def instance_norm(c):
    dims = _dims(c, 3, 5)[:-1] + (c.pick((2, 5, 8, 17)),)  # onnxruntime's mean of one element is not that element
    c.node("InstanceNormalization", [c.operand(c.reals(dims)), c.operand(c.reals(dims[1:2])), c.operand(c.reals(dims[1:2]))],
           {"epsilon": c.pick((1e-5, 1e-2))} if c.chance(0.7) else {})


def group_norm(c):
    """Before opset 21, scale and bias of each group; then of each channel."""
    c.opset = c.graph.opset = c.pick((18, 20, 21, 22))
    groups, each = c.pick((1, 2, 3, 4)), c.pick((1, 2, 4, 5))
    dims = (c.number(1, 3), groups * each) + tuple(c.number(1, 5) for _ in range(c.number(1, 3)))
    n = groups if c.opset < 21 else groups * each
    dtype = c.pick(("float32", "float16"), (5, 1))  # f64 is normalised in f32 by onnxruntime
    c.node("GroupNormalization", [c.operand(c.reals(dims, dtype)), c.operand(c.reals((n,), dtype)), c.operand(c.reals((n,), dtype))],
           {"num_groups": groups, "epsilon": c.pick((1e-5, 1e-2))})


def local_response(c):
    dims = (c.number(1, 3), c.pick((1, 3, 5, 8, 17)), c.number(1, 5), c.number(1, 5))
    attrs = {"size": c.pick((1, 3, 5, 7))}
    if c.chance(0.7):
        attrs.update(alpha=c.pick((0.0001, 0.5, 2.0)), beta=c.pick((0.75, 0.5, 1.0)), bias=c.pick((1.0, 2.0)))
    c.node("LRN", [c.operand(c.reals(dims))], attrs)


def lp_norm(c):
    dims = _dims(c, 1)
    c.node("LpNormalization", [c.operand(c.reals(dims, c.pick(("float32", "float64"))))], {"axis": c.axis(len(dims)), "p": c.pick((1, 2))})


def mean_variance(c):
    dims = _dims(c, 4)
    dims = (max(dims[0], 2),) + dims[1:3] + (max(dims[3], 6),)  # of equal elements, onnxruntime's variance is below 0
    attrs = {} if dims[2] > 1 and c.chance(0.3) else {"axes": sorted({*c.rs.permutation(4)[:c.number(1, 3)].tolist(), 3})}
    c.node("MeanVarianceNormalization", [c.operand(c.reals(dims, lo=-8, hi=8))], attrs)


def dropout(c):
    """Without training, the input; the mask is all true (of the input's type before opset 10)."""
    dims = _dims(c, 1)
    x = c.operand(c.reals(dims))
    if c.opset < 12:
        c.node("Dropout", [x], {"ratio": 0.3} if c.chance(0.5) else {}, n_out=c.pick((1, 2)))
    else:
        operands = [x]
        if c.chance(0.6):
            operands.append(c.constant(np.float32(0.3)))
            if c.chance(0.6):
                operands.append(c.constant(np.asarray(False)))
        c.node("Dropout", operands, n_out=c.pick((1, 2)))


MAKERS = {f.__name__: f for f in (batch_norm, layer_norm, instance_norm, group_norm, local_response, lp_norm, mean_variance, dropout)}
OPSETS = {"batch_norm": (7, 8, 9, 13, 14, 15, 17), "dropout": (7, 10, 12, 13, 17), "instance_norm": (6, 13, 17, 22),
          "layer_norm": (17, 18, 21), "lp_norm": (7, 13, 17, 22), "mean_variance": (9, 13, 17), "local_response": (7, 13, 17)}
