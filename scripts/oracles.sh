#!/usr/bin/env bash
# Installs the Python packages that tests take as oracles (tests/oracles.txt, or another list of that
# form: exact versions with hashes) into a folder of their own and prints the folder. The folder is
# made once for a list and a Python: ${XDG_CACHE_HOME:-~/.cache}/weft/oracles-LIST-PYTHON-HASH.
#
# usage: scripts/oracles.sh [LIST]
#   WEFT_ORACLES  folder that already has the packages: printed as it is, nothing is installed
#   WEFT_PYTHON   interpreter (python3)
# Exit code 77 with a message where the packages cannot be had: no pip, or no way to its index.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
list=${1:-$root/tests/oracles.txt}
python=${WEFT_PYTHON:-python3}
# Seconds that one request and the whole installation may take.
request_limit=20
install_limit=600

skip() {
    printf 'skipped: %s\n' "$*" >&2
    exit 77
}

if [ -n "${WEFT_ORACLES:-}" ]; then
    printf '%s\n' "$WEFT_ORACLES"
    exit 0
fi
command -v "$python" >/dev/null || skip "oracles need $python"
tag=$("$python" -c 'import sys; print("%s%d%d" % (sys.implementation.name, *sys.version_info[:2]))')
# A list may include others of its folder.
included=$(sed -n 's/^-r *//p' "$list" | sed "s|^|$(dirname "$list")/|")
# shellcheck disable=SC2086
hash=$(cat "$list" $included | sha256sum | cut -c 1-12)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/weft
folder=$cache/$(basename "$list" .txt)-$tag-$hash
if [ -d "$folder" ]; then
    printf '%s\n' "$folder"
    exit 0
fi

"$python" -m pip --version >/dev/null 2>&1 || skip "oracles need pip ($python -m pip)"
mkdir -p "$cache" 2>/dev/null || skip "$cache cannot be made"
# One installation at a time; a second test that waited finds the folder.
exec 9>"$cache/lock"
flock 9
if [ ! -d "$folder" ]; then
    made=$(mktemp -d "$cache/making.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    PIP_DEFAULT_TIMEOUT=$request_limit timeout "$install_limit" "$python" -m pip install \
        --quiet --disable-pip-version-check --no-input --retries 1 --only-binary :all: --no-deps \
        --require-hashes --no-compile --target "$made" -r "$list" >"$made.log" 2>&1 || {
        tail -n 3 "$made.log" >&2
        rm -f "$made.log"
        skip "pip could not install $list"
    }
    rm -f "$made.log"
    chmod 755 "$made"
    mv "$made" "$folder"
fi
printf '%s\n' "$folder"
