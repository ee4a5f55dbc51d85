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
expect 0 plan --check plan.json --interference use
expect 4 plan --check plan.json
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
expect 2 plan --interference users
has err "five numbers, 'use' or 'mean'"
