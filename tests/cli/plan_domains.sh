# Failure domains: plans that survive the loss of any node, rack or zone, what --explain and the exports say of them,
# and a simulated loss.
# ctest label: slow (a solver takes the time)
cat >set.yaml <<'END'
models:
  - {name: big, profile: p.csv, slo: 100ms, rate: 900/s}
  - {name: small, profile: p.csv, slo: 100ms, rate: 20/s, spread: zone}
  - {name: Other_1.x, profile: p.csv, slo: 100ms, rate: 150/s}
END
printf 'device,slice,batch,time_us,mreq_bytes\nh100,1g.10gb,1,10000,1000000000\nh100,1g.10gb,8,40000,1000000000\n' >p.csv
printf 'devices:\n  - {type: h100, count: 24, price: 2, mig: true, per_node: 2, per_rack: 4, per_zone: 8}\n' >fleet.yaml
plan() { expect "$1" "$WEFT" plan "${@:3}" --fleet "$2"; }
for domain in node rack zone; do
    plan 0 fleet.yaml set.yaml --survive $domain -o $domain.json
    plan 0 fleet.yaml set.yaml --check $domain.json
done
# The checker reads the rule from the plan: one that does not survive is refused.
plan 0 fleet.yaml set.yaml -o spread.json
sed 's/"rules": {/&"survive": "zone",/' spread.json >wrong.json
plan 4 fleet.yaml set.yaml --check wrong.json
has err "survive: without zone zone-0"
plan 0 fleet.yaml set.yaml --survive zone --explain big
has out "zones; without zone-"
# Exports take the places of the plan; Kubernetes must spread what the plan spreads.
expect 0 "$WEFT" export rack.json --to slurm -o slurm
has slurm/slurm-nodes.conf "NodeName=h100-0 "
expect 0 "$WEFT" export zone.json --to kubernetes -o kubernetes
has kubernetes/device-plugin/deployments.yaml "minDomains: 2"
expect 0 "$WEFT" export spread.json --to kubernetes -o spread
[ "$(grep -c DoNotSchedule spread/device-plugin/deployments.yaml)" = 1 ] || die "not only one model is spread"
# The zone of the largest model fails after two seconds of eight: the plan that survives it serves all, in time; the
# other one does not.
lost_part() { # PLAN: part of the requests that are not answered in time
    expect 0 "$WEFT" simulate $1.json --lose 2s=zone-0 --arrivals constant --duration 8s --format json
    awk '/"requests":/ && !all { all = $2 + 0 } /"good":/ && !good { good = $2 + 0 } END { print 1 - good / all }' out
}
awk "BEGIN { exit !($(lost_part zone) < 0.02) }" || die "$(lost_part zone) are lost"
awk "BEGIN { exit !($(lost_part spread) > 0.5) }" || die "$(lost_part spread) are lost"
# Where nothing is left to serve a model, its requests are violations. The plan has zones 0 and 1, a second apart.
"$WEFT" simulate spread.json --lose 1s=zone-0 --lose 1s=zone-1 --arrivals constant --duration 4s --format json >out ||
    die "zones of the plan: $(grep -o 'zone-[0-9]*' spread.json | sort -u | tr '\n' ' ')"
awk '/"requests":/ { all = $2 + 0 } /"violations":/ { n++; bad += !($2 + 0 > 0.7) } END { exit !(n == 4 && !bad) }' out ||
    die "requests that nothing serves: $(grep violations out)"
expect 2 "$WEFT" simulate zone.json --prices prices.csv
has err "--prices needs --fleet"
expect 1 "$WEFT" simulate zone.json --lose 2s=zone-77
has err "no such node, rack or zone"
# A lost node of the fleet: nothing starts there, the plan that follows still survives, and what cannot is said.
lose() { # FROM NODE DIR [FLEET]
    expect 0 "$WEFT" reconcile set.yaml --fleet "${4:-fleet.yaml}" --from "$1" --lost "$2" --engine slurm -o "$3"
    ! grep -q " start .* on $2:" out || die "starts on the lost node: $(grep start out)"
    ! grep -q "\"$2\"" "$3/plan.json" || die "$3/plan.json has the lost node"
}
for plan in node rack zone; do
    lose $plan.json h100-0 lost-$plan
    plan 0 fleet.yaml set.yaml --check lost-$plan/plan.json
    has lost-$plan/plan.json "\"survive\": \"$plan\""
done
lose lost-node/plan.json h100-1 lost-again
plan 0 fleet.yaml set.yaml --check lost-again/plan.json
sed 's/, spread: zone//' set.yaml >near.yaml
sed 's/count: 24/count: 4/; s/, per_rack.*}/}/' fleet.yaml >two.yaml
plan 0 two.yaml near.yaml --survive node -o two.json
expect 0 "$WEFT" reconcile near.yaml --fleet two.yaml --from two.json --lost h100-0 --engine slurm -o lost-two
has err "cannot serve all rates after one more failure"
plan 0 two.yaml near.yaml --check lost-two/plan.json
expect 1 "$WEFT" reconcile --from zone.json --plan zone.json --lost h100-0 --engine slurm -o bad
has err "on the lost node h100-0"
# Places that the fleet does not have are no places; two workers with one name or port are refused.
sed 's/, per_node.*}/}/' fleet.yaml >unsaid.yaml
plan 4 unsaid.yaml set.yaml --check node.json
has err "place: the fleet does not say how many devices a zone has"
sed 's/"worker": "[^"]*"/"worker": "weft-a"/' lost-node/plan.json >twice.json
expect 1 "$WEFT" export twice.json --to slurm -o twice
has err "two workers have the same name"
sed 's/"port": [0-9]*/"port": 65534/' lost-node/plan.json >port.json
expect 1 "$WEFT" export port.json --to slurm -o port
has err "port: is out of range"
# Wrong fleets and wishes, and a policy that cannot.
sed 's/per_rack: 4/per_rack: 3/' fleet.yaml >bad.yaml
plan 1 bad.yaml set.yaml
has err "per_rack: 3 is no multiple of 2"
sed 's/, per_node.*}/}/' fleet.yaml >none.yaml
plan 1 none.yaml set.yaml
has err "does not say how many devices a zone has"
sed 's/spread: zone/spread: row/' set.yaml >bad_set.yaml
plan 1 fleet.yaml bad_set.yaml
has err "is not node, rack or zone"
plan 1 fleet.yaml set.yaml --policy infaas
has err "infaas: cannot plan for failures of a zone"
sed 's/count: 24/count: 8/' fleet.yaml >few.yaml
plan 3 few.yaml set.yaml
has err "no device type is in more than one zone"
# A plan in force: what survives a domain moves no more than another plan does, and each device that keeps work its place.
for i in $(seq 12); do
    printf '  - {name: m%d, profile: p.csv, slo: 100ms, rate: %d/s}\n' "$i" $((100 + 53 * i % 400))
done | sed '1i models:' >many.yaml
sed 's/name: m3, \(.*\)rate: [0-9]*/name: m3, \1rate: 700/' many.yaml >more.yaml
for domain in node zone; do
    plan 0 fleet.yaml many.yaml --survive $domain -o before.json
    plan 0 fleet.yaml more.yaml --survive $domain --previous before.json -o after.json
    plan 0 fleet.yaml more.yaml --check after.json
    plan 0 fleet.yaml more.yaml --survive $domain --previous before.json
    moves=$(sed -n 's/^\([0-9]*\) moves\?$/\1/p' out) all=$(grep -c '"model"' before.json)
    [ "$moves" -gt 0 ] && [ $((3 * moves)) -lt "$all" ] || die "$domain: $moves moves of $all placements"
    expect 0 "$WEFT" reconcile --from before.json --plan after.json --engine slurm -o moved
    stay=$(sed -n 's/^\([0-9]*\) workers\? stay.*/\1/p' out)
    [ $((2 * stay)) -gt "$all" ] || die "$domain: $stay workers of $all stay"
done
# A plan of other nodes: a place that the fleet does not have, and one that two devices have, are not kept.
jq '.placements[].where |= if .node == "h100-0" and .gpu == 0 then .gpu = 2 elif .node == "h100-0" or .node == "h100-2" then
    . + {node: "h100-1", gpu: 0} else . end' before.json >odd.json
head -n 9 more.yaml >some.yaml
plan 0 fleet.yaml some.yaml --survive zone --previous odd.json
