#!/usr/bin/env bash
# No call by name leaves it to the compiler in which order its arguments append to lists (order.py): bundles and plans would
# differ between architectures. Operands and initialisers are not looked at.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

command -v python3 >/dev/null || skip "no python3"
mapfile -t files < <(tree '*.c' | grep -v '^tests/' || true)
while IFS= read -r line; do fail "$line"; done < <(python3 "$lint_dir/order.py" "$root" "${files[@]}")
finish
