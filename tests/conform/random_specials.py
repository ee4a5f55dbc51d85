#!/usr/bin/env python3
"""NaN, infinities, denormals and large numbers at a few places of the inputs of random networks, run every way (graph_check.py):
special values must stand where onnxruntime has them, and nowhere else. Convolutions of every kind with what
stands between them, in batches, attention with masks, recurrent layers, and models of a joint program.

usage: random_specials.py WORKER [--seed N] [--count N] [--only NAME]
"""
import argparse
import collections
import os
import sys
import tempfile

from graph_check import Checker
import numpy as np

import oracle
from onnx_file import Graph, Node, Port

NAN, INF = float("nan"), float("inf")
SPECIAL = (NAN, INF, -INF, 1e-40, -0.0, 1e30, -1e30)
# Elements below `SMALL` are compared among themselves, so that an error of large ones in them shows.
SMALL, TOLERANCE = 1e5, 1e-3


class Net:
    """A graph whose values are images or rows of a batch."""

    def __init__(self, rs, opset=17):
        self.rs, self.graph, self.count, self.oracle = rs, Graph(opset=opset), 0, None
        # Without negative numbers, an infinity reaches all results as one: NaN of unused lanes shows.
        self.positive = rs.randint(4) == 0

    def pick(self, *items):
        return items[self.rs.randint(len(items))]

    def weight(self, *dims, fan=None):
        self.count += 1
        fan = fan or np.prod(dims[1:])
        a = self.rs.standard_normal(dims) if not self.positive and self.rs.randint(3) else self.rs.uniform(0.1, 1, dims)
        self.graph.constants[f"w{self.count}"] = (a / np.sqrt(max(fan, 1))).astype("f4")
        return f"w{self.count}"

    def constant(self, a):
        self.count += 1
        self.graph.constants[f"k{self.count}"] = np.asarray(a)
        return f"k{self.count}"

    def node(self, op, inputs, **attrs):
        self.count += 1
        self.graph.nodes.append(Node(op, inputs, [f"v{self.count}"], attrs))
        return f"v{self.count}"

    def want(self, checker, inputs):
        return checker.oracle.answers(keep_nan(self.graph), inputs)


class Images(Net):
    """A chain of layers of images of rank 3 or 4, with branches."""
    RANKS, CHANNELS, SIZES, BATCHES = (4, 4, 4, 3), (1, 3, 3, 8, 16, 20, 32, 64), (5, 8, 12, 17, 28, 33), (1, 2, 3, 9)
    LAYERS = ("conv", "conv", "conv", "conv", "conv3", "depthwise", "transposed", "pool", "mean", "means", "add", "concat", "gate",
              "norm", "pad", "resize", "slice")

    def __init__(self, rs):
        super().__init__(rs)
        self.rank, self.c = self.pick(*self.RANKS), self.pick(*self.CHANNELS)
        self.size = [self.pick(*self.SIZES) for _ in range(self.rank - 2)]
        self.n = self.pick(*self.BATCHES)
        self.symbol = self.pick("N", self.n)
        self.graph.inputs.append(Port("x", "float32", [self.symbol, self.c, *self.size]))
        self.shape = (self.n, self.c, *self.size)
        self.v, self.kept = "x", []
        for _ in range(self.pick(1, 2, 3, 4, 6)):
            self.layer()
        self.graph.outputs.append(Port(self.v, "float32"))
        if self.kept and rs.randint(2):
            v = self.pick(*self.kept)[0]
            if v not in (self.v, "x"):
                self.graph.outputs.append(Port(v, "float32"))

    def layer(self):
        self.kept.append((self.v, self.c, list(self.size)))
        getattr(self, self.pick(*self.LAYERS))()
        for _ in range(self.pick(0, 1, 1, 2)):
            self.step()

    def step(self):
        op = self.pick("Relu", "Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSwish", "Silu", "Elu", "Bias", "Scale", "Abs",
                       "HardSigmoid", "Softplus", "Erf", "Neg")
        if op == "Clip":
            self.v = self.node(op, [self.v, self.constant(np.float32(0)), self.constant(np.float32(6))])
        elif op == "Silu":
            self.v = self.node("Mul", [self.v, self.node("Sigmoid", [self.v])])
        elif op in ("Bias", "Scale"):
            w = self.weight(self.c, *[1] * (self.rank - 2), fan=1)
            self.v = self.node("Add" if op == "Bias" else "Mul", [self.v, w])
        else:
            self.v = self.node(op, [self.v])

    def conv_of(self, kernel, stride, dilation, group, c, pads=None):
        pads = pads or [self.rs.randint(0, k * d // 2 + 1) for k, d in zip(kernel, dilation)] * 2
        size = [(s + pads[i] * 2 - (k - 1) * d - 1) // t + 1
                for i, (s, k, d, t) in enumerate(zip(self.size, kernel, dilation, stride))]
        if min(size) < 1:
            return
        names = [self.v, self.weight(c, self.c // group, *kernel)]
        if self.rs.randint(2):
            names.append(self.weight(c, fan=1))
        self.v = self.node("Conv", names, strides=stride, dilations=dilation, group=group, pads=pads, kernel_shape=kernel)
        self.c, self.size = c, size

    def conv(self):
        n = self.rank - 2
        one = self.pick(1, 1, 2, 3, 5, 7)
        kernel = [one] * n if self.rs.randint(4) else [self.pick(1, 3, 5) for _ in range(n)]
        groups = [g for g in (1, 1, 1, 2, 4) if self.c % g == 0]
        g = self.pick(*groups)
        self.conv_of(kernel, [self.pick(1, 1, 2, 3)] * n, [self.pick(1, 1, 1, 2)] * n, g, g * self.pick(4, 5, 8, 13, 16, 19, 24, 32))

    def conv3(self):
        n = self.rank - 2
        self.conv_of([3] * n, [1] * n, [1] * n, 1, self.pick(16, 32, 48, 64), self.pick([1], [1], [1], [0], [2]) * 2 * n)

    def depthwise(self):
        n = self.rank - 2
        self.conv_of([self.pick(3, 3, 5)] * n, [self.pick(1, 2)] * n, [1] * n, self.c, self.c)

    def transposed(self):
        n = self.rank - 2
        k, s = self.pick((2, 2), (3, 1), (3, 2), (4, 2), (4, 4))
        c, p = self.pick(3, 8, 16), self.pick(0, 1)
        size = [(x - 1) * s + k - 2 * p for x in self.size]
        if min(size) < 1 or max(size) > 70:
            return
        self.v = self.node("ConvTranspose", [self.v, self.weight(self.c, c, *[k] * n, fan=self.c * k)], strides=[s] * n, pads=[p] * 2 * n,
                           kernel_shape=[k] * n)
        self.c, self.size = c, size

    def window(self):
        n = self.rank - 2
        k, s, p = self.pick((2, 2, 0), (3, 1, 1), (3, 2, 1), (5, 1, 2), (3, 2, 0), (2, 1, 0))
        size = [(x + 2 * p - k) // s + 1 for x in self.size]
        return size, {"kernel_shape": [k] * n, "strides": [s] * n, "pads": [p] * 2 * n}

    def pool(self):
        size, attrs = self.window()
        if min(size) >= 1:
            self.v, self.size = self.node("MaxPool", [self.v], **attrs), size

    def mean(self):
        size, attrs = self.window()
        if min(size) >= 1:
            self.v = self.node("AveragePool", [self.v], count_include_pad=int(self.rs.randint(2)), **attrs)
            self.size = size

    def broadcast(self, c):
        """Means of the channels of self.v, c of them."""
        m = self.node("GlobalAveragePool", [self.v])
        return self.node("Conv", [m, self.weight(c, self.c, *[1] * (self.rank - 2))])

    def gate(self):
        self.v = self.node("Mul", [self.v, self.node(self.pick("Sigmoid", "HardSigmoid"), [self.broadcast(self.c)])])

    def means(self):
        self.v = self.node("Add", [self.v, self.broadcast(self.c)])

    def same(self, channels):
        return [v for v, c, s in self.kept if s == self.size and (not channels or c == self.c)]

    def add(self):
        self.v = self.node("Add", [self.v, self.pick(*self.same(True))]) if self.same(True) else self.v

    def concat(self):
        other = self.pick(*[k for k in self.kept if k[2] == self.size] or [None])
        if other and self.c + other[1] <= 128:
            self.v = self.node("Concat", [self.v, other[0]], axis=1)
            self.c += other[1]

    def norm(self):
        positive = self.constant(self.rs.uniform(0.5, 2, self.c).astype("f4"))
        names = [self.weight(self.c, fan=1) for _ in range(3)]
        self.v = self.node("BatchNormalization", [self.v, *names, positive])

    def pad(self):
        by = [0, 0] + [self.rs.randint(0, 3) for _ in self.size]
        self.v = self.node("Pad", [self.v, self.constant(np.asarray(by * 2, "i8").astype("int64"))])
        self.size = [s + 2 * b for s, b in zip(self.size, by[2:])]

    def resize(self):
        if max(self.size) < 24:
            self.v = self.node("Resize", [self.v, "", self.constant(np.asarray([1, 1] + [2] * (self.rank - 2), "f4"))], mode="nearest",
                               coordinate_transformation_mode="asymmetric", nearest_mode="floor")
            self.size = [2 * s for s in self.size]

    def slice(self):
        if self.c > 1:
            to = self.rs.randint(1, self.c)
            self.v = self.node("Slice", [self.v, self.constant(np.int64([0])), self.constant(np.int64([to])), self.constant(np.int64([1]))])
            self.c = int(to)

    def inputs(self):
        x = self.rs.standard_normal(self.shape).astype("f4")
        return {"x": plant(self.rs, np.abs(x), (INF,)) if self.positive else plant(self.rs, x)}


class Dense(Images):
    """3 x 3 convolutions over many channels, for which Winograd's algorithms are used."""
    RANKS, CHANNELS, SIZES, BATCHES = (4,), (16, 32, 48, 64), (12, 13, 16, 17, 24, 26, 30), (1, 1, 2, 3)
    LAYERS = ("conv3", "conv3", "conv3", "conv3", "add", "gate", "pool", "concat")


class Attention(Net):
    """Attention as exporters write it, with masks of -inf that may leave nothing of a row."""

    def __init__(self, rs):
        super().__init__(rs)
        n, h, s, t, d = self.pick(1, 2, 5), self.pick(1, 4), self.pick(1, 5, 17, 40), self.pick(3, 17, 33), self.pick(8, 16, 64)
        self.mask = self.pick("none", "add", "add", "causal", "where")
        self.dims = n, h, s, t, d
        for name, rows in (("q", s), ("k", t), ("v", t)):
            self.graph.inputs.append(Port(name, "float32", [self.pick("N", n), rows, h * d]))
        heads = {}
        for name, rows in (("q", s), ("k", t), ("v", t)):
            shape = self.constant(np.int64([0, rows, h, d]))
            value = self.node("MatMul", [name, self.weight(h * d, h * d, fan=h * d)]) if rs.randint(2) else name
            heads[name] = self.node("Transpose", [self.node("Reshape", [value, shape])], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])
        score = self.node("Mul", [self.node("MatMul", [heads["q"], heads["k"]]), self.constant(np.float32(d ** -0.5))])
        if self.mask == "add":
            self.graph.inputs.append(Port("m", "float32", [self.pick("N", n), 1, self.pick(1, s), t]))
            score = self.node("Add", [score, "m"])
        elif self.mask == "causal":
            m = np.where(np.arange(t) > np.arange(s)[:, None] + t - s, -np.inf, 0).astype("f4")
            score = self.node("Add", [score, self.constant(m)])
        elif self.mask == "where":
            self.graph.inputs.append(Port("m", "bool", [self.pick("N", n), 1, self.pick(1, s), t]))
            score = self.node("Where", ["m", score, self.constant(np.float32(self.pick(-np.inf, -1e9, -65504)))])
        y = self.node("MatMul", [self.node("Softmax", [score], axis=-1), heads["v"]])
        y = self.node("Reshape", [self.node("Transpose", [y], perm=[0, 2, 1, 3]), self.constant(np.int64([0, s, h * d]))])
        if rs.randint(2):
            ones = np.ones(h * d, "f4")
            y = self.node("LayerNormalization", [self.node("Add", [y, "q"]), self.constant(ones), self.constant(ones)])
        self.graph.outputs.append(Port(y, "float32"))

    def inputs(self):
        n, h, s, t, d = self.dims
        made = {name: self.rs.standard_normal((n, rows, h * d)).astype("f4") for name, rows in (("q", s), ("k", t), ("v", t))}
        name = self.pick("q", "k", "v", "none")
        if name != "none":
            made[name] = plant(self.rs, made[name])
        if self.mask in ("add", "where"):
            rows = self.graph.inputs[3].dims[2]
            keep = self.rs.random_sample((n, 1, rows, t)) < self.pick(0.8, 0.3)
            keep[self.rs.randint(n)] &= bool(self.rs.randint(2))
            made["m"] = keep if self.mask == "where" else np.where(keep, 0, -np.inf).astype("f4")
        return made


class Recurrent(Net):
    """LSTM, GRU and RNN in both directions: what a step holds reaches no step before it, and no other row."""

    def __init__(self, rs):
        super().__init__(rs)
        op, gates = self.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
        n, s, c, h = self.pick(1, 2, 5), self.pick(1, 4, 9), self.pick(3, 16), self.pick(4, 16, 33)
        direction, d = self.pick(("forward", 1), ("reverse", 1), ("bidirectional", 2))
        self.graph.inputs.append(Port("x", "float32", [s, self.pick("N", n), c]))
        self.shape = s, n, c
        names = ["x", self.weight(d, gates * h, c, fan=c), self.weight(d, gates * h, h, fan=h)]
        if rs.randint(2):
            names.append(self.weight(d, 2 * gates * h, fan=1))
        y = self.node(op, names, hidden_size=h, direction=direction)
        self.graph.outputs.append(Port(y, "float32"))

    def want(self, checker, inputs):
        """onnxruntime's gates lose NaN."""
        self.graph.save(checker.path)
        return checker.plain.outputs(checker.path, self.graph, inputs)

    def inputs(self):
        return {"x": plant(self.rs, self.rs.standard_normal(self.shape).astype("f4"))}


class Rows(Net):
    """Products and what stands between them."""

    def __init__(self, rs):
        super().__init__(rs)
        self.n, self.k = self.pick(1, 2, 4, 16, 33), self.pick(5, 16, 33, 64, 96)
        self.graph.inputs.append(Port("x", "float32", [self.pick("N", self.n), self.k]))
        v, k = "x", self.k
        for _ in range(self.pick(1, 2, 3)):
            op = self.pick("MatMul", "MatMul", "Gemm", "LayerNormalization", "Softmax", "CumSum", "mean", "gate", "concat")
            if op in ("MatMul", "Gemm"):
                to = self.pick(1, 8, 31, 64, 160)
                v = self.node("MatMul", [v, self.weight(k, to, fan=k)]) if op == "MatMul" else \
                    self.node("Gemm", [v, self.weight(to, k, fan=k), self.weight(to, fan=1)], transB=1)
                k = to
            elif op == "LayerNormalization":
                v = self.node(op, [v, self.weight(k, fan=1), self.weight(k, fan=1)])
            elif op == "CumSum":
                v = self.node(op, [v, self.constant(np.int64(1))])
            elif op == "mean":
                v = self.node("Sub", [v, self.node("ReduceMean", [v], axes=[1])])
            elif op == "gate":
                v = self.node("Mul", [v, self.node("Sigmoid", [self.node("MatMul", [v, self.weight(k, k, fan=k)])])])
            elif op == "concat":
                v = self.node("Concat", [self.node("MatMul", [v, self.weight(k, 8, fan=k)]), v], axis=1)
                k += 8
            else:
                v = self.node(op, [v], axis=-1)
            if rs.randint(2):
                v = self.node(self.pick("Relu", "Tanh", "Sigmoid", "Erf", "LeakyRelu"), [v])
        self.graph.outputs.append(Port(v, "float32"))

    def inputs(self):
        return {"x": plant(self.rs, self.rs.standard_normal((self.n, self.k)).astype("f4"), SPECIAL[:5])}


def plant(rs, a, special=SPECIAL):
    """Special values at one to four places."""
    for _ in range(rs.randint(1, 5)):
        a[tuple(rs.randint(d) for d in a.shape)] = special[rs.randint(len(special))]
    return a


def keep_nan(graph):
    """The graph with maxima of windows that keep NaN at every position and -inf, which onnxruntime's do not: some are the lowest
    number at least."""
    out = graph.copy()
    out.nodes, out.constants = [], dict(graph.constants, nan=np.float32(np.nan), low=np.float32(-np.inf), least=np.finfo("f4").min, half=np.float32(0.5))
    for n in graph.nodes:
        if n.op != "MaxPool":
            out.nodes.append(n)
            continue
        x, y = n.inputs[0], n.outputs[0]
        out.nodes += [Node("IsNaN", [x], [y + "_is"]), Node("Cast", [y + "_is"], [y + "_as"], {"to": 1}),
                      Node("MaxPool", [y + "_as"], [y + "_has"], n.attrs), Node("Greater", [y + "_has", "half"], [y + "_at"]),
                      Node("Where", [y + "_is", "low", x], [y + "_of"]), Node("MaxPool", [y + "_of"], [y + "_max"], n.attrs),
                      Node("Greater", [y + "_max", "least"], [y + "_some"]), Node("Where", [y + "_some", y + "_max", "low"], [y + "_all"]),
                      Node("Where", [y + "_at", "nan", y + "_all"], [y])]
    return out


def difference(got, want):
    """Small elements are compared among themselves."""
    if got.shape != want.shape:
        return oracle.difference(got, want)
    small = np.abs(want) < SMALL
    scale = max(1.0, float(np.abs(want[small]).max())) if small.any() else 1.0
    text = oracle.difference(np.where(small, got, 0), np.where(small, want, 0), TOLERANCE, scale)
    return text or oracle.difference(np.where(small, 0, got), np.where(small, 0, want), TOLERANCE)


def is_sensitive(checker, graph, inputs, want):
    """Whether onnxruntime's own answer changes so when weights and inputs move by their precision."""
    rs = np.random.RandomState(5)

    def nudge(a):
        return (a * (1 + 3e-7 * rs.uniform(-1, 1, a.shape))).astype(a.dtype) if a.dtype.kind == "f" else a
    other = graph.copy()
    other.constants = {k: nudge(np.asarray(v)) for k, v in graph.constants.items()}
    moved = checker.oracle.answers(other, {k: nudge(v) for k, v in inputs.items()})
    return any(difference(a, b) for a, b in zip(moved, want))


def check(checker, net, counts):
    """What is wrong with one network, or None."""
    graph, inputs = net.graph, net.inputs()
    with np.errstate(all="ignore"):
        want = net.want(checker, inputs)
        graph.save(checker.path)
        for config in checker.configs:
            counts["runs"] += 1
            got = config.outputs(checker.path, graph, inputs)
            for p, a, b in zip(graph.outputs, got, want):
                text = difference(a, b)
                if text and is_sensitive(checker, keep_nan(graph), inputs, want):
                    counts["too sensitive to tell"] += 1
                    return None
                if text:
                    return f"{config.name}: {p.name}: {text}"
    counts["with special values in outputs"] += any(not np.isfinite(a).all() for a in want)
    return None


MAKERS = {"images": Images, "dense": Dense, "attention": Attention, "recurrent": Recurrent, "rows": Rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", choices=list(MAKERS))
    a = parser.parse_args()
    counts, failed = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(a.worker, folder)
        for seed in range(a.seed, a.seed + a.count):
            for name, maker in MAKERS.items():
                if a.only and name != a.only:
                    continue
                net = maker(np.random.RandomState(seed))
                text = check(checker, net, counts)
                counts["models"] += 1
                if text:
                    failed += 1
                    print(f"seed {seed}, {name}: {text}", flush=True)
        checker.close()
    print(", ".join(f"{v} {k}" for k, v in counts.items()) + f", {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
