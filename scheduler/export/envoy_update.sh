#!/bin/sh
# update.sh FOLDER: brings the folder of an Envoy that runs to the files beside this script. Envoy
# reads a file again when another is moved in: weights and workers of a model change at once, without
# a drain of connections. New models are there first as clusters, whose workers are checked, then as
# routes. Prints the files that have changed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
to=${1:?the folder of the configuration that runs}
[ -e "$to/envoy.yaml" ] || { echo "update.sh: $to has no envoy.yaml" >&2; exit 1; }
mkdir -p "$to/endpoints"

# Moves a file in if it differs. Returns whether it did.
bring() {
    ! cmp -s "$here/$1" "$to/$1" || return 1
    cp "$here/$1" "$to/$1.new"
    mv "$to/$1.new" "$to/$1"
    echo "$1"
}

for file in "$here"/endpoints/*.yaml; do
    bring "endpoints/${file##*/}" || true
done
if bring clusters.yaml; then sleep "${WEFT_WAIT_S:-3}"; fi
bring listeners.yaml || true
for file in "$to"/endpoints/*.yaml; do
    [ -e "$here/endpoints/${file##*/}" ] || rm "$file"
done
