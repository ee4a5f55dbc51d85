#!/usr/bin/env python3
"""Random models that move the batch about: transposes, reshapes that merge and split axes, and operators that keep requests
apart or mix them. onnxruntime says which models may be batched: those where a batch of three gives the answers of three requests
one by one. A model that Weft batches although requests mix fails, and so does an answer that differs from onnxruntime's, alone,
batched or in a joint program. Models that Weft could batch but does not are counted; more than one in fifty fail.

usage: random_batches.py WORKER [--seed N] [--count N] [--save DIR]
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

BATCH, MISSED_MOST = 3, 0.02
TOLERANCE = 1e-4


class Maker:
    """An axis of a value is a list of factors, outermost first: "N" or an integer. A reshape regroups the factors of all axes,
    so that each stays in its place."""

    def __init__(self, rs):
        self.rs, self.count = rs, 0
        self.graph = Graph(opset=17)
        self.values = []  # (name, axes)
        for _ in range(rs.randint(1, 3)):
            axes = [["N"]] + [[int(f)] for f in rs.choice([2, 3, 4, 5], rs.randint(1, 4))]
            name = self.name("x")
            self.graph.inputs.append(Port(name, "float32", [self.dim(a) for a in axes]))
            self.values.append((name, axes))

    def name(self, start):
        self.count += 1
        return f"{start}{self.count}"

    def chance(self, p):
        return self.rs.random_sample() < p

    def constant(self, array):
        name = self.name("c")
        self.graph.constants[name] = np.asarray(array)
        return name

    def node(self, op, inputs, **attrs):
        out = self.name("v")
        self.graph.nodes.append(Node(op, inputs, [out], attrs))
        return out

    @staticmethod
    def dim(axis):
        """Of an input: the symbol or a number."""
        return "N" if axis == ["N"] else math.prod(axis)

    @staticmethod
    def size(axis):
        return math.prod(f for f in axis if f != "N")

    def keep(self, name, axes):
        self.values.append((name, axes))

    # -- Moves ---------------------------------------------------------------------------------------------

    def reshape(self, x, axes):
        """The target: -1 for the axis of the batch, or computed from a Shape as exporters do."""
        target = [-1 if "N" in a else self.size(a) for a in axes]
        if self.chance(0.5) and -1 in target:
            name, of = self.values[0]
            assert of[0] == ["N"]
            n = self.node("Gather", [self.node("Shape", [name]), self.constant(np.int64(0))], axis=0)
            at = target.index(-1)
            n = self.node("Mul", [n, self.constant(np.int64(self.size(axes[at])))])
            n = self.node("Unsqueeze", [n, self.constant(np.array([0], np.int64))])
            parts = [self.constant(np.array(p, np.int64)) for p in (target[:at], target[at + 1:])]
            return self.node("Reshape", [x, self.node("Concat", [parts[0], n, parts[1]], axis=0)])
        return self.node("Reshape", [x, self.constant(np.array(target, np.int64))])

    def group(self, factors):
        """The factors as axes, cut at random places."""
        axes = [[]]
        for f in factors:
            if axes[-1] and self.chance(0.5) and len(axes) < 6:
                axes.append([])
            axes[-1].append(f)
        return axes

    def make_reshape(self, x, axes):
        factors = [f for a in axes for f in a]
        if self.chance(0.12):  # the batch of the result is another dim
            self.rs.shuffle(factors)
            factors = [f if f == "N" else int(f) for f in factors]
        axes = self.group(factors)
        self.keep(self.reshape(x, axes), axes)

    def make_transpose(self, x, axes):
        perm = [int(i) for i in self.rs.permutation(len(axes))]
        self.keep(self.node("Transpose", [x], perm=perm), [axes[i] for i in perm])

    # -- Operators -----------------------------------------------------------------------------------------

    def random_axis(self, axes):
        """Seldom the axis of the batch."""
        free = [i for i, a in enumerate(axes) if "N" not in a]
        return int(self.rs.choice(free)) if free and self.chance(0.95) else self.rs.randint(len(axes))

    def weight(self, *shape):
        return self.constant(self.rs.uniform(-1, 1, shape).astype(np.float32))

    def make_add(self, x, axes):
        rank = self.rs.randint(0, len(axes) + 1)
        shape = [self.size(a) if "N" not in a and self.chance(0.7) else 1 for a in axes[len(axes) - rank:]]
        self.keep(self.node("Add", [self.weight(*shape), x][::self.rs.choice([-1, 1])]), axes)

    def make_unary(self, x, axes):
        self.keep(self.node(str(self.rs.choice(["Tanh", "Sigmoid", "Softsign"])), [x]), axes)

    def make_softmax(self, x, axes):
        self.keep(self.node("Softmax", [x], axis=self.random_axis(axes)), axes)

    def make_reduce(self, x, axes):
        if len(axes) < 3:
            return
        axis, keep = self.random_axis(axes), int(self.rs.randint(2))
        self.keep(self.node("ReduceMean", [x], axes=[axis], keepdims=keep),
                  axes[:axis] + [[1]] * keep + axes[axis + 1:])

    def make_matmul(self, x, axes):
        if "N" in axes[-1] or len(axes) < 2:
            return
        n = int(self.rs.choice([2, 3, 4, 6]))
        y = self.node("MatMul", [x, self.weight(self.size(axes[-1]), n)])
        if self.chance(0.5):
            y = self.node("Add", [self.weight(n), y])
        self.keep(y, axes[:-1] + [[n] if n < 6 else [2, 3]])

    def make_norm(self, x, axes):
        if "N" not in axes[-1]:
            n = self.size(axes[-1])
            self.keep(self.node("LayerNormalization", [x, self.weight(n), self.weight(n)], axis=-1), axes)

    def make_slice(self, x, axes):
        axis = self.random_axis(axes)
        n = self.size(axes[axis])
        if "N" not in axes[axis] and n > 1:
            begin = self.rs.randint(0, n - 1)
            ends = [self.constant(np.array([v], np.int64)) for v in (begin, n, axis)]
            self.keep(self.node("Slice", [x] + ends), axes[:axis] + [[n - begin]] + axes[axis + 1:])

    def make_concat(self, x, axes):
        axis = self.random_axis(axes)
        if "N" not in axes[axis]:
            self.keep(self.node("Concat", [x, x], axis=axis), axes[:axis] + [[2] + axes[axis]] + axes[axis + 1:])

    def make_residual(self, x, axes):
        """With another value of the same dims, whatever their order."""
        def sizes(a):
            return [("N" in f, self.size(f)) for f in a]
        others = [v for v in self.values if v[0] != x and sizes(v[1]) == sizes(axes)]
        if others:
            y, _ = others[self.rs.randint(len(others))]
            self.keep(self.node("Add", [x, y]), axes)

    def make_crossed(self, x, axes):
        """Two orders of the same rows, added: the batch outermost in one, innermost in the other."""
        at = [i for i in range(len(axes) - 1) if ("N" in axes[i]) != ("N" in axes[i + 1])]
        if not at or self.chance(0.5):
            return
        i = at[self.rs.randint(len(at))]
        perm = [*range(i), i + 1, i, *range(i + 2, len(axes))]
        joined = axes[:i] + [axes[i] + axes[i + 1]] + axes[i + 2:]
        swapped = axes[:i] + [axes[i + 1] + axes[i]] + axes[i + 2:]
        y = self.reshape(self.node("Transpose", [x], perm=perm), swapped)
        self.keep(self.node("Add", [self.reshape(x, joined), y]), joined)

    def make_scores(self, x, axes):
        """As in attention: each row with each row, of one batch element or of all."""
        if len(axes) < 3 or "N" in axes[-1] or ("N" in axes[-2] and self.chance(0.9)):
            return
        perm = [*range(len(axes) - 2), len(axes) - 1, len(axes) - 2]
        s = self.node("MatMul", [x, self.node("Transpose", [x], perm=perm)])
        if "N" not in axes[-2]:
            p = self.node("Softmax", [s], axis=-1)
            self.keep(self.node("MatMul", [p, x]), axes)

    def make_fill(self, x, axes):
        """zeros_like by a shape: x + 0 for each element."""
        zeros = self.node("ConstantOfShape", [self.node("Shape", [x])], value=np.array([0.5], np.float32))
        self.keep(self.node("Add", [x, zeros]), axes)

    # -- The whole -----------------------------------------------------------------------------------------

    def finish(self, x, axes):
        """To [N, ...]: the batch is cut out of its axis and moved to the front."""
        at = next((i for i, a in enumerate(axes) if "N" in a), None)
        if at is not None and (at or axes[at][0] != "N" or self.chance(0.3)):
            inside = axes[at].index("N")
            before, after = axes[at][:inside], axes[at][inside + 1:]
            axes = axes[:at] + ([before] if before else []) + [["N"]] + ([after] if after else []) + axes[at + 1:]
            x = self.reshape(x, axes)
            at = axes.index(["N"])
            perm = [at] + [i for i in range(len(axes)) if i != at]
            if self.chance(0.1):
                perm = [int(i) for i in self.rs.permutation(len(axes))]
            x, axes = self.node("Transpose", [x], perm=perm), [axes[i] for i in perm]
        if axes[0] != ["N"] and at is not None and axes[0][0] == "N":
            axes = [["N"], axes[0][1:], *axes[1:]]
            x = self.reshape(x, axes)
        out = self.name("y")
        self.graph.nodes.append(Node("Identity", [x], [out], {}))
        self.graph.outputs.append(Port(out, "float32"))

    def make(self):
        moves = (self.make_reshape, self.make_transpose)
        others = [getattr(self, f"make_{n}") for n in ("add unary softmax reduce matmul norm slice concat residual crossed scores fill").split()]
        for _ in range(self.rs.randint(3, 12)):
            x, axes = self.values[-1] if self.chance(0.85) else self.values[self.rs.randint(len(self.values))]
            if len(axes) > 6 or math.prod(self.size(a) for a in axes) > 3000:
                break
            make = moves[self.rs.randint(2)] if self.chance(0.6) else others[self.rs.randint(len(others))]
            make(x, axes)
        self.finish(*self.values[-1])
        return self.graph


def may_batch(session, inputs):
    """Whether a batch gives the answers of its requests, and the answers to the batch."""
    names = [i.name for i in session.get_inputs()]
    def run(arrays):
        return session.run(None, dict(zip(names, arrays)))
    try:
        whole = run(inputs)
        parts = [run([a[b:b + 1] for a in inputs]) for b in range(BATCH)]
    except Exception:  # onnxruntime refuses the model or a size
        return None, None
    for k, w in enumerate(whole):
        if any(p[k].ndim == 0 or len(p[k]) != 1 for p in parts):
            return False, whole
        joined = np.concatenate([p[k] for p in parts])
        if joined.shape != w.shape or oracle.difference(w, joined, TOLERANCE):
            return False, whole
    return True, whole


class Subject:
    def __init__(self, program, folder, save):
        self.worker, self.folder, self.save = Worker(program), folder, save
        self.counts = collections.Counter()

    def compare(self, got, want, what):
        for a, b in zip(got, want):
            text = oracle.difference(a, b, TOLERANCE)
            if text:
                return f"{what}: {text}"
        return None

    def joint(self, paths, inputs):
        """Joint programs of two equal models, with batches of their own, beside the models."""
        programs = self.worker.compile(paths, merge="exact")
        for name, parts in programs.items():
            if len(parts) != 2:
                continue
            own = [a[:1] for a in inputs], inputs
            want = [self.worker.run(i, "m0")[k] for i in own for k in range(1)]
            self.counts["joint"] += 1
            text = self.compare(self.worker.run(own[0] + own[1], name), want, "joint")
            if text:
                return text
        return None

    def try_seed(self, seed):
        rs = np.random.RandomState(seed)
        graph = Maker(rs).make().prune()
        inputs = [rs.uniform(-1, 1, [BATCH if d == "N" else d for d in p.dims]).astype(np.float32) for p in graph.inputs]
        path = os.path.join(self.save or self.folder, f"batch_{seed}.onnx")
        if not graph.inputs:
            return None
        os.makedirs(os.path.dirname(path), exist_ok=True)
        graph.save(path)
        text = self.check(path, inputs)
        if text:
            return text + "\n" + graph.text()
        if self.save:
            os.remove(path)
        return None

    def check(self, path, inputs):
        try:
            session = oracle.session(path)
        except Exception:
            self.counts["refused by onnxruntime"] += 1
            return None
        apart, whole = may_batch(session, inputs)
        if apart is None:
            self.counts["refused by onnxruntime"] += 1
            return None
        self.counts["apart" if apart else "mixed"] += 1
        for pipeline in ("plain", "cpu"):
            try:
                self.worker.compile([path], pipeline)
            except Refused:
                self.counts["refused"] += 1
                return None
            batched = "m0" in self.worker.batched
            if batched and not apart:
                return f"{pipeline}: requests mix, but are batched"
            if apart and not batched:
                self.counts[f"missed, {pipeline}"] += 1
                if self.save:
                    print(f"missed, {pipeline}: {path}")
            text = self.compare(self.worker.run(inputs), whole, pipeline)
            if text:
                return text
        return self.joint([path, path], inputs) if apart and self.counts["apart"] % 4 == 0 else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=250)
    parser.add_argument("--save", help="folder for the models that fail")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(options.worker, folder, options.save)
        for seed in range(options.seed, options.seed + options.count):
            try:
                text = subject.try_seed(seed)
            except Died as e:
                text = f"died: {e}"
            if text:
                failures += 1
                print(f"seed {seed}: {text}", flush=True)
        subject.worker.close()
    counts = subject.counts
    print(", ".join(f"{v} {k}" for k, v in sorted(counts.items())) + f", {failures} failures")
    few = counts["apart"] < options.count // 5 or counts["mixed"] < options.count // 20 or not counts["joint"]
    missed = max(counts["missed, plain"], counts["missed, cpu"])
    return 1 if failures or few or missed > MISSED_MOST * counts["apart"] else 0


if __name__ == "__main__":
    sys.exit(main())
