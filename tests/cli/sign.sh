# Signatures of bundles: made and checked, by another program too; required by run and serve, which refuse a bundle
# without one, with one of another key, or changed since, also when it is loaded later.
command -v openssl >/dev/null || skip "no openssl"
for key in a b; do
    openssl genpkey -algorithm ed25519 -out $key.pem 2>err || die "$(shown err)"
    openssl pkey -in $key.pem -pubout -out $key.pub
done
expect 0 "$WEFT" compile "$examples/digits.yaml" -o digits.weft
expect 0 "$WEFT" sign digits.weft --key a.pem
expect 0 "$WEFT" sign digits.weft --check a.pub
cat b.pub a.pub >both.pub
expect 0 "$WEFT" sign digits.weft --check both.pub
expect 1 "$WEFT" sign digits.weft --check b.pub
has err "was not signed by a key of b.pub"
# As the document says, by OpenSSL alone.
printf 'weft-bundle-1 %s\n' $(sha512sum <digits.weft | cut -d' ' -f1) >message
sed 's/.* //' digits.weft.sig | base64 -d >raw
openssl pkeyutl -verify -pubin -inkey a.pub -rawin -in message -sigfile raw >out || die "$(shown out)"
# Required by run.
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }" >x.npy
head -c 256 /dev/zero >>x.npy
run() { expect "$1" "$WEFT" run "$2" --model digits --input image=@x.npy --require-signature "$3"; }
run 0 digits.weft a.pub
run 1 digits.weft b.pub
cp digits.weft none.weft
run 1 none.weft a.pub
has err "has no signature $PWD/none.weft.sig"
# One bit of the file, of the signature, or a line too many.
cp digits.weft changed.weft
cp digits.weft.sig changed.weft.sig
printf '\x01' | dd of=changed.weft bs=1 seek=5000 conv=notrunc 2>err
! cmp -s digits.weft changed.weft || printf '\x02' | dd of=changed.weft bs=1 seek=5000 conv=notrunc 2>err
run 1 changed.weft a.pub
has err "or has changed since"
cp digits.weft other.weft
for text in "" "weft-signature-1" "$(cat digits.weft.sig)x" "$(sed 's/1 \//1 A/; t; s/1 ./1 \//' digits.weft.sig)" "$(cat digits.weft.sig; echo)
"; do
    printf '%s\n' "$text" >other.weft.sig
    run 1 other.weft a.pub
done
# Wrong keys.
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024 -out rsa.pem 2>err
expect 1 "$WEFT" sign digits.weft --key rsa.pem -o rsa.sig
has err "Ed25519 key"
expect 1 "$WEFT" sign digits.weft --key a.pub -o rsa.sig
expect 1 "$WEFT" sign digits.weft --check nothing.pub
expect 2 "$WEFT" sign digits.weft
expect 2 "$WEFT" sign digits.weft --key a.pem --check a.pub
# Required by serve, at its start and later.
expect 1 "$WEFT" serve none.weft --http 0 --grpc off --metrics off --require-signature a.pub
has err "has no signature"
# Nothing is parsed before the signature is right, neither of a new bundle nor of one of a state.
head -c 5000 none.weft >half.weft
expect 1 "$WEFT" serve half.weft --http 0 --grpc off --metrics off --require-signature a.pub
has err "has no signature"
lacks err "bundle is"
mkdir -p models/digits/1
cp "$examples/digits_cnn.onnx" models/digits/1/model.onnx
printf 'name: "digits"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\n' >models/digits/config.pbtxt
expect 1 "$WEFT" serve --repository models --http 0 --grpc off --metrics off --require-signature a.pub
has err "there is no bundle to sign"
server=
trap 'kill $server 2>/dev/null || true' EXIT
start() {
    rm -f ready
    "$WEFT" serve ${bundle-now.weft} --http 0 --grpc off --metrics off --require-signature a.pub --control s.sock "$@" >ready 2>log &
    server=$!
    for _ in $(seq 100); do [ -s ready ] && break; sleep 0.1; done
    filled ready
}
stop() {
    kill $server
    wait $server || die "the server ended with an error"
}
bundle=digits.weft start
expect 1 "$WEFT" ctl --socket s.sock load "$PWD/none.weft" --version 2
has err "has no signature"
expect 1 "$WEFT" ctl --socket s.sock load "$PWD/changed.weft" --version 2
cp digits.weft.sig none.weft.sig
expect 0 "$WEFT" ctl --socket s.sock load "$PWD/none.weft" --version 2
stop
# Through a link the signature is that of the file, as after a restart. A bundle of the state that is not signed any more
# is not served; the others are.
mkdir real
cp digits.weft real/1.weft
ln -s real/1.weft now.weft
expect 1 "$WEFT" serve now.weft --http 0 --grpc off --metrics off --require-signature a.pub --state kept
has err "has no signature $PWD/real/1.weft.sig"
expect 0 "$WEFT" sign now.weft --key a.pem
filled real/1.weft.sig
expect 0 "$WEFT" sign now.weft --check a.pub
start --state kept
expect 0 "$WEFT" ctl --socket s.sock load "$PWD/none.weft" --version 2
stop
start --state kept
expect 0 "$WEFT" ctl --socket s.sock status
grep -q '^digits  *2 ' out || die "$(shown out)"
stop
rm none.weft.sig
start --state kept
expect 0 "$WEFT" ctl --socket s.sock status
grep -q '^digits  *1 ' out || die "$(shown out)"
! grep -q '^digits  *2 ' out || die "a bundle without a signature is served"
has log "has no signature"
stop
