#!/usr/bin/env bash
# Words that have no place in the tree: paths of the machine it was written on, hosts of package
# registries, notes to self (an issue is the place for those), and names that were given up for the
# field's own terms.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

# Each pattern is written so that it does not match itself.
patterns=(
    '/[w]ork/'
    '/[h]ome/[a-z]+/'
    '/tmp/[b]-'
    '/tmp/(ven[v]|model[s]|infr[a])'
    '[p]ypi\.org|[f]iles\.pythonhosted|[r]egistry\.npmjs|[p]roxy\.golang|[c]rates\.io'
    '\<(TOD[O]|FIXM[E]|XX[X])\>'
    # arrangement, merge candidate, merge group or segment, plan builder, option table, weight sketch
    'weft_([l]ie|[o]ffer|[p]iece|[b]oard|[m]enu|[r]esemble|[l]ate|[s]pec)s?(_|\>)'
    '\<(merge_[l]ie|merge_[o]ffers|merge_[c]hoose|merge_[p]roduct|mig_[t]op|mix_[c]hange)\>'
    # level-schedule, dedup, dce
    '\<(order[-_][w]aves|share[-_][e]qual|drop[-_][d]ead)\>'
    # low-rank factors; is_gemm
    '\<[t]hin (product|factor)s?\>|\<is_[h]eavy\>'
)
cd "$root"
pattern=$(IFS='|' && echo "${patterns[*]}")
while IFS= read -r hit; do
    fail "$hit"
done < <(tree '*.c' '*.h' '*.def' '*.proto' '*.py' '*.sh' '*.md' '*.cmake' '*.txt' '*.json' '*.yaml' \
    '*.yml' '*.csv' '*.wir' '*.in' run | xargs -r grep -HnIE "$pattern" | cut -c1-200 || true)
finish
