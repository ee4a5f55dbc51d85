# What takes more than a second shows how far it is: on a terminal a bar that is drawn over, in the width and the
# colours that it has; elsewhere a line after ten seconds. --quiet shows nothing. What was made is said in three lines.
command -v script >/dev/null || skip "script (bsdutils) is missing"
expect 0 "$WEFT" compile "$examples/digits.yaml" -o digits.weft
empty err
[ "$(wc -l <out)" = 3 ] || die "compile says: $(shown out)"
has out "digits.weft: 4 models for cpu, "
has out "sharing saves "
has out "merged: 1 joint program, "
expect 0 "$WEFT" compile --quiet "$examples/digits.yaml" -o quiet.weft
empty out
cmp digits.weft quiet.weft || die "--quiet changes the bundle"
"$WEFT" compile "$examples/digits.yaml" -o - >stdout.weft
cmp digits.weft stdout.weft || die "something else than the bundle was written"
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" -o one.weft
has out "one.weft: 1 model for cpu"
expect 0 "$WEFT" compile --merge off "$examples/digits.yaml" -o apart.weft
has out "merged: nothing, as asked for"
plan=("$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --bundle digits.weft)
expect 0 "${plan[@]}" -o plan.json
[ "$(wc -l <out)" = 3 ] || die "plan says: $(shown out)"
has out "plan.json: 4 models in "
expect 0 "${plan[@]}" -q -o quiet.json
empty out

# Without a terminal, beside what follows.
"$WEFT" serve digits.weft --http 0 --grpc off --metrics off >ready 2>log &
server=$!
until grep -q READY ready; do
    kill -0 $server || die "$(shown log)"
    sleep 0.1
done
replay=("$WEFT" replay --to "localhost:$(sed -n 's/.* http=\([0-9]*\).*/\1/p' ready)" --set "$examples/digits.yaml"
    --scale 0.001 --duration 12s)
"${replay[@]}" >replayed 2>lines &
lines=$!
"${replay[@]}" --quiet >replayed.quiet 2>lines.quiet &
quiet=$!

bench=("$WEFT" bench digits.weft --model digits --batch "1,2,4,8" --time 0.5)
expect 0 "${bench[@]}"
empty err
# The terminal's width in $1; its output goes to `seen`.
on_terminal() {
    script -qec "stty cols $1; $(printf '%q ' "${bench[@]}")" /dev/null >seen </dev/null
}
NO_COLOR='' on_terminal 100
has seen "digits, batch 8  [###"
has seen "% 3/4 batch sizes, "
has seen "s left"
has seen $'\033[36m'
NO_COLOR=1 on_terminal 40
lacks seen $'\033[36m'
lacks seen "[#"
has seen "% 3/4 batch sizes"

wait $lines $quiet
# The other line may be a warning of a busy machine.
[ "$(grep -cE '^replaying to localhost:[0-9]+ .* % 1[0-2]/12 s, [0-2] s left$' lines)" = 1 ] || die "not one line: $(shown lines)"
lacks lines.quiet replaying
kill $server
wait $server
for verb in inspect estimate calibrate verify plan simulate report reconcile run bench sign push pull ctl replay opt; do
    "$WEFT" $verb --help >help
    grep -q -- '-q, --quiet' help || die "no --quiet: $verb"
done
