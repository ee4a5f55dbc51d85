#!/usr/bin/env bash
# Links of documents lead to files of the tree, and with a #place to a heading in them.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

headings() { # FILE: the places that GitHub and most programs make of its headings
    grep -E '^#+ ' "$1" | sed -E 's/^#+ +//; s/[^A-Za-z0-9 _-]//g; s/ /-/g' | tr 'A-Z' 'a-z'
}

links=0
while IFS= read -r file; do
    folder=$(dirname "$file")
    while IFS= read -r link; do
        links=$((links + 1))
        to=${link%%#*} place=
        [[ $link != *'#'* ]] || place=${link#*#}
        target=${to:+$folder/$to}
        target=${target:-$file}
        if [ ! -e "$target" ]; then
            fail "${file#"$root/"}: there is no $link"
        elif [ -n "$place" ] && [[ $target == *.md ]] && ! headings "$target" | grep -qx -- "$place"; then
            fail "${file#"$root/"}: no heading makes #$place in ${target#"$root/"}"
        fi
    done < <(sed '/^```/,/^```/d' "$file" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:' || true)
done < <(find "$root" -name '*.md' -not -path '*/build*' -not -path '*/.git/*' -not -path '*/shared/*')
echo "$links links"
finish
