#!/usr/bin/env bash
# Every merging strategy has a golden case: a file of tests/golden/merge-models with the line
# `# strategy: NAME` whose command forces that strategy (merge=NAME). Every row of simplify.def has a
# golden case: a file of tests/golden/simplify with the line `# rule: OP FUNCTION`.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

cd "$root"
table=passes/merge/strategies.def cases=tests/golden/merge-models
if [ -f "$table" ]; then
    for name in $(sed -nE 's/^S\(([a-z_0-9]+)\).*/\1/p' "$table"); do
        file=$(grep -lxF -- "# strategy: $name" "$cases"/*.wir 2>/dev/null | head -1 || true)
        if [ -z "$file" ]; then
            fail "$table: $name has no case in $cases with the line '# strategy: $name'"
        elif ! head -1 "$file" | grep -qw -- "merge=$name"; then
            fail "$file:1: the command does not force strategy $name (merge=$name)"
        fi
    done
fi
table=passes/simplify.def cases=tests/golden/simplify
if [ -f "$table" ]; then
    while read -r row; do
        grep -qxF -- "# rule: $row" "$cases"/*.wir 2>/dev/null ||
            fail "$table: $row has no case in $cases with the line '# rule: $row'"
    done < <(sed -nE 's/^RULE\(([A-Z0-9_]+), ([a-z0-9_]+)\).*/\1 \2/p' "$table")
fi
finish
