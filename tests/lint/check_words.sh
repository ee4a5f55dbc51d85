#!/usr/bin/env bash
# Words that have no place in the tree: paths of the machine it was written on, hosts of package
# registries, and notes to self (an issue is the place for those).
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

# Each pattern is written so that it does not match itself.
patterns=(
    '/[w]ork/'
    '/[h]ome/[a-z]+/'
    '/tmp/[b]-'
    '/tmp/(ven[v]|model[s]|infr[a])'
    '[p]ypi\.org|[f]iles\.pythonhosted|[r]egistry\.npmjs|[p]roxy\.golang|[c]rates\.io'
    '\<(TOD[O]|FIXM[E]|XX[X])\>'
)
cd "$root"
while read -r file; do
    for pattern in "${patterns[@]}"; do
        while IFS= read -r hit; do
            fail "$file:$hit"
        done < <(grep -nIE "$pattern" "$file" | cut -c1-160 || true)
    done
done < <(tree '*.c' '*.h' '*.def' '*.proto' '*.py' '*.sh' '*.md' '*.cmake' '*.txt' '*.json' '*.yaml' '*.yml' '*.csv' \
    '*.wir' '*.in' run)
finish
