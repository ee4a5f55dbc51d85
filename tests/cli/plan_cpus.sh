# Fleets of CPUs of several kinds: estimated from their data sheets, priced by the core, planned, drawn,
# exported; a bundle for CPUs serves on any of them.
model=$WEFT_SOURCE_DIR/examples/digits_cnn.onnx
expect 0 "$WEFT" estimate "$model" --gpu cpu-zen4 --slice 2core --batch 8
has out 'cpu-zen4'
has out '$0.1'
expect 0 "$WEFT" estimate "$model" --gpu cpu-zen2 --batch 1 --format json -o e.json
has e.json '"device": "cpu-zen2"'
expect 2 "$WEFT" estimate "$model" --gpu cpu-zen4 --procs 2
has err 'a CPU slice has one'
expect 2 "$WEFT" estimate "$model" --gpu cpu-zen9
has err 'unknown device'
cat >set.yaml <<END
models:
  - {name: digits, file: $model, slo: 50ms, rate: 2000/s}
END
cat >fleet.yaml <<'END'
devices:
  - {type: cpu-zen4, count: 2, cores: 8, slices: [4, 4]}
  - {type: cpu-ice-lake, count: 2, cores: 8, slices: [4, 4]}
END
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml -o plan.json
has out '$0.41/h'
has plan.json '"type": "cpu-zen4"'
lacks plan.json '"type": "cpu-ice-lake"'
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check plan.json
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --draw plan.svg
expect 0 "$WEFT" simulate plan.json --fleet fleet.yaml --duration 5s
# Of a bundle: with the estimates that --gpu added.
expect 0 "$WEFT" compile set.yaml --gpu cpu-zen4 --batch 1,2,4,8 -o digits.weft
printf 'devices:\n  - {type: cpu-zen4, count: 1, cores: 4}\n' >one.yaml
expect 0 "$WEFT" plan set.yaml --bundle digits.weft --fleet one.yaml -o one.json
has one.json '"type": "cpu-zen4"'
expect 0 "$WEFT" export one.json --to systemd --bundle /srv/digits.weft -o units
# The printed prices of cores are exact enough to be read back.
expect 0 "$WEFT" list prices
mv out prices.csv
has prices.csv "cpu-graviton3,0.0363,"
printf 'devices:\n  - {type: cpu-graviton3, count: 2, cores: 8, slices: [4, 4]}\n' >arm.yaml
expect 0 "$WEFT" plan set.yaml --fleet arm.yaml --prices prices.csv -o arm.json
grep -o '"cost_per_hour": [0-9.]*' arm.json >with
expect 0 "$WEFT" plan set.yaml --fleet arm.yaml -o arm.json
grep -o '"cost_per_hour": [0-9.]*' arm.json >without
cmp -s with without || die "the printed table changes the plan: $(shown with)"
# Moving to other machines costs the same whether the fleet file or the slices say how many cores there are.
for fleet in "" "--fleet fleet.yaml"; do
    expect 0 "$WEFT" reconcile --from arm.json --plan plan.json $fleet --engine systemd --format json -o change
    grep -o '"price": [0-9.e-]*' out >"price${fleet:+s}"
    rm -r change
done
cmp -s price prices || die "$(shown price) without the fleet, $(shown prices) with it"
