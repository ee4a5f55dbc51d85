# The printed text of a stage reads back and prints the same, before and after the first half of the
# pipeline.
cp "$examples"/*.onnx . # a text names files of weights beside it
for model in cnn parity attn; do
    "$WEFT" opt "digits_$model.onnx" -o first.wir
    head -n 1 first.wir | grep -q '^wir 1 graph' || die "no format line: $(head -n 1 first.wir)"
    "$WEFT" opt first.wir -o second.wir
    cmp first.wir second.wir
    "$WEFT" opt -p infer-shapes,fold-const,dce "digits_$model.onnx" -o third.wir
    "$WEFT" opt third.wir -o fourth.wir
    cmp third.wir fourth.wir
done
