# A server on one MIG GPU, a double, whose load goes from one model to the other: the controller has instances made, and
# says so; nothing is lost, nothing is wrong.
# ctest label: slow
command -v jq >/dev/null || skip "no jq"
export WEFT_DOUBLE_NVML=$PWD/machine WEFT_DOUBLE_NVML_USERS=1 WEFT_DOUBLE_LOG=$PWD/log
cat >profile.csv <<'CSV'
device,slice,batch,time_us,mreq_bytes
h200,2g.35gb,1,15000,50000000
h200,3g.71gb,1,8000,50000000
CSV
cat >set.yaml <<YAML
models:
  - {name: digits, file: $examples/digits_cnn.onnx, profile: profile.csv, slo: 500ms, rate: 80/s}
  - {name: attn, file: $examples/digits_attn.onnx, profile: profile.csv, slo: 500ms, rate: 35/s}
YAML
printf 'devices:\n  - {type: h200, count: 1, mig: true}\n' >fleet.yaml
printf 'driver 580.65.06 13000\ngpu h200 on\n' >machine
"$WEFT" compile set.yaml -o live.weft
LD_LIBRARY_PATH=$DOUBLES "$WEFT" serve live.weft --set set.yaml --fleet fleet.yaml --policy weft --reconfigure-mig \
    --control control.sock --http 0 --grpc off --metrics off --log-level info \
    --control-options down=3s,hold=3s,period=4s,up=1s,move=500ms,mig=500ms,trial=2s,poll=250ms >ready 2>events &
server=$!
await ready READY events
port=$(sed -n 's/.*http=\([0-9]*\).*/\1/p' ready)
python3 "$WEFT_SOURCE_DIR/tests/support/shifting_load.py" "$port" digits:image:1x1x8x8:80,35 attn:image:1x1x8x8:35,85 5 >load.json
jq -e 'all(.[]; .failed == 0 and .wrong == 0 and .answered == .sent and .sent > 200)' load.json >/dev/null ||
    die "$(shown load.json) $(shown events)"
has events "new MIG instance"
has events "because it is needed"
has events "2g.35gb at slot 2 was created"
"$WEFT" ctl control.sock plan >plan.json
[ "$(grep -c '"attn"' plan.json)" -ge 2 ] || die "$(shown plan.json)"
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" = 0 ] || die "the server ended with $code: $(shown events)"
lacks log MISTAKE
# What a plan of the command line would take, with the part that cannot be avoided.
printf 'models:\n  - {name: digits, file: %s, profile: one.csv, slo: 500ms, rate: 80/s}\n' "$examples/digits_cnn.onnx" >one.yaml
printf 'device,slice,batch,time_us,mreq_bytes\nh200,4g.71gb,1,8000,50000000\n' >one.csv
expect 0 "$WEFT" plan one.yaml --fleet fleet.yaml -o one.json
printf 'device,slice,batch,time_us,mreq_bytes\nh200,7g.141gb,1,4000,50000000\n' >one.csv
expect 0 "$WEFT" plan one.yaml --fleet fleet.yaml --previous one.json
has out "1 move"
has out "  done in 2 steps, 1 new MIG instance; h200 0 is changed where its slices run and nothing else has room: digits falls to 0/s of 80/s for about 7 s"
