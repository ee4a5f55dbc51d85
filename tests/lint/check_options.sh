#!/usr/bin/env bash
# Options of verbs are rows of tools/options.def and nowhere else: no file of tools/ asks getopt or
# compares an argument with "--something" itself. Only the parser of the table, the command `weft`
# (options of its own, which are no verb's) and the main files (services for other processes) may. No
# verb has an option twice.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

cd "$root"
while IFS= read -r hit; do
    fail "$hit"
done < <(tree '*.c' '*.h' | grep '^tools/' |
    grep -vE '^tools/(common/options[.]c|front/weft[.]c|[a-z]+/[a-z]+_main[.]c)$' |
    xargs -r grep -HnE 'getopt|struct option[^a-z_]|str(n|case)?cmp\([^;]*"--[a-z]' || true)

if [ -f tools/options.def ]; then
    while IFS= read -r twice; do
        fail "tools/options.def: $twice"
    done < <(awk '
        /^#define PIPELINE_ROWS/ { group = "pipeline" } /^#define DEVICE_ROWS/ { group = "device" }
        /^#define EXPORT_ROWS/ { group = "export" }
        match($0, /^BEGIN\([a-z]+\)/) { verb = substr($0, 7, RLENGTH - 7) ; split("", seen) }
        /^[A-Z]+_ROWS$/ { n = split(rows[tolower(substr($0, 1, length($0) - 5))], own, " ")
                          for (i = 1; i <= n; i++) if (seen[own[i]]++) print verb ": --" own[i] " twice" }
        match($0, /^ *OPTION\("[a-z0-9-]+"/) {
            name = $0; sub(/^ *OPTION\("/, "", name); sub(/".*/, "", name)
            if (!verb) rows[group] = rows[group] " " name
            else if (seen[name]++) print verb ": --" name " twice" }' tools/options.def)
fi
finish
