# needs: numpy
# ctest label: slow (programs of others take the time)
"""HAProxy as front of an exported plan: 12 models on workers of unequal size on four nodes (loopback addresses). The
load of each worker is the plan's, over HTTP and over one gRPC connection, and no request is lost when workers
are killed, restarted and ended, nor when HAProxy is brought to another plan while it runs. --seconds N: a longer run;
--table FILE: the shares."""
import argparse
import os
import signal
import time

from fronts import (MODELS, Calls, Worker, check_grpc, compare, compile_twelve, export, free_ports, grpc, haproxy, need, replay,
                    report, run, unequal, write_plan)
from serving import wait_until

need("haproxy", "socat")
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=2)
parser.add_argument("--table")
options, _ = parser.parse_known_args()


table = ["protocol,worker,plan_share,requests,share,ratio"]
compile_twelve()
rates = unequal(8, 4, 2, 1)
NODES = [f"127.0.0.{11 + i}" for i in range(5)]
PORT = free_ports(3, *NODES, "127.0.0.1")  # of the workers on their addresses, and of the front
write_plan("one.json", rates)
export("one.json", "systemd", NODES[:4], PORT)
socket_path = os.path.abspath("haproxy.sock")
export("one.json", "haproxy", NODES[:4], PORT, "--bind", f"127.0.0.1:{PORT}", "--socket", socket_path)
workers = [Worker("one.json", i, PORT) for i in range(4)]
front = haproxy("one.json.haproxy", PORT)
try:
    wait_until(front.is_ready)
    time.sleep(1.5)  # the second check of every server
    # What is no request of a model of the plan.
    assert front.says("/v2/models/none/infer", b"{}")[0] == 404
    assert front.says("/v2/repository/index", b"{}")[0] == 404
    assert b"weft" in front.says("/v2")[1] and front.says("/v2/health/live")[0] == 200
    # HTTP: the load of each worker.
    before = [w.answered() for w in workers]
    print(report(replay(PORT, "one.json", options.seconds)), "answered over HTTP")
    table += compare([w.answered() for w in workers], rates, before, "http")
    # One gRPC connection.
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
        folder = export(path, "haproxy", NODES[:len(sizes)], PORT, "--bind", f"127.0.0.1:{PORT}", "--socket", socket_path)
        for nth in range(3, len(sizes)):
            workers[nth:] = [*workers[nth + 1:], Worker(path, nth, PORT)]
        load, calls = replay(PORT, "one.json", options.seconds), Calls(PORT) if grpc else None
        if calls:
            calls.start()
        time.sleep(0.5)
        said = run("sh", f"{folder}/update.sh", socket_path)
        assert ("set server h-m01/weft-d3-s0 state maint" if len(sizes) == 3 else "add server h-m00/weft-d4-s0") in said, said
        if len(sizes) == 3:
            workers[3].kill(signal.SIGTERM)
        print(report(load), f"answered over HTTP while the front went to {path};", calls.finish() if calls else "no", "over gRPC")
        assert run("sh", f"{folder}/update.sh", socket_path) == "", "a second run has nothing to do"
        time.sleep(0 if len(sizes) == 3 else 2.5)  # new servers are checked
        running = workers[:len(sizes)]
        before = [w.answered() for w in running]
        report(replay(PORT, path, max(2, options.seconds / 2)))
        table += compare([w.answered() for w in running], changed, before, path)
    # A plan with a model that the configuration lacks: the rest is done, and it says that a reload is needed.
    with open(f"{folder}/servers", "a") as f:
        f.write("h-new weft-d0-s0 127.0.0.1 1 1 1\n")
    run("sh", f"{folder}/update.sh", socket_path, code=4)
    # Addresses that somebody publishes count more than the table's.
    with open("addresses", "w") as f:
        f.write("weft-d4-s0 127.0.0.99 7 8\n")
    said = run("sh", f"{folder}/update.sh", socket_path, "addresses", code=4)
    assert "set server h-m00/weft-d4-s0 addr 127.0.0.99 port 7" in said, said
    assert "set server g-m00/weft-d4-s0 addr 127.0.0.99 port 8" in said, said
finally:
    front.process.terminate()
    for w in workers:
        w.process.kill()
if options.table:
    with open(options.table, "w") as f:
        f.write("\n".join(table) + "\n")
