# needs: numpy
"""Requests of several models of a family run together, whatever their lengths: clients of five siblings at once get the answers that
each model gives alone, for requests of several sequences and for one of the outputs, too, and beside requests that are refused."""
import json
import os
import random
import re
import subprocess
import sys

import numpy as np
from serving import WEFT, Server, ask_at_once, tensor

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


def check_refused(server):
    """Too long, and a word that the table does not have: an answer of its own, whatever runs beside it."""
    for length, word in ((LONGEST + 1, 0), (3, WORDS)):
        ids = np.full((1, length), word, "i8")
        status, got = server.infer("m1", {"inputs": [tensor("ids", ids), tensor("mask", ids * 0 + 1)]})
        assert status == 400, (length, status, got)


with Server("--always-together", "--max-queue-delay", "3ms") as server:
    rng = random.Random(5)
    requests = [make_request(rng) for _ in range(150)]
    want = [ask(server, *r) for r in requests]
    assert server.count("joint_executions") == 0  # one client: nothing to run with
    ask_at_once(requests, want, lambda *request: ask(server, *request), lambda: check_refused(server))
    assert server.count("joint_executions") > 20, server.count("joint_executions")
    assert server.count("joint_rows") >= 2 * server.count("joint_executions")
    for i in range(len(graphs)):
        _, stats = server.get(f"/v2/models/m{i}/stats")
        assert stats["model_stats"][0]["inference_stats"]["success"]["count"] > 0, stats
# By measured times some run together and some apart, batches that were composed are undone: the answers are the same.
with Server("--max-queue-delay", "3ms") as server:
    for _ in range(2):
        ask_at_once(requests, want, lambda *request: ask(server, *request), lambda: check_refused(server))
    text = server.request("GET", "/metrics", port=server.metrics)[2].decode()
    apart = [line for line in text.splitlines() if re.match(r'weft_(apart|together_trials)_total{.*packed"', line)]
    assert len(apart) >= 2 and sum(int(line.split()[1]) for line in apart) > 0, apart
print("ok")
