# needs: numpy
"""The plan changes while requests flow: back and forth, with workers killed, stopped and never ready on the way. No
request is lost, none is answered wrong, and a change that fails leaves the plan before it in force."""
import json
import os
import signal
import socket
import subprocess
import threading
import time

from serving import EXAMPLES, WEFT, Server, check_images, compile_bundle, digits, skip, wait_until

if len(os.sched_getaffinity(0)) < 2:
    skip("fewer than two CPUs")
SET, FLEET = f"{EXAMPLES}/digits.yaml", f"{EXAMPLES}/fleet.yaml"
MODELS = {"digits": "digits_cnn", "parity": "digits_parity", "digits-attn": "digits_attn"}
x, _ = digits()
want = {model: digits(key)[1] for model, key in MODELS.items()}


def write_plan(path, place, batch=1):
    """A plan of two slices of one core: place(model) tells those of a model."""
    with open("made.json") as f:
        plan = json.load(f)
    by_model = {p["model"]: p for p in plan["placements"]}
    plan["placements"] = [dict(p, slice_id=i, batch=batch) for m, p in by_model.items() for i in place(m)]
    with open(path, "w") as f:
        json.dump(plan, f)


class Load:
    """Clients that ask all models until the end, with pauses; every answer is checked."""

    def __init__(self, server, n=4):
        self.problems, self.n, self.stop = [], 0, threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(server, i)) for i in range(n)]

    def ask(self, server, at):
        try:
            connection = server.connect()
            while not self.stop.is_set():
                model = list(MODELS)[at % len(MODELS)]
                check_images(connection, model, x[at % 64:at % 64 + 1], want[model][at % 64:at % 64 + 1])
                at += 1
                self.n += 1
                self.stop.wait(0.005)
        except Exception as problem:
            self.problems.append(repr(problem))

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, kind, value, trace):
        self.stop.set()
        for t in self.threads:
            t.join()
        assert kind or not self.problems, self.problems


def ctl(*arguments, code=0):
    done = subprocess.run([WEFT, "ctl", "control", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def status():
    return json.loads(ctl("status", "--format", "json"))


def pids(state=None):
    return {w["pid"] for w in status()["workers"] if w["pid"] and state in (None, w["state"])}


def ask_all(*lines):
    """Sends lines over one connection; the answers."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect("control")
        f = s.makefile("rwb")
        answers = []
        for line in lines:
            f.write(line + b"\n")
            f.flush()
            answers.append(json.loads(f.readline()))
        return answers


def apply_and_see(path, act):
    """Begins a change and calls act(pids of its new workers) as soon as they exist; the last change, when it is over."""
    before, plan = pids(), json.load(open(path))
    request = json.dumps({"do": "apply", "plan": plan}).encode()
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("control")
        f = s.makefile("rwb")

        def ask(line):
            f.write(line + b"\n")
            f.flush()
            return json.loads(f.readline())

        answer = ask(request)
        assert answer["ok"], answer
        new = set()
        while not new:
            now = ask(b'{"do": "status"}')
            new = {w["pid"] for w in now["workers"] if w["pid"]} - before
        act(new, before)
        end = time.monotonic() + 60
        while now["state"] == "changing" or now["last_change"]["generation"] < answer["generation"]:
            assert time.monotonic() < end, now
            time.sleep(0.02)
            now = ask(b'{"do": "status"}')
        return now["last_change"]


def kill_all(which, sig=signal.SIGKILL):
    for pid in which:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass


compile_bundle(more=False)
subprocess.run([WEFT, "plan", SET, "--fleet", FLEET, "-o", "made.json"], check=True)
write_plan("apart.json", lambda m: [1] if m == "digits" else [0])
write_plan("mixed.json", lambda m: [0] if m in ("digits", "parity") else [1])
write_plan("both.json", lambda m: [0, 1])
write_plan("large.json", lambda m: [0], batch=6)
with open("made.json") as f:
    part = json.load(f)
part["placements"] = [p for p in part["placements"] if p["model"] != "digits"]
with open("part.json", "w") as f:
    json.dump(part, f)

with Server("apart.json", "--control", "control", "--start-timeout", "3s", "--stall-timeout", "30s") as server:
    assert os.stat("control").st_mode & 0o777 == 0o600
    with Load(server) as load:
        generation = status()["generation"]
        for name in ("mixed", "both", "apart", "both", "mixed", "apart"):
            ctl("plan", f"{name}.json")
            generation += 1
            now = status()
            assert (now["generation"], now["state"], now["last_change"]["ok"]) == (generation, "serving", True), now
            assert all(m["ready"] for m in now["models"]) and len(now["workers"]) == 2, now
            assert b"\nweft_workers 2\n" in server.request("GET", "/metrics", port=server.metrics)[2]
        # The same plan again: no process ends.
        same = pids()
        ctl("plan", "apart.json")
        assert pids() == same
        # Old workers are killed while new ones start: they come back, and the change goes on.
        last = apply_and_see("mixed.json", lambda new, old: kill_all(old))
        assert last["ok"], last
        # A new worker is killed, and one never becomes ready: the old plan stays, with the old processes.
        for sig in (signal.SIGKILL, signal.SIGSTOP):
            old = pids()
            last = apply_and_see("apart.json", lambda new, _: kill_all(new, sig))
            assert not last["ok"] and last["error"], last
            assert pids() == old, "the old workers are not the same"
            assert all(m["ready"] for m in status()["models"])
        ctl("plan", "both.json", "--no-wait")
        assert "under way" in ctl("plan", "apart.json", code=1)
        wait_until(lambda: status()["state"] == "serving")
        # All workers are killed right after a change.
        kill_all(pids())
        ctl("plan", "apart.json")
        # Refused by name, before anything is started.
        before = pids()
        assert "no slice for model 'digits'" in ctl("plan", "part.json", code=1)
        assert "batches of 6" in ctl("plan", "large.json", code=1)
        with open("broken.json", "w") as f:
            f.write('{"format": "weft-plan"')
        assert "is not JSON" in ctl("plan", "broken.json", code=1)
        assert pids() == before
        answers = ask_all(b"", b"[]", b'{"do": 1}', b'{"do": "jump"}', b'{"do": "status", "x": 1}', b"\xff\xfe", b"[" * 5000,
                          b'{"do": "apply", "plan": 1}', b'{"do": "note"}', b'{"do": "explain"}')
        assert [a["ok"] for a in answers] == [False] * 9 + [True], answers
        # A line without an end is not kept.
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect("control")
            try:
                for _ in range(100):
                    s.sendall(b"x" * 65536)
                assert s.recv(1) == b""
            except (BrokenPipeError, ConnectionResetError):
                pass
        assert json.loads(ctl("plan"))["placements"]
        assert "digits" in ctl("status")
        n = load.n
        wait_until(lambda: load.n > n + 50)
    print(f"{load.n} requests, none lost or wrong")
    ctl("drain")
    assert server.process.wait(30) == 0, server.text()
    assert not os.path.exists("control")
assert "cannot connect" in ctl("status", code=1)
for wrong in ((), ("jump",), ("status", "x"), ("plan", "a", "b")):
    ctl(*wrong, code=2)
