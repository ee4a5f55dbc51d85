#!/usr/bin/env bash
# Tests and measures Weft on this machine's GPU: one command, no network, under 8 minutes. Runs from
# a folder that pack.sh made. Exit codes: 0 all that was tested is right, 1 not, 77 no GPU.
#
#   run.sh [--out FOLDER] [--seconds N] [--quick] [--work FOLDER]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy' 2>/dev/null && break
    python=
done
if [ -z "$python" ]; then
    echo "run.sh: needs python3 with numpy" >&2
    exit 1
fi
if [ ! -f "$here/payload.tar.xz" ] && [ ! -d "$here/payload" ]; then
    echo "run.sh: no payload beside it: make a folder with pack.sh" >&2
    exit 1
fi
exec "$python" "$here/run.py" "$@"
