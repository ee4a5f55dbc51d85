# --merge accepts every name of the strategy table and nothing else.
digits=("$examples"/digits_{cnn,parity}.onnx)
"$WEFT" list strategies >names
for strategy in $(cut -d' ' -f1 names); do
    expect 0 "$WEFT" compile "${digits[@]}" -o "$strategy.weft" --merge "$strategy" --report r.json
    jq -e --arg s "$strategy" \
        'all(.merges[]; .strategy == $s or .strategy == "concatenated" or .strategy == "none")' \
        r.json >/dev/null || die "$strategy: $(jq -c '[.merges[].strategy]' r.json)"
done
expect 2 "$WEFT" compile "${digits[@]}" -o x.weft --merge wishful
has err "there is no strategy 'wishful'"
for strategy in auto exact off $(cut -d' ' -f1 names); do
    has err "$strategy"
done
# exact keeps every bit, so no GEMMs of these models are joined: the gain is 1, and with limit 0 the
# models run separately.
expect 0 "$WEFT" compile "${digits[@]}" -o exact.weft --merge exact --report r.json
jq -e '(.merges | length) > 0 and all(.merges[]; .strategy == "interleaved" and (.joined | not)
    and .gain_small == 1 and .gain_large == 1)' r.json >/dev/null || die "$(shown r.json)"
"$WEFT" inspect --format json exact.weft >exact.json
jq -e 'all(.joint[]; .limit == 0)' exact.json >/dev/null || die "$(shown exact.json)"
# off makes no joint program.
expect 0 "$WEFT" compile "$examples"/digits_{cnn,parity,size}.onnx -o three.weft --merge off
"$WEFT" inspect --format json three.weft >three.json
jq -e '.joint == []' three.json >/dev/null || die "$(shown three.json)"
