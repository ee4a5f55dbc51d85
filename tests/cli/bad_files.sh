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
# What a file seems to be.
cp "$examples/digits_cnn.onnx" model.onnx
printf 'PK\3\4 model.pt' >model.pt
expect 1 "$WEFT" compile model.pt -o new.weft
has err 'no ONNX file: ModelProto at byte 2: malformed tag: this is a zip archive, as PyTorch writes; torch.onnx.export'
for verb in run bench serve; do
    expect 1 "$WEFT" $verb model.onnx
    has err 'model.onnx: not a bundle: this is an ONNX model; weft compile makes a bundle of it'
done
expect 1 "$WEFT" plan model.onnx --fleet "$examples/fleet.yaml"
has err 'is not YAML: control characters are not allowed: this is an ONNX model'
expect 1 "$WEFT" simulate model.onnx
has err "is no plan: invalid JSON: '[' or '{' expected"
printf 'models: 3\n' >set.yaml
expect 1 "$WEFT" plan set.yaml --fleet "$examples/fleet.yaml"
has err 'set.yaml:1: needs a list here, not a single value'
expect 1 "$WEFT" inspect set.yaml
has err 'this seems to be a set file, which compile, estimate and plan take'
# No colour and no progress if standard error is not a terminal.
lacks err $'\033'
