#!/usr/bin/env bash
# Builds the Debian packages of this tree, and lets lintian check them where it is installed.
#
# usage: scripts/deb.sh [--twice] [FOLDER]
#   FOLDER   gets the packages (dist)
#   --twice  builds in a second folder, too, and compares the packages byte for byte
#
# Exit code 77: what builds packages is not installed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
twice=
if [ "${1:-}" = --twice ]; then
    twice=yes
    shift
fi
dist=$(realpath -m "${1:-dist}")
for tool in dpkg-buildpackage dh dh_python3; do
    command -v $tool >/dev/null || {
        printf 'deb: there is no %s (apt-get install dpkg-dev debhelper dh-python)\n' $tool >&2
        exit 77
    }
done
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT

git -C "$root" ls-files -z | tar -C "$root" -cf "$box/sources.tar" --null -T -

build() { # FOLDER: the packages of a copy of the sources there
    mkdir -p "$1/weft"
    tar -C "$1/weft" -xf "$box/sources.tar"
    mv "$1/weft/packaging/debian" "$1/weft/debian"
    (cd "$1/weft" && DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-nocheck noautodbgsym} parallel=${WEFT_JOBS:-$(nproc)}" \
        dpkg-buildpackage -b -us -uc >"$1/log" 2>&1) || {
        tail -n 40 "$1/log" >&2
        exit 1
    }
}

build "$box/first"
if [ -n "$twice" ]; then
    build "$box/elsewhere/again"
    for deb in "$box"/first/*.deb; do
        cmp "$deb" "$box/elsewhere/again/${deb##*/}"
    done
fi
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$box"/first/*.changes
fi
mkdir -p "$dist"
cp "$box"/first/*.deb "$dist"
ls "$box"/first/*.deb | sed "s|.*/|$dist/|"
