#!/usr/bin/env bash
# Every header compiles alone as C11, and those that other folders include (doors, all of base and ops)
# also inside extern "C" as C++. NAME_body.h is no header but text that a file includes several times
# with other macros.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

cc=${WEFT_CC:-cc}
build=${WEFT_BUILD_DIR:-$root/build}
command -v g++ >/dev/null || skip "no g++"
flags=(-D_GNU_SOURCE -I"$root" -I"$root/include" -isystem "$build/gen" -fsyntax-only)
# Generated headers: CMake puts them into one folder per directory that defines them.
while read -r dir; do
    flags+=(-isystem "$dir")
done < <(find "$build" -type d -name gen 2>/dev/null)
for package in libprotobuf-c jansson libcyaml libnghttp2 openssl libxxhash cmocka; do
    read -ra more < <(pkg-config --cflags "$package" 2>/dev/null && echo) || true
    flags+=("${more[@]}")
done

while read -r header; do
    case "$header" in tests/* | *_body.h) continue ;; esac
    if ! said=$(printf '#include "%s"\n' "$header" |
        "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "${flags[@]}" -x c - 2>&1); then
        fail "$header: does not compile alone"$'\n'"$said"
        continue
    fi
    folder=${header%%/*}
    case "$header" in
    *_int.h) continue ;;
    base/* | ops/* | ir/cost.h | ir/bundle.h | include/* | "$folder/$folder.h") ;;
    *) continue ;;
    esac
    if ! said=$(printf 'extern "C" {\n#include "%s"\n}\n' "$header" |
        g++ -std=c++17 "${flags[@]}" -x c++ - 2>&1); then
        fail "$header: does not compile inside extern \"C\""$'\n'"$said"
    fi
done < <(tree '*.h')
finish
