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
    store) case "$header" in base/* | ops/* | ir/cost.h | ir/bundle.h) return 0 ;; esac ;;
    runtime)
        case "$header" in
        base/* | ops/* | ir/cost.h | ir/bundle.h | scheduler/scheduler.h) return 0 ;;
        esac
        ;;
    api)
        case "$header" in
        base/* | ops/* | ir/cost.h | ir/bundle.h | runtime/runtime.h | include/weft/weft.h) return 0 ;;
        esac
        ;;
    tools)
        case "$header" in
        base/* | ops/* | ir/ir.h | ir/cost.h | ir/bundle.h) return 0 ;;
        runtime/adapter/adapter.h | runtime/machine/machine.h | runtime/server/server.h) return 0 ;;
        *) [ "$header" = "$to/$to.h" ] && return 0 ;;
        esac
        ;;
    include) return 1 ;;
    *) return 0 ;;
    esac
    return 1
}

# Rooms of one folder, from below to above: which other rooms a room may include. Headers directly in
# the folder are for all its rooms, and files directly in the folder may include every room's door.
rooms_below() {
    case "$1" in
    passes/similarity) echo ;;
    passes/merge) echo similarity ;;
    estimator/device) echo ;;
    estimator/workload) echo device ;;
    estimator/models) echo device workload ;;
    scheduler/input | scheduler/dispatch) echo ;;
    scheduler/builder) echo input ;;
    scheduler/plan) echo input builder ;;
    scheduler/mig) echo input builder ;;
    scheduler/export) echo input plan ;;
    scheduler/policies | scheduler/control) echo input plan builder mig ;;
    scheduler/simulate) echo input plan builder mig control ;;
    runtime/kernel | runtime/adapter) echo ;;
    runtime/cpu | runtime/cuda | runtime/null) echo kernel ;;
    runtime/session) echo kernel ;;
    runtime/machine) echo kernel cuda session ;;
    runtime/server) echo adapter session machine ;;
    tools/common) echo ;;
    tools/front | tools/profile) echo common ;;
    tools/report | tools/doctor) echo common ;;
    tools/compiler) echo common profile report ;;
    tools/planner) echo common profile ;;
    tools/server) echo common doctor ;;
    tools/transfer) echo common ;;
    codegen/cuda) echo ;;
    esac
}

# May a file of room $1 (folder/room) include "$2" (folder/room/file.h) of another room?
room_allowed() {
    local header=$2 to
    to=${header#*/}
    to=${to%%/*}
    case "$header" in *_int.h) return 1 ;; esac
    case " $(rooms_below "$1") " in *" $to "*) return 0 ;; esac
    return 1
}

# Library headers that belong to one layer: pattern of the name, and the folders or files that may
# use it.
owners_of() {
    case "$1" in
    onnx/onnx.pb-c.h) echo frontend ;;
    dnnl.h | dnnl_*.h | nghttp2/*) echo runtime ;;
    openssl/*) echo runtime store ;;
    curl/* | zstd.h) echo store ;;
    cuda*.h | cudnn*.h | nvrtc*.h) echo runtime codegen ;;
    igraph.h | igraph/*) echo passes/merge/igraph_adapter.c ;;
    coin/*) echo scheduler ;;
    cyaml/cyaml.h | yaml.h) echo scheduler ;;
    esac
}

# Rooms have folders of their own: folder/room/file.
check_room() { # FILE LINE HEADER
    local room=${1%/*} to=${3%/*}
    # What a program links decides what its room may include.
    case "$room:${3%%/*}" in
    tools/server:frontend | tools/server:passes | tools/server:codegen | tools/server:estimator | \
        tools/transfer:frontend | tools/transfer:passes | tools/transfer:codegen | tools/transfer:estimator | \
        tools/doctor:frontend | tools/doctor:passes | tools/doctor:codegen | tools/doctor:estimator | \
        tools/planner:codegen | tools/planner:runtime | \
        tools/common:frontend | tools/common:passes | tools/common:codegen | tools/common:estimator | \
        tools/common:runtime)
        fail "$1:$2: $room/ may not include \"$3\""
        ;;
    esac
    case "$room" in */*) ;; *) return 0 ;; esac
    case "$to" in */*) ;; *) return 0 ;; esac
    [ "${room%%/*}" = "${to%%/*}" ] && [ "$room" != "$to" ] || return 0
    case "$to" in "$room"/*) return 0 ;; esac
    room_allowed "$room" "$3" || fail "$1:$2: $room/ may not include \"$3\""
}

check_include() { # FILE LINE MARK HEADER
    local file=$1 number=$2 mark=$3 header=$4 from=${1%%/*} owners
    owners=$(owners_of "$header")
    if [ -n "$owners" ]; then
        case " $owners tools tests " in
        *" $from "* | *" $file "*) ;;
        *) fail "$file:$number: <$header> belongs to $owners" ;;
        esac
    elif [ "$mark" = '"' ]; then
        case "$header" in
        ../* | */../*) fail "$file:$number: \"$header\": include from the root of the tree" ;;
        */*)
            allowed "$from" "$header" ||
                fail "$file:$number: $from/ may not include \"$header\""
            check_room "$file" "$number" "$header"
            ;;
        esac
    fi
}

cd "$root"
while IFS='|' read -r file number mark header; do
    case "$file" in
    tests/*) ;;
    *) check_include "$file" "$number" "$mark" "$header" ;;
    esac
done < <(tree '*.c' '*.h' '*.def' |
    xargs -r grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' |
    sed -E 's/^([^:]+):([0-9]+):[^"<]*(["<])([^">]+).*/\1|\2|\3|\4/' || true)

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
    plant runtime/planted.c '"scheduler/mig/mig.h"'
    plant tools/planted.c '"passes/passes_int.h"'
    plant api/planted.c '"runtime/server/server.h"'
    plant api/planted.c '"ir/ir.h"'
    plant include/weft/planted.h '"base/err.h"'
    plant passes/planted.c '<onnx/onnx.pb-c.h>'
    plant frontend/planted.c '<dnnl.h>'
    plant passes/merge/planted.c '<igraph/igraph.h>'
    plant base/planted.c '"../ir/ir.h"'
    plant runtime/session/planted.c '"runtime/server/serve.h"'
    plant runtime/cpu/planted.c '"runtime/session/session.h"'
    plant runtime/server/planted.c '"runtime/session/session_int.h"'
    plant scheduler/plan/planted.c '"scheduler/policies/policies.h"'
    plant passes/similarity/planted.c '"passes/merge/merge.h"'
    plant tools/server/planted.c '"tools/profile/profiles.h"'
    plant tools/server/planted.c '"passes/passes.h"'
    plant tools/planner/planted.c '"runtime/runtime.h"'
    plant estimator/device/planted.c '"estimator/models/models.h"'
    mkdir -p "$copy/good/passes/merge" "$copy/good/runtime"
    printf '#include "passes/similarity/similar.h"\n' >"$copy/good/passes/merge/planted.c"
    printf '#include "ir/ir.h"\n#include "estimator/estimator.h"\n' >"$copy/good/passes/planted.c"
    printf '#include "ir/bundle.h"\n#include <dnnl.h>\n' >"$copy/good/runtime/planted.c"
    bash "$lint_dir/check_layers.sh" "$copy/good" plain >"$copy/out" 2>&1 ||
        fail "a clean tree is refused: $(cat "$copy/out")"
fi
finish
