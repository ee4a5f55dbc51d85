#!/usr/bin/env bash
# The list of what the programs contain (cmake/sbom.cmake) is JSON of the form that SPDX 2.3 wants, names every shared
# library that a program needs, with a version, and none that no program needs.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

build=${WEFT_BUILD_DIR:-$root/build}
sbom=${WEFT_SBOM:-$build/share/weft.spdx.json}
for tool in readelf jq; do
    command -v "$tool" >/dev/null || skip "no $tool"
done
[ -f "$sbom" ] || skip "no $sbom"
jq -e '.spdxVersion == "SPDX-2.3" and .dataLicense == "CC0-1.0" and .SPDXID == "SPDXRef-DOCUMENT"
       and (.documentNamespace | startswith("https://")) and (.creationInfo.created | test("^[0-9T:-]+Z$"))
       and all(.packages[]; .name and .downloadLocation and .licenseDeclared and (.versionInfo | test("^[0-9]")))
       and ([.packages[].SPDXID] as $ids | all(.relationships[]; .relatedSpdxElement as $id | $ids | index($id)))' \
    "$sbom" >/dev/null || fail "$sbom: not as SPDX 2.3 has it"

# Libraries of the compiler and of sanitizers are no part of Weft.
system=' libc libm libgcc_s libstdc++ ld-linux-x86-64 ld-linux-aarch64 libasan libubsan libtsan libclang_rt '
listed=$(jq -r '.packages[1:][].comment' "$sbom" | tr -s ' ' '\n' | LC_ALL=C sort)
needed=$(for program in weft weft-compiler weft-planner weft-server weft-transfer libweft.so.1; do
    [ ! -e "$build/$program" ] ||
        readelf -d "$build/$program" | sed -nE 's/.*\(NEEDED\).*\[([^]]*)\.so.*/\1/p'
done | LC_ALL=C sort -u)
for library in $needed; do
    case $system in *" $library "*) continue ;; esac
    grep -qx "$library" <<<"$listed" || fail "$sbom: lacks $library"
done
for library in $listed; do
    grep -qx "$library" <<<"$needed" || [ ! -x "$build/weft-planner" ] || fail "$sbom: no program needs $library"
done
echo "$(wc -w <<<"$listed") shared libraries are listed"
finish
