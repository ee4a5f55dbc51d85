#!/usr/bin/env python3
"""A decoder whose keys and values of the past are inputs and outputs, token by token: a run without a past, then
steps that feed the presents back. Every row of logits is compared with onnxruntime's; memory must not grow with the
number of lengths.

usage: decoder.py WEFT DECODER_RUN [MODEL.onnx [TOKENS]]
       DECODER_RUN: built from decoder_run.c. MODEL: another decoder with inputs (ids, past...) and outputs (logits,
       present...) in this order; default: one of two layers, made here.
"""
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np
import onnx
from onnx import TensorProto, helper

LAYERS, WIDTH, HEADS, WORDS, LENGTH = 2, 64, 2, 300, 1024
PREFILL = 7
TOLERANCE = 1e-4
GROWTH_KB = 4096  # of resident memory in the second half of the steps


class Maker:
    def __init__(self):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(1)

    def put(self, op, *inputs, n=1, **attrs):
        outputs = [f"v{len(self.nodes)}_{i}" for i in range(n)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=f"{op}_{len(self.nodes)}", **attrs))
        return outputs[0] if n == 1 else outputs

    def weight(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def random(self, *shape):
        return self.weight((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def ints(self, *values):
        return self.weight(np.array(values, np.int64))

    def norm(self, x):
        return self.put("LayerNormalization", x, self.weight(np.ones(WIDTH, np.float32)), self.random(WIDTH))

    def heads(self, x):
        split = self.put("Reshape", x, self.ints(0, 0, HEADS, WIDTH // HEADS))
        return self.put("Transpose", split, perm=[0, 2, 1, 3])

    def layer(self, x, past, mask):
        both = self.put("Add", self.put("MatMul", self.norm(x), self.random(WIDTH, 3 * WIDTH)), self.random(3 * WIDTH))
        q, k, v = (self.heads(p) for p in self.put("Split", both, n=3, axis=2))
        k, v = (self.put("Concat", p, new, axis=2) for p, new in zip(past, (k, v)))
        scores = self.put("MatMul", q, self.put("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.put("Div", scores, self.weight(np.float32((WIDTH / HEADS) ** 0.5)))
        p = self.put("Softmax", self.put("Where", mask, scores, self.weight(np.float32(-1e4))), axis=-1)
        y = self.put("Transpose", self.put("MatMul", p, v), perm=[0, 2, 1, 3])
        x = self.put("Add", x, self.put("MatMul", self.put("Reshape", y, self.ints(0, 0, WIDTH)), self.random(WIDTH, WIDTH)))
        wide = self.put("Relu", self.put("MatMul", self.norm(x), self.random(WIDTH, 4 * WIDTH)))
        return self.put("Add", x, self.put("MatMul", wide, self.random(4 * WIDTH, WIDTH))), k, v


def make_decoder(path):
    m = Maker()
    past = [f"past.{i}.{kind}" for i in range(LAYERS) for kind in ("key", "value")]
    size = [m.put("Gather", m.put("Shape", name), m.ints(axis), axis=0) for name, axis in ((past[0], 2), ("ids", 1))]
    total = m.put("Add", *size)
    places = m.put("Slice", m.random(LENGTH, WIDTH), size[0], total, m.ints(0))
    rows = m.put("Slice", m.weight(np.tril(np.ones((LENGTH, LENGTH), bool))), size[0], total, m.ints(0))
    mask = m.put("Slice", rows, m.ints(0), total, m.ints(1))
    x, present = m.put("Add", m.put("Gather", m.random(WORDS, WIDTH), "ids"), places), []
    for i in range(LAYERS):
        x, k, v = m.layer(x, past[2 * i:2 * i + 2], mask)
        present += [k, v]
    logits = m.put("MatMul", m.norm(x), m.random(WIDTH, WORDS))
    dims = ["batch", HEADS, "past", WIDTH // HEADS]
    graph = helper.make_graph(
        m.nodes, "decoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])]
        + [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in past],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["batch", "length", WORDS])]
        + [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims[:2] + ["past + length", dims[3]]) for n in present],
        m.weights)
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


def expected(path, tokens):
    """Last rows of logits of each run, and the median time of a step in us."""
    s = oracle.session(path, optimise=True)
    names, out, times = [i.name for i in s.get_inputs()], [], []
    past = [np.zeros([1 if k == 0 else d if isinstance(d, int) else 0 for k, d in enumerate(i.shape)], np.float32)
            for i in s.get_inputs()[1:]]
    for begin, end in [(0, PREFILL)] + [(i, i + 1) for i in range(PREFILL, len(tokens))]:
        start = time.perf_counter()
        logits, *past = s.run(None, dict(zip(names, [tokens[None, begin:end]] + past)))
        times.append(1e6 * (time.perf_counter() - start))
        out.append(logits[0, -1])
    return np.stack(out), float(np.median(times[1:]))


def main():
    weft, runner = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        path = sys.argv[3] if len(sys.argv) > 3 else os.path.join(folder, "decoder.onnx")
        if len(sys.argv) <= 3:
            make_decoder(path)
        count = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
        tokens = np.random.default_rng(2).integers(0, WORDS, count).astype(np.int64)
        bundle, ids, logits = (os.path.join(folder, n) for n in ("d.weft", "ids", "logits"))
        tokens.tofile(ids)
        oracle.weft(weft, "compile", path, "-o", bundle)
        done = subprocess.run([runner, bundle, ids, str(PREFILL), logits], stdout=subprocess.PIPE, text=True, check=True)
        want, step_us = expected(path, tokens)
        got = np.fromfile(logits, np.float32).reshape(want.shape)
    print(f"{done.stdout.strip()} onnxruntime_us {step_us:.0f}")
    words = done.stdout.split()
    grown = int(words[words.index("grown_kb") + 1])
    error = np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)
    print(f"largest error of {len(error)} runs {error.max():.1e}, at length {int(error.argmax()) + PREFILL}")
    return int(not error.max() <= TOLERANCE or grown > GROWTH_KB)


if __name__ == "__main__":
    sys.exit(main())
