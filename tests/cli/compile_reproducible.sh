# Equal inputs give equal bytes: from another folder or working folder, with another number of
# threads, at another time, in another locale, environment and umask, and over an existing file.
set=digits.yaml
mkdir -p first second/deeper
cp "$examples"/*.onnx "$examples/$set" first
cp "$examples"/*.onnx "$examples/$set" second/deeper
touch -d '2001-02-03' second/deeper/*
(cd first && "$WEFT" compile "$set" -o a.weft)
(cd first && OMP_NUM_THREADS=1 "$WEFT" compile "$set" -o b.weft)
(cd second && OMP_NUM_THREADS=2 LC_ALL=C TZ=Asia/Tokyo EXTRA=1 \
    "$WEFT" compile "deeper/$set" -o c.weft)
(cd / && taskset -c 0 "$WEFT" compile "$box/second/deeper/$set" -o "$box/d.weft")
(umask 077 && cd first && LC_ALL=C.UTF-8 HOME=/nonexistent TMPDIR=/nonexistent \
    "$WEFT" compile "$set" -o e.weft)
cmp first/a.weft first/e.weft
(cd first && "$WEFT" compile "$set" -o e.weft)
cmp first/a.weft first/e.weft
cmp first/a.weft first/b.weft
cmp first/a.weft second/c.weft
cmp first/a.weft d.weft
# So do reports, and models given on the command line in the order of the set.
(cd first && "$WEFT" compile "$set" -o f.weft --report f.json)
(cd second/deeper && "$WEFT" compile "$set" -o g.weft --report g.json)
cmp first/f.json second/deeper/g.json
(cd first && "$WEFT" compile digits_cnn.onnx digits_attn.onnx -o h.weft)
(cd second && "$WEFT" compile deeper/digits_cnn.onnx "$box/first/digits_attn.onnx" -o i.weft)
cmp first/h.weft second/i.weft
