# needs: numpy
"""State, log and spans on one disk that becomes full while requests flow: changes are refused and leave everything as
it was, by hand and by the policy; workers and the router are killed and come back; no request is lost; no line of the
log or of the spans continues one that was cut. With room again, the same changes succeed."""
import json
import os
import signal
import subprocess
import threading
import time

from serving import EXAMPLES, SLOW, WEFT, Server, check_images, digits, skip, wait_until

if len(os.sched_getaffinity(0)) < 2:
    skip("fewer than two CPUs")
os.mkdir("disk")
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", "disk"], stderr=subprocess.PIPE).returncode != 0:
    skip("no file system may be mounted here")
KEYS = {"m": "digits_cnn", "q": "digits_attn"}
x, _ = digits()
want = {model: digits(key)[1] for model, key in KEYS.items()}
with open("profile.csv", "w") as f:
    f.write("device,slice,batch,time_us,mreq_bytes\ncpu,1core,1,20000,50000000\n")
for name, models in (("set", KEYS), ("m", "m"), ("q", "q")):
    with open(f"{name}.yaml", "w") as f:
        f.write("models:\n" + "".join(f"  - {{name: {m}, file: {EXAMPLES}/{KEYS[m]}.onnx, profile: profile.csv, slo: 500ms, "
                                      f"rate: 5/s}}\n" for m in models))
for model in KEYS:
    subprocess.run([WEFT, "compile", f"{model}.yaml", "-o", f"{model}.weft"], check=True)
subprocess.run([WEFT, "plan", "set.yaml", "--fleet", f"{EXAMPLES}/fleet.yaml", "-o", "first.json"], check=True)


def ctl(*arguments, code=0):
    done = subprocess.run([WEFT, "ctl", "control", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (arguments, done)
    return done.stdout + done.stderr


def status():
    return json.loads(ctl("status", "--format", "json"))


def placed():
    return sorted((tuple(sorted(w["models"])), w["slice"]) for w in status()["workers"] if not w["draining"])


class Disk:
    """Full while the block runs."""

    def __enter__(self):
        self.fd = os.open("disk/filler", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.fill()
        return self

    def fill(self):
        for size in (4096, 1):
            try:
                while os.write(self.fd, b"x" * size):
                    pass
            except OSError:
                pass

    def __exit__(self, *_):
        os.close(self.fd)
        os.unlink("disk/filler")


class Load(threading.Thread):
    def __init__(self, server, period_s):
        super().__init__()
        self.server, self.period_s, self.problem, self.n, self.stop = server, period_s, None, 0, threading.Event()

    def run(self):
        try:
            connection = self.server.connect()
            while not self.stop.wait(self.period_s):
                check_images(connection, "m", x[self.n % 64:self.n % 64 + 1], want["m"][self.n % 64:self.n % 64 + 1])
                self.n += 1
        except Exception as problem:
            self.problem = repr(problem)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        self.stop.set()
        self.join()
        assert kind or (not self.problem and self.n > 0), self.problem


def check_lines(path):
    """Each line is one record, or the beginning of one that was cut."""
    with open(path) as f:
        lines = f.read().splitlines()
    cut = []
    for line in lines:
        try:
            json.loads(line)
        except ValueError:
            cut.append(line)
    key = '{"ts":' if path.endswith("log") else '{"resourceSpans":'
    assert len(lines) - len(cut) > 20 and all(line.count(key) <= 1 for line in cut), (path, cut)
    return len(cut)


class FullServer(Server):
    """Its log is on the disk, too."""

    def __init__(self, *options, bundle):
        self.log = open("disk/log", "a+")
        self.bundle, self.options = bundle, options
        self.start((0, 0, 0))


def check_changes(server):
    """By hand: nothing of what is refused has come into force."""
    before = placed()
    with open("first.json") as f:
        plan = json.load(f)
    plan["placements"] = [dict(p, slice_id=1 - p["slice_id"]) for p in plan["placements"]]
    with open("other.json", "w") as f:
        json.dump(plan, f)
    with Load(server, 0.002), Load(server, 0.003):
        for _ in range(3):
            with Disk() as disk:
                assert "No space left" in ctl("load", "q.weft", code=1)
                assert "No space left" in ctl("weights", "m", "1=0.5", code=1)
                assert "No space left" in ctl("plan", "other.json", code=1)
                now = status()
                assert placed() == before and "No space" in now["state_error"], now
                os.kill(server.workers()[0], signal.SIGKILL)
                time.sleep(0.3)
                disk.fill()  # what lines of the log have left
        ctl("load", "q.weft")
        ctl("plan", "other.json")
        assert placed() != before and not status()["state_error"]
        check_images(server.connect(), "q", x[:1], want["q"][:1])
        ctl("unload", "q")
        ctl("plan", "first.json")
    ports = server.http, server.grpc, server.metrics
    with Disk():
        server.kill()
        server.start(ports)
        assert placed() == before
        check_images(server.connect(), "m", x[:1], want["m"][:1])


def check_policy(server):
    """By the policy: a plan that cannot be saved is undone, and tried again until it can."""
    before = placed()
    with Load(server, 0.004), Load(server, 0.004):
        with Disk():
            wait_until(lambda: "No space" in status()["state_error"])
            time.sleep(1)
            assert placed() == before, (before, placed())
        wait_until(lambda: placed() != before)
        assert not status()["state_error"]


try:
    options = ("--control", "control", "--state", "disk/state", "--trace-file", "disk/spans", "--log-format", "json",
               "--log-level", "access")
    with FullServer("first.json", *options, bundle="m.weft") as server:
        check_changes(server)
    cut = check_lines("disk/log"), check_lines("disk/spans")
    for name in ("log", "spans"):
        os.unlink(f"disk/{name}")
    subprocess.run(["rm", "-r", "disk/state"], check=True)
    with FullServer("first.json", *options[:-1], "info", "--set", "m.yaml", "--fleet", f"{EXAMPLES}/fleet.yaml", "--policy", "weft",
                    "--control-options", "down=60s,hold=1s,period=2s,up=1s,move=100ms,trial=0s,poll=200ms", bundle="m.weft") as server:
        if SLOW == 1:  # in an interpreter clients do not reach the rates at which the plan must change
            check_policy(server)
    print(f"lines cut: {cut[0]} of the log, {cut[1]} of the spans")
finally:
    subprocess.run(["umount", "-l", "disk"], check=True)
