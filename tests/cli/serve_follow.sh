# A live server on two CPU slices whose load goes from one model to the other: the plan follows,
# nothing is lost, nothing is wrong, and it says why. The controller is killed on the way.
command -v jq >/dev/null || skip "no jq"
[ "$(nproc)" -ge 2 ] || skip "fewer than two CPUs"
cat >profile.csv <<'END'
device,slice,batch,time_us,mreq_bytes
cpu,1core,1,20000,50000000
cpu,1core,8,80000,50000000
END
cat >set.yaml <<END
models:
  - {name: digits, file: $examples/digits_cnn.onnx, profile: profile.csv, slo: 500ms, rate: 120/s}
  - {name: attn, file: $examples/digits_attn.onnx, profile: profile.csv, slo: 500ms, rate: 20/s}
END
"$WEFT" compile set.yaml -o live.weft
expect 1 "$WEFT" serve live.weft --set set.yaml --fleet "$examples/fleet.yaml" --policy weft --http 0 --grpc off \
    --metrics off --control-options up=1s,trial=0
has err "trial: '0' must be a time"
# What only the controller reads is read before anything is served, with a plan too.
"$WEFT" plan set.yaml --fleet "$examples/fleet.yaml" -o checked.json
for wrong in "--set missing.yaml" "--fleet missing.yaml" "--policy-options none=1" "--carbon missing.txt" "--control-options trial=0"; do
    # shellcheck disable=SC2086
    expect 1 "$WEFT" serve live.weft checked.json --set set.yaml --fleet "$examples/fleet.yaml" \
        --policy weft $wrong --http 0 --grpc off --metrics off
    ! grep -q READY out || die "$wrong: served"
    has err "the controller cannot follow"
done
ask() { # REQUEST...: the answers, a line each
    python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect("control.sock")
f = s.makefile("rwb")
for request in sys.argv[1:]:
    f.write(request.encode() + b"\n")
    f.flush()
    sys.stdout.write(f.readline().decode())' "$@"
}
"$WEFT" serve live.weft --set set.yaml --fleet "$examples/fleet.yaml" --policy weft \
    --control control.sock --http 0 --grpc off --metrics off --log-level info \
    --control-options down=3s,hold=3s,period=4s,up=1s,move=1s,trial=2s,poll=250ms >log 2>events &
server=$!
await log READY events
port=$(sed -n 's/.*http=\([0-9]*\).*/\1/p' log)
[ "$(stat -c %a control.sock)" = 600 ] || die "control.sock may be used by others"
controller() { # its process, as soon as there is one
    until pgrep -P "$server" -x weft-planner; do sleep 0.1; done
}
(
    sleep 2
    kill -KILL "$(controller)"
) &
python3 "$WEFT_SOURCE_DIR/tests/support/shifting_load.py" "$port" \
    digits:image:1x1x8x8:120,15 attn:image:1x1x8x8:20,130 6 >load.json
jq -e 'all(.[]; .failed == 0 and .wrong == 0 and .answered == .sent and .sent > 400)' load.json \
    >/dev/null || die "$(shown load.json) $(shown events)"
ask '{"do": "status"}' '{"do": "explain"}' '{"do": "plan"}' >answers
jq -es '.[0].ok and .[0].generation > 1 and .[0].last_change.ok and
    ([.[0].models[] | select(.model == "attn")][0].answered > 400) and
    ([.[0].workers[] | select(.models | index("attn"))] | length == 2)' answers >/dev/null ||
    die "$(shown answers) $(shown events)"
jq -es '(.[1].text | length > 20) and
    ([.[2].plan.placements[] | select(.model == "attn")] | length == 2)' answers >/dev/null ||
    die "$(shown answers)"
has events "because it is needed"
has events "the controller ended"
has events "plan_in_force"
# What the socket refuses, by name; nothing changes.
sed 's/"batch": [0-9]*/"batch": 64/' <<<"$(jq '{do: "apply", plan}' <(sed -n 3p answers))" |
    tr -d '\n' >large
sed -n 3p answers | jq -c '{do: "apply", plan: (.plan | .placements |= map(select(.model == "attn")))}' >less
ask "$(cat large)" "$(cat less)" '{"do": "apply"}' '{"do": "apply", "plan": {}}' '{"do": "jump"}' '[]' 'x' \
    '{"do": "status", "now": 1}' '{"do": "replan"}' >refused
[ "$(grep -c '"ok":false' refused)" = 8 ] || die "$(shown refused)"
for text in "batches of 64" "no slice for model 'digits'" "no request 'jump'" "unknown key 'now'"; do
    has refused "$text"
done
# A controller that is stopped does not keep the server from its end.
stopped=$(controller)
kill -STOP "$stopped"
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" = 0 ] || die "the server ended with $code: $(shown events)"
[ ! -e control.sock ] || die "control.sock is left"
! kill -0 "$stopped" 2>/dev/null || die "the controller is left"
# Usage.
expect 2 "$WEFT" serve live.weft --policy weft
expect 2 "$WEFT" serve live.weft --carbon x
expect 1 "$WEFT" serve live.weft --set set.yaml --fleet missing.yaml --policy weft --http 0 --grpc off
