# --interference use: shares of a GPU count what runs beside them by its bandwidth over time.
command -v jq >/dev/null || skip "no jq"
echo "devices: [{type: h100, count: 4, mps: true}]" >fleet.yaml
head="device,slice,batch,time_us,idle_us,use"
printf '%s\nh100,50%%,1,2000,1000,07:255\n' "$head" >reads.csv
printf '%s\nh100,50%%,1,2000,1000,70:255\n' "$head" >computes.csv
# Half of the time each.
printf '%s\nh100,50%%,1,2000,1000,07:128 70:127\n' "$head" >both.csv
set_of() { # PROFILE PROFILE
    printf 'models:\n  - {name: a, profile: %s.csv, slo: 2.8ms, rate: 300/s}\n  - {name: b, profile: %s.csv, slo: 2.8ms, rate: 300/s}\n' \
        "$1" "$2" >set.yaml
}
plan() { "$WEFT" plan set.yaml --fleet fleet.yaml "$@"; }
gpus() { jq .gpus plan.json; }

# By the times of the profile, twice of which is over the SLO, there is no plan.
set_of reads computes
expect 3 plan
expect 0 plan --interference use -o plan.json
[ "$(gpus)" = 1 ] || die "$(gpus) devices for one that reads and one that computes"
jq -e '[.placements[].latency_us] == [2000, 2000]' plan.json >/dev/null || die "$(shown plan.json)"
# The plan says what it counts on, and is checked so, unless the option says something else.
jq -e '.rules.interference == "use"' plan.json >/dev/null || die "$(shown plan.json)"
expect 0 plan --check plan.json
expect 0 plan --check plan.json --interference use
expect 4 plan --check plan.json --interference none
set_of reads reads
expect 0 plan --interference use -o plan.json
[ "$(gpus)" = 2 ] || die "$(gpus) devices for two that read"
# Each reads half of the time: a quarter of it both do, and take twice as long.
set_of both both
expect 0 plan --interference use -o plan.json
[ "$(gpus)" = 1 ] || die "$(gpus) devices for two that read half of the time"
jq -e 'all(.placements[].latency_us; . > 2500 and . < 2510)' plan.json >/dev/null || die "$(shown plan.json)"
expect 0 plan --interference mean -o plan.json
jq -e 'all(.placements[].latency_us; . >= 2000)' plan.json >/dev/null || die "$(shown plan.json)"
expect 0 plan --check plan.json
sed 's/"mean"/"uses"/' plan.json >wrong.json
expect 1 plan --check wrong.json
has err "interference: must be use, mean or five numbers"
expect 2 plan --interference users
has err "five numbers, 'use', 'mean' or 'none'"

# The simulation slows batches down by what runs beside them at the time: by the same factors, while all run together.
simulate() { "$WEFT" simulate plan.json --fleet fleet.yaml --duration 2s --arrivals constant --format json "$@"; }
times() { # LEAST MOST: mean time of both models
    jq -e "all(.models[]; .mean_us >= $1 and .mean_us <= $2)" out >/dev/null || die "$(shown out)"
}
set_of both both
expect 0 plan --interference use -o plan.json
expect 0 simulate --set set.yaml
times 1250 1255
expect 0 simulate --set set.yaml --interference none # the profile's time with the rest busy
times 2000 2000
set_of reads computes
expect 0 plan --interference use -o plan.json
expect 0 simulate --set set.yaml
times 1000 1000
# So do plans that a policy makes then: by the times of the profile there would be none.
expect 0 simulate --set set.yaml --policy weft --period 1s
jq -e '[.changes[] | .refused] | all(not)' out >/dev/null || die "$(shown out)"
expect 0 simulate --set set.yaml --policy weft --period 1s --interference none
jq -e '[.changes[] | .refused] | any' out >/dev/null || die "$(shown out)"
# A slice alone on its device runs as if nothing were beside it.
set_of reads reads
expect 0 plan --interference use -o plan.json
expect 0 simulate --set set.yaml
times 1000 1000

# A plan in force that counts on less is not kept as it is.
printf 'models:\n  - {name: a, profile: reads.csv, slo: 8ms, rate: 400/s}\n  - {name: b, profile: reads.csv, slo: 8ms, rate: 400/s}\n' >set.yaml
expect 0 plan -o before.json
jq -e '.gpus == 1' before.json >/dev/null || die "$(shown before.json)"
expect 0 plan --previous before.json --interference 0,0,0,0,1.5 -o plan.json
jq -e '.gpus == 2' plan.json >/dev/null || die "$(shown plan.json)"
expect 0 plan --check plan.json

# Bundles have both times: shares beside others that compute need fewer devices.
examples=$WEFT_SOURCE_DIR/examples
expect 0 "$WEFT" compile "$examples/digits_attn.onnx" -o attn.weft --gpu h100
expect 0 "$WEFT" estimate attn.weft --gpu h100 --profile -o attn.csv
jq -Rse 'split("\n")[1:-1] | map(split(",")) | map(select(.[1] | endswith("%")))
    | length > 5 and all((.[15] | tonumber) > 0 and (.[15] | tonumber) <= (.[4] | tonumber))' attn.csv >/dev/null || die "$(shown attn.csv)"
