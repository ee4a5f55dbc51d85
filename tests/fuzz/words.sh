#!/usr/bin/env bash
# A dictionary for libFuzzer, from the tables that the readers know words from.
#
# usage: words.sh onnx|wir|set|pbtxt
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

quote() { sort -u | sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&"/'; }

types() { grep -ohE '^ +X\([A-Z0-9]+, "[a-z0-9]+"' base/dtype.h | cut -d'"' -f2; }

case ${1:-} in
    onnx)
        {
            grep -ohE '^ONNX\([A-Za-z0-9]+' frontend/onnx_ops*.def | cut -d'(' -f2
            grep -ohE '^A\([A-Z0-9_]+, "[a-z0-9_]+"' ops/attrs.def | cut -d'"' -f2
            grep -ohE '"[a-z]+\.[a-z.]+"' frontend/onnx_domains.def | tr -d '"'
        } | quote
        ;;
    wir)
        {
            grep -ohE '\.name = "[a-z0-9_]+"' ops/*.def | cut -d'"' -f2
            grep -ohE '^A\([A-Z0-9_]+, "[a-z0-9_]+"' ops/attrs.def | cut -d'"' -f2 | sed 's/$/ = /'
            types
            printf '%s\n' 'weight $' 'symbol ?' 'graph @' 'buffer ' 'bucket ' dense splat floordiv max min data body
        } | quote
        ;;
    set)
        grep -oE '^\| `[^`]+`' docs/set-file.md | tr -d '|` ' | sed 's/.*\.//; s/$/: /' | quote
        ;;
    pbtxt)
        {
            grep -ohE '\{"[a-z_]+", [a-zN]' scheduler/input/model_config.c | cut -d'"' -f2 | sed 's/$/: /'
            types | tr a-z A-Z | sed 's/^/TYPE_/'
            printf '%s\n' TYPE_FP32 TYPE_INT64 ' {' '}' '[ ' ']' '"x"'
        } | quote
        ;;
    *)
        echo "usage: $0 onnx|wir|set|pbtxt" >&2
        exit 2
        ;;
esac
