# The reasons for the placement of a model and the changes that would affect it: every reason has
# numbers, and every stated change holds when it is made.
command -v jq >/dev/null || skip "no jq"
cat >set.yaml <<'END'
models:
  - {name: big, profile: big.csv, slo: 40ms, rate: 900/s}
  - {name: small, profile: small.csv, slo: 100ms, rate: 50/s}
END
cat >big.csv <<'END'
device,slice,batch,procs,time_us,mreq_bytes
h100,7g.80gb,8,1,4000,4000000000
h100,3g.40gb,8,1,8000,4000000000
h100,2g.20gb,8,1,21000,4000000000
h100,1g.10gb,8,1,9000,20000000000
h100,4g.40gb,8,40,7000,1000000
h100,40%,8,1,5000,1000000
t4,,8,1,5000,1000000
END
cat >small.csv <<'END'
device,slice,batch,time_us,mreq_bytes
h100,1g.10gb,1,10000,1000000000
h100,2g.20gb,1,5000,1000000000
END
printf 'devices:\n  - {type: h100, count: 2, price: 2, mig: true}\n' >fleet.yaml
plan=("$WEFT" plan set.yaml --fleet fleet.yaml --policy bestfit)
expect 0 "${plan[@]}" --explain big --format json
empty err
jq -e '.model == "big" and (.places | length) == 1 and .places[0].slice == "3g.40gb"
    and (.places[0].slack_rate * 1000 | round) == 100 and .places[0].beside == ["small"]' out \
    >/dev/null || die "$(shown out)"
for verdict in 3g.40gb:chosen 7g.80gb:possible 2g.20gb:slo 1g.10gb:memory 4g.40gb:rules \
    40%:no-slice :no-device; do
    jq -e --arg s "${verdict%%:*}" --arg v "${verdict##*:}" \
        'any(.options[]; .slice == $s and .verdict == $v)' out >/dev/null ||
        die "no $verdict: $(shown out)"
done
# 2g takes 21 ms and so needs an SLO of 42 ms, and carries 380/s only: with 900/s no SLO helps.
jq -e 'all(.changes[]; .what == "rate_per_s")' out >/dev/null || die "$(shown out)"
expect 0 "${plan[@]}" --explain big
has out "needs an SLO of 42 ms, 2 ms (5 %) over the SLO of 40 ms"
has out "needs 20000000000 bytes, the slice has"
has out "beside small"
# With 300/s it does: the stated SLO is enough, and less is not.
sed -i 's/900/300/' set.yaml
expect 0 "${plan[@]}" --explain big --format json
jq -e 'any(.changes[]; .what == "slo_us" and .slice == "2g.20gb" and .to == 42000)' out >/dev/null ||
    die "$(shown out)"
expect 0 "${plan[@]}" --slo big=42ms -o after.json
jq -e 'any(.placements[]; .model == "big" and .slice == "2g.20gb")' after.json >/dev/null ||
    die "42 ms is not enough"
expect 0 "${plan[@]}" --slo big=41.9ms -o after.json
jq -e 'any(.placements[]; .model == "big" and .slice == "3g.40gb")' after.json >/dev/null ||
    die "41.9 ms is enough"
# The stated change saves a device, and does so when it is made.
sed -i 's/300/2500/' set.yaml
expect 0 "${plan[@]}" --explain big --format json
to=$(jq '[.changes[] | select(.gpus == 1 and .what == "rate_per_s")][0].to' out)
[ "$to" != null ] || die "$(shown out)"
expect 0 "${plan[@]}" -o before.json
jq -e '.gpus == 2' before.json >/dev/null || die "$(shown before.json)"
expect 0 "${plan[@]}" --rate "big=$to/s" -o after.json
jq -e '.gpus == 1' after.json >/dev/null || die "$to/s: $(shown after.json)"
expect 1 "${plan[@]}" --explain nobody
has err nobody
# The rule `queue` tells what it costs: part of the peak, for at most 1 % of random requests late.
expect 0 "${plan[@]}" --rule queue --explain big --format json
jq -e 'all(.places[]; .rule_cost > 0 and .rule_cost < 0.7 and .late_share > 0 and .late_share < 0.0105)' \
    out >/dev/null || die "$(shown out)"
expect 0 "${plan[@]}" --rule queue --quantile 0.999 --host 2ms --confidence 0.9 -o queue.json
jq -e '.rules.latency == "queue" and .rules.quantile == 0.999 and .rules.host_us == 2000' queue.json \
    >/dev/null || die "$(shown queue.json)"
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check queue.json
jq '.placements[0].capacity_per_s *= 1.2' queue.json >more.json
expect 4 "$WEFT" plan set.yaml --fleet fleet.yaml --check more.json
has err "capacity"
expect 2 "${plan[@]}" --arrivals bursty
