# needs: numpy
"""Requests of different lengths run together, without padding: an encoder with a mask and a causal decoder answer many clients at
once as they answer each request alone; in one request of several sequences, too, for one of the outputs, and beside requests that
are refused."""
import json
import os
import random
import subprocess
import sys

import numpy as np
from serving import WEFT, Server, ask_at_once, tensor

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE_DIR"], "tests", "support"))
from text_models import LONGEST, WORDS, encoder

SHORT = {"encoder": ("ids", "mask"), "decoder": ("ids",)}
encoder(np.random.RandomState(1), "lowest", "slice", "gather").save("encoder.onnx")
encoder(np.random.RandomState(2), "causal where", "table", "").save("decoder.onnx")
subprocess.run([WEFT, "compile", "--pack", "encoder.onnx", "decoder.onnx", "-o", "models.weft"], check=True)


def make_request(model, rng):
    rows, length = rng.choice([1, 1, 1, 2]), rng.randint(1, LONGEST)
    values = np.random.RandomState(rng.randint(0, 1 << 30))
    arrays = {"ids": values.randint(0, WORDS, (rows, length)).astype("i8")}
    if "mask" in SHORT[model]:
        mask = (values.uniform(size=(rows, length)) < 0.7).astype("i8")
        mask[:, 0] = 1
        arrays["mask"] = mask
    names = rng.choice([["hidden"], ["class"], None]) if model == "encoder" else None
    return model, arrays, names, rng.random() < 0.5


def ask(server, model, arrays, names, binary):
    request = {"inputs": [tensor(k, a) for k, a in arrays.items()], "parameters": {"binary_data_output": binary}}
    if names:
        request["outputs"] = [{"name": n} for n in names]
    status, got = server.infer(model, request)
    assert status == 200, got
    return {o["name"]: o["array"] for o in got["outputs"]}


def check_refused(server):
    """Too long, and of no length: an answer of its own, whatever runs beside it."""
    for length, code in ((LONGEST + 1, 400), (0, 400)):
        ids = np.zeros((1, length), "i8")
        status, got = server.infer("encoder", {"inputs": [tensor("ids", ids), tensor("mask", ids + 1)]})
        assert status == code or length == 0, (length, status, got)


with Server("--always-together", "--max-queue-delay", "3ms") as server:
    rng = random.Random(5)
    requests = [make_request(rng.choice(list(SHORT)), rng) for _ in range(120)]
    want = [ask(server, *r) for r in requests]
    assert server.count("packed_executions") == 0  # one client: nothing to run with
    ask_at_once(requests, want, lambda *request: ask(server, *request), lambda: check_refused(server))
    assert server.count("packed_executions") > 20, server.count("packed_executions")
    _, stats = server.get("/v2/models/encoder/stats")
    assert max(b["batch_size"] for b in stats["model_stats"][0]["batch_stats"]) > 1, stats
print("ok")
