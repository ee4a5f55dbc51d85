"""Shared by the tests of Slurm: a Slurm of its own on this machine (munge, slurmctld, a slurmd for each node), and its jobs."""
import contextlib
import os
import signal
import subprocess
import threading
import time

from fronts import need, run
from serving import skip, wait_until

need("haproxy", "socat", "slurmctld", "slurmd", "munged", "sbatch", "scontrol")
if os.geteuid() != 0:
    skip("not root")
HERE = os.getcwd()
CONF = f"""ClusterName=weft
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={HERE}/munge.sock,cred_expire=5
SlurmctldPidFile={HERE}/slurmctld.pid
SlurmctldLogFile={HERE}/slurmctld.log
SlurmdPidFile={HERE}/slurmd.%n.pid
SlurmdLogFile={HERE}/slurmd.%n.log
SlurmdSpoolDir={HERE}/spool/%n
SlurmdParameters=config_overrides
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
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""


class Slurm:
    """nodes: what slurm.conf says of each, beginning with NodeName=NAME. Partitions `serve` and, before it, `urgent`."""

    def __init__(self, port, nodes, *more):
        """port: the first of as many as nodes and one more."""
        self.names = [line.split()[0].split("=")[1] for line in nodes]
        for folder in ("state", *(f"spool/{n}" for n in self.names)):
            os.makedirs(folder)
        with open("munge.key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
            f.write(os.urandom(128))
        host = run("hostname", "-s").strip()
        with open("slurm.conf", "w") as f:
            f.write(CONF + f"SlurmctldPort={port}\n" + "".join(f"{line}\n" for line in more))
            for i, line in enumerate(nodes):
                f.write(f"{line} NodeHostname={host} NodeAddr=127.0.0.{11 + i} Port={port + 1 + i}\n")
            every = ",".join(self.names)
            f.write(f"PartitionName=other Nodes={every} State=UP\n"
                    f"PartitionName=urgent Nodes={every} State=UP PriorityTier=9\n"
                    f"PartitionName=serve Nodes={every} MaxTime=INFINITE State=UP PriorityTier=1\n")
        os.environ["SLURM_CONF"] = f"{HERE}/slurm.conf"

    def start(self):
        run("munged", f"--key-file={HERE}/munge.key", f"--socket={HERE}/munge.sock", f"--pid-file={HERE}/munged.pid",
            f"--log-file={HERE}/munged.log", f"--seed-file={HERE}/munge.seed", "--num-threads=2", "--force")
        run("slurmctld", "-f", f"{HERE}/slurm.conf")
        for name in self.names:
            run("slurmd", "-N", name, "-f", f"{HERE}/slurm.conf")
        wait_until(lambda: run("sinfo", "-h", "-p", "serve", "-o", "%t %D").split() == ["idle", str(len(self.names))])

    def stop(self):
        """Ends all jobs, then the daemons."""
        subprocess.run(["scancel", "--me"], timeout=20)
        until = time.monotonic() + 40
        while time.monotonic() < until and subprocess.run(["squeue", "--me", "-h"], stdout=subprocess.PIPE).stdout:
            time.sleep(0.2)
        for name in (*(f"slurmd.{n}.pid" for n in self.names), "slurmctld.pid", "munged.pid"):
            with contextlib.suppress(OSError, ValueError):
                with open(name) as f:
                    pid = int(f.read())
                os.kill(pid, signal.SIGTERM)
                for _ in range(100):
                    os.kill(pid, 0)
                    time.sleep(0.05)
                os.kill(pid, signal.SIGKILL)


def addresses(folder):
    """What the running jobs publish: address and HTTP port by worker."""
    lines = run("sh", f"{folder}/addresses.sh").splitlines()
    return {w: (a, int(h)) for w, a, h, _ in map(str.split, lines)}


def jobs():
    """Of each worker the job, its state and its node."""
    return {name: (job, state, node) for name, job, state, node in
            (line.split("|") for line in run("squeue", "--me", "-h", "-o", "%j|%i|%t|%N").splitlines())}


class Follower(threading.Thread):
    """Brings the published addresses to HAProxy, again and again."""

    def __init__(self, slurm, front):
        super().__init__(daemon=True)
        self.slurm, self.front, self.rounds, self.stopped = slurm, front, 0, False

    def run(self):
        while not self.stopped:
            done = subprocess.run(f"sh {self.slurm}/addresses.sh | sh {self.front}/update.sh {HERE}/haproxy.sock -",
                                  shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                print("update:", done.stdout)
            self.rounds += 1
            time.sleep(0.3)

    def wait_round(self):
        at = self.rounds
        wait_until(lambda: self.rounds > at + 1)

    def settle(self, n):
        """All n jobs run, are published, and HAProxy has them."""
        wait_until(lambda: len(addresses(self.slurm)) == n, 60)
        self.wait_round()
        time.sleep(2.5)  # servers are checked twice
