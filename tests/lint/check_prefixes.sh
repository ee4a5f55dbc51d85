#!/usr/bin/env bash
# The noun in a function's name (weft_<noun>_...) tells the room: no noun has functions in two rooms.
# Records of tables (weft_pass_dce, weft_driver_cpu) are data, and stand where they are defined. Tested
# both ways: two planted functions of one noun in two rooms must be named.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

build=${WEFT_BUILD_DIR:-$root/build}
command -v nm >/dev/null && command -v ar >/dev/null || skip "no nm or no ar"

# prefixes ROOT ARCHIVE...: a line "noun room symbol room symbol" for each noun of two rooms.
prefixes() {
    local tree=$1
    shift
    {
        (cd "$tree" && find . -path ./tests -prune -o -path './build*' -prune -o -name '*.c' -printf 'file %f %P\n')
        nm -A -g --defined-only "$@" 2>/dev/null | sed -nE 's/^[^:]*:([^:]+)\.o:[0-9a-f]* T (weft_([a-z0-9]+)_*.*)$/symbol \1 \2 \3/p'
    } | awk '$1 == "file" { room = $3; sub("/[^/]*$", "", room); sub("^tools/.*", "tools", room); rooms[$2] = room; next }
             !($2 in rooms) { next }
             !(($4, rooms[$2]) in seen) { seen[$4, rooms[$2]] = 1; n[$4]++; text[$4] = text[$4] " " rooms[$2] ": " $3 }
             END { for (noun in n) if (n[noun] > 1) print noun text[noun] }' | sort
}

planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
mkdir -p "$planted/ir" "$planted/ops/room"
printf 'int weft_tile_get(void); int weft_tile_get(void) { return 1; }\n' >"$planted/ir/a.c"
printf 'int weft_tile__put(void); int weft_tile__put(void) { return 1; }\n' >"$planted/ops/room/b.c"
printf 'int weft_lane_put(void); int weft_lane_put(void) { return 1; }\n' >"$planted/ops/room/c.c"
(cd "$planted" && "${WEFT_CC:-cc}" -c ir/a.c -o a.c.o && "${WEFT_CC:-cc}" -c ops/room/b.c -o b.c.o &&
    "${WEFT_CC:-cc}" -c ops/room/c.c -o c.c.o && ar rc all.a a.c.o b.c.o c.c.o)
said=$(prefixes "$planted" "$planted/all.a")
[ "$said" = "tile ir: weft_tile_get ops/room: weft_tile__put" ] || fail "planted functions of one noun: found '$said'"

mapfile -t archives < <(find "$build" -name 'libweft_*.a' ! -name '*_proto.a' | sort)
[ ${#archives[@]} -gt 0 ] || skip "no library is built in $build"
while IFS= read -r said; do
    [ -z "$said" ] || fail "functions of one noun in two rooms: $said"
done < <(prefixes "$root" "${archives[@]}")
echo "${#archives[@]} libraries"
finish
