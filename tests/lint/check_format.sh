#!/usr/bin/env bash
# clang-format has nothing to change.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"
command -v clang-format >/dev/null || skip "no clang-format"

cd "$root"
while read -r file; do
    said=$(clang-format --dry-run -Werror "$file" 2>&1) || fail "$(head -n 3 <<<"$said")"
done < <(tree '*.c' '*.h')
finish
