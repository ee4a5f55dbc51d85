"""Shared by the tests of the server: a server on a bundle of the demo's models, an HTTP client that
needs only the standard library, and the expected answers."""
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np

sys.path.insert(0, os.environ["WEFT_SOURCE_DIR"])
from tests.support.onnx_file import Graph, Node, Port

WEFT = os.environ["WEFT"]
EXAMPLES = os.path.join(os.environ["WEFT_SOURCE_DIR"], "examples")
ONNX_DATA = os.environ.get("WEFT_ONNX_DATA", "")
# How many times as slow as a CPU the server is (10: in an interpreter of another architecture); times are so much longer.
SLOW = float(os.environ.get("WEFT_SLOW", "1"))

# Small models of the ONNX conformance data with inputs that the demo's models lack.
ONNX_MODELS = {
    "add": "node/test_add",                     # two inputs, cannot be batched
    "split": "node/test_split_equal_parts_1d",  # several outputs
    "not": "node/test_not_2d",                  # BOOL
    "half": "node/test_cast_FLOAT16_to_FLOAT",  # FP16
    "gather": "node/test_gather_0",             # INT64
}


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def is_sanitized():
    """AddressSanitizer maps more shadow memory than any limit allows, and keeps what was freed."""
    server = os.path.join(os.path.dirname(os.path.realpath(WEFT)), "weft-server")
    with open(server if os.path.exists(server) else WEFT, "rb") as f:
        return b"__asan_init" in f.read()


def compile_bundle(path="models.weft", more=True):
    """Compiles the demo's models and, if installed, some models of the ONNX conformance data."""
    with open(os.path.join(EXAMPLES, "digits.yaml")) as f:
        text = f.read().replace("file: ", f"file: {EXAMPLES}/")
    have = {}
    for name, folder in ONNX_MODELS.items():
        model = os.path.join(ONNX_DATA, folder, "model.onnx")
        if more and os.path.exists(model):
            have[name] = os.path.join(ONNX_DATA, folder)
            text += f"  - name: {name}\n    file: {model}\n"
    with open("models.yaml", "w") as f:
        f.write(text)
    subprocess.run([WEFT, "compile", "models.yaml", "-o", path], check=True)
    return have


def write_small(path):
    """A model `y = x + x` of f32[B, 4]."""
    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", ["B", 4]))
    g.nodes.append(Node("Add", ["x", "x"], ["y"], {}))
    g.outputs.append(Port("y", "float32"))
    g.save(path)


def digits(key="digits_cnn"):
    """The held-out digits and the expected outputs of the model."""
    return (np.load(f"{EXAMPLES}/digits_test.x.npy").astype("f4"),
            np.load(f"{EXAMPLES}/digits_test.logits.npz")[key].astype("f4"))


def is_close(got, want):
    return got.shape == want.shape and np.abs(got - want).max() < 1e-4 * np.abs(want).max()


def ask_at_once(requests, want, ask, last, clients=12, each=60):
    """Clients at once ask some of the requests, in an order of their own, get the answers `want` within 1e-5, and call
    last()."""
    problems = []

    def client(seed):
        mine = random.Random(seed)
        try:
            for i in mine.sample(range(len(requests)), each):
                got = ask(*requests[i])
                assert list(got) == list(want[i]), (list(got), list(want[i]))
                for name, array in want[i].items():
                    assert got[name].shape == array.shape, (name, got[name].shape, array.shape)
                    assert np.abs(got[name] - array).max() < 1e-5, (requests[i][0], name, np.abs(got[name] - array).max())
            last()
        except Exception as problem:
            problems.append(repr(problem))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems, problems[:3]


def patience(options=()):
    """Longer times for a slow server, in place of those that it has without these options."""
    times = {"--timeout": 30, "--stall-timeout": 0.3, "--drain-timeout": 30}
    return [f"{option}={seconds * SLOW}s" for option, seconds in times.items()
            if SLOW != 1 and not any(o.startswith(option) for o in options)]


class Server:
    """`weft serve` on free ports; on exit sends SIGTERM and checks for exit code 0."""

    def __init__(self, *options, bundle="models.weft", ready=True):
        # Appended to: the server shares the position of the file, which text() moves.
        open("server.log", "w").close()
        self.log = open("server.log", "a+")
        self.bundle, self.options = bundle, options
        self.start((0, 0, 0), ready)

    def start(self, ports, ready=True):
        """On these ports for HTTP, gRPC and metrics; 0: any free one."""
        http, grpc, metrics = map(str, ports)
        self.process = subprocess.Popen(
            [WEFT, "serve", self.bundle, "--http", http, "--grpc", grpc, "--metrics", metrics,
             *patience(self.options), *self.options], stdout=subprocess.PIPE, stderr=self.log, text=True)
        if ready:
            line = self.process.stdout.readline().split()
            if not line or line[0] != "READY":
                self.process.wait(10)
                raise AssertionError(f"no READY line but {line}: {self.text()}")
            ports = dict(part.split("=") for part in line[1:])
            self.http, self.grpc = int(ports["http"]), int(ports["grpc"])
            self.metrics = int(ports["metrics"])
            self.health = int(ports.get("health", -1))

    def kill(self):
        """Without a chance to clean up; start() with the same ports is what a supervisor does."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def count(self, name):
        """A counter of the metrics that has no labels."""
        text = self.request("GET", "/metrics", port=self.metrics)[2].decode()
        return int([line for line in text.splitlines() if line.startswith(f"weft_{name}_total ")][0].split()[1])

    def workers(self):
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)],
                                  stdout=subprocess.PIPE, text=True).stdout.split()
        return [int(pid) for pid in children]

    def memory_mib(self, of="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(of)) / 1024

    def stop(self, timeout=30, code=0):
        self.process.send_signal(signal.SIGTERM)
        got = self.process.wait(timeout * SLOW)
        assert got == code, f"exit code {got}: {self.text()}"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            if kind:
                self.process.kill()
                self.process.wait()
                print(self.text(), file=sys.stderr)
            else:
                self.stop()

    # -- HTTP ---------------------------------------------------------------------------------

    def connect(self, timeout=30):
        return http.client.HTTPConnection("127.0.0.1", self.http, timeout=timeout * SLOW)

    def request(self, method, path, body=None, headers=None, port=None):
        """Status, headers (lower case) and body."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http, timeout=30 * SLOW)
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, body

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, json.loads(body)

    def post_repository(self, path, body=None):
        """A request of the model repository: status, and the answer's object."""
        status, _, got = self.request("POST", f"/v2/repository/{path}", None if body is None else json.dumps(body))
        return status, json.loads(got)

    def infer(self, model, request, binary=b"", headers=None, version=""):
        """Sends an infer request (object or bytes); returns the status and read_answer's result."""
        head = request if isinstance(request, bytes) else json.dumps(request).encode()
        headers = dict(headers or {})
        if binary:
            headers.setdefault("Inference-Header-Content-Length", str(len(head)))
        status, got, body = self.request("POST", f"/v2/models/{model}{version}/infer",
                                         head + binary, headers)
        return status, read_answer(got, body)

    def ask(self, model, x):
        """Sends the input `x` in binary; returns the status, and the first output or the error."""
        status, got = self.infer(model, {"inputs": [tensor("x", x, True)], "parameters": {"binary_data_output": True}},
                                 x.tobytes())
        return status, got["outputs"][0]["array"] if status == 200 else got["error"]

    def ask_small(self):
        """Asks the model of write_small; returns how long it took."""
        x = np.arange(4, dtype="f4").reshape(1, 4)
        start = time.monotonic()
        status, got = self.ask("small", x)
        assert status == 200 and np.array_equal(got, x + x), (status, got)
        return time.monotonic() - start

    def raw_socket(self, timeout=30):
        return socket.create_connection(("127.0.0.1", self.http), timeout=timeout * SLOW)


DTYPES = {"FP32": "f4", "FP16": "f2", "FP64": "f8", "INT64": "i8", "INT32": "i4", "BOOL": "?",
          "UINT8": "u1", "INT8": "i1"}


def read_answer(headers, body):
    """The JSON of an answer; each output gets its array as "array"."""
    length = headers.get("inference-header-content-length")
    head = json.loads(body[:int(length)] if length else body)
    at = int(length) if length else len(body)
    for output in head.get("outputs", []):
        dtype = np.dtype(DTYPES[output["datatype"]])
        if "data" in output:
            # C++ clients cannot read nested data and need this key in all parameters.
            assert "parameters" not in output
            assert not any(isinstance(x, list) for x in output["data"])
            array = np.array(output["data"], dtype)
        else:
            size = output["parameters"]["binary_data_size"]
            array = np.frombuffer(body[at:at + size], dtype)
            at += size
        output["array"] = array.reshape(output["shape"])
    assert at == len(body), "bytes follow the last output"
    return head


def tensor(name, array, binary=False):
    names = {np.dtype(v): k for k, v in DTYPES.items()}
    t = {"name": name, "shape": list(array.shape), "datatype": names[array.dtype]}
    if binary:
        t["parameters"] = {"binary_data_size": array.nbytes}
    else:
        t["data"] = array.flatten().tolist()
    return t


def check_images(connection, model, images, want):
    """Asks an image model over an open connection, in binary; the answer must be `want`."""
    head = json.dumps({"inputs": [tensor("image", images, True)],
                       "parameters": {"binary_data_output": True}}).encode()
    connection.request("POST", f"/v2/models/{model}/infer", head + images.tobytes(),
                       {"Inference-Header-Content-Length": str(len(head))})
    reply = connection.getresponse()
    got = read_answer({k.lower(): v for k, v in reply.getheaders()}, reply.read())
    assert reply.status == 200, (reply.status, got)
    assert is_close(got["outputs"][0]["array"], want), (model, len(images))


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.02)
