# What JSON of the command line consists of: outputs are valid by docs/schema, an output with a key more or less is
# not, and the documents have every key.
find_python jsonschema
json() { # KIND COMMAND...: its standard output is one of KIND
    local kind=$1
    shift
    expect 0 "$@"
    mv out "$kind.$((++made)).json"
}
made=0
for table in ops passes gpus slices policies strategies drivers; do
    json list "$WEFT" list $table --format json
done
expect 0 "$WEFT" compile "$examples/digits.yaml" --gpu h100 -o digits.weft --report compile-report.a.json
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" "$examples/digits_parity.onnx" --merge-tolerance 1e-3 \
    --deltas near --target sm_90 --precision f16 -o tolerance.weft --report compile-report.b.json
cp compile-report.a.json compile-report.c.json
expect 0 "$WEFT" bench digits.weft --time 0.001 --report compile-report.c.json
json bench "$WEFT" bench digits.weft --time 0.001 --threads 1 --batch 1 --per-kernel --format json
json inspect "$WEFT" inspect digits.weft --format json
json inspect "$WEFT" inspect tolerance.weft --format json
json inspect "$WEFT" inspect "$examples/digits_cnn.onnx" --format json
json estimate "$WEFT" estimate "$examples/digits.yaml" --gpu h100 --slice 1g.10gb --batch 1,8 --per-kernel --explain --format json
json estimate "$WEFT" estimate digits.weft --gpu h100 --format json
json estimate "$WEFT" estimate "$examples/digits_cnn.onnx" --compare h100,l4,cpu --format json
json estimate "$WEFT" estimate "$examples/digits.yaml" --gpu h100 --share 30,30,20,20 --format json
plan() { json plan "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/$1" "${@:2}" -o -; }
plan fleet.yaml
cp "plan.$made.json" first_plan
plan fleet_gpu.yaml --rule queue --arrivals bursty --burst 4 --quantile 0.95 --confidence 0.9 --host 100us
plan fleet_gpu.yaml --goal goodput
plan fleet_gpu.yaml --policy usher
cp "plan.$made.json" last_plan
first() { json "$1" "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" "${@:2}" --format json; }
first plan-check --check first_plan
sed 's/"gpus": 1,/"gpus": 2,/' first_plan >wrong_plan
expect 4 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --check wrong_plan --format json
mv out plan-check.wrong.json
first plan-compare --compare
json plan-compare "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet_gpu.yaml" --carbon 300 --compare --format json
first plan-change --rate digits=20/s
json plan-change "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet_gpu.yaml" --gpu a100-80=0 --format json
first plan-explain --explain parity
json plan-explain "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --bundle digits.weft --explain digits --format json
json plan-explain "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet_gpu.yaml" --explain parity --format json
json reconcile "$WEFT" reconcile --from first_plan --plan last_plan --engine systemd -o change --format json
cp change/plan.json plan.changed.json
json simulate "$WEFT" simulate first_plan --format json --duration 1s
simulated=simulate.$made.json
json simulate "$WEFT" simulate first_plan --set "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --policy weft \
    --period 500ms --format json --duration 2s
# Apps; energy and carbon are known.
printf 'time,carbon_intensity\n2026-01-01T00:00Z,300\n' >carbon.csv
cat >apps.yaml <<'YAML'
models:
  - {name: small, profile: small.csv, slo: 100ms}
  - {name: large, profile: large.csv, slo: 100ms}
apps:
  - {name: task, rate: 40/s, slo: 100ms, variants: [{model: small, accuracy: 60}, {model: large, accuracy: 80}]}
YAML
for name in small large; do
    printf 'device,slice,batch,time_us,energy_j\nh100,1g.10gb,1,%d,0.1\n' $([ $name = small ] && echo 5000 || echo 20000) >$name.csv
done
printf 'devices:\n  - {type: h100, count: 2, mig: true}\n' >mig.yaml
printf 'models:\n  - {name: small, profile: small.csv, slo: 100ms, rate: 2000/s}\n' >one.yaml
json plan-explain "$WEFT" plan one.yaml --fleet mig.yaml --explain small --format json
json plan "$WEFT" plan apps.yaml --fleet mig.yaml --policy clover -o -
cp "plan.$made.json" apps_plan
json simulate "$WEFT" simulate apps_plan --set apps.yaml --fleet mig.yaml --carbon carbon.csv --bucket 1s \
    --duration 3s --policy clover --control live,period=1s --format json
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }" >x.npy
head -c 256 /dev/zero >>x.npy
json run "$WEFT" run digits.weft --model digits --input image=@x.npy --format json
json run "$WEFT" run digits.weft --model digits --input image=@x.npy --output logits=@y.npy --expect logits=@y.npy --format json
has "run.$made.json" '"agrees": true'
expect 4 "$WEFT" run digits.weft --model digits --input image=@x.npy --expect logits=@x.npy --format json
mv out run.differs.json
json doctor "$WEFT" doctor --format json
"$WEFT" serve digits.weft first_plan --set "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --policy weft --state state \
    --control "$PWD/control" --http 0 --grpc off --metrics off >ready 2>log &
server=$!
await ready READY log
json replay "$WEFT" replay --to "localhost:$(sed -n 's/.* http=\([0-9]*\).*/\1/p' ready)" --set "$examples/digits.yaml" \
    --scale 0.01 --duration 1s --bucket 500ms --compare "$simulated" --format json
ctl() { json ctl "$WEFT" ctl control "$@" --format json; }
ctl plan first_plan
ctl plan
"$WEFT" ctl control plan >plan.served.json
ctl load digits.weft --version 2 --weight 0
ctl weights digits 2=1
ctl unload digits --version 2
expect 1 "$WEFT" ctl control unload nothing
for command in status adapters replan explain drain; do
    ctl $command
done
wait $server
json push "$WEFT" push digits.weft store --tag now --format json
json pull "$WEFT" pull store now -o pulled.weft --format json
json verify "$WEFT" verify "$examples/digits_cnn.onnx" --format json
expect 4 "$WEFT" verify "$examples/digits_cnn.onnx" --driver cpu --tolerance 0 --format json
mv out verify.differs.json
"$python" "$WEFT_SOURCE_DIR/tests/support/schema_check.py" "$WEFT_SOURCE_DIR" ./*.json
