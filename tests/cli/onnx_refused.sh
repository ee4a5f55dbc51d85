# Unsupported operators are refused by name with exit code 1, without any result on standard output.
corpus=$WEFT_SOURCE_DIR/tests/fuzz/corpus/onnx
LC_ALL=C sed 's/\x02If/\x02Zf/' "$corpus/if.onnx" >other.onnx
expect 1 "$WEFT" opt other.onnx
empty out
has err "other.onnx:y: operator Zf is not supported"
expect 0 "$WEFT" opt "$corpus/mlp.onnx"
has out "graph @mlp"
head -c 100 "$corpus/mlp.onnx" >cut.onnx
expect 1 "$WEFT" opt cut.onnx
empty out
has err "cut.onnx"
: >empty.onnx
expect 1 "$WEFT" opt empty.onnx
has err "holds no ONNX graph"
