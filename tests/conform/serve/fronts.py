"""Shared by the tests of fronts: plans of twelve models on workers of unequal size, the fronts, load over HTTP and gRPC."""
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
from serving import WEFT, skip, wait_until, write_small

try:
    import grpc
except ImportError:
    grpc = None

MODELS = [f"m{i:02}" for i in range(12)]
RATE = 3.0  # of a model on a worker of size 1, per second
X = np.arange(4, dtype="f4").reshape(1, 4)
RULES = {"latency": "exact", "whole_ms": False, "procs_max": 0, "isolated": False, "oversubscribe": False, "mem_reserve": 0}


def free_ports(n, *addresses):
    """The first of n ports in a row that are free on all addresses."""
    for first in range(18000 + os.getpid() % 3000, 30000, n):
        with contextlib.ExitStack() as stack:
            try:
                for address in addresses:
                    for i in range(n):
                        stack.enter_context(socket.socket()).bind((address, first + i))
                return first
            except OSError:
                pass
    skip("no free ports")


def write_places(path, places):
    """places: of each worker its device, type, slice, start slot (None: no MIG) and requests per second by model."""
    nth = [sum(q[0] == p[0] for q in places[:i]) for i, p in enumerate(places)]
    rows = [{"model": m, "device": d, "type": kind, "slice": part, "slice_id": nth[i], "mig_start": start, "share": 1 / len(places),
             "batch": 1, "procs": 1, "rate_per_s": r, "capacity_per_s": r * 1.2, "latency_us": 1000, "mem_bytes": 1 << 20,
             "expected_error": 0, "source": "analytic"}
            for i, (d, kind, part, start, of) in enumerate(places) for m, r in sorted(of.items())]
    models = [{"model": m, "slo_us": 0, "rate_per_s": sum(p[4].get(m, 0) for p in places)} for m in MODELS]
    with open(path, "w") as f:
        json.dump({"format": "weft-plan", "version": 3, "policy": "test", "goal": "cost", "rules": RULES,
                   "gpus": 1 + max(p[0] for p in places), "cost_per_hour": 0, "goodput_per_s": 1, "power_w": 0,
                   "lower_bound": 1, "proven": False, "decision_ms": 0, "models": models, "placements": rows}, f)


def write_plan(path, rates):
    """rates: for each device, a CPU, requests per second by model."""
    write_places(path, [(d, "cpu", "1core", None, of) for d, of in enumerate(rates)])


def run(*command, code=0, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, **more)
    assert done.returncode == code, (command, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def need(*tools):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for tool in tools:
        if not shutil.which(tool):
            skip(f"no {tool}")


def compile_twelve():
    write_small("small.onnx")
    with open("models.yaml", "w") as f:
        f.write("models:\n" + "".join(f"  - {{name: {m}, file: small.onnx}}\n" for m in MODELS))
    run(WEFT, "compile", "models.yaml", "-o", "models.weft", "--merge", "off", "--batch", "1")


def unequal(*sizes):
    """Rates by worker: the first serves all models, the others two of three."""
    return [{m: RATE * size for i, m in enumerate(MODELS) if (i + d) % 3 or d == 0} for d, size in enumerate(sizes)]


class Front:
    """HAProxy or Envoy on an exported configuration."""

    def __init__(self, port, program, *options, check):
        """`check`: options with which the program only reads its configuration."""
        self.port = port
        print(run(program, *check, *options).strip())
        self.process = subprocess.Popen([program, *options], stderr=open("front.log", "w"))
        wait_until(self.is_live)

    def says(self, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        c.request("POST" if body else "GET", path, body)
        reply = c.getresponse()
        return reply.status, reply.read()

    def is_ready(self, what="ready"):
        with contextlib.suppress(OSError):
            return self.says(f"/v2/health/{what}")[0] == 200

    def is_live(self):
        return self.is_ready("live")


def haproxy(folder, port):
    return Front(port, "haproxy", "-f", f"{folder}/haproxy.cfg", check=["-c"])


def answered(address, port):
    """Requests that a worker has answered, by model."""
    c = http.client.HTTPConnection(address, port, timeout=10)
    c.request("GET", "/v2/models/stats")
    return {s["name"]: s["inference_count"] for s in json.loads(c.getresponse().read())["model_stats"]}


def compare(after, rates, before, what):
    """Prints the load of each worker beside the plan's rates and insists on 5 %; returns rows of a table."""
    got = [{m: n - b.get(m, 0) for m, n in a.items()} for a, b in zip(after, before)]
    rows, planned_all, got_all = [], sum(sum(o.values()) for o in rates), sum(sum(g.values()) for g in got)
    for w, of in enumerate(rates):
        part = sum(r / sum(o.get(m, 0) for o in rates) * sum(g.get(m, 0) for g in got) for m, r in of.items())
        n, share, planned = sum(got[w].values()), sum(got[w].values()) / got_all, sum(of.values()) / planned_all
        rows.append(f"{what},{w},{planned:.4f},{n},{share:.4f},{share / planned:.4f}")
        print(rows[-1])
        assert abs(n / part - 1) < 0.05 and abs(share / planned - 1) < 0.05, (what, w, got[w], part)
    return rows


def replay(front, plan, seconds):
    """Open-loop load at the plan's rates through the front."""
    return subprocess.Popen([WEFT, "replay", "--to", f"127.0.0.1:{front}", "--plan", plan, "--arrivals", "constant",
                             "--duration", f"{seconds}s", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def report(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    got = json.loads(out)["total"]
    assert got["dropped"] == 0 and got["answered"] > 100, got
    return got["answered"]


def check_shares(front, workers, rates, seconds):
    """What a front does while nothing fails: it refuses what is no request of a model of the plan, and the load of each
    worker is the plan's, over HTTP and over one gRPC connection. Returns rows of a table."""
    assert front.says("/v2/models/none/infer", b"{}")[0] == 404
    assert front.says("/v2/repository/index", b"{}")[0] == 404
    assert b"weft" in front.says("/v2")[1] and front.says("/v2/health/live")[0] == 200
    before = [w.answered() for w in workers]
    print(report(replay(front.port, "one.json", seconds)), "answered over HTTP")
    table = compare([w.answered() for w in workers], rates, before, "http")
    if grpc:
        before = [w.answered() for w in workers]
        check_grpc(front.port)
        calls = Calls(front.port)
        calls.start()
        wait_until(lambda: calls.done > 250 * len(MODELS), 60)
        calls.finish()
        equal = [{m: r / sum(o.get(m, 0) for o in rates) for m, r in of.items()} for of in rates]
        table += compare([w.answered() for w in workers], equal, before, "grpc")
    return table


@contextlib.contextmanager
def under_load(front, seconds, what):
    """Load of plan one.json over HTTP and gRPC; when the block ends, every request must have been answered."""
    load, calls = replay(front.port, "one.json", seconds), Calls(front.port) if grpc else None
    if calls:
        calls.start()
    time.sleep(0.5)
    yield
    print(report(load), f"answered over HTTP while {what};", calls.finish() if calls else "no", "over gRPC")


def kill_workers(front, workers, seconds):
    """One worker is killed, one ended, each comes back; no request is lost."""
    with under_load(front, max(5, 2 * seconds), "workers were killed and ended"):
        faults = [(0, signal.SIGKILL), (1, signal.SIGTERM)]
        for nth, how in (faults + [(3, signal.SIGKILL)]) * int(seconds / 8) or faults:
            workers[nth].kill(how)
            time.sleep(0.5)
            workers[nth].start()
            time.sleep(1)


def change_plans(front, workers, nodes, seconds, export_front, update, drain_s, join_s):
    """Other plans while the front runs: other rates and a worker less, then two workers more; no request is lost, and the
    load is the new plan's. update(folder, fewer) brings the front to what export_front(plan, nodes) has written and returns
    what it says; drain_s: until an ended worker may go, join_s: until a new one is used. Returns rows of a table."""
    table = []
    for path, sizes in (("two.json", (4, 4, 2)), ("three.json", (4, 2, 2, 1, 3))):
        rates, fewer = unequal(*sizes), len(sizes) == 3
        write_plan(path, rates)
        export(path, "systemd", nodes[:len(sizes)], front.port)
        folder = export_front(path, nodes[:len(sizes)])
        for nth in range(3, len(sizes)):
            workers[nth:] = [*workers[nth + 1:], Worker(path, nth, front.port)]
        with under_load(front, seconds, f"the front went to {path}"):
            update(folder, fewer)
            if fewer:
                time.sleep(drain_s)  # what was sent before has been answered
                workers[3].kill(signal.SIGTERM)
        assert update(folder, None) == "", "a second run has nothing to do"
        time.sleep(0 if fewer else join_s)  # new workers are checked
        running = workers[:len(sizes)]
        before = [w.answered() for w in running]
        report(replay(front.port, path, max(2, seconds / 2)))
        table += compare([w.answered() for w in running], rates, before, path)
    return table


def write_table(path, rows):
    if path:
        with open(path, "w") as f:
            f.write("\n".join(["protocol,worker,plan_share,requests,share,ratio", *rows]) + "\n")


class Replays(threading.Thread):
    """Open-loop load at the plan's rates, until it is finished."""

    def __init__(self, front, plan):
        super().__init__(daemon=True)
        self.front, self.plan, self.reports, self.problem, self.stopped = front, plan, [], None, False

    def run(self):
        try:
            while not self.stopped:
                self.reports.append(report(replay(self.front, self.plan, 2)))
        except Exception as problem:  # reported by the main thread
            self.problem = problem

    def finish(self):
        """Returns the number of answers; none may be lost."""
        self.stopped = True
        self.join()
        assert not self.problem, self.problem
        return sum(self.reports)


class Calls(threading.Thread):
    """gRPC calls of all models over one connection, until stopped."""

    def __init__(self, front):
        super().__init__(daemon=True)
        self.front = front
        self.done, self.lost, self.stopped = 0, [], False

    def finish(self):
        """Returns the number of answers; none may be lost."""
        self.stopped = True
        self.join()
        assert not self.lost and self.done > 100, (self.done, self.lost[:3])
        return self.done

    def run(self):
        with grpc.insecure_channel(f"127.0.0.1:{self.front + 1}", [("grpc.enable_retries", 0)]) as channel:
            infer = channel.unary_unary(http2.SERVICE.decode() + "ModelInfer", lambda x: x, lambda x: x)
            while not self.stopped:
                ask = [infer.future(http2.infer_message(X, m.encode(), b"x")[5:], timeout=30) for m in MODELS]
                for one in ask:
                    try:
                        assert (X + X).tobytes() in one.result()
                        self.done += 1
                    except Exception as problem:
                        self.lost.append(repr(problem))


def export(plan, to, nodes, port, *more):
    """Exports the plan; returns the folder."""
    with open("nodes", "w") as f:
        f.writelines(f"weft-cpu-{i} {address}\n" for i, address in enumerate(nodes))
    run(WEFT, "export", plan, "--to", to, "-o", f"{plan}.{to}", "--nodes", "nodes", "--port", str(port),
        "--weft", os.path.realpath(WEFT), "--bundle", os.path.abspath("models.weft"), *more)
    return f"{plan}.{to}"


class Worker:
    """What its systemd unit starts."""

    def __init__(self, plan, nth, port):
        self.plan, self.nth, self.port = plan, nth, port
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
        return answered(self.address, self.port)


def check_grpc(port):
    """Calls that name no model of the plan, and calls of others than ModelInfer."""
    with grpc.insecure_channel(f"127.0.0.1:{port + 1}") as channel:
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
