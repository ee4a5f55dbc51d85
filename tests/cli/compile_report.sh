# The merging report of compile, as JSON and as text: pairs, groups, candidates. Hostile names are
# escaped in text, JSON, CSV and pictures; a picture without graphviz is refused with a message.
command -v jq >/dev/null || skip "no jq"
expect 0 "$WEFT" compile "$examples"/digits_{attn,cnn,parity}.onnx -o a.weft --report a.json \
    --similarity a.csv --picture a.dot
jq -e '(.pairs | length) == 3 and all(.pairs[]; .similarity >= 0 and .similarity <= 1)' a.json \
    >/dev/null || die "$(shown a.json)"
jq -e '[.pairs[] | select(.similarity > 0.9)] | length == 1 and .[0].architecture == 1
    and .[0].equal_bytes > 0 and .[0].equal_bytes < .[0].bytes_a' a.json >/dev/null ||
    die "$(shown a.json)"
jq -e '(.merges | length) > 0 and all(.merges[]; (.candidates | length) > 0 and .reason != ""
    and (.strategy | type) == "string")' a.json >/dev/null || die "$(shown a.json)"
jq -e '.groups == [["digits_cnn", "digits_parity"]]' a.json >/dev/null || die "$(shown a.json)"
jq -e '[.apart[].models] == [["digits_attn"]] and (.apart[0].reason | length) > 20' a.json >/dev/null ||
    die "$(shown a.json)"
[ "$(wc -l <a.csv)" -eq 4 ] || die "$(shown a.csv)"
has a.csv digits_cnn,digits_parity,0.9
has a.dot '#f6b26b'

# The same as text, to standard output.
expect 0 "$WEFT" compile "$examples"/digits_{cnn,parity}.onnx -o a.weft --report - --format text
has out "digits_cnn, digits_parity"
has out "expected gain"
expect 2 "$WEFT" compile "$examples"/digits_cnn.onnx -o a.weft --report - --format xml
has err --format

# Pairs are compared with --merge off too.
expect 0 "$WEFT" compile "$examples"/digits_{cnn,parity}.onnx -o b.weft --merge off --report b.json
jq -e '.pairs[0].similarity > 0.9 and .merges == []' b.json >/dev/null || die "$(shown b.json)"

# Names: quotes, markup, an escape sequence, a line feed, invalid UTF-8.
cat >names.wir <<'WIR'
wir 1 kernel
symbol ?b = [1, 8]
symbol ?c = [1, 8]
weight $w : f32[256,1024] = random 1
graph @"a\x1b[31m<b>&\"\\\n\xff" (%0 "x\"];evil[label=\"" : f32[?b,256]) {
  symbol ?b "batch"
  %1 : f32[?b,1024] = matmul %0, $w
  return "y" %1
}
graph @"b,\xc2\x9b" (%0 "x" : f32[?c,256]) {
  symbol ?c "batch"
  %1 : f32[?c,1024] = matmul %0, $w
  return "y" %1
}
WIR
expect 0 "$WEFT" opt names.wir -p dce
for format in json text; do
    expect 0 "$WEFT" compile names.wir --start-at merge-models -o n.weft --report "n.$format" \
        --format "$format" --similarity n.csv --picture n.dot
done
jq -e '.pairs[0].similarity == 1' n.json >/dev/null || die "$(shown n.json)"
[ "$(wc -l <n.csv)" -eq 2 ] || die "$(shown n.csv)"
for file in n.json n.text n.csv n.dot; do
    ! LC_ALL=C grep -q $'[\x01-\x09\x0b-\x1f\x7f\xff]' "$file" || die "control bytes in $file"
done
if command -v dot >/dev/null; then
    dot -Tplain n.dot >n.plain || die "dot refuses $(shown n.dot)"
    ! grep -q '^node evil' n.plain || die "a name became a node"
    expect 0 "$WEFT" compile "$examples"/digits_{cnn,parity}.onnx -o a.weft --picture a.svg
    has a.svg '</svg>'
    has a.svg digits_parity
    has a.svg "several models at once"
fi

# No graphviz; a dot that fails.
mkdir bin
expect 1 env PATH="$PWD/bin" "$WEFT" compile "$examples/digits_cnn.onnx" -o a.weft --picture c.svg
has err graphviz
[ ! -e c.svg ] || die "a picture without graphviz"
printf '#!/bin/sh\nexit 3\n' >bin/dot
chmod +x bin/dot
expect 1 env PATH="$PWD/bin:$PATH" "$WEFT" compile "$examples/digits_cnn.onnx" -o a.weft \
    --picture c.svg
has err "dot of graphviz failed"

# The report has the measured gain and the predicted one.
expect 0 "$WEFT" compile "$examples"/digits_{attn,cnn,parity}.onnx -o a.weft --report a.json
jq -e '(.expected | length) > 1 and all(.expected[]; .gain > 0 and .joint_ms > 0)' a.json \
    >/dev/null || die "$(shown a.json)"
expect 0 "$WEFT" bench a.weft --time 0.02 --threads 1 --batch 1 --report a.json
has out "measured batch 1"
has out "  expected "
[ "$(grep -n 'largest difference' out | head -n 1 | cut -d: -f1)" -lt "$(grep -n '^Weights' out |
    cut -d: -f1)" ] || die "the report is not behind what was measured"
jq -e '.joint[0].expected == (.expected[] | select(.batch == 1) | .gain)' a.json >/dev/null ||
    die "$(shown a.json)"
jq -e '(.joint | length) == 1 and .joint[0].gain > 0 and any(.merges[];
    (.measured | length) == 1 and .measured[0].gain > 0)' a.json >/dev/null || die "$(shown a.json)"
expect 0 "$WEFT" bench a.weft --time 0.02 --threads 1 --batch 1 --report a.json --format json
jq -e 'all(.merges[]; (.measured | length) <= 1)' a.json >/dev/null || die "measured twice"
printf '[1, 2' >broken.json
expect 1 "$WEFT" bench a.weft --report broken.json
has err broken.json
printf '{"merges": [1, {"item": 3, "models": {}}, {"item": "x", "models": [2]}]}' >odd.json
expect 0 "$WEFT" bench a.weft --time 0.02 --batch 1 --report odd.json
