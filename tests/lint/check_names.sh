#!/usr/bin/env bash
# File names are unique in the whole tree, so that a name in a message or a search means one file.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

declare -A seen
while read -r file; do
    name=${file##*/}
    case "$name" in CMakeLists.txt | README.md) continue ;; esac
    if [ -n "${seen[$name]:-}" ]; then
        fail "$name: both ${seen[$name]} and $file"
    fi
    seen[$name]=$file
done < <(tree '*.c' '*.h' '*.def' '*.proto' '*.py' '*.sh' '*.md' '*.cmake')
finish
