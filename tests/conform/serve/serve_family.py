# needs: numpy
"""Requests of several models of a family run together, whatever their lengths: clients of five siblings at once get the answers that
each model gives alone, for requests of several sequences and for one of the outputs, too, and beside requests that are refused."""
import json
import os
import random
import subprocess
import sys
import threading

import numpy as np
from serving import WEFT, Server, tensor

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE_DIR"], "tests", "support"))
import text_families
from text_models import LONGEST, WORDS, encoder

KINDS = (text_families.classes, text_families.biases, text_families.low_rank, text_families.words)
rs = np.random.RandomState(4)
base = encoder(rs, "lowest", "slice", "gather")
graphs = [base] + [text_families.make(base, rs, 1, [kind])[0][1] for kind in KINDS]
for i, g in enumerate(graphs):
    g.save(f"m{i}.onnx")
subprocess.run([WEFT, "compile", "--pack", *(f"m{i}.onnx" for i in range(len(graphs))), "-o", "models.weft", "--report", "r.json",
                "--format", "json"], check=True, stdout=subprocess.DEVNULL)
with open("r.json") as f:
    report = json.load(f)["packed"]
assert all(row["together_with"] == len(graphs) - 1 for row in report), report


def make_request(rng):
    rows, length = rng.choice([1, 1, 1, 2]), rng.randint(1, LONGEST)
    values = np.random.RandomState(rng.randint(0, 1 << 30))
    mask = (values.uniform(size=(rows, length)) < 0.7).astype("i8")
    mask[:, 0] = 1
    ids = values.randint(0, WORDS, (rows, length)).astype("i8")
    return f"m{rng.randrange(len(graphs))}", {"ids": ids, "mask": mask}, rng.choice([["hidden"], ["class"], None]), rng.random() < 0.5


def ask(server, model, arrays, names, binary):
    request = {"inputs": [tensor(k, a) for k, a in arrays.items()], "parameters": {"binary_data_output": binary}}
    if names:
        request["outputs"] = [{"name": n} for n in names]
    status, got = server.infer(model, request)
    assert status == 200, got
    return {o["name"]: o["array"] for o in got["outputs"]}


def count(server, what):
    text = server.request("GET", "/metrics", port=server.metrics)[2].decode()
    return int([l for l in text.splitlines() if l.startswith(f"weft_{what}_total ")][0].split()[1])


def check_refused(server):
    """Too long, and a word that the table does not have: an answer of its own, whatever runs beside it."""
    for length, word in ((LONGEST + 1, 0), (3, WORDS)):
        ids = np.full((1, length), word, "i8")
        status, got = server.infer("m1", {"inputs": [tensor("ids", ids), tensor("mask", ids * 0 + 1)]})
        assert status == 400, (length, status, got)


with Server("--max-queue-delay", "3ms") as server:
    rng = random.Random(5)
    requests = [make_request(rng) for _ in range(150)]
    want = [ask(server, *r) for r in requests]
    assert count(server, "joint_executions") == 0  # one client: nothing to run with
    problems = []

    def client(seed):
        mine = random.Random(seed)
        try:
            for i in mine.sample(range(len(requests)), 60):
                got = ask(server, *requests[i])
                assert list(got) == list(want[i]), (list(got), list(want[i]))
                for name, array in want[i].items():
                    assert got[name].shape == array.shape, (name, got[name].shape, array.shape)
                    assert np.abs(got[name] - array).max() < 1e-5, (requests[i][0], name, np.abs(got[name] - array).max())
            check_refused(server)
        except Exception as problem:
            problems.append(repr(problem))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems, problems[:3]
    assert count(server, "joint_executions") > 20, count(server, "joint_executions")
    assert count(server, "joint_rows") >= 2 * count(server, "joint_executions")
    for i in range(len(graphs)):
        _, stats = server.get(f"/v2/models/m{i}/stats")
        assert stats["model_stats"][0]["inference_stats"]["success"]["count"] > 0, stats
print("ok")
