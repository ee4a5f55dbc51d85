# --tune measures on this machine; whatever it chooses, the bundle gives the same answers.
find_python
"$python" - <<'PY'
import numpy as np
np.save("x.npy", np.linspace(0, 1, 3 * 64, dtype=np.float32).reshape(3, 1, 8, 8))
PY
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" -o ruled.weft
expect 0 "$WEFT" compile --tune "$examples/digits_cnn.onnx" -o tuned.weft
expect 0 "$WEFT" run ruled.weft --input image=@x.npy --output logits=@y.npy
expect 0 "$WEFT" run tuned.weft --input image=@x.npy --expect logits=@y.npy --tolerance 1e-5
has out "agrees"
