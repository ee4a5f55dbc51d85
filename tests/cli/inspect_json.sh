# inspect prints the same models and inputs for an ONNX file, its text IR and its bundle.
command -v jq >/dev/null || skip "no jq"
"$WEFT" compile "$examples/digits.yaml" -o digits.weft
expect 0 "$WEFT" inspect digits.weft --format json
jq -e '[.models[].name] == ["digits", "parity", "size", "digits-attn"]' out >/dev/null ||
    die "models: $(shown out)"
jq -e '.models[0].inputs[0].name == "image"' out >/dev/null || die "inputs: $(shown out)"
expect 0 "$WEFT" inspect "$examples/digits_cnn.onnx" --format json
jq -e '.models | length == 1' out >/dev/null || die "ONNX: $(shown out)"
for text in digits.weft "$examples/digits_cnn.onnx"; do
    expect 0 "$WEFT" inspect "$text"
    filled out
    empty err
done
# One flipped bit: inspect, which reads everything, refuses the bundle, and so does every model that
# would compute with it.
cp digits.weft flipped.weft
middle=$(($(bytes flipped.weft) / 2))
byte=$(dd if=digits.weft bs=1 skip=$middle count=1 2>/dev/null | od -An -tu1 | tr -d ' ')
# shellcheck disable=SC2059
printf "\\x$(printf '%02x' $((byte ^ 8)))" | dd of=flipped.weft bs=1 seek=$middle conv=notrunc 2>/dev/null
expect 1 "$WEFT" inspect flipped.weft
has err checksum
expect 1 "$WEFT" run flipped.weft --model digits-attn --input image=@"$examples/digits_test.x.npy" \
    --output logits=@y.npy
has err checksum
