#!/usr/bin/env python3
"""Random graphs of fused chains (graph_maker.py), run every way and compared with an oracle (graph_check.py)
at two sizes of their symbols.

A graph that fails is made smaller as long as it fails the same way, saved, and judged: the fused graph in
reference kernels and the unfused one say whether a kernel, a pass or an operator is wrong. Refusals are
counted and listed.

usage: random_graphs.py WORKER [--seed N] [--count N] [--save DIR] [--stop-after N] [--kernels]
"""
import argparse
import collections
import os
import sys
import tempfile
import time

from graph_check import Checker
import numpy as np
from graph_maker import make_graph, make_inputs
from graph_narrow import is_bf16, narrow, narrow_inputs
from graph_shrink import shrink
from onnx_file import Port

SIZES = ({"N": 2, "S": 5, "H": 6}, {"N": 5, "S": 1, "H": 9})
# A sequence may be empty; a batch is not.
EMPTY = {"N": 2, "S": 0, "H": 5}


def is_batch(graph, symbol):
    """Whether it is the first dimension of an input that is a symbol: a batch has a row at least."""
    return next((d for p in graph.inputs for d in p.dims[:1] if isinstance(d, str)), None) == symbol


class Fuzzer(Checker):
    """Makes graphs from seeds and reports the failures."""

    def __init__(self, options, folder):
        super().__init__(options.worker, folder, options.kernels)
        self.save = options.save
        self.refused = collections.Counter()

    def try_seed(self, seed):
        """The report of a failure, or None."""
        self.where = f"seed {seed}"
        graph, ranges, symbols = make_graph(seed, ("float", "integer"))
        rng = np.random.RandomState(seed + 1)
        empty = "S" in symbols and rng.random_sample() < 0.3 and not is_batch(graph, "S")
        sizes = SIZES[:2 if symbols else 1] + ((EMPTY,) if empty else ())
        inputs = [make_inputs(graph, ranges, s, rng) for s in sizes]
        small = narrow(graph) if graph.opset >= 23 and rng.random_sample() < 0.5 else None
        if small:
            graph, inputs = small, [narrow_inputs(i) for i in inputs]
            self.counts["in bfloat16"] += 1
        found = self.check(graph, inputs, self.configs)
        self.counts["graphs"] += 1
        self.counts["nodes"] += len(graph.nodes)
        if not found:
            return None
        config, kind, text, bad = found
        if kind == "refused":
            self.refused[text] += 1
            self.counts["refused"] += 1
            return None
        return self.report(seed, graph, bad, config, kind, text)

    # -- Failures -------------------------------------------------------------------------------------

    def report(self, seed, graph, inputs, config, kind, text):
        def fails(g, i):
            g.save(self.path)
            want = self.oracle.answers(g, i)
            if not all(np.isfinite(a).all() for a in want if a.dtype.kind == "f"):
                return False
            found = self.fault(g, i, config, want)
            return bool(found) and found[0] == kind and not (kind == "wrong" and self.is_sensitive(g, i, want))

        small, small_inputs = shrink(graph, inputs, fails, self.trace)
        small.save(self.path)
        want = self.oracle.answers(small, small_inputs)
        found = self.fault(small, small_inputs, config, want)
        lines = [f"seed {seed}, {config.name}: {kind}: {text}", f"smallest: {found[1] if found else text}", small.text()]
        for other in (self.fused, self.plain):
            result = self.fault(small, small_inputs, other, want)
            lines.append(f"{other.name}: {result[1] if result else 'right'}")
        stem = os.path.join(self.save, f"seed{seed}")
        os.makedirs(self.save, exist_ok=True)
        small.save(stem + ".onnx")
        np.savez(stem + ".inputs.npz", **small_inputs)
        np.savez(stem + ".outputs.npz", **{p.name: a for p, a in zip(small.outputs, want)})
        return "\n".join(lines)

    def trace(self, graph, inputs):
        """Every inner value of a graph by the oracle, {name: array}."""
        every = graph.copy()
        every.outputs = [Port(o, graph.dtypes[o]) for n in graph.nodes for o in n.outputs]
        values = dict(zip([o.name for o in every.outputs], self.oracle.answers(every, inputs)))
        return narrow_inputs(values) if is_bf16(graph) else values


def run_seeds(kind, options):
    """Tries the seeds that the options name with a fuzzer of this kind, and says what it found. Returns the fuzzer and the
    number of failures."""
    failures, began = 0, time.time()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = kind(options, folder)
        for seed in range(options.seed, options.seed + options.count):
            text = fuzzer.try_seed(seed)
            if text:
                failures += 1
                print(f"{text}\n", flush=True)
                if failures >= options.stop_after:
                    break
        fuzzer.close()
    print(", ".join(f"{v} {k}" for k, v in fuzzer.counts.items()) + f", {failures} failures, {time.time() - began:.0f} s")
    for text, n in fuzzer.refused.most_common(20):
        print(f"refused {n} times: {text}")
    return fuzzer, failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--save", default="random_graphs.failed")
    parser.add_argument("--stop-after", type=int, default=10, help="failures")
    parser.add_argument("--kernels", action="store_true", help="print which kernels ran, and how often")
    options = parser.parse_args()
    fuzzer, failures = run_seeds(Fuzzer, options)
    for kernel, n in fuzzer.kernels.most_common():
        print(f"{n:8} {kernel}")
    for text in fuzzer.rejected[:5]:
        print(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
