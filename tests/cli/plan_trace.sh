# The burstiness of a trace as the arrivals of the rule `queue`.
command -v jq >/dev/null || skip "no jq"
cat >set.yaml <<'END'
models:
  - {name: a, profile: p.csv, slo: 40ms, rate: 300/s}
  - {name: b, profile: p.csv, slo: 40ms, rate: 50/s}
END
printf 'device,slice,batch,time_us\nh100,1g.10gb,8,16000\nh100,,8,5000\n' >p.csv
printf 'devices:\n  - {type: h100, count: 20, mig: true}\n' >fleet.yaml
plan=("$WEFT" plan set.yaml --fleet fleet.yaml --rule queue -o plan.json)
expect 0 "${plan[@]}"
segments=$(jq ".placements | length" plan.json)
# 300/s in the mean, five times as many in a tenth of the time: 3.57 times the mean.
awk 'BEGIN { print "second,model,count"
    for (s = 0; s < 600; s++) {
        printf "%d,a,%d\n", s, s % 100 < 10 ? 1071 : 214
        printf "%d,b,50\n", s
    } }' >bursts.csv
expect 0 "${plan[@]}" --trace bursts.csv
has err "bursts.csv:a: peak rate over mean rate: 3."
jq -e --argjson few "$segments" '.rules.arrivals == "bursty" and .rules.burst > 2.9 and .rules.burst < 3.7
    and (.placements | length) > $few' plan.json >/dev/null || die "$(shown plan.json)"
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check plan.json
awk 'BEGIN { print "second,model,count"; for (s = 0; s < 600; s++) printf "%d,a,300\n%d,b,50\n", s, s }' >even.csv
expect 0 "${plan[@]}" --trace even.csv
jq -e --argjson few "$segments" '(.rules.burst // 1) < 1.1 and (.placements | length) <= $few + 1' plan.json >/dev/null ||
    die "$(shown plan.json)"
expect 1 "${plan[@]}" --trace none.csv
expect 2 "$WEFT" plan set.yaml --fleet fleet.yaml --trace even.csv
has err "--trace is for --rule queue"
expect 2 "${plan[@]}" --trace even.csv --arrivals bursty
