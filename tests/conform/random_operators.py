#!/usr/bin/env python3
"""Single operators with random attributes and operands (op_*.py, a file for each subject), constant and at run time,
beside onnxruntime: by the CPU's kernels with one and two threads, and by the reference kernels.

usage: random_operators.py WORKER [--seed N] [--count N] [--only SUBJECT[.MAKER]] [--save DIR]
"""
import argparse
import collections
import os
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

import op_case
import op_floats
import op_integers
import op_move
import op_norms
import op_old
import op_reduce
import op_sample
import op_sums
import op_windows
from worker import Died, Refused, UNSUPPORTED, Worker

SUBJECTS = {"reduce": op_reduce, "move": op_move, "integers": op_integers, "floats": op_floats, "sums": op_sums,
            "windows": op_windows, "norms": op_norms, "old": op_old, "sample": op_sample}
# Of an element, or of the output's largest where terms may cancel.
NEAR = {"float64": 1e-9, "float32": 1e-5, "float16": 2e-3}
WAYS = (("cpu", {"pipeline": "cpu"}, {}), ("two threads", None, {"threads": 2}),
        ("reference", {"pipeline": "plain"}, {"driver": "null"}))


def difference(got, want, elements):
    if want.dtype.kind != "f":
        return oracle.difference(got, want)
    near = NEAR[want.dtype.name]
    finite = np.abs(np.where(np.isfinite(want), want, 0)).astype(np.float64)
    scale = finite + 1e-6 if elements else max(float(finite.max()) if finite.size else 0.0, 1e-3)
    return oracle.difference(got, want, near, scale)


class Checker:
    def __init__(self, worker, folder):
        self.worker, self.folder = Worker(worker), folder
        self.counts, self.skipped, self.refused = collections.Counter(), collections.Counter(), collections.Counter()

    def check(self, graph, inputs, elements):
        """None, or why the answers differ."""
        path = os.path.join(self.folder, "operator.onnx")
        graph.save(path)
        try:
            want = oracle.session(path).run(None, inputs)
        except Exception as e:  # onnxruntime has no common class of exceptions
            self.skipped[f"{graph.nodes[0].op}: {str(e).splitlines()[0][-110:]}"] += 1
            return None
        self.counts["compared"] += 1
        for name, compile_with, run_with in WAYS:
            try:
                if compile_with:
                    self.worker.compile([path], **compile_with)
                got = self.worker.run([inputs[p.name] for p in graph.inputs], **run_with)
            except Refused as e:
                if e.code != UNSUPPORTED:
                    return f"{name}: {e}"
                self.refused[f"{graph.nodes[0].op}: {e}"] += 1
                return None
            except Died as e:
                return f"{name}: {e}"
            for i, (a, b) in enumerate(zip(got, want)):
                text = difference(a, b, elements)
                if text:
                    return f"{name}, result {i}: {text}"
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("WEFT_SEED", 1)))
    parser.add_argument("--count", type=int, default=int(os.environ.get("WEFT_CASES", 20)), help="cases of each maker")
    parser.add_argument("--only", default="")
    parser.add_argument("--save", help="folder for the models that fail")
    parser.add_argument("--show", type=int, default=3, help="failures of a maker that are printed")
    o = parser.parse_args()
    failed = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(o.worker, folder)
        for subject, module in SUBJECTS.items():
            for name, maker in module.MAKERS.items():
                full = f"{subject}.{name}"
                if not full.startswith(o.only):
                    continue
                build = op_case.make(maker, module.OPSETS.get(name, (13, 17, 18, 21)))
                for i in range(o.count):
                    rs = np.random.RandomState((o.seed * 1000003 + i * 7919 + zlib.crc32(full.encode())) % 2**32)
                    graph, inputs = build(rs)
                    text = checker.check(graph, inputs, subject in ("floats", "integers", "move") and name != "resizes")
                    if not text:
                        continue
                    failed[full] += 1
                    if failed[full] <= o.show:
                        print(f"{full}, case {i} of seed {o.seed}, opset {graph.opset}: {text}\n{graph.text()[:500]}", flush=True)
                    if o.save:
                        os.makedirs(o.save, exist_ok=True)
                        graph.save(os.path.join(o.save, f"{full}-{o.seed}-{i}.onnx"))
        checker.worker.close()
    for text, n in checker.skipped.most_common(12):
        print(f"not compared ({n}): {text}")
    for text, n in checker.refused.most_common(12):
        print(f"refused ({n}): {text}")
    print(f"{checker.counts['compared']} cases compared, {sum(failed.values())} differ", dict(failed) or "")
    return 1 if failed or not checker.counts["compared"] else 0


if __name__ == "__main__":
    sys.exit(main())
