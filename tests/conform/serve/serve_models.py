# needs: numpy
"""Bundles come and go while requests flow: loaded, replaced, unloaded, several versions with weights; with workers that
are killed, stopped or never ready, and bundles that are cut, damaged, overwritten and removed on the way. Each bundle
gives other answers for the same name of a model, so that an answer from another bundle is seen. No request is lost."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from serving import EXAMPLES, WEFT, Server, digits, is_close, read_answer, skip, tensor, wait_until

if len(os.sched_getaffinity(0)) < 2:
    skip("fewer than two CPUs")
# Bundles by name: which ONNX file their models have.
BUNDLES = {"a": {"m": "digits_cnn", "p": "digits_parity"}, "b": {"m": "digits_attn", "p": "digits_size"},
           "c": {"m": "digits_parity"}, "d": {"q": "digits_size"}}
x, _ = digits()
want = {key: digits(key)[1] for key in ("digits_cnn", "digits_attn", "digits_parity", "digits_size")}


def make_bundle(name):
    with open(f"{name}.yaml", "w") as f:
        f.write("models:\n" + "".join(f"  - name: {model}\n    file: {EXAMPLES}/{key}.onnx\n"
                                      for model, key in BUNDLES[name].items()))
    subprocess.run([WEFT, "compile", f"{name}.yaml", "-o", f"{name}.weft"], check=True)
    shutil.copy(f"{name}.weft", f"{name}.kept")


def ctl(*arguments, code=0):
    done = subprocess.run([WEFT, "ctl", "control", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def status():
    return json.loads(ctl("status", "--format", "json"))


def pids():
    return {w["pid"] for w in status()["workers"] if w["pid"]}


def kill_all(which, sig=signal.SIGKILL):
    for pid in which:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass


def ask(connection, model, at, version=""):
    """Status and, when it is 200, the key of the file that gives this answer for this model's input."""
    image = x[at % 64:at % 64 + 1]
    head = json.dumps({"inputs": [tensor("image", image, True)], "parameters": {"binary_data_output": True}}).encode()
    connection.request("POST", f"/v2/models/{model}{version}/infer", head + image.tobytes(),
                       {"Inference-Header-Content-Length": str(len(head))})
    reply = connection.getresponse()
    body = reply.read()
    if reply.status != 200:
        return reply.status, body, None
    got = read_answer({k.lower(): v for k, v in reply.getheaders()}, body)
    keys = [k for k in want if is_close(got["outputs"][0]["array"], want[k][at % 64:at % 64 + 1])]
    assert len(keys) == 1, (model, at, keys)
    return 200, keys[0], got["model_version"]


class Load:
    """Clients that ask all the time, with pauses that leave the CPUs to what is changed. What may be answered is told before and after each change: each answer must have
    been right at some time while its request was under way."""

    def __init__(self, server, allowed, n=4):
        self.server, self.problems, self.n, self.stop = server, [], 0, threading.Event()
        self.history = [allowed]  # {model: set of keys, or of 404}
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(n)]

    def run(self, at):
        try:
            connection = self.server.connect()
            while not self.stop.is_set():
                begun = len(self.history) - 1
                model = list(self.history[begun])[at % len(self.history[begun])]
                got = ask(connection, model, at)
                allowed = set().union(*(h.get(model, {404}) for h in self.history[begun:]))
                assert (got[1] if got[0] == 200 else got[0]) in allowed, (model, got, allowed)
                at += 1
                self.n += 1
                self.stop.wait(0.02)
        except Exception as problem:
            self.problems.append(repr(problem))

    def change(self, after, act, ok=True):
        """Calls act(), after which `after` holds; or, not ok, what held before."""
        before = self.history[-1]
        models = set(before) | set(after)
        self.history.append({m: before.get(m, {404}) | after.get(m, {404}) for m in models})
        out = act()
        self.history.append({m: s for m, s in (after if ok else before).items() if s != {404}})
        n = self.n
        wait_until(lambda: self.problems or self.n > n + 8)
        assert not self.problems, self.problems
        return out

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, kind, value, trace):
        self.stop.set()
        for t in self.threads:
            t.join()
        assert kind or not self.problems, self.problems


def spoil(sig):
    """Begins to load b, and sends a signal to its workers as soon as they exist; returns when the change is over."""
    path = os.path.abspath("b.weft")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("control")
        f = s.makefile("rwb")

        def tell(**request):
            f.write(json.dumps(request).encode() + b"\n")
            f.flush()
            return json.loads(f.readline())

        old = {w["pid"] for w in tell(do="status")["workers"]}
        number = tell(do="load", bundle=path)["operation"]
        done = new = False
        while not done:
            now = tell(do="status")
            done = now.get("last_operation", {"operation": 0})["operation"] >= number
            if not new and {w["pid"] for w in now["workers"]} - old - {0}:
                new = True
                kill_all({w["pid"] for w in now["workers"]} - old - {0}, sig)


def of(*names):
    """What the models answer when these bundles are served, the later ones in place of the earlier ones."""
    served = {}
    for name in names:
        served.update(BUNDLES[name])
    return {model: {key} for model, key in served.items()}


def overwrite(name, data, at=0):
    with open(f"{name}.weft", "r+b") as f:
        f.seek(at)
        f.write(data)


def restore(name):
    shutil.copy(f"{name}.kept", f"{name}.new")
    os.rename(f"{name}.new", f"{name}.weft")


for bundle in BUNDLES:
    make_bundle(bundle)

# -- Load, replace, unload, faults ------------------------------------------------------------------------------------
with Server("--control", "control", "--slices", "1,1", "--start-timeout", "15s", "--stall-timeout", "30s",
            bundle="a.weft") as server:
    with Load(server, of("a")) as load:
        load.change(of("a", "d"), lambda: ctl("load", "d.weft"))
        for name in ("b", "a", "b", "a"):
            load.change(of(name, "d"), lambda: ctl("load", f"{name}.weft"))
            wait_until(lambda: len(status()["workers"]) == 4)
        # A part of a bundle is replaced; the rest goes on.
        load.change(of("a", "c", "d"), lambda: ctl("load", "c.weft"))
        load.change(of("a", "d"), lambda: ctl("load", "a.weft"))
        wait_until(lambda: len(status()["workers"]) == 4)
        load.change(of("a"), lambda: ctl("unload", "q"))
        load.change(of("a", "d"), lambda: ctl("load", "d.weft"))
        load.change(of("a"), lambda: ctl("unload", "d.weft"))
        assert "no model 'q' is served" in ctl("unload", "q", code=1)
        # New workers are killed, or never ready: what was before stays. Old ones are killed: the change goes on.
        for sig in (signal.SIGKILL, signal.SIGSTOP):
            for _ in range(20):
                old = pids()
                before, either = load.history[-1], {m: of("a")[m] | of("b")[m] for m in of("a")}
                load.change(either, lambda: spoil(sig))
                undone = not status()["last_operation"]["ok"]
                load.change(before if undone else of("b"), lambda: None)
                if undone:
                    break
                load.change(before, lambda: ctl("load", "a.weft"))  # it was ready before the signal came
            assert undone and status()["last_operation"]["error"] and pids() == old, status()

        def hurt_old():
            old = pids()
            ctl("load", "b.weft", "--no-wait")
            kill_all(old)
            wait_until(lambda: status()["waiting"] == 0)
            assert status()["last_operation"]["ok"], status()
        load.change(of("b"), hurt_old)
        load.change(of("a"), lambda: ctl("load", "a.weft"))
        # Bundles that are damaged are refused: cut, garbage, a weight changed, none at all.
        size = os.path.getsize("b.weft")
        for damage in (lambda: os.truncate("b.weft", size - 100), lambda: os.truncate("b.weft", 10),
                       lambda: overwrite("b", b"x" * 64), lambda: overwrite("b", b"\xff" * 4096, size // 2),
                       lambda: os.unlink("b.weft"), lambda: os.mkfifo("b.weft")):
            if os.path.exists("b.weft"):
                os.unlink("b.weft")
            restore("b")
            if damage.__code__.co_names[-1] == "mkfifo":
                os.unlink("b.weft")
            damage()
            load.change(of("b"), lambda: ctl("load", os.path.abspath("b.weft"), code=1), ok=False)
        os.unlink("b.weft")
        restore("b")
        # A bundle that is loaded may be overwritten, cut or removed: workers that start again answer the same.
        for damage in (lambda: overwrite("a", b"x" * os.path.getsize("a.weft")), lambda: os.truncate("a.weft", 0),
                       lambda: shutil.copy("b.kept", "a.weft"), lambda: os.unlink("a.weft")):
            damage()
            load.change(of("a"), lambda: (kill_all(pids()), wait_until(lambda: all(m["ready"] for m in status()["models"]))))
            restore("a")
        # Many changes at once, one after the other; every worker is killed now and then.
        def storm():
            for i in range(12):
                ctl("load", f"{'ab'[i % 2]}.weft", "--no-wait")
                if i % 5 == 4:
                    kill_all(pids())
            wait_until(lambda: status()["waiting"] == 0, 120)
        load.change({m: of("a")[m] | of("b")[m] for m in of("a")}, storm)
        load.change(of("a"), lambda: ctl("load", "a.weft"))
        assert "no absolute path" in json.dumps(subprocess.run(
            ["python3", "-c", "import socket;s=socket.socket(1);s.connect('control');"
             "s.sendall(b'{\"do\":\"load\",\"bundle\":\"a.weft\"}\\n');print(s.recv(999))"],
            stdout=subprocess.PIPE, text=True).stdout)
        for wrong in (("load",), ("load", "a.weft", "--weight", "-1"), ("unload",), ("unload", "m", "--weight", "1"),
                      ("weights", "m"), ("status", "--version", "1")):
            ctl(*wrong, code=2)
        assert "versions are numbers" in ctl("load", "a.weft", "--version", "01", code=1)
    print(f"{load.n} requests, none lost or wrong")
    assert len(status()["workers"]) == 2
    ctl("drain")
    assert server.process.wait(30) == 0, server.text()

# -- Versions and weights ---------------------------------------------------------------------------------------------
with Server("b.weft@7:0", "--control", "control", bundle="a.weft") as server:
    assert server.get("/v2/models/m")[1]["versions"] == ["1", "7"]
    connection = server.connect()
    assert {ask(connection, "m", i)[1:] for i in range(20)} == {("digits_cnn", "1")}
    assert {ask(connection, "m", i, "/versions/7")[1:] for i in range(20)} == {("digits_attn", "7")}
    with Load(server, of("a")) as load:
        both = {m: of("a")[m] | of("b")[m] for m in of("a")}
        load.change(both, lambda: ctl("weights", "m", "7=1", "1=3"))
    got = [ask(connection, "m", i)[2] for i in range(400)]
    assert got.count("7") == 100 and all(got[i:i + 4].count("7") == 1 for i in range(0, 400, 4)), got.count("7")
    ctl("load", "c.weft", "--version", "12", "--weight", "4")
    got = [ask(connection, "m", i)[1:] for i in range(400)]
    assert {k: got.count(k) for k in set(got)} == {("digits_cnn", "1"): 150, ("digits_attn", "7"): 50,
                                                   ("digits_parity", "12"): 200}, set(got)
    assert server.get("/v2/models/m")[1]["versions"] == ["1", "7", "12"]
    assert server.get("/v2/models/m")[1]["outputs"] == server.get("/v2/models/m/versions/12")[1]["outputs"]
    assert server.get("/v2/models/m/config")[0] == 200 and server.get("/v2/models/m/versions/8")[0] == 404
    stats = server.get("/v2/models/m/stats")[1]["model_stats"]
    assert sorted(s["version"] for s in stats) == ["1", "12", "7"], stats
    assert [s["version"] for s in server.get("/v2/models/m/versions/7/stats")[1]["model_stats"]] == ["7"]
    count = {s["version"]: s["inference_stats"]["success"]["count"] for s in stats}
    text = server.request("GET", "/metrics", port=server.metrics)[2].decode()
    for version, n in count.items():
        assert re.search(rf'^weft_requests_succeeded_total\{{model="m",version="{version}"\}} {n}$', text, re.M), version
    assert {(m["model"], m["version"]): m["weight"] for m in status()["models"]} == {
        ("m", "1"): 3, ("p", "1"): 1, ("m", "7"): 1, ("p", "7"): 0, ("m", "12"): 4}
    # A version whose workers are gone is passed over, until it is asked for by its number.
    kill = {w["pid"] for w in status()["workers"] if w["bundle"].endswith("c.weft")}
    kill_all(kill, signal.SIGSTOP)
    wait_until(lambda: not [m for m in status()["models"] if m["version"] == "12"][0]["ready"])
    for i in range(50):
        got = ask(connection, "m", i)[1]
        if "worker_continued" in server.text():  # the worker is tried again
            break
        assert got != "digits_parity", i
    assert i > 0
    kill_all(kill)
    wait_until(lambda: [m for m in status()["models"] if m["version"] == "12"][0]["ready"])
    ctl("unload", "m", "--version", "1")
    assert server.get("/v2/models/m/versions/1/ready")[0] == 404 and server.get("/v2/models/p/versions/1/ready")[0] == 200
    ctl("unload", "m")
    assert server.get("/v2/models/m")[0] == 404 and ask(connection, "m", 1)[0] == 404
    assert "no model 'm' of version 1" in ctl("weights", "m", "1=2", code=1)
# -- Versions that are worse than the others --------------------------------------------------------------------------
# Version 2 answers every request later than its SLO of 1 us; the others have none.
with open("late.yaml", "w") as f:
    f.write(f"models:\n  - {{name: m, file: {EXAMPLES}/digits_attn.onnx, slo: 1us}}\n")
subprocess.run([WEFT, "compile", "late.yaml", "-o", "late.weft"], check=True)
for keep in (False, True):
    with Server("late.weft@2:0.5", "c.weft@3:0.5", "--control", "control", *(["--keep-canary"] if keep else []),
                bundle="a.weft") as server:
        def weights():
            return {m["version"]: m["weight"] for m in status()["models"] if m["model"] == "m"}

        def ask_some():
            """Every fourth request goes to version 2, and as many to version 3."""
            for i in range(100):
                assert ask(connection, "m", i)[0] == 200
            time.sleep(0.1)
            return weights() == {"1": 1, "2": 0, "3": 0.5}

        connection = server.connect()
        if keep:
            assert not any(ask_some() for _ in range(12))
            assert weights() == {"1": 1, "2": 0.5, "3": 0.5}
        else:
            wait_until(ask_some)
            assert {ask(connection, "m", i)[2] for i in range(30)} == {"1", "3"}
            assert ask(connection, "m", 1, "/versions/2")[0] == 200
            ctl("weights", "m", "2=0.5")  # it gets another chance
            wait_until(lambda: weights()["2"] == 0.5)
            # Requests that name a version say nothing of it.
            for i in range(600):
                assert ask(connection, "m", i, "/versions/" + "12"[i % 2])[0] == 200
            time.sleep(1)
            assert weights()["2"] == 0.5
assert "name another version" in subprocess.run([WEFT, "serve", "a.weft", "b.weft", "--http", "0", "--grpc", "off", "--metrics", "off"],
                                                stderr=subprocess.PIPE, text=True).stderr
