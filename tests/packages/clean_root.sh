#!/usr/bin/env bash
# Installs the packages into a clean Debian 12 and uses them there (use_packages.sh). Needs root,
# mmdebstrap and a mirror of Debian.
#
# usage: clean_root.sh FOLDER     with the packages (scripts/deb.sh FOLDER) and, if it is to be tried, the wheel
#                                 (scripts/wheel.sh FOLDER)
#
# WEFT_DEBIAN_ROOT: a tar of a root made by `mmdebstrap --variant=apt bookworm FILE`, in place of a new one.
# Exit code 77: there is no clean Debian to be had.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(realpath "$1")
skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}
ls "$folder"/weft_*.deb >/dev/null
[ "$(id -u)" -eq 0 ] || skip "only root can change the root folder"
box=$(mktemp -d)
clean() {
    umount "$box/root/proc" "$box/root/dev" 2>/dev/null || true
    rm -rf --one-file-system "$box"
}
trap clean EXIT
base=${WEFT_DEBIAN_ROOT:-$box/base.tar}
if [ ! -e "$base" ]; then
    command -v mmdebstrap >/dev/null || skip "no mmdebstrap"
    mmdebstrap --quiet --variant=apt bookworm "$base" || skip "no Debian from the mirror"
fi
mkdir "$box/root"
tar -C "$box/root" --exclude './dev/*' -xf "$base"
mount -t proc proc "$box/root/proc"
mount --bind /dev "$box/root/dev"
cp /etc/resolv.conf "$box/root/etc/resolv.conf"
mkdir "$box/root/debs"
cp "$folder"/*.deb "$box/root/debs"
for wheel in "$folder"/weft-*.whl; do
    [ ! -e "$wheel" ] || cp "$wheel" "$box/root/debs"
done
cp "$here/use_packages.sh" "$here/serve_unit.py" "$here/ask.py" "$box/root/tmp"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+http_proxy="$http_proxy"} chroot "$box/root" bash /tmp/use_packages.sh /debs
