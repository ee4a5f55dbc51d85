#!/usr/bin/env bash
# What the checks share; sourced, not run. `root` is the tree to check (first argument of the check).
set -euo pipefail
lint_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "${1:-$lint_dir/../..}" && pwd)
failures=0

fail() {
    printf '%s\n' "$*"
    failures=$((failures + 1))
}

finish() {
    if [ "$failures" -gt 0 ]; then
        printf '%d problem(s)\n' "$failures"
        exit 1
    fi
    echo "ok"
    exit 0
}

skip() {
    echo "skipped: $*"
    exit 77
}

# The files of the tree that match any of the given name patterns, relative to the root, sorted.
# Build trees (build*/) and hidden folders are no part of it.
tree() {
    local args=() pattern
    for pattern in "$@"; do
        args+=(-o -name "$pattern")
    done
    (cd "$root" && find . \( -path './.git' -o -path './build*' -o -name __pycache__ \) -prune -o \
        -type f \( "${args[@]:1}" \) -printf '%P\n' | LC_ALL=C sort)
}

# shellcheck disable=SC2034  # used by the checks that source this
libraries='base ops ir frontend estimator passes codegen scheduler runtime api'
