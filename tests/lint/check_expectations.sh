#!/usr/bin/env bash
# Each row of docs/expectations.md has four columns, and names tests that exist, unless its answer is no.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

table=$root/docs/expectations.md
[ -f "$table" ] || skip "no $table"
rows=0
while IFS='|' read -r _ what who answer tests rest; do
    rows=$((rows + 1))
    [ -n "$tests" ] && [ -z "${rest// /}" ] || fail "docs/expectations.md: not four columns: $what"
    names=$(grep -oE '`[a-z_/0-9]+`' <<<"$tests" | tr -d '`' || true)
    [ -n "$names" ] || grep -qE '^ (no|not)' <<<"$answer" || fail "docs/expectations.md: no test for: $what"
    for name in $names; do
        case $name in
        */*) last=$name ;;
        check_packages) continue ;;
        *) name=$(dirname "$last")/$name ;;
        esac
        base=${name##*/} folder=tests/${name%/*}
        found=
        for file in "$folder/$base.py" "$folder/$base.sh" "$folder/test_$base.c" "$folder/check_$base.sh" \
            "$folder/api_$base.sh" "$folder/api_$base.py" "$folder/$base.c" "tests/$name"; do
            [ ! -e "$root/$file" ] || found=1
        done
        [ -n "$found" ] || fail "docs/expectations.md: there is no test $name"
    done
done < <(grep -E '^\| [A-Za-z]' "$table" | tail -n +2)
echo "$rows rows"
finish
