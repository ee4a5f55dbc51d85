# needs: numpy
"""Adapters (LoRA) that are loaded, replaced and removed while two workers answer: every answer is that of onnxruntime for a
merged model of a version that was in force while the request ran, none is lost, also when a worker is killed. Bad files are
refused and change nothing. What was loaded is there after the server was killed; what has changed on the disk meanwhile answers
nothing."""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE_DIR"], "tests", "support"))
import oracle

oracle.need()
import numpy as np
from http2 import DATA, END_HEADERS, END_STREAM, HEADERS, Connection, field, frame, head
from lora import Adapter, base
from serving import WEFT, Server, tensor
from text_models import make_inputs

MANY = 12  # adapters that do not fit in the memory for them at once
model = base(np.random.RandomState(5), "folded", layers=1, hidden=32)
model.g.save("base.onnx")
other = base(np.random.RandomState(6), "folded", layers=1, hidden=24)
inputs = [make_inputs(model.g, 6, np.random.RandomState(i)) for i in range(3)]


def answers(adapter):
    """onnxruntime's, of the first output, for each of the inputs."""
    (adapter.merged(model) if adapter else model.g).save("merged.onnx")
    return [oracle.answers("merged.onnx", dict(zip([p.name for p in model.g.inputs], x)))["hidden"] for x in inputs]


def make(seed, folder, of=model, paths=None):
    adapter = Adapter(np.random.RandomState(seed), of, paths)
    adapter.save(folder)
    return adapter


class Versions:
    """What a name answered, and when."""

    def __init__(self, first):
        self.want, self.begun, self.ended = [first], [0.0], [0.0]

    def replace(self, want, change):
        self.begun.append(time.monotonic())
        self.ended.append(float("inf"))
        self.want.append(want)
        change()
        self.ended[-1] = time.monotonic()

    def allowed(self, sent, answered):
        """Those in force at some time in between."""
        n = len(self.want)
        return [w for i, w in enumerate(self.want[:n])
                if self.begun[i] <= answered and not (i + 1 < n and self.ended[i + 1] < sent)]


def ask(server, name, i, parameter=None, **more):
    parameters = {"binary_data_output": True, **({"adapter": parameter} if parameter else {}), **more}
    status, got = server.infer(name, {"inputs": [tensor(p.name, a) for p, a in zip(model.g.inputs, inputs[i])],
                                      "outputs": [{"name": "hidden"}], "parameters": parameters})
    return status, got["outputs"][0]["array"] if status == 200 else got["error"]


def is_near(got, want):
    return np.abs(got - want).max() < 1e-5 * max(1, np.abs(want).max())


def check(server, name, versions, i=0, **how):
    sent = time.monotonic()
    status, got = ask(server, name, i, **how)
    if status == 404:
        assert None in versions.allowed(sent, time.monotonic()), (name, got)
        return
    assert status == 200, (name, status, got)
    allowed = versions.allowed(sent, time.monotonic())
    assert any(w is not None and is_near(got, w[i]) for w in allowed), (name, [np.abs(got - w[i]).max() for w in allowed if w])


def ctl(*arguments, code=0):
    done = subprocess.run([WEFT, "ctl", "--socket", "control", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stdout)
    return done.stdout


def load(server, name, path=None, code=200):
    status, got = server.post_repository(f"models/{name}/load", {"parameters": {"path": path}} if path else None)
    assert status == code, (name, path, status, got)
    return got.get("error")


def load_grpc(server, name, method):
    c = Connection(server, timeout=20)
    body = field(2, name.encode())
    c.send(frame(HEADERS, END_HEADERS, 1, head(method.encode())) + frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(body)) + body))
    headers, _ = c.answer()
    c.close()
    return headers


def check_refused(server, hot):
    """Bad files: an error that names what is wrong, and the old one stays."""
    make(70, "adapters/bad/shape", other)
    for name, spoil in (("short", lambda p: open(p, "r+b").truncate(os.path.getsize(p) - 4)),
                        ("header", lambda p: open(p, "wb").write(struct.pack("<Q", 1 << 60) + b"{}")),
                        ("empty", lambda p: open(p, "wb").close())):
        make(71, f"adapters/bad/{name}")
        spoil(f"adapters/bad/{name}/adapter_model.safetensors")
    os.makedirs("adapters/bad/nothing")
    os.symlink(os.path.abspath("adapters/many0"), "adapters/bad/link")
    open("adapters/bad/old.onnx_adapter", "w").close()
    for path, code, words in (
            ("bad/shape", 400, "features"), ("bad/short", 400, "the data has"), ("bad/header", 400, "header"), ("bad/empty", 400, "no safetensors"),
            ("bad/nothing", 400, "No such file"), ("bad/link", 400, "symbolic link"), ("bad/nowhere", 404, "no such folder"),
            ("../adapters/many0", 400, '".."'), ("../nowhere", 400, '".."'), ("/etc", 400, ""), ("/nowhere", 400, ""), ("bad/old.onnx_adapter", 400, "adapter of ONNX Runtime")):
        error = load(server, "bert@hot", path, code)
        assert words in error, (path, error)
    for name, code, words in (("nobody@hot", 404, "no such"), ("bert@", 404, "name"), ("bert@.hot", 404, "name"), ("plain@hot", 400, "takes none")):
        os.makedirs("adapters/plain", exist_ok=True)
        if name == "plain@hot":
            shutil.copytree("adapters/many0", "adapters/plain/hot", dirs_exist_ok=True)
        assert words in load(server, name, code=code), name
    status, got = server.post_repository("models/bert@hot/load", {"parameters": {"version": "2"}})
    assert status == 400 and "neither version" in got["error"], got
    status, got = server.post_repository("models/bert@nobody/unload")
    assert status == 404 and "no adapter 'nobody'" in got["error"], (status, got)
    check(server, "bert@hot", hot)


def check_left(server):
    """Requests whose deadline has passed are gone, but the worker has still to run their batch: the others of it are answered
    also when the adapter of those is unloaded meanwhile. Unloaded adapters leave nothing in the store."""
    for name in ("late", "other"):
        load(server, f"open@{name}", "hot1")
    want = ask(server, "open@other", 0)[1]
    pid, got = server.workers()[0], {}
    os.kill(pid, signal.SIGSTOP)
    threads = [threading.Thread(target=lambda k=k, p=p: got.update({k: ask(server, f"open@{k}", 0, **p)}))
               for k, p in (("late", {"timeout": 500000}), ("other", {}))]
    for t in threads:
        t.start()
    threads[0].join()
    assert got["late"][0] == 503 and "while the model was running" in got["late"][1], got
    ctl("unload", "open@late")
    os.kill(pid, signal.SIGCONT)
    threads[1].join()
    assert got["other"][0] == 200 and is_near(got["other"][1], want), got
    ctl("unload", "open@other")
    fds = f"/proc/{server.process.pid}/fd"
    store = [n for n in os.listdir(fds) if os.path.abspath("left") + "/#" in os.readlink(f"{fds}/{n}")]
    until = time.monotonic() + 20
    while os.stat(f"{fds}/{store[0]}").st_blocks:
        assert time.monotonic() < until, "unloaded adapters take room in the store"
        time.sleep(0.01)


def run_clients(server, names, stop, problems, counts):
    def client(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            name = rng.choice(list(names))
            try:
                if name == "bert" or rng.random() < 0.5:
                    check(server, name, names[name], rng.randrange(len(inputs)))
                elif name != "open@first" and None not in names[name].want:
                    check(server, "bert", names[name], rng.randrange(len(inputs)), parameter=name.split("@")[1])
                counts[seed] += 1
            except Exception as problem:
                problems.append(repr(problem))
                return
    threads = [threading.Thread(target=client, args=(i,)) for i in range(len(counts))]
    for t in threads:
        t.start()
    return threads


legal = make(40, "compiled/legal", paths=list(model.modules))  # the others change some of these
many = [make(50 + i, f"adapters/many{i}") for i in range(MANY)]
hot = [make(100 + i, f"adapters/hot{i}") for i in range(6)]
with open("set.yaml", "w") as f:
    f.write("models:\n  - {name: bert, file: base.onnx, adapters: ['compiled/*']}\n  - {name: plain, file: base.onnx}\n"
            "  - {name: open, file: base.onnx, adapter_modules: [query, key, value, dense, classifier]}\n")
subprocess.run([WEFT, "compile", "--merge", "off", "set.yaml", "-o", "models.weft"], check=True)
OPTIONS = ("--adapters", "adapters", "--control", "control", "--state", "state", "--slices", "1,1", "--max-queue-delay", "2ms",
           "--adapter-memory", str(6 * os.path.getsize("adapters/many0/adapter_model.safetensors")))

with Server("--adapters", "adapters", "--control", "control", "--state", "left", "--slices", "1", "--max-queue-delay", "100ms") as server:
    check_left(server)
with Server() as server:
    assert "is off" in load(server, "bert@hot", "hot0", 400)
with Server(*OPTIONS) as server:
    names = {"bert": Versions(answers(None)), "bert@legal": Versions(answers(legal)), "bert@hot": Versions(None)}
    for i, a in enumerate(many):
        load(server, f"bert@many{i}", f"many{i}")
        names[f"bert@many{i}"] = Versions(answers(a))
    names["bert@hot"].replace(answers(hot[0]), lambda: load(server, "bert@hot", "hot0"))
    names["open@first"] = Versions(None)
    names["open@first"].replace(answers(hot[1]), lambda: load(server, "open@first", "hot1"))
    stop, problems, counts = threading.Event(), [], [0] * 8
    threads = run_clients(server, names, stop, problems, counts)
    check_refused(server, names["bert@hot"])
    for i in range(1, 6):
        want = answers(hot[i])
        if i % 2:
            names["bert@hot"].replace(want, lambda: load(server, "bert@hot", f"hot{i}"))
        else:
            names["bert@hot"].replace(want, lambda: ctl("load", "bert@hot", f"adapters/hot{i}"))
        for k in range(len(inputs)):  # the old one answers nothing any more
            check(server, "bert@hot", names["bert@hot"], k)
        if i == 3:
            os.kill(server.workers()[0], 9)
        time.sleep(0.1)
    shutil.copytree("adapters/hot2", "adapters/bert/legal")
    names["bert@legal"].replace(answers(hot[2]), lambda: load(server, "bert@legal"))  # in place of the compiled one
    names["bert@many0"].replace(None, lambda: ctl("unload", "bert@many0"))
    time.sleep(0.2)
    stop.set()
    for t in threads:
        t.join()
    assert not problems, problems[:3]
    assert min(counts) > 10, counts
    assert "many0" not in ctl("adapters") and "hot5" in ctl("adapters"), ctl("adapters")
    assert ask(server, "bert", 0, parameter="many0")[0] == 400
    assert server.count("adapter_changes") == MANY + 9 and server.count("adapter_reads") > 2 * MANY, server.count("adapter_reads")
    assert b"\x010" in load_grpc(server, "bert@legal", "RepositoryModelUnload")
    names["bert@legal"].replace(None, lambda: None)  # not the compiled one again
    check(server, "bert@legal", names["bert@legal"])
    assert b"\x010" in load_grpc(server, "bert@legal", "RepositoryModelLoad")
    names["bert@legal"].replace(names["bert@legal"].want[1], lambda: None)
    check(server, "bert@legal", names["bert@legal"])
    ctl("unload", "bert@legal")
    names["bert@legal"].replace(None, lambda: None)
    # The server is killed; one adapter has changed on the disk before it is there again.
    server.kill()
    shutil.copytree("adapters/hot1", "adapters/many1", dirs_exist_ok=True)
    names["bert@many1"].replace(None, lambda: None)
    server.start((0, 0, 0))
    for name, versions in names.items():
        for i in range(len(inputs)):
            check(server, name, versions, i)
    assert "bert@many1: has other contents" in ctl("status"), ctl("status")
print("ok")
