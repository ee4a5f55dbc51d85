# Plans for GPUs that change while requests flow, on a double of NVML: MIG instances, MPS shares and SM partitions.
# The bundle is for CPUs, so that workers start fast and answers can be compared; the double counts an instance as
# in use while a process has it as its device. Whatever fails, no request is lost, and what ran before runs again.
# ctest label: slow
command -v curl >/dev/null || skip "no curl"
find_python numpy
export WEFT_DOUBLE_NVML=$PWD/machine WEFT_DOUBLE_NVML_USERS=1 TMPDIR=$PWD WEFT_DOUBLE_LOG=$PWD/log
cat >set.yaml <<'YAML'
models:
  - {name: a, file: digits_cnn.onnx}
  - {name: b, file: digits_attn.onnx}
YAML
cp "$examples/digits_cnn.onnx" "$examples/digits_attn.onnx" .
expect 0 "$WEFT" compile set.yaml -o two.weft
# The server's own program, which can be taken away: new workers then end at once.
mkdir bin
cp "$(dirname "$WEFT")"/weft-server "$(dirname "$WEFT")"/weft-planner bin/
cp bin/weft-server kept-server
cat >bin/nvidia-cuda-mps-control <<'SH'
#!/bin/sh
if [ "$1" = -d ]; then
    echo "start $CUDA_VISIBLE_DEVICES" >>"$MPS_RECORD"
    : >"$CUDA_MPS_PIPE_DIRECTORY/control"
else
    read -r word
    echo "$word $CUDA_VISIBLE_DEVICES" >>"$MPS_RECORD"
    rm "$CUDA_MPS_PIPE_DIRECTORY/control"
fi
SH
chmod +x bin/nvidia-cuda-mps-control
export MPS_RECORD=$PWD/mps

# plan FILE MODEL:SLICE:START:DEVICE[:SLICE_ID]...
plan() {
    $python - "$@" <<'PY'
import json, sys
places, rates = [], {}
for i, a in enumerate(sys.argv[2:]):
    model, s, start, device, slice_id = (a.split(":") + [str(i)])[:5]
    places.append(dict(model=model, device=int(device), type="h200", slice=s, slice_id=int(slice_id),
        mig_start=int(start) if start else None, share=0.1, batch=1, procs=1, rate_per_s=10.0,
        capacity_per_s=20.0, latency_us=100.0, mem_bytes=1 << 30, expected_error=0.1, source="analytic"))
devices = 1 + max(p["device"] for p in places)
json.dump(dict(format="weft-plan", version=3, policy="weft", goal="cost",
    rules=dict(latency="exact", whole_ms=False, procs_max=0, isolated=False, oversubscribe=False, mem_reserve=0.0),
    gpus=devices, cost_per_hour=1.0, goodput_per_s=1.0, power_w=0.0, lower_bound=1, proven=False, decision_ms=0.0,
    models=[dict(model=m, slo_us=0.0, rate_per_s=10.0) for m in sorted({p["model"] for p in places})],
    placements=places), open(sys.argv[1], "w"))
PY
}
# Asks both models until `stop-load` is there; fails if an answer is none, or another than before.
cat >load.py <<'PY'
import http.client, json, os, sys, threading, time
port, bad, n = int(sys.argv[1]), [], [0]
body = json.dumps({"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
                               "data": [float(i % 17) for i in range(64)]}]})
def ask(model):
    want = None
    while not os.path.exists("stop-load"):
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            c.request("POST", f"/v2/models/{model}/infer", body)
            r = c.getresponse()
            text = r.read()
            c.close()
        except OSError as e:
            bad.append((model, str(e)))
            return
        if r.status != 200:
            bad.append((model, r.status, text[:200]))
            return
        data = json.loads(text)["outputs"][0]["data"]
        want = want or data
        if max(abs(x - y) for x, y in zip(want, data)) > 1e-4:
            bad.append((model, "another answer"))
            return
        n[0] += 1
        time.sleep(0.01)
threads = [threading.Thread(target=ask, args=(m,)) for m in ("a", "b")]
for t in threads: t.start()
open("load-runs", "w")
for t in threads: t.join()
print(n[0], bad)
sys.exit(1 if bad or not n[0] else 0)
PY
start() {
    : >ready
    : >mps
    PATH=$PWD/bin:$PATH LD_LIBRARY_PATH=$DOUBLES bin/weft-server serve "${bundle-two.weft}" "${first-now.json}" --http 0 --grpc off \
        --metrics "${metrics-off}" --control control.sock --log-level info --timeout 100s "$@" >ready 2>errors &
    server=$!
    await ready READY errors
    http=$(sed -n 's/.*http=\([0-9]*\).*/\1/p' ready)
    rm -f stop-load load-runs
    $python load.py "$http" >load 2>&1 &
    load=$!
    while [ ! -e load-runs ]; do sleep 0.02; done
}
loaded() {
    : >stop-load
    wait "$load" || die "requests were lost: $(shown load) $(tail -5 errors)"
}
stop() {
    loaded
    kill -TERM "$server"
    local code=0
    wait "$server" || code=$?
    server=
    [ "$code" = 0 ] || die "the server ended with $code: $(shown errors)"
}
apply() { expect "$1" "$WEFT" ctl control.sock plan "$2"; }
# Workers by what they see: UUID and percentage.
seen() {
    local pid
    for pid in $(pgrep -P "$server"); do
        ! tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- " --worker " ||
            tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p; s/^CUDA_MPS_ACTIVE_THREAD_//p' |
            sort | tr '\n' ' ' | sed 's/ *$/\n/'
    done | sort
}
sees() {
    printf '%s\n' "$@" | sort >want
    for _ in $(seq 100); do
        seen >now-seen
        ! cmp -s want now-seen || return 0
        sleep 0.05
    done
    die "workers see $(shown now-seen), not $(shown want): $(tail -5 errors)"
}
mig() { printf 'MIG-00000000-0000-0000-%04u-%012u' "$1" "$2"; }
# Workers that never become ready; those that do.
slow_program() {
    printf '#!/bin/sh\nexec sleep 100\n' >slow
    chmod +x slow
    mv slow bin/weft-server
}
fast_program() { cp kept-server moved && mv moved bin/weft-server; }
machine() { printf 'driver 580.65.06 13000\n%s\n' "$@" >machine; }

# The only GPU gets another layout: both models are without a worker meanwhile, their requests wait, and the instances
# are destroyed when their workers have ended.
machine 'gpu h200 on' 'mig 0 9 0' 'mig 0 9 4'
plan now.json a:3g.71gb:0:0 b:3g.71gb:4:0
plan whole.json a:7g.141gb:0:0:0 b:7g.141gb:0:0:0
plan thirds.json a:2g.35gb:0:0 b:3g.71gb:4:0 a:2g.35gb:2:0
start --reconfigure-mig --state state
sees "$(mig 0 1)" "$(mig 0 2)"
apply 0 whole.json
sees "$(mig 0 3)"
grep -c '^unmig' machine | grep -qx 2 || die "$(shown machine)"
has errors "7g.141gb at slot 0 was created"
expect 0 "$WEFT" ctl control.sock plan
has out 7g.141gb
# Back again; then a layout of which one instance is there already.
apply 0 now.json
sees "$(mig 0 4)" "$(mig 0 5)"
apply 0 thirds.json
sees "$(mig 0 5)" "$(mig 0 6)" "$(mig 0 7)"
# The same plan again starts nothing.
apply 0 thirds.json
sees "$(mig 0 5)" "$(mig 0 6)" "$(mig 0 7)"
# What this machine cannot have is refused before anything happens.
plan wrong.json a:40%::0 b:60%::0
apply 1 wrong.json
has err "this machine has no such free GPU"
plan wrong.json a:3g.71gb:0:0
apply 1 wrong.json
has err "no slice for model 'b'"
# New workers cannot start: the way back makes the old instances again, and waits until workers start.
rm bin/weft-server
"$WEFT" ctl control.sock plan whole.json >out 2>err &
client=$!
await machine "ci 8" errors # the new instance
sleep 0.3
fast_program
code=0
wait "$client" || code=$?
[ "$code" = 1 ] || die "the change did not fail: $(shown out) $(shown err)"
has err "undone"
seen >now-seen
[ "$(wc -l <now-seen)" = 3 ] || die "workers see $(shown now-seen)"
lacks now-seen "$(mig 0 8)"
stop
lacks log MISTAKE

# A GPU that nothing uses takes the new layout: one step.
machine 'gpu h200 on' 'gpu h200 on' 'mig 0 9 0' 'mig 0 9 4'
start --reconfigure-mig
apply 0 whole.json
sees "$(mig 1 3)"
lacks machine unmig
stop
# Free slots of another GPU take a copy meanwhile: no model is without a worker at any time.
machine 'gpu h200 on' 'gpu h200 on' 'mig 1 9 0' 'mig 1 9 4' 'mig 0 14 0'
plan first.json a:3g.71gb:0:0 b:3g.71gb:4:0 a:2g.35gb:0:1
plan second.json a:7g.141gb:0:0:0 b:7g.141gb:0:0:0 a:2g.35gb:0:1
metrics=0 first=first.json start --reconfigure-mig
apply 0 second.json
sees "$(mig 1 5)" "$(mig 0 3)"
curl -fsS "http://127.0.0.1:$(sed -n 's/.*metrics=\([0-9]*\).*/\1/p' ready)/metrics" >scraped || die "no metrics"
has scraped "instance=\"$(mig 1 5)\"" # of the new instance, and none of those that are gone
lacks scraped "$(mig 1 1)"
has scraped 'weft_slice_ready{slice="GPU 1 7g.141gb at slot 0"} 1'
[ "$(grep -c 'gi 0 9 4' machine)" = 1 ] || die "no copy: $(shown machine)"
stop

# The driver refuses to create an instance: what ran before is made again, elsewhere than it was.
machine 'gpu h200 on' 'mig 0 9 0' 'mig 0 9 4'
WEFT_DOUBLE_FAIL=nvmlDeviceCreateGpuInstanceWithPlacement:1=23 start --reconfigure-mig
apply 1 whole.json
has err "the MIG instance 7g.141gb cannot be created"
sees "$(mig 0 3)" "$(mig 0 4)"
# The next try is a change like any other.
apply 0 whole.json
sees "$(mig 0 5)"
stop
# It refuses to destroy one, for a while, and then for good when its compute instance is destroyed already.
machine 'gpu h200 on' 'mig 0 9 0' 'mig 0 9 4'
WEFT_DOUBLE_FAIL=nvmlGpuInstanceDestroy:1=19,nvmlGpuInstanceDestroy:4=4 start --reconfigure-mig
apply 0 whole.json
sees "$(mig 0 3)"
apply 1 now.json
has err "cannot be destroyed: no permission (4)"
sees "$(mig 0 3)"
has machine "unci 3"
stop
# Nothing can be created any more: what runs is told, and its models wait for another plan.
machine 'gpu h200 on' 'mig 0 9 0' 'mig 0 9 4'
fail=$(for i in 1 2 3 4 5 6; do printf ',nvmlDeviceCreateGpuInstanceWithPlacement:%u=23' $i; done)
WEFT_DOUBLE_FAIL=${fail#,} start --reconfigure-mig
plan part.json a:3g.71gb:0:0 b:2g.35gb:4:0
apply 1 part.json
has err "the way back fails, what runs stays"
expect 0 "$WEFT" ctl control.sock plan
has out '"a"'
lacks out '"b"'
sees "$(mig 0 1)"
apply 0 part.json
sees "$(mig 0 1)" "$(mig 0 3)"
stop

# The router is killed in the middle of a change: the next one makes the layout of the plan in force again.
machine 'gpu h200 on' 'mig 0 9 0' 'mig 0 9 4'
rm -r state
start --reconfigure-mig --state state
apply 0 thirds.json
sees "$(mig 0 2)" "$(mig 0 3)" "$(mig 0 4)"
slow_program
"$WEFT" ctl control.sock plan whole.json >out 2>err &
client=$!
await machine "ci 5" errors
kill -KILL "$server"
wait "$server" || true
wait "$client" || true
: >stop-load
wait "$load" || true
fast_program
start --reconfigure-mig --state state
sees "$(mig 0 6)" "$(mig 0 7)" "$(mig 0 8)"
expect 0 "$WEFT" ctl control.sock plan
has out 2g.35gb
# An instance is lost while the workers on it are not ready in time.
stop
start --reconfigure-mig --state state --start-timeout 1s
slow_program
"$WEFT" ctl control.sock plan whole.json >out 2>err &
client=$!
await machine "ci 9" errors
printf 'unci 9\nunmig 0 9\n' >>machine
fast_program
code=0
wait "$client" || code=$?
[ "$code" = 1 ] || die "the change did not fail: $(shown out) $(shown err)"
seen >now-seen
[ "$(wc -l <now-seen)" = 3 ] || die "workers see $(shown now-seen)"
stop

# Shares: new workers with other percentages beside the old ones, and the same daemon.
machine 'gpu h200'
plan now.json a:40%::0 b:60%::0
plan other.json a:70%::0 b:30%::0
gpu=GPU-00000000-0000-0000-0000-000000000000
start --mps
sees "$gpu PERCENTAGE=40" "$gpu PERCENTAGE=60"
apply 0 other.json
sees "$gpu PERCENTAGE=30" "$gpu PERCENTAGE=70"
# One share stays as it is, and so does its worker.
plan third.json a:70%::0 b:20%::0
pgrep -P "$server" >before
apply 0 third.json
sees "$gpu PERCENTAGE=20" "$gpu PERCENTAGE=70"
pgrep -P "$server" | grep -cxFf before | grep -qx 2 || die "no worker and no daemon's watcher stayed"
# A worker is killed before it is ready: nothing has changed.
plan fourth.json a:60%::0 b:40%::0
slow_program
"$WEFT" ctl control.sock plan fourth.json >out 2>err &
client=$!
for _ in $(seq 200); do
    ! pgrep -P "$server" -x sleep >new || break
    sleep 0.02
done
fast_program
kill -KILL "$(head -1 new)"
code=0
wait "$client" || code=$?
[ "$code" = 1 ] || die "the change did not fail: $(shown out) $(shown err)"
has err "a worker ended while it prepared its models"
sees "$gpu PERCENTAGE=20" "$gpu PERCENTAGE=70"
stop
grep -c start mps | grep -qx 1 || die "daemons: $(shown mps)"
# SM partitions.
start --shares green
sees "$gpu" "$gpu"
apply 0 other.json
for pid in $(pgrep -P "$server"); do tr '\0' ' ' <"/proc/$pid/cmdline"; done >lines
grep -q " 0,88," lines && grep -q " 88,40," lines || die "$(shown lines)"
stop
lacks log MISTAKE
