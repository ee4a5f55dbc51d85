#!/usr/bin/env bash
# Every record (a pass, a policy, a driver, a verb) that a file defines has its row in the table, and
# no table has a row twice. The other way round, a row without a record does not link. Operators that
# GPUs do not run, CUDA(NONE), are in the table of docs/gpu.md, and no others.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

cd "$root"
# kind, folder, table, row macro
while read -r kind folder table macro; do
    [ -f "$table" ] || continue
    rows=$(sed -nE "s/^$macro\(([a-z0-9_]+)[,)].*/\1/p" "$table")
    twice=$(sort <<<"$rows" | uniq -d)
    [ -z "$twice" ] || fail "$table: more than one row: $twice"
    while IFS=: read -r file name; do
        [ -n "$file" ] || continue
        grep -qxF "$name" <<<"$rows" || fail "$file: weft_${kind}_$name has no row in $table"
    done < <(grep -rHoE --include="*.c" "^const weft_$kind weft_${kind}_[a-z0-9_]+ =" "$folder" 2>/dev/null |
        sed -E "s/:const weft_$kind weft_${kind}_([a-z0-9_]+) =/:\1/")
done <<'TABLES'
pass passes passes/passes.def PASS
policy scheduler scheduler/policies/policies.def POLICY
driver runtime runtime/drivers.def DRIVER
backend codegen codegen/backends.def BACKEND
verb tools tools/verbs.def VERB
TABLES
if [ -f docs/gpu.md ]; then
    without=$(tr '\n' ' ' <ops/ops.def | sed 's/OP(/\n&/g' |
        sed -nE 's/^OP\([A-Z0-9_]+, .*CUDA\(NONE\).*\.name = "([a-z0-9_]+)".*/\1/p' | sort)
    told=$(sed -n '/^## Operators/,/^## /s/^| `\(.*\)` | .*/\1/p' docs/gpu.md | sed 's/`, `/\n/g' | sort)
    for name in $(comm -23 <(echo "$without") <(echo "$told")); do
        fail "ops/ops.def: GPUs do not run $name, and docs/gpu.md does not say why"
    done
    for name in $(comm -13 <(echo "$without") <(echo "$told")); do
        fail "docs/gpu.md: $name is not an operator that GPUs do not run"
    done
fi
finish
