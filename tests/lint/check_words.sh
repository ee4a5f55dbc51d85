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
pattern=$(IFS='|' && echo "${patterns[*]}")
while IFS= read -r hit; do
    fail "$hit"
done < <(tree '*.c' '*.h' '*.def' '*.proto' '*.py' '*.sh' '*.md' '*.cmake' '*.txt' '*.json' '*.yaml' \
    '*.yml' '*.csv' '*.wir' '*.in' run | xargs -r grep -HnIE "$pattern" | cut -c1-200 || true)
finish
