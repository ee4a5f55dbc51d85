# `weft` finds the program of a verb: in WEFT_LIBEXEC, beside itself, or in ../libexec/weft. A program
# that is missing is named, exit codes and signals are those of the program, and what only one program
# has does not need the others.
built=$(dirname "$WEFT")
mkdir -p usr/bin usr/libexec/weft other
cp "$WEFT" usr/bin/weft
for program in compiler planner server transfer; do
    cp "$built/weft-$program" usr/libexec/weft/
done
expect 0 usr/bin/weft list drivers
has out cpu
expect 2 usr/bin/weft plan
expect 0 env WEFT_LIBEXEC="$PWD/usr/libexec/weft" "$WEFT" list drivers
expect 1 env WEFT_LIBEXEC="$PWD/other" "$WEFT" list drivers
has err "weft-compiler"
has err "WEFT_LIBEXEC"
rm usr/libexec/weft/weft-planner
expect 1 usr/bin/weft plan --help
has err "the program weft-planner is not installed"
expect 0 usr/bin/weft run --help
expect 2 usr/libexec/weft/weft-server plan
has err "weft-server: no verb 'plan'"
printf '#!/bin/sh\nkill -KILL $$\n' >other/weft-server
chmod +x other/weft-server
expect 137 env WEFT_LIBEXEC="$PWD/other" "$WEFT" run x.weft

# An ONNX tensor as input is read by weft-compiler on behalf of weft-server.
tensor=$(find "${WEFT_ONNX_DATA:-/usr/share/libonnx-testdata/data}" \
    -path '*test_relu/test_data_set_0/input_0.pb' -print -quit 2>/dev/null || true)
[ -n "$tensor" ] || skip "no ONNX test data"
data=${tensor%/test_data_set_0/*}
expect 0 "$WEFT" compile "$data/model.onnx" -o relu.weft
expect 0 "$WEFT" run relu.weft --input "x=@$tensor" --expect "y=@${tensor%input_0.pb}output_0.pb"
cp "$built/weft-server" other/
expect 1 other/weft-server run relu.weft --input "x=@$tensor"
has err "weft-compiler"
head -c 20 "$tensor" >cut.pb
expect 1 "$WEFT" run relu.weft --input "x=@cut.pb"
filled err
