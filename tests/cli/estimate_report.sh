# The text report: what limits the time, the most expensive kernels, the parts of the memory;
# --explain gives reasons.
command -v jq >/dev/null || skip "no jq"
model=$examples/digits_cnn.onnx
expect 0 "$WEFT" estimate "$model" --gpu h200 --batch 8
for text in 'digits_cnn on h200, batch 8' 'bound by' 'weights' 'arena' 'workspace' 'context' \
    'fits in' 'creq        mean' 'a million inferences' 'slowest first'; do
    has out "$text"
done
lacks out roofline_us
expect 0 "$WEFT" estimate "$model" --gpu h200 --batch 8 --explain
for text in why arithmetic traffic roofline model 'bound by' 'longest chain'; do has out "$text"; done
expect 0 "$WEFT" estimate "$model" --gpu h200 --batch 1,8 --per-kernel --explain --format json
jq -e '(.models | length) == 2 and .batch == 1 and ([.models[].batch] == [1, 8]) and
    all(.models[]; (.mreq_bytes == .weight_bytes + .arena_bytes + .workspace_bytes + .io_bytes
            + .context_bytes)
        and (.bound.compute + .bound.memory + .bound.launch | . > 0.999 and . < 1.001)
        and (.creq_over_time.histogram | length == 20 and (add | . > 0.999 and . < 1.001))
        and (.kernels | length) == .n_kernels
        and (.dearest | length) == ([.n_kernels, 10] | min)
        and .dearest[0].time_us == ([.kernels[].time_us] | max)
        and .throughput_per_s > 0 and .price_per_million > 0 and .fits
        and all(.kernels[]; .explain.floor_us <= .time_us * 1.000001 and .time_us > 0
            and .sm_need > 0 and .sm_need <= 1 and (.bound | IN("compute", "memory", "launch"))))' \
    out >/dev/null || die "$(shown out)"
# A framework launches more kernels and takes longer.
expect 0 "$WEFT" estimate "$model" --gpu h200 --format json
fused=$(jq '.models[0].n_kernels' out) fused_ns=$(jq '.models[0].time_us * 1000 | floor' out)
expect 0 "$WEFT" estimate "$model" --gpu h200 --lowering framework --format json
jq -e '.lowering == "framework"' out >/dev/null || die "$(shown out)"
at_most "$((fused + 1))" "$(jq '.models[0].n_kernels' out)"
at_most "$fused_ns" "$(jq '.models[0].time_us * 1000 | floor' out)"
# Several processes on a slice: each is slower, together they are at least as fast.
expect 0 "$WEFT" estimate "$model" --gpu h200 --slice 1g.18gb --format json
alone=$(jq '.models[0].throughput_per_s | floor' out)
expect 0 "$WEFT" estimate "$model" --gpu h200 --slice 1g.18gb --procs 3 --format json
at_most "$alone" "$(jq '.models[0].throughput_per_s | floor' out)"
# The picture: a point for each kernel that computes, both roofs; a bundle has no kernels.
expect 0 "$WEFT" estimate "$model" --gpu h200 --batch 8 --draw roof.svg
has out 'bound by'
for text in 'Roofline of the kernels on h200 (whole)</title>' 'memory: ' 'arithmetic: ' 'bound by launches' '<circle'; do
    has roof.svg "$text"
done
if command -v xmllint >/dev/null; then expect 0 xmllint --noout roof.svg; fi
expect 2 "$WEFT" estimate "$model" --gpu h200 --profile -o p.csv --draw roof.svg
expect 0 "$WEFT" compile "$model" --gpu h200 -o one.weft
expect 1 "$WEFT" estimate one.weft --gpu h200 --draw roof.svg
