#!/usr/bin/env bash
# Compiles the bundles of the driver tests into a folder, for the CPU and, with libnvrtc_double, for a
# GPU. WEFT: the program.
set -euo pipefail
out=$1
here=$(dirname "${BASH_SOURCE[0]}")
command -v "${WEFT_DOUBLE_CXX:-c++}" >/dev/null || { echo "no C++ compiler"; exit 77; }
mkdir -p "$out"
# Without a double of it, and without NVRTC itself.
code=0
"$WEFT" compile "$here/small.wir" --target sm_90 -o "$out/first.weft" 2>"$out/log" || code=$?
if [ "$code" -ne 0 ] && grep -q "NVRTC, the compiler of CUDA kernels, is not here" "$out/log"; then
    echo "no NVRTC: skipped"
    exit 77
fi
rm -f "$out"/*
pair() { # NAME SOURCE OPTIONS...
    "$WEFT" compile "$2" "${@:3}" -o "$out/$1.cpu.weft"
    "$WEFT" compile "$2" "${@:3}" --target sm_90 --precision f32 -o "$out/$1.gpu.weft"
}
pair small "$here/small.wir"
pair quantised "$here/quantised.wir"
# Rows whose size is not a multiple of 16 bytes.
"$WEFT" compile "$here/odd.wir" -o "$out/odd.f16.cpu.weft"
"$WEFT" compile "$here/odd.wir" --precision f16 --target sm_90 -o "$out/odd.f16.gpu.weft"
for name in digits_cnn digits_attn; do
    pair $name "$here/../../examples/$name.onnx"
    cp "$out/$name.cpu.weft" "$out/$name.f16.cpu.weft"
    "$WEFT" compile "$here/../../examples/$name.onnx" --precision f16 --target sm_90 -o "$out/$name.f16.gpu.weft"
done
pair digits "$here/../../examples/digits.yaml" # siblings, with joint programs

# Two models with each merge strategy. Their weights differ by a matrix of rank 2, in the output features
# from 40 on, or in the last 4 inputs.
rows='slice $first {axes = [1], starts = [0], ends = [40], steps = [1]}'
few='slice $first {axes = [0], starts = [0], ends = [92], steps = [1]}'
sed "s/%d : .*/%d : f32[96,40] = $rows/; s/%w : .*/%w : f32[96,64] = concat %d, \$own {axis = 1}/" \
    "$here/kin.wir" >"$out/rows.wir"
sed "s/%d : .*/%d : f32[92,64] = $few/; s/%w : .*/%w : f32[96,64] = concat %d, \$few {axis = 0}/" \
    "$here/kin.wir" >"$out/few.wir"
pair low_rank "$here/kin.wir" --merge low_rank
pair sparse "$out/few.wir" --merge sparse
for way in concatenated interleaved classes union_stack; do
    pair $way "$out/rows.wir" --merge $way
done

# The same for convolutions: weights differ by a matrix of rank 2, or in the last 8 channels.
rows='slice $first {axes = [0], starts = [0], ends = [16], steps = [1]}'
sed "s/%d : .*/%d : f32[16,8,3,3] = $rows/; /%e : /d; s/%w : .*/%w : f32[24,8,3,3] = concat %d, \$own {axis = 0}/" \
    "$here/kin_conv.wir" >"$out/channels.wir"
for way in low_rank batched; do
    pair conv_$way "$here/kin_conv.wir" --merge $way
done
for way in classes union_stack; do
    pair conv_$way "$out/channels.wir" --merge $way
done

# Convolutions of every form: what cuDNN computes, and what is left to do.
pair convs "$here/convs.wir" --batch 1,2
# Attention and pooling; branches and loops.
"$WEFT" compile "$here/heads.wir" --batch 1,2 -o "$out/heads.cpu.weft"
pair flow "$here/flow.wir"
for type in f16 bf16; do
    for name in convs heads; do
        cp "$out/$name.cpu.weft" "$out/$name.$type.cpu.weft"
        "$WEFT" compile "$here/$name.wir" --batch 1,2 --precision $type --target sm_90 -o "$out/$name.$type.gpu.weft"
    done
done
