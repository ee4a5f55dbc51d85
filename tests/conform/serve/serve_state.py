# needs: numpy
"""What is served survives the router: bundles, versions, weights and the plan. The router is killed at any moment of a
change, the state cannot be written, its content is hostile, bundles have vanished or changed."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

from serving import EXAMPLES, WEFT, Server, digits, is_close, read_answer, skip, tensor, wait_until

if len(os.sched_getaffinity(0)) < 2:
    skip("fewer than two CPUs")
x, _ = digits()
KEYS = {"a": "digits_cnn", "b": "digits_attn", "c": "digits_parity"}
want = {name: digits(key)[1] for name, key in KEYS.items()}
PORTS = []


def ctl(*arguments, code=0):
    done = subprocess.run([WEFT, "ctl", "--socket", "control", *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert code is None or done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def status():
    return json.loads(ctl("status", "--format", "json"))


def served():
    return {(m["model"], m["version"], os.path.basename(m["bundle"]), m["weight"]) for m in status()["models"]}


def check(server, path, *names):
    """The answers of the model are those of one of these bundles."""
    connection = server.connect()
    for i in range(6):
        head = json.dumps({"inputs": [tensor("image", x[i:i + 1], True)],
                           "parameters": {"binary_data_output": True}}).encode()
        connection.request("POST", f"/v2/models/{path}/infer", head + x[i:i + 1].tobytes(),
                           {"Inference-Header-Content-Length": str(len(head))})
        reply = connection.getresponse()
        body = reply.read()
        assert reply.status == 200, (path, body)
        got = read_answer({k.lower(): v for k, v in reply.getheaders()}, body)["outputs"][0]["array"]
        assert [n for n in want if is_close(got, want[n][i:i + 1])][0] in names, (path, names)


for bundle, key in KEYS.items():
    with open(f"{bundle}.yaml", "w") as f:
        f.write(f"models:\n  - name: m\n    file: {EXAMPLES}/{key}.onnx\n")
    subprocess.run([WEFT, "compile", f"{bundle}.yaml", "-o", f"{bundle}.weft"], check=True)
    shutil.copy(f"{bundle}.weft", f"{bundle}.kept")
arguments = ("--control", "control", "--state", "state")
server = Server(*arguments, bundle="a.weft")
# A second server keeps out.
done = subprocess.run([WEFT, "serve", "a.weft", "--state", "state", "--http", "0", "--grpc", "off", "--metrics", "off"],
                      stderr=subprocess.PIPE, text=True)
assert done.returncode == 1 and "another server" in done.stderr, done
ports = (server.http, server.grpc, server.metrics)


def restart():
    server.kill()
    server.start(ports)


ctl("load", "b.weft", "--version", "2", "--weight", "0.25")
ctl("weights", "m", "1=0.5")
expected = {("m", "1", "a.weft", 0.5), ("m", "2", "b.weft", 0.25)}
assert served() == expected, served()
restart()
assert served() == expected, served()
check(server, "m/versions/1", "a")
check(server, "m/versions/2", "b")
ctl("unload", "m", "--version", "1")  # of the command line, too
restart()
assert served() == {("m", "2", "b.weft", 0.25)}, served()
# Killed at any moment: what is served is what was before or after the change, or after it if somebody was told.
random.seed(3)
now = "b"
for i in range(12):
    to = "ab"[now == "a"]
    change = subprocess.Popen([WEFT, "ctl", "control", "load", f"{to}.weft", "--version", "2"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(random.uniform(0, 0.5))
    server.kill()
    told = change.wait(30) == 0
    change.communicate()
    server.start(ports)
    file = [b for m, v, b, w in served()]
    assert file == [f"{to}.weft"] or (file == [f"{now}.weft"] and not told), (file, now, to, told)
    check(server, "m", file[0][0])
    now = file[0][0]
# The state cannot be written: the change is refused, what is served stays, and the next try succeeds.
if os.path.exists("state/state.new"):  # of a change that the last kill cut off
    os.unlink("state/state.new")
os.mkdir("state/state.new")
before = served()
assert "state cannot be saved" in ctl("load", "c.weft", "--version", "2", code=1)
assert "state cannot be saved" in ctl("weights", "m", "2=9", code=1) and "cannot be saved" in status()["state_error"]
assert served() == before
check(server, "m", now)
os.rmdir("state/state.new")
# A pipe or a link of this name: the server neither waits nor follows.
os.mkfifo("state/state.new")
assert "state cannot be saved" in ctl("load", "c.weft", "--version", "2", code=1)
os.unlink("state/state.new")
with open("victim", "w") as f:
    f.write("as it was")
os.symlink("../victim", "state/state.new")
assert "state cannot be saved" in ctl("load", "c.weft", "--version", "2", code=1)
os.unlink("state/state.new")
with open("victim") as f:
    assert f.read() == "as it was"
assert served() == before
check(server, "m", now)
os.mkdir("piped")
os.mkfifo("piped/state.json")
done = subprocess.run([WEFT, "serve", "a.weft", "--state", "piped", "--http", "0", "--grpc", "off", "--metrics", "off"],
                      stderr=subprocess.PIPE, text=True, timeout=60)
assert done.returncode == 1 and "not a regular file" in done.stderr, done
# The same with a disk that is full, where this user may mount one.
server.kill()
os.rename("state", "kept")
os.mkdir("state")
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "state"], stderr=subprocess.PIPE).returncode == 0:
    try:
        shutil.copytree("kept", "state", dirs_exist_ok=True)
        server.start(ports)
        filler = os.open("state/filler", os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(filler, b"x" * 4096):
                pass
        except OSError:
            os.close(filler)
        assert "No space left" in ctl("load", "c.weft", "--version", "2", code=1)
        assert served() == before
        check(server, "m", now)
        os.unlink("state/filler")
        ctl("load", "c.weft", "--version", "2")
        check(server, "m", "c")
        restart()
        check(server, "m", "c")
        server.kill()
    finally:
        subprocess.run(["umount", "-l", "state"], check=True)
os.rmdir("state")
os.rename("kept", "state")
server.start(ports)
assert served() == before
ctl("load", "c.weft", "--version", "2")
assert status()["state_error"] == ""
check(server, "m", "c")
ctl("load", "a.weft", "--version", "3", "--weight", "0")
# A bundle that has changed or vanished is reported; the others are served. Restored, it is served again.
for spoil in (lambda: shutil.copy("b.kept", "c.weft"), lambda: os.truncate("c.weft", 1000), lambda: os.unlink("c.weft")):
    server.kill()
    spoil()
    server.start(ports)
    assert [m["version"] for m in status()["models"]] == ["3"]
    assert [(os.path.basename(b["bundle"]), b["version"]) for b in status()["missing"]] == [("c.weft", "2")], status()
    assert "not served:" in ctl("status") and "bundle_not_served" in server.text()
    check(server, "m", "a")
    server.kill()
    shutil.copy("c.kept", "c.weft")
    server.start(ports)
    assert not status()["missing"]
    check(server, "m/versions/2", "c")
# A half-written state beside the one in force is no harm, nor is one that nobody asked for.
server.kill()
with open("state/state.new", "w") as f:
    f.write('{"format": "weft-st')
server.start(ports)
check(server, "m/versions/2", "c")
server.stop()
assert not os.path.exists("control")
# Hostile states are refused by name, and stay.
good = json.load(open("state/state.json"))


def changed(**bundle):
    return dict(good, bundles=[dict(good["bundles"][0], **bundle)])


hostile = ["", "[]", "{}", '{"format":', json.dumps(dict(good, format="x")), json.dumps(dict(good, version=2)),
           json.dumps(dict(good, bundles={})), json.dumps(dict(good, plan=[])), "[" * 100000, "\0" * 1000,
           json.dumps(changed(path="c.weft")), json.dumps(changed(path="/" + "x" * 5000)),
           json.dumps(changed(identity="12")), json.dumps(changed(identity="x" * 16)), json.dumps(changed(identity=1)),
           json.dumps(changed(version="../1")), json.dumps(changed(version="0")), json.dumps(changed(models={})),
           json.dumps(changed(models={"m": -1})), json.dumps(changed(models={"m": "1"})), json.dumps(changed(spreads=1)),
           json.dumps(dict(good, bundles=good["bundles"] * 3)), '{"format": "weft-state", "format": "weft-state"}']
for text in hostile:
    with open("state/state.json", "w") as f:
        f.write(text)
    done = subprocess.run([WEFT, "serve", "a.weft", *arguments, "--http", "0", "--grpc", "off", "--metrics", "off"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.strip(), (text[:200], done)
    assert open("state/state.json").read() == text
# A model that the bundle lacks, or a file that is none: reported.
for text in (json.dumps(changed(models={"x": 1})), json.dumps(changed(path="/dev/zero")), json.dumps(changed(path=os.getcwd()))):
    with open("state/state.json", "w") as f:
        f.write(text)
    with Server(*arguments, bundle="a.weft") as again:
        assert len(status()["missing"]) == 1 and not status()["models"], status()

# With a plan: the plan in force comes back, and a loaded model with it.
shutil.rmtree("state")
EXAMPLE_SET, FLEET = f"{EXAMPLES}/digits.yaml", f"{EXAMPLES}/fleet.yaml"
with open("digits.yaml", "w") as f:
    f.write(open(EXAMPLE_SET).read().replace("file: ", f"file: {EXAMPLES}/"))
subprocess.run([WEFT, "compile", "digits.yaml", "-o", "digits.weft"], check=True)
subprocess.run([WEFT, "plan", EXAMPLE_SET, "--fleet", FLEET, "-o", "made.json"], check=True)
plan = json.load(open("made.json"))
models = {p["model"]: p for p in plan["placements"]}
for i, name in enumerate(("one", "two")):
    plan["placements"] = [dict(p, slice_id=k % 2 if i else 0, batch=1) for k, p in enumerate(models.values())]
    with open(f"{name}.json", "w") as f:
        json.dump(plan, f)
with Server("one.json", *arguments, bundle="digits.weft") as server:
    ports = (server.http, server.grpc, server.metrics)
    assert len(status()["workers"]) == 1
    ctl("load", "c.weft")
    ctl("plan", "two.json")
    assert len(status()["workers"]) == 4, status()["workers"]
    restart()
    assert len(status()["workers"]) == 4 and json.loads(ctl("plan")) == plan
    check(server, "m", "c")
    ctl("unload", "digits")
    ctl("plan", "one.json")  # names a model that was unloaded
    assert server.get("/v2/models/digits")[0] == 404
    restart()
    assert server.get("/v2/models/digits")[0] == 404 and server.get("/v2/models/parity/ready")[0] == 200
    check(server, "m", "c")
