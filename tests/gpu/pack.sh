#!/usr/bin/env bash
# Everything that tests/gpu/run.sh needs on a machine with a GPU and without our packages, in one
# folder: the program and its libraries, models, and the tests of single operators.
#
#   pack.sh OUT [--weft PROGRAM] [--models FOLDER] [--only NAME,NAME] [--loose]
#
# PROGRAM: build/weft. FOLDER: of exported models; without it only the small ones of examples/.
# Models travel without the bulk of their weights (skeleton.py). --loose: not compressed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=
weft=$root/build/weft
models=
only=
loose=
while [ $# -gt 0 ]; do
    case $1 in
    --weft) weft=$2 && shift ;;
    --models) models=$2 && shift ;;
    --only) only=,$2, && shift ;;
    --loose) loose=1 ;;
    -*) echo "pack.sh: no option $1" >&2 && exit 2 ;;
    *) out=$1 ;;
    esac
    shift
done
[ -n "$out" ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
[ -x "$weft" ] || { echo "pack.sh: no program $weft (--weft)" >&2 && exit 1; }

mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/bin" "$stage/lib" "$stage/models" "$stage/cases"
programs=("$weft" "$weft"-compiler "$weft"-planner "$weft"-server)
install -m 755 "${programs[@]}" "$stage/bin/"
strip "$stage"/bin/*
# The C library and what belongs to it are the other machine's.
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
    grep -vE '^(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^ ]*)\.so' |
    while read -r name path; do cp -L "$path" "$stage/lib/$name"; done

cp "$root"/examples/*.onnx "$root"/tests/doubles/quantised.wir "$stage/models/"
# Single operators, with inputs and outputs that others computed.
data=${WEFT_ONNX_TESTDATA:-/usr/share/libonnx-testdata/data/node}
if [ -d "$data" ]; then
    while read -r pattern; do
        for folder in "$data"/$pattern; do
            if [ -d "$folder" ]; then cp -r "$folder" "$stage/cases/"; fi
        done
    done <"$here/cases.txt"
fi
if [ -n "$models" ]; then
    list=()
    for path in "$models"/*.onnx; do
        name=$(basename "$path" .onnx)
        if [ -n "$only" ] && [[ $only != *,$name,* ]]; then continue; fi
        list+=("$path")
    done
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import numpy, onnx' 2>/dev/null && break
        python=
    done
    [ -n "$python" ] || { echo "pack.sh: no Python with numpy and onnx" >&2 && exit 1; }
    "$python" "$here/skeleton.py" "$stage/models" "${list[@]}"
fi
if [ -n "$loose" ]; then
    rm -rf "$out/payload"
    cp -r "$stage" "$out/payload"
else
    (cd "$stage" && tar -c --sort=name --owner=0 --group=0 --mtime=@0 .) | xz -T0 -6 >"$out/payload.tar.xz"
fi
cp "$here"/run.sh "$here"/run.py "$here"/fill.py "$here"/bench_torch.py "$here"/facts.cu "$out/"
du -h "$out" | tail -1
