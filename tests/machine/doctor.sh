# weft doctor: what it finds on machines with and without GPUs, and that it changes nothing.
export WEFT_DOUBLE_NVML=$PWD/machine WEFT_DOUBLE_LOG=$PWD/log XDG_STATE_HOME=$PWD/state
: >log
doctor() { expect "$1" env LD_LIBRARY_PATH="$DOUBLES" "$WEFT" doctor --root "$PWD/host" "${@:2}"; }

# A machine without GPUs is ready for CPUs; the file below the root is read, not this machine's.
mkdir -p host/proc host/sys/bus/pci/devices state
printf 'model name\t: Some CPU\nflags\t\t: fpu sse4_2\n' >host/proc/cpuinfo
printf '0.00 0.00 0.00 1/100 1000\n' >host/proc/loadavg
expect 0 "$WEFT" doctor --root "$PWD/host" --need cpu
has out "note     CPU             Some CPU, "
has out "usable, without AVX2"
has out "none of NVIDIA's on the PCI bus"
has out "-> weft calibrate"
has out "ready for     cpu "
has out "not ready for gpu "
expect 1 "$WEFT" doctor --root "$PWD/host" --need cpu,gpu
has err "not ready for gpu: GPUs: none of NVIDIA's on the PCI bus"
printf 'flags\t: fma avx2 avx512f avx512_vnni_not\n' >host/proc/cpuinfo
expect 0 "$WEFT" doctor --root "$PWD/host"
has out "AVX2, AVX-512"
lacks out VNNI

# The device that a CPU is: by family and model, by Arm's parts, and none.
cpuinfo() { # DEVICE LINE...
    printf '%s\n' "${@:2}" >host/proc/cpuinfo
    expect 0 "$WEFT" doctor --root "$PWD/host"
    if [ "$1" ]; then has out "data sheets: --gpu $1"; else lacks out "data sheets"; fi
}
cpuinfo cpu-zen4 'vendor_id : AuthenticAMD' 'cpu family : 25' 'model : 17'
cpuinfo cpu-zen3 'vendor_id : AuthenticAMD' 'cpu family : 25' 'model : 1'
cpuinfo cpu-sapphire-rapids 'vendor_id : GenuineIntel' 'cpu family : 6' 'model : 143'
cpuinfo cpu-graviton4 'CPU implementer : 0x41' 'CPU part : 0xd4f'
cpuinfo '' 'vendor_id : GenuineIntel' 'cpu family : 15' 'model : 143'
cpuinfo '' 'CPU implementer : 0x41' 'CPU part : 0xd0c'
expect 0 "$WEFT" list gpus
mv out gpus
for device in $(sed -n 's/.*"\(cpu-[a-z0-9-]*\)"}.*/\1/p' "$WEFT_SOURCE_DIR/tools/doctor/doctor_cpu.c"); do
    has gpus "$device "
done

# A GPU on the bus: without a driver, with nouveau, with a kernel module and no libraries.
gpu=host/sys/bus/pci/devices/0000:01:00.0
mkdir -p $gpu host/sys/bus/pci/devices/0000:00:1f.0
printf '0x10de\n' >$gpu/vendor
printf '0x030200\n' >$gpu/class
printf '0x8086\n' >host/sys/bus/pci/devices/0000:00:1f.0/vendor
printf '0x030000\n' >host/sys/bus/pci/devices/0000:00:1f.0/class
doctor 1 --need gpu
has out "1 on the PCI bus, but the driver cannot be asked: nvmlInit: the driver is not loaded (9)"
has out "modprobe nvidia"
mkdir -p host/sys/module/nouveau
doctor 0
has out "keep the kernel from loading nouveau"
mkdir -p host/proc/driver/nvidia host/dev
echo "NVRM version: 580.65.06" >host/proc/driver/nvidia/version
WEFT_DOUBLE_FAIL=nvmlInit_v2:1=18 doctor 0
has out "the driver was upgraded while its kernel module was in use: restart"
doctor 0
has out "missing  /dev/nvidiactl  does not exist"
has out "(--gpus all)"
: >host/dev/nvidiactl
: >host/dev/nvidia-uvm

# A node in order, and one where much is not.
cat >machine <<'END'
driver 580.65.06 13000
gpu h200
END
doctor 0 --need cpu,compile,gpu,green
has out "ok       GPUs            1, driver 580.65.06, CUDA 13.0"
has out "ok       CUDA            13.0, 1 devices"
has out "ok       NVRTC           "
has out "ok       cuDNN           version 9.19.0"
has out "ok       GPU 0           NVIDIA H200, sm_90, 140.4 GiB"
has out "note     MIG             off on all GPUs"
has out "no nvidia-cuda-mps-control in PATH"
doctor 1 --need mps,mig
has err "not ready for mig: MIG: off on all GPUs"
has err "not ready for mps: MPS: no nvidia-cuda-mps-control"
cat >machine <<'END'
driver 580.65.06 12040
gpu h200 on
gpu h200 pending
gpu t4
gpu h200
lost 3
slow 0 38
limit 0 500000
ecc 1 7 2
rows 1 1 1
mode 1 3
mode 2 2
END
mkdir -p bin
printf '#!/bin/sh\n' >bin/nvidia-cuda-mps-control
chmod +x bin/nvidia-cuda-mps-control
cp machine before
PATH=$PWD/bin:$PATH doctor 0 --need mig,mps --format json
python3 - out <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
assert r["ready"]["mig"] and r["ready"]["mps"] and r["ready"]["gpu"], r["ready"]
said = [(c["item"], c["state"], c["text"], c["remedy"] or "") for c in r["checks"]]
for item, state, text, remedy in [
    ("NVRTC", "note", "newer than the driver", "compile with NVRTC of the driver's"),
    ("GPU 0", "missing", "MIG mode is on and there are no instances", "--reconfigure-mig"),
    ("GPU 0", "note", "its power limit is 500 W, 700 W are the default", "nvidia-smi -i 0 -pl 700"),
    ("GPU 0", "note", "application clocks", "nvidia-smi -i 0 -rac"),
    ("GPU 0", "note", "temperature holds", "cooling"),
    ("GPU 0", "note", "power limit or supply", "POWER"),
    ("GPU 1", "note", "MIG mode will be on after the next reset", "nvidia-smi -i 1 -r"),
    ("GPU 1", "missing", "2 uncorrected errors of memory", "nvidia-smi -i 1 -r"),
    ("GPU 1", "note", "rows of its memory are replaced", "-r"),
    ("GPU 1", "missing", "rows of its memory cannot be replaced", "replaced"),
    ("GPU 1", "note", "compute mode allows one process", "--mps"),
    ("GPU 2", "missing", "compute mode prohibits contexts", "nvidia-smi -i 2 -c DEFAULT"),
    ("GPU 2", "note", "initialises it for each first process", "-pm 1"),
    ("GPU 3", "missing", "cannot be read: the GPU is lost (15)", "nvidia-smi -i 3 -r"),
]:
    found = [c for c in said if c[0] == item and c[1] == state and text in c[2] and remedy in c[3]]
    assert len(found) == 1, (item, text, said)
END
cmp machine before || die "the machine was changed"
# Nothing runs: one GPU prohibits contexts, the other has no instance.
printf 'driver 580.65.06 13000\ngpu h200 on\ngpu t4\nmode 1 2\n' >machine
doctor 1 --need gpu
has err "not ready for gpu: GPUs: none of them runs anything now"

# CUDA that does not start, and a driver that is too old.
printf 'driver 580.65.06 13000\ngpu h200\n' >machine
for fault in 802=nvidia-fabricmanager 803="of different drivers" 999="dmesg"; do
    WEFT_DOUBLE_FAIL=cuInit:1=${fault%%=*} doctor 1 --need gpu
    has out "${fault#*=}"
done
WEFT_DOUBLE_DRIVER=12020 doctor 0
has out "install a driver of CUDA 12.4 (550) or later"
has out "not ready for green"
WEFT_DOUBLE_DRIVER=11080 doctor 1 --need gpu
has out "the CUDA driver is too old"
has out "-> install NVIDIA's driver, 525 or later"

# Wrong usage; each call of NVML fails once.
expect 2 "$WEFT" doctor --need gpus
has err "no use 'gpus', did you mean gpu?"
expect 2 "$WEFT" doctor bundle.weft
has err "takes no argument 'bundle.weft'"
printf 'driver 580.65.06 13000\ngpu h200 on\nmig 0 19 0\n' >machine
for n in $(seq 1 4 80); do
    code=0
    WEFT_DOUBLE_FAIL="*:$n=3" LD_LIBRARY_PATH=$DOUBLES "$WEFT" doctor >out 2>err || code=$?
    [ "$code" = 0 ] || [ "$code" = 1 ] || die "call $n fails: exit code $code"
done
! grep -qE 'MISTAKE|Instance(Create|Destroy)|CreateGpuInstance|GpuInstanceDestroy' log || die "$(grep -E 'MISTAKE|Instance' log | head)"
