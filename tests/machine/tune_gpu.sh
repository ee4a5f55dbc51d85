# `weft compile --tune` for a GPU measures cuBLASLt's algorithms there and stores the fastest.
command -v g++ >/dev/null || skip "no g++, which the double of NVRTC calls"
export LD_LIBRARY_PATH=$DOUBLES WEFT_DOUBLE_CACHE=$PWD/cache
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" --target sm_90 --precision f32 --batch 1,4 --tune -o d.weft
expect 0 "$WEFT" inspect d.weft
has out "GEMMs on NVIDIA H200 with 132 SMs, cuBLASLt 130100"
expect 0 "$WEFT" inspect d.weft --format json
python3 -c '
import json
tuned = json.load(open("out"))["code"]["tuned"]
assert len(tuned) == 1 and tuned[0]["gemms"] > 0, tuned
assert tuned[0]["device"] == "NVIDIA H200" and tuned[0]["sms"] == 132, tuned
' || die "$(shown out)"
# The stored algorithm is used: a library without heuristics is not asked.
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" --batch 1,4 -o c.weft
find_python
"$python" -c '
import numpy as np
np.save("x.npy", np.load("'"$examples"'/digits_test.x.npy")[:4].astype("f4"))'
expect 0 "$WEFT" run c.weft --input image=@x.npy --output logits=@y.npy
WEFT_DOUBLE_ABSENT=guess expect 0 "$WEFT" run d.weft --input image=@x.npy --expect logits=@y.npy
# Another GPU does not use the stored algorithm, and its library has no heuristics.
WEFT_DOUBLE_ABSENT=guess WEFT_DOUBLE_NAME="NVIDIA H100" expect 1 "$WEFT" run d.weft --input image=@x.npy
has err "has no algorithm for a GEMM"
# Without a GPU: an error.
mkdir compiler && ln -s "$DOUBLES"/libnvrtc.so.13 compiler
LD_LIBRARY_PATH=$PWD/compiler expect 1 "$WEFT" compile "$examples/digits_cnn.onnx" --target sm_90 --tune -o e.weft
has err "the CUDA driver is not here"
