#!/usr/bin/env bash
# Exported networks on the doubles: `models.sh NAME...`, from the folder WEFT_MODELS with NAME.onnx,
# NAME.in.INPUT.npy and NAME.out.OUTPUT.npy. Skips missing networks.
set -euo pipefail
: "${WEFT:?the program}"
models=${WEFT_MODELS:-}
[ -n "$models" ] && [ -d "$models" ] || { echo "no exported networks: set WEFT_MODELS"; exit 77; }
command -v "${WEFT_DOUBLE_CXX:-c++}" >/dev/null || { echo "no C++ compiler"; exit 77; }
box=$(mktemp -d "${TMPDIR:-/tmp}/weft-models.XXXXXX")
trap 'rm -rf "$box"' EXIT
code=77
for name in "$@"; do
    [ -f "$models/$name.onnx" ] || continue
    [ "$code" -ne 77 ] || code=0
    "$WEFT" compile "$models/$name.onnx" --target sm_90 --precision f32 -o "$box/m.weft"
    ports=()
    for file in "$models/$name".in.*.npy; do
        port=${file#"$models/$name".in.}
        ports+=(--input "${port%.npy}=@$file")
    done
    for file in "$models/$name".out.*.npy; do
        port=${file#"$models/$name".out.}
        ports+=(--expect "${port%.npy}=@$file")
    done
    echo "$name"
    start=$SECONDS
    "$WEFT" run "$box/m.weft" "${ports[@]}" || code=1
    echo "$name: $((SECONDS - start)) s"
done
exit $code
