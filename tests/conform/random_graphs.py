#!/usr/bin/env python3
"""Random graphs of fused chains through Weft, compared with onnxruntime (graph optimisations off), or with
Weft's own reference kernels on the graph as it was imported.

Every graph is compiled for both layouts (16 and 8 channels a block), and runs with the vector loops and
oneDNN's code for AVX-512, AVX2 and SSE4.1, as far as this processor has them, with one and two threads, at
two sizes of its symbols. A graph that fails is made smaller as long as it fails the same way, then judged: the fused graph in
reference kernels and the unfused one say whether a kernel, a pass or an operator is wrong.

usage: random_graphs.py WORKER [--seed N] [--count N] [--oracle onnxruntime|reference] [--save DIR] [--only SEED]
"""
import argparse
import collections
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

# The package index is asked before numpy is imported; the reference needs neither.
if "reference" not in sys.argv:
    oracle.need()
try:
    import numpy as np
except ImportError:
    oracle.skip("needs numpy")

from graph_maker import make_graph, make_inputs
from graph_shrink import shrink
from worker import Died, Refused, UNSUPPORTED, Worker

# Tolerances of chains, relative to the output's largest element: f16 is rounded at other places when
# operators are fused.
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2}
# An answer as sensitive to a relative change of all inputs by this is not held against anybody.
NUDGE = {"float64": 1e-13, "float32": 3e-7, "float16": 1e-3}
# Smallest scale of an output: functions of the order of 1 are allowed this absolute error times the
# tolerance.
LEAST_SCALE = 1e-3
SIZES = ({"N": 2, "S": 5, "H": 6}, {"N": 3, "S": 1, "H": 9})


class Unknown(Exception):
    """The oracle has no kernel for an operator of this type."""


class Rejected(Exception):
    """The oracle says that the graph is wrong."""


class Oracle:
    """Expected outputs of a graph."""

    def __init__(self, kind, plain, folder):
        self.kind, self.plain, self.path = kind, plain, os.path.join(folder, "oracle.onnx")

    def answers(self, graph, inputs):
        if self.kind == "reference":
            graph.save(self.path)
            self.plain.compile([self.path], "plain")
            return self.plain.run([inputs[p.name] for p in graph.inputs], driver="null")
        try:
            return oracle.session(graph.encode()).run(None, inputs)
        except Exception as e:  # onnxruntime has no common class of exceptions
            raise (Unknown if "NOT_IMPLEMENTED" in str(e) else Rejected)(f"onnxruntime: {e}") from e


class Config:
    """A way to compile and run: worker, target, threads."""

    def __init__(self, name, worker, target, threads, driver="cpu", pipeline="cpu"):
        self.name, self.worker, self.target, self.threads = name, worker, target, threads
        self.driver, self.pipeline = driver, pipeline

    def outputs(self, path, graph, inputs, compiled=False):
        if not compiled:
            self.worker.compile([path], self.pipeline, self.target)
        return self.worker.run([inputs[p.name] for p in graph.inputs], driver=self.driver, threads=self.threads)


def tolerance_of(graph):
    """The loosest of the types that occur; norms compute in f32 by default."""
    kinds = {a.dtype.name for a in graph.constants.values()} | {p.dtype for p in graph.inputs + graph.outputs}
    if any(n.op == "Cast" and n.attrs.get("to") == 10 for n in graph.nodes):
        kinds.add("float16")
    if any(n.op in ("LayerNormalization", "GroupNormalization") for n in graph.nodes):
        kinds.add("float32")
    return next((k for k in ("float16", "float32", "float64") if k in kinds), "float32")


def difference(got, want, tolerance):
    """oracle.difference with a least scale."""
    if want.dtype.kind != "f":
        return oracle.difference(got, want)
    finite = np.abs(want[np.isfinite(want)])
    return oracle.difference(got, want, tolerance, max(float(finite.max()) if finite.size else 0.0, LEAST_SCALE))


class Fuzzer:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.path = os.path.join(folder, "model.onnx")
        widest, avx2, sse = (Worker(options.worker, {"ONEDNN_MAX_CPU_ISA": isa} if isa else {})
                             for isa in ("", "AVX2", "SSE41"))
        self.workers = (widest, avx2, sse)
        self.configs = [Config("widest, 1 thread", widest, "cpu", 1), Config("widest, 2 threads", widest, "cpu", 2),
                        Config("avx2, 1 thread", avx2, "cpu:avx2", 1), Config("avx2, 2 threads", avx2, "cpu:avx2", 2),
                        Config("sse4.1, 1 thread", sse, "cpu", 1)]
        self.fused = Config("fused graph, reference kernels", widest, "cpu", 1, "null")
        self.plain = Config("unfused graph, reference kernels", widest, "cpu", 1, "null", "plain")
        self.oracle = Oracle(options.oracle, widest, folder)
        self.counts = collections.Counter()
        self.refused = collections.Counter()
        self.rejected = []  # messages with the graph's seed

    def close(self):
        for w in self.workers:
            w.close()

    # -- One graph ----------------------------------------------------------------------------------

    def fault(self, graph, inputs, config, want, compiled=False):
        """(kind, text) of what is wrong with a configuration's answers, or None."""
        try:
            got = config.outputs(self.path, graph, inputs, compiled)
        except Refused as e:
            return ("refused" if e.code == UNSUPPORTED else "error", str(e))
        except Died as e:
            return "died", str(e)
        for p, a, b in zip(graph.outputs, got, want):
            text = difference(a, b, TOLERANCE[tolerance_of(graph)])
            if text:
                return "wrong", f"{p.name}: {text}"
        return None

    def is_sensitive(self, graph, inputs, want):
        """Whether the oracle's own answer moves by about the tolerance when the inputs and weights move by
        about their precision."""
        kind = tolerance_of(graph)
        rng = np.random.RandomState(7)

        def nudge(a):
            if a.dtype.kind != "f" or a.size == 0:
                return a
            return (a * (1 + NUDGE[kind] * rng.uniform(-1, 1, a.shape))).astype(a.dtype)
        other = graph.copy()
        other.constants = {k: nudge(np.asarray(v)) for k, v in graph.constants.items()}
        moved = self.oracle.answers(other, {k: nudge(v) for k, v in inputs.items()})
        return any(a.dtype.kind == "f" and difference(a, b, TOLERANCE[kind] / 5) for a, b in zip(moved, want))

    def check(self, graph, all_inputs, configs):
        """The first (configuration, kind, text, inputs) that is wrong, or None; counts the runs."""
        graph.save(self.path)
        try:
            wants = [(i, self.oracle.answers(graph, i)) for i in all_inputs]
        except (Unknown, Rejected, Refused) as e:
            self.counts[f"{type(e).__name__.lower()} by the oracle"] += 1
            if not isinstance(e, Unknown):
                self.rejected.append(f"seed {self.seed}: {e}")
            return None
        for config in configs:
            compiled = False
            for inputs, want in wants:
                found = self.fault(graph, inputs, config, want, compiled)
                compiled = not found
                self.counts["runs"] += 1
                if found and found[0] == "wrong" and self.is_sensitive(graph, inputs, want):
                    self.counts["too sensitive to tell"] += 1
                    return None
                if found:
                    return config, *found, inputs
        return None

    def try_seed(self, seed):
        """The report of a failure, or None."""
        self.seed = seed
        graph, ranges, symbols = make_graph(seed, ("float", "integer"))
        rng = np.random.RandomState(seed + 1)
        inputs = [make_inputs(graph, ranges, sizes, rng) for sizes in SIZES[:2 if symbols else 1]]
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

        def values(g, i):
            """All values of a graph, by the oracle."""
            every = g.copy()
            every.outputs = [type(g.outputs[0])(o, "float32") for n in g.nodes for o in n.outputs]
            return every, self.oracle.answers(every, i)
        small, small_inputs = shrink(graph, inputs, fails, self.trace)
        small.save(self.path)
        want = self.oracle.answers(small, small_inputs)
        found = self.fault(small, small_inputs, config, want)
        lines = [f"seed {seed}, {config.name}: {kind}: {text}", f"smallest: {found[1] if found else text}", small.text()]
        for other in (self.fused, self.plain):
            result = self.fault(small, small_inputs, other, want)
            lines.append(f"{other.name}: {result[1] if result else 'right'}")
        stem = os.path.join(self.options.save, f"seed{seed}")
        os.makedirs(self.options.save, exist_ok=True)
        small.save(stem + ".onnx")
        np.savez(stem + ".inputs.npz", **small_inputs)
        np.savez(stem + ".outputs.npz", **{p.name: a for p, a in zip(small.outputs, want)})
        return "\n".join(lines)

    def trace(self, graph, inputs):
        """Every inner value of a graph by the oracle, {name: array}; types are found by trying."""
        out = {}
        for node in graph.nodes:
            for name in node.outputs:
                one = graph.copy()
                one.outputs = [type(graph.outputs[0])(name, None)]
                for dtype in ("float32", "float16", "float64", "int64", "int32", "bool", "uint8", "int8"):
                    one.outputs[0].dtype = dtype
                    try:
                        out[name] = self.oracle.answers(one.copy().prune(), {p.name: inputs[p.name]
                                                                            for p in one.copy().prune().inputs})[0]
                        break
                    except (Unknown, Rejected, Refused):
                        continue
        return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=int(os.environ.get("WEFT_GRAPHS", "150")))
    parser.add_argument("--oracle", choices=("onnxruntime", "reference"), default="onnxruntime")
    parser.add_argument("--save", default="random_graphs.failed")
    parser.add_argument("--stop-after", type=int, default=10, help="failures")
    options = parser.parse_args()
    failures, began = 0, time.time()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(options, folder)
        for seed in range(options.seed, options.seed + options.count):
            text = fuzzer.try_seed(seed)
            if text:
                failures += 1
                print(f"{text}\n", flush=True)
                if failures >= options.stop_after:
                    break
        fuzzer.close()
    print(", ".join(f"{v} {k}" for k, v in fuzzer.counts.items()) + f", {failures} failures, {time.time() - began:.0f} s")
    for text in fuzzer.rejected[:5]:
        print(text)
    for text, n in fuzzer.refused.most_common(20):
        print(f"refused {n} times: {text}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
