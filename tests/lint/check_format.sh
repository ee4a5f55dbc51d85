#!/usr/bin/env bash
# clang-format has nothing to change.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"
command -v clang-format >/dev/null || skip "no clang-format"

cd "$root"
tree '*.c' '*.h' >"${TMPDIR:-/tmp}/weft-format.$$"
trap 'rm -f "${TMPDIR:-/tmp}/weft-format.$$"' EXIT
while IFS= read -r said; do
    fail "$said"
done < <(xargs -r clang-format --dry-run -Werror <"${TMPDIR:-/tmp}/weft-format.$$" 2>&1 |
    grep -E '^[^ ].*:[0-9]+:[0-9]+: ' | sort -u -t: -k1,1)
finish
