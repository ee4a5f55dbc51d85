# Every command of README and of the documents runs as it is printed, or its block says why not.
# ctest label: slow (as users run them)
command -v python3 >/dev/null || skip "no python3"
command -v curl >/dev/null || skip "no curl"
export PATH=$(dirname "$WEFT"):$PATH
cd "$WEFT_SOURCE_DIR"
documents=(README.md docs/*.md)
cd - >/dev/null
python3 "$WEFT_SOURCE_DIR/tests/support/docs_commands.py" "$WEFT_SOURCE_DIR" "${documents[@]}"
