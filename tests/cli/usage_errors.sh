# Wrong usage: exit code 2, a message on standard error, nothing on standard output.
expect 2 "$WEFT"
filled err
empty out
expect 2 "$WEFT" no-such-verb
has err no-such-verb
empty out
for verb in $(verbs); do
    expect 2 "$WEFT" "$verb" --no-such-option
    has err no-such-option
    empty out
done
for verb in compile inspect estimate plan run bench serve list; do
    expect 2 "$WEFT" "$verb"
    has err "weft $verb"
    empty out
done
expect 2 "$WEFT" list no-such-table
has err no-such-table
expect 2 "$WEFT" inspect --format yaml "$examples/digits_cnn.onnx"
has err yaml
expect 2 "$WEFT" compile --batch 0 "$examples/digits_cnn.onnx" -o x.weft
expect 2 "$WEFT" compile --batch 1,zwei "$examples/digits_cnn.onnx" -o x.weft
expect 2 "$WEFT" compile --target pdp11 "$examples/digits_cnn.onnx" -o x.weft
has err pdp11
[ ! -e x.weft ] || die "wrong usage wrote a file"
