#!/usr/bin/env bash
# No two object files of a library use each other's symbols, directly or in a ring: rings.py computes
# that from the built libraries. Tested both ways: a library with a planted ring must be refused.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

build=${WEFT_BUILD_DIR:-$root/build}
command -v nm >/dev/null && command -v ar >/dev/null || skip "no nm or no ar"
command -v python3 >/dev/null || skip "no python3"

planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
link_chain() { # NAME LAST: a.c uses b.c uses c.c uses LAST
    printf 'int weft_b(void); int weft_a(void); int weft_a(void) { return weft_b(); }\n' >"$planted/a.c"
    printf 'int weft_c(void); int weft_b(void); int weft_b(void) { return weft_c(); }\n' >"$planted/b.c"
    printf 'int weft_%s(void); int weft_c(void); int weft_c(void) { return weft_%s(); }\n' "$2" "$2" \
        >"$planted/c.c"
    (cd "$planted" && "${WEFT_CC:-cc}" -c a.c b.c c.c && rm -f "$1" && ar rc "$1" a.o b.o c.o)
}
link_chain chain.a other
python3 "$lint_dir/rings.py" "$planted/chain.a" >"$planted/said" || fail "a chain is refused: $(cat "$planted/said")"
link_chain ring.a a
if python3 "$lint_dir/rings.py" "$planted/ring.a" >"$planted/said"; then
    fail "a planted ring is not found"
else
    grep -q 'ring of 3 files: a.o b.o c.o' "$planted/said" || fail "the planted ring is not named: $(cat "$planted/said")"
fi

mapfile -t archives < <(find "$build" -name 'libweft_*.a' ! -name '*_proto.a' | sort)
[ ${#archives[@]} -gt 0 ] || skip "no library is built in $build"
while IFS= read -r said; do
    fail "$said"
done < <(python3 "$lint_dir/rings.py" "${archives[@]}" || true)
echo "${#archives[@]} libraries"
finish
