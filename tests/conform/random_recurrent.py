#!/usr/bin/env python3
"""Random recurrent layers (LSTM, GRU, RNN) run every way (graph_check.py): directions, initial states,
peepholes, lengths, clipping, activations, layouts, and sizes on both sides of those that kernels distinguish.

usage: random_recurrent.py WORKER [--count N] [--seed N]
"""
import argparse
import sys
import tempfile

from graph_check import Checker, REFERENCE
import numpy as np
from onnx_file import Graph, Node, Port

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# How many activations a direction has.
ACTIVATIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
NAMES = ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "LeakyRelu", "Elu", "Softsign", "ScaledTanh", "Affine")
SIZES = (1, 2, 3, 7, 8, 16, 19, 32, 33, 48, 64, 80)
BATCHES = (1, 1, 1, 2, 3, 5, 8, 9, 16, 17)


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def maybe(self, share):
        return self.rng.uniform() < share

    def floats(self, *shape, scale=1.0):
        return self.rng.uniform(-scale, scale, size=shape).astype(np.float32)

    def operand(self, graph, inputs, name, value, weight):
        """A weight or an input of the model."""
        if weight:
            graph.constants[name] = value
        else:
            graph.inputs.append(Port(name, value.dtype.name, list(value.shape)))
            inputs[name] = value
        return name

    def activations(self, kind, n_dir):
        n = ACTIVATIONS[kind] * n_dir
        names = [str(self.rng.choice(NAMES)) for _ in range(n)]
        alpha = {"HardSigmoid": 0.25, "LeakyRelu": 0.1, "Elu": 0.8, "ScaledTanh": 0.7, "Affine": 0.4}
        beta = {"HardSigmoid": 0.45, "ScaledTanh": 1.2, "Affine": 0.1}
        return {"activations": names, "activation_alpha": [float(alpha[k]) for k in names if k in alpha],
                "activation_beta": [float(beta[k]) for k in names if k in beta]}

    def attributes(self, kind, h):
        n_dir = 1 + self.maybe(0.35)
        attrs = {"hidden_size": h}
        if n_dir == 2:
            attrs["direction"] = "bidirectional"
        elif self.maybe(0.3):
            attrs["direction"] = "reverse"
        if self.maybe(0.15):
            attrs["clip"] = float(self.rng.uniform(0.3, 1))
        if self.maybe(0.2):
            attrs.update({k: v for k, v in self.activations(kind, n_dir).items() if v})
        if kind == "GRU" and self.maybe(0.5):
            attrs["linear_before_reset"] = 1
        if kind == "LSTM" and self.maybe(0.1):
            attrs["input_forget"] = 1
        # onnxruntime has no kernel for the other layout.
        if REFERENCE and self.maybe(0.3):
            attrs["layout"] = 1
        return attrs, n_dir

    def make(self):
        rng, kind = self.rng, str(self.rng.choice(list(GATES)))
        t, n = int(rng.randint(1, 9)), int(rng.choice(BATCHES))
        i, h = int(rng.choice(SIZES)), int(rng.choice(SIZES))
        attrs, d = self.attributes(kind, h)
        first = attrs.get("layout", 0) == 1
        g, inputs = Graph(), {}
        rows, scale = GATES[kind] * h, 1 / np.sqrt(h)
        names = [self.operand(g, inputs, "x", self.floats(*((n, t, i) if first else (t, n, i))), False),
                 self.operand(g, inputs, "w", self.floats(d, rows, i, scale=1 / np.sqrt(i)), self.maybe(0.95)),
                 self.operand(g, inputs, "r", self.floats(d, rows, h, scale=scale), self.maybe(0.95))]
        state = (n, d, h) if first else (d, n, h)
        names.append(self.operand(g, inputs, "b", self.floats(d, 2 * rows), self.maybe(0.9))
                     if self.maybe(0.8) else "")
        lengths = rng.randint(0, t + 1, size=n).astype(np.int32)
        if self.maybe(0.3):
            lengths[:] = t
        names.append(self.operand(g, inputs, "lens", lengths, self.maybe(0.2)) if self.maybe(0.3) else "")
        names.append(self.operand(g, inputs, "h0", self.floats(*state), self.maybe(0.2)) if self.maybe(0.5) else "")
        if kind == "LSTM":
            names.append(self.operand(g, inputs, "c0", self.floats(*state), self.maybe(0.2))
                         if self.maybe(0.5) else "")
            names.append(self.operand(g, inputs, "p", self.floats(d, 3 * h), True) if self.maybe(0.25) else "")
        results = ["y", "h", "c"] if kind == "LSTM" else ["y", "h"]
        kept = [r if self.maybe(0.7) else "" for r in results]
        if not any(kept):
            kept[0] = "y"
        while not kept[-1]:
            kept.pop()
        while not names[-1]:
            names.pop()
        g.nodes.append(Node(kind, names, kept, attrs))
        g.outputs = [Port(r, "float32") for r in kept if r]
        return g, inputs, f"{kind} steps {t} batch {n} in {i} hidden {h} {attrs} operands {names} results {kept}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worker")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(options.worker, folder, count_kernels=True)
        for k in range(options.count):
            g, inputs, text = Maker(np.random.RandomState((options.seed * 100003 + k) % 2**32)).make()
            checker.where = f"{k}: {text}"
            found = checker.check(g, [inputs], checker.configs)
            if found:
                wrong += 1
                print(f"{checker.where}: {found[0].name}: {found[1]}: {found[2]}")
        checker.close()
    for text in checker.rejected:
        print(text)
    print(", ".join(f"{v} {k}" for k, v in sorted(checker.kernels.items())))
    print(f"{options.count} layers, {dict(checker.counts)}, {wrong} wrong")
    return 1 if wrong or checker.rejected or checker.counts["runs"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
