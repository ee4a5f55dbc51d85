"""Reductions, arg-reductions, running sums and softmaxes: every kind of axes, with and without keepdims."""
import numpy as np

KINDS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
         "ReduceLogSum", "ReduceLogSumExp")

def _axes(c, rank):
    """Distinct axes, some counted from the end; None: not given."""
    if c.chance(0.2):
        return None
    chosen = [a for a in range(rank) if c.chance(0.5)]
    return [a - rank if c.chance(0.3) else a for a in c.rs.permutation(chosen).astype(int).tolist()]

def reductions(c):
    op = c.pick(KINDS)
    types = ("float32", "float32", "float64", "int32", "int64")
    if op in ("ReduceMax", "ReduceMin"):
        types += ("int8", "uint8", "float16") + (("bool",) if c.opset >= 20 else ())
    dtype = c.pick(types)
    if dtype.startswith("int") and op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceMean"):
        dtype = "float32"  # onnxruntime computes these of integers in f32, or not at all
    x = c.array(c.shape(), dtype)
    if op == "ReduceLogSum":
        x = np.abs(x) + np.asarray(0.5, x.dtype)
    if op == "ReduceProd" and x.size > 8:
        x = c.array(c.shape(0, 2, (1, 2, 3)), dtype)
    axes, attrs = _axes(c, x.ndim), {}
    if c.chance(0.7):
        attrs["keepdims"] = c.flag()
    operands = [c.operand(x)]
    if c.opset >= (13 if op == "ReduceSum" else 18):
        if c.chance(0.5):
            attrs["noop_with_empty_axes"] = c.flag()
        if axes is None and attrs.get("noop_with_empty_axes") and op != "ReduceSum":
            axes = [0] if x.ndim else None
        if axes == [] and attrs.get("noop_with_empty_axes") and op not in ("ReduceSum", "ReduceMax", "ReduceMin"):
            axes = None
            attrs.pop("noop_with_empty_axes")
        if axes is not None:
            operands.append(c.constant(np.asarray(axes, np.int64)))
    elif axes:
        attrs["axes"] = axes
    c.node(op, operands, attrs)

def arg(c):
    """Ties among the elements: select_last_index decides."""
    dtype = c.pick(("float32", "float32", "float64", "int32", "int8", "uint8"))
    shape = c.shape(1, 4, empty=0)
    x = c.integers(shape, "int8", 0, 3).astype(dtype)
    attrs = {"axis": c.axis(len(shape)), "keepdims": c.flag(), "select_last_index": c.flag()}
    c.node(c.pick(("ArgMax", "ArgMin")), [c.operand(x)], attrs)

def running(c):
    shape = c.shape(1, 3)
    dtype = c.pick(("float32", "float64", "int32", "int64"))
    axis = np.asarray(c.axis(len(shape)), c.pick((np.int32, np.int64)))
    c.node("CumSum", [c.operand(c.array(shape, dtype)), c.constant(axis.reshape(c.pick(((), (1,)))))],
           {"exclusive": c.flag(), "reverse": c.flag()})

def softmaxes(c):
    """Before opset 13 the operand is taken as a matrix, split at the axis."""
    op = c.pick(("Softmax", "LogSoftmax", "Hardmax"))
    shape = c.shape(1, 4, empty=0.02)
    attrs = {"axis": c.axis(len(shape))} if c.chance(0.8) else {}
    x = c.integers(shape, "int8", -3, 3).astype("float32") if op == "Hardmax" else c.reals(shape, lo=-20, hi=20)
    c.node(op, [c.operand(x)], attrs)

def integer_sums(c):
    """Running sums of integers wrap around; onnxruntime's reductions are exact up to 2^53 only."""
    op, attrs = c.pick(("ReduceSum", "CumSum")), {}
    most = 1 << (31 if op == "CumSum" else 22)
    x = c.integers(c.shape(1, 3), c.pick(("int32", "int64")), -most, most - 1)
    operands = [c.operand(x)]
    if op == "CumSum":
        operands.append(c.constant(np.int64(0)))
    c.node(op, operands, attrs)

MAKERS = {f.__name__: f for f in (reductions, arg, running, softmaxes, integer_sums)}
OPSETS = {"softmaxes": (11, 12, 13, 17)}
