# needs: numpy
"""HAProxy as front of an exported plan: 12 models on workers of unequal size on four nodes (loopback addresses). The
load of each worker is the plan's, over HTTP and over one gRPC connection, and no request is lost when workers
are killed, restarted and ended, nor when HAProxy is brought to another plan while it runs. --seconds N: a longer run;
--table FILE: the shares."""
import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import numpy as np

import http2
from serving import WEFT, skip, tensor, wait_until, write_small

try:
    import grpc
except ImportError:
    grpc = None

for tool in ("haproxy", "socat"):
    if not shutil.which(tool) and not os.path.exists(f"/usr/sbin/{tool}"):
        skip(f"no {tool}")
os.environ["PATH"] += ":/usr/sbin"
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--table")
options, _ = parser.parse_known_args()

MODELS = [f"m{i:02}" for i in range(12)]
X = np.arange(4, dtype="f4").reshape(1, 4)
RULES = {"latency": "exact", "whole_ms": False, "procs_max": 0, "isolated": False, "oversubscribe": False, "mem_reserve": 0}


def free_ports(n, address="127.0.0.1"):
    """The first of n free ports in a row."""
    for first in range(18000 + os.getpid() % 3000, 30000, n):
        sockets = [socket.socket() for _ in range(n)]
        try:
            for i, s in enumerate(sockets):
                s.bind((address, first + i))
            return first
        except OSError:
            pass
        finally:
            for s in sockets:
                s.close()
    skip("no free ports")


def write_plan(path, rates):
    """rates: for each device, requests per second by model."""
    places = [{"model": m, "device": d, "type": "cpu", "slice": "1core", "slice_id": 0, "mig_start": None, "share": 1,
               "batch": 1, "procs": 1, "rate_per_s": r, "capacity_per_s": r * 1.2, "latency_us": 1000, "mem_bytes": 1 << 20,
               "expected_error": 0, "source": "analytic"} for d, of in enumerate(rates) for m, r in sorted(of.items())]
    models = [{"model": m, "slo_us": 0, "rate_per_s": sum(of.get(m, 0) for of in rates)} for m in MODELS]
    with open(path, "w") as f:
        json.dump({"format": "weft-plan", "version": 3, "policy": "test", "goal": "cost", "rules": RULES,
                   "gpus": len(rates), "cost_per_hour": 0, "goodput_per_s": 1, "power_w": 0, "lower_bound": 1,
                   "proven": False, "decision_ms": 0, "models": models, "placements": places}, f)


def run(*command, code=0, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, **more)
    assert done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


def export(plan, to, nodes, *more):
    with open("nodes", "w") as f:
        f.writelines(f"weft-cpu-{i} {address}\n" for i, address in enumerate(nodes))
    run(WEFT, "export", plan, "--to", to, "-o", f"{plan}.{to}", "--nodes", "nodes", "--port", str(PORT),
        "--weft", os.path.realpath(WEFT), "--bundle", os.path.abspath("models.weft"), *more)
    return f"{plan}.{to}"


class Worker:
    """What its systemd unit starts."""

    def __init__(self, plan, nth):
        self.plan, self.nth = plan, nth
        self.units = f"{plan}.systemd/weft-cpu-{nth}"
        self.start()

    def start(self):
        with open(f"{self.units}/weft-d{self.nth}-s0.service") as f:
            command = next(l for l in f if l.startswith("ExecStart=")).split("=", 1)[1]
        command = command.replace("/etc/weft/plans", f"{self.units}/plans").split()
        self.address = command[command.index("--address") + 1]
        log = open(f"worker{self.nth}.log", "a")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("READY"), (line, open(log.name).read())

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(40)
        self.process.stdout.close()

    def answered(self):
        """Requests answered, by model."""
        c = http.client.HTTPConnection(self.address, PORT, timeout=10)
        c.request("GET", "/v2/models/stats")
        return {s["name"]: s["inference_count"] for s in json.loads(c.getresponse().read())["model_stats"]}


def replay(plan, seconds):
    """Open-loop load at the plan's rates through the front."""
    return subprocess.Popen([WEFT, "replay", "--to", f"127.0.0.1:{FRONT}", "--plan", plan, "--arrivals", "constant",
                             "--duration", f"{seconds}s", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def report(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    got = json.loads(out)["total"]
    assert got["dropped"] == 0 and got["answered"] > 100, got
    return got["answered"]


class Calls(threading.Thread):
    """gRPC calls of all models over one connection, until stopped."""

    def __init__(self):
        super().__init__(daemon=True)
        self.done, self.lost, self.stopped = 0, [], False

    def finish(self):
        """Returns the number of answers; none may be lost."""
        self.stopped = True
        self.join()
        assert not self.lost and self.done > 100, (self.done, self.lost[:3])
        return self.done

    def run(self):
        with grpc.insecure_channel(f"127.0.0.1:{FRONT + 1}", [("grpc.enable_retries", 0)]) as channel:
            infer = channel.unary_unary(http2.SERVICE.decode() + "ModelInfer", lambda x: x, lambda x: x)
            while not self.stopped:
                ask = [infer.future(http2.infer_message(X, m.encode(), b"x")[5:], timeout=30) for m in MODELS]
                for one in ask:
                    try:
                        assert (X + X).tobytes() in one.result()
                        self.done += 1
                    except Exception as problem:
                        self.lost.append(repr(problem))


def check_grpc():
    """Calls that name no model of the plan, and calls of others than ModelInfer."""
    with grpc.insecure_channel(f"127.0.0.1:{FRONT + 1}") as channel:
        def call(method, message, metadata=()):
            return channel.unary_unary(http2.SERVICE.decode() + method, lambda x: x, lambda x: x)(
                message, timeout=10, metadata=metadata)
        for metadata in ((), (("x-model", "m01"),)):
            try:
                call("ModelInfer", http2.infer_message(X, b"none", b"x")[5:], metadata)
                raise AssertionError("an unknown model was answered")
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.NOT_FOUND, e
                assert ("x-model" in e.details()) == (not metadata), e
        assert call("ServerLive", b"") == b"\x08\x01"
        assert call("ModelReady", http2.field(1, b"m03")) == b"\x08\x01"
        health = channel.unary_unary("/grpc.health.v1.Health/Check", lambda x: x, lambda x: x)
        assert health(b"", timeout=10) == b"\x08\x01"


def compare(workers, rates, before, what):
    """Prints and checks the load of each worker against the plan's rates."""
    after = [w.answered() for w in workers]
    got = [{m: n - b.get(m, 0) for m, n in a.items()} for a, b in zip(after, before)]
    for w, of in enumerate(rates):
        part = sum(r / sum(o.get(m, 0) for o in rates) * sum(g.get(m, 0) for g in got) for m, r in of.items())
        all_planned = sum(sum(o.values()) for o in rates)
        share, planned = sum(got[w].values()) / sum(map(lambda g: sum(g.values()), got)), sum(of.values()) / all_planned
        row = f"{what},{w},{sum(of.values()):.0f},{planned:.4f},{sum(got[w].values())},{share:.4f},{share / planned:.4f}"
        print(row)
        table.append(row)
        assert abs(sum(got[w].values()) / part - 1) < 0.05, (what, w, got[w], part)
        assert abs(share / planned - 1) < 0.05, (what, w, share, planned)


table = ["protocol,worker,plan_per_s,plan_share,requests,share,ratio"]
write_small("small.onnx")
with open("models.yaml", "w") as f:
    f.write("models:\n" + "".join(f"  - {{name: {m}, file: small.onnx}}\n" for m in MODELS))
run(WEFT, "compile", "models.yaml", "-o", "models.weft", "--merge", "off", "--batch", "1")
# Unequal workers: sizes 8, 4, 2 and 1, each with other models of the twelve.
SIZE = (8, 4, 2, 1)
rates = [{m: 3.0 * size for i, m in enumerate(MODELS) if (i + d) % 3 or d == 0} for d, size in enumerate(SIZE)]
NODES = [f"127.0.0.{11 + i}" for i in range(5)]
PORT, FRONT = free_ports(3, NODES[0]), 0
FRONT = free_ports(3) if NODES else 0
write_plan("one.json", rates)
export("one.json", "systemd", NODES[:4])
socket_path = os.path.abspath("haproxy.sock")
export("one.json", "haproxy", NODES[:4], "--bind", f"127.0.0.1:{FRONT}", "--socket", socket_path)
workers = [Worker("one.json", i) for i in range(4)]
print(run("haproxy", "-c", "-f", "one.json.haproxy/haproxy.cfg").strip())
front = subprocess.Popen(["haproxy", "-f", "one.json.haproxy/haproxy.cfg"], stderr=open("haproxy.log", "w"))


def front_says(path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", FRONT, timeout=10)
    c.request("POST" if body else "GET", path, body)
    reply = c.getresponse()
    return reply.status, reply.read()


def is_up():
    with contextlib.suppress(OSError):
        return front_says("/v2/health/ready")[0] == 200


try:
    wait_until(is_up)
    time.sleep(1.5)  # the second check of every server
    # What is no request of a model of the plan.
    assert front_says("/v2/models/none/infer", b"{}")[0] == 404
    assert front_says("/v2/repository/index", b"{}")[0] == 404
    assert b"weft" in front_says("/v2")[1] and front_says("/v2/health/live")[0] == 200
    # HTTP: the load of each worker.
    before = [w.answered() for w in workers]
    print(report(replay("one.json", options.seconds)), "answered over HTTP")
    compare(workers, rates, before, "http")
    # One gRPC connection.
    if grpc:
        before = [w.answered() for w in workers]
        check_grpc()
        calls = Calls()
        calls.start()
        wait_until(lambda: calls.done > 250 * len(MODELS), 60)
        calls.finish()
        equal = [{m: r / sum(o.get(m, 0) for o in rates) for m, r in of.items()} for of in rates]
        compare(workers, equal, before, "grpc")
    # Faults: one worker is killed, one ended, each comes back.
    load, calls = replay("one.json", 2 * options.seconds), Calls() if grpc else None
    if calls:
        calls.start()
    time.sleep(1)
    for nth, how in ((0, signal.SIGKILL), (1, signal.SIGTERM), (3, signal.SIGKILL)) * max(1, int(options.seconds / 8)):
        workers[nth].kill(how)
        time.sleep(0.5)
        workers[nth].start()
        time.sleep(1)
    print(report(load), "answered over HTTP while workers were killed and ended;", calls.finish() if calls else "no", "over gRPC")
    # Other plans while it runs: other rates and a worker less, then two workers more.
    for path, sizes in (("two.json", (4, 4, 2)), ("three.json", (4, 2, 2, 1, 3))):
        changed = [{m: 3.0 * size for i, m in enumerate(MODELS) if (i + d) % 3 or d == 0} for d, size in enumerate(sizes)]
        write_plan(path, changed)
        export(path, "systemd", NODES[:len(sizes)])
        folder = export(path, "haproxy", NODES[:len(sizes)], "--bind", f"127.0.0.1:{FRONT}", "--socket", socket_path)
        for nth in range(3, len(sizes)):
            workers[nth:] = [*workers[nth + 1:], Worker(path, nth)]
        load, calls = replay("one.json", options.seconds), Calls() if grpc else None
        if calls:
            calls.start()
        time.sleep(0.5)
        said = run("sh", f"{folder}/update.sh", socket_path)
        assert ("set server h-m01/weft-d3-s0 state maint" if len(sizes) == 3 else "add server h-m00/weft-d4-s0") in said, said
        if len(sizes) == 3:
            workers[3].kill(signal.SIGTERM)
        print(report(load), f"answered over HTTP while the front went to {path};", calls.finish() if calls else "no", "over gRPC")
        assert run("sh", f"{folder}/update.sh", socket_path) == "", "a second run has nothing to do"
        time.sleep(0 if len(sizes) == 3 else 2.5)  # new servers are checked
        running = workers[:len(sizes)]
        before = [w.answered() for w in running]
        report(replay(path, options.seconds / 2))
        compare(running, changed, before, path)
    # A plan with a model that the configuration lacks: the rest is done, and it says that a reload is needed.
    with open(f"{folder}/servers", "a") as f:
        f.write("h-new weft-d0-s0 127.0.0.1 1 1 1\n")
    run("sh", f"{folder}/update.sh", socket_path, code=4)
    # Addresses that somebody publishes count more than the table's.
    with open("addresses", "w") as f:
        f.write("weft-d4-s0 127.0.0.99 7 8\n")
    said = run("sh", f"{folder}/update.sh", socket_path, "addresses", code=4)
    assert "set server h-m00/weft-d4-s0 addr 127.0.0.99 port 7" in said, said
    assert "set server g-m00/weft-d4-s0 addr 127.0.0.99 port 8" in said, said
finally:
    front.terminate()
    for w in workers:
        w.process.kill()
if options.table:
    with open(options.table, "w") as f:
        f.write("\n".join(table) + "\n")
