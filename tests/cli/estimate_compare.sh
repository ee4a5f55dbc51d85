# Comparison of devices, as text and as JSON; slices are written device:slice.
command -v jq >/dev/null || skip "no jq"
model=$examples/digits_cnn.onnx
expect 0 "$WEFT" estimate "$model" --compare h100,h200:1g.18gb,l4,cpu:2core
has out h200:1g.18gb
has out '$/million'
expect 0 "$WEFT" estimate "$model" --compare h100,h200:1g.18gb,l4,cpu:2core --batch 1,8 --format json
jq -e '[.models[] | .device] == ["h100", "h200", "l4", "cpu", "h100", "h200", "l4", "cpu"]
    and .models[1].slice == "1g.18gb" and .models[3].price_per_hour == null
    and .models[3].fits == null and .models[0].fits == true
    and all(.models[]; .time_us > 0 and .throughput_per_s > 0 and .energy_j > 0)
    and .models[1].price_per_hour < .models[0].price_per_hour' out >/dev/null || die "$(shown out)"
# On a CPU, memory includes the context of the driver: the parts sum to mreq_bytes.
jq -e '.models[3] | .mreq_bytes == .weight_bytes + .arena_bytes + .workspace_bytes + .io_bytes
    + .context_bytes' out >/dev/null || die "$(shown out)"
expect 2 "$WEFT" estimate "$model" --compare h100,nothing
has err nothing
expect 2 "$WEFT" estimate "$model" --compare h100:1g.99gb
has err 1g.99gb
expect 2 "$WEFT" estimate "$model" --compare h100, 
expect 2 "$WEFT" estimate "$model" --compare h100 --gpu h200
# Columns are as wide as their longest entry.
printf 'models:\n  - {name: a-model-with-a-rather-long-name, file: %s}\n' "$model" >set.yaml
expect 0 "$WEFT" estimate set.yaml --compare l4,a100-80:3g.40gb/40% --batch 1,8
test "$(awk '{print length($0)}' out | sort -u | wc -l)" = 1 || die "$(shown out)"
# A GPU that nothing like was measured: estimated analytically and with a wide band; without MPS shares.
expect 0 "$WEFT" estimate "$model" --gpu mi300x --format json
jq -e '.models[0] | .source == "analytic" and .expected_error >= 0.5 and .time_p95_us > 2 * .time_us' out >/dev/null ||
    die "$(shown out)"
expect 2 "$WEFT" estimate "$model" --gpu mi300x --share 40%
has err "no MPS"
printf 'devices:\n  - {type: mi300x, count: 1, mps: true}\n' >fleet.yaml
printf 'models:\n  - {name: m, file: %s, slo: 50ms, rate: 10/s}\n' "$model" >one.yaml
expect 1 "$WEFT" plan one.yaml --fleet fleet.yaml
has err "mi300x has none"
sed -i 's/, mps: true//' fleet.yaml
expect 0 "$WEFT" plan one.yaml --fleet fleet.yaml -o plan.json
for to in kubernetes slurm systemd haproxy; do
    expect 1 "$WEFT" export plan.json --to $to -o exported
    has err "mi300x: workers run on CPUs and on GPUs of NVIDIA"
done
# Nor has one that is asked about shares, whatever a profile says.
printf 'device,slice,batch,time_us,mreq_bytes\nl4,,1,1000,0\nmi300x,40%%,1,1000,0\n' >shares.csv
printf 'models:\n  - {name: m, profile: shares.csv, slo: 50ms, rate: 10/s}\n' >shares.yaml
printf 'devices:\n  - {type: l4, count: 1}\n' >l4.yaml
expect 3 "$WEFT" plan shares.yaml --fleet l4.yaml --gpu mi300x=1 --gpu l4=0
