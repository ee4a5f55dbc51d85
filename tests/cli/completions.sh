# Completions and manual pages are generated from the table of options: they have exactly the
# options that --help of each verb lists.
expect 0 "$WEFT" --completions bash
cp out weft.bash
expect 0 "$WEFT" --completions zsh
cp out _weft
expect 0 "$WEFT" --completions fish
cp out weft.fish
expect 2 "$WEFT" --completions csh
has err "bash, zsh or fish"
expect 2 "$WEFT" --man no-such-verb
has err no-such-verb
expect 0 "$WEFT" --man
for verb in $(verbs); do
    has out "\\fBweft $verb\\fR"
done
bash -n weft.bash
# shellcheck source=/dev/null
. ./weft.bash
complete_line() { # WORD...: completions of the last one
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _weft
    printf '%s\n' "${COMPREPLY[@]}"
}
complete_line weft "" | sort >first
for verb in $(verbs); do
    grep -qx "$verb" first || die "weft <TAB> does not complete $verb"
    expect 0 "$WEFT" "$verb" --help
    sed -nE 's/^  (   |-[a-z],) --([a-z0-9-]+).*/--\2/p' out | sort >help
    complete_line weft "$verb" -- | sort >bash
    diff help bash || die "options of weft $verb: --help (<) and bash (>)"
    sed -n "s/.*subcommand_from $verb' -l \([a-z0-9-]*\).*/--\1/p" weft.fish | sort >fish
    diff <(grep -vx -e --help help) fish || die "options of weft $verb: --help (<) and fish (>)"
    awk -v verb="    $verb)" '$0 == verb { on = 1 } on; / ;;$/ { on = 0 }' _weft |
        grep -oE -e '--[a-z0-9-]+(=?\[|)' | sed -E 's/[=[]+$//' | sort -u >zsh
    comm -23 help zsh >missing
    empty missing
    expect 0 "$WEFT" --man "$verb"
    sed -nE 's/.*\\fB\\-\\-(.*)\\fR.*/--\1/p' out | sed -E 's/\\fR.*//; s/\\-/-/g' | sort >man
    diff help man || die "options of weft $verb: --help (<) and its manual page (>)"
    if command -v groff >/dev/null; then
        "$WEFT" --man "$verb" | groff -ww -man -Tutf8 -z 2>warned || true
        empty warned
    fi
done
[ "$(complete_line weft plan --format j)" = json ] || die "weft plan --format j<TAB>"
[ -z "$(complete_line weft compile mo)" ] || die "a file is not left to the shell"
if command -v zsh >/dev/null; then expect 0 zsh -n _weft; fi
if command -v fish >/dev/null; then expect 0 fish -n weft.fish; fi
