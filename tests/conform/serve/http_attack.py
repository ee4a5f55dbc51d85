# needs: numpy
# ctest label: both (memory is measured)
"""Attacks on the HTTP transport: framing that proxies read in other ways, floods of connections, slow
clients, lack of descriptors, compressed bodies. Each is refused or survived, and others are served
meanwhile."""
import gzip
import json
import multiprocessing
import os
import re
import resource
import signal
import socket
import struct
import time

from serving import Server, compile_bundle, digits, is_close, tensor, wait_until

compile_bundle(more=False)
x, want = digits()
GOOD = {"inputs": [tensor("image", x[:1])]}
BODY = json.dumps(GOOD).encode()
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nX-A: "
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


def infer_head(length, more=b""):
    return b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n" % (length, more)


def good(s):
    status, got = s.infer("digits", GOOD)
    assert status == 200 and is_close(got["outputs"][0]["array"], want[:1]), got


def read_all(raw, seconds=5, answers=0):
    """Bytes up to the end of the connection, or until none come for a while after so many answers; and whether it
    ended."""
    got = b""
    try:
        while True:
            raw.settimeout(seconds if got.count(b"HTTP/1.1 ") >= answers else 30)
            part = raw.recv(65536)
            if not part:
                return got, True
            got += part
    except TimeoutError:
        return got, False
    except ConnectionResetError:
        return got, True


def live(s, seconds=2):
    """A probe on a connection of its own: seconds that it took."""
    start = time.monotonic()
    with s.raw_socket(seconds) as raw:
        raw.sendall(LIVE)
        assert raw.recv(65536).startswith(b"HTTP/1.1 200"), "no health"
    return time.monotonic() - start


def descriptors(s):
    return len(os.listdir(f"/proc/{s.process.pid}/fd"))


def metric(s, name):
    text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
    return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))


# -- Framing --------------------------------------------------------------------------------------


def vectors():
    with open(os.path.join(os.environ["WEFT_SOURCE_DIR"], "tests/support/http1_vectors.def")) as f:
        rows = re.findall(r'^VECTOR\("(.*?)", "(.*?)",\s*"((?:\\.|[^"\\])*)"\)', f.read(), re.M)
    return [(name, answers.split(), text.encode().decode("unicode_escape").encode("latin1"))
            for name, answers, text in rows]


def check_vectors():
    """A valid request is answered by its route; what is hidden behind a doubtful framing is not (there is no
    /hid, it would be 404), and after an error the connection ends."""
    rows = vectors()
    assert len(rows) == 50
    with Server() as s:
        raws = []
        for _, _, text in rows:
            raws.append(s.raw_socket())
            raws[-1].sendall(text.replace(b"/a", b"/v2/repository/index", 1))
        for (name, answers, _), raw in zip(rows, raws):
            got, ended = read_all(raw, 0.3 if answers[-1] == "200" else 5, len(answers))
            statuses = re.findall(rb"HTTP/1\.1 (\d+)", got)
            expected = [a.encode() for a in answers]
            if answers == ["200", "200"]:
                expected[1] = b"404"  # a second request that is not hidden
            if name == "GET with CL body":
                expected[0] = b"405"
            assert statuses == expected and ended == (answers[-1] != "200"), (name, got, ended)
        refused = sum(answers[-1] != "200" for _, answers, _ in rows)
        assert metric(s, "weft_http_malformed_total") == refused
        print(f"vectors: {refused} of {len(rows)} refused, the others read as meant")


def check_smuggling():
    """The hidden request asks for a model that exists."""
    hidden = b"GET /v2/models/parity/config HTTP/1.1\r\nHost: x\r\n\r\n"
    n = len(hidden)
    with Server() as s:
        for fields in (b"Content-Length : %d" % n, b"Content-Length: 0\r\nContent-Length: %d" % n,
                       b"Content-Length: %d\r\nContent-Length: 0" % n,
                       b"Content-Length: %d\r\nTransfer-Encoding: chunked" % (n + 5),
                       b"Transfer-Encoding: chunked\r\nContent-Length: %d" % (n + 5),
                       b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
                       b"Transfer-Encoding:\r\n chunked"):
            with s.raw_socket() as raw:
                raw.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n\r\n"
                            + (b"0\r\n\r\n" if b"Transfer" in fields else b"") + hidden)
                got, ended = read_all(raw)
                assert ended and got.count(b"HTTP/1.1 ") == 1 and b"HTTP/1.1 400" in got, (fields, got)
                assert b"parity" not in got


def check_manners():
    """What a strict server still has to do for correct clients."""
    with Server("--max-request", "1MiB") as s:
        # The last request of a pipeline says that it is; those before it are answered.
        raw = s.raw_socket()
        raw.sendall(LIVE * 3 + LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + LIVE)
        got, ended = read_all(raw)
        assert ended and got.count(b"HTTP/1.1 200") == 4 and got.count(b"Connection: close") == 1, got
        # HTTP/1.0, with and without keep-alive.
        for more, kept in ((b"", False), (b"Connection: keep-alive\r\n", True)):
            raw = s.raw_socket()
            raw.sendall(b"GET /v2/health/live HTTP/1.0\r\n" + more + b"\r\n")
            got, ended = read_all(raw, 0.3, 1)
            assert ended != kept and got.startswith(b"HTTP/1.1 200"), got
            assert (b"Connection: keep-alive" in got) == kept, got
        # A body that will be refused is not asked for.
        for head in (infer_head(2 << 20, b"Expect: 100-continue\r\n"),
                     b"POST /v2/none HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"):
            raw = s.raw_socket()
            raw.sendall(head)
            got, ended = read_all(raw)
            assert ended and got.startswith(b"HTTP/1.1 4") and b"100 Continue" not in got, got
        # A short body of a refused request is dropped, and the connection is kept.
        raw = s.raw_socket()
        raw.sendall(b"POST /v2/none HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123456789" + LIVE)
        got, ended = read_all(raw, 0.3, 2)
        assert not ended and re.findall(rb"HTTP/1\.1 (\d+)", got) == [b"404", b"200"], got
        # OPTIONS of the server, and methods.
        for line, status in ((b"OPTIONS *", b"200"), (b"FETCH /v2", b"501"), (b"TRACE /v2", b"405")):
            raw = s.raw_socket()
            raw.sendall(line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            got, _ = read_all(raw)
            assert got.startswith(b"HTTP/1.1 " + status), got


# -- Floods ---------------------------------------------------------------------------------------


def check_aborted():
    """Connect, send, close: 3000 times, in each state of a request, some with a reset."""
    whole = infer_head(len(BODY)) + BODY
    reset = struct.pack("ii", 1, 0)
    with Server() as s:
        good(s)
        before = descriptors(s)
        for data in (b"G", HALF, infer_head(1000) + b"{", whole, b""):
            start = time.monotonic()
            for i in range(3000 if data == b"G" else 600):
                raw = s.raw_socket(2)
                raw.sendall(data)
                if i % 3 == 2:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                raw.close()
            took = time.monotonic() - start
            probe = live(s)
            wait_until(lambda: descriptors(s) <= before, 10)
            print(f"aborted {data[:20]}: {took:.2f} s, probe {probe * 1e3:.0f} ms")
        wait_until(lambda: s.request("GET", "/metrics", port=s.metrics)[2].count(b'pending{model="digits",version="1"} 0\n'))
        good(s)


def check_slow():
    """2100 half-sent requests at a byte each 3 s, 16 trickled uploads, and clients that do not read: probes and
    inferences are answered, and the slow ones are closed."""
    with Server("--max-request", "4MiB") as s:
        good(s)
        heads, uploads, deaf = [], [], []
        for _ in range(16):
            raw = s.raw_socket()
            raw.sendall(infer_head(4 << 20) + b" " * (3 << 20))
            uploads.append(raw)
        for _ in range(8):
            raw = s.raw_socket()
            raw.setblocking(False)
            asks, sent = b"GET /v2/models/stats HTTP/1.1\r\nHost: x\r\n\r\n" * 1000, 1
            while sent:
                try:
                    sent = raw.send(asks)
                except BlockingIOError:
                    sent = 0
            deaf.append(raw)
        for _ in range(2100):
            raw = s.raw_socket()
            raw.sendall(HALF)
            heads.append(raw)
        start, slowest = time.monotonic(), 0
        for turn in range(6):
            for raw in heads + uploads:
                try:
                    raw.send(b"a")
                except OSError:
                    pass
            end = start + 3 * (turn + 1)
            while time.monotonic() < end:
                began = time.monotonic()
                good(s)
                slowest = max(slowest, live(s), time.monotonic() - began)
                time.sleep(0.1)
        assert slowest < 2, slowest
        assert s.memory_mib() < 700, s.memory_mib()  # with a sanitizer's; without 60
        late = sum(read_all(raw, 0.01)[0].startswith(b"HTTP/1.1 408") for raw in heads)
        assert late == len(heads), late
        assert all(read_all(raw, 0.01)[1] for raw in uploads)
        wait_until(lambda: metric(s, "weft_http_connections") <= 1, 60)  # clients that do not read, too
        assert metric(s, "weft_http_held_bytes") == 0
        print(f"slow clients: {late} heads got 408, slowest probe with inference {slowest * 1e3:.0f} ms")


def check_full():
    """More connections than the limit: unfinished heads go first; when all run requests, health is still
    answered, and the rest gets 503 at once."""
    with Server("--max-connections", "32", "--stall-timeout", "60s") as s:
        half = []
        for _ in range(200):
            try:
                half.append(s.raw_socket())
                half[-1].sendall(HALF)
            except ConnectionError:
                pass  # closed for one of the next already
        for _ in range(20):
            live(s)
            good(s)
        assert metric(s, "weft_http_evicted_total") >= 168
        worker, = s.workers()
        os.kill(worker, signal.SIGSTOP)
        running = []
        for _ in range(32):
            running.append(s.raw_socket())
            running[-1].sendall(infer_head(len(BODY)) + BODY)
        wait_until(lambda: b'pending{model="digits",version="1"} 32\n' in
                   s.request("GET", "/metrics", port=s.metrics)[2])
        for _ in range(20):
            live(s)
            assert s.request("GET", "/v2/health/live", port=s.metrics)[0] == 200
        status, _, body = s.request("GET", "/v2")
        assert status == 503 and b"connections" in body, (status, body)
        os.kill(worker, signal.SIGCONT)
        for raw in running:
            assert raw.recv(65536).startswith(b"HTTP/1.1 200")


def check_address():
    """One address may have so many connections."""
    with Server("--max-peer-connections", "5") as s:
        kept = [s.raw_socket() for _ in range(5)]
        for raw in kept:
            raw.sendall(LIVE)
            assert raw.recv(65536).startswith(b"HTTP/1.1 200")
        more = s.raw_socket()
        assert read_all(more) == (b"", True)
        kept.pop().close()
        wait_until(lambda: answers(s))
        assert metric(s, "weft_http_refused_total") >= 1
        # The same over gRPC.
        hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        def open_grpc():
            raw = socket.create_connection(("127.0.0.1", s.grpc), timeout=10)
            try:
                raw.sendall(hello)
                return raw, len(raw.recv(65536)) > 0
            except ConnectionError:
                return raw, False
        kept = [open_grpc() for _ in range(6)]
        assert [ok for _, ok in kept] == [True] * 5 + [False]
        kept.pop(0)[0].close()
        wait_until(lambda: open_grpc()[1])


def answers(s):
    try:
        return live(s) < 2
    except (OSError, AssertionError):
        return False


def check_descriptors():
    """64 descriptors, clients that hold all that can be had, and a worker that is killed: it is started
    again, and a kept connection is served."""
    with Server() as s:
        resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        kept = s.connect()

        def ask():
            kept.request("POST", "/v2/models/digits/infer", BODY)
            reply = kept.getresponse()
            return reply.status, reply.read()

        assert ask()[0] == 200
        idle = []
        for _ in range(50):
            idle.append(s.raw_socket())
            idle[-1].sendall(b"GET /")
        assert ask()[0] == 200
        worker, = s.workers()
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: s.workers() not in ([], [worker]), 10)
        status, body = ask()
        assert status == 200, body
        live(s)
        print(f"descriptors: {descriptors(s)} of 64 used, worker started again")


def flood(port, until):
    """Opens connections that send nothing, as fast as it can, with 200 at a time."""
    kept = []
    while time.monotonic() < until:
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", port))
        kept.append(s)
        if len(kept) > 200:
            kept.pop(0).close()


def check_probes():
    """Beside two processes that connect to the port of probes as fast as they can every probe is answered: of 18
    there were 16 without an answer."""
    with Server("--health", "0") as s:
        until, n, longest = time.monotonic() + 2, 0, 0
        others = [multiprocessing.Process(target=flood, args=(s.health, until)) for _ in range(2)]
        for p in others:
            p.start()
        while time.monotonic() < until:
            start = time.monotonic()
            assert s.request("GET", "/v2/health/live", port=s.health)[0] == 200
            n, longest = n + 1, max(longest, time.monotonic() - start)
            time.sleep(0.05)
        for p in others:
            p.join()
        print(f"probes beside a flood of connections: {n} answered, the slowest in {longest * 1e3:.0f} ms")


# -- Compressed bodies ----------------------------------------------------------------------------


def check_bombs():
    """A few kilobytes must not become gigabytes: 23 KB of JSON were 1.85 GB."""
    with Server() as s:
        good(s)
        before = s.memory_mib()
        bombs = [b'{"inputs":[' + b" " * (24 << 20) + b"]}", b'{"inputs":[{"data":[' + b"0," * (12 << 20) + b"0]}]}",
                 b'{"a":[' + b"[]," * (8 << 20) + b"0]}"]
        for plain in bombs:
            start = time.monotonic()
            status, got = s.infer("digits", gzip.compress(plain), headers={"Content-Encoding": "gzip"})
            assert status == 400 and "64 times" in got["error"], got
            assert time.monotonic() - start < 2
        assert s.memory_mib() - before < 500, (before, s.memory_mib())  # with a sanitizer's; without 10
        # What real data compresses to is accepted; what follows the compressed data is not.
        packed = gzip.compress(BODY)
        assert s.infer("digits", packed, headers={"Content-Encoding": "gzip"})[0] == 200
        for more in (b"x", packed):
            status, got = s.infer("digits", packed + more, headers={"Content-Encoding": "gzip"})
            assert status == 400 and "damaged" in got["error"], got


for check in (check_vectors, check_smuggling, check_manners, check_aborted, check_slow, check_full, check_address,
              check_bombs, check_descriptors, check_probes):
    check()
    print(check.__name__, "ok", flush=True)
