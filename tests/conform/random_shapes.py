#!/usr/bin/env python3
"""Random arithmetic on sizes, as exporters write it: dims of tensors are read, added, halved, negated, compared, put together
and used to reshape, slice, expand, tile, pad, fill and count. Each model has symbolic dims and runs at several sizes beside
onnxruntime, with one and two threads. A model or a size that is refused is counted, a wrong answer or a crash fails.

usage: random_shapes.py WORKER [--seed N] [--count N] [--save DIR]
"""
import argparse
import collections
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

from onnx_file import Graph, Node, Port
from worker import Died, Refused, Worker

# Sizes of the symbols, one run each. A batch (N) is not empty.
RUNS = ({"N": 2, "S": 5, "T": 7}, {"N": 1, "S": 1, "T": 4}, {"N": 3, "S": 8, "T": 3}, {"N": 2, "S": 0, "T": 6}, {"N": 1, "S": 16, "T": 16})
LARGEST = 4000
# Once wrong: a Reshape by a size that is 0 copies the dim of its operand.
KNOWN = (91000316,)
I64 = np.int64


class Maker:
    """tensors: [(name, shape in each run)]; sizes: [(name of an i64[1], value in each run)]."""

    def __init__(self, rs):
        self.rs, self.count = rs, 0
        self.graph = Graph(opset=int(rs.choice([13, 17, 21])), ir=8)
        self.tensors, self.sizes = [], []
        starts = (("N", "S", 4), ("N", "T"), ("S",))[:rs.randint(1, 4)]
        for dims in starts + ((("N", 3, "S", "T"),) if self.chance(0.3) else ()):
            if self.chance(0.3):
                dims = dims + (self.pick((1, 3, "T")),)
            name = self.name("x")
            self.graph.inputs.append(Port(name, "float32", list(dims)))
            self.tensors.append((name, [tuple(run.get(d, d) for d in dims) for run in RUNS]))
        self.given = {}  # sizes that are inputs: only running tells them
        if self.chance(0.4):
            name = self.name("k")
            self.given[name] = [int(v) for v in rs.randint(0, 6, len(RUNS))]
            self.graph.inputs.append(Port(name, "int64", [1]))
            self.sizes.append((name, self.given[name]))

    # -- Choices and nodes -----------------------------------------------------------------------------

    def chance(self, p):
        return self.rs.random_sample() < p

    def pick(self, items):
        items = list(items)
        return items[self.rs.randint(len(items))]

    def late(self, items):
        return items[-1 - min(int(self.rs.exponential(2)), len(items) - 1)]

    def name(self, head):
        self.count += 1
        return f"{head}{self.count}"

    def constant(self, value, dtype=I64):
        name = self.name("c")
        self.graph.constants[name] = np.asarray(value, dtype)
        return name

    def node(self, op, inputs, attrs=None):
        name = self.name("v")
        self.graph.nodes.append(Node(op, list(inputs), [name, name + "_at"] if op == "TopK" else [name], attrs or {}))
        return name

    def tensor(self, op, inputs, shapes, attrs=None):
        if max(math.prod(s) for s in shapes) > LARGEST or max(map(len, shapes)) > 5:
            return False
        self.tensors.append((self.node(op, inputs, attrs), shapes))
        return True

    # -- Sizes -------------------------------------------------------------------------------------------

    def read(self):
        """A dim of a tensor, in one of the ways of exporters."""
        t, shapes = self.late(self.tensors)
        if not shapes[0]:
            return False
        a = self.rs.randint(len(shapes[0]))
        shape = self.node("Shape", [t])
        how = self.rs.randint(3)
        if how == 0:
            s = self.node("Gather", [shape, self.constant(a)], {"axis": 0})
            s = self.node("Unsqueeze", [s, self.constant([0])])
        elif how == 1:
            s = self.node("Slice", [shape, self.constant([a]), self.constant([a + 1]), self.constant([0])])
        else:
            s = self.node("Gather", [shape, self.constant([a])], {"axis": 0})
        self.sizes.append((s, [d[a] for d in shapes]))
        return True

    def arithmetic(self):
        if not self.sizes:
            return self.read()
        a, x = self.late(self.sizes)
        if self.chance(0.5) and len(self.sizes) > 1:
            b, y = self.late(self.sizes)
        else:
            k = int(self.pick((1, 2, 3, 4, -1)))
            b, y = self.constant([k]), [k] * len(RUNS)
        op = self.pick(("Add", "Sub", "Mul", "Div", "Neg", "Min", "Max", "half", "Mod", "narrow", "where"))
        if op == "narrow":
            n = self.node("Add", [self.node("Cast", [a], {"to": 6}), self.constant([1], np.int32)])
            s, z = self.node("Cast", [n], {"to": 7}), [v + 1 for v in x]
        elif op == "where":  # of two sizes by a comparison
            test = self.node("Greater", [a, b])
            s, z = self.node("Where", [test, a, b]), [max(v, w) for v, w in zip(x, y)]
        elif op == "Neg":
            s, z = self.node(op, [a]), [-v for v in x]
        elif op == "half":  # through floats, as of scale factors
            f = self.node("Mul", [self.node("Cast", [a], {"to": 1}), self.constant(0.5, np.float32)])
            s, z = self.node("Cast", [self.node("Floor", [f])], {"to": 7}), [v // 2 for v in x]
        elif op in ("Div", "Mod"):
            if min(y) <= 0 or min(x) < 0:
                return False
            s, z = self.node(op, [a, b]), [v // w if op == "Div" else v % w for v, w in zip(x, y)]
        else:
            f = {"Add": lambda v, w: v + w, "Sub": lambda v, w: v - w, "Mul": lambda v, w: v * w, "Min": min, "Max": max}[op]
            s, z = self.node(op, [a, b]), [f(v, w) for v, w in zip(x, y)]
        if max(map(abs, z)) > 200:
            return False
        self.sizes.append((s, z))
        return True

    def elements(self):
        """Number of elements, of all dims or of some."""
        t, shapes = self.late(self.tensors)
        skip = self.rs.randint(2)
        if len(shapes[0]) <= skip or max(math.prod(s[skip:]) for s in shapes) > 200:
            return False
        shape = self.node("Shape", [t])
        if skip:
            shape = self.node("Slice", [shape, self.constant([1]), self.constant([9])])
        self.sizes.append((self.node("ReduceProd", [shape], {"keepdims": 1}), [math.prod(d[skip:]) for d in shapes]))
        return True

    def size(self, low, high, p=0.75):
        """(name, values) of a size within the bounds in every run; a constant if there is none."""
        fit = [s for s in self.sizes if all(lo <= v <= hi for v, lo, hi in zip(s[1], low, high))]
        if fit and self.chance(p):
            return self.late(fit)
        lo, hi = max(low), min(high)
        if lo > hi:
            return None
        k = int(self.rs.randint(lo, min(hi, lo + 4) + 1))
        return self.constant([k]), [k] * len(RUNS)

    # -- Tensors -----------------------------------------------------------------------------------------

    def reshape(self):
        """Neighbours are merged, or a dim of 1 is put in; each entry is a size, 0 or once -1."""
        t, shapes = self.late(self.tensors)
        rank = len(shapes[0])
        if rank == 0 or (rank < 2 and self.chance(0.5)):
            return False
        parts, free = [[a] for a in range(rank)], True
        if rank > 1 and self.chance(0.7):
            at = self.rs.randint(rank - 1)
            parts[at:at + 2] = [[at, at + 1]]
        elif rank < 4:
            parts.insert(self.rs.randint(rank + 1), [])
        out, entries = [], []
        for i, part in enumerate(parts):
            dims = [math.prod(s[a] for a in part) for s in shapes]
            out.append(dims)
            known = [s for s in self.sizes if s[1] == dims]
            if part == [i] and i < rank and self.chance(0.3):
                entries.append(self.constant([0]))
            elif len(set(dims)) == 1 and dims[0] and self.chance(0.8):
                entries.append(self.constant([dims[0]]))
            elif known and self.chance(0.6):
                entries.append(self.late(known)[0])
            elif free and all(math.prod(s) for s in shapes):
                entries.append(self.constant([-1]))
                free = False
            elif known:
                entries.append(self.late(known)[0])
            else:
                return False
        target = self.node("Concat", entries, {"axis": 0}) if len(entries) > 1 else entries[0]
        return self.tensor("Reshape", [t, target], [tuple(d[r] for d in out) for r in range(len(RUNS))])

    def slice(self):
        t, shapes = self.late(self.tensors)
        if not shapes[0]:
            return False
        a = self.rs.randint(len(shapes[0]))
        far = [40] * len(RUNS)
        start, end = self.size([-40] * len(RUNS), far), self.size([-40] * len(RUNS), far)
        if self.chance(0.3):
            end = self.constant([2 ** 63 - 1]), [2 ** 63 - 1] * len(RUNS)
        elif self.chance(0.2):
            start = self.constant([0]), [0] * len(RUNS)
        step = self.pick((1, 1, 1, 2))
        out = [s[:a] + (len(range(s[a])[slice(b, e, step)]),) + s[a + 1:] for s, b, e in zip(shapes, start[1], end[1])]
        more = [self.constant([a])] + ([self.constant([step])] if step > 1 else [])
        return self.tensor("Slice", [t, start[0], end[0], *more], out)

    def expand(self):
        t, shapes = self.late(self.tensors)
        wanted, out = [], []
        for a in range(len(shapes[0])):
            dims = [s[a] for s in shapes]
            s = self.size([0] * len(RUNS), [12] * len(RUNS)) if set(dims) == {1} else (self.constant([1]), dims)
            wanted.append(s[0])
            out.append(s[1])
        if self.chance(0.3) or not wanted:
            s = self.size([0] * len(RUNS), [5] * len(RUNS))
            wanted.insert(0, s[0])
            out.insert(0, s[1])
        target = self.node("Concat", wanted, {"axis": 0})
        return self.tensor("Expand", [t, target], [tuple(d[r] for d in out) for r in range(len(RUNS))])

    def tile(self):
        t, shapes = self.late(self.tensors)
        if not shapes[0]:
            return False
        a = self.rs.randint(len(shapes[0]))
        s = self.size([0] * len(RUNS), [5] * len(RUNS))
        repeats = [self.constant([1])] * len(shapes[0])
        repeats[a] = s[0]
        out = [d[:a] + (d[a] * n,) + d[a + 1:] for d, n in zip(shapes, s[1])]
        return self.tensor("Tile", [t, self.node("Concat", repeats, {"axis": 0})], out)

    def pad(self):
        t, shapes = self.late(self.tensors)
        if not shapes[0]:
            return False
        a, rank = self.rs.randint(len(shapes[0])), len(shapes[0])
        before = self.size([-d[a] if self.chance(0.1) else 0 for d in shapes], [6] * len(RUNS))
        after = self.size([0] * len(RUNS), [6] * len(RUNS))
        if before is None:
            return False
        zero = self.constant([0])
        words = [zero] * (2 * rank)
        words[a], words[rank + a] = before[0], after[0]
        out = [d[:a] + (d[a] + b + e,) + d[a + 1:] for d, b, e in zip(shapes, before[1], after[1])]
        return self.tensor("Pad", [t, self.node("Concat", words, {"axis": 0})], out)

    def fill(self):
        """Range or ConstantOfShape."""
        s = self.size([0] * len(RUNS), [30] * len(RUNS))
        if self.chance(0.5):
            scalar = self.node("Squeeze", [s[0], self.constant([0])])
            r = self.node("Range", [self.constant(0), scalar, self.constant(1)])
            return self.tensor("Cast", [r], [(n,) for n in s[1]], {"to": 1})
        z = self.size([0] * len(RUNS), [6] * len(RUNS))
        return self.tensor("ConstantOfShape", [self.node("Concat", [s[0], z[0]], {"axis": 0})], list(zip(s[1], z[1])),
                           {"value": np.asarray([0.5], np.float32)})

    def whole(self):
        """A target computed from all dims at once: sizes of an expansion where -1 means 1, an image of twice the size."""
        t, shapes = self.late(self.tensors)
        rank = len(shapes[0])
        if rank == 0:
            return False
        shape = self.node("Shape", [t])
        if rank == 4 and all(math.prod(s) for s in shapes):
            f = [1, 1, self.pick((1, 2, 3)), 2]
            sizes = self.node("Mul", [shape, self.constant(f)])
            none = self.constant(np.zeros(0), np.float32)
            return self.tensor("Resize", [t, none, none, sizes], [tuple(d * k for d, k in zip(s, f)) for s in shapes],
                               {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})
        a = self.rs.randint(rank)
        wanted = self.node("Concat", [self.constant([3]), shape], {"axis": 0})
        fixed = self.constant([-1 if i == a else 1 for i in range(rank + 1)])
        ones = self.node("ConstantOfShape", [self.node("Shape", [fixed])], {"value": np.asarray([1], I64)})
        test = self.node("Equal", [fixed, self.constant(-1)])
        target = self.node("Where", [test, wanted, ones])
        out = [((3,) if a == 0 else (1,)) + s for s in shapes]
        return self.tensor("Expand", [t, target], out)

    def mask(self):
        """Positions compared with positions, as for causal attention."""
        a, b = self.size([0] * len(RUNS), [30] * len(RUNS)), self.size([0] * len(RUNS), [30] * len(RUNS))
        rows, columns = (self.node("Range", [self.constant(0), self.node("Squeeze", [s[0], self.constant([0])]), self.constant(1)])
                         for s in (a, b))
        rows = self.node("Unsqueeze", [rows, self.constant([1])])
        test = self.node(self.pick(("Less", "Greater", "Equal")), [columns, rows])
        return self.tensor("Cast", [test], list(zip(a[1], b[1])), {"to": 1})

    def take(self):
        """One position, counted from either end, or the largest few."""
        t, shapes = self.late(self.tensors)
        if not shapes[0]:
            return False
        a = self.rs.randint(len(shapes[0]))
        dims = [s[a] for s in shapes]
        if self.chance(0.5) and min(dims) > 0:
            i = self.size([-d for d in dims], [d - 1 for d in dims])
            return i is not None and self.tensor("Gather", [t, i[0]], [s[:a] + (1,) + s[a + 1:] for s in shapes], {"axis": a})
        k = self.size([0] * len(RUNS), dims)
        return self.tensor("TopK", [t, k[0]], [s[:a] + (n,) + s[a + 1:] for s, n in zip(shapes, k[1])], {"axis": a})

    def combine(self):
        """Add, or Concat along an axis."""
        t, shapes = self.late(self.tensors)
        fit = []
        for u, other in self.tensors:
            try:
                fit.append((u, [np.broadcast_shapes(p, q) for p, q in zip(shapes, other)]))
            except ValueError:
                pass
        if fit and self.chance(0.7):
            u, out = self.late(fit)
            return self.tensor(self.pick(("Add", "Mul", "Max")), [t, u], out)
        for u, other in reversed(self.tensors):
            for a in range(len(shapes[0])):
                if len(other[0]) == len(shapes[0]) and all(p[:a] + p[a + 1:] == q[:a] + q[a + 1:] for p, q in zip(shapes, other)):
                    return self.tensor("Concat", [t, u], [p[:a] + (p[a] + q[a],) + p[a + 1:] for p, q in zip(shapes, other)], {"axis": a})
        return False

    def turn(self):
        t, shapes = self.late(self.tensors)
        perm = [int(p) for p in self.rs.permutation(len(shapes[0]))]
        return len(perm) > 1 and self.tensor("Transpose", [t], [tuple(s[p] for p in perm) for s in shapes], {"perm": perm})


def make_model(rs):
    m = Maker(rs)
    actions = (m.read, m.read, m.arithmetic, m.arithmetic, m.arithmetic, m.elements, m.reshape, m.reshape, m.slice, m.slice, m.expand,
               m.tile, m.pad, m.fill, m.whole, m.mask, m.take, m.combine, m.combine, m.turn)
    for _ in range(rs.randint(5, 22)):
        m.pick(actions)()
    made = [t for t in m.tensors if not any(t[0] == p.name for p in m.graph.inputs)]
    for name, _ in made[-3:]:
        m.graph.outputs.append(Port(name, "float32"))
    if m.sizes and m.sizes[-1][0] not in m.given and m.chance(0.5):
        m.graph.outputs.append(Port(m.sizes[-1][0], "int64"))
    return m.graph.prune(), m.given


def check(worker, path, graph, given, counts, refused):
    """None, or what is wrong."""
    graph.save(path)
    session = oracle.session(path)
    try:
        worker.compile([path])
    except Refused as e:
        refused[str(e).split(":", 2)[-1][:150]] += 1
        return None
    for i, run in enumerate(RUNS):
        rng = np.random.RandomState(i)
        inputs = {p.name: np.asarray([given[p.name][i]], I64) if p.name in given else
                  rng.randint(-8, 9, [run.get(d, d) for d in p.dims]).astype(np.float32) for p in graph.inputs}
        try:
            want = session.run(None, inputs)
        except Exception:  # onnxruntime has no common class of exceptions
            counts["runs that onnxruntime refuses"] += 1
            continue
        counts["runs"] += 1
        try:
            got = worker.run([inputs[p.name] for p in graph.inputs], threads=1 + i % 2)
        except Refused as e:
            refused[f"at {run}: " + str(e)[:150]] += 1
            counts["runs refused"] += 1
            continue
        for p, a, b in zip(graph.outputs, got, want):
            text = oracle.difference(a, b)
            if text:
                return f"{p.name} at {run}: {text}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--save", help="folder for the models that fail")
    parser.add_argument("--refusals", type=int, default=5, help="how many are printed")
    o = parser.parse_args()
    worker, counts, refused, failures = Worker(o.worker), collections.Counter(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shapes.onnx")
        for seed in (*KNOWN, *range(o.seed, o.seed + o.count)):
            graph, given = make_model(np.random.RandomState(seed))
            if not graph.inputs or not graph.outputs or not graph.nodes:
                continue
            counts["models"] += 1
            try:
                text = check(worker, path, graph, given, counts, refused)
            except Died as e:
                text = str(e)
            if text:
                failures += 1
                print(f"seed {seed}: {text}\n{graph.text()}\n", flush=True)
                if o.save:
                    graph.save(os.path.join(o.save, f"shapes{seed}.onnx"))
    worker.close()
    for text, n in refused.most_common(o.refusals):
        print(f"refused {n} times: {text}")
    print(", ".join(f"{n} {what}" for what, n in counts.items()) + f", {sum(refused.values())} refusals, {failures} failures")
    return 1 if failures or not counts["runs"] else 0


if __name__ == "__main__":
    sys.exit(main())
