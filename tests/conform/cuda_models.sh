#!/usr/bin/env bash
# Every exported model of WEFT_MODELS, and each set of siblings (sib_NAME_*.onnx), compiled for
# sm_80, sm_90 and sm_100: each operator has its kernels, NVRTC takes them all, and the bundle is
# read back. One line for each: seconds, bytes, kernels.
#   cuda_models.sh WEFT
set -euo pipefail
weft=$1
[ -n "${WEFT_MODELS:-}" ] || { echo "WEFT_MODELS names no folder of models: skipped"; exit 77; }
box=$(mktemp -d "${TMPDIR:-/tmp}/weft-cuda.XXXXXX")
trap 'rm -rf "$box"' EXIT

check() { # NAME FILES...
    local name=$1 start=$SECONDS code=0
    shift
    "$weft" compile "$@" --target sm_80,sm_90,sm_100 -o "$box/a.weft" 2>"$box/err" || code=$?
    if [ "$code" -ne 0 ] && grep -q "NVRTC, the compiler of CUDA kernels, is not here" "$box/err"; then
        echo "no NVRTC: skipped"
        exit 77
    fi
    [ "$code" -eq 0 ] || { echo "$name: FAILED"; cat "$box/err"; exit 1; }
    "$weft" inspect "$box/a.weft" --no-verify >"$box/out"
    echo "$name: $((SECONDS - start)) s, $(stat -c %s "$box/a.weft") bytes,$(
        sed -n 's/^  code    //p' "$box/out")"
}

shopt -s nullglob
found=0
for model in "$WEFT_MODELS"/*.onnx; do
    found=1
    case "$model" in */sib_*) ;; *) check "$(basename "$model" .onnx)" "$model" ;; esac
done
for base in "$WEFT_MODELS"/sib_*_base.onnx; do
    check "$(basename "$base" _base.onnx)" "${base%_base.onnx}"_*.onnx
done
[ "$found" -eq 1 ] || { echo "$WEFT_MODELS has no models"; exit 1; }
