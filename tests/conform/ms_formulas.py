#!/usr/bin/env python3
"""Operators of com.microsoft for which onnxruntime has no CPU kernel, beside the formulas of its documentation
(ContribOperators.md) in numpy, in double precision: GroupNorm, SkipGroupNorm, BiasSplitGelu, BiasAdd,
FusedMatMulActivation; f32 and f16, several sizes of one model. What it makes for one processor is refused.

usage: ms_formulas.py WORKER [--seed N] [--count N]
"""
import argparse
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

from onnx_file import Graph, Node, Port
from worker import Refused, UNSUPPORTED, Worker

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def group_norm(x, gamma, beta, groups, epsilon, activation, channels_last):
    if not channels_last:
        x = np.moveaxis(x, 1, -1)
    n, h, w, c = x.shape
    g = x.reshape(n, h * w, groups, c // groups)
    mean, var = g.mean((1, 3), keepdims=True), g.var((1, 3), keepdims=True)
    y = ((g - mean) / np.sqrt(var + epsilon)).reshape(x.shape) * gamma + beta
    y = y * sigmoid(y) if activation else y
    return y if channels_last else np.moveaxis(y, -1, 1)


def norm_case(rs, skips):
    n, h, w = int(rs.randint(1, 4)), int(rs.choice([1, 3, 8])), int(rs.choice([1, 4, 5]))
    groups, each = int(rs.choice([1, 2, 4, 32])), int(rs.choice([1, 2, 3]))
    c, last = groups * each, bool(skips or rs.rand() < 0.7)
    dtype = [np.float32, np.float16][int(rs.rand() < 0.3)]
    attrs = {"groups": groups, "activation": int(rs.randint(2)), "epsilon": float(np.float32(rs.choice([1e-5, 1e-3])))}
    if not last or rs.rand() < 0.5:
        attrs["channels_last"] = int(last)
    x = rs.randn(n, h, w, c) if last else rs.randn(n, c, h, w)
    operands = [("x", x * 2 + 1, dtype, "in"), ("gamma", rs.randn(c), np.float32, "const"), ("beta", rs.randn(c), np.float32, "const")]
    if skips:
        shape = [(n, h, w, c), (n, 1, 1, c), (n, c)][rs.randint(3)]
        operands.append(("skip", rs.randn(*shape), dtype, "in"))
        if rs.rand() < 0.6:
            operands.append(("bias", rs.randn(c), dtype, "const"))

    def formula(v):
        s = v["x"]
        if skips:
            s = s + (v["skip"] if v["skip"].ndim == 4 else v["skip"][:, None, None, :]) + v.get("bias", 0)
        y = group_norm(s, v["gamma"], v["beta"], groups, attrs["epsilon"], attrs["activation"], last)
        return {"y": y, "s": s} if skips else {"y": y}
    return ("SkipGroupNorm" if skips else "GroupNorm"), attrs, operands, formula, dtype


def group_norms(rs):
    return norm_case(rs, False)


def skip_group_norms(rs):
    return norm_case(rs, True)


def split_gelu(rs):
    b, s, d = int(rs.randint(1, 4)), int(rs.choice([1, 3, 8])), 2 * int(rs.choice([1, 8, 20]))
    dtype = [np.float32, np.float16][int(rs.rand() < 0.3)]

    def formula(v):
        x = v["x"] + v["bias"]
        return {"y": x[..., :d // 2] * gelu(x[..., d // 2:])}
    return "BiasSplitGelu", {}, [("x", rs.randn(b, s, d), dtype, "in"), ("bias", rs.randn(d), dtype, "const")], formula, dtype


def bias_add(rs):
    b, s, d = int(rs.randint(1, 4)), int(rs.choice([1, 3, 8])), int(rs.choice([1, 8, 20]))
    return ("BiasAdd", {}, [("x", rs.randn(b, s, d), np.float32, "in"), ("bias", rs.randn(d), np.float32, "const"),
                            ("skip", rs.randn(b, s, d), np.float32, "in")],
            lambda v: {"y": v["x"] + v["bias"] + v["skip"]}, np.float32)


ACTIVATIONS = [("Relu", {}, lambda x: np.maximum(x, 0)), ("Tanh", {}, np.tanh), ("Sigmoid", {}, sigmoid),
               ("LeakyRelu", {"activation_alpha": 0.25}, lambda x: np.where(x < 0, 0.25 * x, x)),
               ("Elu", {"activation_alpha": 1.5}, lambda x: np.where(x < 0, 1.5 * np.expm1(x), x)),
               ("HardSigmoid", {"activation_alpha": 0.25, "activation_beta": 0.5}, lambda x: np.clip(0.25 * x + 0.5, 0, 1)),
               ("Softplus", {}, lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)),
               ("Softsign", {}, lambda x: x / (1 + np.abs(x)))]


def matmul_activation(rs):
    m, k, n = (int(v) for v in rs.randint(1, 20, 3))
    batch = [int(v) for v in rs.randint(1, 4, rs.randint(0, 3))]
    ta, tb, alpha = int(rs.randint(2)), int(rs.randint(2)), float(np.float32(rs.rand() + 0.5))
    name, more, act = ACTIVATIONS[rs.randint(len(ACTIVATIONS))]
    attrs = {"alpha": alpha, "transA": ta, "transB": tb, "activation": name, **more}

    def formula(v):
        a, b = v["a"], v["b"]
        a, b = np.swapaxes(a, -1, -2) if ta else a, np.swapaxes(b, -1, -2) if tb else b
        return {"y": act(alpha * (a @ b))}
    return ("FusedMatMulActivation", attrs,
            [("a", rs.randn(*batch, *((k, m) if ta else (m, k))), np.float32, "in"),
             ("b", rs.randn(*batch, *((n, k) if tb else (k, n))), np.float32, ["in", "const"][rs.randint(2)])], formula, np.float32)


MAKERS = (group_norms, skip_group_norms, split_gelu, bias_add, matmul_activation)


def try_case(worker, path, case, symbols):
    """None, or what is wrong."""
    op, attrs, operands, formula, dtype = case
    g, values = Graph(opset=17, ir=8), {}
    for name, value, kind, how in operands:
        values[name] = np.asarray(value).astype(kind)
        if how == "const":
            g.constants[name] = values[name]
        else:
            dims = list(values[name].shape)
            if symbols:
                dims[0] = f"n{dims[0]}"  # equal sizes are one symbol
            g.inputs.append(Port(name, values[name].dtype.name, dims))
    want = formula({k: v.astype(np.float64) for k, v in values.items()})
    g.nodes.append(Node(op, list(values), list(want), attrs, "com.microsoft"))
    g.outputs += [Port(n, np.dtype(dtype).name) for n in want]
    g.save(path)
    for pipeline, driver in (("cpu", "cpu"), ("plain", "null")):
        worker.compile([path], pipeline)
        got = worker.run([values[i.name] for i in g.inputs], driver=driver)
        text = oracle.outputs_differ(dict(zip(want, got)), {k: v.astype(dtype) for k, v in want.items()})
        if text:
            return f"{driver}: {text}"
    return None


def refusals(worker, path):
    bad = 0
    for op in ("NhwcConv", "NhwcFusedConv", "NhwcMaxPool", "QOrderedMatMul", "QuantizeWithOrder", "MatMulBnb4"):
        g = Graph(opset=17, ir=8)
        g.inputs.append(Port("x", "float32", [1, 4, 4, 8]))
        g.constants["w"] = np.zeros((8, 3, 3, 8), np.float32)
        g.nodes.append(Node(op, ["x", "w"], ["y"], {}, "com.microsoft"))
        g.outputs.append(Port("y", "float32"))
        g.save(path)
        try:
            worker.compile([path])
            text = "is not refused"
        except Refused as e:
            text = None if e.code == UNSUPPORTED and op in str(e) else str(e)
        if text:
            bad += 1
            print(f"{op}: {text}")
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("worker")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=20, help="cases of each maker")
    o = p.parse_args()
    worker, bad = Worker(o.worker), 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        for number, maker in enumerate(MAKERS):
            for i in range(o.count):
                case = maker(np.random.RandomState((o.seed * 1000003 + i * 7919 + number) % 2**32))
                try:
                    text = try_case(worker, path, case, symbols=i % 2)
                except Refused as e:
                    text = f"refused: {e}"
                if text:
                    bad += 1
                    print(f"{maker.__name__} {i}: {case[0]} {case[1]}: {text}")
        bad += refusals(worker, path)
    worker.close()
    print(f"{len(MAKERS) * o.count} cases, {bad} wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
