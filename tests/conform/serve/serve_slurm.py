# needs: numpy
# ctest label: slow (programs of others take the time)
"""A plan exported to a real Slurm (slurmctld and four slurmd on this machine, munge) and to HAProxy, which finds the
workers by what their jobs publish: loads are the plan's, and no request is lost when a worker is killed, nor when
`weft reconcile` brings another plan, and then another bundle. Needs root. --seconds N: longer loads; --long: also a job
that is preempted, a drained node, a requeued job and one that is ended and submitted again."""
import argparse
import os
import signal
import time

from slurm import HERE, Follower, Slurm, addresses, jobs

from fronts import Calls, Replays, answered, compare, compile_twelve, free_ports, grpc, haproxy, replay, report, run, unequal, write_plan
from serving import WEFT, wait_until

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=2)
parser.add_argument("--long", action="store_true")
parser.add_argument("--table")
options, _ = parser.parse_known_args()
PORT = free_ports(8, "0.0.0.0")  # of the front; the five after its three are those of Slurm
slurm = Slurm(PORT + 3, [f"NodeName=n{i} CPUs=2 RealMemory=2000 State=UNKNOWN" for i in range(1, 5)])


def check_load(plan, rates, what):
    at = addresses("one.json.slurm")
    workers = [at[f"weft-d{d}-s0"] for d in range(len(rates))]
    before = [answered(*w) for w in workers]
    print(report(replay(PORT, plan, options.seconds)), "answered over HTTP")
    table.extend(compare([answered(*w) for w in workers], rates, before, what))


reconciled = {}


def reconcile(old, new, folder, *more):
    """Runs the change; returns the names of the workers, which must be those of the new plan."""
    print(run(WEFT, "reconcile", "--from", old, "--plan", new, "--fleet", "fleet.yaml", "--engine", "slurm", "--front", "haproxy",
              "-o", folder, "--config", f"{HERE}/{folder}/slurm", *WORKERS, *FRONT, *more))
    run("sh", f"{folder}/apply.sh")
    run(WEFT, "export", f"{folder}/plan.json", "--to", "slurm", "-o", f"after-{folder}")
    now = {name for name, (_, state, _) in jobs().items() if state == "R"}
    assert now == {name.removesuffix(".sh") for name in os.listdir(f"after-{folder}/jobs")} and len(now) == 3, now
    reconciled[folder] = now
    return now


table = ["phase,worker,plan_share,requests,share,ratio"]
front = follower = None
compile_twelve()
rates = unequal(8, 4, 2, 1)
write_plan("one.json", rates)
WORKERS = ["--weft", os.path.realpath(WEFT), "--bundle", f"{HERE}/models.weft", "--sbatch", "partition=serve", "--sbatch",
           "mem=400M", "--sbatch", f"output={HERE}/%x.log"]
FRONT = ["--published", "--bind", f"127.0.0.1:{PORT}", "--socket", f"{HERE}/haproxy.sock"]
run(WEFT, "export", "one.json", "--to", "slurm", "-o", "one.json.slurm", "--config", f"{HERE}/one.json.slurm", *WORKERS)
run(WEFT, "export", "one.json", "--to", "haproxy", "-o", "one.json.haproxy", *FRONT)
try:
    slurm.start()
    for d in range(4):
        run("sbatch", f"one.json.slurm/jobs/weft-d{d}-s0.sh")
    front = haproxy("one.json.haproxy", PORT)
    assert not front.is_ready()
    follower = Follower("one.json.slurm", "one.json.haproxy")
    follower.start()
    wait_until(front.is_ready, 60)
    follower.settle(4)
    check_load("one.json", rates, "start")
    # Faults under load, each mended before the next: a worker killed; one preempted; a node drained and its job requeued;
    # a job ended and submitted again.
    load, calls = Replays(PORT, "one.json"), Calls(PORT) if grpc else None
    load.start()
    if calls:
        calls.start()
    time.sleep(0.5)
    port = addresses("one.json.slurm")["weft-d0-s0"][1]
    plan = f"{HERE}/one.json.slurm/plans/weft-d0-s0.json"
    os.kill(int(run("pgrep", "-o", "-f", f"weft-server serve {HERE}/models.weft {plan}|weft serve {HERE}/models.weft {plan}").split()[0]), signal.SIGKILL)
    wait_until(lambda: addresses("one.json.slurm").get("weft-d0-s0", (0, port))[1] != port)
    follower.settle(4)
    if options.long:
        # A job with more priority wants all of a worker's node: the worker answers what it has, and comes back.
        job, _, node = jobs()["weft-d3-s0"]
        port = addresses("one.json.slurm")["weft-d3-s0"][1]
        run("sbatch", "-p", "urgent", "-w", node, "--exclusive", "-J", "urgent", "-o", "/dev/null", "--wrap", "sleep 1")
        wait_until(lambda: jobs()["weft-d3-s0"][1] != "R", 60)
        wait_until(lambda: addresses("one.json.slurm").get("weft-d3-s0", (0, port))[1] != port, 60)
        assert jobs()["weft-d3-s0"][0] == job, jobs()
        follower.settle(4)
        job, _, node = jobs()["weft-d1-s0"]
        run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
        run("scontrol", "requeue", job)
        wait_until(lambda: jobs().get("weft-d1-s0", (0, 0, node))[1:] != ("R", node) and jobs()["weft-d1-s0"][1] == "R", 60)
        assert jobs()["weft-d1-s0"][2] != node
        run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        follower.settle(4)
        run("scancel", jobs()["weft-d2-s0"][0])
        wait_until(lambda: "weft-d2-s0" not in jobs(), 60)
        run("sbatch", "one.json.slurm/jobs/weft-d2-s0.sh")
        follower.settle(4)
    # Another plan, by weft reconcile: two workers stay, one with other models starts, two end, in an order that keeps
    # what the rates need. The script does it all, and tells the front.
    follower.stopped = True
    follower.join()
    changed = [rates[0], rates[1], {m: 2 * r for m, r in list(rates[0].items())[:6]}]
    write_plan("two.json", changed)
    with open("fleet.yaml", "w") as f:
        f.write("devices:\n  - {type: cpu, count: 5, cores: 1, slices: [1]}\n")
    reconcile("one.json", "two.json", "change")
    # The same plan with another bundle: every worker is another one.
    os.link("models.weft", "two.weft")
    WORKERS[WORKERS.index(f"{HERE}/models.weft")] = f"{HERE}/two.weft"
    assert not reconcile("change/plan.json", "change/plan.json", "roll", "--roll") & reconciled["change"]
    assert f"{HERE}/models.weft" not in run("ps", "-eo", "args"), "a worker has the old bundle"
    print(load.finish(), "answered over HTTP meanwhile;", calls.finish() if calls else "no", "over gRPC")
    # What runs has the load of the new plan.
    before = {name: answered(*at) for name, at in addresses("one.json.slurm").items()}
    print(report(replay(PORT, "two.json", options.seconds)), "answered over HTTP")
    share = {name: sum((answered(*at)[m] - n) for m, n in before[name].items()) for name, at in addresses("one.json.slurm").items()}
    got, wanted = sorted(share.values()), sorted(sum(r.values()) for r in changed)
    assert all(abs(g / sum(got) / (w / sum(wanted)) - 1) < 0.05 for g, w in zip(got, wanted)), (share, wanted)
finally:
    if follower:
        follower.stopped = True
    if front:
        front.process.terminate()
    slurm.stop()
if options.table:
    with open(options.table, "w") as f:
        f.write("\n".join(table) + "\n")
