# Bundles in stores: what two bundles have in common moves once, pulls go on after an interruption and wait for each
# other, what has other contents than its name says is refused, and so is a bundle without the signature it needs.
command -v openssl >/dev/null || skip "no openssl"
command -v jq >/dev/null || skip "no jq"
compile() { expect 0 "$WEFT" compile "${@:2}" -o "$1"; }
compile a.weft "$examples/digits_cnn.onnx" "$examples/digits_parity.onnx"
compile b.weft "$examples/digits_cnn.onnx" "$examples/digits_parity.onnx" "$examples/digits_attn.onnx"
hash_of() { sha256sum <"$1" | cut -d' ' -f1; }
push() { expect 0 "$WEFT" push "$@" --format json; }
pull() { expect 0 "$WEFT" pull store "$@" --format json; }
is() { [ "$(jq "$1" out)" = "$2" ] || die "$1 is not $2: $(shown out)"; }
push a.weft store
is .sha256 "\"$(hash_of a.weft)\""
is .bytes "$(bytes a.weft)"
is .new_bytes "$(bytes a.weft)"
# As much was written as .put_bytes says; the same bundle again needs no chunk.
is .put_bytes "$(find store -type f -printf '%s\n' | paste -sd+ | bc)"
push a.weft store
is .new_chunks 0
# The chunks of the index are the bundle, in order, as the document says.
a=$(hash_of a.weft)
tail -n +2 "store/bundles/$a" | while read -r hash _ kind _; do
    if [ "$kind" = zstd ]; then zstd -dcq "store/chunks/${hash:0:2}/$hash.zst"; else cat "store/chunks/${hash:0:2}/$hash"; fi
done >whole || true
if command -v zstd >/dev/null; then cmp whole a.weft || die "the chunks are not the bundle"; fi
# A bundle with weights in common: only what is new is stored, and moves.
push b.weft store --tag prod --zstd 0
b=$(hash_of b.weft)
at_most "$(jq .new_bytes out)" $(($(bytes b.weft) - $(bytes a.weft) / 2))
pull "sha256:$a" -o got.weft
cmp got.weft a.weft || die "other bytes"
is .was_there false
pull "sha256:$a" -o got.weft
is .was_there true
[ ! -e got.weft.part ] || die "a part is left"
pull prod -o got.weft
cmp got.weft b.weft || die "other bytes"
at_most $(($(bytes a.weft) / 2)) "$(jq .reused_bytes out)"
[ "$(jq '.reused_bytes + .fetched_bytes + .kept_bytes' out)" = "$(bytes b.weft)" ] || die "bytes are missing: $(shown out)"
# The older bundle under another name, and in a folder.
pull prod -o x.weft --have a.weft
moved=$(jq .transferred_bytes out)
at_most $(($(bytes a.weft) / 2)) "$(jq .reused_bytes out)"
mkdir old
cp a.weft old
pull prod -o y.weft --have old
[ "$(jq .transferred_bytes out)" = "$moved" ] || die "a folder is not searched: $(shown out)"
head -c 3000 a.weft >broken.weft
pull prod -o z.weft --have broken.weft
is .reused_bytes 0
# After an interruption: what is there stays, holes and damaged bytes are fetched.
head -c $(($(bytes b.weft) / 2)) b.weft >t.weft.part
printf 'x' | dd of=t.weft.part bs=1 seek=100 conv=notrunc 2>err
pull prod -o t.weft
cmp t.weft b.weft || die "other bytes"
at_most 1000 "$(jq .kept_bytes out)"
# A tag is no file: a bundle of its name is pulled again.
for _ in 1 2; do pull prod -o prod; done
is .was_there true
# Several at a time: one of them gets the bundle.
for i in 1 2 3 4; do "$WEFT" pull store prod -o many.weft --format json >many.$i 2>many.err & done
wait
cmp many.weft b.weft || die "other bytes"
[ "$(jq -s 'map(select(.was_there | not)) | length' many.[1-4])" = 1 ] || die "$(cat many.*)"
# Wrong contents: a chunk, its size, the index, a tag, names.
fails() { # TEXT ARGUMENT...
    expect 1 "$WEFT" pull store "${@:2}"
    has err "$1"
    [ ! -e bad.weft ] || die "a bundle in spite of an error"
}
cp -r store kept
chunk=$(find store/chunks -type f -size -100k ! -name '*.zst' | sort | head -1)
damage() { rm -rf store bad.weft.part && cp -r kept store && printf "$2" | dd of="$1" bs=1 seek="${3-10}" conv=notrunc 2>err; }
damage "$chunk" '\xff\x00\xff'
fails "has other contents than its name says" prod -o bad.weft
damage "$chunk" ''
printf 'x' >>"$chunk"
fails "$(basename "$chunk")" prod -o bad.weft
damage "$chunk" ''
truncate -s 7 "$chunk"
fails "has 7 bytes in place of" prod -o bad.weft
rm "$chunk"
fails "has no chunks/" prod -o bad.weft
mkfifo "$chunk" # is not waited for
fails "is not a regular file" prod -o bad.weft
# Nothing is fetched for a name that cannot be replaced.
rm -rf store bad.weft.part && cp -r kept store && mkdir folder.weft
fails "cannot replace: Is a directory" prod -o folder.weft
[ ! -s folder.weft.part ] || die "was fetched"
for packed in $(find kept/chunks -name '*.zst' | head -1); do
    damage "${packed/kept/store}" '\xff\xff\xff\xff'
    fails "has other contents" "sha256:$a" -o bad.weft
done
damage "store/bundles/$b" 'x' 0
fails "not the index of a bundle" prod -o bad.weft
damage "store/bundles/$b" 'x' 100
fails ":2: wrong line of an index" prod -o bad.weft
cp "kept/bundles/$a" "store/bundles/$b"
fails "is the index of another bundle" prod -o bad.weft
# Chunks that are right, in another order: the index does not tell the truth about the whole.
{ sed -n 1p "kept/bundles/$b"; sed 1d "kept/bundles/$b" | tac; } >"store/bundles/$b"
fails "are not that bundle" prod -o bad.weft
[ ! -e bad.weft.part ] || die "wrong bytes are kept"
rm -rf store && cp -r kept store
printf 'sha256:%s' "$b" >store/tags/prod
fails "is no tag" prod -o bad.weft
fails "has no tags/none" none -o bad.weft
fails "has no bundles/" "sha256:$(printf '0%.0s' $(seq 64))" -o bad.weft
for name in ../x a/b '' . "sha256:${b^^}" "sha256:$b/"; do fails "a bundle is named by" "$name" -o bad.weft; done
expect 1 "$WEFT" pull none prod -o bad.weft
has err "no folder"
expect 2 "$WEFT" pull store prod
expect 2 "$WEFT" pull store -o bad.weft
expect 2 "$WEFT" pull store prod -o bad.weft --token a
expect 1 "$WEFT" push a.weft store --tag ../x
expect 1 "$WEFT" push broken.weft store
rm -rf store && cp -r kept store
# Signatures go with their bundles, are asked for, and leave with them.
openssl genpkey -algorithm ed25519 -out key.pem 2>err && openssl pkey -in key.pem -pubout -out key.pub
fails "has no signature in the store" prod -o bad.weft --require-signature key.pub
rm bad.weft.part
expect 0 "$WEFT" sign b.weft --key key.pem
push b.weft store
is .signed true
pull prod -o signed.weft --require-signature key.pub --have a.weft
is .reused_bytes 0
expect 0 "$WEFT" sign signed.weft --check key.pub
pull "sha256:$a" -o next.weft --have signed.weft
pull prod -o signed.weft --require-signature key.pub
is .was_there true
cp a.weft.sig b.weft.sig 2>err || printf 'weft-signature-1 x\n' >"store/bundles/$b.sig"
fails "its signature has a wrong form" prod -o bad.weft --require-signature key.pub
pull "sha256:$a" -o signed.weft
[ ! -e signed.weft.sig ] || die "the signature of another bundle is left"
