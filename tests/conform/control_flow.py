#!/usr/bin/env python3
"""Random programs of If, Loop and Scan, nested, beside onnxruntime.

Graphs read values of every graph around them, and captures of captures; conditions depend on data, trip counts on
inputs; carried values grow; branches give results of different sizes, initialisers, and values of the graph around
them. Each program runs at several sizes, through the CPU driver with all passes, and through the reference kernels
(driver null) without passes.

usage: control_flow.py WORKER [--seed N] [--count N] [--show]
"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from worker import Died, Refused, UNSUPPORTED, Worker

WIDTH = 3
DEPTH = 3
# Kinds of values: [n, WIDTH] with the model's n, [?, WIDTH] of a branch or carried, [WIDTH], one element, and rows that
# were selected: [?, WIDTH], joined and cut, so that their number is computed from what data tells.
RANK = {"n": 2, "d": 2, "v": 1, "s": 0, "u": 2}
DTYPE = TensorProto.FLOAT


class Maker:
    """One program; every name occurs once."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.n_name = 0

    def name(self, stem="t"):
        self.n_name += 1
        return f"{stem}{self.n_name}"

    def pick(self, items):
        return items[self.rng.randint(len(items))]

    def constant(self, g, array, dtype=np.float32):
        name = self.name("c")
        if self.rng.rand() < 0.5:
            g["init"].append(numpy_helper.from_array(np.asarray(array, dtype), name))
        else:
            g["nodes"].append(helper.make_node("Constant", [], [name],
                                               value=numpy_helper.from_array(np.asarray(array, dtype), name)))
        return name

    def node(self, g, op, inputs, n_out=1, **attrs):
        out = [self.name() for _ in range(n_out)]
        g["nodes"].append(helper.make_node(op, inputs, out, **attrs))
        return out[0] if n_out == 1 else out

    # -- Values -----------------------------------------------------------------------------------

    def value(self, g, kind):
        """A value of this kind that the graph can see, made if there is none."""
        seen = [v for v, k in self.visible(g) if k == kind]
        if seen and self.rng.rand() < 0.8:
            return self.pick(seen)
        if kind == "s":
            return self.constant(g, self.rng.randn())
        if kind == "v":
            return self.constant(g, self.rng.randn(WIDTH))
        if kind == "u":
            return self.select(g)
        return self.pick(seen) if seen else self.node(g, "Neg", [self.pick([v for v, k in self.visible(g)
                                                                            if k == "n"])])

    @staticmethod
    def visible(g):
        while g:
            yield from g["values"]
            g = g["parent"]

    def add(self, g, name, kind):
        g["values"].append((name, kind))

    def bounded(self, g, name):
        return self.node(g, "Tanh", [name])

    def condition(self, g, iteration=None):
        """A bool that depends on data."""
        if iteration and self.rng.rand() < 0.4:
            at = self.constant(g, self.rng.randint(0, 4), np.int64)
            return self.node(g, "Less", [iteration, at])
        kind = self.pick(["n", "v", "s"])
        one = self.value(g, kind)
        if kind != "s":
            one = self.node(g, "ReduceSum", [one], keepdims=0)
        return self.node(g, self.pick(["Greater", "Less"]), [one, self.constant(g, 0.3 * self.rng.randn())])

    def select(self, g):
        """Rows of a value: those with a positive first column, joined, or the first of them."""
        how = self.rng.randint(3) if any(k == "u" for _, k in self.visible(g)) else 0
        if how == 0:
            rows = self.value(g, "n")
            first = self.node(g, "Gather", [rows, self.constant(g, 0, np.int64)], axis=1)
            keep = self.node(g, "Greater", [first, self.constant(g, 0.3 * self.rng.randn())])
            name = self.node(g, "Compress", [rows, keep], axis=0)
        elif how == 1:
            name = self.node(g, "Concat", [self.value(g, "u"), self.value(g, self.pick(["u", "n"]))], axis=0)
        else:
            ends = [self.constant(g, [i], np.int64) for i in (0, self.rng.randint(1, 4), 0)]
            name = self.node(g, "Slice", [self.value(g, "u")] + ends)
        self.add(g, name, "u")
        return name

    def simple(self, g):
        op = self.pick(["Add", "Mul", "Sub", "Tanh", "Relu", "Sum", "Concat", "Gemm", "Bool", "Select", "Selected"])
        if op in ("Add", "Mul", "Sub"):
            kind = self.pick(["n", "v"])
            other = self.pick(["n", "v", "s"] if kind == "n" else ["v", "s"])
            self.add(g, self.bounded(g, self.node(g, op, [self.value(g, kind), self.value(g, other)])), kind)
        elif op in ("Tanh", "Relu"):
            kind = self.pick(["n", "v", "s"])
            self.add(g, self.node(g, op, [self.value(g, kind)]), kind)
        elif op == "Sum":
            axes = self.constant(g, [0], np.int64)
            self.add(g, self.bounded(g, self.node(g, "ReduceSum", [self.value(g, "n"), axes], keepdims=0)), "v")
        elif op == "Select":
            self.select(g)
        elif op == "Selected":
            axes = self.constant(g, [0], np.int64)
            rows = self.node(g, "Mul", [self.value(g, "u"), self.value(g, self.pick(["v", "s"]))])
            self.add(g, self.bounded(g, self.node(g, "ReduceSum", [rows, axes], keepdims=0)), "v")
        elif op == "Concat":
            both = [self.value(g, "n"), self.value(g, "n")]
            joined = self.node(g, "Concat", both, axis=0)
            axes = self.constant(g, [0], np.int64)
            self.add(g, self.bounded(g, self.node(g, "ReduceSum", [joined, axes], keepdims=0)), "v")
        elif op == "Gemm":
            weight = self.constant(g, self.rng.randn(WIDTH, WIDTH))
            self.add(g, self.bounded(g, self.node(g, "MatMul", [self.value(g, "n"), weight])), "n")
        else:
            cast = self.node(g, "Cast", [self.condition(g)], to=DTYPE)
            self.add(g, cast, "s")

    # -- Graphs -----------------------------------------------------------------------------------

    def graph(self, parent, depth):
        return {"parent": parent, "depth": depth, "nodes": [], "init": [], "inputs": [], "values": []}

    def fill(self, g, n_nodes):
        for _ in range(n_nodes):
            nested = g["depth"] < DEPTH and self.rng.rand() < 0.35
            (self.pick([self.add_if, self.add_if, self.add_loop, self.add_scan]) if nested else self.simple)(g)

    def output(self, g, kind):
        """A value of `kind` as an output: of the graph, an initialiser of it, or one of the graphs around it."""
        roll = self.rng.rand()
        if kind in ("v", "s") and roll < 0.2:
            name = self.name("c")
            array = self.rng.randn(WIDTH) if kind == "v" else self.rng.randn()
            g["init"].append(numpy_helper.from_array(np.asarray(array, np.float32), name))
            return name
        if kind == "d":
            name = self.value(g, "n")
            times = self.rng.randint(1, 4)
            return self.node(g, "Concat", [name] * times, axis=0) if times > 1 else self.node(g, "Identity", [name])
        op = "Identity" if roll < 0.6 else "Neg"
        return self.node(g, op, [self.value(g, kind)])

    def finish(self, g, name, outputs):
        """outputs: (name, dtype, rank)"""
        ports = [helper.make_tensor_value_info(n, t, [None] * r) for n, t, r in outputs]
        return helper.make_graph(g["nodes"], name, g["inputs"], ports, g["init"])

    def add_if(self, g):
        kinds = [self.pick(["n", "v", "s", "d", "u"]) for _ in range(self.rng.randint(1, 3))]
        condition = self.condition(g, self.pick([v for v, k in self.visible(g) if k == "i"] or [None]))
        branches = []
        for _ in range(2):
            b = self.graph(g, g["depth"] + 1)
            self.fill(b, self.rng.randint(0, 3))
            outs = [(self.output(b, k), DTYPE, RANK[k]) for k in kinds]
            branches.append(self.finish(b, self.name("g"), outs))
        out = self.node(g, "If", [condition], len(kinds), then_branch=branches[0], else_branch=branches[1])
        self.results(g, [out] if len(kinds) == 1 else out, kinds)

    def results(self, g, names, kinds):
        """Values of unknown size become vectors."""
        for name, kind in zip(names, kinds):
            if kind == "d":
                axes = self.constant(g, [0], np.int64)
                name, kind = self.bounded(g, self.node(g, "ReduceSum", [name, axes], keepdims=0)), "v"
            self.add(g, name, kind)

    def input(self, g, stem, dtype, dims, kind):
        name = self.name(stem)
        g["inputs"].append(helper.make_tensor_value_info(name, dtype, dims))
        self.add(g, name, kind)
        return name

    def add_loop(self, g):
        carried = [self.pick(["n", "v", "s", "d", "u"]) for _ in range(self.rng.randint(0, 3))]
        scans = [self.pick(["n", "v", "s"]) for _ in range(self.rng.randint(0 if carried else 1, 3))]
        b = self.graph(g, g["depth"] + 1)
        iteration = self.input(b, "i", TensorProto.INT64, [], "i")
        go = self.input(b, "go", TensorProto.BOOL, [], "b")
        inner = [self.input(b, "x", DTYPE, [None] * RANK[k], k if k != "d" else "D") for k in carried]
        first = [self.value(g, k if k != "d" else "n") for k in carried]
        self.fill(b, self.rng.randint(1, 4))
        how = self.rng.randint(4)
        counted = how != 0 or self.rng.rand() < 0.5
        if how == 0 or not counted:
            at = self.constant(b, self.rng.randint(0, 4), np.int64)
            stop = self.node(b, "Less", [iteration, at])
        elif how == 1:
            stop = self.node(b, "Identity", [go])
        elif how == 2:
            stop = self.constant(b, True, bool)
            stop = self.node(b, "Identity", [stop])
        else:
            stop = self.condition(b, iteration)
        outs = [(stop, TensorProto.BOOL, 0)]
        for name, kind in zip(inner, carried):
            if kind == "d":
                out = self.node(b, "Concat", [name, self.value(b, "n")], axis=0)
            elif self.rng.rand() < 0.3:
                out = self.output(b, kind)
            else:
                out = self.bounded(b, self.node(b, "Add", [name, self.value(b, "s" if kind == "s" else "v")]))
            outs.append((out, DTYPE, RANK[kind]))
        outs += [(self.output(b, k), DTYPE, RANK[k]) for k in scans]
        limit = ""
        if counted:
            limit = self.pick(["trips", self.constant(g, self.rng.randint(-1, 5), np.int64)])
        start = self.pick(["", self.constant(g, self.rng.rand() < 0.85, bool), self.condition(g)])
        body = self.finish(b, self.name("g"), outs)
        n = len(carried) + len(scans)
        out = self.node(g, "Loop", [limit, start] + first, n, body=body)
        self.take_stacked(g, [out] if n == 1 else out, carried, scans)

    def take_stacked(self, g, names, carried, scans):
        """Sums over the rounds of stacked results: an output of no rounds has sizes that onnxruntime chooses."""
        self.results(g, names[:len(carried)], carried)
        for name, kind in zip(names[len(carried):], scans):
            total = self.node(g, "ReduceSum", [name], keepdims=0)
            self.add(g, self.bounded(g, total), "s")

    def add_scan(self, g):
        states = [self.pick(["v", "s", "n"]) for _ in range(self.rng.randint(0, 3))]
        axes = [self.rng.randint(0, 2) for _ in range(1)]
        scans = [self.pick(["v", "s"]) for _ in range(self.rng.randint(0 if states else 1, 3))]
        b = self.graph(g, g["depth"] + 1)
        inner = [self.input(b, "x", DTYPE, [None] * RANK[k], k) for k in states]
        first = [self.value(g, k) for k in states]
        over = self.value(g, "n")
        along = self.pick([0, -2]) if axes[0] == 0 else self.pick([1, -1])
        part = self.input(b, "p", DTYPE, [None], "v" if axes[0] == 0 else "column")
        if axes[0] == 1:
            self.add(b, self.bounded(b, self.node(b, "ReduceSum", [part], keepdims=0)), "s")
        self.fill(b, self.rng.randint(0, 3))
        outs = []
        for name, kind in zip(inner, states):
            more = self.value(b, "s" if kind == "s" else "v")
            outs.append((self.bounded(b, self.node(b, "Add", [name, more])), DTYPE, RANK[kind]))
        outs += [(self.output(b, k), DTYPE, RANK[k]) for k in scans]
        attrs = {"num_scan_inputs": 1, "scan_input_axes": [along]}
        if self.rng.rand() < 0.5:
            attrs["scan_input_directions"] = [self.rng.randint(2)]
        if scans and self.rng.rand() < 0.7:
            attrs["scan_output_directions"] = [self.rng.randint(2) for _ in scans]
            attrs["scan_output_axes"] = [self.rng.randint(-RANK[k] - 1, RANK[k] + 1) for k in scans]
        body = self.finish(b, self.name("g"), outs)
        n = len(states) + len(scans)
        out = self.node(g, "Scan", first + [over], n, body=body, **attrs)
        out = [out] if n == 1 else out
        self.results(g, out[:len(states)], states)
        for name, kind in zip(out[len(states):], scans):
            weights = self.node(g, "CumSum", [name, self.constant(g, 0, np.int64)])  # order matters
            total = self.node(g, "ReduceSum", [weights], keepdims=0)
            self.add(g, self.bounded(g, total), "s")

    def model(self):
        g = self.graph(None, 0)
        g["inputs"] = [helper.make_tensor_value_info("x", DTYPE, ["n", WIDTH]),
                       helper.make_tensor_value_info("v", DTYPE, [WIDTH]),
                       helper.make_tensor_value_info("trips", TensorProto.INT64, [])]
        g["values"] = [("x", "n"), ("v", "v")]
        self.fill(g, 2)
        self.pick([self.add_if, self.add_loop, self.add_scan])(g)
        self.fill(g, self.rng.randint(0, 3))
        outs = [(n, DTYPE, RANK[k]) for n, k in g["values"][2:] if k in RANK][-4:]
        m = helper.make_model(self.finish(g, "g", outs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return m


def differ(names, got, want):
    """Sums may cancel: errors count beside a scale of at least 0.05."""
    for name, a, b in zip(names, got, want):
        finite = np.abs(b[np.isfinite(b)])
        text = oracle.difference(a, b, scale=max(0.05, finite.max() if finite.size else 0))
        if text:
            return f"{name}: {text}"
    return None


def is_sensitive(session, names, inputs, want):
    """Whether onnxruntime's own answer moves by more than the tolerance when the inputs move by their precision."""
    rng = np.random.RandomState(1)
    moved = {k: (a * (1 + 2e-7 * rng.uniform(-1, 1, a.shape))).astype(a.dtype) if a.dtype.kind == "f" else a for k, a in inputs.items()}
    return differ(names, session.run(None, moved), want) is not None


class Checker:
    def __init__(self, worker, folder):
        self.path = os.path.join(folder, "m.onnx")
        self.worker = worker
        self.counts = {"programs": 0, "runs": 0, "refused": 0}
        self.refusals = {}

    def check(self, seed):
        """A report of what is wrong, or None."""
        model = Maker(seed).model()
        data = model.SerializeToString()
        rng = np.random.RandomState(seed)
        try:
            session = oracle.session(data)
        except Exception as e:
            return f"onnxruntime rejects it: {e}"
        with open(self.path, "wb") as f:
            f.write(data)
        self.counts["programs"] += 1
        names = [o.name for o in session.get_outputs()]
        runs = []
        for n in (2, 5, 2, 1):
            inputs = {"x": rng.randn(n, WIDTH).astype(np.float32), "v": rng.randn(WIDTH).astype(np.float32),
                      "trips": np.array(rng.randint(-1, 4), np.int64)}
            runs.append((inputs, session.run(None, inputs)))
        for pipeline, driver in (("cpu", "cpu"), ("plain", "null")):
            try:
                self.worker.compile([self.path], pipeline)
            except Refused as e:
                if e.code != UNSUPPORTED:
                    return f"{pipeline}: does not compile: {e}"
                self.counts["refused"] += 1
                self.refusals[str(e)] = self.refusals.get(str(e), 0) + 1
                return None
            except Died as e:
                return f"{pipeline}: compiler: {e}"
            for inputs, want in runs:
                self.counts["runs"] += 1
                try:
                    got = self.worker.run(list(inputs.values()), driver=driver)
                except (Refused, Died) as e:
                    return f"{driver}, n {len(inputs['x'])}: {e}"
                text = differ(names, got, want)
                if text and not is_sensitive(session, names, inputs, want):
                    return f"{driver}, n {len(inputs['x'])}, trips {inputs['trips']}: {text}"
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("WEFT_SEED", 1)))
    parser.add_argument("--count", type=int, default=int(os.environ.get("WEFT_PROGRAMS", 150)))
    parser.add_argument("--show", action="store_true", help="print the first failing program and stop")
    o = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(o.worker)
        checker = Checker(worker, folder)
        for seed in range(o.seed, o.seed + o.count):
            text = checker.check(seed)
            if not text:
                continue
            bad += 1
            print(f"seed {seed}: {text}")
            if o.show:
                print(onnx.printer.to_text(Maker(seed).model()))
                break
        worker.close()
    for text, n in sorted(checker.refusals.items(), key=lambda r: -r[1])[:10]:
        print(f"refused {n}: {text}")
    print(", ".join(f"{n} {what}" for what, n in checker.counts.items()) + f", {bad} wrong")
    too_many = checker.counts["refused"] > 0.1 * checker.counts["programs"]
    if too_many:
        print("more than one of ten programs is refused")
    return 1 if bad or too_many else 0


if __name__ == "__main__":
    sys.exit(main())
