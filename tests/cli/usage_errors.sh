# Wrong usage: exit code 2, a message on standard error, nothing on standard output.
expect 2 "$WEFT"
filled err
empty out
expect 2 "$WEFT" no-such-verb
has err no-such-verb
empty out
for verb in $(verbs); do
    expect 2 "$WEFT" "$verb" --no-such-option
    has err no-such-option
    empty out
done
for verb in compile inspect estimate plan run bench serve list; do
    expect 2 "$WEFT" "$verb"
    has err "weft $verb"
    empty out
done
expect 2 "$WEFT" list no-such-table
has err no-such-table
expect 2 "$WEFT" inspect --format yaml "$examples/digits_cnn.onnx"
has err yaml
expect 2 "$WEFT" compile --batch 0 "$examples/digits_cnn.onnx" -o x.weft
expect 2 "$WEFT" compile --batch 1,zwei "$examples/digits_cnn.onnx" -o x.weft
expect 2 "$WEFT" compile --target pdp11 "$examples/digits_cnn.onnx" -o x.weft
has err pdp11
[ ! -e x.weft ] || die "wrong usage wrote a file"
# What is read is not written over.
cp "$examples/digits_cnn.onnx" "$examples/digits.yaml" "$examples"/digits_*.onnx .
expect 2 "$WEFT" compile digits_cnn.onnx -o ./digits_cnn.onnx
has err "would overwrite what is read"
expect 1 "$WEFT" compile digits.yaml -o digits_cnn.onnx
has err "is the file of model 'digits'"
cmp digits_cnn.onnx "$examples/digits_cnn.onnx"
expect 2 "$WEFT" report digits.yaml -o digits.yaml
cmp digits.yaml "$examples/digits.yaml"
cp "$examples/fleet.yaml" .
expect 0 "$WEFT" plan digits.yaml --fleet fleet.yaml -o p.json
kept() { # FILE COMMAND...: names FILE as what it would write and as what it reads
    cp "$1" before
    expect 2 "$WEFT" "${@:2}"
    has err "$1 would overwrite what is read"
    cmp "$1" before
}
kept fleet.yaml plan digits.yaml --fleet fleet.yaml -o ./fleet.yaml
kept p.json plan digits.yaml --fleet fleet.yaml --previous p.json -o p.json
kept p.json compile digits.yaml --plan p.json -o x.weft --report p.json
kept digits.yaml simulate p.json --set digits.yaml --bucket 1s --over-time digits.yaml
kept digits_cnn.onnx estimate digits_cnn.onnx --gpu h100 --draw digits_cnn.onnx
printf 'kind,dtype,b,m,n,k,gpu\ngemm,f32,1,512,512,512,h100\n' >k.csv
kept k.csv estimate --kernels k.csv -o k.csv
# What was meant is named, and the exit code is that of wrong usage, whatever the verb.
expect 2 "$WEFT" comiple
has err "did you mean compile?"
expect 2 "$WEFT" xyzzy
lacks err "did you mean"
expect 2 "$WEFT" list gpsu
has err "did you mean gpus?"
expect 2 "$WEFT" compile "$examples/digits_cnn.onnx" -o x.weft --btach 1
has err "did you mean --batch?"
expect 2 "$WEFT" inspect --formta=json "$examples/digits_cnn.onnx"
has err "did you mean --format?"
for gpu in h10 V100-SXM2-32GB GTX-1080 ""; do
    expect 2 "$WEFT" compile "$examples/digits_cnn.onnx" -o x.weft --gpu "$gpu"
    has err "unknown device '$gpu'"
    expect 2 "$WEFT" estimate "$examples/digits_cnn.onnx" --gpu "$gpu"
    has err "unknown device '$gpu'"
    expect 2 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --gpu "$gpu=2"
    has err "unknown device '$gpu'"
done
expect 2 "$WEFT" estimate "$examples/digits_cnn.onnx" --compare h100,h2000
has err "did you mean h200?"
# Usual names are those of the rows; the V100 of PCIe is not that of SXM2.
for pair in "H100=h100" "NVIDIA H100 80GB HBM3=h100" "Tesla V100-PCIE-32GB=v100-pcie-32" "V100-SXM2-16GB=v100" \
    "NVIDIA A100-SXM4-40GB=a100-40" "NVIDIA-A100-SXM4-80GB=a100-80" "A100 80GB PCIe=a100-80-pcie" "Tesla T4=t4" \
    "NVIDIA L40S=l40s" "NVIDIA H200=h200" "H100 PCIe=h100-pcie"; do
    expect 0 "$WEFT" estimate "$examples/digits_cnn.onnx" --gpu "${pair%=*}" --format json
    mv out named
    expect 0 "$WEFT" estimate "$examples/digits_cnn.onnx" --gpu "${pair#*=}" --format json
    diff named out || die "--gpu '${pair%=*}' is not ${pair#*=}"
done
printf 'kind,dtype,b,m,n,k,gpu\ngemm,f32,1,512,512,512,V100-PCIE-32GB\n' >named.csv
sed 's/V100-PCIE-32GB/v100-pcie-32/' named.csv >row.csv
expect 0 "$WEFT" estimate --kernels named.csv -o a.csv
expect 0 "$WEFT" estimate --kernels row.csv -o b.csv
diff <(sed 's/V100-PCIE-32GB/v100-pcie-32/' a.csv) b.csv || die "V100-PCIE-32GB is not v100-pcie-32"
# A file of another kind says what takes it.
"$WEFT" compile "$examples/digits_cnn.onnx" -o digits.weft
expect 2 "$WEFT" plan digits.weft --fleet "$examples/fleet.yaml"
has err "digits.weft is a bundle: plan its set file, with --bundle digits.weft"
expect 2 "$WEFT" serve .
has err "--repository"
# What a name was meant to be, or which there are.
meant() { # CODE TEXT COMMAND...
    expect "$1" "$WEFT" "${@:3}"
    has err "$2"
}
meant 1 "no model is named digits_cn, did you mean digits_cnn?" run digits.weft --model digits_cn
meant 1 "has no input 'imag', did you mean image?" run digits.weft --input imag=@x.npy
meant 1 "has no input 'x'; there is image" run digits.weft --input x=@x.npy
meant 2 "no policy 'wefd', did you mean weft?" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --policy wefd
meant 2 "no pass 'fold-cons', did you mean fold-const?" opt "$examples/digits_cnn.onnx" -p fold-cons
meant 2 "no command 'statu', did you mean status?" ctl --socket nowhere statu
meant 2 "no command 'x'; there are status, plan, " ctl --socket nowhere x
printf 'models:\n  - {name: a, fil: a.onnx}\n' >wrong.yaml
meant 1 "unexpected key: fil, did you mean file?" compile wrong.yaml -o x.weft
