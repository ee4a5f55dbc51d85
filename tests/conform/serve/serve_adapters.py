# needs: numpy
"""Adapters (LoRA) of one base: requests of different adapters and of none run in one batch, named by the model's name
(BASE@ADAPTER) or by a parameter, and are answered as `weft run` answers each alone; also by a model whose requests cannot be
batched. Names that are none are refused."""
import json
import os
import random
import struct
import subprocess
import sys

import numpy as np
from http2 import DATA, END_HEADERS, END_STREAM, HEADERS, INFER, Connection, field, frame, varint
from serving import WEFT, Server, ask_at_once, tensor

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE_DIR"], "tests", "support"))
from lora import Adapter, base
from text_models import make_inputs

NAMES = ["legal", "medical", "sales", "tiny"]
model = base(np.random.RandomState(5), "folded", layers=1, hidden=32)
model.g.save("base.onnx")
fixed = model.g.copy()
for p in fixed.inputs:
    p.dims = [1, "seq"]
fixed.save("fixed.onnx")
for i, name in enumerate(NAMES):
    Adapter(np.random.RandomState(40 + i), model).save(f"adapters/{name}")
with open("set.yaml", "w") as f:
    f.write("models:\n  - {name: bert, file: base.onnx, adapters: ['adapters/*']}\n"
            "  - {name: fixed, file: fixed.onnx, adapters: [adapters/legal]}\n")
subprocess.run([WEFT, "compile", "set.yaml", "-o", "models.weft"], check=True)


def make_request(rng):
    """(model, adapter, how it is named, inputs, binary)"""
    of = rng.choice(["bert"] * 5 + ["fixed"])
    adapter = rng.choice([*NAMES, None]) if of == "bert" else rng.choice(["legal", None])
    rows = rng.choice([1, 1, 2]) if of == "bert" else 1
    values = np.random.RandomState(rng.randint(0, 1 << 30))
    parts = [make_inputs(model.g, 6, values) for _ in range(rows)]
    arrays = {p.name: np.concatenate([x[i] for x in parts]) for i, p in enumerate(model.g.inputs)}
    return of, adapter, rng.choice(["name", "parameter", "both"]), arrays, rng.random() < 0.5


def ask(server, of, adapter, how, arrays, binary):
    parameters = {"binary_data_output": binary}
    if adapter and how != "name":
        parameters["adapter"] = adapter
    name = f"{of}@{adapter}" if adapter and how != "parameter" else of
    status, got = server.infer(name, {"inputs": [tensor(k, a) for k, a in arrays.items()], "parameters": parameters})
    assert status == 200, got
    return {o["name"]: o["array"] for o in got["outputs"]}


def infer_grpc(server, name, arrays, adapter):
    """The answer's outputs as raw bytes, or None and the headers with the error."""
    inputs = b"".join(field(5, field(1, k.encode()) + field(2, b"INT64") + field(3, b"".join(varint(n) for n in a.shape)))
                      for k, a in arrays.items())
    parameter = field(4, field(1, b"adapter") + field(2, field(3, adapter.encode()))) if adapter else b""
    body = field(1, name.encode()) + parameter + inputs + b"".join(field(7, a.tobytes()) for a in arrays.values())
    c = Connection(server, timeout=20)
    c.send(frame(HEADERS, END_HEADERS, 1, INFER) + frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(body)) + body))
    headers, data = c.answer()
    c.close()
    return data[5:], headers


def check_grpc(server, requests, want):
    for (of, adapter, how, arrays, _), answer in zip(requests, want):
        name = f"{of}@{adapter}" if adapter and how != "parameter" else of
        got, _ = infer_grpc(server, name, arrays, adapter if how != "name" else None)
        near = np.abs(np.frombuffer(got[len(got) - answer["class"].nbytes:], "f4") - answer["class"].ravel()).max()
        assert got and near < 1e-5, (of, adapter, how, near)  # the last field has the bytes of the last output
    for name, adapter, code in (("bert@nobody", None, 5), ("bert", "nobody", 3), ("bert@legal", "sales", 3)):
        got, headers = infer_grpc(server, name, requests[0][3], adapter)
        assert not got and bytes([1]) + str(code).encode() in headers, (name, adapter, headers)


def alone(of, adapter, _, arrays, __):
    command = [WEFT, "run", "models.weft", "--model", of, *(["--adapter", adapter] if adapter else [])]
    for k, a in arrays.items():
        np.save(f"{k}.npy", a)
        command += ["--input", f"{k}=@{k}.npy"]
    for o in model.g.outputs:
        command += ["--output", f"{o.name}=@out.{o.name}.npy"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {o.name: np.load(f"out.{o.name}.npy") for o in model.g.outputs}


def check_refused(server):
    arrays = make_inputs(model.g, 6, np.random.RandomState(1))
    inputs = [tensor(p.name, a) for p, a in zip(model.g.inputs, arrays)]
    for name, parameters, code, words in (
            ("bert@nobody", {}, 404, "unknown model: 'bert@nobody'"), ("fixed@sales", {}, 404, "unknown model"), ("bert@", {}, 404, "unknown model"),
            ("bert", {"adapter": "nobody"}, 400, "has no adapter 'nobody'"), ("bert", {"adapter": 5}, 400, "is no text"),
            ("bert", {"adapter": ""}, 400, "is no name"), ("bert", {"adapter": "a" * 200}, 400, "is no name"),
            ("bert@legal", {"adapter": "sales"}, 400, "another adapter")):
        status, got = server.infer(name, {"inputs": inputs, "parameters": parameters})
        assert status == code and words in got["error"], (name, parameters, status, got)


with Server("--max-queue-delay", "5ms") as server:
    rng = random.Random(5)
    requests = [make_request(rng) for _ in range(60)]
    want = [alone(*r) for r in requests]
    different = [i for i, r in enumerate(requests) if r[1]]
    assert any(np.abs(want[i]["hidden"] - alone("bert", None, *requests[i][2:])["hidden"]).max() > 0.1 for i in different[:5])
    check_refused(server)
    check_grpc(server, requests, want)
    ask_at_once(requests, want, lambda *r: ask(server, *r), lambda: check_refused(server), each=40)
    _, stats = server.get("/v2/models/bert/stats")
    assert max(b["batch_size"] for b in stats["model_stats"][0]["batch_stats"]) > 2, stats
    status, about = server.get("/v2/models/bert@legal")
    assert status == 200 and [o["name"] for o in about["outputs"]] == ["hidden", "class"], about
    assert server.get("/v2/models/bert@legal/ready")[0] == 200 and server.get("/v2/models/bert@other/ready")[0] == 404
print("ok")
