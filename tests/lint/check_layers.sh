#!/usr/bin/env bash
# Who may include whom. Across folders only doors are included (folder/folder.h; every header of base
# and ops is public; of ir, scheduler and runtime may see cost.h and bundle.h alone). Tested both
# ways: with a second argument "plain" it only checks the tree; otherwise it also plants wrong
# includes in a copy and insists that each is named.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

# May a file of folder $1 include "$2" (folder/file.h)?
allowed() {
    local from=$1 header=$2 to=${2%%/*}
    [ "$from" = "$to" ] && return 0
    case "$from" in
    base) return 1 ;;
    ops) case "$header" in base/*) return 0 ;; esac ;;
    ir) case "$header" in base/* | ops/*) return 0 ;; esac ;;
    frontend) case "$header" in base/* | ops/* | ir/ir.h) return 0 ;; esac ;;
    estimator) case "$header" in base/* | ops/* | ir/ir.h | ir/cost.h) return 0 ;; esac ;;
    passes)
        case "$header" in
        base/* | ops/* | ir/ir.h | ir/cost.h | estimator/estimator.h) return 0 ;;
        esac
        ;;
    codegen)
        case "$header" in
        base/* | ops/* | ir/ir.h | ir/cost.h | ir/bundle.h | estimator/estimator.h) return 0 ;;
        esac
        ;;
    scheduler) case "$header" in base/* | ir/cost.h | ir/bundle.h) return 0 ;; esac ;;
    runtime)
        case "$header" in
        base/* | ops/* | ir/cost.h | ir/bundle.h | scheduler/scheduler.h) return 0 ;;
        esac
        ;;
    tools)
        case "$header" in
        base/* | ops/* | ir/ir.h | ir/cost.h | ir/bundle.h) return 0 ;;
        *) [ "$header" = "$to/$to.h" ] && return 0 ;;
        esac
        ;;
    include) return 1 ;;
    *) return 0 ;;
    esac
    return 1
}

check_file() { # FILE, relative to the root
    local file=$1 from=${1%%/*} line number header
    while IFS=: read -r number line; do
        header=$(sed -E 's/.*"([^"]+)".*/\1/' <<<"$line")
        case "$header" in
        ../* | */../*) fail "$file:$number: \"$header\": include from the root of the tree" ;;
        */*)
            # Generated from .proto files: the bundle's messages belong to ir/, ONNX's to frontend/.
            case "$header" in
            onnx/*.pb-c.h) [ "$from" = frontend ] || [ "$from" = tests ] ||
                fail "$file:$number: ONNX's protobuf types are seen in frontend/ only" ;;
            *) allowed "$from" "$header" ||
                fail "$file:$number: $from/ may not include \"$header\"" ;;
            esac
            ;;
        esac
    done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$root/$file" || true)
    # Library headers that belong to one layer.
    local name owners
    for rule in 'onnx/onnx\.pb-c\.h:frontend' 'dnnl(_[a-z]+)?\.h:runtime' 'cuda[A-Za-z_]*\.h:runtime codegen' \
        'microhttpd\.h:runtime' 'nghttp2/[a-z0-9]+\.h:runtime' 'igraph[a-z/_]*\.h:passes' \
        'cyaml/cyaml\.h:scheduler' 'yaml\.h:scheduler'; do
        name=${rule%%:*} owners=${rule#*:}
        case " $owners tests tools " in *" $from "*) continue ;; esac
        while IFS=: read -r number line; do
            fail "$file:$number: <${name//\\/}> belongs to $owners"
        done < <(grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*<$name>" "$root/$file" || true)
    done
}

while read -r file; do
    case "$file" in tests/*) continue ;; esac
    check_file "$file"
done < <(tree '*.c' '*.h' '*.def')

if [ "${2:-}" != plain ]; then
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    plant() { # FILE INCLUDE: a tree with this one wrong include must be refused by name
        rm -rf "${copy:?}/tree"
        mkdir -p "$copy/tree/$(dirname "$1")"
        printf '#include "base/err.h"\n#include %s\n' "$2" >"$copy/tree/$1"
        if bash "$lint_dir/check_layers.sh" "$copy/tree" plain >"$copy/out" 2>&1; then
            fail "planted in $1: $2: not found"
        elif ! grep -qF "$1:2: " "$copy/out"; then
            fail "planted in $1: $2: refused without naming it: $(cat "$copy/out")"
        fi
    }
    plant base/planted.c '"ir/ir.h"'
    plant ops/planted.c '"ir/ir.h"'
    plant ir/planted.c '"passes/passes.h"'
    plant frontend/planted.c '"runtime/runtime.h"'
    plant estimator/planted.c '"passes/passes.h"'
    plant passes/planted.c '"frontend/frontend.h"'
    plant passes/planted.c '"ir/ir_int.h"'
    plant codegen/planted.c '"passes/passes.h"'
    plant scheduler/planted.c '"ir/ir.h"'
    plant scheduler/planted.c '"estimator/estimator.h"'
    plant runtime/planted.c '"codegen/codegen.h"'
    plant runtime/planted.c '"ir/ir.h"'
    plant runtime/planted.c '"scheduler/scheduler_int.h"'
    plant tools/planted.c '"passes/passes_int.h"'
    plant passes/planted.c '<onnx/onnx.pb-c.h>'
    plant frontend/planted.c '<dnnl.h>'
    plant base/planted.c '"../ir/ir.h"'
    mkdir -p "$copy/good/passes" "$copy/good/runtime"
    printf '#include "ir/ir.h"\n#include "estimator/estimator.h"\n' >"$copy/good/passes/planted.c"
    printf '#include "ir/bundle.h"\n#include <dnnl.h>\n' >"$copy/good/runtime/planted.c"
    bash "$lint_dir/check_layers.sh" "$copy/good" plain >"$copy/out" 2>&1 ||
        fail "a clean tree is refused: $(cat "$copy/out")"
fi
finish
