#!/usr/bin/env python3
"""Requests of several models in one run (pack-family): random families of encoders and decoders as exporters write them, with heads,
biases, adapters, tables and single products of their own. The packed program of a family on random lengths of random members must
answer as each model does for each sequence alone, and as onnxruntime does.

usage: packed_families.py WORKER [--seed N] [--count N]
"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

import text_families
from onnx_file import Graph, Node, Port
from packed import pack
from text_models import LONGEST, MASKS, POOLS, POSITIONS, WORDS, encoder, make_inputs
from worker import Worker


def run_family(worker, program, members, graphs, paths, rs):
    """The first difference, or None. `members`: numbers of models, in the order of the program's outputs."""
    asked, total = [], 0
    for n in rs.randint(1, LONGEST + 1, rs.randint(2, 9)):
        if total + n + 5 <= 3 * LONGEST:  # the worker's largest batch
            asked.append((int(rs.randint(len(members))), int(n)))
            total += n
    requests = [make_inputs(graphs[members[k]], n, rs) for k, n in asked]
    rows = total + int(rs.choice([0, 0, 1, 5]))
    inputs, _ = pack(requests, rows)
    part = np.concatenate([np.full(n, k) for k, n in asked] + [np.zeros(rows - total)]).astype(np.int64)
    got = worker.run(inputs + [part], program, threads=int(rs.choice([1, 2])))
    names = [[p.name for p in graphs[m].outputs] for m in members]
    first = np.concatenate([[0], np.cumsum([len(n) for n in names])])
    at = 0
    for i, ((k, n), request) in enumerate(zip(asked, requests)):
        model = members[k]
        alone = worker.run(request, f"m{model}")
        want = oracle.answers(paths[model], dict(zip([p.name for p in graphs[model].inputs], request)))
        for o, name in enumerate(names[k]):
            all_rows = got[first[k] + o]
            mine = all_rows[:, at:at + n] if name == "hidden" else all_rows[i:i + 1]
            for other, of in ((alone[o], "alone"), (want[name], "onnxruntime")):
                text = oracle.difference(mine, other, 1e-5, max(0.1, float(np.abs(other[np.isfinite(other)]).max(initial=0))))
                if text:
                    return f"request {i} of {asked}, model {model}, {name}, beside {of}: {text}"
        at += n
    return None


def check(worker, folder, graphs, rs, rounds=2):
    """(the first difference or None, number of models that run with others)"""
    paths = [os.path.join(folder, f"m{i}.onnx") for i in range(len(graphs))]
    for path, g in zip(paths, graphs):
        g.save(path)
    programs = worker.compile(paths, pack=True, merge="auto")
    together = 0
    for program, models in programs.items():
        if not program.endswith(".packed") or len(models) < 2:
            continue
        members = [int(m[1:]) for m in models]
        together += len(members)
        for _ in range(rounds):
            text = run_family(worker, program, members, graphs, paths, rs)
            if text:
                return f"{program}: {text}", together
    return None, together


def infinities(worker, folder, rs):
    """Rows with infinities times weights that differ by low rank: the product is that by the model's own weight."""
    width, out = 24, 19
    table, base = rs.standard_normal((WORDS, width)).astype("f4"), rs.uniform(0.2, 1, (width, out)).astype("f4")
    for row, value in ((1, np.inf), (2, -np.inf), (3, np.nan)):
        table[row, rs.randint(width)] = value
    graphs = []
    for rank in (0, 1, 2, 1):
        w = base + rs.uniform(-1, 1, (width, rank)) @ rs.uniform(-1, 1, (rank, out))
        graphs.append(Graph(inputs=[Port("ids", "int64", ["N", "S"])], outputs=[Port("hidden", "float32")],
                            constants={"table": table, "w": w.astype("f4"), "b": rs.standard_normal(out).astype("f4")},
                            nodes=[Node("Gather", ["table", "ids"], ["x"]), Node("MatMul", ["x", "w"], ["y"]),
                                   Node("Add", ["y", "b"], ["z"]), Node("LeakyRelu", ["z"], ["hidden"])]))
    return check(worker, folder, graphs, rs, 6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=36)
    o = parser.parse_args()
    failed, models, together, worker = 0, 0, 0, Worker(o.worker)
    with tempfile.TemporaryDirectory() as folder:
        for i in range(o.count):
            rs = np.random.RandomState((o.seed * 100003 + i) % (1 << 32))
            base = encoder(rs, MASKS[i % len(MASKS)], POSITIONS[i // len(MASKS) % len(POSITIONS)], rs.choice(POOLS))
            graphs, done = text_families.make(base, rs, rs.randint(1, 6))
            text, n = check(worker, folder, graphs, rs)
            models, together = models + len(graphs), together + n
            if text:
                failed += 1
                print(f"{i} {done}: {text}")
        text, n = infinities(worker, folder, np.random.RandomState(o.seed))
        if text or n < 4:
            failed += 1
            print(f"infinities: {text}, {n} of 4 together")
        for kind in text_families.KINDS[:4] + text_families.KINDS[7:]:  # those that must run together
            rs = np.random.RandomState(o.seed)
            graphs, _ = text_families.make(encoder(rs, "lowest", "slice", "gather"), rs, 3, [kind])
            text, n = check(worker, folder, graphs, rs)
            if text or (n < 4 and kind is not text_families.half):
                failed += 1
                print(f"{kind.__name__}: {text}, {n} of 4 together")
    worker.close()
    print(f"{o.count} families, {models} models, {together} of them together, {failed} wrong")
    return failed > 0 or together < models // 2


if __name__ == "__main__":
    sys.exit(main())
