# The target selects the pipeline: an estimate has the kernels that are compiled for the device. A
# convolution on a CPU reads three planes as they are, on a GPU they get channels innermost first.
command -v jq >/dev/null || skip "no jq"
model=$examples/digits_cnn.onnx
cat >conv.wir <<'END'
wir 1 graph
symbol ?n = [1, 8]
weight $w : f32[16,3,3,3] = splat 0.5
graph @conv (%x : f32[?n,3,8,8]) {
  symbol ?n "n"
  %1 : f32[?n,16,6,6] = conv %x, $w
  return "y" %1
}
END
expect 0 "$WEFT" estimate conv.wir --compare cpu:2core,h100,l4 --per-kernel --format json
[ "$(jq -c '[.models[] | [.kernels[].op]]' out)" = \
    '[["conv","reorder"],["reorder","conv","reorder"],["reorder","conv","reorder"]]' ] || die "$(shown out)"

# Models are lowered once for each kind of device: the numbers equal those of separate estimates.
expect 0 "$WEFT" estimate "$model" --compare cpu:2core,h100,l4 --format json
jq '.models[] | select(.device == "h100") | .time_us' out >together
expect 0 "$WEFT" estimate "$model" --gpu h100 --format json
jq '.models[].time_us' out >alone
cmp together alone
cp "$model" .
"$WEFT" opt digits_cnn.onnx >graph.wir
expect 1 sh -c '"$0" estimate - --compare cpu,h100 <graph.wir' "$WEFT"
has err "standard input can be read only once"
expect 0 sh -c '"$0" estimate - --compare h100,l4 <graph.wir' "$WEFT"
expect 0 "$WEFT" opt --help
has out "cpu, gpu, framework"

# What compile puts into the bundle, for every slice, batch and number of processes, whatever the
# target.
expect 0 "$WEFT" estimate "$model" --gpu h100 --batch 1,8 --profile -o model.csv
filled model.csv
expect 0 "$WEFT" compile "$model" --gpu h100 --batch 1,8 -o cpu.weft
expect 0 "$WEFT" estimate cpu.weft --gpu h100 --profile -o cpu.csv
diff <(grep ^h100 cpu.csv) <(grep ^h100 model.csv) || die "the bundle for CPUs has other estimates"
code=0
"$WEFT" compile "$model" --target sm_90 --gpu h100 --batch 1,8 -o model.weft >out 2>err || code=$?
if [ "$code" -ne 0 ] && grep -q "NVRTC, the compiler of CUDA kernels, is not here" err; then
    skip "no NVRTC: $(head -1 err)"
fi
[ "$code" -eq 0 ] || die "compile: $(shown err)"
expect 0 "$WEFT" estimate model.weft --gpu h100 --profile -o bundle.csv
diff <(grep ^h100 bundle.csv) <(grep ^h100 model.csv) || die "the bundle has other estimates"
