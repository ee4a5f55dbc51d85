#!/usr/bin/env bash
# Compiles unit/test_cuda_api.c with cuda.h and cudaTypedefs.h of every toolkit that its build accepts,
# unit/test_nvml_api.c with nvml.h of two, and each once with a wrong declaration, which must not compile.
#   cuda_headers.sh CC
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cc=$1
wheels=$(bash "$root/scripts/fetch_wheels.sh" "$root/tests/cuda_headers.txt")
check() { # INCLUDE FILE
    "$cc" -std=c11 -fsyntax-only -DWEFT_CUDA_HEADERS -DWEFT_NVML_HEADERS -I"$root" -isystem "$1" "$2"
}
wrong=$(mktemp -d "${TMPDIR:-/tmp}/weft-headers.XXXXXX")
trap 'rm -rf "$wrong"' EXIT
{
    printf '#include "tests/unit/test_cuda_api.c"\n'
    printf 'FIELD(weft_cu_memset_node, CUDA_MEMCPY_NODE_PARAMS, flags);\n'
} >"$wrong/cuda.c"
{
    printf '#include "tests/unit/test_nvml_api.c"\n'
    printf 'FIELD(weft_nvml_event, gi, nvmlEventData_t, eventData);\n'
} >"$wrong/nvml.c"
n=0
for header in "$wheels"/*/nvidia/*/include/{cuda,nvml}.h; do
    api=$(basename "$header" .h)
    echo "$api.h, API $(sed -nE "s/^#define (CUDA|NVML_API)_VERSION +([0-9]+).*/\2/p" "$header")"
    check "$(dirname "$header")" "$root/tests/unit/test_${api}_api.c"
    ! check "$(dirname "$header")" "$wrong/$api.c" 2>"$wrong/log" || {
        echo "a wrong declaration is not found"
        exit 1
    }
    n=$((n + 1))
done
[ "$n" -eq "$(grep -c == "$root/tests/cuda_headers.txt")" ] || {
    echo "only $n headers"
    exit 1
}
