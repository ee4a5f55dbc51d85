# External data is read only from the folder of the model.
corpus=$WEFT_SOURCE_DIR/tests/fuzz/corpus/onnx
mkdir model
cp "$corpus/external.onnx" model/
expect 1 "$WEFT" opt model/external.onnx
has err "data.bin"
printf '\0\0\0\0\0\0\200\077\0\0\0\100' >outside.bin
ln -s ../outside.bin model/data.bin
expect 1 "$WEFT" opt model/external.onnx
has err "symbolic link"
rm model/data.bin
ln outside.bin model/data.bin
expect 1 "$WEFT" opt model/external.onnx
has err "hard links"
rm model/data.bin
head -c 11 outside.bin >model/data.bin
expect 1 "$WEFT" opt model/external.onnx
has err "has 11 bytes"
cp outside.bin model/data.bin
expect 0 "$WEFT" opt model/external.onnx
has out "graph @external"
