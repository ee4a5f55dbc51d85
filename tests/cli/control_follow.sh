# The controller follows a router, here a fake one: a load that shifts changes the plan, noise does
# not; what the router refuses or cannot do is undone; it ends with the router.
command -v jq >/dev/null || skip "no jq"
. "$WEFT_SOURCE_DIR/tests/support/two_models.sh"
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml -o plan.json
planner=$(dirname "$WEFT")/weft-planner
fake=$WEFT_SOURCE_DIR/tests/support/fake_router.py
# follow SCRIPT [OPTIONS...]: log.jsonl, out, err; the exit code of the controller in $code
follow() {
    local n
    rm -f log.jsonl router.sock
    printf '%s\n' "$1" >script.json
    shift
    python3 "$fake" router.sock log.jsonl script.json 2>fake.err &
    server=$!
    for n in $(seq 100); do
        [ -S router.sock ] && break
        sleep 0.05
    done
    code=0
    timeout 60 "$planner" control set.yaml --fleet fleet.yaml --plan plan.json --socket router.sock \
        --policy bestfit "$@" >out 2>err || code=$?
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
    touch log.jsonl
}
fast=(--control poll=10ms)
# 900/s and 50/s are planned. As planned: nothing. Then the load of one goes to the other.
follow '{"phases": [{"steps": 40, "rates": {"big": 900, "small": 50}},
                    {"steps": 40, "rates": {"big": 2500, "small": 50}}]}' "${fast[@]}"
[ "$code" = 0 ] || die "exit code $code: $(shown err)"
jq -es '[.[] | select(.apply)] | length >= 1 and all(.step > 40) and .[0].step <= 44 and
    all(.format == "weft-plan") and .[-1].gpus > 2' log.jsonl >/dev/null || die "$(shown log.jsonl)"
jq -es '[.[].note // empty] | any(test("rate: big 900/s -> 2500/s")) and
    any(test("because it is needed")) and any(test("in force after 2 s")) and
    any(test("trial of"))' log.jsonl >/dev/null || die "$(shown log.jsonl)"
has err "control: rate: big"
# Refused, or failed: the plan before it is in force, and the next try comes later.
for fate in refuse fail; do
    follow '{"apply": ["'$fate'", "ok"], "phases": [{"steps": 10, "rates": {"big": 900, "small": 50}},
        {"steps": 100, "rates": {"big": 2500, "small": 50}}]}' "${fast[@]}"
    [ "$code" = 0 ] || die "exit code $code: $(shown err)"
    jq -es '[.[] | select(.apply)] | length >= 2 and .[0].apply == "'$fate'" and .[1].apply == "ok" and
        .[1].step > .[0].step + 20 and .[1].gpus == .[0].gpus' log.jsonl >/dev/null ||
        die "$fate: $(shown log.jsonl)"
done
has err "a worker does not become ready"
# Somebody asks for a call; the router tells the plan in force.
follow '{"replan": 20, "plan": "plan.json", "phases": [{"steps": 30,
    "rates": {"big": 900, "small": 50}}]}' "${fast[@]}"
jq -es '[.[] | select(.note)] | length == 1 and (.[0].note | test("asked for.*the same placements"))' \
    log.jsonl >/dev/null || die "$(shown log.jsonl)"
# Models that the set does not have are left alone, and named once. Carbon intensity from a command, and a file.
printf 'time,g\n1,400\n' >carbon.csv
for carbon in '!echo 400' carbon.csv; do
    follow '{"phases": [{"steps": 75, "rates": {"big": 900, "small": 50, "other": 9999}}]}' \
        "${fast[@]}" --carbon "$carbon"
    [ "$code" = 0 ] || die "exit code $code: $(shown err)"
    jq -es '[.[].note // empty] | any(test("carbon: 0 -> 400 g/kWh"))' log.jsonl >/dev/null ||
        die "$(shown log.jsonl)"
    jq -es '[.[].note // empty | select(test("other has requests and is not in the set"))] | length == 1' \
        log.jsonl >/dev/null || die "$(shown log.jsonl)"
    lacks err "error"
done
follow '{"phases": [{"steps": 5, "rates": {"big": 900, "small": 50}}]}' "${fast[@]}" \
    --carbon '!echo dear; exit 3'
[ "$code" = 0 ] || die "exit code $code: $(shown err)"
has err "status"
# A router that answers errors or no JSON: the controller ends with a failure, and says why.
for end in error garbage; do
    follow '{"end": "'$end'", "phases": [{"steps": 5, "rates": {"big": 900, "small": 50}}]}' \
        "${fast[@]}"
    [ "$code" = 1 ] || die "$end: exit code $code"
done
has err "no JSON object"
follow '{"end": "hang", "phases": [{"steps": 5, "rates": {"big": 900, "small": 50}}]}' "${fast[@]}" \
    --patience 0.3s
[ "$code" = 1 ] || die "hang: exit code $code"
has err "does not answer"
expect 1 "$planner" control set.yaml --fleet fleet.yaml --plan plan.json --socket missing.sock
has err "missing.sock"
expect 2 "$planner" control set.yaml --fleet fleet.yaml --plan plan.json
expect 1 "$planner" control set.yaml --fleet fleet.yaml --plan plan.json --socket missing.sock \
    --control up=never
has err "up"
