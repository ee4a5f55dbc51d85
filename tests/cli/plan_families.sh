# Siblings whose bundle has a joint program are placed as one, by the bundle's own profiles; every verb
# that reads the plan knows the models in it.
command -v jq >/dev/null || skip "no jq"
examples=$WEFT_SOURCE_DIR/examples
expect 0 "$WEFT" compile "$examples/digits.yaml" -o digits.weft
expect 0 "$WEFT" inspect digits.weft
has out "joint program"
plan=("$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --bundle digits.weft)
expect 0 "${plan[@]}" -o plan.json
jq -e '[.placements[].model] == ["digits-attn", "digits+parity+size"]
    and (.models | length) == 4' plan.json >/dev/null || die "$(shown plan.json)"
expect 0 "${plan[@]}" --check plan.json
expect 0 "${plan[@]}" --compare --format json
jq -e 'any(.[]; .policy == "weft" and .in_families == 3)' out >/dev/null || die "$(shown out)"
expect 0 "${plan[@]}" --explain parity --format json
jq -e '.model == "digits+parity+size" and .families[0].used
    and .families[0].otherwise.busy > .families[0].busy' out >/dev/null || die "$(shown out)"
# Without the bundle the family is not known, and the models are placed apart.
expect 4 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --check plan.json
expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --format json
jq -e '.placements | length == 4' out >/dev/null || die "$(shown out)"
# A trace names models.
printf 'time_s,model\n0.1,digits\n0.2,size\n0.3,digits-attn\n' >trace.csv
expect 0 "$WEFT" simulate plan.json --trace trace.csv --format json
jq -e '[.models[] | {(.model): .requests}] | add == {"digits+parity+size": 2, "digits-attn": 1}' \
    out >/dev/null || die "$(shown out)"
expect 0 "$WEFT" export plan.json --to systemd -o units --bundle /srv/digits.weft
grep -rq "Description=Weft: digits digits-attn parity size" units || die "no unit names the models"
printf 'models:\n  - {name: other, file: %s/digits_cnn.onnx, slo: 50ms, rate: 1/s}\n' "$examples" >set.yaml
expect 1 "$WEFT" plan set.yaml --fleet "$examples/fleet.yaml" --bundle digits.weft
has err "the bundle has no such model"
