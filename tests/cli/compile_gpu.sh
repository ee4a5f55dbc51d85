# Bundles for GPUs: options are checked without NVRTC; with NVRTC the models of the demo compile for
# several architectures, reproducibly, and inspect lists the contents.
# ctest label: slow (NVRTC takes the time).
set=$examples/digits.yaml
expect 2 "$WEFT" compile "$set" --target gtx -o a.weft
has err "no target 'gtx'"
expect 2 "$WEFT" compile "$set" --precision bf16 -o a.weft
has err "needs a GPU"
expect 2 "$WEFT" compile "$set" --target sm_80 --precision i8 -o a.weft
has err "--precision takes f32, tf32, f16 or bf16, not 'i8'"
expect 1 "$WEFT" compile "$set" --target sm_80 --pack -o a.weft
has err "--pack: GPUs run no packed sequences; compile with --target cpu"
expect 1 "$WEFT" compile "$set" --target sm_80,sm_79 -o a.weft
has err 'no GPU architecture is called "sm_79"; there are sm_75'

# All operators that cannot run on a GPU are named.
cat >late.wir <<'END'
wir 1 graph
symbol ?d0 data
graph @m (%x : f32[4,4], %i : i64[4]) {
  %1 : i64[1,?d0] = non_zero %i loc "late.onnx" "Count_7"
  %2 : f32[4,4] = det %x loc "late.onnx" "Det_9"
  %3 : f32[] = det %x loc "late.onnx" "Det_9"
  return "y" %1, "z" %3
}
END
sed -i '/Det_9/{/4,4\] = det/d}' late.wir
expect 1 "$WEFT" compile late.wir --target sm_80 -o a.weft
has err "Count_7: non_zero: no CUDA kernel for the operator; compile with --target cpu"
has err "Det_9: det: no CUDA kernel for the operator"
# What GPUs refuse of quantised operators names the reason and the remedy.
cat >deep.wir <<'END'
wir 1 graph
weight $s : f32[] = dense [0.5]
weight $i : i8[] = dense [0]
weight $w : i8[70000,4] = splat 1
graph @m (%x : i8[2,70000]) {
  %1 : f32[2,4] = qlinear_matmul %x, $s, $i, $w, $s, $i loc "deep.onnx" "Deep_1"
  return "a" %1
}
END
expect 1 "$WEFT" compile deep.wir --target sm_80 -o a.weft
has err "Deep_1: qlinear_matmul: sums of 70000 products of bytes, at most 65793 fit 32 bits; compile with --target cpu"
cat >shape.wir <<'END'
wir 1 graph
symbol ?d0 data
graph @m (%x : f32[4,6], %n : i64[1]) {
  %1 : f32[?d0,6] = slice %x, _, %n {starts = dims[0], axes = dims[0]} loc "late.onnx" "Slice_3"
  return "y" %1
}
END
expect 1 "$WEFT" compile shape.wir --target sm_80 -o a.weft
has err "Slice_3: slice: only running tells"

code=0
"$WEFT" compile "$set" --target sm_90,sm_80 --kernel-cache kept/kernels -o a.weft --report gpu.json \
    >out 2>err || code=$?
if [ "$code" -ne 0 ] && grep -q "NVRTC, the compiler of CUDA kernels, is not here" err; then
    has err libnvrtc.so
    skip "no NVRTC: $(head -1 err)"
fi
[ "$code" -eq 0 ] || die "compile: $(shown err)"
lacks out "were compiled before"
# The same bytes from another folder, environment, locale and CPU, if address randomisation can be
# switched off. Nothing is taken from earlier runs.
if setarch -R true 2>/dev/null; then
    (cd / && env -u HOME LC_ALL=C TZ=Asia/Tokyo EXTRA=1 taskset -c 0 \
        "$WEFT" compile "$set" --target sm_80,sm_90 --kernel-cache off -o "$box/b.weft")
    cmp a.weft b.weft
fi

# Compiled again, everything is there: no process compiles, and the bytes are the same.
images=$(find kept/kernels -name '*.kernel' | wc -l)
again() { # FOUND
    expect 0 "$WEFT" compile "$set" --target sm_80,sm_90 --kernel-cache kept/kernels -o c.weft
    cmp a.weft c.weft
    has out "of $images images, $1 were compiled before"
}
again "$images"
[ "$(stat -c %a kept/kernels)" = 700 ] || die "others may read or write the folder"
# Files that are damaged are compiled again.
cp -r kept/kernels saved
find kept/kernels -name '*.kernel' | sort >files
first=$(head -1 files)
printf 'x' | dd of="$first" bs=1 seek=900 conv=notrunc status=none
truncate -s 100 "$(tail -1 files)"
again $((images - 2))
diff -r kept/kernels saved >/dev/null || die "damaged files stay"
# By the environment and by default below the user's folder; for another set with the same kernels.
cat >tiny.wir <<'END'
wir 1 graph
graph @m (%x : f32[4,4]) {
  %1 : f32[4,4] = exp %x
  return "y" %1
}
END
sed 's/@m/@another/; s/"y"/"z"/' tiny.wir >other.wir
expect 0 env WEFT_KERNEL_CACHE="$box/kept/kernels" "$WEFT" compile tiny.wir --target sm_80 -o c.weft
lacks out "compiled before"
expect 0 env WEFT_KERNEL_CACHE=off XDG_CACHE_HOME="$box/user" "$WEFT" compile other.wir --target sm_80 \
    --kernel-cache kept/kernels -o c.weft
has out "of 1 images, 1 were compiled before"
[ ! -e user ] || die "the user's folder is used"
expect 0 env -u WEFT_KERNEL_CACHE XDG_CACHE_HOME="$box/user" "$WEFT" compile tiny.wir --target sm_80 -o c.weft
lacks out "compiled before"
expect 0 env -u WEFT_KERNEL_CACHE XDG_CACHE_HOME="$box/user" "$WEFT" compile tiny.wir --target sm_80 -o c.weft
has out "of 1 images, 1 were compiled before"
[ "$(find user/weft/kernels -type f | wc -l)" -eq 1 ] || die "$(find user)"
# A folder that cannot be used is named if it was chosen, and does no harm.
chmod 770 user/weft/kernels
expect 0 env -u WEFT_KERNEL_CACHE XDG_CACHE_HOME="$box/user" "$WEFT" compile tiny.wir --target sm_80 -o c.weft
lacks err "not kept"
expect 0 env WEFT_KERNEL_CACHE=user/weft/kernels "$WEFT" compile tiny.wir --target sm_80 -o c.weft
has err "user/weft/kernels: compiled kernels are not kept here: others may write the folder"
expect 0 "$WEFT" compile tiny.wir --target sm_80 --kernel-cache files/x -o c.weft
has err "files/x: compiled kernels are not kept here: Not a directory"
expect 0 "$WEFT" inspect a.weft
has out "for sm_80,sm_90"
has out "section  code"
has out "kernel   "
"$WEFT" compile "$examples/digits_cnn.onnx" --target sm_75 --precision f16 -o c.weft
expect 0 "$WEFT" inspect c.weft
has out "for sm_75"
command -v jq >/dev/null || exit 0
"$WEFT" inspect a.weft --format json >out
jq -e '.target == "sm_80,sm_90" and .code.arch == ["sm_80", "sm_90"]' out >/dev/null || die "target"
jq -e '.sections | map(.name) == ["metadata", "weights", "code"]' out >/dev/null || die "sections"
jq -e '.code.kernels | length > 5 and all(.resources | length == 2 and all(.registers > 0))' \
    out >/dev/null || die "registers: $(shown out)"
jq -e '.code.kernels | map(.name) | (unique | length) == length' out >/dev/null || die "names"
# Each module has an image for each architecture, and PTX.
jq -e '.code.images | length % 3 == 0 and (.[2].arch == "compute_90")' out >/dev/null || die "images"
# The predicted gain of joint programs is that of the target, not of a CPU.
"$WEFT" compile "$set" -o d.weft --report cpu.json
jq -en --slurpfile gpu gpu.json --slurpfile cpu cpu.json \
    '$gpu[0].expected[0].apart_ms != $cpu[0].expected[0].apart_ms' >/dev/null || die "expected gain"
