#!/usr/bin/env python3
"""Models with heads (`heads:` of a set file): what several heads have in common is computed once, for one input. Heads of one
trunk, cut at depths of their own, with other names of symbols and nodes, are compiled as one model beside the heads themselves:
its answers must be theirs bit for bit, be near onnxruntime's, and take one GEMM for each that is different. Also heads with
nothing in common, with inputs of their own, and some that cannot be put together.

usage: heads.py WEFT [--seed N] [--count N]
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

WIDTH, SIZES = 24, ((1, 5), (3, 7))


def layer(graph, x, kind, weights, tag):
    """Appends a layer; the values that it makes are named by the tag."""
    def op(name, *inputs, **attrs):
        out = f"{tag}_{len(graph.nodes)}"
        graph.nodes.append(Node(name, list(inputs), [out], attrs))
        return out
    def const(key):
        name = f"{tag}_{key}_{len(graph.constants)}"
        graph.constants[name] = weights[key]
        return name
    y = op("Add", op("MatMul", x, const("w")), const("b"))
    if kind == 0:
        return op("Relu", y)
    if kind == 1:
        return op("LayerNormalization", op("Add", x, y), const("g"), const("b"), axis=-1)
    scores = op("Softmax", op("MatMul", y, op("Transpose", y, perm=[0, 2, 1])), axis=-1)
    return op("Add", x, op("MatMul", scores, y))


def make_weights(rs):
    return {"w": rs.uniform(-0.3, 0.3, (WIDTH, WIDTH)).astype(np.float32),
            "b": rs.uniform(-0.3, 0.3, WIDTH).astype(np.float32), "g": rs.uniform(0.5, 1.5, WIDTH).astype(np.float32)}


def make_heads(rs):
    """(graphs, number of GEMMs by different weights)."""
    depth, n = rs.randint(1, 6), rs.randint(2, 5)
    trunk = [(rs.randint(3), make_weights(rs)) for _ in range(depth)]
    graphs, gemms, deepest = [], 0, 0
    for k in range(n):
        shared = rs.randint(0, depth + 1)
        deepest = max(deepest, shared)
        g = Graph(opset=17)
        names = ("N", "S") if rs.randint(2) else (f"batch{k}", f"seq{k}")
        g.inputs.append(Port("x", "float32", [*names, WIDTH]))
        v = "x"
        for kind, weights in trunk[:shared]:
            v = layer(g, v, kind, weights, f"t{k}" if rs.randint(2) else "t")
        for i in range(rs.randint(1, 3)):
            v = layer(g, v, rs.randint(3), make_weights(rs), f"h{k}")
            gemms += 1
        g.nodes.append(Node("ReduceMean", [v], ["y"], {"axes": [1], "keepdims": 0}))
        g.outputs.append(Port("y", "float32"))
        if rs.randint(2):
            g.outputs.append(Port(v, "float32"))
        graphs.append(g)
    return graphs, gemms + deepest


def write_set(folder, graphs, extra=""):
    for k, g in enumerate(graphs):
        g.save(os.path.join(folder, f"m{k}.onnx"))
    path = os.path.join(folder, "set.yaml")
    with open(path, "w") as f:
        f.write("models:\n" + "".join(f"  - {{name: m{k}, file: m{k}.onnx}}\n" for k in range(len(graphs))))
        f.write(f"  - {{name: all, heads: [{', '.join(f'm{k}' for k in range(len(graphs)))}]}}\n" + extra)
    return path


def compile_set(weft, folder, graphs, extra=""):
    bundle = os.path.join(folder, "set.weft")
    oracle.weft(weft, "compile", write_set(folder, graphs, extra), "-o", bundle, "--batch", "1,4")
    return bundle, json.loads(oracle.weft(weft, "inspect", bundle, "--format", "json"))


def check(weft, folder, graphs, inputs, gemms=None):
    """What is wrong with the model of all heads on {name: array}, or None."""
    bundle, what = compile_set(weft, folder, graphs)
    own = {m["name"]: m for m in what["models"]}
    if any("all" in j["models"] for j in what["joint"]):
        return "the model of all heads is merged with one of them"
    outputs = [f"m{k}/{o.name}" for k, g in enumerate(graphs) for o in g.outputs]
    if [o["name"] for o in own["all"]["outputs"]] != outputs:
        return f"outputs {own['all']['outputs']}"
    if own["all"]["batch_symbol"] is None:
        return "not batched"
    together = oracle.run_bundle(weft, bundle, inputs, outputs, folder, "all")
    for k, g in enumerate(graphs):
        feeds = {p.name: inputs[p.name] for p in g.inputs}
        names = [o.name for o in g.outputs]
        apart = oracle.run_bundle(weft, bundle, feeds, names, folder, f"m{k}")
        peer = oracle.answers(os.path.join(folder, f"m{k}.onnx"), feeds)
        for name in names:
            got = together[f"m{k}/{name}"]
            text = oracle.difference(got, peer[name], 1e-5)
            if text:
                return f"m{k}/{name} beside onnxruntime: {text}"
            if got.tobytes() != apart[name].tobytes():
                return f"m{k}/{name}: other bits than of the head alone"
    if gemms is not None:
        kinds = own["all"]["ops"]
        # A weight's GEMM, and two for each attention that is spelt out.
        by_weight = kinds["matmul"] - 2 * count_once(graphs, "Softmax")
        if by_weight != gemms:
            return f"{by_weight} GEMMs by weights, expected {gemms}"
    return None


def count_once(graphs, op):
    """How many nodes of an operator there are, those with the same operands counted once."""
    seen, count = {}, 0
    for g in graphs:
        number = {p.name: ("input", p.name) for p in g.inputs}
        number.update({k: (v.shape, v.tobytes()) for k, v in g.constants.items()})
        for n in g.nodes:
            key = (n.op, str(sorted(n.attrs.items())), tuple(number[i] for i in n.inputs))
            if key not in seen:
                seen[key] = len(seen)
                count += n.op == op
            number[n.outputs[0]] = seen[key]
    return count


def refusals(weft, folder, rs):
    """Heads that cannot be put together, and the message."""
    def one(name="x", dims=("N", 8), dtype="float32"):
        g = Graph(opset=17)
        g.inputs.append(Port(name, dtype, list(dims)))
        g.nodes.append(Node("Abs", [name], ["y"], {}))
        g.outputs.append(Port("y", dtype))
        return g
    for other in (one(dims=("N", 9)), one(dims=("N", 8, 2)), one(dtype="int64"), one(dims=(4, 8))):
        try:
            compile_set(weft, folder, [one(), other])
        except oracle.Failed as e:
            if e.code != 1 or "input \"x\" has another type, size or bounds" not in str(e):
                return f"refused by: {e}"
        else:
            return f"not refused: {other.inputs}"
    # Inputs of their own are inputs of both, with one batch.
    inputs = {"x": rs.randn(3, 8).astype(np.float32), "z": rs.randn(3, 8).astype(np.float32)}
    return check(weft, folder, [one(), one("z")], inputs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.count):
            rs = np.random.RandomState(seed)
            graphs, gemms = make_heads(rs)
            for n, s in SIZES:
                text = check(options.weft, folder, graphs, {"x": rs.uniform(-1, 1, (n, s, WIDTH)).astype(np.float32)}, gemms)
                if text:
                    failures += 1
                    print(f"seed {seed}, {n} x {s}: {text}", flush=True)
                    break
        text = refusals(options.weft, folder, np.random.RandomState(0))
        if text:
            failures += 1
            print(text)
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
