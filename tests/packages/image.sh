# shellcheck shell=bash
# Read by container.sh and kube_play.sh: builds the image of packaging/Containerfile from the packages of the folder "$1", as
# localhost/weft in a store of its own, $box/store. Needs root, buildah and a mirror of Debian; without a registry the
# base is a clean Debian (WEFT_DEBIAN_ROOT, or by mmdebstrap). Exit code 77: no image can be built here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$(realpath "$1")
skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "only root can change the root folder"
command -v buildah >/dev/null || skip "no buildah"
box=$(mktemp -d)
end_test() { :; } # of the test that reads this file
clean() {
    end_test
    image umount --all >/dev/null 2>&1 || true
    rm -rf --one-file-system "$box"
}
trap clean EXIT
image() { buildah --root "$box/store" --runroot "$box/run" --storage-driver vfs "$@"; }

base=${WEFT_DEBIAN_ROOT:-$box/base.tar}
if [ ! -e "$base" ]; then
    command -v mmdebstrap >/dev/null || skip "no mmdebstrap"
    mmdebstrap --quiet --variant=apt bookworm "$base" || skip "no Debian from the mirror"
fi
from=$(image from scratch)
image add --quiet "$from" "$base" / >/dev/null
image commit --quiet "$from" localhost/debian >/dev/null
image bud --quiet --isolation chroot --network host --build-arg BASE=localhost/debian --tag localhost/weft \
    -f "$root/packaging/Containerfile" "$folder" >"$box/log" 2>&1 || { tail -n 20 "$box/log"; exit 1; }
