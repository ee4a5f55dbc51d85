# weft verify: all drivers agree with the evaluator; where they do not, the first node and the pass or kernel are named.
finds() { grep -qE -- "$1" out || die "no line like '$1': $(shown out)"; }
expect 0 "$WEFT" verify "$examples/digits_cnn.onnx"
for driver in cpu null gpu-passes; do
    [ "$(grep -c "^  $driver *agrees" out)" = 2 ] || die "not two sizes of $driver: $(cat out)"
done
finds '^  cuda *(agrees|not run: )'
finds 'image f32\[1,1,8,8\], synthetic'
finds 'image f32\[3,1,8,8\], synthetic'

# Rounding differs from the evaluator's: with no tolerance at the first convolution, in its kernel.
expect 4 "$WEFT" verify "$examples/digits_cnn.onnx" --driver cpu --tolerance 0 --dim batch=4
finds 'image f32\[4,1,8,8\]'
finds '^  cpu *DIFFERS'
finds 'parts at .*conv.*the passes are right, kernel onednn'
lacks out 'gpu-passes'

# A pass that changes rounding: batch normalisation goes into the weights of a convolution.
find_python
"$python" - "$WEFT_SOURCE_DIR/tests/support" <<'PY'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from onnx_file import Graph, Node, Port

r = np.random.default_rng(1)
g = Graph(opset=17)
g.inputs.append(Port("x", "float32", [1, 3, 6, 6]))
g.constants["w"] = r.standard_normal((4, 3, 3, 3), "f4")
for name in ("scale", "bias", "mean", "var"):
    g.constants[name] = r.random(4, "f4") + 0.5
g.nodes += [Node("Relu", ["x"], ["a"]), Node("Conv", ["a", "w"], ["b"]),
            Node("BatchNormalization", ["b", "scale", "bias", "mean", "var"], ["c"]), Node("Tanh", ["c"], ["y"])]
g.outputs += [Port("y", "float32"), Port("a", "float32")]
g.save("normalised.onnx")
x = r.standard_normal((1, 3, 6, 6), "f4")
np.save("x.npy", x)
np.save("a.npy", np.maximum(x, 0))
np.save("wrong.npy", np.maximum(x, 0) + (x > 1))
PY
expect 0 "$WEFT" verify normalised.onnx
finds '^  null *agrees, .*\((a|y)\)'
expect 4 "$WEFT" verify normalised.onnx --driver null --tolerance 1e-12
finds 'parts at .*batch_norm.*: pass '

# Given inputs, and the answers of another runtime.
expect 0 "$WEFT" verify normalised.onnx --input x=@x.npy --expect a=@a.npy --driver cpu
finds '^  expected *agrees'
finds 'expected .*\(a\)'
expect 4 "$WEFT" verify normalised.onnx --input x=@x.npy --expect a=@wrong.npy --driver cpu
finds '^  expected *DIFFERS'
finds '^  cpu *agrees'

# What is refused.
expect 1 "$WEFT" verify normalised.onnx --input z=@x.npy
has err "has no input 'z'"
expect 1 "$WEFT" verify "$examples/digits_cnn.onnx" --dim width=3
has err "no symbolic dimension 'width'"
expect 1 "$WEFT" verify "$examples/digits_cnn.onnx" --dim batch=0
has err "batch=0 is outside [1, "
expect 1 "$WEFT" verify - <normalised.onnx
has err "name the model file"
expect 2 "$WEFT" verify normalised.onnx --driver tpu
has err "there is no 'tpu'"
expect 2 "$WEFT" verify normalised.onnx --target cpu
expect 1 "$WEFT" verify "$examples/digits.yaml"
expect 1 "$WEFT" verify missing.onnx
