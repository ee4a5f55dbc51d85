# The report of weft bench has a row for each model and batch size, with plausible numbers.
command -v jq >/dev/null || skip "no jq"
"$WEFT" compile "$examples/digits_cnn.onnx" "$examples/digits_attn.onnx" -o two.weft
expect 0 "$WEFT" bench two.weft --time 0.05 --threads 1 --batch 1,8 --format json
jq -e '[.. | objects | select(has("throughput_per_s"))] | length == 4
    and all(.throughput_per_s > 0)' out >/dev/null || die "$(shown out)"
expect 0 "$WEFT" bench two.weft --time 0.05 --threads 1 --model digits_cnn --per-kernel
has out digits_cnn
grep -Eq '^ +[0-9]*[1-9][0-9.]* us|^ +0\.[1-9] us' out || die "no kernel took any time: $(shown out)"
lacks out digits_attn
expect 1 "$WEFT" bench two.weft --model digits_cn
has err "no model is named digits_cn, did you mean digits_cnn?"
expect 1 "$WEFT" bench two.weft --model nothing
has err "no model is named nothing; there are digits_cnn and digits_attn"
# On CPUs the estimate is of as many cores as there are threads.
expect 0 "$WEFT" bench two.weft --time 0.01 --threads 2 --batch 1 --format json
jq -e '[.results[] | select(.estimate.time_us > 0)] | length == 2' out >/dev/null || die "$(shown out)"
expect 2 "$WEFT" bench two.weft --threads none
# What bench measured is what estimate --calibrate reads.
expect 0 "$WEFT" bench two.weft --time 0.01 --threads 1 --batch 1,2,3,4,5,6 --measured measured.csv
has measured.csv "model,batch,measured_us"
[ "$(grep -c '^digits_[a-z]*,[1-6],[0-9.]*$' measured.csv)" -eq 12 ] || die "$(shown measured.csv)"
expect 0 "$WEFT" estimate "$examples/digits_cnn.onnx" "$examples/digits_attn.onnx" --gpu cpu \
    --calibrate measured.csv -o cpu.cal
has out "12 measurements"
expect 1 "$WEFT" bench two.weft --time 0.01 --batch 1 --measured /nowhere/measured.csv
has err /nowhere/measured.csv
