# needs: numpy
"""A set that names a model whose bundle is loaded later: the policy has placed it, and it runs where the plan says.
Changes of the plan go on while bundles come and go; no request is lost."""
import json
import os
import subprocess
import threading

from serving import EXAMPLES, WEFT, Server, check_images, digits, skip, wait_until

if len(os.sched_getaffinity(0)) < 2:
    skip("fewer than two CPUs")
KEYS = {"m": "digits_cnn", "q": "digits_attn"}
x, _ = digits()
want = {model: digits(key)[1] for model, key in KEYS.items()}
with open("profile.csv", "w") as f:
    f.write("device,slice,batch,time_us,mreq_bytes\ncpu,1core,1,20000,50000000\n")


def write_set(path, *models):
    with open(path, "w") as f:
        f.write("models:\n" + "".join(f"  - {{name: {m}, file: {EXAMPLES}/{KEYS[m]}.onnx, profile: profile.csv, slo: 500ms, "
                                      f"rate: 20/s}}\n" for m in models))


def ctl(*arguments):
    done = subprocess.run([WEFT, "ctl", "control", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def status():
    return json.loads(ctl("status", "--format", "json"))


write_set("set.yaml", "m", "q")
for model in KEYS:
    write_set(f"{model}.yaml", model)
    subprocess.run([WEFT, "compile", f"{model}.yaml", "-o", f"{model}.weft"], check=True)
problems, stop = [], threading.Event()


def load(server):
    try:
        connection, n = server.connect(), 0
        while not stop.is_set():
            check_images(connection, "m", x[n % 64:n % 64 + 1], want["m"][n % 64:n % 64 + 1])
            n += 1
            stop.wait(0.02)
    except Exception as problem:
        problems.append(repr(problem))


with Server("--set", "set.yaml", "--fleet", f"{EXAMPLES}/fleet.yaml", "--policy", "weft", "--control", "control",
            "--control-options", "down=2s,hold=1s,period=1s,up=1s,move=100ms,trial=0s,poll=200ms", bundle="m.weft") as server:
    assert [m["model"] for m in status()["models"]] == ["m"]
    threads = [threading.Thread(target=load, args=(server,)) for _ in range(2)]
    for t in threads:
        t.start()
    for _ in range(3):
        ctl("load", "q.weft")
        connection = server.connect()
        for i in range(8):
            check_images(connection, "q", x[i:i + 1], want["q"][i:i + 1])
        on = [w for w in status()["workers"] if w["bundle"].endswith("q.weft") and not w["draining"]]
        assert on and all("q" in w["models"] for w in on), status()["workers"]
        ctl("replan")
        ctl("unload", "q")
        assert server.get("/v2/models/q")[0] == 404
        wait_until(lambda: not [w for w in status()["workers"] if w["bundle"].endswith("q.weft")])
    stop.set()
    for t in threads:
        t.join()
    assert not problems, problems
