#!/usr/bin/env bash
# Fetches oneDNN 3.2 with its headers (tests/onednn3.txt: exact versions with hashes) into a prefix of its
# own, made once, and prints it: ${XDG_CACHE_HOME:-~/.cache}/weft/onednn3-HASH-prefix. To build with it:
#
#   WEFT_ONEDNN3=$(scripts/onednn3.sh) cmake --preset onednn3 && cmake --build --preset onednn3
#
# Exit code 77 with a message where it cannot be had: no pip, or no way to its index.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wheels=$("$root/scripts/fetch_wheels.sh" "$root/tests/onednn3.txt")
folder=$wheels-prefix
if [ ! -d "$folder" ]; then
    made=$(mktemp -d "$wheels-making.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    # The archives hold the library under three names.
    mkdir -p "$made/prefix/lib"
    cp -R "$wheels"/*/*.data/data/include "$made/prefix/"
    cp "$(find "$wheels" -name 'libdnnl.so.3')" "$made/prefix/lib/libdnnl.so.3"
    ln -s libdnnl.so.3 "$made/prefix/lib/libdnnl.so"
    chmod 755 "$made/prefix"
    mv -T "$made/prefix" "$folder" 2>/dev/null || [ -d "$folder" ]
fi
printf '%s\n' "$folder"
