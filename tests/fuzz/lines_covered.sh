#!/usr/bin/env bash
# Which lines the inputs of fuzz targets reach, for each source file.
#
# usage: lines_covered.sh [--work FOLDER] [--build FOLDER] NAME...
#
# NAME: of a target, http1 for fuzz_http1. Their corpus is run, and FOLDER/NAME if there is one: what
# `fuzz_NAME FOLDER/NAME corpus/NAME` found. Prints the files of which a target executed a line.
# The build is one of its own (default build-coverage), because counters slow a fuzzer down.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work='' build=$root/build-coverage

while [ $# -gt 0 ]; do
    case $1 in
        --work) work=$2 && shift 2 ;;
        --build) build=$2 && shift 2 ;;
        -*) sed -n '2,/^set/{/^set/!p}' "$0" | sed 's/^# \{0,1\}//' >&2 && exit 2 ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || { echo "lines_covered.sh: no NAME (see its head)" >&2 && exit 2; }

cmake -S "$root" --preset fuzz -B "$build" -DWEFT_SANITIZE=OFF \
    -DCMAKE_C_FLAGS="-fprofile-instr-generate -fcoverage-mapping" >/dev/null
cmake --build "$build" --target "${@/#/fuzz_}" >/dev/null

for name in "$@"; do
    program=$build/tests/fuzz/fuzz_$name
    inputs=()
    for folder in "$root/tests/fuzz/corpus/$name" ${work:+"$work/$name"}; do
        [ ! -d "$folder" ] || inputs+=("$folder")
    done
    LLVM_PROFILE_FILE=$program.raw "$program" -runs=0 "${inputs[@]}" 2>"$program.log" ||
        { tail -n 20 "$program.log" >&2 && exit 1; }
    llvm-profdata merge -sparse "$program.raw" -o "$program.data"
    echo "fuzz_$name: lines covered, lines, share"
    llvm-cov export -summary-only -instr-profile "$program.data" "$program" |
        python3 -c '
import json, os, sys
for f in json.load(sys.stdin)["data"][0]["files"]:
    lines = f["summary"]["lines"]
    if lines["covered"] and "/tests/" not in f["filename"]:
        print("  %-44s %5d %5d %4.0f %%" % (os.path.relpath(f["filename"], sys.argv[1]), lines["covered"],
                                          lines["count"], lines["percent"]))' "$root"
done
