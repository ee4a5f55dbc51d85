# Inputs that are missing, empty, not a model or a folder: exit code 1, the message names the file,
# no output file is created and an existing one is not changed.
printf 'neither ONNX nor text nor bundle' >garbage.onnx
: >empty.onnx
head -c 1000 "$examples/digits_cnn.onnx" >cut.onnx
mkdir folder.onnx
echo before >kept.weft
for file in missing.onnx garbage.onnx empty.onnx cut.onnx folder.onnx; do
    expect 1 "$WEFT" compile "$file" -o kept.weft
    has err "$file"
    has kept.weft before
    expect 1 "$WEFT" compile "$file" -o new.weft
    [ ! -e new.weft ] || die "a failed compilation of $file wrote a file"
    for verb in inspect opt; do
        expect 1 "$WEFT" "$verb" "$file"
        has err "$file"
        empty out
    done
done
for file in ./*tmp* ./.*tmp*; do
    [ ! -e "$file" ] || die "a temporary file is left: $file"
done
expect 1 "$WEFT" run missing.weft --model m --input x=@x.npy
has err missing.weft
printf 'models:\n  - name: m\n    file: missing.onnx\n' >set.yaml
expect 1 "$WEFT" compile set.yaml -o new.weft
has err missing.onnx
printf 'models:\n  - name: m\n    fiel: a.onnx\n' >set.yaml
expect 1 "$WEFT" compile set.yaml -o new.weft
has err set.yaml
# No colour and no progress if standard error is not a terminal.
lacks err $'\033'
