#!/usr/bin/env bash
# Compiles what the driver's tests run, for the CPU and, by NVRTC's double, for a GPU, into a folder.
# WEFT: the program.
set -euo pipefail
out=$1
here=$(dirname "${BASH_SOURCE[0]}")
command -v "${WEFT_DOUBLE_CXX:-c++}" >/dev/null || { echo "no C++ compiler"; exit 77; }
mkdir -p "$out"
rm -f "$out"/*
pair() { # NAME SOURCE
    "$WEFT" compile "$2" -o "$out/$1.cpu.weft"
    "$WEFT" compile "$2" --target sm_90 -o "$out/$1.gpu.weft"
}
pair small "$here/small.wir"
for name in digits_cnn digits_attn; do
    pair $name "$here/../../examples/$name.onnx"
done
pair digits "$here/../../examples/digits.yaml" # siblings, with joint programs
