# Invalid rates, SLOs, profiles and fleets are refused with file and line or the name of the model.
cat >set.yaml <<'END'
models:
  - {name: a, profile: p.csv, slo: 40ms, rate: 300/s}
END
printf 'device,slice,batch,time_us\nh100,3g.40gb,8,16000\nh100,,8,5000\n' >p.csv
printf 'devices:\n  - {type: h100, count: 2, mig: true}\n' >fleet.yaml
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml
# Rates: no rate means one replica; absurd rates are refused or infeasible, without delay.
sed 's/, rate: 300\/s//' set.yaml >other.yaml
expect 0 "$WEFT" plan other.yaml --fleet fleet.yaml
has out "0 of"
for rate in 0/s -1/s 1e999/s nan/s 5 5/d; do
    sed "s|300/s|$rate|" set.yaml >other.yaml
    expect 1 "$WEFT" plan other.yaml --fleet fleet.yaml
    has err "other.yaml:2"
done
sed 's|300/s|1e15/s|' set.yaml >other.yaml
expect 3 timeout 60 "$WEFT" plan other.yaml --fleet fleet.yaml
has err "a: "
# SLOs that no slice meets: the message names the SLO that would suffice.
sed 's/40ms/9.9ms/' set.yaml >other.yaml
expect 3 "$WEFT" plan other.yaml --fleet fleet.yaml
has err "an SLO of 10 ms would be feasible"
for rule in half half09; do
    expect 3 "$WEFT" plan other.yaml --fleet fleet.yaml --rule $rule
    slo=$(sed -n 's/.*an SLO of \([0-9.]*\) ms would.*/\1/p' err)
    sed "s/40ms/${slo}ms/" set.yaml >enough.yaml
    expect 0 "$WEFT" plan enough.yaml --fleet fleet.yaml --rule $rule
done
# Profiles: no point for the fleet's devices, none usable, a point twice, another layout.
sed 's/h100/t4/' fleet.yaml | sed 's/, mig: true//' >t4.yaml
expect 3 "$WEFT" plan set.yaml --fleet t4.yaml
has err "no profile for any device of the fleet"
printf 'device,slice,batch,time_us\nh100,5g.60gb,8,16000\n' >p.csv
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml
has err "p.csv:2"
printf 'device,slice,batch,time_us\nh100,,8,1\nh100,,8,1\n' >p.csv
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml
has err "p.csv:3"
printf 'Mig instance,Batch size,Workload Number,Throughput,Latency\n' >p.csv
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml
has err "p.csv:1"
# Contradictory fleets.
printf 'device,slice,batch,time_us\nh100,,8,5000\n' >p.csv
for fleet in '{type: h100, count: 0}' '{type: h100, count: -1}' '{type: t4, count: 1, mig: true}' \
    '{type: cpu, count: 1, cores: 2, slices: [2, 1]}' '{type: h100, count: 1, cores: 4}' \
    '{type: h100, count: 1, price: -2}' '{type: h100, count: 1, mem: 0GiB}' '{type: z9, count: 1}' \
    '{type: h100, count: 70000}' '{type: cpu, count: 1, cores: 2, mps: true}'; do
    printf 'devices:\n  - %s\n' "$fleet" >bad.yaml
    expect 1 "$WEFT" plan set.yaml --fleet bad.yaml
    has err "bad.yaml:2"
done
printf 'devices:\n  - {type: h100, count: 1}\n  - {type: h100, count: 1}\n' >bad.yaml
expect 1 "$WEFT" plan set.yaml --fleet bad.yaml
has err "appears twice"
# A plan of another version, and invalid values of options.
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml -o plan.json
sed 's/"version": 3/"version": 2/' plan.json >old.json
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml --check old.json
has err "version: 2, this program reads 3; make the plan anew"
for option in '--interference 1,2' '--interference 1,2,3,4,x' '--reserve 100%' '--reserve 5' \
    '--carbon -1' '--seed -1' '--check-layout usher' '--procs 0'; do
    # shellcheck disable=SC2086
    expect 2 "$WEFT" plan set.yaml --fleet fleet.yaml $option
done
