# The deployment maps published with ParvaGPU: instances overlap on 0/2, 1/3, 4/5, 5/7, 11/13 and
# 11/16 GPUs of S1..S6 (with three processes 0/2, 1/3, 4/5, 5/7, 11/13, 13/17), and nothing else is
# wrong: rate and latency hold.
data=${WEFT_DATA:-$WEFT_SOURCE_DIR/../shared/data}/parvagpu
[ -d "$data" ] || skip "no parvagpu/ in the data folder (WEFT_DATA)"
models=(bert densenet121 densenet169 densenet201 inceptionv3 mobilenetv2 resnet101 resnet152 resnet50
    vgg16 vgg19)
make_set() {
    local rate slo i
    IFS=, read -ra rate < <(tr -d '\r' <"$data/SLO/SLO_req_rate.csv" | sed -n "$1p"; echo)
    IFS=, read -ra slo < <(tr -d '\r' <"$data/SLO/SLO_latency.csv" | sed -n "$1p"; echo)
    printf 'profile_layout: parvagpu\nmodels:\n'
    for i in "${!models[@]}"; do
        [ "${rate[i]}" = N/A ] || printf '  - {name: %s, profile: %s, slo: %sms, rate: %s/s}\n' \
            "${models[i]}" "$data/profiles/${models[i]}.csv" "${slo[i]}" "${rate[i]}"
    done
}
printf 'devices:\n  - {type: a100-80, count: 60, mig: true}\n' >fleet.yaml
declare -A overlaps=([deployment]="0 1 4 5 11 11" [deployment_3proc]="0 1 4 5 11 13")
for folder in deployment deployment_3proc; do
    read -ra want <<<"${overlaps[$folder]}"
    for row in 1 2 3 4 5 6; do
        make_set $row >set.yaml
        code=4
        [ "${want[row - 1]}" -gt 0 ] || code=0
        expect $code "$WEFT" plan set.yaml --fleet fleet.yaml --rule half09 --whole-ms \
            --check "$data/$folder/S$row.csv"
        got=$(sed -n 's/.*mig: .* of device \([0-9]*\) overlaps.*/\1/p' err | sort -u | wc -l)
        [ "$got" -eq "${want[row - 1]}" ] || die "$folder S$row: overlaps on $got GPUs"
        ! grep -v "overlaps another instance" err || die "$folder S$row: something else is wrong"
    done
done
# With one process fewer allowed than the maps use, they break that rule as well.
expect 4 "$WEFT" plan set.yaml --fleet fleet.yaml --rule half09 --whole-ms --procs 2 \
    --check "$data/deployment_3proc/S6.csv" --check-layout parvagpu
has err "3 processes of one model on a slice, the rules allow 2"
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml --check "$data/deployment/S6.csv" --check-layout weft
