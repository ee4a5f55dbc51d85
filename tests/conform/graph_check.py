"""Runs graphs through Weft every way and compares with an oracle: onnxruntime with graph optimisations off,
or, if the variable WEFT_ORACLE is "reference", Weft's reference kernels on the graph as it was imported.

Every graph is compiled for both layouts (16 and 8 channels a block) and runs with the vector loops and
oneDNN's code for AVX-512, AVX2 and SSE4.1, as far as this processor has them, with one and two threads.
"""
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

REFERENCE = os.environ.get("WEFT_ORACLE") == "reference"
if not REFERENCE:
    oracle.need()
try:
    import numpy as np
except ImportError:
    oracle.skip("needs numpy")

from graph_narrow import is_bf16, wide, widen
from onnx_file import Node
from worker import Died, Refused, UNSUPPORTED, Worker

# Tolerances of chains, relative to the output's largest element: f16 is rounded at other places when
# operators are fused.
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}
# An answer as sensitive to a relative change of all inputs by this is not held against anybody.
NUDGE = {"float64": 1e-13, "float32": 3e-7, "float16": 1e-3, "bfloat16": 8e-3}
# onnxruntime's approximations of these have an absolute error, not a relative one.
ABSOLUTE = ("Sigmoid", "Tanh", "Erf")
# Smallest scale of an output: functions of the order of 1 are allowed this absolute error times the
# tolerance.
LEAST_SCALE = 1e-3


class Unknown(Exception):
    """The oracle has no kernel for an operator of this type."""


class Rejected(Exception):
    """The oracle says that the graph is wrong."""


class Oracle:
    """Expected outputs of a graph."""

    def __init__(self, plain, folder):
        self.plain, self.path = plain, os.path.join(folder, "oracle.onnx")

    def answers(self, graph, inputs):
        if is_bf16(graph):
            graph, inputs = widen(graph), {k: wide(a) for k, a in inputs.items()}
        if REFERENCE:
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
    """The loosest of the types that occur; norms compute in f32 by default,
    onnxruntime's HardSwish and Gelu have constants of f32."""
    if is_bf16(graph):
        return "bfloat16"
    kinds = {a.dtype.name for a in graph.constants.values()} | {p.dtype for p in graph.inputs + graph.outputs}
    if any(n.op == "Cast" and n.attrs.get("to") in (10, 16) for n in graph.nodes):
        kinds.add("float16")
    if any(n.op == "Cast" and n.attrs.get("to") == 1 for n in graph.nodes):
        kinds.add("float32")
    if any(n.op in ("LayerNormalization", "GroupNormalization", "HardSwish", "Gelu") for n in graph.nodes):
        kinds.add("float32")
    return next((k for k in ("float16", "float32", "float64") if k in kinds), "float32")


def difference(got, want, tolerance):
    """oracle.difference with a least scale."""
    got = wide(got)
    if want.dtype.kind != "f":
        return oracle.difference(got, want)
    finite = np.abs(want[np.isfinite(want)])
    return oracle.difference(got, want, tolerance, max(float(finite.max()) if finite.size else 0.0, LEAST_SCALE))


def nudge_results(graph, by, rng):
    """Moves every float result of a node by about `by`."""
    nodes, outputs = [], {o.name for o in graph.outputs}
    renamed = {}
    for node in graph.nodes:
        node.inputs = [renamed.get(n, n) for n in node.inputs]
        nodes.append(node)
        for i, name in enumerate(node.outputs):
            dtype = graph.dtypes.get(name, "")
            if not dtype.startswith("float"):
                continue
            factor = f"{name}_factor"
            shift, moved, between = f"{name}_shift", f"{name}_moved", f"{name}_between"
            graph.constants[factor] = np.asarray(1 + by * rng.uniform(-1, 1), dtype)
            graph.constants[shift] = np.asarray(by * rng.uniform(-1, 1) * (node.op in ABSOLUTE), dtype)
            source, target = name, moved
            if name in outputs:
                node.outputs[i], source, target = moved, moved, name
            else:
                renamed[name] = moved
            nodes += [Node("Mul", [source, factor], [between]), Node("Add", [between, shift], [target])]
    graph.nodes = nodes


class Checker:
    """Runs graphs every way and compares with the oracle. options: worker, kernels."""

    def __init__(self, worker, folder, count_kernels=False):
        self.count_kernels, self.where = count_kernels, ""
        self.path = os.path.join(folder, "model.onnx")
        widest, avx2, sse = (Worker(worker, {"ONEDNN_MAX_CPU_ISA": isa} if isa else {})
                             for isa in ("", "AVX2", "SSE41"))
        self.workers = (widest, avx2, sse)
        self.configs = [Config("widest, 1 thread", widest, "cpu", 1), Config("widest, 2 threads", widest, "cpu", 2),
                        Config("avx2, 1 thread", avx2, "cpu:avx2", 1), Config("avx2, 2 threads", avx2, "cpu:avx2", 2),
                        Config("sse4.1, 1 thread", sse, "cpu", 1)]
        self.fused = Config("fused graph, reference kernels", widest, "cpu", 1, "null")
        self.plain = Config("unfused graph, reference kernels", widest, "cpu", 1, "null", "plain")
        self.oracle = Oracle(widest, folder)
        self.counts = collections.Counter()
        self.kernels = collections.Counter()
        self.rejected = []  # messages, with what `where` was

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
        """Whether the oracle's own answer moves by about the tolerance when inputs, weights and the results
        of all nodes move by about their precision."""
        kind = tolerance_of(graph)
        if kind == "bfloat16":
            graph, inputs = widen(graph), {k: wide(a) for k, a in inputs.items()}
        rng = np.random.RandomState(7)

        def nudge(a):
            if a.dtype.kind != "f" or a.size == 0:
                return a
            return np.asarray(a * (1 + NUDGE[kind] * rng.uniform(-1, 1, a.shape))).astype(a.dtype)
        other = graph.copy()
        other.constants = {k: nudge(np.asarray(v)) for k, v in graph.constants.items()}
        nudge_results(other, NUDGE[kind], rng)
        moved = self.oracle.answers(other, {k: nudge(v) for k, v in inputs.items()})
        return any(a.dtype.kind == "f" and difference(a, b, TOLERANCE[kind] / 5) for a, b in zip(moved, want))

    def check(self, graph, all_inputs, configs):
        """The first (configuration, kind, text, inputs) that is wrong, or None; counts the runs."""
        graph.save(self.path)
        try:
            wants = [(i, self.oracle.answers(graph, i)) for i in all_inputs]
            if not all(np.isfinite(a).all() for _, w in wants for a in w if a.dtype.kind == "f"):
                raise Unknown("not finite")
        except (Unknown, Rejected, Refused) as e:
            self.counts[f"{type(e).__name__.lower()} by the oracle"] += 1
            if not isinstance(e, Unknown):
                self.rejected.append(f"{self.where}: {e}")
            return None
        for config in configs:
            compiled = False
            for inputs, want in wants:
                found = self.fault(graph, inputs, config, want, compiled)
                compiled = not found
                self.counts["runs"] += 1
                if self.count_kernels and not found:
                    self.kernels.update(k.split()[1] for k in config.worker.kernels())
                if found and found[0] == "wrong" and self.is_sensitive(graph, inputs, want):
                    self.counts["too sensitive to tell"] += 1
                    return None
                if found:
                    return config, *found, inputs
        return None
