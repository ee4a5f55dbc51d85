#!/usr/bin/env bash
# No source file is longer than 1,000 lines. Prints the lines of each folder and the longest files.
# Tables that a program made (estimator/models/trees) are not read by people and may be longer.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"
limit=1000

cd "$root"
counts=$(tree '*.c' '*.h' '*.def' '*.proto' '*.py' '*.sh' '*.cmake' CMakeLists.txt |
    while read -r file; do [[ $file == estimator/models/trees/*.def ]] || printf '%d %s\n' "$(wc -l <"$file")" "$file"; done)
echo "lines per folder:"
awk '{ split($2, part, "/"); folder = index($2, "/") ? part[1] : "."
       if (folder == "tests" && part[3] != "") folder = "tests/" part[2]
       lines[folder] += $1; files[folder]++; all += $1; n++ }
     END { for (folder in lines) printf "  %7d  %4d files  %s\n", lines[folder], files[folder], folder | "sort -k4"
           close("sort -k4"); printf "  %7d  %4d files  in all\n", all, n }' <<<"$counts"
echo "longest files:"
# Not head: closing the pipe early would end sort by SIGPIPE, and with it the script.
sort -rn <<<"$counts" | awk 'NR <= 5 { print "  " $0 }'
while read -r lines file; do
    [ "$lines" -le "$limit" ] || fail "$file: $lines lines, the limit is $limit"
done <<<"$counts"
finish
