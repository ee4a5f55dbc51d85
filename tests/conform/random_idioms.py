#!/usr/bin/env python3
"""Graphs as exporters write them (idiom_parts.py), and the same nearly (graph_mutate.py): a pass that recognises
something in one that is not it gives a wrong answer. Each runs beside onnxruntime at up to three sizes of its symbols.
A graph that onnxruntime refuses at every size is left out; refusals of Weft are counted.

usage: random_idioms.py WORKER [--seed N] [--count N] [--save DIR] [--stop-after N] [--mutations N]
"""
import argparse
import sys

from graph_check import Rejected, Unknown
import graph_maker
import numpy as np
from graph_mutate import mutate
from idiom_parts import make_graph
from onnx_file import Port
from random_graphs import Fuzzer, run_seeds

SIZES = ({"N": 2, "S": 5, "H": 6}, {"N": 1, "S": 1, "H": 9}, {"N": 3, "S": 8, "H": 4})


def make_inputs(graph, sizes, rng):
    out = {}
    for p in graph.inputs:
        shape = [sizes[d] if isinstance(d, str) else d for d in p.dims]
        if p.dtype == "float32":
            out[p.name] = np.asarray(np.round(rng.uniform(-2, 2, shape) * 64) / 64).astype(np.float32)
        else:
            out[p.name] = rng.randint(0, 2, shape).astype(p.dtype)
            out[p.name][..., :1] = 1
    return out


def is_defined(node, values):
    """Not: a cast of what no integer holds, a window that does not fit into its operand."""
    x = values.get(node.inputs[0]) if node.inputs else None
    if node.op == "Cast" and node.attrs["to"] in (6, 7):
        return x is None or bool(np.all(np.abs(x.astype(np.float64)) < 2 ** 31))
    if node.op in ("MaxPool", "AveragePool"):
        pads = node.attrs.get("pads", [0] * 4)
        return x is None or all(d + a + b >= k for d, a, b, k in zip(x.shape[2:], pads[:2], pads[2:], node.attrs["kernel_shape"]))
    return True


class Idioms(Fuzzer):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.mutations, self.chains = options.mutations, options.chains
        self.configs = [self.configs[0], self.configs[3]]

    def infer(self, graph, inputs):
        """Element types of all values, by the oracle; None: it refuses the graph at these inputs."""
        every = graph.copy()
        every.outputs = [Port(o, None) for n in graph.nodes for o in n.outputs]
        try:
            values = self.oracle.answers(every, inputs)
        except (Rejected, Unknown):
            return None
        if any(v.size > 100000 or v.ndim > 7 for v in values):
            return None
        values = dict(zip([o.name for o in every.outputs], values)) | inputs
        if not all(is_defined(n, values) for n in graph.nodes):
            return None
        return {k: v.dtype.name for k, v in values.items()}

    def make(self, seed, rs):
        """A graph of idioms, or of fused chains; a function that makes its inputs from (graph, sizes, rng)."""
        if rs.random_sample() < self.chains:
            graph, ranges, _ = graph_maker.make_graph(seed, ("float", "integer"))
            return graph, lambda g, sizes, rng: graph_maker.make_inputs(g, ranges, sizes, rng)
        return make_graph(rs), make_inputs

    def try_seed(self, seed):
        self.where = f"seed {seed}"
        rs = np.random.RandomState(seed)
        graph, inputs_of = self.make(seed, rs)
        graph = mutate(graph, rs, int(rs.randint(self.mutations + 1))).prune()
        if not graph.nodes or not graph.inputs:
            return None
        symbols = {d for p in graph.inputs for d in p.dims if isinstance(d, str)}
        made = graph.copy()
        made.inputs = [p for p in graph.inputs if p.name not in graph.given]
        rng, fit = np.random.RandomState(seed + 1), []
        for sizes in SIZES[:3 if symbols else 1]:
            inputs = graph.given | inputs_of(made, sizes, rng)
            dtypes = self.infer(graph, inputs)
            if dtypes:
                graph.dtypes = dtypes
                fit.append(inputs)
        self.counts["graphs"] += 1
        if not fit:
            self.counts["rejected"] += 1
            return None
        graph.outputs = [Port(o.name, graph.dtypes.get(o.name, "float32")) for o in graph.outputs]
        found = self.check(graph, fit, self.configs)
        if not found:
            return None
        config, kind, text, bad = found
        if kind in ("refused", "error"):
            self.refused[text] += 1
            self.counts["refused"] += 1
            return None
        return self.report(seed, graph, bad, config, kind, text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--mutations", type=int, default=3, help="the most changes of a graph")
    parser.add_argument("--chains", type=float, default=0.3, help="share of graphs of graph_maker.py")
    parser.add_argument("--save", default="random_idioms.failed")
    parser.add_argument("--stop-after", type=int, default=10, help="failures")
    options = parser.parse_args()
    options.kernels = False
    fuzzer, failures = run_seeds(Idioms, options)
    return 1 if failures or not fuzzer.counts["runs"] else 0


if __name__ == "__main__":
    sys.exit(main())
