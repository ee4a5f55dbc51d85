# An unknown pass is named in the message, which also says how to list passes.
expect 2 "$WEFT" opt -p no-such-pass "$examples/digits_cnn.onnx"
has err "no pass 'no-such-pass'"
has err "weft list passes"
empty out
