#!/usr/bin/env bash
# Builds Weft for aarch64 on another Debian 12 machine and runs its tests under qemu-user, then compares
# bundles that both compile: `scripts/aarch64.sh [CTEST OPTION...]` (default: unit tests, golden cases,
# fuzz corpora, ONNX conformance, the C API and the server). Needs root: for the handler of binfmt_misc,
# as tests start programs of Weft themselves.
#
# WEFT_AARCH64_ROOT: the folder with the libraries of arm64, made by this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export WEFT_AARCH64_ROOT=${WEFT_AARCH64_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/weft/aarch64-root}
lib=$WEFT_AARCH64_ROOT/usr/lib/aarch64-linux-gnu

say() { printf 'aarch64: %s\n' "$*"; }
for program in mmdebstrap qemu-aarch64-static aarch64-linux-gnu-gcc aarch64-linux-gnu-g++; do
    command -v "$program" >/dev/null || {
        say "no $program: apt-get install mmdebstrap qemu-user-static gcc-aarch64-linux-gnu g++-aarch64-linux-gnu"
        exit 1
    }
done

# A root of other packages is made anew.
packages=libc6-dev,libgcc-12-dev,libstdc++-12-dev,libgomp1,libprotobuf-c-dev,libonnx-dev,libdnnl-dev,libigraph-dev
packages+=,coinor-libcbc-dev,libnghttp2-dev,libssl-dev,libjansson-dev,libcyaml-dev,libyaml-dev,libxxhash-dev
packages+=,zlib1g-dev,libcurl4-openssl-dev,libzstd-dev,libcmocka-dev
if [ "$(cat "$WEFT_AARCH64_ROOT/packages" 2>/dev/null)" != "$packages" ]; then
    [ ! -e "$WEFT_AARCH64_ROOT" ] || [ -e "$WEFT_AARCH64_ROOT/packages" ] || {
        say "$WEFT_AARCH64_ROOT was not made by this script: name another folder, or remove it"
        exit 1
    }
    say "libraries of arm64 into $WEFT_AARCH64_ROOT"
    mkdir -p "$(dirname "$WEFT_AARCH64_ROOT")"
    rm -rf "$WEFT_AARCH64_ROOT.part" "$WEFT_AARCH64_ROOT"
    # Unpacked only, so no program of arm64 runs.
    mmdebstrap --arch=arm64 --variant=extract --include="$packages" bookworm "$WEFT_AARCH64_ROOT.part"
    mv "$WEFT_AARCH64_ROOT.part" "$WEFT_AARCH64_ROOT"
    # What the packages' own scripts would have chosen.
    for name in blas lapack; do
        for file in "$lib/$name"/*.so*; do ln -sf "$name/$(basename "$file")" "$lib"; done
    done
    printf '%s\n' "$packages" >"$WEFT_AARCH64_ROOT/packages"
fi

if [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
    [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    cat /usr/lib/binfmt.d/qemu-aarch64.conf >/proc/sys/fs/binfmt_misc/register
    trap 'echo -1 >/proc/sys/fs/binfmt_misc/qemu-aarch64' EXIT
fi
export QEMU_LD_PREFIX=$WEFT_AARCH64_ROOT

cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 -j "$(nproc)"
[ -x build-ci/weft ] || { cmake --preset ci >/dev/null && cmake --build --preset ci -j "$(nproc)"; }

# The interpreter computes float vectors lane by lane, about 30 times as slow as a CPU: kernels for GPUs,
# which the host computes in the tests, are left out, and what the linker and Python of this machine load.
options=(--timeout 1500 --output-on-failure -j "$(nproc)")
[ $# -gt 0 ] || set -- -R '^(unit|golden|fuzz|api|conform/onnx|conform/serve)/' -E 'unit/cuda_|api/(install|python)$' \
    -LE '^(slow|bench|lint|regress|release)$'
failed=0
ctest --test-dir build-aarch64 "${options[@]}" "$@" || failed=1

# Bundles are the same bytes whichever host compiles them.
box=$(mktemp -d)
for set in examples/digits.yaml examples/*.onnx; do
    for host in ci aarch64; do
        "build-$host/weft" compile "$set" -o "$box/$host.weft" >/dev/null
    done
    if cmp "$box/ci.weft" "$box/aarch64.weft"; then
        say "$set: equal bundles"
    else
        failed=1
    fi
done
rm -rf "$box"
exit "$failed"
