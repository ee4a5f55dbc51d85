#!/usr/bin/env python3
"""RandomNormal, RandomUniform, Bernoulli, Multinomial and Dropout in training: their sequence is Weft's own, so the
shapes, types and distributions are checked, and what they depend on: the seed, the node, the round of a loop.

usage: random_numbers.py WORKER
"""
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from worker import Refused, Worker

F32, F64, F16, I32, I64, BOOL = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32,
                                 TensorProto.INT64, TensorProto.BOOL)
# The statistic of Kolmogorov and Smirnov, times sqrt(n), is above this in 1 of 1e5 samples.
KS_LIMIT = 2.5


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs, outputs, **attrs)


def answers(worker, folder, nodes, inputs, outputs, constants=(), pipeline="cpu", driver="cpu", opset=17):
    """Two runs, which must agree; `inputs` are arrays whose first axis is symbolic."""
    ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), ["n"] + list(a.shape[1:]))
             for n, a in inputs.items()]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
                              [numpy_helper.from_array(np.asarray(v), n) for n, v in dict(constants).items()])
    path = os.path.join(folder, "m.onnx")
    with open(path, "wb") as f:
        f.write(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString())
    worker.compile([path], pipeline)
    first, second = (worker.run(list(inputs.values()), driver=driver) for _ in range(2))
    for a, b in zip(first, second):
        assert a.tobytes() == b.tobytes(), "a second run differs"
    return first


def normal_cdf(x):
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def check_ks(x, cdf, what):
    x = np.sort(np.ravel(x).astype(np.float64))
    n = len(x)
    at = cdf(x)
    d = max(np.max(np.arange(1, n + 1) / n - at), np.max(at - np.arange(n) / n)) * math.sqrt(n)
    assert d < KS_LIMIT, f"{what}: the distribution is another one ({d:.2f})"


def check_independent(x, what):
    """No correlation between neighbours, nor between elements a power of two apart."""
    x = np.ravel(x).astype(np.float64)
    x = (x - x.mean()) / x.std()
    for lag in (1, 2, 4, 64, 1024):
        r = float(np.mean(x[:-lag] * x[lag:])) * math.sqrt(len(x) - lag)
        assert abs(r) < 4.5, f"{what}: elements {lag} apart are correlated ({r:.1f})"


def check_counts(got, want, what):
    """Chi-squared, as a number of standard deviations."""
    chi = float(np.sum((got - want) ** 2 / want))
    free = len(want) - 1
    assert abs(chi - free) < 6 * math.sqrt(2 * free), f"{what}: counts {got}, expected {want}"


def distributions(run):
    x = np.zeros((300, 200), np.float32)
    for op, attrs, cdf in (
            ("RandomNormal", {"mean": 2.0, "scale": 3.0}, lambda v: normal_cdf((v - 2) / 3)),
            ("RandomUniform", {"low": -1.0, "high": 4.0}, lambda v: np.clip((v + 1) / 5, 0, 1))):
        for seed in (None, 0.0, 7.5):
            more = attrs if seed is None else {**attrs, "seed": seed}
            y, z = run([node(op, [], ["y"], shape=[200, 301], **more), node(op + "Like", ["x"], ["l"], **more),
                        node("Add", ["x", "l"], ["z"])], {"x": x}, [("y", F32), ("z", F32)])
            assert y.shape == (200, 301) and z.shape == x.shape and y.dtype == z.dtype == np.float32
            for v in (y, z):
                check_ks(v, cdf, f"{op} seed {seed}")
                check_independent(v, f"{op} seed {seed}")
    for onnx, dtype in ((F64, np.float64), (F16, np.float16)):
        y, z = run([node("RandomUniformLike", ["x"], ["y"], dtype=onnx), node("RandomNormal", [], ["z"], shape=[50000], dtype=onnx),
                    node("Identity", ["x"], ["w"])], {"x": x}, [("y", onnx), ("z", onnx)])
        assert y.dtype == z.dtype == dtype and y.min() >= 0 and y.max() < 1
        grid = 2.0 ** -11 if dtype == np.float16 else 0
        check_ks(y + grid * np.random.default_rng(1).random(y.shape), lambda v: np.clip(v, 0, 1), f"uniform {dtype}")
        assert abs(float(z.mean(dtype=np.float64))) < 0.03 and abs(float(z.std(dtype=np.float64)) - 1) < 0.03


def choices(run):
    p = np.tile(np.linspace(0, 1, 11, dtype=np.float32), (20000, 1))
    y, z = run([node("Bernoulli", ["p"], ["y"], seed=1.0), node("Bernoulli", ["p"], ["z"], dtype=BOOL)], {"p": p},
               [("y", F32), ("z", BOOL)], opset=15)
    assert set(np.unique(y)) == {0, 1} and z.dtype == np.bool_ and not np.array_equal(y, z)
    for v in (y.astype(np.float64), z.astype(np.float64)):
        assert np.all(np.abs(v.mean(0) - p[0]) <= 5 * np.sqrt(p[0] * (1 - p[0]) / len(p))), v.mean(0)
    weights = np.array([[1, 2, 0, 3, 4], [5, 0, 0, 0, 0], [0, 1, 1, 1, 1]], np.float32)
    with np.errstate(divide="ignore"):
        logits = np.log(weights) + np.array([[300], [0], [-300]], np.float32)
    (y,) = run([node("Multinomial", ["x"], ["y"], sample_size=30000, dtype=I64)], {"x": logits}, [("y", I64)])
    assert y.shape == (3, 30000) and y.dtype == np.int64
    for row, w in zip(y, weights):
        got = np.bincount(row, minlength=5)
        assert np.all(got[w == 0] == 0), "a class of probability 0 was drawn"
        if (w > 0).sum() > 1:
            check_counts(got[w > 0], (w / w.sum() * len(row))[w > 0], "Multinomial")


def dropout(run):
    x = np.random.default_rng(2).standard_normal((400, 100)).astype(np.float32)
    y, mask = run([node("Dropout", ["x", "r", "t"], ["y", "m"], seed=3)], {"x": x}, [("y", F32), ("m", BOOL)],
                  {"r": np.float32(0.3), "t": np.bool_(True)}, opset=13)
    assert mask.dtype == np.bool_ and abs(mask.mean() - 0.7) < 0.015
    assert np.array_equal(y != 0, mask) and np.allclose(y[mask], x[mask] / 0.7, rtol=1e-6)


def seeds(run):
    """Equal seeds give equal numbers; nodes without one, and the rounds of loops in loops, other ones."""
    x = np.zeros((4, 5), np.float32)
    a, b, c, d = run([node("RandomNormalLike", ["x"], ["a"], seed=5.0), node("RandomNormalLike", ["x"], ["b"], seed=5.0),
                      node("RandomNormalLike", ["x"], ["c"]), node("RandomNormalLike", ["x"], ["d"])], {"x": x},
                     [(n, F32) for n in "abcd"])
    assert np.array_equal(a, b) and not np.array_equal(a, c) and not np.array_equal(c, d)
    port = lambda n, t: helper.make_tensor_value_info(n, t, [])
    for seed in ({}, {"seed": 5.0}):
        inner = helper.make_graph([node("RandomNormalLike", ["x"], ["r"], **seed), node("Identity", ["c2"], ["c3"])], "inner",
                                  [port("i2", I64), port("c2", BOOL)], [port("c3", BOOL), helper.make_tensor_value_info("r", F32, None)])
        outer = helper.make_graph([node("Loop", ["three", "true"], ["rs"], body=inner), node("Identity", ["c1"], ["c4"])], "outer",
                                  [port("i1", I64), port("c1", BOOL)], [port("c4", BOOL), helper.make_tensor_value_info("rs", F32, None)])
        (y,) = run([node("Loop", ["three", "true"], ["y"], body=outer)], {"x": x}, [("y", F32)],
                   {"three": np.int64(3), "true": np.bool_(True)})
        assert y.shape == (3, 3, 4, 5)
        assert len(np.unique(y.reshape(9, -1), axis=0)) == 9, f"two rounds draw the same numbers: {seed}"


def refusals(run):
    x = np.zeros((4, 5), np.float32)
    body = helper.make_graph([node("RandomNormalLike", ["e"], ["r"])], "b", [helper.make_tensor_value_info("e", F32, [5])],
                             [helper.make_tensor_value_info("r", F32, [5])])
    for nodes, text in (([node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)], "draw before the Scan"),
                        ([node("Dropout", ["x", "", "t"], ["y"])], "not constant"),
                        ([node("RandomUniform", [], ["y"], shape=[2, -1])], "dim 1 is -1"),
                        ([node("RandomUniformLike", ["x"], ["y"], dtype=I32)], "element type i32")):
        inputs = {"x": x, "t": np.ones(1, bool)} if nodes[0].op_type == "Dropout" else {"x": x}
        try:
            run(nodes, inputs, [("y", F32)])
            raise AssertionError(f"{nodes[0].op_type} is not refused")
        except Refused as e:
            assert text in str(e), str(e)


def main():
    worker, bad, tests = Worker(sys.argv[1]), 0, (distributions, choices, dropout, seeds, refusals)
    with tempfile.TemporaryDirectory() as folder:
        for pipeline, driver in (("cpu", "cpu"), ("plain", "null")):
            def run(*a, **k):
                return answers(worker, folder, *a, **k, pipeline=pipeline, driver=driver)
            for test in tests:
                try:
                    test(run)
                except (AssertionError, Refused) as e:
                    bad += 1
                    print(f"{test.__name__}, {driver}: {e or type(e).__name__}")
    worker.close()
    print(f"{2 * len(tests)} tests, {bad} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
