#!/usr/bin/env python3
"""Sets of siblings: random graphs (graph_maker.py) whose copies differ in some weights, or have nodes
behind some GEMMs that others have not, compiled together.

The joint programs of `--merge exact` must give each model's own answers bit for bit, those of `--merge auto`
up to rounding, with any of the models absent (batch 0); the models' own programs must not change. With
weights kept as differences (`--deltas near`) the joint programs must give each model's own answers up to
rounding, and these must be those of whole weights.

usage: random_siblings.py WORKER [--seed N] [--count N]
"""
import argparse
import collections
import os
import sys
import tempfile
import time

from graph_check import Checker, Died, LEAST_SCALE, Refused, TOLERANCE, tolerance_of
import numpy as np
import oracle
from graph_maker import make_graph, make_inputs
from onnx_file import Node

# Joint GEMMs add in another order; chains behind them may amplify that.
AUTO_TOLERANCE = {k: v / 5 for k, v in TOLERANCE.items()}


def change(array, how, rng):
    """A sibling's weight."""
    a = np.array(array)
    if a.dtype.kind != "f" or a.size < 8 or how == "same":
        return a
    if how == "few":
        flat = a.reshape(-1)
        flat[rng.randint(a.size, size=3)] += 0.1
        return a
    if how == "rows":
        a[: max(1, len(a) // 8)] *= 0.5
        return a
    if how == "low rank":
        m = a.reshape(len(a), -1)
        m += (0.01 * np.outer(rng.randn(len(m)), rng.randn(m.shape[1]))).astype(a.dtype)
        return a
    return rng.uniform(-0.5, 0.5, size=a.shape).astype(a.dtype)


def adapt(graph, rng):
    """Nodes behind some GEMMs, as adapters have them: what follows is not the GEMM's epilogue any more."""
    for node in list(graph.nodes):
        if node.op not in ("MatMul", "Gemm", "Conv") or node.domain or rng.randint(2):
            continue
        y = node.outputs[0]
        node.outputs = [f"{y}.gemm"]
        at = graph.nodes.index(node) + 1
        graph.nodes[at:at] = [Node("Tanh", [f"{y}.gemm"], [f"{y}.tanh"], {}),
                              Node("Add", [f"{y}.gemm", f"{y}.tanh"], [y], {})]


def siblings(seed):
    """(graphs, inputs of each by size of the batch)."""
    rng = np.random.RandomState(seed + 5)
    graph, ranges, symbols = make_graph(seed)
    graphs = []
    for _ in range(rng.randint(2, 5)):
        g = graph.copy()
        g.constants = {k: change(v, ("same", "same", "same", "few", "rows", "low rank", "other")[rng.randint(7)], rng)
                       for k, v in graph.constants.items()}
        if rng.randint(3) == 0:
            adapt(g, rng)
        graphs.append(g)
    sizes = [{s: {"N": n, "S": 5, "H": 6}[s] for s in symbols} for n in (1, 3)]
    return graphs, [[make_inputs(graph, ranges, s, rng) for s in sizes] for _ in graphs], symbols


class Siblings:
    def __init__(self, worker, folder):
        self.checker, self.folder = Checker(worker, folder), folder
        self.worker = self.checker.workers[0]
        self.counts = collections.Counter()

    def own(self, graphs, inputs):
        """Outputs of each model's own program, [model][size][output]."""
        return [[self.worker.run([i[p.name] for p in g.inputs], f"m{m}", threads=2) for i in inputs[m]]
                for m, g in enumerate(graphs)]

    def compare(self, got, want, exact, kind):
        for a, b in zip(got, want):
            if exact:
                if a.tobytes() != b.tobytes():
                    return oracle.difference(a, b, 0) or "other bits"
            else:
                scale = max(float(np.abs(b[np.isfinite(b)]).max(initial=0)), LEAST_SCALE) if b.dtype.kind == "f" else None
                text = oracle.difference(a, b, AUTO_TOLERANCE[kind], scale)
                if text:
                    return text
        return None

    def joint(self, graphs, inputs, own, name, parts, exact, empty):
        """Runs a joint program with sizes of its own for each model, `empty` (an index) with batch 0."""
        arrays, want = [], []
        for k, part in enumerate(parts):
            m = int(part[1:])
            i = inputs[m][k % 2]
            n_out = len(own[m][0])
            if k == empty:
                arrays += [i[p.name][:0] if p.dims and p.dims[0] == "N" else i[p.name] for p in graphs[m].inputs]
                want += [None] * n_out
            else:
                arrays += [i[p.name] for p in graphs[m].inputs]
                want += own[m][k % 2]
        got = self.worker.run(arrays, name, threads=2)
        self.counts["joint runs"] += 1
        pairs = [(a, b) for a, b in zip(got, want) if b is not None]
        return self.compare([a for a, _ in pairs], [b for _, b in pairs], exact, tolerance_of(graphs[0]))

    def try_seed(self, seed):
        """What is wrong with a set, or None."""
        graphs, inputs, symbols = siblings(seed)
        paths = [os.path.join(self.folder, f"s{m}.onnx") for m in range(len(graphs))]
        for g, path in zip(graphs, paths):
            g.save(path)
        self.counts["sets"] += 1
        try:
            self.worker.compile(paths)
            alone = self.own(graphs, inputs)
            batched = self.worker.batched
            for mode, deltas in (("exact", "off"), ("auto", "off"), ("auto", "near")):
                programs = self.worker.compile(paths, merge=mode, deltas=deltas)
                if not batched <= self.worker.batched:
                    return f"{mode}, deltas {deltas}: {batched - self.worker.batched} not batched any more"
                own = self.own(graphs, inputs)
                if any(self.compare(a, b, deltas == "off", tolerance_of(graphs[0])) for x, y in zip(own, alone) for a, b in zip(x, y)):
                    return f"{mode}, deltas {deltas}: a model's own program changed"
                for name, parts in programs.items():
                    # The last model is absent once, where models have a batch.
                    for empty in (None, len(parts) - 1)[:2 if "N" in symbols else 1]:
                        if not parts:
                            continue
                        text = self.joint(graphs, inputs, own, name, parts, mode == "exact", empty)
                        self.counts["joint programs"] += empty is None
                        if text:
                            return f"{mode}, {name}: {text}"
        except (Refused, Died) as e:
            return f"{type(e).__name__}: {e}"
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    failures, began = 0, time.time()
    with tempfile.TemporaryDirectory() as folder:
        s = Siblings(options.worker, folder)
        for seed in range(options.seed, options.seed + options.count):
            text = s.try_seed(seed)
            if text:
                failures += 1
                print(f"seed {seed}: {text}", flush=True)
        s.checker.close()
    print(", ".join(f"{v} {k}" for k, v in s.counts.items()) + f", {failures} failures, {time.time() - began:.0f} s")
    return 1 if failures or not s.counts["joint programs"] else 0


if __name__ == "__main__":
    sys.exit(main())
