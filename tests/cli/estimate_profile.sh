# A profile has every slice, batch and number of processes, and weft plan reads it.
command -v jq >/dev/null || skip "no jq"
model=$examples/digits_cnn.onnx
expect 0 "$WEFT" estimate "$model" --gpu h200 --batch 1,8 --profile -o p.csv
empty out
slices=$(cut -d, -f2 p.csv | tail -n +2 | sort -u | wc -l)
at_most 16 "$slices"
[ "$(tail -n +2 p.csv | wc -l)" -eq $((slices * 2 * 3)) ] || die "$(shown p.csv)"
printf 'models:\n  - {name: m, profile: p.csv, slo: 50ms, rate: 1000/s}\n' >set.yaml
printf 'devices:\n  - {type: h200, count: 2, mig: true, mps: true}\n' >fleet.yaml
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml -o plan.json
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check plan.json
# The bundle contains the same points and exports them unchanged.
expect 0 "$WEFT" compile "$model" -o m.weft --gpu h200 --batch 1,8
expect 0 "$WEFT" estimate m.weft --gpu h200 --profile -o b.csv
grep '^h200,' b.csv >b200.csv
tail -n +2 p.csv >p200.csv
cmp -s p200.csv b200.csv || die "differs: $(diff p200.csv b200.csv | head -4)"
# weft plan reads the profile from the bundle too and makes the same plan.
for where in 'profile: m.weft' 'file: m.weft'; do
    printf 'models:\n  - {name: m, %s, slo: 50ms, rate: 1000/s}\n' "$where" >bundle.yaml
    expect 0 "$WEFT" plan bundle.yaml --fleet fleet.yaml -o again.json
    jq -S 'del(.decision_ms)' plan.json >a
    jq -S 'del(.decision_ms)' again.json >b
    cmp -s a b || die "differs: $(diff a b | head -6)"
done
expect 0 "$WEFT" compile "$model" -o bare.weft
printf 'models:\n  - {name: m, profile: bare.weft, slo: 50ms, rate: 1000/s}\n' >bundle.yaml
expect 3 "$WEFT" plan bundle.yaml --fleet fleet.yaml
# A profile of two models has their names.
expect 0 "$WEFT" compile "$model" "$examples/digits_parity.onnx" -o two.weft --gpu h200
printf 'models:\n  - {name: m, profile: two.weft, rate: 1/s}\n' >bundle.yaml
expect 1 "$WEFT" plan bundle.yaml --fleet fleet.yaml
has err 'no such model'
expect 0 "$WEFT" estimate m.weft --gpu h200 --share 30% --batch 8 --procs 2
has out '2 processes'
expect 0 "$WEFT" inspect m.weft --format json
jq -e '[.models[0].profile[].procs] | max == 3' out >/dev/null || die "$(shown out)"
# Points of one process say what they use over time; their parts sum to 255.
jq -e '[.models[0].profile[] | select(.procs == 1) | .use | [scan(":([0-9]+)")[0] | tonumber] | add == 255] | all' \
    out >/dev/null || die "$(shown out)"
jq -e '[.models[0].profile[] | select(.procs > 1) | .use == null] | all' out >/dev/null || die "$(shown out)"
printf 'device,slice,batch,time_us,use\nh200,,1,100,00:1 11:253\n' >bad.csv
printf 'models:\n  - {name: m, profile: bad.csv, slo: 50ms, rate: 1/s}\n' >bad.yaml
expect 1 "$WEFT" plan bad.yaml --fleet fleet.yaml
has err 'sum to 255'
printf 'device,slice,batch,time_us\nh200,,1,100\n' >bad.csv # profiles without it stay readable
expect 0 "$WEFT" plan bad.yaml --fleet fleet.yaml
# More processes never reduce total throughput, and never make one process faster.
awk -F, 'NR > 1 { if ($4 > 1 && ($5 < last_us * 0.999999 || $6 < last_s * 0.999999)) { print; bad = 1 }
    last_us = $5; last_s = $6 } END { exit bad }' p.csv >worse || die "$(shown worse)"
expect 2 "$WEFT" estimate m.weft --gpu h200 --batch 7
has err "no estimate"
expect 1 "$WEFT" estimate "$model" "$examples/digits_parity.onnx" --gpu h200 --profile
has err "2 models"
