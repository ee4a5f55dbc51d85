#!/usr/bin/env bash
# The main job, from nothing: installs what is missing, builds, compiles the four models of
# examples/ into one bundle, measures what its joint program gains, estimates, plans and simulates
# it on GPUs that need not be here, serves it on this CPU, sends the held-out digits as HTTP
# requests, checks every answer, prints a report, stops the server. WEFT_BUILD: build folder (default: build).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${WEFT_BUILD:-$root/build}
examples=$root/examples
began=$SECONDS
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-demo.XXXXXX")
server=

say() { printf '\n== [%3ds] %s\n' $((SECONDS - began)) "$*"; }

die() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

clean_up() {
    if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
        kill -TERM "$server" 2>/dev/null || true
        for _ in $(seq 50); do
            kill -0 "$server" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bytes() { stat -c %s "$1"; }

# What a server said last, for messages.
server_log() { tail -n 20 "$work/server.log" | sed 's/^/  server: /' >&2; }

say "packages"
bash "$root/scripts/setup.sh"

say "build (Release, in $build)"
if command -v ccache >/dev/null && [ -z "${CMAKE_C_COMPILER_LAUNCHER:-}" ]; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
fi
NINJA_STATUS='[%f/%t %es] '
export NINJA_STATUS
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$build" --target weft
weft=$build/weft

say "compile examples/digits.yaml"
"$weft" compile "$examples/digits.yaml" -o "$work/digits.weft" --report "$work/report.json"
onnx_bytes=0
for model in cnn parity size attn; do
    size=$(bytes "$examples/digits_$model.onnx")
    onnx_bytes=$((onnx_bytes + size))
    printf '  %-22s %9d bytes\n' "digits_$model.onnx" "$size"
done
bundle_bytes=$(bytes "$work/digits.weft")
printf '  %-22s %9d bytes\n' "four ONNX files" "$onnx_bytes" "one bundle" "$bundle_bytes"
jq -r '"  weights in the bundle \(.weight_bytes) bytes; \(.shared | length) weights are shared",
    "  between models, which saves \(.bytes_saved) bytes"' "$work/report.json"
"$weft" inspect "$work/digits.weft" >"$work/inspected"
sed -n '2,/^$/{/./p}; /^model/p; /^  bucket   batch = 8/p; /^  estimate cpu 1core/p' \
    "$work/inspected"

jq -r '"  \([.merges[] | select(.joined)] | length) of \(.merges | length) operators that siblings share run as super-GEMMs",
    "  in the joint program of the bundle"' "$work/report.json"

say "joint program beside its models, on this CPU"
"$weft" bench "$work/digits.weft" --batch 1 --time 1 | sed -n '/joint/s/^/  /p'

say "estimate for GPUs that need not be here"
"$weft" estimate "$examples/digits_cnn.onnx" --compare h100,l4,t4 --batch 8 | sed 's/^/  /'

say "plan examples/fleet_gpu.yaml, every policy"
"$weft" plan "$examples/digits.yaml" --fleet "$examples/fleet_gpu.yaml" --compare | sed 's/^/  /'
"$weft" plan "$examples/digits.yaml" --fleet "$examples/fleet_gpu.yaml" -o "$work/gpu_plan.json"

say "simulate the plan: ten seconds of Poisson arrivals"
"$weft" simulate "$work/gpu_plan.json" --set "$examples/digits.yaml" \
    --fleet "$examples/fleet_gpu.yaml" --arrivals poisson --duration 10s --seed 1 | sed 's/^/  /'

say "plan examples/fleet.yaml"
"$weft" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --bundle "$work/digits.weft" \
    -o "$work/plan.json"
jq -r '.placements[] | "  \(.model): slice \(.slice_id) (\(.slice)) of \(.type) \(.device)"' \
    "$work/plan.json"

# The first Python that has numpy: Debian's may not be the first in PATH.
python=python3
"$python" -c 'import numpy' 2>/dev/null || python=/usr/bin/python3

say "serve"
# Port 0: the system picks free ones; the first line of the server says which. The file is made
# first: the loop below may look before the server's shell has opened it.
: >"$work/server.log"
"$weft" serve "$work/digits.weft" "$work/plan.json" --http 0 --grpc 0 --metrics 0 \
    >>"$work/server.log" 2>&1 &
server=$!
ready=
for _ in $(seq 300); do
    if ! kill -0 "$server" 2>/dev/null; then
        server_log
        die "the server ended before it was ready"
    fi
    http=$(sed -n 's/^READY .*http=\([0-9]*\).*/\1/p' "$work/server.log")
    if [ -n "$http" ] &&
        curl -fs -m 2 -o /dev/null "http://127.0.0.1:$http/v2/health/ready"; then
        ready=yes
        break
    fi
    sleep 0.1
done
if [ -z "$ready" ]; then
    server_log
    die "the server was not ready within 30 s"
fi
sed -n 's/^READY/  ready:/p' "$work/server.log"

say "requests: the held-out digits"
if ! "$python" "$root/scripts/demo_client.py" --port "$http" --data "$examples"; then
    server_log
    die "the answers are not what they should be"
fi

say "stop"
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
if [ "$code" -ne 0 ]; then
    server_log
    die "the server ended with exit code $code"
fi
echo "  the server drained and ended with exit code 0"

share=$((100 * bundle_bytes / onnx_bytes))
say "the demo succeeded: four models in one bundle of $share % of their size"
