# The error that --precision causes is measured on the CPU, printed and reported for each model.
command -v jq >/dev/null || skip "no jq"
set=$examples/digits.yaml
# Compilation that stops after the measured pass needs no NVRTC.
lowered=(--target sm_80 --stop-after lower-precision)
for type in f16 bf16 tf32; do
    expect 0 "$WEFT" compile "$set" "${lowered[@]}" --precision "$type" -o a.wir
    [ "$(grep -c "^note: .*: $type: output logits is off by up to " err)" -eq 4 ] ||
        die "$(shown err)"
    sed -n "s/^note: digits: $type: .* up to \([^ ]*\) of scale.*/\1/p" err >"$type"
done
# bf16 has 8 bits of significand, f16 has 11: errors near 1/256 and 1/2048 of scale.
# tf32 has as many as f16, but only in GEMMs.
awk -v f16="$(cat f16)" -v bf16="$(cat bf16)" -v tf32="$(cat tf32)" \
    'BEGIN { exit !(f16 > 1e-5 && f16 < 5e-3 && bf16 > 2 * f16 && bf16 < 5e-2 &&
                    tf32 > 1e-5 && tf32 < 2 * f16) }' ||
    die "f16 $(cat f16), bf16 $(cat bf16), tf32 $(cat tf32)"
expect 0 "$WEFT" compile "$set" "${lowered[@]}" --precision f32 -o a.wir
lacks err "of scale"

# Values beyond the range of f16, values that f16 represents exactly, and models too large to evaluate.
cat >models.wir <<'END'
wir 1 graph
symbol ?b = [1, 8]
symbol ?c = [1, 8]
symbol ?d = [1, 8]
weight $big : f32[2,2] = dense [60000, 60000, 60000, 60000]
weight $two : f32[2] = dense [2, 2]
weight $w : f32[2000,2000] = random 1
graph @over (%x : i64[?b,2]) {
  symbol ?b "batch"
  %1 : f32[?b,2] = cast %x {to = f32}
  %2 : f32[?b,2] = add %1, $two
  %3 : f32[?b,2] = matmul %2, $big
  return "y" %3
}
graph @exact (%i : i64[?c,2]) {
  symbol ?c "batch"
  %1 : f32[?c,2] = cast %i {to = f32}
  %2 : f32[?c,2] = mul %1, $two
  return "y" %2, "z" %1
}
graph @huge (%x : f32[?d,20000,2000]) {
  symbol ?d "batch"
  %1 : f32[?d,20000,2000] = matmul %x, $w
  return "y" %1
}
END
expect 0 "$WEFT" compile models.wir "${lowered[@]}" --precision f16 -o a.wir
has err "over: f16: output y overflows or is NaN where that of f32 is finite"
has err "exact: f16: output y is off by up to 0 of scale from f32, other outputs by no more"
has err "huge: error of f16 not measured: its 1.6e+11 operations and bytes are more than the 2e+10"

sed '/^graph @huge/,$d; /^weight \$w/d; /?d/d' models.wir >small.wir
code=0
"$WEFT" compile small.wir --target sm_80 --precision f16 -o a.weft --report a.json \
    >out 2>err || code=$?
if [ "$code" -ne 0 ] && grep -q "NVRTC, the compiler of CUDA kernels, is not here" err; then
    skip "the report: $(grep NVRTC err)"
fi
[ "$code" -eq 0 ] || die "compile: $(shown err)"
jq -e '.precision | .type == "f16" and ([.outputs[] | [.model, .output, .difference, .runs]]
    == [["over", "y", 1e300, 1], ["exact", "y", 0, 1], ["exact", "z", 0, 1]])' a.json >/dev/null ||
    die "$(shown a.json)"
expect 0 "$WEFT" compile small.wir --target sm_80 --precision f16 -o a.weft --report - --format text
has out "Precision f16: outputs differ from those of f32"
has out "  overflows or is NaN  over y"
has out "  0 of scale (1 inputs)  exact z"
# TF32 is the default on GPUs.
for option in "--precision tf32" ""; do
    # shellcheck disable=SC2086
    expect 0 "$WEFT" compile small.wir --target sm_80 $option -o a.weft --report a.json
    jq -e '.precision | .type == "tf32" and ([.outputs[] | [.model, .output, .difference, .runs]]
        == [["over", "y", 0, 1], ["exact", "y", 0, 1], ["exact", "z", 0, 1]])' a.json >/dev/null ||
        die "$(shown a.json)"
done
expect 0 "$WEFT" compile small.wir --target sm_80 --precision f32 -o a.weft --report a.json
jq -e '.precision == null' a.json >/dev/null || die "$(shown a.json)"
