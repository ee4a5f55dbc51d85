# needs: numpy
"""Batches and answers that do not fit into the memory shared with a worker go over the socket: sizes around and above it,
in turn with small ones, while small requests of another model are answered meanwhile."""
import http.client
import json
import subprocess
import threading
import time

import numpy as np
from serving import WEFT, Server, read_answer, wait_until
from tests.support.onnx_file import Graph, Node, Port

SHARED = 4 << 20  # largest size of the shared memory for a batch


def make_model(path, op, shape):
    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", shape))
    g.nodes.append(Node(op, ["x"], ["y"]))
    g.outputs.append(Port("y", "float32"))
    g.save(path)


def ask(connection, model, x):
    head = json.dumps({"inputs": [{"name": "x", "shape": list(x.shape), "datatype": "FP32",
                                   "parameters": {"binary_data_size": x.nbytes}}],
                       "parameters": {"binary_data_output": True}}).encode()
    connection.request("POST", f"/v2/models/{model}/infer", head + x.tobytes(),
                       {"Inference-Header-Content-Length": str(len(head))})
    reply = connection.getresponse()
    answer = read_answer({k.lower(): v for k, v in reply.getheaders()}, reply.read())
    assert reply.status == 200, answer
    return answer["outputs"][0]["array"]


def ask_small(server, stop, errors):
    connection, x = http.client.HTTPConnection("127.0.0.1", server.http, timeout=30), np.float32([[1, -2, 3, -4]])
    while not stop.is_set():
        if not (ask(connection, "small", x) == np.abs(x)).all():
            errors.append("wrong answer")


make_model("wide.onnx", "Neg", ["n", 2])
make_model("small.onnx", "Abs", ["b", 4])
with open("models.yaml", "w") as f:
    f.write("models:\n  - name: wide\n    file: wide.onnx\n  - name: small\n    file: small.onnx\n")
subprocess.run([WEFT, "compile", "models.yaml", "--batch", "1,4,3000000", "-o", "models.weft"], check=True)
rng = np.random.default_rng(0)
with Server() as server:
    stop, errors = threading.Event(), []
    other = threading.Thread(target=ask_small, args=(server, stop, errors))
    other.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
    sizes = [1, 1 << 17, SHARED // 8 - 100, 3, *range(SHARED // 8 - 32, SHARED // 8 + 1, 8), 3000000, 1]
    for n in sizes:
        x = rng.standard_normal((n, 2), dtype=np.float32)
        assert (ask(connection, "wide", x) == -x).all(), n
    # Clients that leave, and deadlines that pass, while their request is on its way to the worker.
    x = np.zeros((3000000, 2), np.float32)
    body = json.dumps({"inputs": [{"name": "x", "shape": list(x.shape), "datatype": "FP32", "parameters": {
        "binary_data_size": x.nbytes}}], "parameters": {"timeout": "TIMEOUT"}}).encode()
    for i in range(24):
        head = body.replace(b'"TIMEOUT"', str(1000 * (i % 12 + 1) if i % 2 else 0).encode())
        connection.request("POST", "/v2/models/wide/infer", head + x.tobytes(),
                           {"Inference-Header-Content-Length": str(len(head))})
        if i % 2:
            reply = connection.getresponse()
            assert reply.status in (200, 503), (reply.status, reply.read())
            reply.read()
        else:
            time.sleep(i / 2000)
            connection.close()
    y = rng.standard_normal((3000000, 2), dtype=np.float32)
    assert (ask(connection, "wide", y) == -y).all()
    stop.set()
    other.join()
    assert not errors, errors
    wait_until(lambda: b"\nweft_http_held_bytes 0\n" in server.request("GET", "/metrics", port=server.metrics)[2])
print("sizes", sizes)
