#!/usr/bin/env bash
# Makes a book of the documents: pages of HTML with the contents of docs/index.md beside them, complete without network.
#
# usage: scripts/book.sh [FOLDER]        FOLDER gets the pages (build/book); begin with index.html
#
# WEFT: the command, of which a page of all verbs and tables is made (weft, if it is in PATH; else none).
# Exit code 77: there is no cmark-gfm (apt-get install cmark-gfm).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
to=$(realpath -m "${1:-$root/build/book}")
command -v cmark-gfm >/dev/null || {
    printf 'book: there is no cmark-gfm (apt-get install cmark-gfm)\n' >&2
    exit 77
}
cd "$root"
mkdir -p "$to"
# The style sheet of Weft's other pages, which is C.
style=$(sed -n '/weft_page_style\[\] =/,/;$/p' base/page_style.c | grep -oE '"([^"\\]|\\.)*"' | sed 's/^"//; s/"$//; s/\\n/\n/g; s/\\"/"/g')

# What a document is called in the book: passes/merge/README.md becomes passes_merge.html.
page_of() {
    local name=${1%.md}
    name=${name#docs/}
    name=${name%/README}
    printf '%s.html' "${name//\//_}"
}

# Every document that a link leads to, from index.md on.
documents=(docs/index.md)
seen=" docs/index.md "
for ((i = 0; i < ${#documents[@]}; i++)); do
    file=${documents[i]}
    for link in $(sed '/^```/,/^```/d' "$file" | grep -oE '\]\([^) #]+\.md' | sed 's/^](//' || true); do
        [[ $link != *:* ]] || continue
        target=$(realpath --relative-to=. "$(dirname "$file")/$link")
        [[ $seen == *" $target "* ]] || { seen+="$target " && documents+=("$target"); }
    done
done

# Links to documents become links to pages; those to other files are told, as the book has none of them.
page() { # FILE
    local folder title
    folder=$(dirname "$1")
    title=$(sed -n 's/^# //p' "$1" | head -n 1)
    printf '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8" /><meta name="viewport" content="width=device-width" />'
    printf '<link rel="icon" href="data:," /><title>%s - Weft</title>\n<style>%s\npre{overflow-x:auto;background:var(--shade);padding:.75rem}\n' "$title" "$style"
    printf 'table{display:block;overflow-x:auto}</style></head>\n<body><nav><a href="index.html">Contents</a>%s</nav><main>\n' "$more"
    cmark-gfm -e table -e autolink "$1" | while IFS= read -r line; do
        while [[ $line =~ href=\"([^\":#]+)(#[^\"]*)?\" ]]; do
            local whole=${BASH_REMATCH[0]} link=${BASH_REMATCH[1]} place=${BASH_REMATCH[2]} target
            target=$(realpath -m --relative-to=. "$folder/$link")
            if [[ $seen == *" $target "* ]]; then
                line=${line/"$whole"/"href=:$(page_of "$target")$place:"}
            else
                line=${line/"$whole"/"title=:$target:"}
            fi
        done
        line=${line//href=:/href=\"}
        line=${line//title=:/title=\"}
        while [[ $line =~ src=\"[^\"]*/?figures/ ]]; do # pictures lie in one folder
            line=${line/"${BASH_REMATCH[0]}"/src=:figures/}
        done
        line=${line//src=:/src=\"}
        printf '%s\n' "$line"
    done | sed -E 's/((href|title)="[^":]*):/\1"/g' | add_places
    printf '</main></body></html>\n'
}

# Headings get the places that links in the documents name.
add_places() {
    awk '/^<h[1-6]>/ {
        text = $0; gsub(/<[^>]*>/, "", text); gsub(/&[a-z]+;/, "", text); gsub(/[^A-Za-z0-9 _-]/, "", text); gsub(/ /, "-", text)
        sub(/^<h[1-6]/, "& id=\"" tolower(text) "\"")
    } { print }'
}

# What the verbs take and the tables have, from the program that is made of them.
commands() {
    printf '# Commands\n\nThe texts of `weft VERB --help`, and the tables that `weft list` prints.\n'
    "$weft" --help | sed -n 's/^  \([a-z][a-z]*\)  *.*/\1/p' | while IFS= read -r verb; do
        printf '\n## weft %s\n\n```\n' "$verb"
        "$weft" "$verb" --help
        printf '```\n'
    done
    for table in gpus policies strategies passes ops drivers prices; do
        printf '\n## weft list %s\n\n```\n' "$table"
        "$weft" list "$table"
        printf '```\n'
    done
}

weft=${WEFT:-$(command -v weft || true)}
more=
if [ -n "$weft" ]; then
    more=' &middot; <a href="commands.html">Commands</a>'
    mkdir -p "$to/.made/docs"
    commands >"$to/.made/docs/commands.md"
fi
mkdir -p "$to/figures"
cp docs/figures/*.svg "$to/figures"
for file in "${documents[@]}"; do
    page "$file" >"$to/$(page_of "$file")"
done
if [ -n "$weft" ]; then
    page "$to/.made/docs/commands.md" >"$to/commands.html"
    rm -r "$to/.made"
fi
printf '%d pages in %s\n' "$(find "$to" -name '*.html' | wc -l)" "$to"
