# Apps: every policy gets their rates, for variants that it chooses or for the best variant.
command -v jq >/dev/null || skip "no jq"
cat >set.yaml <<'END'
models:
  - {name: small, profile: small.csv}
  - {name: large, profile: large.csv}
apps:
  - name: task
    rate: 1500/s
    slo: 60ms
    variants:
      - {model: small, accuracy: 70}
      - {model: large, accuracy: 80}
END
printf 'device,slice,batch,time_us\nt4,,8,10000\n' >small.csv
printf 'device,slice,batch,time_us\nt4,,8,20000\nt4,,32,80000\n' >large.csv
printf 'devices:\n  - {type: t4, count: 9, price: 1}\n' >fleet.yaml
# 800/s and 400/s a device; batch 32 of large is beyond the SLO of the app.
for policy in bestfit exclusive sbp weft; do
    expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --policy "$policy" -o plan.json
    jq -e '.gpus == 4 and all(.placements[]; .model == "large" and .batch == 8)' plan.json \
        >/dev/null || die "$policy: $(shown plan.json)"
done
for options in exact=0 exact=1; do
    expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --policy infaas --policy-options $options \
        -o plan.json
    jq -e '.gpus == 2 and all(.placements[]; .model == "small")' plan.json >/dev/null ||
        die "$(shown plan.json)"
done
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check plan.json
sed 's/slo: 60ms/&\n    accuracy: 75/' set.yaml >accurate.yaml
expect 4 "$WEFT" plan accurate.yaml --fleet fleet.yaml --check plan.json
expect 0 "$WEFT" plan accurate.yaml --fleet fleet.yaml --policy infaas -o plan.json
jq -e '.gpus == 4 and all(.placements[]; .model == "large")' plan.json >/dev/null ||
    die "$(shown plan.json)"
expect 0 "$WEFT" plan accurate.yaml --fleet fleet.yaml --compare
sed 's/slo: 60ms/slo: 15ms/' set.yaml >tight.yaml
expect 3 "$WEFT" plan tight.yaml --fleet fleet.yaml --policy infaas
has err "small"
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml --policy infaas --policy-options slot=0
has err "slot"
# A key of no policy, and any key of a policy without parameters.
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml --policy infaas --policy-options speed=1
has err "the keys of infaas are lambda, slot, start, bw, exact"
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml --policy bestfit --policy-options speed=1
has err "the policy bestfit has none"
