# Models on MPS shares of one GPU at the same time: each is as fast alone as on its share, and slower beside the others;
# the slow-down grows with the neighbours and with shares that overlap.
command -v jq >/dev/null || skip "no jq"
a=$examples/digits_cnn.onnx b=$examples/digits_attn.onnx c=$examples/digits_parity.onnx
together() { expect 0 "$WEFT" estimate "$@" --format json; }
value() { jq "$1 * 1000 | floor" out; }
together "$a" --gpu h100 --share 40% --batch 64
alone=$(value '.models[0].time_us')
together "$a" "$b" --gpu h100 --share 40,60 --batch 64
jq -e '(.models | length) == 2 and ([.models[].slice] == ["40%", "60%"]) and ([.models[].batch] == [64, 64])' out \
    >/dev/null || die "$(shown out)"
[ "$(value '.models[0].alone_us')" = "$alone" ] || die "alone: $(shown out)"
jq -e '.models[] | .slow_down >= 1 and (.time_us / .alone_us / .slow_down - 1 | fabs) < 1e-6
    and (.throughput_per_s * .time_us / .batch / 1e6 - 1 | fabs) < 1e-6' out >/dev/null || die "$(shown out)"
apart=$(value '.models[0].slow_down')
together "$a" "$b" --gpu h100 --share 80%,90% --batch 64
at_most "$apart" "$(value '.models[0].slow_down')"
jq -e '.models[0].slow_down > 1.05' out >/dev/null || die "shares that overlap: $(shown out)"
together "$a" "$b" "$c" --gpu h100 --share 40,40,20 --batch 64,1,8
at_most 1000 "$(value '.models[0].slow_down')"
jq -e '[.models[].batch] == [64, 1, 8]' out >/dev/null || die "$(shown out)"
expect 0 "$WEFT" estimate "$a" "$b" --gpu h100 --share 40,60
has out 'of its time alone'
# A share for each model, a batch for all or for each, and nothing else that names slices.
expect 2 "$WEFT" estimate "$a" "$b" --gpu h100 --share 40,30,30
has err '2 models with 3 shares'
expect 2 "$WEFT" estimate "$a" "$b" --gpu h100 --share 40,60 --batch 1,2,4
for share in 40, ,60 40,x 40,160 0,40 40,,60; do
    expect 2 "$WEFT" estimate "$a" "$b" --gpu h100 --share "$share"
done
expect 2 "$WEFT" estimate "$a" "$b" --gpu h100 --share 40,60 --procs 2
expect 2 "$WEFT" estimate "$a" "$b" --gpu cpu --share 40,60
expect 2 "$WEFT" estimate "$a" "$b" --gpu h100 --share 40,60 --profile -o p.csv
