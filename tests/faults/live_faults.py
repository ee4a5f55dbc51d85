"""Every call that a running server makes fails in turn, without a start of the server for each:
`live_faults.py FOLDER` drives weft-server of FOLDER (build-*/faults), which contains the injector (inject.c).

The server does something (an action of `Actions`: it answers requests, restarts a worker, loads a bundle) while
its calls are recorded. Then it does so again for each call and mode (faults.py) with this call failing. Requests
may then get errors, but no wrong answer, and each an answer or a closed connection in time. Afterwards the action
must succeed, and the server have as many descriptors as before. Leaks show when the server ends.

  --every       each call; otherwise the first and the last of each stack (--calls N: N of them)
  --only NAMES  actions, with commas
  --share K/N   every N-th try from the K-th on (0/1): a long run in parts
  --seconds S   tries are drawn with --seed until this time is over"""
import argparse
import concurrent.futures
import contextlib
import gzip
import hashlib
import http.client
import json
import mmap
import os
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

import faults
from serve_faults import Failed, Serve

LIVE = 144  # offset of live_mode in inject_state
NOTHING, COUNT = 100, 101
READY_S, RECOVER_S, LASTING_S, END_S, LONG_PAUSE_S = 60, 20, 0.2, 60, 0.2
KEY = "a key of the tests"
ADAPTERS = ("legal", "sales")


class Slow(Exception):
    """A request that got neither an answer nor the end of its connection."""


class Box:
    """What the servers read: bundles, keys, a certificate."""

    def __init__(self, programs, folder):
        self.programs, self.folder = programs, folder
        faults.prepare(programs, folder)
        with open(f"{folder}/extra.yaml", "w") as f:
            f.write(f"models:\n  - name: extra\n    file: {faults.EXAMPLES}/digits_parity.onnx\n")
        subprocess.run([f"{programs}/weft-compiler", "compile", f"{folder}/extra.yaml", "-o", f"{folder}/extra.weft"],
                       check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/keys", "w") as f:
            f.write(f"tests {hashlib.sha256(KEY.encode()).hexdigest()} * *\n")
        os.chmod(f"{folder}/keys", 0o600)
        self.has_adapters = self.make_adapters()
        self.is_signed = shutil.which("openssl") is not None and self.sign()
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                               "-days", "2", "-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.pem", "-subj",
                               "/CN=localhost"], stderr=subprocess.DEVNULL) if shutil.which("openssl") else None
        self.has_tls = made is not None and made.returncode == 0

    def sign(self):
        """Signs what is served and loaded."""
        keys = ["genpkey", "-algorithm", "ed25519", "-out", "sign.pem"], ["pkey", "-in", "sign.pem", "-pubout", "-out", "sign.pub"]
        for arguments in keys:
            subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, stderr=subprocess.DEVNULL)
        for name in ("models", "extra", *(["adapted"] if self.has_adapters else [])):
            subprocess.run([f"{self.programs}/weft-server", "sign", f"{self.folder}/{name}.weft", "--key",
                            f"{self.folder}/sign.pem"], check=True, stdout=subprocess.DEVNULL)
        return True

    def make_adapters(self):
        """A bundle of an encoder with adapters, which are files that need NumPy; false: it is not installed."""
        try:
            import numpy
        except ImportError:
            return False
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))
        from lora import Adapter, base
        model = base(numpy.random.RandomState(5), "folded", layers=1, hidden=32)
        model.g.save(f"{self.folder}/base.onnx")
        for i, name in enumerate(ADAPTERS):
            Adapter(numpy.random.RandomState(40 + i), model).save(f"{self.folder}/adapters/{name}")
        with open(f"{self.folder}/adapted.yaml", "w") as f:
            f.write("models:\n  - {name: bert, file: base.onnx, adapters: ['adapters/*']}\n")
        subprocess.run([f"{self.programs}/weft-compiler", "compile", "adapted.yaml", "-o", "adapted.weft"], cwd=self.folder,
                       check=True, stdout=subprocess.DEVNULL)
        self.ports_of_adapted = [(p.name, p.dtype) for p in model.g.inputs]
        return True


class Server:
    """One process with its workers, and the file by which its calls are made to fail."""

    def __init__(self, box, tls, name):
        self.folder, self.box, self.tls = tempfile.mkdtemp(prefix="weft-fault."), box, tls
        state = faults.State(self.folder, points=True)
        self.file = open(state.path, "r+b")
        self.state, self.map, self.read = state, mmap.mmap(self.file.fileno(), 0), 0
        self.disarm()
        os.mkdir(f"{self.folder}/repository")
        shutil.copy(f"{box.folder}/extra.weft", f"{self.folder}/repository/extra.weft")
        if box.is_signed:
            shutil.copy(f"{box.folder}/extra.weft.sig", f"{self.folder}/repository/extra.weft.sig")
        self.region = f"/weft_faults_{os.getpid()}_{os.path.basename(self.folder)}"
        more = ["--tls-cert", f"{box.folder}/tls.pem", "--tls-key", f"{box.folder}/tls.key", "--api-keys",
                f"{box.folder}/keys"] if tls else ["--control", "control", "--repository", "repository", "--state", "kept",
                                             "--shared-memory", self.region]
        bundle = "adapted" if name == "adapters" else "models"
        if box.is_signed and not tls:
            more += ["--require-signature", f"{box.folder}/sign.pub"]
        with open(f"{self.folder}/err", "wb") as err:
            self.process = subprocess.Popen(
                [f"{box.programs}/weft-server", "serve", f"{box.folder}/{bundle}.weft", "--http", "0", "--grpc", "0",
                 "--metrics", "0", "--health", "0", "--trace-file", "spans", "--log-level", "access", *more],
                cwd=self.folder, env=faults.environment("live", state), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=err, text=True)
        timer = threading.Timer(READY_S, self.process.kill)
        timer.start()
        line = self.process.stdout.readline().split()
        timer.cancel()
        assert line, self.errors()
        self.ports = {k: int(v) for k, v in (part.split("=") for part in line[1:])}

    def errors(self):
        with open(f"{self.folder}/err", errors="replace") as f:
            return f.read()

    def pause_s(self):
        """How long the last worker that ended, since this was asked, was waited for: longer each time unless a worker
        was well for twice as long."""
        text = self.errors()
        pauses = re.findall(r"worker_ended .*pause_s=(\S+)", text[self.read:])
        self.read = len(text)
        return float(pauses[-1]) if pauses else 0

    def set(self, mode, kind=0, stack=0, nth=0):
        struct.pack_into("<I", self.map, LIVE, NOTHING)
        struct.pack_into("<QQ", self.map, 0, 0, 0)
        struct.pack_into("<III", self.map, LIVE + 4, kind, stack, nth)
        struct.pack_into("<I", self.map, LIVE, mode)

    def disarm(self):
        struct.pack_into("<I", self.map, LIVE, NOTHING)

    def workers(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            return [int(p) for p in f.read().split()]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self):
        """What is wrong with how it ended, or None."""
        self.disarm()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "hang at the end"
        wrong = "sanitizer" if "Sanitizer" in self.errors() or "runtime error" in self.errors() else None
        return wrong or (None if code == 0 else f"exit code {code}")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.map.close()
        self.file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Actions(Serve):
    """What a server does; each raises Failed where it gets an error."""

    def __init__(self, box, server):
        super().__init__(f"{box.folder}/models.weft", faults.EXAMPLES)
        self.server, self.ports = server, server.ports
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.read_image()

    def http(self, port, method, path, body=None, headers=None):
        secure = self.server.tls and port == self.ports["http"]
        connection = (http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=self.context) if secure else
                      http.client.HTTPConnection("127.0.0.1", port, timeout=5))
        try:
            connection.request(method, path, body, {"x-api-key": KEY, **(headers or {})})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except TimeoutError:
            raise Slow(f"{method} {path}") from None
        except (OSError, http.client.HTTPException) as problem:
            raise Failed(repr(problem)) from None
        finally:
            connection.close()

    def must(self, method, path, body=None, headers=None, port="http"):
        status, text = self.http(self.ports[port], method, path, body, headers)
        if status != 200:
            raise Failed(path, status, text)
        return text

    def requests(self):
        self.ask_all(self.ports, None)
        self.must("GET", "/v2/health/live", port="health")

    def large(self):
        """Bodies that are read and written beside the loop, a compressed and a chunked one."""
        n = 8
        tensor = {"name": "image", "shape": [n, 1, 8, 8], "datatype": "FP32",
                  "data": struct.unpack("<64f", self.image) * n}
        text = json.dumps({"id": "x" * 40000, "inputs": [tensor]}).encode()
        path = "/v2/models/parity/infer"
        for body, headers in ((text, {}), (gzip.compress(text), {"Content-Encoding": "gzip"}),
                              (iter((text[:100], text[100:])), {})):  # chunked
            rows = json.loads(self.must("POST", path, body, headers))["outputs"][0]["data"]
            one = self.shown.setdefault("parity", rows[:len(rows) // n])
            assert len(rows) == n * len(one) and all(abs(a - b) < 1e-4 * (1 + abs(b)) for a, b in
                                                     zip(rows, one * n)), "wrong answer of a large request"

    def worker(self):
        """A worker ends, and another is ready in its place."""
        mode, killed = struct.unpack_from("<I", self.server.map, LIVE)[0], 0
        if mode != NOTHING and (workers := self.server.workers()):
            killed = workers[0]
            with contextlib.suppress(ProcessLookupError):
                os.kill(killed, signal.SIGKILL)
        end = time.monotonic() + (LASTING_S if mode == faults.MODES.index("on") else RECOVER_S)
        while time.monotonic() < end:
            with contextlib.suppress(Failed):
                if killed not in self.server.workers() and \
                        self.http(self.ports["http"], "GET", "/v2/health/ready")[0] == 200:
                    return
            time.sleep(0.02)
        raise Failed("not ready")

    def control(self, **request):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            try:
                s.connect(f"{self.server.folder}/control")
                s.sendall(json.dumps(request).encode() + b"\n")
                line = s.makefile("rb").readline()
            except TimeoutError:
                raise Slow(request) from None
            except OSError as problem:
                raise Failed(repr(problem)) from None
        answer = json.loads(line or b"{}")
        if not answer.get("ok"):
            raise Failed(request, answer)
        return answer

    def operate(self, **request):
        number, end = self.control(**request)["operation"], time.monotonic() + RECOVER_S
        while time.monotonic() < end:
            with contextlib.suppress(Failed):
                now = self.control(do="status")
                if not now["waiting"] and now["last_operation"]["operation"] >= number:
                    if not now["last_operation"]["ok"]:
                        raise AssertionError(now["last_operation"]["error"])
                    return
            time.sleep(0.02)
        raise Slow(request)

    def change(self):
        """A bundle is loaded and ended over the control socket."""
        try:
            self.operate(do="load", bundle=f"{self.server.box.folder}/extra.weft", version="7")
            self.control(do="plan") if os.path.exists("plan") else self.control(do="explain")
            self.operate(do="weigh", model="extra", version="7", weight=2)
            self.operate(do="unload", name="extra", version="7")
        except AssertionError as undone:
            with contextlib.suppress(AssertionError, Failed):
                self.operate(do="unload", name="extra")
            raise Failed(undone) from None

    def repository(self):
        """A model is loaded and ended by a client."""
        self.must("POST", "/v2/repository/index")
        self.must("POST", "/v2/repository/models/extra/load")
        self.must("POST", "/v2/repository/models/extra/unload")

    def regions(self):
        """Input and output of a request are in shared memory that the client registers and unregisters."""
        path = "/dev/shm" + self.server.region
        try:
            with open(path, "wb") as f:
                f.write(self.image + bytes(512))
            self.must("POST", "/v2/systemsharedmemory/region/all/register",
                      json.dumps({"key": self.server.region, "byte_size": 768, "offset": 0}))
            place = {"shared_memory_region": "all", "shared_memory_byte_size": 256}
            rows = self.want.setdefault("digits", self.ask(self.ports["http"], "digits", True))
            self.must("POST", "/v2/models/digits/infer", json.dumps(
                {"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "parameters": place}],
                 "outputs": [{"name": "logits", "parameters": {**place, "shared_memory_byte_size": 4 * len(rows),
                                                               "shared_memory_offset": 256}}]}))
            with open(path, "rb") as f:
                got = struct.unpack_from(f"<{len(rows)}f", f.read(), 256)
            assert all(abs(a - b) < 1e-4 * (1 + abs(b)) for a, b in zip(got, rows)), "wrong answer in shared memory"
            self.must("POST", "/v2/systemsharedmemory/unregister")
        except Failed:
            with contextlib.suppress(Failed, Slow):
                self.must("POST", "/v2/systemsharedmemory/unregister")
            raise
        finally:
            with contextlib.suppress(OSError):
                os.remove(path)

    def adapters(self):
        """Requests of two adapters and of none at once, which may run in one batch."""
        inputs = [{"name": name, "shape": [1, 6], "datatype": "INT64", "data": [1, 2, 3, 4, 5, 6] if i == 0 else [1] * 6}
                  for i, (name, _) in enumerate(self.server.box.ports_of_adapted)]

        def one(adapter):
            return json.loads(self.must("POST", "/v2/models/bert/infer", json.dumps(
                {"inputs": inputs, **({"parameters": {"adapter": adapter}} if adapter else {})})))["outputs"][-1]["data"]

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            calls = [(adapter, pool.submit(one, adapter)) for adapter in (*ADAPTERS, None) * 2]
        for adapter, call in calls:
            got = call.result()
            want = self.want.setdefault(f"bert@{adapter}", got)
            assert len(got) == len(want) and all(abs(a - b) < 1e-4 * (1 + abs(b)) for a, b in zip(got, want)), \
                f"wrong answer of adapter {adapter}"

    def reload(self):
        """Files are read again; the answer to the signal is in the log."""
        before = self.server.errors().count("reload")
        self.server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 0.1
        while self.server.errors().count("reload") == before and time.monotonic() < end:
            time.sleep(0.01)
        self.must("GET", "/v2/health/live")

    def grpc(self, port, model, folder):
        return None if self.server.tls else super().grpc(port, model, folder)


ACTIONS = {False: ("requests", "large", "worker", "change", "repository", "regions", "adapters"), True: ("requests", "large", "reload")}


class Runner:
    """Tries a share of the points of an action on one server after the other."""

    def __init__(self, box, tls, name, report):
        self.box, self.tls, self.name, self.report = box, tls, name, report
        self.server = self.actions = None

    def open(self):
        self.server = Server(self.box, self.tls, self.name)
        self.actions = Actions(self.box, self.server)
        for _ in range(2):
            self.act()
        time.sleep(0.3)  # connections close
        self.before = self.server.descriptors()

    def close(self):
        if self.server:
            wrong = self.server.end() if self.server.process.poll() is None else None
            if wrong:
                self.report(f"{self.name}: {wrong}\n{self.server.errors()[-4000:]}")
            self.server.close()
        self.server = None

    def act(self):
        getattr(self.actions, self.name)()

    def record(self):
        self.open()
        self.server.set(COUNT)
        self.act()
        self.server.disarm()
        points = self.server.state.points()
        self.close()
        return points

    def recover(self):
        end = time.monotonic() + RECOVER_S
        while True:
            try:
                self.act()
                self.actions.must("GET", "/v2/health/ready")
                break
            except (Failed, Slow) as problem:
                assert time.monotonic() < end, f"does not recover: {problem}"
                time.sleep(0.05)
        while self.server.descriptors() > self.before:
            assert time.monotonic() < end, f"{self.server.descriptors()} descriptors, {self.before} before"
            time.sleep(0.02)

    def attempt(self, point, mode):
        """Whether the call failed."""
        if not self.server:
            self.open()
        server = self.server
        server.set(faults.MODES.index(mode), faults.KINDS.index(point.kind), point.stack, point.nth)
        wrong = None
        try:
            # A call that fails for ever may leave a client without an answer.
            with contextlib.suppress(*((Failed, Slow) if mode == "on" else (Failed,))):
                self.act()
            server.disarm()
            self.recover()
        except (AssertionError, Slow) as problem:
            wrong = f"{type(problem).__name__}: {problem}"
        server.disarm()
        if server.process.poll() is not None:
            wrong = f"the server ended: {server.process.returncode}"
        if "Sanitizer" in server.errors() or "runtime error" in server.errors():
            wrong = f"sanitizer\n{server.errors()[-6000:]}"
        failed = server.state.failure()[0] > 0
        pause_s = server.pause_s()
        if wrong:
            where = faults.describe(self.box.programs, Actions, server.state)
            events = [line for line in server.errors().splitlines() if " worker_" in line][-3:]
            self.report("\n  ".join((f"{self.name} {faults.name_of(point, mode)}: {wrong}", where, *events)))
            self.server.process.kill()
            self.server.process.wait()
            self.close()
        elif pause_s > LONG_PAUSE_S:
            self.close()
        elif pause_s:
            time.sleep(0.1 + 2 * pause_s)
        return failed


def try_action(options, box, tls, name, until, findings):
    lock, count = threading.Lock(), [0, 0]

    def report(text):
        with lock:
            findings.append(text)
            print(text, flush=True)

    points = Runner(box, tls, name, report).record()
    chosen = faults.choose_points(points, len(points) if options.every else options.calls)
    # A signal that can never be read ends the server.
    tries = [(p, m) for p in chosen for m in faults.modes_of(p) if name != "reload" or m != "on"]
    random.Random(options.seed).shuffle(tries)
    share, of = (int(n) for n in options.share.split("/"))
    tries = tries[share::of]
    queue = iter(tries)

    def work(_):
        runner = Runner(box, tls, name, report)
        while time.monotonic() < until:
            with lock:
                at = next(queue, None)
            if at is None:
                break
            failed = runner.attempt(*at)
            with lock:
                count[0] += 1
                count[1] += failed
        runner.close()

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, range(options.jobs)))
    print(f"{name}{' (TLS)' if tls else ''}: {len(points)} calls of {len(set(points))} stacks; {count[0]} of {len(tries)} "
          f"tries, {count[1]} with a failure; {len(findings)} findings so far", flush=True)
    assert count[1] or time.monotonic() > until


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    programs = os.path.abspath(options.programs)
    if not os.path.exists(os.path.join(programs, "weft-server")):
        print("skipped: the compiler is not gcc, so there are no programs with faults")
        return 77
    findings, begin = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-faults.") as folder:
        box = Box(programs, folder)
        todo = [(tls, name) for tls in ((False, True) if box.has_tls else (False,)) for name in ACTIONS[tls]
                if not options.only or name in options.only.split(",")]
        todo = [(tls, name) for tls, name in todo if name != "adapters" or box.has_adapters]
        for i, (tls, name) in enumerate(todo):
            until = begin + options.seconds * (i + 1) / len(todo) if options.seconds else float("inf")
            try_action(options, box, tls, name, until, findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
