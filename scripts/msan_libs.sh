#!/usr/bin/env bash
# Compiles the C libraries that readers and the server call (jansson, nghttp2, protobuf-c, xxHash, zlib) with MemorySanitizer, from the distribution's sources of the versions that are installed,
# and prints the prefix: ${XDG_CACHE_HOME:-~/.cache}/weft/msan-HASH, made once. To build with it:
#
#   WEFT_MSAN=$(scripts/msan_libs.sh) cmake --preset msan && cmake --build --preset msan
#
# Exit code 77 with a message where it cannot be had: no clang, no apt, or no way to its sources.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft
skip() { echo "msan_libs.sh: skipped: $*" >&2 && exit 77; }

for tool in apt-get clang dpkg-query dpkg-source; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
installed=$(dpkg-query -W -f '${source:Package}=${source:Version}\n' libjansson-dev libnghttp2-dev \
    libprotobuf-c-dev libxxhash-dev zlib1g-dev) || skip "a library is not installed"
hash=$({ cat "$0" && echo "$installed" && clang --version; } | sha256sum | cut -c1-12)
prefix=$cache/msan-$hash
if [ -d "$prefix" ]; then
    printf '%s\n' "$prefix" && exit 0
fi
mkdir -p "$cache"
made=$(mktemp -d "$cache/msan-making.XXXXXX")
trap 'rm -rf "$made"' EXIT

# -- Sources: apt's own settings, with packages of sources -----------------------------------------
mkdir -p "$made/lists/partial" "$made/parts" "$made/prefix/lib/pkgconfig"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    case $file in
        *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$made/parts/${file##*/}" ;;
        *.list) [ ! -f "$file" ] || sed 's/^deb /deb-src /' "$file" >"$made/parts/${file##*/}" ;;
    esac
done
apt=(apt-get -q -o Dir::Etc::sourcelist=- -o Dir::Etc::sourceparts="$made/parts" -o Dir::State::lists="$made/lists"
    -o Dir::Cache="$made" -o APT::Sandbox::User=root)
"${apt[@]}" update >"$made/log" 2>&1 || true # some other source may fail
cd "$made"
for package in $installed; do
    "${apt[@]}" source --download-only "$package" >>"$made/log" 2>&1 || { tail -n 3 "$made/log" >&2; skip "no source of $package"; }
done
for file in *.dsc; do
    dpkg-source --no-check -x "$file" >>"$made/log" 2>&1
done

# -- Libraries -------------------------------------------------------------------------------------
# make LIBRARY MODULE FILE... -- FLAG...: a static library and what pkg-config says of it
make() {
    local name=$1 module=$2 files=() object=$made/object/$1 requires
    shift 2
    while [ "$1" != -- ]; do files+=("$1") && shift; done
    shift
    mkdir -p "$object"
    (cd "$object" && clang -c -O1 -g1 -fPIC -fsanitize=memory -fno-omit-frame-pointer -w -D_GNU_SOURCE "$@" "${files[@]}")
    ar rcs "$made/prefix/lib/lib$name.a" "$object"/*.o
    requires=$(pkg-config --print-requires-private "$module" | paste -sd, -)
    cat >"$made/prefix/lib/pkgconfig/$module.pc" <<END
Name: $module
Description: $module with MemorySanitizer
Version: $(pkg-config --modversion "$module")
Requires: $requires
Libs: -L$prefix/lib -l$name
END
}
at() { echo "$made/$1"-[0-9]*; }
jansson=$(at jansson) nghttp2=$(at nghttp2) protobuf=$(at protobuf-c) xxhash=$(at xxhash) zlib=$(at zlib)
touch $jansson/src/jansson_private_config.h # what it would define is below
make jansson jansson $jansson/src/*.c -- -DHAVE_STDINT_H -DHAVE_SYS_TYPES_H -DHAVE_SYS_TIME_H -DHAVE_UNISTD_H \
    -DHAVE_FCNTL_H -DHAVE_SCHED_H -DHAVE_OPEN -DHAVE_READ -DHAVE_CLOSE -DHAVE_GETPID -DHAVE_GETTIMEOFDAY \
    -DHAVE_LOCALE_H -DHAVE_LOCALECONV -DHAVE_STRTOLL -DHAVE_SYNC_BUILTINS -DHAVE_ATOMIC_BUILTINS -DUSE_URANDOM \
    -DINITIAL_HASHTABLE_ORDER=3
make nghttp2 libnghttp2 $nghttp2/lib/*.c -- -I$nghttp2/lib/includes -DHAVE_ARPA_INET_H -DHAVE_NETINET_IN_H
make protobuf-c libprotobuf-c $protobuf/protobuf-c/*.c -- -I$protobuf
make xxhash libxxhash $xxhash/xxhash.c --
make z zlib $zlib/{adler32,compress,crc32,deflate,infback,inffast,inflate,inftrees,trees,uncompr,zutil}.c -- \
    -DHAVE_UNISTD_H
mv -T "$made/prefix" "$prefix" 2>/dev/null || [ -d "$prefix" ]
printf '%s\n' "$prefix"
