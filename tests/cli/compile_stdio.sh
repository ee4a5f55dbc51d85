# `-` means standard input and standard output.
expect 0 "$WEFT" compile -q "$examples/digits_cnn.onnx" -o file.weft
empty out
"$WEFT" compile "$examples/digits_cnn.onnx" -o - >piped.weft 2>err || die "$(shown err)"
cmp file.weft piped.weft
"$WEFT" inspect - <file.weft >inspected 2>err || die "inspect -: $(shown err)"
expect 0 "$WEFT" inspect file.weft
has out digits_cnn
cp "$examples/digits_cnn.onnx" . # a text names files of weights beside it
"$WEFT" opt digits_cnn.onnx -o - >text.wir 2>err || die "opt -: $(shown err)"
filled text.wir
"$WEFT" opt - <text.wir >again.wir 2>err || die "opt - of text: $(shown err)"
cmp text.wir again.wir
# A full disk is an error.
if [ -w /dev/full ]; then
    code=0
    "$WEFT" list ops >/dev/full 2>err || code=$?
    [ "$code" = 1 ] || die "weft list ops on a full disk: exit code $code"
    code=0
    "$WEFT" compile "$examples/digits_cnn.onnx" -o /dev/full 2>err || code=$?
    [ "$code" = 1 ] || die "weft compile on a full disk: exit code $code"
fi
