# needs: numpy
# ctest label: slow (programs of others take the time)
"""HAProxy as front of an exported plan: 12 models on workers of unequal size on four nodes (loopback addresses). The
load of each worker is the plan's, over HTTP and over one gRPC connection, and no request is lost when workers
are killed, restarted and ended, nor when HAProxy is brought to another plan while it runs. --seconds N: a longer run;
--table FILE: the shares."""
import argparse
import os
import time

from fronts import (Worker, change_plans, check_shares, compile_twelve, export, free_ports, haproxy, kill_workers, need, run, unequal,
                    write_plan, write_table)
from serving import wait_until

need("haproxy", "socat")
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=2)
parser.add_argument("--table")
options, _ = parser.parse_known_args()
SOCKET = os.path.abspath("haproxy.sock")


def export_front(plan, nodes):
    return export(plan, "haproxy", nodes, PORT, "--bind", f"127.0.0.1:{PORT}", "--socket", SOCKET)


def update(folder, fewer):
    """Returns what the script says; `fewer` None: nothing is expected."""
    said = run("sh", f"{folder}/update.sh", SOCKET)
    expected = "set server h-m01/weft-d3-s0 state maint" if fewer else "add server h-m00/weft-d4-s0"
    assert fewer is None or expected in said, said
    return said


compile_twelve()
rates = unequal(8, 4, 2, 1)
NODES = [f"127.0.0.{11 + i}" for i in range(5)]
PORT = free_ports(3, *NODES, "127.0.0.1")  # of the workers on their addresses, and of the front
write_plan("one.json", rates)
export("one.json", "systemd", NODES[:4], PORT)
export_front("one.json", NODES[:4])
workers = [Worker("one.json", i, PORT) for i in range(4)]
front = haproxy("one.json.haproxy", PORT)
try:
    wait_until(front.is_ready)
    time.sleep(1.5)  # the second check of every server
    table = check_shares(front, workers, rates, options.seconds)
    kill_workers(front, workers, options.seconds)
    table += change_plans(front, workers, NODES, options.seconds, export_front, update, drain_s=0, join_s=2.5)
    # A plan with a model that the configuration lacks: the rest is done, and it says that a reload is needed.
    with open("three.json.haproxy/servers", "a") as f:
        f.write("h-new weft-d0-s0 127.0.0.1 1 1 1\n")
    run("sh", "three.json.haproxy/update.sh", SOCKET, code=4)
    # Addresses that somebody publishes count more than the table's.
    with open("addresses", "w") as f:
        f.write("weft-d4-s0 127.0.0.99 7 8\n")
    said = run("sh", "three.json.haproxy/update.sh", SOCKET, "addresses", code=4)
    assert "set server h-m00/weft-d4-s0 addr 127.0.0.99 port 7" in said, said
    assert "set server g-m00/weft-d4-s0 addr 127.0.0.99 port 8" in said, said
finally:
    front.process.terminate()
    for w in workers:
        w.process.kill()
write_table(options.table, table)
