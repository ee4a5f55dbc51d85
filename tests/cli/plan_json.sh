# A plan has the documented keys and passes its own check; a plan with wrong fields does not.
fleet=$examples/fleet_gpu.yaml
command -v jq >/dev/null || skip "no jq"
for policy in exclusive bestfit; do
    expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$fleet" --policy "$policy" -o plan.json
    jq -e '(.gpus | type == "number") and (.cost_per_hour | type == "number")
        and (.lower_bound | type == "number") and (.decision_ms | type == "number")
        and (.placements | length >= 4)' plan.json >/dev/null || die "keys: $(shown plan.json)"
    for model in digits parity size digits-attn; do
        jq -e --arg m "$model" 'any(.placements[]; .model == $m)' plan.json >/dev/null ||
            die "$policy: no placement of $model"
    done
    expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$fleet" --check plan.json
    jq 'del(.placements[0])' plan.json >wrong.json
    expect 4 "$WEFT" plan "$examples/digits.yaml" --fleet "$fleet" --check wrong.json
    filled err
done
# An alias stands for the policy, whose name the plan states.
expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$fleet" --policy fifo -o alias.json
[ "$(jq -r .policy alias.json)" = exclusive ] || die "alias: $(jq .policy alias.json)"
# An SLO of one microsecond: exit code 3, and the model is named.
sed 's/slo: 50ms/slo: 0.001ms/' "$examples/digits.yaml" >tight.yaml
cp "$examples"/*.onnx .
expect 3 "$WEFT" plan tight.yaml --fleet "$fleet" --policy bestfit -o no.json
has err digits
[ ! -e no.json ] || die "an infeasible plan was written"
expect 2 "$WEFT" plan "$examples/digits.yaml" --fleet "$fleet" --policy nobody
has err nobody
