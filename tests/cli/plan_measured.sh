# Models with profiles but without model files are planned; all policies are compared.
command -v jq >/dev/null || skip "no jq"
. "$WEFT_SOURCE_DIR/tests/support/two_models.sh"
# 900/s take a whole device (two instances of 3g would fill it as well); the other model opens one more.
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --policy bestfit -o plan.json
empty err
jq -e '.format == "weft-plan" and .policy == "bestfit" and .gpus == 2 and .cost_per_hour == 4' \
    plan.json >/dev/null || die "$(shown plan.json)"
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check plan.json
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --compare --format json
jq -e 'length >= 2 and all(.feasible)' out >/dev/null || die "$(shown out)"
# The checker names the rule that each changed plan breaks.
for change in '.gpus = 1:objective' '.placements[0].batch = 7:profile' \
    '.placements[0].rate_per_s = 1:rate' '.placements[0].slice = "2g.20gb":profile' \
    '.cost_per_hour = 0:objective' '.placements[0].latency_us = 1:objective'; do
    jq "${change%:*}" plan.json >changed.json
    expect 4 "$WEFT" plan set.yaml --fleet fleet.yaml --check changed.json
    has err "${change##*:}: "
done
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check plan.json --format json
jq -e '.legal and .violations == [] and .gpus == 2' out >/dev/null || die "$(shown out)"
expect 4 "$WEFT" plan set.yaml --fleet fleet.yaml --check changed.json --format json
jq -e '(.legal | not) and any(.violations[]; .rule == "objective" and .model != null)' out >/dev/null ||
    die "$(shown out)"
# A file that is not a plan is an error, not a difference.
echo '{}' >none.json
expect 1 "$WEFT" plan set.yaml --fleet fleet.yaml --check none.json
# Infeasible: the message names a change that would suffice.
sed 's/slo: 100ms, rate: 900/slo: 10ms, rate: 900/' set.yaml >tight.yaml
expect 3 "$WEFT" plan tight.yaml --fleet fleet.yaml
has err "16 ms"
expect 3 "$WEFT" plan tight.yaml --fleet fleet.yaml --compare
# A misspelt key is refused with its line.
sed 's/rate: 50/rtae: 50/' set.yaml >typo.yaml
expect 1 "$WEFT" plan typo.yaml --fleet fleet.yaml
has err "typo.yaml:3"
expect 2 "$WEFT" plan set.yaml
expect 2 "$WEFT" plan set.yaml --fleet fleet.yaml --check plan.json --compare
