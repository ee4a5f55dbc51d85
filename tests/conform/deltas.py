#!/usr/bin/env python3
"""Weights kept as differences (`weft compile --deltas`). Siblings of random models, whose weights differ in single elements, by
products of low rank, in the order of q, k and v, in all or nothing, are compiled with whole weights and with differences: each
model's answers must be near onnxruntime's and batched as before, the report must say what became of each weight, and the bundle
must have about the bytes of one model where the differences are small.

usage: deltas.py WEFT [--seed N] [--count N]
"""
import argparse
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

from onnx_file import Graph, Node, Port

KINDS = {"off": (), "exact": ("elements",), "near": ("elements", "low_rank")}


def make_model(rs):
    """A graph of GEMMs by weights of several forms, with steps behind them; its weights by name."""
    width = int(rs.choice([32, 48, 64]))
    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", ["N", "S", width]))
    weights, v = {}, "x"

    def op(name, *inputs, **attrs):
        out = f"{name}_{len(g.nodes)}"
        g.nodes.append(Node(name, list(inputs), [out], attrs))
        return out

    def weight(*shape):
        name = f"w{len(weights)}"
        weights[name] = (rs.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        return name

    for _ in range(rs.integers(2, 6)):
        kind = rs.integers(5)
        if kind == 0:
            v = op("Relu", op("Add", op("MatMul", v, weight(width, width)), weight(width)))
        elif kind == 1:  # a residual behind the second of two GEMMs
            wide = op("MatMul", v, weight(width, 3 * width))
            v = op("Add", op("MatMul", op("Tanh", wide), weight(3 * width, width)), v)
        elif kind == 2:  # a weight by features
            g.constants[f"flat{len(g.nodes)}"] = np.array([-1, width])
            flat = op("Reshape", v, f"flat{len(g.nodes)}")
            y = op("Gemm", flat, weight(width, width), weight(width), transB=1)
            v = op("Reshape", op("Sigmoid", y), op("Shape", v))
        elif kind == 3:  # the weight is used twice
            w = weight(width, width)
            v = op("MatMul", op("Tanh", op("MatMul", v, w)), w)
        else:  # attention of one head; which of its GEMMs is first is random
            w = {k: weight(width, width) for k in "qkv"}
            part = {k: op("MatMul", v, w[k]) for k in rs.permutation(list("qkv"))}
            scores = op("Softmax", op("MatMul", part["q"], op("Transpose", part["k"], perm=[0, 2, 1])), axis=-1)
            v = op("Add", v, op("MatMul", scores, part["v"]))
    g.nodes.append(Node("MatMul", [v, weight(width, 5)], ["y"]))
    g.outputs.append(Port("y", "float32"))
    return g, weights


def change(rs, a, how):
    a = a.copy()
    flat = a.reshape(-1)
    if how == "elements":
        at = rs.choice(a.size, max(1, a.size // 200), replace=False)
        flat[at] = rs.standard_normal(len(at)) * rs.choice([0, 1e-6, 0.1, 1])
    elif how == "low_rank" and a.ndim == 2 and min(a.shape) >= 32:
        rank = rs.integers(1, 4)
        a += (rs.standard_normal((len(a), rank)) @ rs.standard_normal((rank, a.shape[1])) * 0.01).astype(np.float32)
    elif how == "other":
        flat[:] = rs.standard_normal(a.size) * 0.1
    return a


def family(rs):
    """(graphs with their weights, whether all differences are small, which kinds they are of)"""
    g, weights = make_model(rs)
    hows = [["same", "elements"], ["same", "low_rank"], ["elements", "low_rank", "other"]][rs.integers(3)]
    graphs = []
    for i in range(rs.integers(2, 5)):
        one = g.copy()
        one.constants = {**g.constants, **{k: change(rs, a, rs.choice(hows) if i else "same") for k, a in weights.items()}}
        graphs.append(one)
    return graphs, hows


def compile_set(weft, folder, graphs, mode, *options):
    bundle, report = os.path.join(folder, "set.weft"), os.path.join(folder, "report.json")
    paths = [os.path.join(folder, f"m{i}.onnx") for i in range(len(graphs))]
    for g, path in zip(graphs, paths):
        g.save(path)
    oracle.weft(weft, "compile", *paths, "-o", bundle, "--batch", "1,4", "--report", report, "--deltas", mode, *options)
    with open(report) as f:
        return bundle, json.load(f), json.loads(oracle.weft(weft, "inspect", bundle, "--format", "json"))


def compare(weft, folder, bundle, graphs, rs):
    """How the answers of the models differ from onnxruntime's, or None."""
    for n, s in ((1, 1), (3, 7), (2, 16)):
        x = {"x": rs.uniform(-1, 1, (n, s, graphs[0].inputs[0].dims[2])).astype(np.float32)}
        for i in range(len(graphs)):
            got = oracle.run_bundle(weft, bundle, x, ["y"], folder, f"m{i}")["y"]
            text = oracle.difference(got, oracle.answers(os.path.join(folder, f"m{i}.onnx"), x)["y"], 1e-5)
            if text:
                return f"m{i}, {n} x {s}: {text}"
    return None


def check(weft, folder, seed, moved):
    """What is wrong, or None. Counts the weights that became differences."""
    graphs, hows = family(np.random.default_rng(seed))
    whole = None
    for mode, kinds in KINDS.items():
        bundle, report, what = compile_set(weft, folder, graphs, mode, "--merge", "auto" if seed % 2 else "off")
        weights = report.get("deltas", {}).get("weights", [])
        if (mode == "off") != ("deltas" not in report):
            return f"{mode}: the report has {report.keys()}"
        if any(m["batch_symbol"] is None for m in what["models"]):
            return f"{mode}: not batched"
        for d in weights:
            moved[d["kind"]] = moved.get(d["kind"], 0) + 1
            if d["kind"] not in kinds + ("none",) or d["bytes"] > d["full_bytes"] or (d["kind"] != "low_rank" and d["error"]):
                return f"{mode}: {d}"
            if d["error"] > 1e-6:
                return f"{mode}: {d}"
        stored = report["weight_bytes"]
        whole = whole or stored
        if stored > whole or (mode == "exact" and "elements" in hows and len(hows) == 2 and stored > 0.9 * whole and weights):
            return f"{mode}: {stored} bytes of {whole}"
        outputs = report.get("deltas", {}).get("outputs", [])
        if mode == "near" and not (len(outputs) == len(graphs) and max(o["difference"] for o in outputs) < 1e-5):
            return f"{mode}: measured {outputs}"
        text = compare(weft, folder, bundle, graphs, np.random.default_rng(seed))
        if text:
            return f"{mode}, {text}"
    return None


def reordered(weft, folder):
    """The same model with q, k and v in other orders is stored once."""
    sizes = []
    for n in (1, 4):
        graphs = []
        for i in range(n):
            g = Graph(opset=17, constants={"w" + k: np.random.default_rng(j).standard_normal((32, 32)).astype(np.float32)
                                           for j, k in enumerate("qkvo")})
            g.inputs.append(Port("x", "float32", ["N", "S", 32]))
            g.nodes += [Node("MatMul", ["x", "w" + k], [k]) for k in ("qkv", "vkq", "kvq", "vqk")[i]]
            g.nodes += [Node("Transpose", ["k"], ["t"], {"perm": [0, 2, 1]}), Node("MatMul", ["q", "t"], ["s"]),
                        Node("Softmax", ["s"], ["p"], {"axis": -1}), Node("MatMul", ["p", "v"], ["a"]),
                        Node("MatMul", ["a", "wo"], ["y"])]
            g.outputs.append(Port("y", "float32"))
            graphs.append(g)
        bundle, report, _ = compile_set(weft, folder, graphs, "off")
        sizes.append(report["weight_bytes"])
        text = compare(weft, folder, bundle, graphs, np.random.default_rng(n))
        if text:
            return text
    return None if sizes[0] == sizes[1] else f"one model has {sizes[0]} bytes, four have {sizes[1]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=12)
    options = parser.parse_args()
    failures, moved = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.count):
            text = check(options.weft, folder, seed, moved)
            failures += [f"seed {seed}: {text}"] if text else []
        text = reordered(options.weft, folder)
        failures += [f"order of q, k and v: {text}"] if text else []
    print(*failures, sep="\n")
    print(f"{len(failures)} failures; weights: {moved}")
    return 1 if failures or not moved.get("elements") or not moved.get("low_rank") else 0


if __name__ == "__main__":
    sys.exit(main())
