# needs: numpy
# ctest label: slow (programs of others take the time)
"""Rolling to a new bundle under load, with TLS between front and workers: twelve models, of which the new bundle has one
with other weights, on workers of four nodes behind HAProxy, each worker with the units that `weft export --to systemd
--store` writes. Each node pulls the new bundle from a web server and transfers only what is new; each worker is drained,
ended and started with it. Then workers are killed and started again. No request is lost, and every worker has the new
weights. A worker with a certificate for another name gets nothing."""
import functools
import http.client
import http.server
import json
import os
import shlex
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


class Host:
    """A node: its folder of bundles, and its worker, as the units of an export say."""

    def __init__(self, nth):
        self.nth, self.process = nth, None

    def take(self, units):
        """Runs the service that gets the bundle; returns what was transferred."""
        folder = f"{units}/weft-cpu-{self.nth}"
        service, = [name for name in os.listdir(folder) if "-bundle-" in name]
        pull = self.command(f"{folder}/{service}")
        assert pull[:2] == ["/bin/sh", "-c"], pull
        command = pull[2].removeprefix("until ").split(";")[0].replace("/srv/weft", f"node{self.nth}")
        os.makedirs(f"node{self.nth}", exist_ok=True)
        self.worker = self.command(f"{folder}/weft-d{self.nth}-s0.service")
        self.worker = [a.replace("/srv/weft", f"node{self.nth}").replace("/etc/weft/plans", f"{folder}/plans")
                       for a in self.worker]
        self.worker = [a.replace("%d", os.path.abspath("tls")) for a in self.worker]
        return json.loads(run(*command.split(), "--format", "json"))

    @staticmethod
    def command(unit):
        with open(unit) as f:
            return shlex.split(next(l for l in f if l.startswith("ExecStart=")).split("=", 1)[1])

    def start(self):
        self.address = self.worker[self.worker.index("--address") + 1]
        self.process = subprocess.Popen(self.worker, stdout=subprocess.PIPE, stderr=open(f"worker{self.nth}.log", "a"), text=True)
        assert self.process.stdout.readline().startswith("READY"), open(f"worker{self.nth}.log").read()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(40) == 0
        self.process.stdout.close()

    def z(self, model):
        c = http.client.HTTPSConnection(self.address, PORT, timeout=10, context=TRUST)
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
        c.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
        reply = json.loads(c.getresponse().read())
        return next(o["data"] for o in reply["outputs"] if o["name"] == "z")


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
NODES = [f"127.0.0.{11 + i}" for i in range(4)]
PORT = free_ports(3, *NODES, "127.0.0.1")
store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory="store"))
threading.Thread(target=store.serve_forever, daemon=True).start()
with open("nodes", "w") as f:
    f.writelines(f"weft-cpu-{i} {address}\n" for i, address in enumerate(NODES))
rates = unequal(4, 3, 3, 2)
write_plan("plan.json", rates)
options = ["--nodes", "nodes", "--port", str(PORT), "--worker-tls", os.path.abspath("tls")]
digests = []
for version, changed in (("one", None), ("two", 3)):
    compile_bundle(f"{version}.weft", [100 + i + 50 * (i == changed) for i in range(len(MODELS))])
    pushed = json.loads(run(WEFT, "push", f"{version}.weft", "store", "--format", "json"))
    digests.append(pushed["sha256"])
    run(WEFT, "export", "plan.json", "--to", "systemd", "-o", version, "--weft", os.path.realpath(WEFT), "--store",
        f"http://127.0.0.1:{store.server_port}", "--digest", f"sha256:{pushed['sha256']}", *options)
size = pushed["bytes"]
print(f"bundle of {size} bytes; new in the store {pushed['new_bytes']}, written {pushed['put_bytes']}")
assert pushed["new_bytes"] < 0.15 * size, pushed
socket_path = os.path.abspath("haproxy.sock")
run(WEFT, "export", "plan.json", "--to", "haproxy", "-o", "front", "--bind", f"127.0.0.1:{PORT}", "--socket", socket_path, *options)
nodes = [Host(i) for i in range(4)]
for node in nodes:
    moved = node.take("one")
    assert moved["fetched_bytes"] == moved["bytes"], moved
    node.start()
before = {m: nodes[0].z(m) for m in MODELS}
front = haproxy("front", PORT)
try:
    wait_until(lambda: front.is_ready() and all(is_up(f"weft-d{node.nth}-s0") for node in nodes))
    load, calls = Replays(PORT, "plan.json"), Calls(PORT) if grpc else None
    load.start()
    if calls:
        calls.start()
    for node in nodes:
        moved = node.take("two")
        assert moved["reused_bytes"] > 0.85 * size and moved["transferred_bytes"] < 0.15 * size, moved
        print(f"node {node.nth}: {moved['transferred_bytes']} of {size} bytes transferred, {moved['reused_bytes']} were there")
        # The front stops asking the worker before it ends.
        name = f"weft-d{node.nth}-s0"
        backends = [line.split()[0] for line in open("front/servers") if line.split()[1] == name]
        def say(state):
            ask_front("".join(f"set server {b}/{name} state {state};" for b in backends))
        say("drain")
        time.sleep(0.5)
        node.end()
        node.start()
        say("ready")
        wait_until(lambda: is_up(name))
    for node in nodes[::2]:
        node.process.kill()
        node.process.wait()
        time.sleep(0.5)
        node.start()
        wait_until(lambda: is_up(f"weft-d{node.nth}-s0"))
    print(load.finish(), "answered over HTTP and", calls.finish() if calls else "no", "over gRPC, none lost")
    for node in nodes:
        for m in rates[node.nth]:
            same = np.allclose(node.z(m), before[m], rtol=1e-4, atol=1e-6)
            assert same == (m != MODELS[3]), (node.nth, m)
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
    for node in nodes:
        if node.process:
            node.process.kill()
