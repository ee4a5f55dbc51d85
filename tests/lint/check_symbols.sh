#!/usr/bin/env bash
# Every symbol that the static libraries export begins with weft_. Generated protobuf code is in
# libraries of its own (libweft_*_proto.a) and is not ours to name. runtime/cpu/cpu_omp.c takes the place
# of the entry points of OpenMP's runtime that oneDNN calls.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

build=${WEFT_BUILD_DIR:-$root/build}
command -v nm >/dev/null || skip "no nm"
found=0
for library in $libraries; do
    archive=$(find "$build" -name "libweft_$library.a" -print -quit 2>/dev/null)
    [ -n "$archive" ] || continue
    found=$((found + 1))
    # Names with two leading underscores belong to the compiler (sanitizers, coverage).
    while read -r symbol; do
        case "$library:$symbol" in runtime:GOMP_* | runtime:omp_*) continue ;; esac
        fail "$library: exports $symbol"
    done < <(nm -g --defined-only "$archive" 2>/dev/null |
        awk 'NF == 3 && $3 !~ /^weft_/ && $3 !~ /^__/ { print $3 }' | sort -u)
done
[ "$found" -gt 0 ] || skip "no library is built in $build"
echo "$found libraries"
finish
