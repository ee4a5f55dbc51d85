#!/usr/bin/env bash
# Fetches oneDNN 3.2 with its headers (tests/onednn3.txt: exact versions with hashes) into a prefix of its
# own, made once, and prints it: ${XDG_CACHE_HOME:-~/.cache}/weft/onednn3-HASH. To build with it:
#
#   WEFT_ONEDNN3=$(scripts/onednn3.sh) cmake --preset onednn3 && cmake --build --preset onednn3
#
# Exit code 77 with a message where it cannot be had: no pip, or no way to its index.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
list=$root/tests/onednn3.txt
python=${WEFT_PYTHON:-python3}
limit=600 # seconds

skip() {
    printf 'skipped: %s\n' "$*" >&2
    exit 77
}

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/weft
folder=$cache/onednn3-$(sha256sum "$list" | cut -c 1-12)
if [ -d "$folder" ]; then
    printf '%s\n' "$folder"
    exit 0
fi

"$python" -m pip --version >/dev/null 2>&1 || skip "needs pip ($python -m pip)"
mkdir -p "$cache" 2>/dev/null || skip "$cache cannot be made"
made=$(mktemp -d "$cache/making.XXXXXX")
trap 'rm -rf "$made"' EXIT
timeout "$limit" "$python" -m pip download --quiet --disable-pip-version-check --no-input --retries 1 \
    --only-binary :all: --no-deps --require-hashes --dest "$made/wheels" -r "$list" >&2 ||
    skip "pip could not fetch $list"
for wheel in "$made"/wheels/*.whl; do
    "$python" -m zipfile -e "$wheel" "$made/files"
done
# The archives hold the library under three names.
mkdir -p "$made/prefix/lib"
cp -R "$made"/files/*.data/data/include "$made/prefix/"
cp "$(find "$made/files" -name 'libdnnl.so.3')" "$made/prefix/lib/libdnnl.so.3"
ln -s libdnnl.so.3 "$made/prefix/lib/libdnnl.so"
chmod 755 "$made/prefix"
mv -T "$made/prefix" "$folder" 2>/dev/null || [ -d "$folder" ]
printf '%s\n' "$folder"
