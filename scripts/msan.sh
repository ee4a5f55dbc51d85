#!/usr/bin/env bash
# Runs the server and the readers of untrusted bytes under MemorySanitizer: the router and the worker of every
# given test of tests/conform/serve, and the corpora of the fuzz targets that need only instrumented libraries.
#
#   scripts/msan.sh [BUILD_FOLDER [TEST...]]
#
# BUILD_FOLDER (default build-ci) has weft and its compiler, which are not instrumented; TEST defaults to those
# below. TLS, keys and signatures stay out: OpenSSL is not instrumented. Kernels do, too (cmake/msan_ignore.txt).
# Exit code 1 with the reports' names where there were any, 77 where the libraries cannot be had.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
plain=$(realpath "${1:-$root/build-ci}")
[ $# -eq 0 ] || shift
tests=(http_protocol http_hostile http_attack http_vectors http_page grpc_attack grpc_talk serve_batches serve_equal serve_heads
    serve_host serve_liar serve_life serve_listen serve_models serve_regions serve_state serve_supervise serve_trace)
[ $# -eq 0 ] || tests=("$@")
targets=(bundle calls channel control grpc http http1 json keys scan trace traceparent wire zip)

WEFT_MSAN=$("$root/scripts/msan_libs.sh")
export WEFT_MSAN
cmake -S "$root" --preset msan >/dev/null
cmake --build "$root/build-msan" --target weft-server "${targets[@]/#/fuzz_}" >/dev/null
box=$(mktemp -d "${TMPDIR:-/tmp}/weft-msan.XXXXXX")
trap 'rm -rf "$box"' EXIT
cp "$plain"/weft "$plain"/weft-compiler "$plain"/weft-planner "$plain"/weft-transfer "$root/build-msan/weft-server" "$box/"
reports=$root/build-msan/msan-report
rm -f "$reports".*
# oneDNN compares memory that only it has written.
export MSAN_OPTIONS=intercept_memcmp=0:exitcode=66:log_path=$reports
export WEFT=$box/weft WEFT_SOURCE_DIR=$root WEFT_ONNX_DATA=${WEFT_ONNX_DATA:-/usr/share/libonnx-testdata/data}

failed=0
ctest --test-dir "$root/build-msan" -R "^fuzz/($(IFS='|' && echo "${targets[*]}"))\$" --output-on-failure | tail -n 4 || failed=1
for name in "${tests[@]}"; do
    code=0
    bash "$root/tests/conform/serve/run_client.sh" "$root/tests/conform/serve/$name.py" "$WEFT" "$root/examples" \
        "$root/runtime/server/grpc_service.proto" "$(command -v protoc-c)" >"$box/log" 2>&1 || code=$?
    case $code in
        0) echo "$name: passed" ;;
        77) echo "$name: skipped" ;;
        *) failed=1 && tail -n 20 "$box/log" && echo "$name: exit code $code" ;;
    esac
done
found=("$reports".*)
if [ -e "${found[0]}" ]; then
    echo "reports: ${found[*]}" && exit 1
fi
echo "no report"
exit "$failed"
