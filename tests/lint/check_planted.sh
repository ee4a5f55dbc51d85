#!/usr/bin/env bash
# The other checks are checked: each must refuse a tree with one planted fault, name the file, and
# accept the same tree without it. (check_layers.sh does this for itself; check_symbols.sh needs a
# build.)
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

clean_tree() {
    rm -rf "${copy:?}"/*
    mkdir -p "$copy/base" "$copy/ops"
    printf '#ifndef A_H\n#define A_H\nint weft_a(void);\n#endif\n' >"$copy/base/a.h"
    printf '#include "base/a.h"\n\n/* exit(1) is not called. */\n' >"$copy/base/a.c"
    printf 'int weft_a(void)\n{\n    return 0;\n}\n' >>"$copy/base/a.c"
    cp "$root/.clang-format" "$copy/"
}

# planted CHECK FILE: the check must name FILE.
planted() {
    local code=0
    WEFT_BUILD_DIR=$copy/build bash "$lint_dir/check_$1.sh" "$copy" >"$copy/said" 2>&1 || code=$?
    [ "$code" = 77 ] && return 0
    [ "$code" = 1 ] || fail "$1: a planted fault gives exit code $code"
    grep -qF "$2" "$copy/said" || fail "$1: does not name $2: $(cat "$copy/said")"
}

for check in calls format golden headers length names options order rows words; do
    clean_tree
    code=0
    WEFT_BUILD_DIR=$copy/build bash "$lint_dir/check_$check.sh" "$copy" >"$copy/said" 2>&1 || code=$?
    [ "$code" = 0 ] || [ "$code" = 77 ] || fail "$check: refuses a clean tree: $(cat "$copy/said")"
done

for call in 'exit(1)' '_exit(1)' 'abort()' 'printf("x")' 'fprintf(stderr, "x")' 'fputs("x", stdout)' \
    'perror("x")'; do
    clean_tree
    printf 'void weft_b(void)\n{\n    %s;\n}\n' "$call" >"$copy/ops/b.c"
    planted calls ops/b.c:3
done
clean_tree && printf 'int  weft_b;\n' >"$copy/ops/b.c" && planted format ops/b.c
clean_tree && printf 'weft_unknown weft_b(void);\n' >"$copy/ops/b.h" && planted headers ops/b.h
clean_tree && printf 'int weft_b(int class);\n' >"$copy/ops/b.h" && planted headers ops/b.h
clean_tree && mkdir -p "$copy/passes" &&
    printf 'static int a(int m)\n{\n    WEFT_VEC_PUSH(m);\n}\nint b(void)\n{\n    return f(a(1),\n             a(2));\n}\n' \
        >"$copy/passes/b.c" && planted order passes/b.c:7
clean_tree && seq 1001 | sed 's/.*//' >"$copy/ops/b.c" && planted length ops/b.c
clean_tree && cp "$copy/base/a.c" "$copy/ops/a.c" && planted names ops/a.c
clean_tree && mkdir "$copy/passes" && printf 'PASS(a)\n' >"$copy/passes/passes.def" &&
    printf 'const weft_pass weft_pass_b = {0};\n' >"$copy/passes/b.c" && planted rows passes/b.c
clean_tree && mkdir -p "$copy/passes/merge" && printf 'S(a)\n' >"$copy/passes/merge/strategies.def" &&
    planted golden passes/merge/strategies.def
mkdir -p "$copy/tests/golden/merge-models" &&
    printf '# weft: pass merge-models\n# strategy: a\n' >"$copy/tests/golden/merge-models/a.wir" &&
    planted golden tests/golden/merge-models/a.wir:1
# Options parsed beside the table, and one that is in it twice.
for line in '#include <getopt.h>' 'int weft_b(const char *a) { return strcmp(a, "--b") == 0; }'; do
    clean_tree && mkdir "$copy/tools"
    printf '%s\n' "$line" >"$copy/tools/b.c"
    planted options tools/b.c:1
done
clean_tree && mkdir "$copy/tools"
printf 'BEGIN(b)\nOPTION("c", 0, NULL, FLAG(c), "x")\nOPTION("c", 0, NULL, FLAG(c), "x")\nEND\n' \
    >"$copy/tools/options.def"
planted options 'b: --c twice'
clean_tree && mkdir -p "$copy/passes" && printf 'RULE(NEG, a)\n' >"$copy/passes/simplify.def" &&
    planted golden passes/simplify.def
clean_tree && mkdir -p "$copy/docs" && printf '| what | who | weft | test |\n|---|---|---|---|\n| a | b | yes | `cli/none` |\n' \
    >"$copy/docs/expectations.md" && planted expectations 'no test cli/none'
clean_tree && printf '# A\n[a](base/none.h)\n' >"$copy/README.md" && planted links 'README.md: there is no base/none.h'
# Programs that link what they must not.
cc=${WEFT_CC:-cc}
build_program() { # NAME SOURCE FLAG...: into a build folder of its own
    rm -rf "${copy:?}/build" && mkdir "$copy/build"
    printf '%s\n' "$2" >"$copy/build/main.c"
    "$cc" -o "$copy/build/$1" "$copy/build/main.c" "${@:3}" 2>/dev/null
}
for row in 'weft-server igraph' 'weft-server CbcSolver' 'weft-planner igraph' 'weft-compiler CbcSolver'; do
    read -r program library <<<"$row"
    clean_tree
    build_program "$program" 'int main(void) { return 0; }' -Wl,--no-as-needed "-l$library" || continue
    planted programs "$program: needs lib$library"
    grep -qF "directly or not" "$copy/said" || fail "programs: overlooks $library in $program"
done
clean_tree
if build_program weft-server 'int weft_pass_a; int main(void) { return 0; }' &&
    "$cc" -c -o "$copy/build/pass.o" "$copy/build/main.c" 2>/dev/null &&
    ar qc "$copy/build/libweft_passes.a" "$copy/build/pass.o"; then
    planted programs 'weft-server: contains weft_pass_a of passes'
fi
clean_tree
if build_program weft 'int main(void) { return 0; }' -Wl,--no-as-needed -lz; then
    mkdir "$copy/build/share"
    printf '%s\n' '{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "documentNamespace": "https://a", "creationInfo": {"created": "2026-01-01T00:00:00Z"}, "relationships": [],
        "packages": [{"name": "weft", "SPDXID": "x", "downloadLocation": "x", "licenseDeclared": "MIT", "versionInfo": "1"}]}' \
        >"$copy/build/share/weft.spdx.json"
    planted sbom 'weft.spdx.json: lacks libz'
fi
for word in 'TO''DO' 'FIX''ME' '/wo''rk/x' '/tmp/b''-x' 'weft_''board_add' 'drop-''dead' 'thin ''factors'; do
    clean_tree
    printf '/* %s */\n' "$word" >"$copy/ops/b.c"
    planted words ops/b.c:1
done
finish
