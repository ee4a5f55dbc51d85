#!/usr/bin/env bash
# Every merging strategy has a golden case: a file of tests/golden/merge-models with the line
# `# strategy: NAME` whose command forces that strategy (merge=NAME).
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
finish
