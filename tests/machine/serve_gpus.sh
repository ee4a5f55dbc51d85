# `weft serve` with plans for GPUs: which device each worker sees, and the errors for missing slices.
# The bundle is for CPUs: only the environment of the workers is checked.
command -v curl >/dev/null || skip "no curl"
export WEFT_DOUBLE_NVML=$PWD/machine WEFT_DOUBLE_LOG=$PWD/log TMPDIR=$PWD
"$WEFT" compile "$examples/digits_cnn.onnx" -o digits.weft

# Stands for the MPS control program: logs its calls and makes a file in place of the daemon's socket.
mkdir bin
cat >bin/nvidia-cuda-mps-control <<'END'
#!/bin/sh
if [ "$1" = -d ]; then
    echo "start $CUDA_VISIBLE_DEVICES" >>"$MPS_RECORD"
    [ -z "$MPS_FAILS" ] || { echo "no such device" >"$CUDA_MPS_LOG_DIRECTORY/control.log"; exit 1; }
    : >"$CUDA_MPS_PIPE_DIRECTORY/control"
    [ -z "$MPS_HANGS" ] || exec sleep 1000
else
    read -r word
    echo "$word $CUDA_VISIBLE_DEVICES" >>"$MPS_RECORD"
    rm "$CUDA_MPS_PIPE_DIRECTORY/control"
fi
END
chmod +x bin/nvidia-cuda-mps-control
export MPS_RECORD=$PWD/mps MPS_FAILS= MPS_HANGS=

# plan SLICE:START:MEM:PROCS[:DEVICE[:TYPE]]...
plan() {
    python3 - "$@" >plan.json <<'END'
import json, sys
places = []
for i, a in enumerate(sys.argv[1:]):
    s, start, mem, procs, device, kind = (a.split(":") + ["0", "h200"])[:6] if a.count(":") == 3 \
        else (a.split(":") + ["h200"])[:6]
    places.append(dict(model="digits_cnn", device=int(device), type=kind, slice=s, slice_id=i,
        mig_start=int(start) if start else None, share=0.1, batch=1, procs=int(procs),
        rate_per_s=1.0, capacity_per_s=10.0, latency_us=100.0, mem_bytes=int(mem) << 20,
        expected_error=0.1, source="analytic"))
print(json.dumps(dict(format="weft-plan", version=3, policy="weft", goal="cost",
    rules=dict(latency="exact", whole_ms=False, procs_max=0, isolated=False, oversubscribe=False,
               mem_reserve=0.5),
    gpus=1, cost_per_hour=1.0, goodput_per_s=1.0, power_w=0.0, lower_bound=1, proven=False,
    decision_ms=0.0, models=[dict(model="digits_cnn", slo_us=0.0, rate_per_s=1.0)],
    placements=places)))
END
}
workers() {
    local pid
    for pid in $(grep -lx "PPid:	$server" /proc/[0-9]*/status 2>/dev/null |
        sed 's/[^0-9]//g' | sort -n); do
        ! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -- " --worker " || echo "$pid"
    done
}
# The process that ends the MPS daemon.
watcher() { pgrep -P "$server" -x weft-mps; }
# start WORKERS OPTION...
start() {
    local n=$1
    shift
    : >ready # the background process may truncate it only after the first look below
    PATH=$PWD/bin:$PATH LD_LIBRARY_PATH=$DOUBLES "$WEFT" serve digits.weft plan.json --http 0 \
        --grpc off --metrics 0 "$@" >ready 2>errors &
    server=$!
    await ready READY errors
    http=$(sed -n 's/.*http=\([0-9]*\).*/\1/p' ready)
    metrics=$(sed -n 's/.*metrics=\([0-9]*\).*/\1/p' ready)
    # All workers, not only the first of the model.
    for _ in $(seq 300); do
        [ "$(workers | wc -l)" = "$n" ] && return 0
        sleep 0.1
    done
    die "not $n workers: $(shown errors)"
}
stop() {
    kill -TERM "$server"
    local code=0
    wait "$server" || code=$?
    server=
    [ "$code" = 0 ] || die "the server ended with $code: $(shown errors)"
}
# The CUDA variables of each worker, one line each.
environments() {
    local pid
    for pid in $(workers); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -E "^CUDA_(VISIBLE|MPS)_" | sed 's/DIRECTORY=.*weft-mps.*/DIRECTORY=OURS/' |
            sort | tr '\n' ' '
        echo
    done
}
refused() {
    expect "${code:-1}" env PATH="$PWD/bin:$PATH" LD_LIBRARY_PATH="$DOUBLES" timeout "${timeout:-20}" "$WEFT" serve \
        digits.weft plan.json --http 0 --grpc off --metrics off "$@"
}

# No GPU at all.
plan 1g.18gb:0:1000:1
refused
has err "model 'digits_cnn' is placed on device 0, a h200 cut into 1g.18gb: this machine has no such free GPU"
has err "the driver is not loaded"

# Two instances of the second GPU, one of them of a profile that the first has elsewhere.
cat >machine <<'END'
driver 580.65.06 13000
gpu h200 on
gpu h200 on
mig 0 19 0
mig 1 19 6
mig 1 9 0
gpu h200
END
# A control program that hangs, and may have started a daemon: waited for at the end.
mkdir hung
cp machine hung
plan 40%::1000:1 60%::3000:1
mv plan.json hung
env MPS_HANGS=1 MPS_RECORD="$PWD/hung/mps" TMPDIR="$PWD/hung" WEFT_DOUBLE_NVML="$PWD/hung/machine" \
    PATH="$PWD/bin:$PATH" LD_LIBRARY_PATH="$DOUBLES" timeout 60 "$WEFT" serve digits.weft \
    hung/plan.json --mps --http 0 --grpc off --metrics off >hung/out 2>hung/err &
hung=$!
plan 3g.71gb:0:1000:1 1g.18gb:6:1000:1
start 2
has errors "is compiled for cpu: its models do not run on the GPUs of the plan"
environments >seen
cat >want <<'END'
CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-0001-000000000003 
CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-0001-000000000002 
END
diff want seen || die "workers see something else"
curl -fsS "http://127.0.0.1:$http/v2/models/digits_cnn/ready" >/dev/null || die "not ready"

# Metrics: power of the GPU, memory and activity of both instances, the state of each slice.
# Of all slices: the first one is ready before the others have started.
scrape() {
    for _ in $(seq 300); do
        curl -fsS "http://127.0.0.1:$metrics/metrics" >scraped || die "no metrics"
        grep -q '^weft_slice_ready.* 0$' scraped || return 0
        sleep 0.1
    done
    die "slices are not ready: $(grep '^weft_slice_ready' scraped)"
}
scrape
gpu=GPU-00000000-0000-0000-0000-000000000001
has scraped "weft_gpu_power_watts{gpu=\"$gpu\"} 100"
has scraped "weft_gpu_memory_bytes{gpu=\"$gpu\",instance=\"MIG-00000000-0000-0000-0001-000000000003\"} 74625056768"
has scraped "weft_gpu_sm_activity_ratio{gpu=\"$gpu\"} 0.12"
has scraped "weft_gpu_sm_activity_ratio{gpu=\"$gpu\",instance=\"MIG-00000000-0000-0000-0001-000000000002\"} 0.12"
has scraped "weft_slice_ready{slice=\"GPU 1 1g.18gb at slot 6\"} 1"
has scraped "weft_slice_losses_total{slice=\"GPU 1 3g.71gb at slot 0\"} 0"
lacks scraped weft_gpu_busy_ratio # not told under MIG
lacks scraped nv_gpu
grep -q '^weft_gpu_energy_joules_total{gpu="'$gpu'"} [0-9]' scraped || die "$(shown scraped)"
has scraped "weft_gpu_sm_clock_hertz{gpu=\"$gpu\"} 1500000000"
has scraped "weft_gpu_slowed_by_power{gpu=\"$gpu\"} 0"
has scraped "weft_gpu_xid_errors_total{gpu=\"$gpu\"} 0"
if command -v promtool >/dev/null; then
    expect 0 promtool check metrics <scraped
fi
curl -fsS "http://127.0.0.1:$http/v2/health/ready" >health || die "not ready"
has health '{"slice":"GPU 1 3g.71gb at slot 0","ready":true,"lost":false,"why":""}'

# A GPU that its power limit slows down, with errors of memory and two errors of the driver.
cp machine kept
printf 'slow 1 %d\necc 1 3 1\nxid 1 31\nxid 1 79\n' 0x4 >>machine
scrape
has scraped "weft_gpu_slowed_by_power{gpu=\"$gpu\"} 1"
has scraped "weft_gpu_slowed_by_heat{gpu=\"$gpu\"} 0"
has scraped "weft_gpu_ecc_corrected_total{gpu=\"$gpu\"} 3"
has scraped "weft_gpu_ecc_uncorrected_total{gpu=\"$gpu\"} 1"
has scraped "weft_gpu_xid_errors_total{gpu=\"$gpu\"} 2"
has scraped "weft_gpu_last_xid{gpu=\"$gpu\"} 79"
scrape
has scraped "weft_gpu_xid_errors_total{gpu=\"$gpu\"} 2"
cp kept machine

# A destroyed instance is left out of the metrics, and its handle is not used.
cp machine kept
echo "unmig 1 2" >>machine
scrape
lacks scraped MIG-00000000-0000-0000-0001-000000000002
has scraped MIG-00000000-0000-0000-0001-000000000003
cp kept machine
stop

# Without --reconfigure-mig a plan with instances that are not there is refused while the server runs, by name and
# before anything happens: the workers stay, and answer.
start 2 --control control.sock
workers >before
cp plan.json first.json
plan 3g.71gb:4:1000:1 1g.18gb:0:1000:1
expect 1 "$WEFT" ctl control.sock plan plan.json
has err "cut into 3g.71gb: this machine has no such free GPU"
workers | diff before - || die "workers have changed"
curl -fsS "http://127.0.0.1:$http/v2/models/digits_cnn/ready" >/dev/null || die "not ready after a refused change"
"$WEFT" ctl control.sock status --format json >status.json
grep -q '"state": *"serving"' status.json || die "$(shown status.json)"
cp first.json plan.json
stop
# Without root the slots are unknown: instances are matched by profile.
WEFT_DOUBLE_NVML_USER=1 start 2
environments >seen
diff want seen || die "workers see something else"
stop

# No instance at this slot: the error has the reason for each GPU.
cp machine before
plan 1g.18gb:5:1000:1
refused
has err "device 0, a h200 cut into 1g.18gb: this machine has no such free GPU"
has err "GPU 0: has no MIG instance 1g.18gb at slot 5"
has err "GPU 2: MIG mode is off"
has err "--reconfigure-mig"
plan 2g.10gb:0:1000:1:0:a100-40
refused
has err "GPU 0: is a h200"
cmp machine before || die "the machine was changed"

# Devices are assigned to GPUs so that all fit: device 0 fits both GPUs, device 1 only the first.
plan 1g.18gb:0:1000:1:0 1g.18gb:6:1000:1:1
start 2
environments >seen
cat >want <<'END'
CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-0000-000000000001 
CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-0001-000000000002 
END
diff want seen || die "workers see something else"
stop
# One node of a plan for two nodes.
start 1 --devices 1
environments >seen
grep -q 0001-000000000002 seen && [ "$(wc -l <seen)" = 1 ] || die "--devices: $(shown seen)"
stop

# --reconfigure-mig: planned instances are created or kept, others on that GPU are destroyed.
plan 1g.18gb:0:1000:1 3g.71gb:4:1000:1
start 2 --reconfigure-mig
has errors "GPU 0: the MIG instance 3g.71gb at slot 4 was created"
environments >seen
cat >want <<'END'
CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-0000-000000000001 
CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-0000-000000000004 
END
diff want seen || die "workers see something else"
stop
plan 2g.35gb:0:1000:1
start 1 --reconfigure-mig
has errors "1g.18gb at slot 0 was destroyed"
has errors "3g.71gb at slot 4 was destroyed"
has errors "2g.35gb at slot 0 was created"
stop
grep -q "unmig 0 1" machine && grep -q "unmig 0 4" machine || die "the machine: $(shown machine)"
# An instance in use, or no root: nothing is served.
plan 1g.18gb:3:1000:1
WEFT_DOUBLE_NVML_BUSY=1 refused --reconfigure-mig
has err "GPU 0: the MIG instance 2g.35gb cannot be destroyed: in use (19)"
WEFT_DOUBLE_NVML_USER=1 refused --reconfigure-mig
has err "cannot be listed: no permission (4)"

# Shares: a private daemon for the GPU, percentages, and the memory divided as planned (the plan's
# reserve leaves half of it free).
plan 40%::1000:1 60%::3000:1
refused
has err "needs an MPS daemon, and none runs"
has err "GPU 2 share 40% (slice 0)"
start 2 --mps --nv-metrics
scrape
has scraped 'nv_gpu_utilization{gpu_uuid="GPU-00000000-0000-0000-0000-000000000002"} 0.42'
has scraped 'weft_slice_ready{slice="GPU 2 share 40% (slice 0)"} 1'
environments >seen
cat >want <<'END'
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=17972M CUDA_MPS_PIPE_DIRECTORY=OURS CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000002 
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=53915M CUDA_MPS_PIPE_DIRECTORY=OURS CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000002 
END
diff want seen || die "workers see something else"
ls -d weft-mps-* >/dev/null || die "no pipe directory"
stop
cat >want <<'END'
start GPU-00000000-0000-0000-0000-000000000002
quit GPU-00000000-0000-0000-0000-000000000002
END
diff want mps || die "the daemon"
! ls -d weft-mps-* 2>/dev/null || die "the pipe directory was left"

# The daemon ends with the server, also when the server is killed.
rm mps
start 2 --mps
kill -KILL "$server"
wait "$server" || true
server=
for _ in $(seq 100); do
    ls -d weft-mps-* >/dev/null 2>&1 || break
    sleep 0.1
done
! ls -d weft-mps-* 2>/dev/null || die "the pipe directory was left"
diff want mps || die "the daemon was left"

# The same when the process that waits for that was stopped or killed, and workers were.
rm mps
start 2 --mps
kill -STOP "$(watcher)"
stop
diff want mps || die "the daemon was left"
rm mps
start 2 --mps
kill -KILL "$(watcher)"
workers >before
for pid in $(cat before); do kill -BUS "$pid"; done
for _ in $(seq 100); do
    [ "$(workers | wc -l)" = 2 ] && ! workers | cmp -s before && break
    sleep 0.05
done
environments >seen
[ "$(grep -c PIPE_DIRECTORY=OURS seen)" = 2 ] || die "workers started again see: $(shown seen)"
stop
diff want mps || die "the daemon was left"
! ls -d weft-mps-* 2>/dev/null || die "the pipe directory was left"

# A daemon that was not started by Weft.
mkdir theirs && : >theirs/control
CUDA_MPS_PIPE_DIRECTORY=$PWD/theirs start 2
environments >seen
grep -q "PIPE_DIRECTORY=$PWD/theirs" seen || die "$(shown seen)"
stop
diff want mps || die "a daemon was started"

# SM partitions in place of percentages: 40 % of 132 SMs in steps of 8 are 48.
start 2 --shares green
environments >seen
lacks seen PERCENTAGE
for pid in $(workers); do tr '\0' ' ' <"/proc/$pid/cmdline"; done >lines
grep -q " 0,48," lines && grep -q " 48,72," lines || die "$(shown lines)"
stop
plan 50%::1000:1 50%::1000:1 1%::1000:1
code=3 refused --shares green
has err "GPU 2 share 1% (slice 2): shares in steps of 8 SMs need 136, the device has 132"

# Shares and processes inside an instance use a daemon for that instance.
rm mps
printf 'mig 0 9 4\n' >>machine
plan 3g.71gb/50%:4:1000:2 3g.71gb/50%:4:0:1 2g.35gb:0:1000:3
refused
has err "needs an MPS daemon of the MIG instance"
start 6 --mps
environments >seen
[ "$(grep -c PERCENTAGE=50 seen)" = 3 ] && [ "$(wc -l <seen)" = 6 ] || die "$(shown seen)"
[ "$(grep -c MEM_LIMIT seen)" = 3 ] || die "limits: $(shown seen)"
stop
[ "$(grep -c start mps)" = 2 ] && [ "$(grep -c quit mps)" = 2 ] || die "$(shown mps)"

# A daemon that does not start.
MPS_FAILS=1 refused --mps
has err "ended with code 1"
has err "its log ends with: no such device"
! ls -d weft-mps-* 2>/dev/null || die "the pipe directory was left"

# The control program that hung.
code=0
wait "$hung" || code=$?
[ "$code" = 1 ] || die "exit code $code: $(shown hung/err)"
has hung/err "did not end within seconds 20"
grep -q quit hung/mps || die "$(shown hung/mps)"
! ls -d hung/weft-mps-* 2>/dev/null || die "the pipe directory was left"

# Hostile plans.
plan 1g.18gb:0:1:1 "0%::1:1"
refused
has err "is no slice of a GPU"
plan "3g.71gb/:0:1:1"
refused
has err "is no slice of a GPU"
expect 2 "$WEFT" serve digits.weft --mps
expect 2 "$WEFT" serve digits.weft plan.json --devices 1,
expect 2 "$WEFT" serve digits.weft plan.json --shares half
! grep -q MISTAKE log || die "$(grep MISTAKE log)"
