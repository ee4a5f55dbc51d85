# With a tolerance, nearly equal weights are shared, and the resulting error of the outputs is
# measured and printed.
command -v jq >/dev/null || skip "no jq"
# Two models of three layers; the weights of the second differ from those of the first by up to 9e-6 per element.
awk 'BEGIN {
    srand(7)
    print "wir 1 graph\nsymbol ?b = [1, 8]\nsymbol ?c = [1, 8]"
    for (w = 0; w < 3; w++) {
        a = b = ""
        for (i = 0; i < 4096; i++) {
            x = rand() - 0.5
            a = a (i ? ", " : "") sprintf("%.9g", x)
            b = b (i ? ", " : "") sprintf("%.9g", x + (rand() - 0.5) * 1.8e-5)
        }
        print "weight $a" w " : f32[64,64] = dense [" a "]"
        print "weight $b" w " : f32[64,64] = dense [" b "]"
    }
    split("a b", name); split("b c", batch)
    for (m = 1; m <= 2; m++) {
        t = "f32[?" batch[m] ",64]"
        print "graph @" name[m] " (%0 : " t ") {\n  symbol ?" batch[m] " \"batch\""
        for (w = 0; w < 3; w++)
            print "  %" w + 1 " : " t " = matmul %" w ", $" name[m] w
        print "  return \"y\" %3\n}"
    }
}' >models.wir
expect 0 "$WEFT" compile models.wir -o apart.weft --report apart.json
empty err
expect 0 "$WEFT" compile models.wir -o near.weft --report near.json --merge-tolerance 1e-5
has err "changes by up to"
printf 'apart %d, within the tolerance %d bytes\n' "$(bytes apart.weft)" "$(bytes near.weft)"
at_most $((100 * $(bytes near.weft))) $((60 * $(bytes apart.weft)))
jq -e '.tolerance == null' apart.json >/dev/null || die "$(shown apart.json)"
jq -e '.tolerance | .value == 1e-5 and .weights == 3 and .bytes == 49152
    and .largest_change > 5e-6 and .largest_change <= 1e-5 and (.outputs | length) == 2
    and .outputs[0].difference == 0 and .outputs[1].difference > 1e-7
    and .outputs[1].difference < 1e-3' near.json >/dev/null || die "$(shown near.json)"
expect 0 "$WEFT" compile models.wir -o near.weft --report - --format text --merge-tolerance 1e-5
has out "Tolerance 1e-05: 3 weights"
expect 0 "$WEFT" compile models.wir -o near.weft --report near.json --merge-tolerance 1e-7
jq -e '.tolerance.weights == 0 and all(.tolerance.outputs[]; .difference == 0)' near.json \
    >/dev/null || die "$(shown near.json)"
for wrong in -1 nan inf 2 x; do
    expect 2 "$WEFT" compile "$examples/digits_cnn.onnx" -o x.weft --merge-tolerance "$wrong"
    has err --merge-tolerance
done
# Differences of weights: exact ones are not measured, because no element changes; low-rank ones are.
awk 'BEGIN {
    srand(9)
    print "wir 1 graph\nsymbol ?b = [1, 8]\nsymbol ?c = [1, 8]\nsymbol ?d = [1, 8]"
    few = low = all = ""
    for (i = 0; i < 4096; i++) {
        x = rand() - 0.5
        all = all (i ? ", " : "") sprintf("%.9g", x)
        few = few (i ? ", " : "") sprintf("%.9g", i % 500 ? x : 1)
        low = low (i ? ", " : "") sprintf("%.9g", x + (i % 64 - 31) * int(i / 64) * 1e-5)
    }
    print "weight $b : f32[64,64] = dense [" all "]\nweight $c : f32[64,64] = dense [" few "]"
    print "weight $d : f32[64,64] = dense [" low "]"
    split("b c d", name)
    for (m = 1; m <= 3; m++) {
        t = "f32[?" name[m] ",64]"
        print "graph @" name[m] " (%0 : " t ") {\n  symbol ?" name[m] " \"batch\""
        print "  %1 : " t " = matmul %0, $" name[m] "\n  return \"y\" %1\n}"
    }
}' >family.wir
expect 0 "$WEFT" compile family.wir -o exact.weft --report exact.json --deltas exact
empty err
jq -e '.deltas | .mode == "exact" and .outputs == [] and ([.weights[].kind] | sort) == ["elements", "none"]
    and all(.weights[]; .base == "b:b" and .error == 0)
    and (.weights[] | select(.kind == "elements") | .weight == "c:c" and .size >= 9)' exact.json \
    >/dev/null || die "$(shown exact.json)"
expect 0 "$WEFT" compile family.wir -o near.weft --report near.json --deltas near
has err "low-rank differences of weights: output y changes by up to"
jq -e '.deltas | .mode == "near" and (.outputs | length) == 3
    and (.weights[] | select(.kind == "low_rank") | .weight == "d:d" and .size == 1 and .bytes == 512
    and .error < 1e-7)' near.json >/dev/null || die "$(shown near.json)"
expect 0 "$WEFT" compile family.wir -o near.weft --report - --format text --deltas near
has out "2 weights of 32.8 kB are kept as differences of"
expect 2 "$WEFT" compile family.wir -o x.weft --deltas some
has err "--deltas takes off, exact, near, not 'some'"
