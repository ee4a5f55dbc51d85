# `weft list slices` on machines with and without GPUs.
export WEFT_DOUBLE_NVML=$PWD/machine WEFT_DOUBLE_LOG=$PWD/log
: >log
list() { expect 0 env LD_LIBRARY_PATH="$DOUBLES" "$WEFT" list slices "$@"; }

# No NVML; NVML without a driver.
[ -n "$(ldconfig -p 2>/dev/null | grep libnvidia-ml)" ] || {
    expect 0 "$WEFT" list slices
    has out "GPUs: none (NVML is not here: looked for libnvidia-ml.so.1)"
}
list
has out "CPUs: $(nproc)"
has out "GPUs: none (nvmlInit: the driver is not loaded (9))"
has out "h200         1g.18gb"

cat >machine <<'END'
driver 580.65.06 13000
gpu h200 on
mig 0 19 0
mig 0 9 4
gpu a100-40
gpu t4
gpu h200 pending
lost 3
END
cp machine before
list
has out "GPUs: 4, driver 580.65.06, CUDA 13.0"
has out "GPU 0: NVIDIA H200 (h200)  GPU-00000000-0000-0000-0000-000000000000  sm_90  132 SMs"
has out "has   1g.18gb      MIG-00000000-0000-0000-0000-000000000001   16 SMs   16.00 GiB"
has out "has   3g.71gb      MIG-00000000-0000-0000-0000-000000000002   60 SMs   69.50 GiB, 0.49 in use, at slot 4"
has out "could 1g.35gb      at most 4   26 SMs   32.50 GiB  starts 0,2,4,6"
has out "up to 16 partitions of 8 SMs"
has out "GPU 1: NVIDIA A100-SXM4-40GB (a100-40)"
has out "MIG: not supported"
has out "GPU 3: cannot be read: the GPU is lost (15)"
lacks out "differs from our table"
lacks out "MPS shares: 1%"

# Without privileges: possible starts are unknown, everything else is listed.
export WEFT_DOUBLE_NVML_USER=1
list
has out "starts not told (needs root)"
has out "has   3g.71gb      MIG-00000000-0000-0000-0000-000000000002   60 SMs   69.50 GiB, 0.49 in use"
lacks out "at slot"
unset WEFT_DOUBLE_NVML_USER

# An older driver: profiles without names. What returns NOT_SUPPORTED or FUNCTION_NOT_FOUND is left out.
for result in 13 25; do
    export WEFT_DOUBLE_FAIL=nvmlDeviceGetGpuInstanceProfileInfoV:1=$result
    list
    has out "could 1g.18gb "
    unset WEFT_DOUBLE_FAIL
done

# Each call fails once: the listing has the rest, or the error is reported.
for n in $(seq 1 3 90); do
    for result in 3 4 15; do
        code=0
        WEFT_DOUBLE_FAIL="*:$n=$result" LD_LIBRARY_PATH=$DOUBLES "$WEFT" list slices >out 2>err || code=$?
        [ "$code" = 0 ] || [ "$code" = 1 ] || die "call $n, result $result: exit code $code"
        [ "$code" = 0 ] || has err "nvml"
    done
done

list --format json
python3 -c '
import json
m = json.load(open("out"))
g = m["gpus"]
assert m["cuda"] == 13000 and len(g) == 4, m
assert g[0]["mig"] and [i["profile"] for i in g[0]["instances"]] == ["1g.18gb", "3g.71gb"]
assert g[0]["instances"][1]["start"] == 4 and g[0]["instances"][1]["sms"] == 60
assert {p["name"]: p["starts"] for p in g[0]["profiles"]}["2g.35gb"] == [0, 2, 4]
assert g[0]["green_contexts"] == {"min_sms": 8, "step_sms": 8, "count": 16}
assert g[1]["green_contexts"] == {"min_sms": 4, "step_sms": 4, "count": 27}
assert g[1]["type"] == "a100-40" and not g[1]["mig"] and g[1]["busy"] == 0.42
assert g[2]["profiles"] == [] and not g[2]["mig_capable"]
assert "lost" in g[3]["error"] and "uuid" not in g[3]
assert any(p["gpu"] == "h200" and p["name"] == "1g.18gb" for p in m["profiles"])
' || die "JSON: $(shown out)"

if (find_python jsonschema >/dev/null); then
    find_python jsonschema
    cp out list.machine.json
    "$python" "$WEFT_SOURCE_DIR/tests/support/schema_check.py" "$WEFT_SOURCE_DIR" list.machine.json || die "the schema"
fi

# With an MPS control program.
mkdir bin && printf '#!/bin/sh\n' >bin/nvidia-cuda-mps-control && chmod +x bin/nvidia-cuda-mps-control
PATH=$PWD/bin:$PATH list
has out "MPS shares: 1% to 100% of each instance"
has out "MPS $PWD/bin/nvidia-cuda-mps-control"

cmp machine before || die "the machine was changed"
! grep -q MISTAKE log || die "$(grep MISTAKE log)"
