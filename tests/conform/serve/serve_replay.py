# needs: numpy
"""weft replay against a real server, and against servers that are slow, absent or hostile."""
import json
import os
import socket
import subprocess
import threading
import time

from serving import EXAMPLES, WEFT, Server, compile_bundle

compile_bundle(more=False)
METADATA = {"name": "digits", "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}], "outputs": []}

with open("one.yaml", "w") as f:
    f.write(f"models:\n  - name: digits\n    file: {EXAMPLES}/digits_cnn.onnx\n    slo: 100ms\n    rate: 100/s\n")


def replay(to, *options, code=0):
    done = subprocess.run([WEFT, "replay", "--to", str(to), "--set", "one.yaml", "--format", "json", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == code, f"exit code {done.returncode}: {done.stderr}"
    return (json.loads(done.stdout) if code == 0 else None), done.stderr


def write_trace(n, gap, path="trace.csv"):
    with open(path, "w") as f:
        f.write("time_s,model\n" + "".join(f"{i * gap:.6f},digits\n" for i in range(n)))
    return path


def check_sums(r):
    for c in [r["total"], *r["models"]]:
        assert c["requests"] == c["answered"] + c["dropped"], c
        assert c["answered"] == c["good"] + c["late"], c
        assert c["dropped"] == c["refused"] + sum(c["errors"].values()), c


class Fake:
    """A server that answers metadata rightly, and requests with `answer(connection, head, number)`."""

    def __init__(self, answer, metadata=METADATA, keep=True):
        self.answer, self.metadata, self.n, self.bodies = answer, metadata, 0, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.to = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    more = c.recv(65536)
                    if not more:
                        return c.close()
                    data += more
                head, data = data.split(b"\r\n\r\n", 1)
                length = [int(f.split(b":")[1]) for f in head.split(b"\r\n") if f.lower().startswith(b"content-length")]
                while length and len(data) < length[0]:
                    data += c.recv(65536)
                body, data = data[:sum(length)], data[sum(length):]
                if head.startswith(b"GET"):
                    text = self.metadata if isinstance(self.metadata, bytes) else json.dumps(self.metadata).encode()
                    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
                    continue
                self.n += 1
                self.bodies.append(body)
                if self.answer(c, head, self.n) == "close":
                    return c.close()
        except OSError:
            c.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def send(data, then=None):
    def answer(c, head, n):
        c.sendall(data)
        return then
    return answer


def real_server():
    """All answers come; the same requests as the simulator has; comparison; a UNIX socket; a file as input."""
    with Server() as s:
        r, _ = replay(f"127.0.0.1:{s.http}", "--duration", "2s", "--seed", "7", "--bucket", "500ms", "--input",
                      f"digits:image=@{EXAMPLES}/digits_test.x.npy")
        check_sums(r)
        assert r["total"]["requests"] == r["total"]["answered"] > 100, r["total"]
        assert sum(b["models"][0]["requests"] for b in r["time"]) == r["total"]["requests"]
        assert sum(b["models"][0]["answered"] for b in r["time"]) == r["total"]["answered"]
        out = subprocess.run([WEFT, "simulate", "plan.json", "--set", "one.yaml", "--duration", "2s", "--seed", "7",
                              "--format", "json"], stdout=subprocess.PIPE, check=True).stdout
        with open("sim.json", "wb") as f:
            f.write(out)
        simulated = json.loads(out)
        assert simulated["total"]["requests"] == r["total"]["requests"]
        for key in "requests", "answered", "good", "late", "dropped", "goodput_per_s", "p50_us", "p99_us", "slo_us":
            assert key in simulated["models"][0] and key in r["models"][0], key
        r, _ = replay(f"127.0.0.1:{s.http}", write_trace(20, 0.05), "--speed", "2", "--compare", "sim.json")
        assert r["total"]["answered"] == 20 and 0.4 < r["replayed_s"] < 5, r
        assert 0 < r["models"][0]["host_us"] < r["models"][0]["sent_mean_us"], r["models"][0]
        row = r["compare"][0]["p50_us"]
        assert row["ratio"] == row["live"] / row["simulated"] or abs(row["ratio"] * row["simulated"] / row["live"] - 1) < 1e-6


def slow_server():
    """Requests leave at their times while no answer comes, and latencies count from those times."""
    def answer(c, head, n):
        time.sleep(0.4)
        c.sendall(OK)
    s = Fake(answer)
    start = time.monotonic()
    r, _ = replay(s.to, write_trace(100, 0.005), "--connections", "1", "--max-connections", "200")
    took = time.monotonic() - start
    check_sums(r)
    assert "host_us" not in r["models"][0], r["models"][0]  # of a server without statistics
    assert r["total"]["answered"] == 100 and took < 10, (r["total"], took)  # one after the other: 40 s
    assert 0.4e6 * 0.99 <= r["total"]["p50_us"], r["total"]  # bins are 1 % wide
    assert r["sender"]["connections_most"] > 10, r["sender"]
    # Two connections for the same: latencies from the planned time grow, those from sending do not.
    r, err = replay(s.to, write_trace(10, 0.005), "--connections", "2", "--max-connections", "2")
    assert r["total"]["p99_us"] > 1.5e6 > r["total"]["sent_p50_us"], r["total"]
    assert "waited for a connection" in err, err


def faults():
    """Each kind of wrong answer is counted as what it is."""
    long = b"HTTP/1.1 200 OK\r\nX: " + b"a" * 20000
    cases = [
        ("refused", send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")),
        ("refused", send(b"HTTP/1.1 429 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "close")),
        ("status", send(b"HTTP/1.1 400 No\r\nContent-Length: 3\r\n\r\nabc")),
        ("status", send(b"HTTP/1.1 204 No Content\r\n\r\n")),
        ("closed", lambda c, head, n: "close"),
        ("closed", send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", "close")),
        ("closed", send(b"HTTP/1.1 200 OK\r\n", "close")),
        ("protocol", send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("protocol", send(b"HTTP/1.1 200 OK\r\n\r\n")),
        ("protocol", send(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")),
        ("protocol", send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na")),
        ("protocol", send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n")),
        ("protocol", send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more than was said")),
        ("protocol", send(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)),
        ("protocol", send(b"\0\xff\r\n\r\n")),
        ("protocol", send(b"SSH-2.0-x\r\n\r\n")),
        ("protocol", send(b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n")),
        ("protocol", send(long)),
        ("timeout", lambda c, head, n: None),
        ("timeout", send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nabc")),
    ]
    for want, answer in cases:
        s = Fake(answer)
        r, _ = replay(s.to, write_trace(5, 0.01), "--timeout", "300ms")
        check_sums(r)
        t = r["total"]
        got = t["refused"] if want == "refused" else t["errors"][want]
        assert t["answered"] == 0 and got == 5, (want, t)
    # One byte at a time is an answer like any other.
    def trickle(c, head, n):
        for b in OK:
            c.sendall(bytes([b]))
            time.sleep(0.001)
    r, _ = replay(Fake(trickle).to, write_trace(5, 0.01))
    assert r["total"]["answered"] == 5, r["total"]
    # A server that closes each connection loses no request.
    close = send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", "close")
    r, _ = replay(Fake(close).to, write_trace(50, 0.005), "--connections", "2")
    assert r["total"]["answered"] == 50 and r["sender"]["connections_opened"] >= 48, r


def gone():
    """A server that ends its listening during the run."""
    def answer(c, head, n):
        s.listener.shutdown(socket.SHUT_RDWR)
        s.listener.close()
        c.sendall(OK)
        return "close"
    s = Fake(answer)
    r, _ = replay(s.to, write_trace(20, 0.05), "--connections", "1", "--max-connections", "1", "--timeout", "2s")
    check_sums(r)
    assert r["total"]["answered"] >= 1 and r["total"]["errors"]["connect"] > 0, r["total"]


def metadata():
    """Wrong descriptions of inputs are refused by name; nothing is allocated by them."""
    def one(**change):
        return {"inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 4]} | change]}
    cases = [b"[]", b"{", b"{}", {"inputs": 3}, {"inputs": [3]}, one(datatype="BYTES"), one(datatype="X"), one(shape=[-1, -1]),
             one(shape=[-5]), one(shape=[1.5]), one(shape=[1 << 40, 1 << 40]), one(shape=[1] * 99), one(shape=[1 << 30]),
             one(name=5), b"x" * 2000000]
    for case in cases:
        _, err = replay(Fake(send(OK), metadata=case).to, code=1)
        assert "error" in err and ("digits" in err or "127.0.0.1" in err), (case, err)
    s = Fake(send(OK))
    s.listener.close()
    _, err = replay(s.to, code=1)
    assert "cannot connect" in err, err
    _, err = replay("https://localhost:1", code=1)
    assert "TLS" in err, err
    _, err = replay("unix:nothing.sock", code=1)
    assert "cannot connect" in err, err
    # Seeds decide the inputs, and the key is sent.
    with open("key", "w") as f:
        f.write("secret-1\n")
    heads = []
    bodies = []
    for seed in 1, 1, 2:
        s = Fake(lambda c, head, n: heads.append(head) or c.sendall(OK))
        replay(s.to, write_trace(4, 0.05), "--seed", str(seed), "--key-file", "key", "--connections", "1")
        bodies.append(s.bodies)
    assert bodies[0] == bodies[1] != bodies[2] and len(set(bodies[0])) == 4
    assert all(b"Authorization: Bearer secret-1" in h for h in heads)


subprocess.run([WEFT, "plan", "one.yaml", "--fleet", os.path.join(EXAMPLES, "fleet.yaml"), "-o", "plan.json"], check=True,
               stdout=subprocess.DEVNULL)
real_server()
slow_server()
faults()
gone()
metadata()
