#!/usr/bin/env bash
# Runs one test of the server: `run_client.sh TEST.py ARGUMENTS`, with WEFT (the program), WEFT_SOURCE_DIR
# and WEFT_ONNX_DATA in the environment. A line "# needs: MODULE MODULE" in the test names what a
# Python must have: the first of $WEFT_PYTHON and those in PATH that has it all is taken, none means
# skipped (77).
set -euo pipefail
test_file=$(realpath "$1")
shift
here=$(dirname "$test_file")
needs=$(sed -n 's/^# needs: //p' "$test_file")
# In an empty folder: a folder of a module's name beside the test would pass for the module.
box=$(mktemp -d "${TMPDIR:-/tmp}/weft-serve.XXXXXX")
trap 'rm -rf "$box"' EXIT
cd "$box"
for python in ${WEFT_PYTHON:-} python3 /usr/bin/python3; do
    if PYTHONPATH=$here "$python" -c "import ${needs// /, }" 2>/dev/null; then
        code=0
        PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 "$python" "$test_file" "$@" || code=$?
        exit "$code"
    fi
done
echo "skipped: no Python with $needs"
exit 77
