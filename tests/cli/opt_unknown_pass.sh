# A pass that does not exist is named, with a hint where the names are.
expect 2 "$WEFT" opt -p no-such-pass "$examples/digits_cnn.onnx"
has err "no pass 'no-such-pass'"
has err "weft list passes"
empty out
