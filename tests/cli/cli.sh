#!/usr/bin/env bash
# Runs one test of the command line: `cli.sh TEST.sh`, with WEFT (the program) and WEFT_SOURCE_DIR
# in the environment. The test is sourced in an empty folder that is removed afterwards, and ends
# with the first expectation that does not hold. What it may use:
#
#   expect CODE COMMAND...   runs the command, standard output to `out`, standard error to `err`,
#                            and insists on its exit code
#   has FILE TEXT, lacks FILE TEXT, empty FILE, filled FILE
#   await FILE TEXT [LOG]    waits until the file has the text; a server that ends before, and wrote
#                            to LOG, is a failure, and so is a minute without the text
#   at_most A B              A <= B, whole numbers
#   skip REASON, die REASON
#   find_python [MODULE]     sets $python to a Python with numpy (MODULE), or skips
#   $examples                the folder of the demo's models
set -euo pipefail

die() {
    printf 'FAILED: %s\n' "$*"
    exit 1
}

skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}

expect() {
    local want=$1 code=0
    shift
    "$@" >out 2>err || code=$?
    if [ "$code" -ne "$want" ]; then
        printf 'command: %s\n' "$*"
        printf 'standard output:\n%s\n' "$(head -c 2000 out | tr -d '\0')"
        printf 'standard error:\n%s\n' "$(head -c 2000 err)"
        die "exit code $code, expected $want"
    fi
}

shown() { head -c 2000 "$1"; }
has() { grep -qF -- "$2" "$1" || die "'$2' is not in $1: $(shown "$1")"; }
lacks() { ! grep -qF -- "$2" "$1" || die "'$2' is in $1: $(shown "$1")"; }
await() {
    for _ in $(seq 1500); do
        if grep -qsF -- "$2" "$1"; then return; fi
        [ -z "$server" ] || kill -0 "$server" 2>/dev/null ||
            die "the server ended before '$2' was in $1: $(shown "${3-$1}")"
        sleep 0.04
    done
    die "'$2' does not come into $1: $(shown "$1") $(shown "${3-/dev/null}")"
}
empty() { [ ! -s "$1" ] || die "$1 is not empty: $(shown "$1")"; }
filled() { [ -s "$1" ] || die "$1 is empty"; }
at_most() { [ "$1" -le "$2" ] || die "$1 is more than $2"; }
bytes() { stat -c %s "$1"; }
# The first Python that has a module; Debian's may not be the first in PATH.
find_python() {
    for python in python3 /usr/bin/python3; do
        "$python" -c "import ${1:-numpy}" 2>/dev/null && return 0
    done
    skip "no ${1:-numpy}"
}
verbs() { sed -n 's/^VERB(\([a-z]*\), .*/\1/p' "$WEFT_SOURCE_DIR/tools/verbs.def"; }

test_file=$(realpath "$1")
: "${WEFT:?the program to test}" "${WEFT_SOURCE_DIR:?the source tree}"
# A calibration of this machine would change estimates.
export XDG_STATE_HOME=/nonexistent
export examples=$WEFT_SOURCE_DIR/examples
box=$(mktemp -d "${TMPDIR:-/tmp}/weft-cli.XXXXXX")
server=
clean_up() {
    if [ -n "$server" ]; then kill -KILL "$server" 2>/dev/null || true; fi
    cd /
    rm -rf "$box"
}
trap clean_up EXIT
cd "$box"
# shellcheck source=/dev/null
. "$test_file"
