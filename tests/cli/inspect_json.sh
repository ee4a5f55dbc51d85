# inspect tells the same of an ONNX file, its text and its bundle: the models and their inputs.
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
# A bundle with one flipped bit is refused.
cp digits.weft flipped.weft
printf '\x5a' | dd of=flipped.weft bs=1 seek=$(($(bytes flipped.weft) / 2)) conv=notrunc 2>/dev/null
cmp -s digits.weft flipped.weft || expect 1 "$WEFT" run flipped.weft --model digits \
    --input image=@"$examples/digits_test.x.npy" --output logits=@y.npy
