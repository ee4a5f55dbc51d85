# needs: numpy
"""A thousand models: statistics, the index and metrics are whole, for several clients at once, while requests run and
clients leave in the middle."""
import json
import os
import re
import struct
import subprocess
import threading
import time

import numpy as np

from http2 import DATA, EMPTY, END_HEADERS, END_STREAM, HEADERS, WINDOW, Connection, frame, head
from serving import WEFT, Server, tensor, wait_until
from tests.support.onnx_file import Graph, Node, Port

MODELS = [f"model-{i:04d}" for i in range(1000)]


def compile_models():
    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", ["N", 4]))
    g.nodes.append(Node("Relu", ["x"], ["y"]))
    g.outputs.append(Port("y", "float32"))
    g.save("tiny.onnx")
    with open("many.yaml", "w") as f:
        f.write("models:\n" + "".join(f"  - name: {m}\n    file: tiny.onnx\n" for m in MODELS))
    subprocess.run([WEFT, "compile", "many.yaml", "-o", "many.weft"], check=True)


def check_stats(s, counts=None):
    status, got = s.get("/v2/models/stats")
    assert status == 200 and [m["name"] for m in got["model_stats"]] == MODELS
    for name, n in (counts or {}).items():
        assert got["model_stats"][MODELS.index(name)]["inference_stats"]["success"]["count"] == n
    status, got = s.get("/v2/models/model-0999/stats")
    assert status == 200 and [m["name"] for m in got["model_stats"]] == ["model-0999"]


def check_metrics(s):
    """Each family has its head once, and a sample of each model, or a histogram."""
    text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
    families = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in families, name
            families[name] = []
        elif not line.startswith("#"):
            sample, labels = re.match(r"([a-z_]+)(?:\{(.*?)\})? \S+$", line).groups()
            assert sample in (name, name + "_bucket", name + "_sum", name + "_count"), (name, line)
            model = re.search(r'model="([^"]*)"', labels or "")
            if model and not sample.endswith(("_bucket", "_sum")):
                families[name].append(model.group(1))
    of_models = [f for f in families.values() if f]
    assert len(of_models) > 10 and all(f == MODELS for f in of_models), {k: len(v) for k, v in families.items()}


def check_grpc(s):
    """Both lists on one connection: statistics, the index, models that are ready."""
    c = Connection(s, timeout=20)
    asked = ((b"ModelStatistics", EMPTY), (b"RepositoryIndex", EMPTY), (b"RepositoryIndex", b"\0\0\0\0\2\x10\1"))
    c.send(b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, head(method)) + frame(DATA, END_STREAM, 2 * i + 1, message)
                    for i, (method, message) in enumerate(asked)))
    data, ended = [b""] * len(asked), 0
    while ended < len(asked):
        kind, flags, stream, payload = c.frame()
        if kind == DATA and payload:
            data[stream // 2] += payload
            c.send(frame(WINDOW, 0, 0, struct.pack(">I", len(payload))) +
                   frame(WINDOW, 0, stream, struct.pack(">I", len(payload))))
        ended += kind in (DATA, HEADERS) and bool(flags & END_STREAM)
    for message in data:
        assert int.from_bytes(message[1:5], "big") == len(message) - 5
        assert [m.decode() for m in re.findall(rb"model-\d{4}", message)] == MODELS
    c.close()


def check_index(s):
    status, _, index = s.request("POST", "/v2/repository/index")
    assert status == 200 and [m["name"] for m in json.loads(index)] == MODELS


def check_together(s):
    problems = []

    def again(check):
        try:
            for _ in range(5):
                check(s)
        except Exception as problem:
            problems.append(repr(problem))

    clients = [threading.Thread(target=again, args=(c,)) for c in (check_stats, check_index, check_metrics, check_grpc) * 2]
    for c in clients:
        c.start()
    x = np.array([[-1, 2, -3, 4]], "f4")
    asked = {}
    while any(c.is_alive() for c in clients):
        name = MODELS[len(asked) % len(MODELS)]
        status, got = s.infer(name, {"inputs": [tensor("x", x)]})
        assert status == 200 and (got["outputs"][0]["array"] == [[0, 2, 0, 4]]).all()
        asked[name] = asked.get(name, 0) + 1
    assert not problems, problems[0]
    check_stats(s, asked)


def check_left(s):
    """Clients that ask and leave, at once or after a while."""
    before = len(os.listdir(f"/proc/{s.process.pid}/fd"))
    for i in range(60):
        raw = s.raw_socket()
        raw.sendall((b"GET /v2/models/stats HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")[i // 6 % 2] * 3)
        c = Connection(s, timeout=20)
        c.send(frame(HEADERS, END_HEADERS, 1, head((b"ModelStatistics", b"RepositoryIndex")[i // 6 % 2])) +
               frame(DATA, END_STREAM, 1, EMPTY))
        time.sleep(i % 6 * 0.002)
        raw.close()
        c.close()
    check_stats(s)
    wait_until(lambda: len(os.listdir(f"/proc/{s.process.pid}/fd")) <= before)
    # A list that a thread still composes holds its bytes after its client's descriptor is closed.
    wait_until(lambda: b"\nweft_http_held_bytes 0\n" in s.request("GET", "/metrics", port=s.metrics)[2])


compile_models()
with Server(bundle="many.weft") as server:
    for check in (check_stats, check_index, check_metrics, check_grpc, check_together, check_left):
        check(server)
        print(check.__name__, "ok", flush=True)
