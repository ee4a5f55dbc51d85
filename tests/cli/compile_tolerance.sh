# Weights that are nearly equal count as equal where that is asked for, and what it does to the
# answers is measured and said.
command -v jq >/dev/null || skip "no jq"
for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy, onnx' 2>/dev/null && break
    python=
done
[ "$python" ] || skip "no onnx for Python"
"$python" - "$examples/digits_cnn.onnx" <<'PY'
import sys
import numpy as np
import onnx
from onnx import numpy_helper
model = onnx.load(sys.argv[1])
for i, w in enumerate(model.graph.initializer):
    a = numpy_helper.to_array(w)
    if a.dtype == np.float32:
        noise = np.random.default_rng(i).uniform(-1, 1, a.shape).astype("f4")
        w.CopyFrom(numpy_helper.from_array(a + np.float32(9e-6) * noise, w.name))
onnx.save(model, "near.onnx")
PY
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" near.onnx -o apart.weft --report apart.json
empty err
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" near.onnx -o near.weft --report near.json \
    --merge-tolerance 1e-5
has err "changes by up to"
printf 'apart %d, within the tolerance %d bytes\n' "$(bytes apart.weft)" "$(bytes near.weft)"
at_most $((100 * $(bytes near.weft))) $((60 * $(bytes apart.weft)))
jq -e '.tolerance == null' apart.json >/dev/null || die "$(shown apart.json)"
jq -e '.tolerance | .value == 1e-5 and .weights > 3 and .largest_change > 5e-6
    and .largest_change <= 1e-5 and (.outputs | length) == 2
    and any(.outputs[]; .difference > 0) and all(.outputs[]; .difference < 1e-2)
    and any(.outputs[]; .difference == 0)' near.json >/dev/null || die "$(shown near.json)"
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" near.onnx -o near.weft --report - \
    --format text --merge-tolerance 1e-5
has out "Tolerance 1e-05"
for wrong in -1 nan inf 2 x; do
    expect 2 "$WEFT" compile "$examples/digits_cnn.onnx" -o x.weft --merge-tolerance "$wrong"
    has err --merge-tolerance
done
