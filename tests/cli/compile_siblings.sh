# Two models that share all but the head cost at most 1.1 times one; the same model twice next to
# nothing; models that share nothing do not shrink.
"$WEFT" compile "$examples/digits_cnn.onnx" -o one.weft
"$WEFT" compile "$examples/digits_cnn.onnx" "$examples/digits_parity.onnx" -o two.weft
"$WEFT" compile "$examples/digits.yaml" -o four.weft
printf 'one %d, two siblings %d, all four %d bytes\n' "$(bytes one.weft)" "$(bytes two.weft)" \
    "$(bytes four.weft)"
at_most $((10 * $(bytes two.weft))) $((11 * $(bytes one.weft)))
cp "$examples/digits_cnn.onnx" copy.onnx
"$WEFT" compile "$examples/digits_cnn.onnx" copy.onnx -o twice.weft
at_most $((100 * $(bytes twice.weft))) $((110 * $(bytes one.weft)))
