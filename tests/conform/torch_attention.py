#!/usr/bin/env python3
"""Models as torch.onnx.export writes them of nn.MultiheadAttention: sequences come first, heads are split off the batch, the
result is [s * b, e]. By 1.13 and by 2.x, self and cross attention, with and without a mask: Weft must run one attention kernel
and few copies, none for self attention with the batch first, batch requests, and answer as onnxruntime does, also in a joint program.

usage: torch_attention.py WORKER
"""
import itertools
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

from onnx_file import Graph, Node, Port
from worker import Worker

E, H = 24, 4
D = E // H
I64 = np.int64


class Export:
    def __init__(self, rs):
        self.rs, self.g, self.count = rs, Graph(opset=14), 0

    def const(self, value):
        self.count += 1
        name = f"c{self.count}"
        self.g.constants[name] = np.asarray(value)
        return name

    def weight(self, *shape):
        return self.const(self.rs.uniform(-0.4, 0.4, shape).astype(np.float32))

    def op(self, op, *inputs, **attrs):
        self.count += 1
        out = f"v{self.count}"
        self.g.nodes.append(Node(op, list(inputs), [out], attrs))
        return out

    def size(self, x, axis):
        return self.op("Gather", self.op("Shape", x), self.const(I64(axis)), axis=0)

    def view(self, x, *dims):
        """Dims are numbers or names of scalars."""
        zero = self.const(np.array([0], I64))
        parts = [self.op("Unsqueeze", d, zero) if isinstance(d, str) else self.const(np.array([d], I64)) for d in dims]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    def linear(self, x, n_in, n_out):
        return self.op("Add", self.weight(n_out), self.op("MatMul", x, self.weight(n_in, n_out)))

    def slice(self, x, begin, end, axis):
        return self.op("Slice", x, *(self.const(np.array([v], I64)) for v in (begin, end, axis)))

    def project(self, x, parts, newer):
        """[s, b, E] to `parts` values of the same shape: slices, or, newer, gathered from [parts, s, b, E]."""
        joined = self.linear(x, E, parts * E)
        if not newer:
            return [self.slice(joined, i * E, (i + 1) * E, -1) for i in range(parts)]
        whole = self.view(joined, self.size(joined, 0), self.size(joined, 1), parts, E)
        whole = self.op("Transpose", self.op("Unsqueeze", whole, self.const(np.array([0], I64))), perm=[3, 1, 2, 0, 4])
        whole = self.op("Squeeze", whole, self.const(np.array([-2], I64)))
        return [self.op("Gather", whole, self.const(I64(i)), axis=0) for i in range(parts)]

    def attention(self, x, other, mask, newer):
        """x: [s, b, E]; other: of keys and values, None: x; mask: bool [b, t], true where keys are ignored."""
        if other is None:
            q, k, v = self.project(x, 3, newer)
        else:
            q, (k, v) = self.linear(x, E, E), self.project(other, 2, newer)
        s, b, t = self.size(q, 0), self.size(q, 1), self.size(k, 0)
        bh = self.op("Mul", b, self.const(I64(H)))
        q3, k3, v3 = (self.view(a, n, bh, D) for a, n in ((q, s), (k, t), (v, t)))
        added = None
        if mask:
            m = self.op("Expand", self.view(mask, b, 1, 1, t), self.const(np.array([1, H, 1, 1], I64)))
            if not newer:
                m = self.view(m, bh, 1, t)
            zeros = self.op("ConstantOfShape", self.op("Shape", m), value=np.array([0], np.float32))
            added = self.op("Where", m, self.const(np.float32(-np.inf)), zeros)
        if newer:
            q4, k4, v4 = (self.view(self.op("Transpose", a, perm=[1, 0, 2]), b, H, n, D) for a, n in ((q3, s), (k3, t), (v3, t)))
            root = self.const(np.float32(D ** -0.25))
            kt = self.op("Mul", self.op("Transpose", k4, perm=[0, 1, 3, 2]), root)
            scores = self.op("MatMul", self.op("Mul", q4, root), kt)
            context = self.op("MatMul", self.op("Softmax", self.op("Add", scores, added) if added else scores, axis=-1), v4)
            context = self.op("Transpose", context, perm=[2, 0, 1, 3])
        else:
            qs = self.op("Div", self.op("Transpose", q3, perm=[1, 0, 2]), self.const(np.float32(D ** 0.5)))
            scores = self.op("MatMul", qs, self.op("Transpose", k3, perm=[1, 2, 0]))
            context = self.op("MatMul", self.op("Softmax", self.op("Add", scores, added) if added else scores, axis=-1),
                              self.op("Transpose", v3, perm=[1, 0, 2]))
            context = self.op("Transpose", context, perm=[1, 0, 2])
        flat = self.view(context, self.op("Mul", s, b), E)
        y = self.op("Gemm", flat, self.weight(E, E), self.weight(E), transB=1)
        return self.view(y, s, b, E)


def export(seed, newer, cross, masked, batch_first):
    """Attention with a residual, as an encoder layer has it."""
    e = Export(np.random.RandomState(seed))
    def port(name, n):
        e.g.inputs.append(Port(name, "float32", ["N", n, E] if batch_first else [n, "N", E]))
        return e.op("Transpose", name, perm=[1, 0, 2]) if batch_first else name
    x = port("x", "S")
    other = port("other", "T") if cross else None
    if masked:
        e.g.inputs.append(Port("mask", "bool", ["N", "T" if cross else "S"]))
    y = e.attention(x, other, "mask" if masked else None, newer)
    if batch_first:
        y = e.op("Transpose", y, perm=[1, 0, 2])
    e.g.nodes.append(Node("Add", ["x", y], ["y"], {}))
    e.g.outputs.append(Port("y", "float32"))
    return e.g


def make_inputs(graph, n, rs):
    sizes = {"N": n, "S": 5, "T": 7}
    out = []
    for p in graph.inputs:
        shape = [sizes.get(d, d) for d in p.dims]
        array = rs.uniform(-1, 1, shape).astype(np.float32) if p.dtype == "float32" else rs.uniform(size=shape) < 0.4
        if p.dtype == "bool":
            array[:, 0] = False
        out.append(array)
    return out


def check(worker, folder, options):
    newer, cross, masked, batch_first = options
    rs = np.random.RandomState(7)
    graphs = [export(seed, *options) for seed in (1, 2)]
    graphs[1].constants = {k: (graphs[0].constants[k] if i % 2 else v)  # siblings
                           for i, (k, v) in enumerate(graphs[1].constants.items())}
    paths = [os.path.join(folder, f"m{i}.onnx") for i in range(2)]
    for g, path in zip(graphs, paths):
        g.save(path)
    inputs = [make_inputs(graphs[0], 3, rs), make_inputs(graphs[0], 1, rs)]
    names = [p.name for p in graphs[0].inputs]
    want = [oracle.answers(p, dict(zip(names, i)))["y"] for p, i in zip(paths, inputs)]
    programs = worker.compile(paths, merge="exact")
    for k in range(2):
        got = worker.run(inputs[k], f"m{k}", threads=2)[0]
        text = oracle.difference(got, want[k], 1e-5)
        if text:
            return text
    ran = [line.split()[1] for line in worker.kernels()]
    # Keys and values of a value of their own are copied; the mask is repeated for the heads of each batch.
    most = (5 + newer if cross else 0) + (1 if masked else 0) + (0 if batch_first else 4)
    copies = ran.count("move") + ran.count("gather")
    if ran.count("attention") != 1 or copies > most:
        return f"{copies} copies, at most {most} expected, in {' '.join(ran)}"
    if not batch_first:
        return None
    if worker.batched != {"m0", "m1"}:
        return f"batched are {worker.batched}"
    joint = [name for name, parts in programs.items() if len(parts) == 2]
    if not joint:
        return "no joint program"
    for name in joint:
        for got, w in zip(worker.run(inputs[0] + inputs[1], name, threads=2), want):
            text = oracle.difference(got, w, 1e-5)
            if text:
                return f"{name}: {text}"
    return None


def main():
    worker, failures = Worker(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as folder:
        for options in itertools.product((False, True), repeat=4):
            text = check(worker, folder, options)
            if text:
                failures += 1
                print("newer {}, cross {}, masked {}, batch first {}: {}".format(*options, text), flush=True)
    worker.close()
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
