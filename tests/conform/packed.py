#!/usr/bin/env python3
"""Sequences of different lengths in one run (weft compile --pack). Random encoders and decoders as exporters write them, with each
form of mask: the packed program on random lengths, 1 among them, with holes and zeros in masks, must answer as the model does for
each sequence alone, and as onnxruntime does. Models in which tokens meet outside attention must have no packed program, and the
report must name the node.

usage: packed.py WORKER WEFT [--seed N] [--count N]
"""
import argparse
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

from text_models import LONGEST, MASKS, POOLS, POSITIONS, Model, encoder, make_inputs, port
from worker import Worker

STARTS = 32

def pack(requests, rows):
    """Inputs of the packed program; rows of padding repeat the first one."""
    lengths = [r[0].shape[1] for r in requests]
    padding = rows - sum(lengths)
    inputs = [np.concatenate([r[i] for r in requests] + [requests[0][i][:, :1]] * padding, 1) for i in range(len(requests[0]))]
    position = np.concatenate([np.arange(n) for n in lengths] + [np.zeros(padding)]).astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(lengths)])[:len(lengths) + (padding > 0)]
    start = np.full(STARTS, begins[-1])
    start[:len(begins)] = begins
    return inputs + [position, start.astype(np.int64)], lengths


def check(worker, path, graph, rs):
    graph.save(path)
    programs = worker.compile([path], pack=True)
    if "m0.packed" not in programs:
        return "no packed program"
    lengths = [1]
    for n in rs.randint(1, LONGEST + 1, rs.randint(1, 8)):
        if sum(lengths) + n + 5 <= 3 * LONGEST:  # the worker's largest batch
            lengths.append(int(n))
    rs.shuffle(lengths)
    requests = [make_inputs(graph, n, rs) for n in lengths]
    inputs, lengths = pack(requests, sum(lengths) + rs.choice([0, 0, 1, 5]))
    got = worker.run(inputs, "m0.packed", threads=int(rs.choice([1, 2])))
    at = 0
    for i, (request, n) in enumerate(zip(requests, lengths)):
        alone = worker.run(request, "m0")
        want = oracle.answers(path, dict(zip([p.name for p in graph.inputs], request)))
        for k, name in enumerate(p.name for p in graph.outputs):
            mine = got[k][:, at:at + n] if name == "hidden" else got[k][i:i + 1]
            for other, of in ((alone[k], "alone"), (want[name], "onnxruntime")):
                text = oracle.difference(mine, other, 1e-5)
                if text:
                    return f"sequence {i} of lengths {lengths}, {name}, beside {of}: {text}"
        at += n
    return None


def refused_models(rs):
    """(words of the reason, graph)"""
    def make(change):
        m = Model(rs)
        m.g.inputs.append(port("ids"))
        x = m.layer(m.embed("slice"), m.mask("none"))
        m.output(change(m, x), "y")
        return m.g
    def recurrence(m, x):
        return m.op("CumSum", x, m.const(np.int64(1)))
    def length_of_all(m, x):
        return m.op("ReduceL2", x, axes=[1], keepdims=0)
    def backwards(m, x):
        count = m.op("CumSum", m.op("Cast", "ids", to=6), m.const(np.int64(1)), reverse=1)
        return m.op("Add", x, m.op("Unsqueeze", m.op("Cast", count, to=1), m.ints(2)))
    def over_length(m, x):
        n = m.op("Cast", m.op("Squeeze", m.size("ids", 1), m.ints(0)), to=1)
        return m.op("Div", x, n)
    def softmax(m, x):
        return m.op("Softmax", x, axis=1)
    def shift(m, x):
        return m.op("Concat", m.op("Slice", x, m.ints(1), m.ints(1 << 40), m.ints(1)), m.slice(x, m.ints(1), 1), axis=1)
    def global_value(m, x):
        return m.op("Add", x, m.op("Unsqueeze", m.op("Gather", x, m.const(np.int64(0)), axis=1), m.ints(1)))
    def second(m, x):
        return m.op("Gather", x, m.const(np.int64(1)), axis=1)
    def from_the_end(m, x):
        n = m.size("ids", 1)
        table = m.op("Slice", m.weight(1, LONGEST, m.e), m.op("Sub", m.ints(0), n), m.ints(1 << 40), m.ints(1))
        return m.op("Add", x, table)
    def ramp(m, x):
        n = m.op("Cast", m.op("Squeeze", m.size("ids", 1), m.ints(0)), to=1)
        at = m.op("Cast", m.op("Range", m.const(np.int64(0)), m.op("Squeeze", m.size("ids", 1), m.ints(0)), m.const(np.int64(1))), to=1)
        return m.op("Add", x, m.op("Unsqueeze", m.op("Div", at, n), m.ints(0, 2)))
    def own_queries(m, x):
        m.g.inputs.append(port("mask"))
        m_keys, m_queries = (m.op("Cast", m.op("Unsqueeze", "mask", m.ints(*at)), to=1) for at in ((1, 2), (1, 3)))
        both = m.op("Mul", m.op("MatMul", m_queries, m_keys), m.const(np.float32(5)))
        return m.layer(x, lambda s: m.op("Add", s, both))
    return [(words, make(change)) for words, change in (
        ("cum_sum", recurrence), ("reduce_l2", length_of_all), ("cum_sum", backwards), ("cannot be batched", over_length), ("softmax", softmax), ("", shift),
        ("combines tokens", global_value), ("gather", second), ("length", from_the_end), ("", ramp),
        ("matmul", own_queries))]


def check_refused(weft, folder, words, graph):
    path, report = os.path.join(folder, "m.onnx"), os.path.join(folder, "r.json")
    graph.save(path)
    oracle.weft(weft, "compile", "--pack", path, "-o", os.path.join(folder, "m.weft"), "--report", report, "--format", "json")
    with open(report) as f:
        row = json.load(f)["packed"][0]
    if row["packed"] or words not in row["reason"]:
        return f"{row}, '{words}' expected"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("weft")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=112)
    o = parser.parse_args()
    failed, worker = 0, Worker(o.worker)
    with tempfile.TemporaryDirectory() as folder:
        for i in range(o.count):
            rs = np.random.RandomState(o.seed * 100003 + i)
            kind = (MASKS[i % len(MASKS)], POSITIONS[i // len(MASKS) % len(POSITIONS)], rs.choice(POOLS))
            text = check(worker, os.path.join(folder, "m.onnx"), encoder(rs, *kind), rs)
            if text:
                failed += 1
                print(f"{i} {kind}: {text}")
        for words, graph in refused_models(np.random.RandomState(o.seed)):
            text = check_refused(o.weft, folder, words, graph)
            if text:
                failed += 1
                print(f"refused: {text}")
    worker.close()
    print(f"{o.count} models, {failed} wrong")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
