#!/usr/bin/env bash
# Builds the wheel, installs it into a virtual environment of its own, and lets it compile and run the
# examples there. Needs Python's venv, and the Python package index for scikit-build-core and NumPy.
#
# usage: scripts/wheel.sh [FOLDER]
#   FOLDER  gets weft-VERSION-py3-none-PLATFORM.whl (dist)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dist=$(realpath -m "${1:-dist}")
python=${WEFT_PYTHON:-python3}
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT

"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps -w "$dist" "$root"
wheel=$(ls -t "$dist"/weft-*.whl | head -n 1)
"$python" -m venv "$box/venv"
"$box/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
cd "$box"
env -u WEFT_LIBRARY -u WEFT_COMMAND -u PYTHONPATH "$box/venv/bin/python" - "$root/examples" <<'PY'
import sys
import numpy as np
import weft

examples = sys.argv[1]
bundle = weft.compile(f"{examples}/digits.yaml", "digits.weft", gpu="h100")
x = np.load(f"{examples}/digits_test.x.npy")
want = np.load(f"{examples}/digits_test.logits.npz")["digits_cnn"]
got = bundle.run("digits", {"image": x})["logits"]
assert np.abs(got - want).max() / np.abs(want).max() < 1e-4
assert weft.estimate(f"{examples}/digits_cnn.onnx", gpu="h100")["models"]
assert weft.plan(f"{examples}/digits.yaml", f"{examples}/fleet.yaml")["placements"]
print(f"weft {weft.__version__}: {weft.__file__}")
PY
printf '%s\n' "$wheel"
