#!/usr/bin/env bash
# Every test of Weft: installs what is missing, builds with gcc under AddressSanitizer and
# UndefinedBehaviorSanitizer and runs those tests; beside them builds with gcc (warnings are errors) and
# translates all sources with clang (warnings are errors); then runs the tests of that build. WEFT_JOBS: how many at a time (default: one per CPU).
#
#   scripts/test.sh          what says the same of both builds runs in one of them
#   scripts/test.sh --all    both builds run all of theirs: about three minutes longer on two CPUs
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
jobs=${WEFT_JOBS:-$(nproc)}
once=(--label-exclude '^sanitized$')
case "$*" in
'') ;;
--all) once=() ;;
*) echo "usage: scripts/test.sh [--all]" >&2; exit 2 ;;
esac
began=$SECONDS

say() { printf '\n== [%4ds] %s\n' $((SECONDS - began)) "$*"; }

# A compiler cache is used where there is one, never required.
if command -v ccache >/dev/null && [ -z "${CMAKE_C_COMPILER_LAUNCHER:-}" ]; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
fi
export NINJA_STATUS='[%f/%t %es] '

build() { # PRESET
    say "build: $1"
    cmake --preset "$1" >/dev/null
    cmake --build --preset "$1" -j "$jobs"
}

failed=()
run_tests() { # PRESET [CTEST OPTION...]
    local preset=$1
    shift
    say "tests: $preset"
    # Three more than CPUs: tests of servers wait much.
    ctest --test-dir "build-$preset" -j $((jobs + 3)) --timeout 600 --output-on-failure "$@" ||
        failed+=("tests of $preset")
}

say "packages"
bash scripts/setup.sh

build asan

# The release build is made and translated with clang beside the tests of the other one, of which many wait: by
# what those leave of the CPUs.
log=$(mktemp)
builder=
trap '[ -z "$builder" ] || kill -- "-$builder" 2>/dev/null || true; rm -f "$log"' EXIT
set -m # a process group of its own, which ends with this script
( # 3: what calls this script, at once; all else waits in the log
    set -E # the trap holds in build(), too
    trap 'say "FAILED: build or check of ci; its output follows these tests" >&3' ERR
    build ci
    say "check: clang"
    WEFT_JOBS=$jobs bash scripts/clang_check.sh build-ci
) 3>&1 >"$log" 2>&1 </dev/null &
builder=$!
set +m
renice -n 19 -g "$builder" >/dev/null 2>&1 || true

# The sanitizers make programs several times slower: tests that only take long stay out, and so do
# lint, which reads sources, recorded numbers of code that unit tests run as well, and tests that run
# nothing of Weft (release). Commands, servers, doubles and calls that fail (sanitized) run
# in their build only, but for what measures memory (tests/README.md).
asan=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-$asan}
export LSAN_OPTIONS=${LSAN_OPTIONS:-print_suppressions=0:suppressions=$root/tests/support/lsan.supp}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
run_tests asan --label-exclude '^(slow|bench|lint|regress|release)$'
built=0
wait "$builder" || built=$?
trap 'rm -f "$log"' EXIT # the number of a process that has ended may be given to another
cat "$log"
if [ "$built" -eq 0 ]; then
    run_tests ci ${once[@]+"${once[@]}"}
else
    failed+=("build or check of ci")
fi

if [ ${#failed[@]} -gt 0 ]; then
    IFS=,
    say "FAILED: ${failed[*]}"
    exit 1
fi
say "all tests passed"
