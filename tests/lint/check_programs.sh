#!/usr/bin/env bash
# What each program links (NOTICE says why): no program has both igraph (GPL) and CBC (EPL), the
# server and `weft` have neither, and the server contains no code of the compiler. Direct libraries
# are compared with the table below, indirect ones are searched for the two.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

build=${WEFT_BUILD_DIR:-$root/build}
for tool in readelf nm ldd; do
    command -v "$tool" >/dev/null || skip "no $tool"
done
# Libraries of the compiler and of sanitizers belong to every program.
common='libc libm libgcc_s libstdc++ ld-linux-x86-64 ld-linux-aarch64 libasan libubsan libclang_rt'

# May `program` need `library` (libNAME, without .so)?
allowed() {
    local program=$1 library=$2 list=
    case "$program" in
    weft) list= ;;
    weft-compiler) list='libigraph libxxhash libcyaml libyaml-0 libprotobuf-c libdnnl libgomp libjansson' ;;
    weft-planner) list='libCbcSolver libCbc libClp libprotobuf-c libjansson libxxhash libcyaml libyaml-0' ;;
    weft-server) list='libxxhash libcyaml libyaml-0 libjansson libprotobuf-c libdnnl libgomp libnghttp2 libssl libcrypto libz' ;;
    weft-transfer) list='libcurl libzstd libcrypto libjansson libprotobuf-c libxxhash' ;;
    esac
    case " $common $list " in *" $library "*) return 0 ;; esac
    return 1
}

found=0
for program in weft weft-compiler weft-planner weft-server weft-transfer; do
    [ -x "$build/$program" ] || continue
    found=$((found + 1))
    while read -r library; do
        allowed "$program" "$library" || fail "$program: needs $library, which is not in its list"
    done < <(readelf -d "$build/$program" | sed -nE 's/.*\(NEEDED\).*\[([^]]*)\.so.*/\1/p')
    all=$(ldd "$build/$program" 2>/dev/null | awk '{ print $1 }')
    igraph=$(grep -cE '^libigraph' <<<"$all" || true)
    cbc=$(grep -cE '^lib(Cbc|Clp|Cgl|Osi|CoinUtils)' <<<"$all" || true)
    case "$program" in
    weft-compiler) [ "$cbc" = 0 ] || fail "$program: links CBC, directly or not" ;;
    weft-planner) [ "$igraph" = 0 ] || fail "$program: links igraph, directly or not" ;;
    *) [ "$igraph$cbc" = 00 ] || fail "$program: links igraph or CBC, directly or not" ;;
    esac
    echo "$program: $(wc -l <<<"$all") shared libraries"
done
[ "$found" -gt 0 ] || skip "no program is built in $build"

# Symbols of the server that a library of the compiler defines.
if [ -x "$build/weft-server" ]; then
    for library in frontend passes codegen estimator; do
        archive=$(find "$build" -name "libweft_$library.a" -print -quit 2>/dev/null)
        [ -n "$archive" ] || continue
        while read -r symbol; do
            fail "weft-server: contains $symbol of $library"
        done < <(comm -12 \
            <(nm --defined-only "$build/weft-server" | awk '$3 ~ /^weft_/ { print $3 }' | LC_ALL=C sort -u) \
            <(nm -g --defined-only "$archive" 2>/dev/null | awk 'NF == 3 && $3 ~ /^weft_/ { print $3 }' |
                LC_ALL=C sort -u))
    done
fi
finish
