"""The scenario `serve` of faults.py: a server that is asked over HTTP and gRPC, loses its worker, is
asked again, and drains."""
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

MODELS = ("digits", "parity", "digits-attn")
READY_S, LASTING_S, RECOVER_S, END_S, ASK_S = 60, 15, 20, 30, 5


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes((n & 127 | 128,)), n >> 7
    return out + bytes((n,))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def grpc_message(model, image):
    shape = b"".join(varint(n) for n in (len(image) // 256, 1, 8, 8))
    tensor = field(1, b"image") + field(2, b"FP32") + field(3, shape)
    message = field(1, model.encode()) + field(5, tensor) + field(7, image)
    return b"\0" + struct.pack(">I", len(message)) + message


class Failed(Exception):
    """An answer that says that it is an error, or none."""


class Serve:
    name, program, can_fork = "serve", "weft-server", False

    def __init__(self, bundle, examples):
        self.bundle, self.image, self.want, self.grpc_want = bundle, None, {}, None
        self.shown = {}  # pages that never change

    def read_image(self):
        with open(os.path.join(os.path.dirname(self.bundle), "x.npy"), "rb") as f:
            data = f.read()
        self.image = data[-3 * 256:][:256]

    # -- Requests -----------------------------------------------------------------------------

    def ask(self, port, model, binary):
        head = {"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32"}]}
        if binary:
            head["inputs"][0]["parameters"] = {"binary_data_size": 256}
        else:
            head["inputs"][0]["data"] = struct.unpack("<64f", self.image)
        text = json.dumps(head).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))} if binary else {}
        status, body = self.http(port, "POST", f"/v2/models/{model}/infer", text + (self.image if binary else b""),
                                 headers)
        if status != 200:
            raise Failed(status, body)
        return json.loads(body)["outputs"][0]["data"]

    def http(self, port, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_S)
        try:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException) as problem:
            raise Failed(repr(problem)) from None
        finally:
            connection.close()

    def grpc(self, port, model, folder):
        """The answer's message by curl; its trailers say whether it is one."""
        if not shutil.which("curl"):
            return None
        done = subprocess.run(
            ["curl", "-sS", "--http2-prior-knowledge", "-m", str(ASK_S), "-D", "/dev/stderr", "-o", "-", "-H",
             "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "@-",
             f"http://127.0.0.1:{port}/inference.GRPCInferenceService/ModelInfer"],
            input=grpc_message(model, self.image), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if b"grpc-status: 0\r" not in done.stderr:
            raise Failed(done.returncode, done.stderr)
        return done.stdout

    def ask_all(self, ports, folder):
        """Every kind of request once; raises Failed, or AssertionError for a wrong answer."""
        failed = []
        for model in MODELS:
            for binary in (False, True):
                try:
                    got = self.ask(ports["http"], model, binary)
                    want = self.want.setdefault(model, got)
                    assert len(got) == len(want) and all(abs(a - b) < 1e-4 * (1 + abs(b)) for a, b in
                                                         zip(got, want)), f"wrong answer of {model}"
                except Failed as problem:
                    failed.append(problem)
        for call in (lambda: self.grpc_asked(ports, folder), lambda: self.pages(ports)):
            try:
                call()
            except Failed as problem:
                failed.append(problem)
        if failed:
            raise Failed(*failed)

    def grpc_asked(self, ports, folder):
        got = self.grpc(ports["grpc"], "digits", folder)
        self.grpc_want = self.grpc_want or got
        assert got is None or len(got) == len(self.grpc_want), "wrong answer over gRPC"

    def pages(self, ports):
        for path in ("/v2", "/v2/models/digits", "/v2/models/digits/stats", "/v2/health/ready"):
            status, body = self.http(ports["http"], "GET", path)
            if status >= 400:
                raise Failed(path, status)
            if path in ("/v2", "/v2/models/digits"):
                assert self.shown.setdefault(path, body) == body, f"wrong answer: {path}"
        status, _ = self.http(ports["metrics"], "GET", "/metrics")
        if status != 200:
            raise Failed("metrics", status)

    # -- One run ------------------------------------------------------------------------------

    def attempt(self, programs, folder, env, mode):
        if self.image is None:
            self.read_image()
        with open(os.path.join(folder, "err"), "wb") as err:
            server = subprocess.Popen(
                [os.path.join(programs, self.program), "serve", self.bundle, "--http", "0", "--grpc", "0",
                 "--metrics", "0"], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=err, text=True)
        try:
            wrong = self.drive(server, folder, mode)
        except AssertionError as problem:
            wrong = str(problem)
        finally:
            if server.poll() is None:
                server.kill()
            server.wait()
            server.stdout.close()
        with open(os.path.join(folder, "err"), errors="replace") as f:
            message = f.read()
        if "Sanitizer" in message or "runtime error" in message:
            return "sanitizer"
        return wrong

    def drive(self, server, folder, mode):
        timer = threading.Timer(LASTING_S if mode == "on" else READY_S, server.kill)
        timer.start()
        line = server.stdout.readline().split()
        timer.cancel()
        if not line:
            return self.judge_start(server, folder, mode)
        ports = {k: int(v) for k, v in (part.split("=") for part in line[1:])}
        lasting = mode == "on"
        self.ask_until(ports, folder, lasting)
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(server.pid)], stdout=subprocess.PIPE,
                                  text=True).stdout.split()
        for pid in children[:1]:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(int(pid), signal.SIGKILL)
        self.ask_until(ports, folder, lasting)
        if server.poll() is not None:
            return f"the server ended: {server.returncode}"
        server.send_signal(signal.SIGTERM)
        try:
            code = server.wait(END_S)
        except subprocess.TimeoutExpired:
            return "hang at the end"
        return None if code == 0 or (code == 1 and mode == "on") else f"exit code {code}"

    def judge_start(self, server, folder, mode):
        try:
            code = server.wait(END_S)
        except subprocess.TimeoutExpired:
            return "hang"
        with open(os.path.join(folder, "err"), errors="replace") as f:
            message = f.read()
        if code == -signal.SIGKILL and mode == "on":
            return None  # no worker ever starts: it waits, and says why in its log
        if code == -signal.SIGKILL:
            return "not ready, and not ended"
        if code != 1:
            return f"crash: {code}"
        if mode in ("short", "intr"):
            return f"a call that was {mode} is an error"
        return None if message.strip() else "no message"

    def ask_until(self, ports, folder, lasting):
        """After one failure the server recovers; with lasting ones it need not."""
        end = time.monotonic() + RECOVER_S
        while True:
            try:
                self.ask_all(ports, folder)
                return
            except Failed as problem:
                assert lasting or time.monotonic() < end, f"does not recover: {problem}"
                if lasting:
                    return
                time.sleep(0.1)
