# Equal inputs give equal plan files, but for the time of the decision: every policy, from another folder and with
# another number of CPUs; families; a set that is estimated.
plan() { # FILE OPTIONS...
    expect 0 "$WEFT" plan "${@:2}" -o "$1"
    sed -i '/"decision_ms"/d' "$1"
}
cat >set.yaml <<'YAML'
models:
  - {name: a, profile: p.csv, slo: 60ms, rate: 700/s}
  - {name: b, profile: p.csv, slo: 90ms, rate: 300/s}
  - {name: c, profile: p.csv, slo: 45ms, rate: 410/s}
  - {name: d, profile: p.csv, slo: 200ms, rate: 95/s}
YAML
printf 'device,slice,batch,time_us,mreq_bytes,procs,energy_j\n' >p.csv
for batch in 1 2 4 8; do
    for slice in 1g.10gb:7 2g.20gb:4 3g.40gb:3 4g.40gb:2 7g.80gb:1 :1 40%:3 20%:5; do
        printf 'h100,%s,%d,%d,900000000,1,0.%d\n' "${slice%:*}" $batch $((900 * ${slice#*:} * (batch + 1))) $batch
    done
done >>p.csv
cpu=$(sed -n 's/^Cpus_allowed_list:\t*\([0-9]*\).*/\1/p' /proc/self/status)
printf 'devices:\n  - {type: h100, count: 12, mig: true, mps: true}\n' >fleet.yaml
mkdir elsewhere
cp set.yaml p.csv fleet.yaml elsewhere
tried=0
for policy in $("$WEFT" list policies | cut -d' ' -f1); do
    "$WEFT" plan set.yaml --fleet fleet.yaml --policy "$policy" -o first.json 2>err || continue
    sed -i '/"decision_ms"/d' first.json
    plan again.json set.yaml --fleet fleet.yaml --policy "$policy"
    cmp first.json again.json || die "$policy"
    (cd elsewhere && "$WEFT" plan set.yaml --fleet fleet.yaml --policy "$policy" -o - | sed '/"decision_ms"/d') >again.json
    cmp first.json again.json || die "$policy in another folder"
    taskset -c "$cpu" "$WEFT" plan set.yaml --fleet fleet.yaml --policy "$policy" -o again.json
    sed -i '/"decision_ms"/d' again.json
    cmp first.json again.json || die "$policy on one CPU"
    tried=$((tried + 1))
    printf '%s: %s devices\n' "$policy" "$(sed -n 's/^  "gpus": \(.*\),/\1/p' first.json)"
done
[ "$tried" -ge 8 ] || die "only $tried policies plan the set"
expect 0 "$WEFT" compile "$examples/digits.yaml" --gpu cpu -o digits.weft
for options in "--fleet $examples/fleet.yaml --bundle digits.weft" "--fleet $examples/fleet_gpu.yaml" \
    "--fleet $examples/fleet_gpu.yaml --rule queue --seed 3"; do
    # shellcheck disable=SC2086
    plan first.json "$examples/digits.yaml" $options
    # shellcheck disable=SC2086
    plan again.json "$examples/digits.yaml" $options
    cmp first.json again.json || die "$options"
done
