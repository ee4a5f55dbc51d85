#!/usr/bin/env python3
"""NaN, infinities, denormal numbers, -0 and empty tensors, run every way (graph_check.py).

Expected are onnxruntime's answers, except where onnxruntime loses NaN by accident (its maxima depend on the
position of NaN in a vector) or where opsets differ: there the answers of numpy, which keeps NaN as the ONNX
reference does.

usage: special_values.py WORKER
"""
import sys
import tempfile

from graph_check import Checker
import numpy as np
from onnx_file import Graph, Node, Port

NAN, INF = np.float32(np.nan), np.float32(np.inf)
# Chosen so that no sum overflows: the order of a sum is not defined.
EVERY = [NAN, INF, -INF, -0.0, 0.0, 1e-40, -1e-40, 1e30, -1e30, 88.5, -88.5, 104.0, -104.0, 1e-30]
KINDS = ([NAN], [INF], [-INF], [NAN, INF, -INF], [1e-40, -0.0, -1e-42])


class Values:
    """Arrays with special values in some places."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def plain(self, *shape):
        return self.rng.uniform(-2, 2, size=shape).astype(np.float32)

    def mixed(self, shape, special, share):
        a = self.plain(*shape)
        at = self.rng.random_sample(shape) < share
        a[at] = np.asarray(special, np.float32)[self.rng.randint(len(special), size=int(at.sum()))]
        return a


class Cases:
    def __init__(self, worker, folder):
        self.checker, self.wrong, self.count = Checker(worker, folder), 0, 0

    def try_graph(self, name, nodes, inputs, constants=None, want=None, opset=21, dtypes=None):
        """want: expected outputs instead of the oracle's. The last node's results are the outputs."""
        constants = {k: np.asarray(v) for k, v in (constants or {}).items()}
        dtypes = dtypes or ["float32"]
        g = Graph(opset=opset, inputs=[Port(k, v.dtype.name, list(v.shape)) for k, v in inputs.items()], nodes=nodes,
                  constants=constants, outputs=[Port(o, d) for o, d in zip(nodes[-1].outputs, dtypes)])
        c = self.checker
        self.count += 1
        if want is None:
            want = c.oracle.answers(g, inputs)
        g.save(c.path)
        for config in [c.plain, c.fused] + c.configs:
            found = c.fault(g, inputs, config, want)
            if found:
                self.wrong += 1
                print(f"{name}: {config.name}: {found[0]}: {found[1]}")
                return


def after(head, v, special):
    """(nodes, inputs, constants) that compute "a": nothing, a convolution or a matrix product before it."""
    if head == "conv":
        return [Node("Conv", ["x", "w"], ["a"])], {"x": v.mixed((2, 16, 3, 5), special, 0.03)}, \
            {"w": v.plain(16, 16, 1, 1)}
    if head == "few channels":
        return [Node("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]})], {"x": v.mixed((2, 3, 6, 5), special, 0.02)}, \
            {"w": v.plain(5, 3, 3, 3)}
    if head == "matmul":
        return [Node("MatMul", ["x", "w"], ["a"])], {"x": v.mixed((9, 16), special, 0.03)}, {"w": v.plain(16, 24)}
    return [Node("Identity", ["x"], ["a"])], {"x": v.mixed((2, 16, 3, 5), EVERY, 0.5)}, {}


HEADS = ("none", "conv", "few channels", "matmul")
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softplus", "Softsign", "Erf", "Atan", "Exp", "Log", "Sqrt",
         "Reciprocal", "Selu", "HardSwish", "Gelu", "Mish", "Floor", "Ceil", "Round", "Sign", "Elu", "LeakyRelu",
         "HardSigmoid", "Celu", "ThresholdedRelu", "Identity")


def element_wise(t, v):
    for head in HEADS:
        for op in UNARY:
            nodes, inputs, constants = after(head, v, [NAN])
            t.try_graph(f"{op} after {head}", nodes + [Node(op, ["a"], ["y"])], inputs, constants)
        for low, high in ((0, 6), (-1, 1), (2, 1)):
            nodes, inputs, constants = after(head, v, [NAN, INF, -INF])
            constants.update(l=np.float32(low), h=np.float32(high))
            t.try_graph(f"Clip {low} {high} after {head}", nodes + [Node("Clip", ["a", "l", "h"], ["y"])], inputs,
                        constants)
        for bounds in (["", "h"], ["l"], []):
            nodes, inputs, constants = after(head, v, [NAN, INF, -INF])
            constants.update(l=np.float32(0), h=np.float32(6))
            t.try_graph(f"Clip {bounds} after {head}", nodes + [Node("Clip", ["a", *bounds], ["y"])], inputs, constants)
        for op in ("Add", "Sub", "Mul", "Div", "Min", "Max"):
            for c in (0.0, -2.0, NAN, INF, -INF):
                # A finite number divided by sums near zero is sensitive to their rounding.
                for first in (True, False) if op != "Div" or head == "none" or c != -2.0 else (False,):
                    nodes, inputs, constants = after(head, v, [NAN, INF])
                    constants["c"] = np.float32(c)
                    t.try_graph(f"{op} {c} {'first ' if first else ''}after {head}",
                                nodes + [Node(op, ["c", "a"] if first else ["a", "c"], ["y"])], inputs, constants)
            nodes, inputs, constants = after(head, v, [NAN, INF])
            shape = {"none": (2, 16, 3, 5), "conv": (2, 16, 3, 5), "few channels": (2, 5, 6, 5), "matmul": (9, 24)}[head]
            inputs["z"] = v.mixed(shape, EVERY, 0.4)
            for pair in (["a", "z"], ["z", "a"]):
                t.try_graph(f"{op} operand after {head}", nodes + [Node(op, pair, ["y"])], inputs, constants)
    # The sign of zero, made visible.
    zeros = np.asarray([0.0, -0.0, 1e-40, -1e-40], np.float32)
    for op in ("Relu", "Neg", "Abs", "Tanh", "Identity", "LeakyRelu", "Sqrt", "Floor", "Erf"):
        t.try_graph(f"sign of zero, {op}", [Node(op, ["x"], ["a"]), Node("Reciprocal", ["a"], ["y"])], {"x": zeros})
    for k in (2.0, 3.0, 1.0, 0.5):
        t.try_graph(f"Pow {k}", [Node("Pow", ["x", "k"], ["y"])], {"x": v.mixed((4, 40), EVERY, 0.5)}, {"k": np.float32(k)})


def windows(x, kernel, stride, pad):
    """Maxima of square windows that keep NaN."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    n = (x.shape[2] - kernel) // stride + 1, (x.shape[3] - kernel) // stride + 1
    parts = [x[:, :, i:i + stride * n[0]:stride, j:j + stride * n[1]:stride][:, :, :n[0], :n[1]]
             for i in range(kernel) for j in range(kernel)]
    return np.max(parts, axis=0)


def rows(t, v, special):
    for op in ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMax", "ReduceMin"):
        for axes in ([-1], [0], [1], [0, 1, 2]):
            x = v.mixed((3, 5, 40), special, 0.05)
            # onnxruntime's maxima keep or lose NaN by its position.
            f = {"ReduceMax": np.max, "ReduceMin": np.min}.get(op)
            want = [f(x, axis=tuple(axes), keepdims=True)] if f else None
            t.try_graph(f"{op} {axes} of {special}", [Node(op, ["x", "k"], ["y"])], {"x": x},
                        {"k": np.asarray(axes, np.int64)}, want)
    for op, attrs in (("Softmax", {}), ("LogSoftmax", {}), ("Softmax", {"axis": 1}), ("LogSoftmax", {"axis": 0}),
                      ("LpNormalization", {})):
        t.try_graph(f"{op} {attrs} of {special}", [Node(op, ["x"], ["y"], attrs)], {"x": v.mixed((3, 5, 40), special, 0.05)})
        if op != "LpNormalization" or special[0] != 1e-40:  # onnxruntime's norm of denormals is 0
            t.try_graph(f"{op} of {special[0]} only", [Node(op, ["x"], ["y"], attrs)],
                        {"x": np.full((2, 3, 20), special[0], np.float32)})
    t.try_graph(f"LogSoftmax of large numbers and {special}", [Node("LogSoftmax", ["x"], ["y"])],
                {"x": np.asarray([[1e6, 1e6 + 1, 1e6 - 1], [1e30, 1e30, special[0]]], np.float32)})
    ones = np.ones(40, np.float32)
    t.try_graph(f"LayerNormalization of {special}", [Node("LayerNormalization", ["x", "w", "b"], ["y"])],
                {"x": v.mixed((20, 40), special, 0.02)}, {"w": ones, "b": ones})


def images(t, v, special):
    ones = np.ones(16, np.float32)
    for op, attrs, names in (("InstanceNormalization", {}, "wb"), ("GroupNormalization", {"num_groups": 4}, "wb"),
                             ("BatchNormalization", {}, "wbmv")):
        t.try_graph(f"{op} of {special}", [Node(op, ["x", *names], ["y"], attrs)],
                    {"x": v.mixed((2, 16, 5, 5), special, 0.02)}, {n: ones for n in names})
    for channels in (16, 5):
        for kernel, stride, pad in ((2, 1, 0), (2, 2, 0), (3, 2, 1), (3, 1, 1)):
            x = v.mixed((2, channels, 9, 9), special, 0.05)
            attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
            want = [windows(x, kernel, stride, pad)] if np.isnan(x).any() else None
            t.try_graph(f"MaxPool {kernel} {stride} of {special}", [Node("MaxPool", ["x"], ["y"], attrs)], {"x": x},
                        want=want)
            t.try_graph(f"AveragePool {kernel} {stride} of {special}", [Node("AveragePool", ["x"], ["y"], attrs)], {"x": x})
        x = v.mixed((2, channels, 9, 9), special, 0.02)
        t.try_graph(f"GlobalAveragePool of {special}", [Node("GlobalAveragePool", ["x"], ["y"])], {"x": x})
        t.try_graph(f"GlobalMaxPool of {special}", [Node("GlobalMaxPool", ["x"], ["y"])], {"x": x},
                    want=[np.max(x, axis=(2, 3), keepdims=True)])
    for channels, size, group in ((16, 3, 1), (3, 3, 1), (16, 1, 1), (16, 3, 16), (64, 3, 1)):
        t.try_graph(f"Conv {channels} {size} {group} of {special}",
                    [Node("Conv", ["x", "w"], ["y"], {"pads": [size // 2] * 4, "group": group})],
                    {"x": v.mixed((1, channels, 12, 12), special, 0.005)},
                    {"w": v.plain(64 if channels == 64 else 16, channels // group, size, size)})
    t.try_graph(f"Conv with strides of {special}",
                [Node("Conv", ["x", "w"], ["y"], {"pads": [1] * 4, "strides": [2, 2]})],
                {"x": v.mixed((2, 32, 9, 9), special, 0.005)}, {"w": v.plain(256, 32, 3, 3)})
    w = v.plain(32, 16, 3, 3)
    w[3, 5, 1, 2] = special[0]
    t.try_graph(f"Conv of weights with {special[0]}", [Node("Conv", ["x", "w"], ["y"])], {"x": v.plain(1, 16, 20, 20)}, {"w": w})
    lanes(t, v, special)
    for n in (1, 2, 8):
        t.try_graph(f"MatMul of {n} rows of {special}", [Node("MatMul", ["x", "w"], ["y"])],
                    {"x": v.mixed((n, 16), special, 0.05)}, {"w": v.plain(16, 24)})


def lanes(t, v, special):
    """Numbers of channels that leave lanes of a block unused; no weight turns an infinity into NaN."""
    for channels, size in ((9, 1), (20, 3), (12, 3)):
        nodes = [Node("Conv", ["x", "w"], ["a"], {"pads": [size // 2] * 4}), Node("LeakyRelu", ["a"], ["b"]),
                 Node("Conv", ["b", "u"], ["y"])]
        t.try_graph(f"Convs of {channels} channels of {special}", nodes, {"x": v.mixed((2, 19, 7, 7), special, 0.005)},
                    {"w": np.abs(v.plain(channels, 19, size, size)), "u": np.abs(v.plain(21, channels, 1, 1))})


def dynamic(t, v, special):
    """The range of the data. NaN is not in it; what onnxruntime finds beside NaN depends on its place."""
    if np.isnan(special).any():
        return
    nodes = [Node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    for n in (3, 70, 9000):
        x = v.plain(n)
        x[n // 2:n // 2 + len(special)] = special[:n - n // 2]
        t.try_graph(f"range of {n} with {special}", nodes, {"x": x}, dtypes=["uint8", "float32", "uint8"])


def attention(t, v, special):
    shape = (1, 2, 5, 16)
    nodes = [Node("Transpose", ["k"], ["t"], {"perm": [0, 1, 3, 2]}), Node("MatMul", ["q", "t"], ["s"]),
             Node("Mul", ["s", "f"], ["u"]), Node("Softmax", ["u"], ["p"]), Node("MatMul", ["p", "v"], ["y"])]
    for where in "qkv":
        inputs = {n: v.mixed(shape, special, 0.02 if n == where else 0) for n in "qkv"}
        t.try_graph(f"attention, {special} in {where}", nodes, inputs, {"f": np.float32(0.25)})


# -- Whole models -----------------------------------------------------------------------------------


def network(v):
    """A small residual network with a max pool: (nodes, constants)."""
    c = {"w1": v.plain(16, 3, 3, 3), "b1": v.plain(16), "w2": v.plain(16, 16, 3, 3) / 8, "b2": v.plain(16),
         "w3": v.plain(16, 16, 3, 3) / 8, "w4": v.plain(16, 1, 3, 3), "w5": v.plain(10, 16), "b5": v.plain(10),
         "zero": np.float32(0), "six": np.float32(6)}
    pads = {"pads": [1, 1, 1, 1]}
    return [Node("Conv", ["x", "w1", "b1"], ["a"], pads), Node("Relu", ["a"], ["b"]),
            Node("MaxPool", ["b"], ["c"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
            Node("Conv", ["c", "w2", "b2"], ["d"], pads), Node("Relu", ["d"], ["e"]),
            Node("Conv", ["e", "w3"], ["f"], pads), Node("Add", ["f", "c"], ["g"]), Node("Relu", ["g"], ["h"]),
            Node("Conv", ["h", "w4"], ["i"], dict(pads, group=16)), Node("Clip", ["i", "zero", "six"], ["j"]),
            Node("GlobalAveragePool", ["j"], ["k"]), Node("Flatten", ["k"], ["l"]),
            Node("Gemm", ["l", "w5", "b5"], ["m"], {"transB": 1}), Node("Softmax", ["m"], ["y"])], c


def whole_models(t, v):
    nodes, constants = network(v)
    clean = v.plain(3, 3, 17, 17)
    g = Graph(opset=17, inputs=[Port("x", "float32", list(clean.shape))], nodes=nodes, constants=constants,
              outputs=[Port("y", "float32")])
    want = t.checker.oracle.answers(g, {"x": clean})[0]
    for place in ((1, 0, 0, 0), (1, 2, 8, 8), (1, 1, 16, 3), (1,)):
        x = clean.copy()
        x[place] = NAN
        expected = want.copy()
        expected[1] = NAN
        t.try_graph(f"network, NaN at {place}", nodes, {"x": x}, constants, [expected], opset=17)
    # A repeated run must not change what follows it.
    t.try_graph("network", nodes, {"x": clean}, constants, [want], opset=17)
    # A number that does not depend on NaN is an index.
    x = v.plain(1, 16, 20, 20)
    x[0, 0, 5, 5] = NAN
    nodes = [Node("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}), Node("Slice", ["a", "from", "to", "axes"], ["b"]),
             Node("Clip", ["b", "zero", "three"], ["c"]), Node("Cast", ["c"], ["d"], {"to": 7}), Node("Gather", ["table", "d"], ["y"])]
    t.try_graph("index beside NaN", nodes, {"x": x},
                {"w": v.plain(16, 16, 3, 3) / 8, "from": np.int64([7, 7]), "to": np.int64([8, 8]), "axes": np.int64([2, 3]),
                 "zero": np.float32(0), "three": np.float32(3), "table": v.plain(4)}, opset=17)


# -- Empty tensors ----------------------------------------------------------------------------------


def empty(t, v):
    axes = {"k": np.asarray([1], np.int64)}
    x = np.zeros((3, 0, 4), np.float32)
    for op, value in (("ReduceSum", 0), ("ReduceMean", 0), ("ReduceProd", 1), ("ReduceMax", -INF), ("ReduceMin", INF),
                      ("ReduceL1", 0), ("ReduceL2", 0), ("ReduceSumSquare", 0), ("ReduceLogSum", -INF),
                      ("ReduceLogSumExp", -INF)):
        t.try_graph(f"{op} of nothing", [Node(op, ["x", "k"], ["y"])], {"x": x}, axes,
                    [np.full((3, 1, 4), value, np.float32)])
    for dtype, least, most in (("bool", False, True), ("int32", -1 << 31, (1 << 31) - 1), ("uint8", 0, 255),
                               ("int64", -1 << 63, (1 << 63) - 1), ("int8", -128, 127)):
        for op, value in (("ReduceMax", least), ("ReduceMin", most)):
            t.try_graph(f"{op} of no {dtype}", [Node(op, ["x", "k"], ["y"])], {"x": np.zeros((2, 0), dtype)}, axes,
                        [np.full((2, 1), value, dtype)], dtypes=[dtype])
    # The largest of nothing, as of ReduceMax; onnxruntime gives the lowest finite number here.
    attrs = {"kernel_shape": [2, 1], "dilations": [2, 1], "pads": [1, 0, 1, 0]}
    for channels in (16, 5):
        t.try_graph(f"MaxPool of {channels} channels of padding", [Node("MaxPool", ["x"], ["y"], attrs)], {"x": v.plain(2, channels, 1, 3)},
                    want=[np.full((2, channels, 1, 3), -INF)])
    w = v.plain(8, 5)
    t.try_graph("MatMul of no rows", [Node("MatMul", ["x", "w"], ["y"])], {"x": np.zeros((0, 8), np.float32)}, {"w": w})
    t.try_graph("MatMul over nothing", [Node("MatMul", ["x", "z"], ["y"])],
                {"x": np.zeros((3, 0), np.float32), "z": np.zeros((0, 4), np.float32)})
    t.try_graph("chain of no rows", [Node("MatMul", ["x", "w"], ["a"]), Node("Relu", ["a"], ["b"]),
                                     Node("Softmax", ["b"], ["y"])], {"x": np.zeros((0, 8), np.float32)}, {"w": w})
    for op in ("Softmax", "LogSoftmax", "Hardmax"):  # as a matrix
        t.try_graph(f"{op} of nothing", [Node(op, ["x"], ["y"], {"axis": 1})], {"x": np.zeros((4, 0, 3), np.float32)},
                    want=[np.zeros((4, 0, 3), np.float32)], opset=11)
    t.try_graph("Concat with nothing", [Node("Concat", ["x", "z"], ["y"], {"axis": 0})],
                {"x": v.plain(3, 4), "z": np.zeros((0, 4), np.float32)})


def main(worker):
    with tempfile.TemporaryDirectory() as folder:
        t, v = Cases(worker, folder), Values(3)
        element_wise(t, v)
        for special in KINDS:
            rows(t, v, special)
            images(t, v, special)
            attention(t, v, special)
            dynamic(t, v, special)
        whole_models(t, v)
        empty(t, v)
        t.checker.close()
    print(f"{t.count} cases, {t.wrong} wrong")
    return 1 if t.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
