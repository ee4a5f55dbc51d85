# A smaller slice takes longer and needs no more resources; kernel times sum to the time of the
# model.
command -v jq >/dev/null || skip "no jq"
model=$examples/digits_cnn.onnx
time_on() {
    expect 0 "$WEFT" estimate "$model" --gpu h200 "$@" --batch 8 --format json
    jq '.models[0].time_us * 1000 | floor' out
}
whole=$(time_on)
large=$(time_on --slice 4g.71gb)
small=$(time_on --slice 1g.18gb)
at_most "$whole" "$large"
at_most "$large" "$small"
at_most "$whole" "$(time_on --share 10%)"
expect 0 "$WEFT" estimate "$model" --gpu cpu --slice 2core --per-kernel --format json
jq -e '.slice == "2core" and (.models[0] | .source == "analytic"
    and ([.kernels[].time_us] | add) / .time_us > 0.999
    and ([.kernels[].time_us] | add) / .time_us < 1.001)' out >/dev/null || die "$(shown out)"
expect 0 "$WEFT" estimate "$model" --gpu t4 --per-kernel
has out digits_cnn
expect 2 "$WEFT" estimate "$model" --gpu h200 --slice 1g.10gb
has err 1g.10gb
expect 2 "$WEFT" estimate "$model" --gpu h200 --share 140%
expect 2 "$WEFT" estimate "$model" --gpu h200 --batch 0
expect 2 "$WEFT" estimate "$model"
