"""Random models of one operator (or a few) through Weft, compared with onnxruntime.

A test is a program with a dictionary of makers, name -> function of a numpy RandomState that returns
(Graph, {input: array}). main() tries each maker with several seeds.

    usage: TEST WORKER [--seed N] [--count N] [--only NAME] [--save DIR]
"""
import argparse
import collections
import os
import sys
import tempfile
import zlib

import numpy as np

import oracle
from worker import Died, Refused, Worker


class Skip(Exception):
    """onnxruntime refuses the case, or its answer means nothing."""


def expected(path, inputs):
    try:
        return oracle.answers(path, inputs)
    except Exception as e:  # onnxruntime's exceptions have no common base
        raise Skip(str(e).split("\n")[0][-150:]) from e


def compare(worker, graph, inputs, path, tolerance):
    """None, or why the answers differ."""
    graph.save(path)
    want = expected(path, inputs)
    try:
        worker.compile([path])
        got = worker.run([inputs[i.name] for i in graph.inputs])
        again = worker.run([inputs[i.name] for i in graph.inputs], threads=2)
    except (Refused, Died) as e:
        return f"{type(e).__name__}: {e}"
    names = [o.name for o in graph.outputs]
    text = oracle.outputs_differ(dict(zip(names, got)), want, tolerance)
    if not text:  # products of oneDNN may add in another order
        text = oracle.outputs_differ(dict(zip(names, again)), want, tolerance)
        text = text and f"two threads: {text}"
    return text


def run(worker, makers, options, folder, tolerance=None):
    failed, skipped, tried = [], collections.Counter(), 0
    for name, make in makers.items():
        if options.only and options.only != name:
            continue
        for i in range(options.count):
            rs = np.random.RandomState((options.seed * 1000003 + i * 7919 + zlib.crc32(name.encode())) % 2**32)
            graph, inputs = make(rs)
            path = os.path.join(folder, f"{name}_{i}.onnx")
            try:
                text = compare(worker, graph, inputs, path, tolerance)
            except Skip as e:
                skipped[f"{name}: {e}"] += 1
                continue
            tried += 1
            if text:
                failed.append(name)
                print(f"{name}, case {i}: {text}\n{graph.text()[:600]}")
    for text, n in skipped.most_common():
        print(f"not compared ({n}): {text}")
    return tried, failed


def main(makers, count, tolerance=None, isas=("",)):
    """isas: instruction sets by their names in oneDNN, the widest without a name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=count, help="cases of each maker")
    parser.add_argument("--only")
    parser.add_argument("--save", help="folder for the models")
    options = parser.parse_args()
    tried, failed = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for isa in isas:
            worker = Worker(options.worker, {"ONEDNN_MAX_CPU_ISA": isa} if isa else {})
            n, wrong = run(worker, makers, options, options.save or folder, tolerance)
            worker.close()
            tried += n
            failed += wrong
    counts = ", ".join(f"{n} of {name}" for name, n in collections.Counter(failed).items())
    print(f"{tried} cases compared, {len(failed)} differ{': ' + counts if failed else ''}")
    sys.exit(1 if failed or not tried else 0)
