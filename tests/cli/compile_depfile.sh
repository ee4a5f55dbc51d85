# A depfile names the output and every input, so that make and ninja rebuild when one changes.
for tool in make jq; do command -v $tool >/dev/null || skip "no $tool"; done
cp "$examples"/digits_*.onnx "$examples/digits.yaml" .
touch -d '-1 hour' ./*
expect 0 "$WEFT" compile digits.yaml -o digits.weft --depfile digits.d
for file in digits.weft: digits.yaml digits_{cnn,parity,size,attn}.onnx; do
    has digits.d "$file"
done
# A profile is an input as well: the bundle keeps the host cost that it tells.
printf 'device,slice,batch,time_us,host_us\ncpu,1core,1,90,250\ncpu,1core,8,500,300\n' >cnn.csv
sed 's/file: digits_cnn.onnx/&\n    profile: cnn.csv/' digits.yaml >told.yaml
expect 0 "$WEFT" compile told.yaml -o told.weft --depfile told.d
has told.d cnn.csv
expect 0 "$WEFT" inspect told.weft --format json
jq -e '[.models[] | select(.name == "digits").host_us] == [300]' out >/dev/null || die "host cost is lost"
jq -e '[.models[] | select(.name != "digits").host_us] | unique == [0]' out >/dev/null || die "host cost of others"
printf 'digits.weft: digits.yaml\n\ttouch digits.weft\n-include digits.d\n' >Makefile
make -q || die "make wants to rebuild what is up to date"
touch -d '-1 minute' digits.weft
touch digits_size.onnx
! make -q || die "make does not see that a model changed"
