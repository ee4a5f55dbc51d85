# needs: numpy
# ctest label: slow (programs of others take the time)
"""A plan exported to a real Slurm (slurmctld and four slurmd on this machine, munge) and to HAProxy, which finds the
workers by what their jobs publish: loads are the plan's, and no request is lost when a worker is killed, a node
drained, a job requeued or ended, nor when `weft reconcile` brings another plan, and then another bundle. Needs root. --seconds N: longer loads; --long: also a drained
node, a requeued job and one that is ended and submitted again."""
import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

from fronts import (Calls, Replays, answered, compare, compile_twelve, free_ports, grpc, haproxy, need, replay, report, run, unequal,
                    write_plan)
from serving import WEFT, skip, wait_until

need("haproxy", "socat", "slurmctld", "slurmd", "munged", "sbatch", "scontrol")
if os.geteuid() != 0:
    skip("not root")
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=2)
parser.add_argument("--long", action="store_true")
parser.add_argument("--table")
options, _ = parser.parse_known_args()
HERE = os.getcwd()
PORT = free_ports(8, "0.0.0.0")  # of the front; the five after its three are those of Slurm
SLURM = PORT + 3

for folder in ("state", *(f"spool/n{i}" for i in range(1, 5))):
    os.makedirs(folder)
with open("munge.key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
    f.write(os.urandom(128))
host = run("hostname", "-s").strip()
with open("slurm.conf", "w") as f:
    f.write(f"""ClusterName=weft
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={HERE}/munge.sock,cred_expire=5
SlurmctldPort={SLURM}
SlurmctldPidFile={HERE}/slurmctld.pid
SlurmctldLogFile={HERE}/slurmctld.log
SlurmdPidFile={HERE}/slurmd.%n.pid
SlurmdLogFile={HERE}/slurmd.%n.log
SlurmdSpoolDir={HERE}/spool/%n
StateSaveLocation={HERE}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=2,sched_interval=2
ReturnToService=2
KillWait=30
MpiDefault=none
""")
    for i in range(1, 5):
        f.write(f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.{10 + i} Port={SLURM + i} CPUs=2 RealMemory=2000 State=UNKNOWN\n")
    f.write("PartitionName=other Nodes=n[1-4] State=UP\nPartitionName=serve Nodes=n[1-4] MaxTime=INFINITE State=UP\n")
os.environ["SLURM_CONF"] = f"{HERE}/slurm.conf"


def stop_daemons():
    """Ends all jobs, then the daemons."""
    subprocess.run(["scancel", "--me"], timeout=20)
    until = time.monotonic() + 40
    while time.monotonic() < until and subprocess.run(["squeue", "--me", "-h"], stdout=subprocess.PIPE).stdout:
        time.sleep(0.2)
    for name in (*(f"slurmd.n{i}.pid" for i in range(1, 5)), "slurmctld.pid", "munged.pid"):
        with contextlib.suppress(OSError, ValueError):
            with open(name) as f:
                pid = int(f.read())
            os.kill(pid, signal.SIGTERM)
            for _ in range(100):
                os.kill(pid, 0)
                time.sleep(0.05)
            os.kill(pid, signal.SIGKILL)


def addresses():
    """What the running jobs publish: address and HTTP port by worker."""
    lines = run("sh", "one.json.slurm/addresses.sh").splitlines()
    return {w: (a, int(h)) for w, a, h, _ in map(str.split, lines)}


def jobs():
    """Of each worker the job, its state and its node."""
    return {name: (job, state, node) for name, job, state, node in
            (line.split("|") for line in run("squeue", "--me", "-h", "-o", "%j|%i|%t|%N").splitlines())}


class Follower(threading.Thread):
    """Brings the published addresses to HAProxy, again and again."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.rounds, self.stopped = folder, 0, False

    def run(self):
        while not self.stopped:
            done = subprocess.run(f"sh one.json.slurm/addresses.sh | sh {self.folder}/update.sh {HERE}/haproxy.sock -",
                                  shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                print("update:", done.stdout, file=sys.stderr)
            self.rounds += 1
            time.sleep(0.3)

    def wait_round(self):
        at = self.rounds
        wait_until(lambda: self.rounds > at + 1)


def settle(n):
    """All n jobs run, are published, and HAProxy has them."""
    wait_until(lambda: len(addresses()) == n, 60)
    follower.wait_round()
    time.sleep(2.5)  # servers are checked twice


def check_load(plan, rates, what):
    at = addresses()
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
    run("munged", f"--key-file={HERE}/munge.key", f"--socket={HERE}/munge.sock", f"--pid-file={HERE}/munged.pid",
        f"--log-file={HERE}/munged.log", f"--seed-file={HERE}/munge.seed", "--num-threads=2", "--force")
    run("slurmctld", "-f", f"{HERE}/slurm.conf")
    for i in range(1, 5):
        run("slurmd", "-N", f"n{i}", "-f", f"{HERE}/slurm.conf")
    wait_until(lambda: run("sinfo", "-h", "-p", "serve", "-o", "%t %D").split() == ["idle", "4"])
    for d in range(4):
        run("sbatch", f"one.json.slurm/jobs/weft-d{d}-s0.sh")
    front = haproxy("one.json.haproxy", PORT)
    assert not front.is_ready()
    follower = Follower("one.json.haproxy")
    follower.start()
    wait_until(front.is_ready, 60)
    settle(4)
    check_load("one.json", rates, "start")
    # Faults under load, each mended before the next: a worker killed; a node drained and its job requeued; a job ended
    # and submitted again.
    load, calls = Replays(PORT, "one.json"), Calls(PORT) if grpc else None
    load.start()
    if calls:
        calls.start()
    time.sleep(0.5)
    at = addresses()
    port = at["weft-d0-s0"][1]
    plan = f"{HERE}/one.json.slurm/plans/weft-d0-s0.json"
    os.kill(int(run("pgrep", "-o", "-f", f"weft-server serve {HERE}/models.weft {plan}|weft serve {HERE}/models.weft {plan}").split()[0]), signal.SIGKILL)
    wait_until(lambda: addresses().get("weft-d0-s0", (0, port))[1] != port)
    settle(4)
    if options.long:
        job, _, node = jobs()["weft-d1-s0"]
        run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
        run("scontrol", "requeue", job)
        wait_until(lambda: jobs().get("weft-d1-s0", (0, 0, node))[1:] != ("R", node) and jobs()["weft-d1-s0"][1] == "R", 60)
        assert jobs()["weft-d1-s0"][2] != node
        run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        settle(4)
        run("scancel", jobs()["weft-d2-s0"][0])
        wait_until(lambda: "weft-d2-s0" not in jobs(), 60)
        run("sbatch", "one.json.slurm/jobs/weft-d2-s0.sh")
        settle(4)
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
    before = {name: answered(*at) for name, at in addresses().items()}
    print(report(replay(PORT, "two.json", options.seconds)), "answered over HTTP")
    share = {name: sum((answered(*at)[m] - n) for m, n in before[name].items()) for name, at in addresses().items()}
    got, wanted = sorted(share.values()), sorted(sum(r.values()) for r in changed)
    assert all(abs(g / sum(got) / (w / sum(wanted)) - 1) < 0.05 for g, w in zip(got, wanted)), (share, wanted)
finally:
    if follower:
        follower.stopped = True
    if front:
        front.process.terminate()
    stop_daemons()
if options.table:
    with open(options.table, "w") as f:
        f.write("\n".join(table) + "\n")
