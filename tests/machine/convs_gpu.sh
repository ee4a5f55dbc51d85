# Convolutions on cuDNN: planned at compile time, told by reports, and without a cuDNN that can be used.
command -v g++ >/dev/null || skip "no g++, which the double of NVRTC calls"
export LD_LIBRARY_PATH=$DOUBLES WEFT_DOUBLE_CACHE=$PWD/cache
compile() { expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" --target sm_80,sm_90 --gpu h200 --precision f32 --batch 1,4 "$@"; }
compile -o d.weft --report r.json
python3 -c '
import json
convs = json.load(open("r.json"))["convolutions"]
targets = [(t["arch"], t["device"], t["cudnn"], t["unplanned"]) for t in convs["targets"]]
assert targets == [("sm_80", "a100-40", 91900, 0), ("sm_90", "h200", 91900, 0)], convs
assert convs["why_not"] is None and all(t["planned"] == convs["distinct"] for t in convs["targets"]), convs
' || die "$(cat r.json)"
expect 0 "$WEFT" inspect d.weft
has out "convolutions for sm_90 (h200), cuDNN 91900; 0 have no plan"
# Equal libraries make equal bytes.
compile -o again.weft
cmp d.weft again.weft || die "the bundles differ"
# A cuDNN without an engine, and one that is too old: the bundle has its own kernels.
WEFT_DOUBLE_ABSENT=conv compile -o e.weft --report r.json
python3 -c '
import json
convs = json.load(open("r.json"))["convolutions"]
assert convs["why_not"] and all(t["planned"] == 0 for t in convs["targets"]), convs
' || die "$(cat r.json)"
export WEFT_DOUBLE_CUDNN=90100
compile -o f.weft --report r.json
grep -q "cuDNN 9.1 is here, 9.8 or a later 9 is needed" r.json || die "$(cat r.json)"
# All of them run, with the answers of the CPU.
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" --batch 1,4 -o c.weft
find_python
"$python" -c '
import numpy as np
np.save("x.npy", np.load("'"$examples"'/digits_test.x.npy")[:4].astype("f4"))'
expect 0 "$WEFT" run c.weft --input image=@x.npy --output logits=@y.npy
for bundle in d e f; do
    expect 0 "$WEFT" run $bundle.weft --input image=@x.npy --expect logits=@y.npy
    WEFT_DOUBLE_CUDNN=91900 expect 0 "$WEFT" run $bundle.weft --input image=@x.npy --expect logits=@y.npy
done
