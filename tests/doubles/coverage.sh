#!/usr/bin/env bash
# Line coverage of the CUDA driver by the tests on the doubles: `coverage.sh FOLDER PERCENT`, where
# FOLDER has the gcov data of runtime/cuda. Fails if less than PERCENT of its lines were executed.
set -euo pipefail
folder=$1 wanted=$2
gcov=${GCOV:-gcov}
command -v "$gcov" >/dev/null || { echo "no gcov"; exit 77; }
mapfile -t counts < <(find "$folder" -name 'drv_cuda*.gcda' -o -name 'cuda_load*.gcda')
[ ${#counts[@]} -gt 0 ] || { echo "no counts in $folder: the tests did not run"; exit 77; }
cd "$folder"
"$gcov" -n "${counts[@]}" 2>/dev/null | awk -v wanted="$wanted" '
    /^File / { file = $2; gsub(/.*\/|'"'"'/, "", file); next }
    /^Lines executed:/ && file ~ /^(drv_cuda.*|cuda_load)\.c$/ {
        split($0, part, /[:%]| of /)
        printf "%6.2f %% of %4d lines  %s\n", part[2], part[4], file
        lines += part[4]
        reached += part[2] * part[4] / 100
        file = ""
    }
    END {
        if (!lines) { print "gcov says nothing"; exit 1 }
        printf "%6.2f %% of %4d lines\n", 100 * reached / lines, lines
        exit 100 * reached / lines < wanted
    }'
