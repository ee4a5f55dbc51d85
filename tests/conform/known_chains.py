#!/usr/bin/env python3
"""Chains of element-wise steps that have been computed wrong, after every kind of product, convolution and
normalisation, as whole models, run every way (graph_check.py).

oneDNN 2.6 generates one code for an algorithm of element-wise post-ops, so that two of one kind got the
parameters of the first.

usage: known_chains.py WORKER
"""
import sys
import tempfile

from graph_check import Checker
import numpy as np
from onnx_file import Graph, Node, Port

# Steps: (operator, constants before the value, constants after it, attributes); "x": the head's result again,
# "r": an operand of the result's shape.
CHAINS = {
    "y * std + mean": [("Mul", [], [1.7], {}), ("Add", [], [0.6], {})],
    "mean + std * y": [("Mul", [1.7], [], {}), ("Add", [0.6], [], {})],
    "2 sigmoid - 1": [("Sigmoid", [], [], {}), ("Mul", [], [2.0], {}), ("Sub", [], [1.0], {})],
    "30 tanh(x / 30)": [("Div", [], [30.0], {}), ("Tanh", [], [], {}), ("Mul", [], [30.0], {})],
    "(tanh + 1) / 2 * 255": [("Tanh", [], [], {}), ("Add", [], [1.0], {}), ("Div", [], [2.0], {}),
                             ("Mul", [], [255.0], {})],
    "hard sigmoid, spelt out": [("Add", [], [3.0], {}), ("Clip", [], [0.0, 6.0], {}), ("Div", [], [6.0], {})],
    "hard swish, spelt out": [("Add", [], [3.0], {}), ("Clip", [], [0.0, 6.0], {}), ("Div", [], [6.0], {}),
                              ("Mul", ["x"], [], {})],
    "two clips": [("Clip", [], [-1.0, 1.5], {}), ("Clip", [], [0.25, 6.0], {})],
    "two relu6": [("Clip", [], [0.0, 6.0], {}), ("Sub", [], [1.0], {}), ("Clip", [], [0.0, 6.0], {})],
    "prelu": [("PRelu", [], ["r"], {})],
    "prelu of one slope, residual": [("PRelu", [], [-0.3], {}), ("Add", [], ["r"], {})],
    "two leaky relus": [("LeakyRelu", [], [], {"alpha": 0.1}), ("LeakyRelu", [], [], {"alpha": 0.3})],
    "leaky relu, residual, relu": [("LeakyRelu", [], [], {"alpha": 0.1}), ("Add", [], ["r"], {}),
                                   ("Relu", [], [], {})],
    "relu, linear, leaky relu": [("Relu", [], [], {}), ("Mul", [], [0.5], {}), ("Sub", [], [0.2], {}),
                                 ("LeakyRelu", [], [], {"alpha": 0.2})],
    "two elus": [("Elu", [], [], {"alpha": 1.0}), ("Sub", [], [0.25], {}), ("Elu", [], [], {"alpha": 0.5})],
    "two hard sigmoids": [("HardSigmoid", [], [], {"alpha": 0.2, "beta": 0.5}), ("Mul", [], ["r"], {}),
                          ("HardSigmoid", [], [], {"alpha": 0.3, "beta": 0.1})],
    "1 - sigmoid, scaled": [("Sigmoid", [], [], {}), ("Sub", [1.0], [], {}), ("Mul", [], [0.5], {})],
    "residual twice": [("Add", [], ["r"], {}), ("Mul", [], [1.3], {}), ("Add", [], ["r"], {}),
                       ("Mul", [], [0.7], {})],
    "linear around a residual": [("Mul", [], [1.7], {}), ("Add", [], ["r"], {}), ("Mul", [], [0.3], {}),
                                 ("Add", [], [0.6], {})],
}


def head(kind, rng):
    """(inputs, nodes whose last result is "a", constants, dims of "a")."""
    def weight(*shape):
        return rng.uniform(-0.4, 0.4, size=shape).astype(np.float32)
    if kind in ("matmul", "gemm", "batched matmul"):
        x = {"matmul": [4, 6, 16], "gemm": [5, 16], "batched matmul": [2, 3, 7, 16]}[kind]
        if kind == "batched matmul":
            nodes = [Node("Transpose", ["x"], ["t"], {"perm": [0, 1, 3, 2]}), Node("MatMul", ["x", "t"], ["a"])]
            return x, nodes, {}, [2, 3, 7, 7]
        if kind == "gemm":
            return x, [Node("Gemm", ["x", "w", "b"], ["a"], {"transB": 1, "alpha": 0.5})], \
                {"w": weight(24, 16), "b": weight(24)}, [5, 24]
        return x, [Node("MatMul", ["x", "w"], ["a"])], {"w": weight(16, 24)}, [4, 6, 24]
    rank = {"conv1d": 1, "conv3d": 3}.get(kind, 2)
    c = 3 if kind == "conv, few channels" else 32
    out = 7 if kind == "conv, few channels" else 32
    x = [2, c] + [6] * rank
    pads = {"pads": [1] * 2 * rank}
    if kind == "layer norm":
        return x, [Node("LayerNormalization", ["x", "w", "b"], ["a"], {"axis": -1})], {"w": weight(6), "b": weight(6)}, x
    if kind == "batch norm":
        return x, [Node("BatchNormalization", ["x", "w", "b", "m", "v"], ["a"])], \
            {"w": weight(c), "b": weight(c), "m": weight(c), "v": np.abs(weight(c)) + 0.5}, x
    if kind == "transposed conv":
        return x, [Node("ConvTranspose", ["x", "w"], ["a"], pads)], {"w": weight(c, out, 3, 3)}, [2, out, 6, 6]
    group = {"depthwise": c, "grouped": 4}.get(kind, 1)
    size = 1 if kind == "conv 1x1" else 3
    attrs = dict(pads if size == 3 else {}, group=group)
    return x, [Node("Conv", ["x", "w", "b"], ["a"], attrs)], \
        {"w": weight(out, c // group, *[size] * rank), "b": weight(out)}, [2, out] + [6] * rank


HEADS = ("matmul", "gemm", "batched matmul", "conv", "conv, few channels", "conv 1x1", "conv1d", "conv3d", "depthwise",
         "grouped", "transposed conv", "batch norm", "layer norm")


def make(kind, steps, rng):
    dims, nodes, constants, result = head(kind, rng)
    g = Graph(inputs=[Port("x", "float32", dims)], nodes=list(nodes), constants=dict(constants))
    last = "a"

    def argument(value):
        if value == "x":
            return "a"
        if value == "r":
            if len(g.inputs) == 1:
                g.inputs.append(Port("r", "float32", result))
            return "r"
        name = f"c{len(g.constants)}"
        g.constants[name] = np.float32(value)
        return name
    for i, (op, before, after, attrs) in enumerate(steps):
        names = [argument(v) for v in before] + [last] + [argument(v) for v in after]
        last = f"s{i}"
        g.nodes.append(Node(op, names, [last], attrs))
    g.outputs.append(Port(last, "float32"))
    return g


def main(worker):
    rng, wrong = np.random.RandomState(5), 0
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(worker, folder)
        for kind in HEADS:
            for name, steps in CHAINS.items():
                g = make(kind, steps, rng)
                inputs = {p.name: rng.uniform(-3, 3, size=p.dims).astype(np.float32) for p in g.inputs}
                checker.where = f"{kind}, {name}"
                found = checker.check(g, [inputs], checker.configs)
                if found:
                    wrong += 1
                    print(f"{checker.where}: {found[0].name}: {found[1]}: {found[2]}")
        checker.close()
    for text in checker.rejected:
        print(text)
    n = len(HEADS) * len(CHAINS)
    print(f"{n} models, {checker.counts['runs']} runs, {wrong} wrong")
    # Every model must have been compared.
    return 1 if wrong or checker.counts["runs"] != n * len(checker.configs) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
