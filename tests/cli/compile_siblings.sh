# Sizes of bundles. Two models that share all but the head: at most 1.1 times one model; the same
# model twice: almost no increase; models that share nothing: no decrease. Siblings that differ in
# the head: one model, their heads and 2 %, joint programs included.
"$WEFT" compile "$examples/digits_cnn.onnx" -o one.weft
"$WEFT" compile "$examples/digits_cnn.onnx" "$examples/digits_parity.onnx" -o two.weft
"$WEFT" compile "$examples/digits.yaml" -o four.weft
printf 'one %d, two siblings %d, all four %d bytes\n' "$(bytes one.weft)" "$(bytes two.weft)" \
    "$(bytes four.weft)"
at_most $((10 * $(bytes two.weft))) $((11 * $(bytes one.weft)))
cp "$examples/digits_cnn.onnx" copy.onnx
"$WEFT" compile "$examples/digits_cnn.onnx" copy.onnx -o twice.weft
at_most $((100 * $(bytes twice.weft))) $((110 * $(bytes one.weft)))

# K models: four GEMMs by the same weights, and a head of 256 x 24 for each model.
head_siblings() {
    awk -v k="$1" 'BEGIN {
        print "wir 1 graph"
        for (m = 0; m < k; m++) {
            print "symbol ?b" m " = [1, 8]"
            print "weight $head" m " : f32[256,24] = random " 100 + m
        }
        for (w = 0; w < 4; w++) print "weight $body" w " : f32[256,256] = random " w + 1
        for (m = 0; m < k; m++) {
            print "graph @m" m " (%0 : f32[?b" m ",256]) {\n  symbol ?b" m " \"batch\""
            for (w = 0; w < 4; w++)
                print "  %" w + 1 " : f32[?b" m ",256] = matmul %" w ", $body" w
            print "  %5 : f32[?b" m ",24] = matmul %4, $head" m "\n  return \"y\" %5\n}"
        }
    }'
}
head_siblings 1 >alone.wir
head_siblings 6 >six.wir
"$WEFT" compile alone.wir -o alone.weft
for merge in auto exact off; do
    "$WEFT" compile six.wir -o six.weft --merge "$merge"
    printf 'one %d, six by merge %s %d bytes\n' "$(bytes alone.weft)" "$merge" "$(bytes six.weft)"
    at_most $((100 * $(bytes six.weft))) $((102 * ($(bytes alone.weft) + 6 * 4 * 256 * 24)))
done
