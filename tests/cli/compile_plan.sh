# What is merged is what a plan places together: families as they are placed, other models only with
# those on their slice; buckets for the planned batches.
command -v jq >/dev/null || skip "no jq"
examples=$WEFT_SOURCE_DIR/examples
set=$examples/digits.yaml
joint() { "$WEFT" inspect "$1" --format json | jq -c '[.joint[]?.models | sort] | sort'; }
expect 0 "$WEFT" compile "$set" -o digits.weft
plan=("$WEFT" plan "$set" --fleet "$examples/fleet.yaml")
expect 0 "${plan[@]}" --bundle digits.weft -o family.json
expect 0 "${plan[@]}" -o apart.json

expect 0 "$WEFT" compile "$set" --plan family.json -o family.weft
[ "$(joint family.weft)" = '[["digits","parity","size"]]' ] || die "$(joint family.weft)"
expect 0 "${plan[@]}" --bundle family.weft --check family.json

# One model alone on each slice: nothing is merged.
jq '.placements |= (to_entries | map(.value + {slice_id: .key}))' apart.json >alone.json
expect 0 "$WEFT" compile "$set" --plan alone.json -o alone.weft
[ "$(joint alone.weft)" = '[]' ] || die "$(joint alone.weft)"
# Two of the siblings share a slice.
jq '.placements |= map(.slice_id = (if .model == "parity" or .model == "size" then 0 else 1 end))' \
    apart.json >pair.json
expect 0 "$WEFT" compile "$set" --plan pair.json -o pair.weft
[ "$(joint pair.weft)" = '[["parity","size"]]' ] || die "$(joint pair.weft)"

# Planned batches get buckets, beside the usual ones or those of --batch.
jq '.placements |= map(.batch = 6)' alone.json >batch.json
buckets() { "$WEFT" inspect "$1" --format json | jq -c '[.models[0].buckets[].symbols[0]]'; }
expect 0 "$WEFT" compile "$set" --plan batch.json -o batch.weft
[ "$(buckets batch.weft)" = '[1,2,4,6,8]' ] || die "$(buckets batch.weft)"
expect 0 "$WEFT" compile "$set" --plan batch.json --batch 3 -o batch.weft
[ "$(buckets batch.weft)" = '[3,6]' ] || die "$(buckets batch.weft)"

# A family that gains nothing, a model that is not in the plan or not in the set, no plan.
jq '.placements |= map(if .model | contains("+") then .model = "digits+digits-attn" else . end)' \
    family.json >worse.json
expect 0 "$WEFT" compile "$set" --plan worse.json -o worse.weft
has err "the plan places it and 1 others as one, but nothing is gained by it"
has err "the plan does not place this model"
jq '.placements |= map(if .model == "digits" then .model = "other" else . end)' apart.json >other.json
expect 1 "$WEFT" compile "$set" --plan other.json -o other.weft
has err "the plan places it, but it is not among the models"
echo '{}' >none.json
expect 1 "$WEFT" compile "$set" --plan none.json -o none.weft
