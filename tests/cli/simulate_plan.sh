# A plan replayed in virtual time: with the set or from the plan's own numbers, from traces, over
# time, with later plans and with a policy that goes along.
command -v jq >/dev/null || skip "no jq"
. "$WEFT_SOURCE_DIR/tests/support/two_models.sh"
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml -o plan.json
full=(--set set.yaml --fleet fleet.yaml)
# Text and JSON; nothing is lost; 2 devices for a minute at $2.
expect 0 "$WEFT" simulate plan.json "${full[@]}"
has out "violated"
has out "busy"
expect 0 "$WEFT" simulate plan.json "${full[@]}" --format json
empty err
cp out first.json
jq -e '.format == "weft-simulation" and .version == 1 and .simulated_s == 60 and
    (.cost * 3600 / 60 / 4 - 1 | fabs) < 1e-6 and .energy_j > 0 and .carbon_g == null and
    ([.total] + .models | all(.requests == .answered + .dropped + .in_flight)) and
    (.models | length) == 2 and (.slices | all(.utilisation <= 1)) and
    .total.violations < 0.05' out >/dev/null || die "$(shown out)"
# The same seed gives the same bytes, another seed others.
expect 0 "$WEFT" simulate plan.json "${full[@]}" --format json
cmp -s out first.json || die "two runs differ"
expect 0 "$WEFT" simulate plan.json "${full[@]}" --format json --seed 2
cmp -s out first.json && die "another seed gives the same"
# From the plan without its set; half the rate; bursts; other routers.
expect 0 "$WEFT" simulate plan.json --format json --scale 0.5 --warmup 5s
jq -e '.total.requests > 24000 and .total.requests < 28000' out >/dev/null || die "$(shown out)"
for router in pull shares least; do
    expect 0 "$WEFT" simulate plan.json "${full[@]}" --arrivals bursty --router "$router" \
        --close fill --duration 10s --format json
    jq -e '.total.requests == .total.answered + .total.dropped + .total.in_flight' out >/dev/null ||
        die "$(shown out)"
done
# A trace, from a file and from standard input, and its report over time.
{
    echo 'second,model,count'
    for s in 0 1 2 3 4 5 6 7 8 9; do printf '%s,big,%s\n%s,small,10\n' $s $((s * 100)) $s; done
} >trace.csv
expect 0 "$WEFT" simulate plan.json "${full[@]}" --trace trace.csv --bucket 1s --over-time time.csv \
    --format json
jq -e '.total.requests == 4600 and .total.in_flight == 0 and (.time | length) >= 10 and
    .time[9].models[0].requests == 900' out >/dev/null || die "$(shown out)"
has time.csv "start_s,length_s,model,requests"
has time.csv "9,1,big,900,"
cp out first.json
# shellcheck disable=SC2016
expect 0 sh -c '"$0" simulate "$@" --trace - --bucket 1s --format json <trace.csv' "$WEFT" plan.json \
    "${full[@]}"
cmp -s out first.json || die "standard input differs"
# Carbon and PUE.
printf 'grid\n500\n100\n' >carbon.csv
expect 0 "$WEFT" simulate plan.json "${full[@]}" --carbon carbon.csv --pue 1.2 --format json
jq -e '(.carbon_g / (.energy_j / 3.6e6 * 500) - 1 | fabs) < 1e-9' out >/dev/null || die "$(shown out)"
# A policy that sees ten times the load opens devices.
{
    echo 'minute,big,small'
    printf '0,6000,600\n1,120000,600\n'
} >load.csv
expect 0 "$WEFT" simulate plan.json "${full[@]}" --trace load.csv --policy bestfit --period 20s \
    --format json
jq -e '(.changes | length) == 5 or (.changes | length) == 6' out >/dev/null || die "$(shown out)"
jq -e '[.changes[].gpus] | max > min' out >/dev/null || die "$(shown out)"
# With headroom it opens more of them.
few=$(jq '[.changes[].gpus] | max' out)
expect 0 "$WEFT" simulate plan.json "${full[@]}" --trace load.csv --policy bestfit --period 20s \
    --headroom 1.5 --format json
[ "$(jq '[.changes[].gpus] | max' out)" -gt "$few" ] || die "headroom: $few and $(shown out)"
# As a live server: at a cause only, and with its reason.
expect 0 "$WEFT" simulate plan.json "${full[@]}" --trace load.csv --policy bestfit --control live \
    --format json
jq -e '(.changes | length) >= 1 and (.changes | length) <= 5 and
    (.changes | all(.why | test("rate: |misses: |period: "))) and
    (.changes[-1].why | test("because it is needed"))' out >/dev/null || die "$(shown out)"
expect 2 "$WEFT" simulate plan.json "${full[@]}" --control live
expect 1 "$WEFT" simulate plan.json "${full[@]}" --policy bestfit --control live,down=1s,up=2s
has err "must be at least"
# Later plans.
expect 0 "$WEFT" simulate plan.json "${full[@]}" --then 30s=plan.json --format json
jq -e '.changes | length == 1 and .[0].kept > 0 and .[0].started == 0' out >/dev/null ||
    die "$(shown out)"
# Bad input.
printf 'time_s,model\n1,big\n0.5,big\n' >bad.csv
expect 1 "$WEFT" simulate plan.json --trace bad.csv
has err "bad.csv:3"
printf 'time_s,model\n1,other\n' >bad.csv
expect 1 "$WEFT" simulate plan.json --trace bad.csv
has err "other"
sed 's/"version": [0-9]*/"version": 99/' plan.json >other.json
expect 1 "$WEFT" simulate other.json
has err "version"
expect 1 "$WEFT" simulate plan.json --trace missing.csv
expect 1 "$WEFT" simulate plan.json --bucket 1ns --duration 1h
expect 1 "$WEFT" simulate plan.json --arrivals bursty --burst-length 1us
has err "burst"
expect 2 "$WEFT" simulate
expect 2 "$WEFT" simulate plan.json --policy nobody
expect 2 "$WEFT" simulate plan.json --policy bestfit --period 20s
expect 2 "$WEFT" simulate plan.json --trace trace.csv --arrivals poisson
expect 2 "$WEFT" simulate plan.json --duration ten
expect 2 "$WEFT" simulate plan.json --over-time x.csv
