#!/usr/bin/env python3
"""Batches that run a few rows at a time (runtime/session/batch_slices.c): random networks whose values do not fit into caches,
beside onnxruntime, with one and two threads, for batches that the slices divide and that they do not. A row with NaN must not
reach other rows, and with one thread a row has the same bits in every batch that is divided.

usage: batch_slices.py WORKER [--seed N] [--count N]
"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

from onnx_file import Graph, Node, Port
from worker import Worker

SIZE, TOLERANCE = 96, 1e-4


def make(rs):
    """A stem to 16 or 24 channels of SIZE x SIZE, 0.6 or 0.9 MB a row, then a few layers of as many channels."""
    g, count = Graph(opset=17), 0

    def node(op, inputs, **attrs):
        nonlocal count
        count += 1
        g.nodes.append(Node(op, inputs, [f"v{count}"], attrs))
        return f"v{count}"

    def weight(*dims):
        nonlocal count
        count += 1
        g.constants[f"w{count}"] = (rs.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))).astype("f4")
        return f"w{count}"

    c = int(rs.choice([16, 24]))
    g.inputs.append(Port("x", "float32", ["N", 3, SIZE, SIZE]))
    g.inputs.append(Port("bias", "float32", ["N", c, 1, 1]))
    values = [node("Conv", ["x", weight(c, 3, 3, 3)], pads=[1, 1, 1, 1])]
    values.append(node("Add", [values[0], "bias"]))
    for _ in range(rs.integers(3, 8)):
        v = values[-1]
        kind = rs.integers(6)
        if kind == 0:
            v = node("Relu", [node("Conv", [v, weight(c, c, 3, 3)], pads=[1, 1, 1, 1])])
        elif kind == 1:
            v = node("Conv", [v, weight(c, 1, 3, 3)], pads=[1, 1, 1, 1], group=c)
        elif kind == 2:
            v = node("Conv", [node("Concat", [v, values[rs.integers(len(values))]], axis=1), weight(c, 2 * c, 1, 1)])
        elif kind == 3:
            v = node("Add", [v, values[rs.integers(len(values))]])
        elif kind == 4:
            v = node("Mul", [v, node("Sigmoid", [node("GlobalAveragePool", [v])])])
        else:
            v = node("MaxPool", [v], kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
        values.append(v)
    pooled = node("Flatten", [node("GlobalAveragePool", [values[-1]])])
    outputs = [node("Softmax", [node("MatMul", [pooled, weight(c, 10)])], axis=-1)]
    if rs.integers(2):
        outputs.append(node("Identity", [values[rs.integers(len(values))]]))
    if rs.integers(2):
        outputs.append(node("Identity", ["bias"]))
    g.outputs += [Port(o, "float32") for o in outputs]
    return g


def check(worker, path, with_nan, rs):
    session = oracle.session(path)
    c = session.get_inputs()[1].shape[1]
    worker.compile([path])
    assert "m0" in worker.batched
    whole = [rs.standard_normal((16, 3, SIZE, SIZE)).astype("f4"), rs.standard_normal((16, c, 1, 1)).astype("f4")]
    if with_nan:
        whole[0][3, 0, 5, 5] = np.nan
    rows = {}
    for threads, batches in ((1, (16, 15, 3)), (2, (16, 9))):
        for n in batches:
            inputs = [a[:n] for a in whole]
            want = session.run(None, dict(zip(("x", "bias"), inputs)))
            got = worker.run(inputs, threads=threads)
            for a, b in zip(got, want):
                text = oracle.difference(a, b, TOLERANCE)
                if text:
                    return f"batch {n}, {threads} threads: {text}"
            if threads == 1 and n > 8:
                for k, a in enumerate(got):
                    if k in rows and not np.array_equal(a[:8], rows[k][:8], equal_nan=True):
                        return f"batch {n}: output {k} has other bits than in another batch"
                    rows[k] = a
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=6)
    a = parser.parse_args()
    worker, failed = Worker(a.worker), 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "slices.onnx")
        for seed in range(a.seed, a.seed + a.count):
            rs = np.random.default_rng(seed)
            graph = make(rs)
            graph.save(path)
            # onnxruntime's maximum of NaN and a number depends on their order.
            text = check(worker, path, all(n.op != "MaxPool" for n in graph.nodes), rs)
            if text:
                failed += 1
                print(f"seed {seed}: {text}")
    worker.close()
    print(f"{a.count} models, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
