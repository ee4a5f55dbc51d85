# A worker whose GPU fails reports it and ends; its requests are answered by another worker.
command -v curl >/dev/null || skip "no curl"
command -v g++ >/dev/null || skip "no g++, which the double of NVRTC calls"
export LD_LIBRARY_PATH=$DOUBLES WEFT_DOUBLE_CACHE=$PWD/cache WEFT_DOUBLE_NVML=$PWD/machine
printf 'driver 580.65.06 13000\ngpu h200\n' >machine
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" --target sm_90 --batch 1 -o d.weft
mkdir mps && : >mps/control
cat >plan.json <<'END'
{"format": "weft-plan", "version": 3, "policy": "weft", "goal": "cost",
 "rules": {"latency": "exact", "whole_ms": false, "procs_max": 0, "isolated": false,
           "oversubscribe": false, "mem_reserve": 0.0},
 "gpus": 1, "cost_per_hour": 1.0, "goodput_per_s": 1.0, "power_w": 0.0, "lower_bound": 1,
 "proven": false, "decision_ms": 0.0,
 "models": [{"model": "digits_cnn", "slo_us": 0.0, "rate_per_s": 1.0}],
 "placements": [
  {"model": "digits_cnn", "device": 0, "type": "h200", "slice": "40%", "slice_id": 0,
   "mig_start": null, "share": 0.4, "batch": 1, "procs": 1, "rate_per_s": 1.0,
   "capacity_per_s": 10.0, "latency_us": 100.0, "mem_bytes": 0, "expected_error": 0.1,
   "source": "analytic"},
  {"model": "digits_cnn", "device": 0, "type": "h200", "slice": "60%", "slice_id": 1,
   "mig_start": null, "share": 0.6, "batch": 1, "procs": 1, "rate_per_s": 1.0,
   "capacity_per_s": 10.0, "latency_us": 100.0, "mem_bytes": 0, "expected_error": 0.1,
   "source": "analytic"}]}
END
python3 -c '
import json
print(json.dumps({"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
                              "data": [float(i % 17) for i in range(64)]}]}))' >request.json
start() {
    : >ready # the background process may truncate it only after the first look below
    CUDA_MPS_PIPE_DIRECTORY=$PWD/mps "$WEFT" serve d.weft plan.json --http 0 --grpc off \
        --metrics 0 "$@" >ready 2>errors &
    server=$!
    for _ in $(seq 300); do
        grep -q READY ready && break
        kill -0 "$server" 2>/dev/null || return 0
        sleep 0.1
    done
    http=$(sed -n 's/.*http=\([0-9]*\).*/\1/p' ready)
    metrics=$(sed -n 's/.*metrics=\([0-9]*\).*/\1/p' ready)
}
infer() { curl -sS "http://127.0.0.1:$http/v2/models/digits_cnn/infer" -d @request.json; }
stop() {
    kill -TERM "$server"
    local code=0
    wait "$server" || code=$?
    server=
    [ "$code" = 0 ] || die "the server ended with $code: $(shown errors)"
}

start
infer >want
has want '"logits"'
stop

# The seventh run of every worker fails with an illegal address, which destroys the CUDA context.
WEFT_DOUBLE_FAIL=cuGraphLaunch:7=700 start
for i in $(seq 40); do
    infer >got
    cmp -s want got || die "answer $i: $(shown got)"
done
curl -fsS "http://127.0.0.1:$metrics/metrics" >scraped
losses=$(sed -n 's/^weft_slice_losses_total.* //p' scraped | awk '{n += $1} END {print n}')
[ "$losses" -ge 2 ] || die "$losses losses: $(grep slice scraped)"
grep '^weft_requests_succeeded_total' scraped | grep -q ' 40$' || die "$(shown scraped)"
grep '^weft_requests_failed_total' scraped | grep -q ' 0$' || die "$(shown scraped)"
stop

# The GPU disappears while the server runs: no worker can restart, health and metrics report why, and
# requests are answered within their timeout.
cp -r "$DOUBLES" lib
LD_LIBRARY_PATH=$PWD/lib WEFT_DOUBLE_FAIL=cuGraphLaunch:3=700 start --timeout 1s
rm lib/libcuda.so.1
for _ in $(seq 8); do
    infer >got
    grep -q error got && break
done
has got "the deadline passed"
code=$(curl -sS -o health -w '%{http_code}' "http://127.0.0.1:$http/v2/health/ready")
[ "$code" = 400 ] || die "health: $code"
has health '"ready":false,"lost":true,"why":"GPU 0 share 40% (slice 0): the CUDA driver is not here'
curl -fsS "http://127.0.0.1:$metrics/metrics" >scraped
has scraped 'weft_slice_ready{slice="GPU 0 share 60% (slice 1)"} 0'
stop

# The GPU is missing at the start: the error names the slice.
WEFT_DOUBLE_FAIL=cuInit:1=100 start
wait "$server" && die "the server started"
server=
has errors "d.weft: GPU 0 share"
has errors "the CUDA driver finds no GPU"

# Too little memory: the error has the memory of the GPU and the memory that the plan assumes.
sed -i 's/"mem_bytes": 0/"mem_bytes": 12345678/' plan.json
WEFT_DOUBLE_MEM=100000 start
wait "$server" && die "the server started"
server=
has errors OUT_OF_MEMORY
has errors "bytes are free"
has errors "the plan counts on 12345678 bytes here"
