# needs: numpy
"""Start and end of the server: drain under load, bundles that cannot be served, workers that hang,
requests after the drain began, lack of descriptors."""
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import http2
import numpy as np
import serving
from serving import SLOW, WEFT, Server, compile_bundle, digits, is_close, read_answer, tensor, wait_until

compile_bundle(more=False)
x, want = digits()
GOOD = {"inputs": [tensor("image", x[:1])]}


def good(s):
    status, got = s.infer("digits", GOOD)
    assert status == 200 and is_close(got["outputs"][0]["array"], want[:1]), got


class Client(threading.Thread):
    """Sends requests until the server ends. Each answer must be whole, and 200, or 503 once the drain
    has begun. A connection may end only between two answers."""

    def __init__(self, server):
        super().__init__()
        self.server, self.answered, self.late, self.problem = server, 0, 0, None
        self.draining = False

    def run(self):
        try:
            self.ask()
        except (ConnectionError, http.client.RemoteDisconnected) as end:
            self.problem = None if self.draining else repr(end)
        except Exception as problem:
            self.problem = repr(problem)

    def ask(self):
        c = self.server.connect()
        body = json.dumps({"inputs": [tensor("image", x[:4])]})
        while True:
            c.request("POST", "/v2/models/digits-attn/infer", body)
            reply = c.getresponse()
            got = read_answer({k.lower(): v for k, v in reply.getheaders()}, reply.read())
            if reply.status == 503:
                assert self.draining, got
                self.late += 1
                return
            assert reply.status == 200, got
            self.answered += 1
            if reply.getheader("Connection") == "close":
                assert self.draining
                return


def check_drain():
    for number in (signal.SIGTERM, signal.SIGINT):
        server = Server()
        clients = [Client(server) for _ in range(16)]
        for c in clients:
            c.start()
        time.sleep(1.5)
        for c in clients:
            c.draining = True
        start = time.monotonic()
        server.process.send_signal(number)
        code = server.process.wait(30)
        took = time.monotonic() - start
        for c in clients:
            c.join()
        assert code == 0, (code, server.text())
        assert not [c.problem for c in clients if c.problem], [c.problem for c in clients]
        print(f"drain: {sum(c.answered for c in clients)} answers, {sum(c.late for c in clients)} "
              f"too late, ended in {took:.3f} s")


def check_accepted_are_answered():
    """Requests that wait for a stopped worker at SIGTERM are answered when the worker continues."""
    server = Server("--stall-timeout", "60s")
    worker, = server.workers()
    os.kill(worker, signal.SIGSTOP)
    body = json.dumps(GOOD).encode()
    waiting = []
    for _ in range(100):
        raw = server.raw_socket()
        raw.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                    % len(body) + body)
        waiting.append(raw)
    wait_until(lambda: b"weft_requests_pending{model=\"digits\",version=\"1\"} 100\n" in
               server.request("GET", "/metrics", port=server.metrics)[2])
    idle = server.connect()
    idle.request("GET", "/v2/health/ready")
    assert idle.getresponse().read()
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not reachable(server.http))
    # Connected clients see that the server is not ready.
    idle.request("GET", "/v2/health/ready")
    assert idle.getresponse().status == 400
    assert server.process.poll() is None
    os.kill(worker, signal.SIGCONT)
    for raw in waiting:
        reply = http.client.HTTPResponse(raw)
        reply.begin()
        got = json.loads(reply.read())
        assert reply.status == 200, got
        assert is_close(np.array([got["outputs"][0]["data"]], "f4"), want[:1])
    assert server.process.wait(10) == 0, server.text()


def reachable(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def call(connection, stream, path, message):
    connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, path) +
                    http2.frame(http2.DATA, http2.END_STREAM, stream, message))


def frames_until(connection, kind, stream):
    """Frames up to the first of this kind and stream, or to the end."""
    frames = [connection.frame()]
    while frames[-1] and (frames[-1][0], frames[-1][2]) != (kind, stream):
        frames.append(connection.frame())
    return frames


def goaways(frames):
    """Last stream and code."""
    return [struct.unpack(">II", f[3][:8]) for f in frames if f and f[0] == http2.GOAWAY]


def check_two_steps():
    """At SIGTERM a gRPC client is told to begin no more calls; what it sends before it has heard so is answered, what it
    sends later is not. Half-sent calls are refused then, and a client that does not answer has a second."""
    for acknowledges in (True, False):
        server = Server()
        c = http2.Connection(server)
        c.send(http2.frame(http2.SETTINGS, http2.ACK, 0))
        call(c, 1, http2.LIVE, http2.EMPTY)
        frames_until(c, http2.DATA, 1)
        c.send(http2.frame(http2.HEADERS, http2.END_HEADERS, 3, http2.INFER))
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        frames = frames_until(c, http2.PING, 0)
        assert frames[-1] and goaways(frames) == [(2**31 - 1, 0)], frames
        mark = frames[-1][3]
        if acknowledges:
            call(c, 5, http2.INFER, http2.infer_message(x[:1]))
            frames = frames_until(c, http2.DATA, 5)
            assert frames[-1] and not goaways(frames), frames
            c.send(http2.frame(http2.PING, http2.ACK, 0, mark))
            call(c, 7, http2.INFER, http2.infer_message(x[:1]))
        frames = frames_until(c, http2.WINDOW, 99)
        assert goaways(frames) == [(5 if acknowledges else 3, 0)] and frames[-1] is None, frames
        assert {f[2] for f in frames if f and f[0] in (http2.HEADERS, http2.DATA)} - {5} == {3}, frames
        assert acknowledges or time.monotonic() - start > 0.9
        assert server.process.wait(10) == 0, server.text()


def check_drain_timeout():
    """Requests left at the drain timeout get 503, and the exit code is 1."""
    server = Server("--drain-timeout", "1s", "--stall-timeout", "60s")
    os.kill(server.workers()[0], signal.SIGSTOP)
    got = []
    t = threading.Thread(target=lambda: got.append(server.infer("digits", GOOD)))
    t.start()
    wait_until(lambda: b"pending{model=\"digits\",version=\"1\"} 1\n" in
               server.request("GET", "/metrics", port=server.metrics)[2])
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 1 and "drain" in server.text(), server.text()
    t.join()
    assert got[0][0] == 503, got


def check_late():
    """Deadlines hold while a worker hangs, and a hung worker is replaced."""
    with Server("--timeout", "1s", "--stall-timeout", "60s") as s:
        good(s)
        os.kill(s.workers()[0], signal.SIGSTOP)
        results = {}

        def ask(name, timeout_us):
            start = time.monotonic()
            request = dict(GOOD, parameters={"timeout": timeout_us}) if timeout_us else GOOD
            status, got = s.infer("digits", request)
            results[name] = (status, time.monotonic() - start, got)
        threads = [threading.Thread(target=ask, args=("first", 0))]
        threads[0].start()
        wait_until(lambda: b"pending{model=\"digits\",version=\"1\"} 1\n" in
                   s.request("GET", "/metrics", port=s.metrics)[2])
        for name, timeout_us in (("short", 100000), ("long", 10**12), ("none", 0)):
            threads.append(threading.Thread(target=ask, args=(name, timeout_us)))
            threads[-1].start()
        for t in threads:
            t.join()
        for name, low, high in (("short", 0.1, 0.8), ("long", 1, 3), ("none", 1, 3), ("first", 1, 3)):
            status, took, got = results[name]
            assert status == 503 and low <= took <= high * SLOW, (name, results)
        wait_until(lambda: b"weft_worker_restarts_total 1\n" in
                   s.request("GET", "/metrics", port=s.metrics)[2])
        wait_until(lambda: s.get("/v2/health/ready")[0] == 200)
        good(s)


def check_never_ready():
    """A worker that hangs while it prepares its models is killed: at the start of the server that is
    an error, later the worker is started again."""
    with open("hang", "w") as f:
        f.write("#!/bin/sh\nexec sleep 1000\n")
    os.chmod("hang", 0o755)
    shutil.copy(os.path.join(os.path.dirname(serving.WEFT), "weft-server"), "weft")
    real, serving.WEFT = serving.WEFT, "./weft"
    try:
        with Server("--start-timeout", f"{SLOW}s") as s:
            good(s)
            os.rename("weft", "kept")
            os.rename("hang", "weft")  # a worker that starts now never becomes ready
            os.kill(s.workers()[0], signal.SIGKILL)
            wait_until(lambda: b"weft_worker_restarts_total 2\n" in
                       s.request("GET", "/metrics", port=s.metrics)[2])
            os.rename("weft", "hang")
            os.rename("kept", "weft")
            wait_until(lambda: s.get("/v2/health/ready")[0] == 200)
            good(s)
    finally:
        serving.WEFT = real
    late = Server("--start-timeout", "1ms", ready=False)
    assert late.process.wait(30) == 1, late.text()
    assert "a worker was not ready within 0.001 s" in late.text(), late.text()


def check_broken():
    """A bundle that cannot be served: a clear error and exit code 1."""
    def serve(path):
        got = subprocess.run([WEFT, "serve", path, "--http", "0", "--grpc", "0", "--metrics", "0"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        assert got.returncode == 1 and "READY" not in got.stdout, (path, got)
        return got.stderr
    with open("models.weft", "rb") as f:
        whole = bytearray(f.read())
    damaged = bytearray(whole)
    for at in range(len(whole) // 2, len(whole) // 2 + 4096):
        damaged[at] ^= 0xff  # weights: only a worker reads them
    for name, content, word in (("none.weft", None, "none.weft"), ("empty.weft", b"", "empty.weft"),
                                ("cut.weft", whole[:-100], "cut.weft"),
                                ("damaged.weft", damaged, "checksum"),
                                ("text.weft", b"no bundle\n" * 100, "text.weft")):
        if content is not None:
            with open(name, "wb") as f:
                f.write(content)
        error = serve(name)
        assert word in error and len(error.splitlines()) <= 3, (name, error)
        print("broken:", error.strip())


def check_files():
    """Without free descriptors the server waits, and continues when some are free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (48, hard))
    try:
        server = Server()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with server as s:
        good(s)
        many = [s.raw_socket() for _ in range(100)]
        time.sleep(0.3)
        for raw in many:
            raw.close()
        wait_until(lambda: answers(s))
        good(s)


def check_held_bytes():
    """Unfinished bodies hold at most three quarters of the memory of 16 of maximum size; small requests are
    answered beside them."""
    with Server("--max-request", "8MiB") as s:
        good(s)
        held = []
        for _ in range(40):
            raw = s.raw_socket()
            raw.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 7340033\r\n\r\n"
                        + bytes(7 << 20))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            held.append(raw)
        for _ in range(10):
            good(s)
        answered = 0
        for raw in held:
            raw.setblocking(False)
            try:
                got = raw.recv(65536)
                assert got.startswith(b"HTTP/1.1 503") and b"bytes" in got, got
                answered += 1
            except BlockingIOError:
                pass
            except ConnectionResetError:
                answered += 1  # the slowest was closed for another
        assert 40 - answered <= 14, answered
        text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
        bytes_held = int(text.split("\nweft_http_held_bytes ")[1].split("\n")[0])
        assert bytes_held <= 96 << 20, bytes_held
        for raw in held:
            raw.close()
        wait_until(lambda: answers(s))
        good(s)
        print(f"held: {bytes_held >> 20} MiB of {40 - answered} bodies")


def answers(s):
    try:
        return s.infer("digits", GOOD)[0] == 200
    except OSError:
        return False


for check in (check_broken, check_drain, check_two_steps, check_accepted_are_answered, check_drain_timeout, check_late,
              check_never_ready, check_files, check_held_bytes):
    check()
    print(check.__name__, "ok", flush=True)
