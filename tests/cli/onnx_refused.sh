# Unsupported operators are refused by name with exit code 1, without any result on standard output.
corpus=$WEFT_SOURCE_DIR/tests/fuzz/corpus/onnx
expect 1 "$WEFT" opt "$corpus/if.onnx"
empty out
has err "if.onnx:y: operator If is not supported"
expect 0 "$WEFT" opt "$corpus/mlp.onnx"
has out "graph @mlp"
head -c 100 "$corpus/mlp.onnx" >cut.onnx
expect 1 "$WEFT" opt cut.onnx
empty out
has err "cut.onnx"
: >empty.onnx
expect 1 "$WEFT" opt empty.onnx
has err "holds no ONNX graph"
