# What libweft.so.1 and libweft.a export and need: the functions of weft.h and the entry points of
# OpenMP; no compiler, no igraph, no solver, no code of the server.
build=$(dirname "$WEFT")
for tool in nm readelf ldd; do
    command -v $tool >/dev/null || skip "no $tool"
done
map() { sed -nE 's/^ +([A-Za-z_]+);$/\1/p' "$WEFT_SOURCE_DIR/api/weft.map" | LC_ALL=C sort; }
map >want
nm -D --defined-only "$build/libweft.so.1" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' |
    LC_ALL=C sort >got
diff want got || die "api/weft.map (<) and what libweft.so.1 exports (>)"
nm -g --defined-only "$build/libweft.a" | awk 'NF == 3 && $3 !~ /^__/ { print $3 }' | LC_ALL=C sort >got
diff want got || die "api/weft.map (<) and what libweft.a exports (>)"
# Every function that the header declares, and no other.
sed -nE 's/^([a-z].*[ *])?(weft_[a-z_]+)\(.*/\2/p' "$WEFT_SOURCE_DIR/include/weft/weft.h" |
    grep -v '^weft_done$' | LC_ALL=C sort -u >declared
grep '^weft_' want | diff - declared || die "api/weft.map (<) and weft.h (>)"
readelf -d "$build/libweft.so.1" | grep -q 'SONAME.*\[libweft\.so\.1\]' || die "another soname"
ldd "$build/libweft.so.1" | awk '{ print $1 }' >needed
for no in igraph Cbc Clp nghttp2 ssl crypto jansson cyaml onnx nvrtc; do
    ! grep -q "^lib$no" needed || die "libweft.so.1 needs lib$no"
done
for folder in frontend passes codegen estimator scheduler; do
    nm -g --defined-only "$build/libweft_$folder.a" 2>/dev/null |
        awk 'NF == 3 && $3 ~ /^weft_/ { print $3 }' | LC_ALL=C sort -u >theirs
    filled theirs
    nm --defined-only "$build/libweft.so.1" | awk '$3 ~ /^weft_/ { print $3 }' | LC_ALL=C sort -u |
        LC_ALL=C comm -12 - theirs >both
    empty both
done
# Names, types and layouts of the interface are those that were recorded, as libabigail sees them.
# After a change that keeps programs working: WEFT_BLESS=1 with this script writes api/weft.abi.
command -v abidiff >/dev/null || skip "no abidiff (Debian: abigail-tools); the symbols are right"
sed '/^GOMP_1.0/,$d' "$WEFT_SOURCE_DIR/api/weft.map" >abi.map
box=$PWD
dump() { # FOLDER: the interface, of the header in FOLDER/include/weft
    (cd "$WEFT_SOURCE_DIR" && "${CC:-gcc}" -std=c11 -D_GNU_SOURCE -g -O1 -fPIC -shared -I"$1" -I. \
        -o "$box/abi.so" api/*.c -Wl,--version-script="$box/abi.map" -Wl,-soname,libweft.so.1)
    abidw --headers-dir "$1/include/weft" --no-corpus-path --no-comp-dir-path --no-show-locs \
        --drop-private-types abi.so
}
dump "$WEFT_SOURCE_DIR" >now.abi
[ -z "${WEFT_BLESS:-}" ] || cp now.abi "$WEFT_SOURCE_DIR/api/weft.abi"
expect 0 abidiff "$WEFT_SOURCE_DIR/api/weft.abi" now.abi
# The comparison sees what breaks programs: another type of a field.
mkdir -p changed/include
cp -r "$WEFT_SOURCE_DIR/include/weft" changed/include/
sed -i 's/^    double time_limit_s;/    float time_limit_s;/' changed/include/weft/weft.h
dump "$PWD/changed" >changed.abi
code=0
abidiff "$WEFT_SOURCE_DIR/api/weft.abi" changed.abi >out 2>err || code=$?
[ $((code & 12)) -ne 0 ] || die "abidiff does not see a changed field: exit code $code"
