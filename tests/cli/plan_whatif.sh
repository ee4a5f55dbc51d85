# What-if questions: both plans and their diff; a plan in force as the start.
command -v jq >/dev/null || skip "no jq"
cat >set.yaml <<'END'
models:
  - {name: a, profile: p.csv, slo: 40ms, rate: 300/s}
  - {name: b, profile: p.csv, slo: 40ms, rate: 300/s}
END
cat >p.csv <<'END'
device,slice,batch,time_us
a100-80,7g.80gb,8,5000
a100-80,3g.40gb,8,16000
a100-80,1g.10gb,1,5000
t4,,8,9000
END
printf 'devices:\n  - {type: a100-80, count: 3, price: 2, mig: true}\n' >fleet.yaml
plan=("$WEFT" plan set.yaml --fleet fleet.yaml --policy bestfit)
expect 0 "${plan[@]}" --rate a=4x --format json
empty err
jq -e '.changes == ["a=4x"] and .before.gpus == 1 and .after.gpus == 2
    and .before.goodput_per_s == 600 and .after.goodput_per_s == 1500
    and any(.moves[]; .model == "a" and .from.slice == "3g.40gb" and .to.slice == "7g.80gb")' \
    out >/dev/null || die "$(shown out)"
expect 0 "${plan[@]}" --rate a=1200/s
has out "+1 device, +2.00 $/h"
has out "move   a"
expect 0 "${plan[@]}" --rate a=1x --format json
jq -e '.moves == [] and .before.gpus == .after.gpus' out >/dev/null || die "$(shown out)"
# Other devices: a new type, none of the old one.
expect 0 "${plan[@]}" --gpu t4=2 --gpu a100-80=0 -o t4.json
jq -e 'all(.placements[]; .type == "t4") and .gpus == 2' t4.json >/dev/null || die "$(shown t4.json)"
# The set before the change may be infeasible; the set after it must not be.
expect 0 "${plan[@]}" --slo a=0.5x --format json
expect 3 "${plan[@]}" --slo a=9ms
has err "a: slo: 9 ms, but the lowest latency on any slice is 10 ms"
sed 's/40ms, rate: 300/9ms, rate: 300/' set.yaml >tight.yaml
expect 0 "$WEFT" plan tight.yaml --fleet fleet.yaml --policy bestfit --slo a=40ms --slo b=40ms \
    --format json
jq -e '.before.feasible == false and .after.feasible and .moves == null' out >/dev/null ||
    die "$(shown out)"
expect 2 "${plan[@]}" --gpu z9=1
has err "unknown device 'z9'"
for bad in '--rate nobody=2x' '--rate a' '--rate a=fast' '--rate a=-1x' '--rate a=nanx' '--slo a=5/s' \
    '--gpu t4=-1' '--gpu t4=x' '--gpu cpu=1'; do
    # shellcheck disable=SC2086
    expect 1 "${plan[@]}" $bad
    has err "${bad%% *}"
done
# A plan in force: its diff is printed; the diff of a plan with itself is empty.
expect 0 "${plan[@]}" -o old.json
expect 0 "${plan[@]}" --previous old.json
has out "0 moves"
expect 1 "${plan[@]}" --previous set.yaml
expect 2 "${plan[@]}" --compare --rate a=2x
expect 2 "${plan[@]}" --check old.json --explain a
