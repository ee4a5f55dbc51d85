# A depfile names the output and every input, so that make and ninja rebuild when one changes.
command -v make >/dev/null || skip "no make"
cp "$examples"/digits_*.onnx "$examples/digits.yaml" .
touch -d '-1 hour' ./*
expect 0 "$WEFT" compile digits.yaml -o digits.weft --depfile digits.d
for file in digits.weft: digits.yaml digits_{cnn,parity,size,attn}.onnx; do
    has digits.d "$file"
done
printf 'digits.weft: digits.yaml\n\ttouch digits.weft\n-include digits.d\n' >Makefile
make -q || die "make wants to rebuild what is up to date"
touch -d '-1 minute' digits.weft
touch digits_size.onnx
! make -q || die "make does not see that a model changed"
