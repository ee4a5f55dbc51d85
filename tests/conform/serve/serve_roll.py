# needs: numpy
# ctest label: slow (programs of others take the time)
"""Rolling to a new bundle under load, with TLS between front and workers: twelve models, of which the new bundle has one
with other weights, on workers of four nodes behind HAProxy. The script of `weft reconcile --roll --engine systemd` runs with
doubles of scp and systemctl that copy the units into folders of each node and run their commands. Each node pulls the new
bundle from a web server and transfers only what is new; copies on a fifth node carry the load meanwhile. Then workers are
killed and started again. No request is lost, and every worker has the new weights. A worker with a certificate for another
name gets nothing."""
import contextlib
import functools
import glob
import http.client
import http.server
import json
import os
import signal
import ssl
import subprocess
import threading
import time

import numpy as np

from fronts import MODELS, Calls, Replays, free_ports, grpc, haproxy, need, run, unequal, write_plan
from serving import WEFT, Graph, Node, Port, wait_until

need("haproxy", "socat", "openssl")
WIDE = 16384


def compile_bundle(path, seeds):
    """Models y = x + x, z = x A B: 512 KiB of weights each, of a seed."""
    for name, seed in zip(MODELS, seeds):
        random = np.random.default_rng(seed)
        g = Graph(opset=17)
        g.inputs.append(Port("x", "float32", ["B", 4]))
        g.constants["a"] = random.standard_normal((4, WIDE)).astype("f4")
        g.constants["b"] = random.standard_normal((WIDE, 4)).astype("f4") / WIDE
        g.nodes += [Node("Add", ["x", "x"], ["y"], {}), Node("MatMul", ["x", "a"], ["h"], {}),
                    Node("MatMul", ["h", "b"], ["z"], {})]
        g.outputs += [Port("y", "float32"), Port("z", "float32")]
        g.save(f"{name}.onnx")
    with open("models.yaml", "w") as f:
        f.write("models:\n" + "".join(f"  - {{name: {m}, file: {m}.onnx}}\n" for m in MODELS))
    run(WEFT, "compile", "models.yaml", "-o", path, "--merge", "off", "--batch", "1")


def z(address, port, model):
    c = http.client.HTTPSConnection(address, port, timeout=10, context=TRUST)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    c.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
    reply = json.loads(c.getresponse().read())
    return next(o["data"] for o in reply["outputs"] if o["name"] == "z")


SCP = """#!/bin/sh
# scp -q FILE... root@ADDRESS:/FOLDER/: the folders of a node are below one of its address.
shift
for to; do :; done
to=${to#root@}
[ -d "HERE/${to%%:*}${to#*:}" ] || exit 1
for file; do [ "$file" = "root@$to" ] || cp "$file" "HERE/${to%%:*}${to#*:}"; done
"""

SSH = """#!/bin/sh
# ssh root@ADDRESS mkdir -p /FOLDER
[ "$2 $3" = "mkdir -p" ] && mkdir -p "HERE/${1#root@}$4"
"""

SYSTEMCTL = """#!/usr/bin/python3
# systemctl --host=root@ADDRESS VERB [UNIT]: runs the commands of the units that scp has brought.
import json, os, shlex, signal, subprocess, sys, time

verb, node = sys.argv[2], "HERE/" + sys.argv[1].split("@")[1]


def lines(unit, key):
    with open(f"{node}/etc/systemd/system/{unit}") as f:
        return [l.split("=", 1)[1].strip() for l in f if l.startswith(key + "=")]


def command(unit):
    text = lines(unit, "ExecStart")[0].replace("/srv/weft", f"{node}/srv/weft").replace("/etc/weft", f"{node}/etc/weft")
    return shlex.split(text.replace("%d", "HERE/tls"))


def start(unit):
    for needed in lines(unit, "Requires"):
        if os.path.exists(f"{node}/{needed}"):
            continue
        os.makedirs(f"{node}/srv/weft", exist_ok=True)
        pull = command(needed)[2].removeprefix("until ").split(";")[0]
        with open(f"{node}/pulled", "w") as f:
            subprocess.run([*pull.split(), "--format", "json"], stdout=f, check=True)
        open(f"{node}/{needed}", "w").close()
    os.makedirs(f"{node}/run", exist_ok=True)
    name = unit.removesuffix(".service")
    with open(f"{node}/{name}.log", "w") as log:
        worker = subprocess.Popen(command(unit), stdout=log, stderr=log, start_new_session=True)
    with open(f"{node}/run/{name}", "w") as f:
        f.write(str(worker.pid))
    while "READY" not in open(f"{node}/{name}.log").read():
        assert worker.poll() is None, open(f"{node}/{name}.log").read()
        time.sleep(0.05)


def stop(unit):
    path = f"{node}/run/{unit.removesuffix('.service')}"
    pid = int(open(path).read())
    os.kill(pid, signal.SIGTERM)
    while os.path.exists(f"/proc/{pid}") and " Z " not in open(f"/proc/{pid}/stat").read():
        time.sleep(0.05)
    os.remove(path)


if verb in ("start", "stop"):
    globals()[verb](sys.argv[3])
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def ask_front(text):
    return run("socat", "-", f"UNIX-CONNECT:{socket_path}", input=text + "\n")


def is_up(worker):
    """Whether the front asks a worker for all its models: two checks of each server."""
    rows = [line.split() for line in ask_front("show servers state").splitlines() if f" {worker} " in line]
    return all(row[5] == "2" for row in rows)  # operational state: running


def make_certificates():
    """tls/: an authority, and a certificate for the name that the front verifies."""
    os.mkdir("tls")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    run("openssl", "req", "-x509", *new, "-keyout", "tls/ca.key", "-out", "tls/ca.crt", "-subj", "/CN=ca")
    run("openssl", "req", "-x509", *new, "-keyout", "tls/tls.key", "-out", "tls/tls.crt", "-subj", "/CN=x", "-CA", "tls/ca.crt",
        "-CAkey", "tls/ca.key", "-addext", "subjectAltName=DNS:weft", "-addext", "basicConstraints=critical,CA:FALSE")


make_certificates()
TRUST = ssl.create_default_context(cafile="tls/ca.crt")
TRUST.check_hostname = False
NODES = [f"127.0.0.{11 + i}" for i in range(5)]  # the last is free
PORT = free_ports(20, *NODES, "127.0.0.1")
store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory="store"))
threading.Thread(target=store.serve_forever, daemon=True).start()
for name, n in (("nodes", 4), ("all-nodes", 5)):
    with open(name, "w") as f:
        f.writelines(f"weft-cpu-{i} {address}\n" for i, address in enumerate(NODES[:n]))
with open("fleet.yaml", "w") as f:
    f.write("devices:\n  - {type: cpu, count: 5, cores: 1, slices: [1]}\n")
os.mkdir("double")
for program, text in (("scp", SCP), ("ssh", SSH), ("systemctl", SYSTEMCTL)):
    with open(f"double/{program}", "w") as f:
        f.write(text.replace("HERE", os.getcwd()))
    os.chmod(f"double/{program}", 0o755)
rates = unequal(4, 3, 3, 2)
write_plan("plan.json", rates)
options = ["--port", str(PORT), "--worker-tls", os.path.abspath("tls")]
units = ["--weft", os.path.realpath(WEFT), "--store", f"http://127.0.0.1:{store.server_port}", *options]
digests = []
for version, changed in (("one", None), ("two", 3)):
    compile_bundle(f"{version}.weft", [100 + i + 50 * (i == changed) for i in range(len(MODELS))])
    pushed = json.loads(run(WEFT, "push", f"{version}.weft", "store", "--format", "json"))
    digests.append(pushed["sha256"])
size = pushed["bytes"]
print(f"bundle of {size} bytes; new in the store {pushed['new_bytes']}, written {pushed['put_bytes']}")
assert pushed["new_bytes"] < 0.15 * size, pushed
socket_path = os.path.abspath("haproxy.sock")
front_options = ["--bind", f"127.0.0.1:{PORT}", "--socket", socket_path]
run(WEFT, "export", "plan.json", "--to", "haproxy", "-o", "front", *front_options, *options, "--nodes", "nodes")
run(WEFT, "export", "plan.json", "--to", "systemd", "-o", "units", *units, "--nodes", "nodes", "--digest",
    f"sha256:{digests[0]}")
for address in NODES:
    os.makedirs(f"{address}/etc/systemd/system")
for i, address in enumerate(NODES[:4]):
    folder = f"units/weft-cpu-{i}"
    os.makedirs(f"{address}/etc/weft/plans")
    run("double/scp", "-q", *glob.glob(f"{folder}/*.service"), f"root@{address}:/etc/systemd/system/")
    run("double/scp", "-q", *glob.glob(f"{folder}/plans/*.json"), f"root@{address}:/etc/weft/plans/")
    run("double/systemctl", f"--host=root@{address}", "start", f"weft-d{i}-s0.service")
    moved = json.load(open(f"{address}/pulled"))
    assert moved["fetched_bytes"] == moved["bytes"], moved
before = {m: z(NODES[0], PORT, m) for m in MODELS}
front = haproxy("front", PORT)
try:
    wait_until(lambda: front.is_ready() and all(is_up(f"weft-d{i}-s0") for i in range(4)))
    load, calls = Replays(PORT, "plan.json"), Calls(PORT) if grpc else None
    load.start()
    if calls:
        calls.start()
    print(run(WEFT, "reconcile", "--from", "plan.json", "--plan", "plan.json", "--fleet", "fleet.yaml", "--engine", "systemd",
              "--front", "haproxy", "--roll", "-o", "change", *units, "--nodes", "all-nodes", "--digest", f"sha256:{digests[1]}", *front_options))
    run("sh", "change/apply.sh", env={**os.environ, "PATH": f"{os.getcwd()}/double:{os.environ['PATH']}"})
    for address in NODES:
        moved = json.load(open(f"{address}/pulled"))
        had = 0.85 * size if address != NODES[4] else 0
        assert moved["reused_bytes"] >= had and moved["transferred_bytes"] < (0.15 if had else 1) * size, moved
        print(f"{address}: {moved['transferred_bytes']} of {size} bytes transferred, {moved['reused_bytes']} were there")
    # What runs now has the names of the new plan; two of them are killed and started again.
    workers = {}
    for p in json.load(open("change/plan.json"))["placements"]:
        where = p["where"]
        workers[where["worker"]] = (NODES[int(where["node"].rsplit("-", 1)[1])], where["port"])
    assert sorted(os.path.basename(f) for a in NODES for f in glob.glob(f"{a}/run/*")) == sorted(workers), workers
    for name, (address, _) in list(workers.items())[::2]:
        with open(f"{address}/run/{name}") as f:
            os.kill(int(f.read()), signal.SIGKILL)
        wait_until(lambda: not is_up(name))
        run("double/systemctl", f"--host=root@{address}", "start", f"{name}.service")
        wait_until(lambda: is_up(name))
    print(load.finish(), "answered over HTTP and", calls.finish() if calls else "no", "over gRPC, none lost")
    for p in json.load(open("change/plan.json"))["placements"]:
        same = np.allclose(z(*workers[p["where"]["worker"]], p["model"]), before[p["model"]], rtol=1e-4, atol=1e-6)
        assert same == (p["model"] != MODELS[3]), p
    # Workers whose certificates are for another name get nothing.
    front.process.terminate()
    front.process.wait(40)
    with open("front/haproxy.cfg") as f:
        other = f.read().replace("verifyhost weft", "verifyhost other")
    with open("front/haproxy.cfg", "w") as f:
        f.write(other)
    front = haproxy("front", PORT)
    wait_until(lambda: not front.is_ready())
    assert front.is_live()
finally:
    front.process.terminate()
    for path in glob.glob("127.*/run/*"):
        with open(path) as f, contextlib.suppress(ProcessLookupError):
            os.kill(int(f.read()), signal.SIGKILL)
