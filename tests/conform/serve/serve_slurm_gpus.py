# needs: numpy
# ctest label: slow (programs of others take the time)
"""The jobs of a plan with MIG instances, MPS shares and whole GPUs on a real Slurm, whose nodes and gres are those that the
export writes. Device files, nvidia-smi, the MPS daemon and NVIDIA's libraries are doubles. Each worker gets the GPU or
the instance that the plan gives it and answers through HAProxy; a whole GPU's worker is preempted, comes back, and no
request is lost. Needs root."""
import os
import stat

from slurm import HERE, Follower, Slurm, addresses, jobs

from fronts import MODELS, RATE, Calls, Replays, answered, compile_twelve, free_ports, grpc, haproxy, run, write_places
from serving import WEFT, skip, wait_until

DOUBLES = os.path.join(os.path.dirname(os.path.realpath(WEFT)), "doubles")
if not os.path.exists(f"{DOUBLES}/libnvidia-ml.so.1"):
    skip("no doubles of NVIDIA's libraries in this build")
PORT = free_ports(8, "0.0.0.0")
CONFIG = f"{HERE}/slurm"


def rates(*models):
    return {m: RATE for m in models}


# Nodes, in the order of the export: 0 two whole GPUs, 1 one with instances, 2 one with shares.
PLACES = [(0, "h200", "1g.18gb", 0, rates(*MODELS[:3])), (0, "h200", "1g.18gb", 1, rates(*MODELS[2:4])),
          (0, "h200", "3g.71gb", 4, rates(*MODELS[3:6])), (1, "h200", "40%", None, rates(*MODELS[5:9])),
          (1, "h200", "60%", None, rates(*MODELS[9:])), (2, "h200", "", None, rates(*MODELS)), (3, "h200", "", None, rates(*MODELS))]
MACHINES = ["gpu h200\ngpu h200\n", "gpu h200 on\nmig 0 9 4\nmig 0 19 0\nmig 0 19 1\n", "gpu h200\n"]
LISTED = ["GPU 0: NVIDIA H200 (UUID: GPU-0)", *(f"  MIG {p} Device {i}: (UUID: MIG-00000000-0000-0000-0000-00000000000{u})"
                                                 for i, (p, u) in enumerate((("3g.71gb", 1), ("1g.18gb", 2), ("1g.18gb", 3))))]


def write_program(path, text):
    with open(path, "w", opener=lambda p, flags: os.open(p, flags, 0o755)) as f:
        f.write("#!/bin/sh\n" + text)


def what_they_see():
    """The CUDA variables of each worker, and its node."""
    seen = {}
    for name in os.listdir("seen"):
        with open(f"seen/{name}") as f:
            seen[name] = dict(line.rstrip("\n").split("=", 1) for line in f)
    return seen


compile_twelve()
write_places("plan.json", PLACES)
for folder in ("seen", "bin", "mps", f"{CONFIG}/devices"):
    os.makedirs(folder)
open("mps/control", "w").close()
write_program("bin/nvidia-smi", "".join(f"echo '{line}'\n" for line in LISTED))
# What a site's modules would set, and its node have.
write_program("bin/weft", f"""env | grep -E '^(CUDA_|SLURMD_NODENAME=)' >{HERE}/seen/$SLURM_JOB_NAME
export LD_LIBRARY_PATH={DOUBLES} WEFT_DOUBLE_NVML={HERE}/$SLURMD_NODENAME.machine CUDA_MPS_PIPE_DIRECTORY={HERE}/mps
exec {os.path.realpath(WEFT)} "$@"
""")
for i, machine in enumerate(MACHINES):
    with open(f"weft-h200-{i}.machine", "w") as f:
        f.write("driver 580.65.06 13000\n" + machine)
run(WEFT, "export", "plan.json", "--to", "slurm", "-o", "slurm", "--config", CONFIG, "--weft", f"{HERE}/bin/weft", "--bundle",
    f"{HERE}/models.weft", "--sbatch", "partition=serve", "--sbatch", f"output={HERE}/%x.log")
run(WEFT, "export", "plan.json", "--to", "haproxy", "-o", "front", "--published", "--bind", f"127.0.0.1:{PORT}", "--socket",
    f"{HERE}/haproxy.sock")
run("sh", "slurm/weft-h200-1-devices.sh", env={**os.environ, "PATH": f"{HERE}/bin:{os.environ['PATH']}"})
# The nodes of the export; of device files there are others.
for i in range(2):
    os.mknod(f"dev{i}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
with open("slurm/gres.conf") as f, open("gres.conf", "w") as out:
    out.write(f.read().replace("/dev/nvidia", f"{HERE}/dev"))
with open("slurm/slurm-nodes.conf") as f:
    nodes = [line.rstrip("\n") for line in f if line.startswith("NodeName=")]
slurm = Slurm(PORT + 3, nodes, "GresTypes=gpu,mps,mig")
front = follower = None
try:
    slurm.start()
    for name in sorted(os.listdir("slurm/jobs")):
        run("sbatch", f"slurm/jobs/{name}")
    front = haproxy("front", PORT)
    follower = Follower("slurm", "front")
    follower.start()
    wait_until(front.is_ready, 90)
    follower.settle(len(PLACES))
    # The instance that NODE-devices.sh has found, the share of the plan, a GPU of its own.
    seen = what_they_see()
    assert sorted(seen) == sorted(jobs()) and len(seen) == len(PLACES), (seen, jobs())
    instances = [seen[f"weft-d0-s{i}"]["CUDA_VISIBLE_DEVICES"] for i in range(3)]
    assert sorted(instances) == [f"MIG-00000000-0000-0000-0000-00000000000{u}" for u in (1, 2, 3)], instances
    assert instances[2].endswith("1"), "3g.71gb is the first of the list"
    assert [seen[f"weft-d1-s{i}"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for i in range(2)] == ["40", "60"], seen
    assert sorted(seen[f"weft-d{d}-s0"]["CUDA_VISIBLE_DEVICES"] for d in (2, 3)) == ["0", "1"], seen
    for name, of in seen.items():
        assert of["SLURMD_NODENAME"] == f"weft-h200-{(1, 2, 0, 0)[int(name[6])]}", seen
    # Under load a whole GPU is wanted by a job with more priority.
    load, calls = Replays(PORT, "plan.json"), Calls(PORT) if grpc else None
    load.start()
    if calls:
        calls.start()
    before = addresses("slurm")
    run("sbatch", "-p", "urgent", "-w", "weft-h200-0", "--gres=gpu:h200:1", "--mem=1M", "-J", "urgent", "-o", "/dev/null",
        "--wrap", "sleep 1")
    wait_until(lambda: any(jobs()[w][1] != "R" for w in before), 60)
    taken = next(w for w in before if jobs()[w][1] != "R")
    assert taken in ("weft-d2-s0", "weft-d3-s0"), taken
    wait_until(lambda: addresses("slurm").get(taken, before[taken]) != before[taken], 60)
    follower.settle(len(PLACES))
    print(taken, "was preempted;", load.finish(), "answered over HTTP;", calls.finish() if calls else "no", "over gRPC")
    for name, at in addresses("slurm").items():
        assert sum(answered(*at).values()) > 0, name
finally:
    if follower:
        follower.stopped = True
    if front:
        front.process.terminate()
    slurm.stop()
