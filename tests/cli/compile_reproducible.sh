# Equal inputs give equal bytes: from another folder, under another name of the working folder, with
# another number of threads, at another time, in another locale and environment.
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
cmp first/a.weft first/b.weft
cmp first/a.weft second/c.weft
cmp first/a.weft d.weft
