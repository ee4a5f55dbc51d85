# A model repository of Triton: versions by policy, batch sizes, ensembles, what is left out or wrong.
# conform/serve/serve_triton compares answers.
command -v jq >/dev/null || skip "no jq"
mkdir -p models/cnn/1 models/cnn/3 models/attn/2 models/python/1 models/heads models/bare/1 models/empty
cp "$examples/digits_cnn.onnx" models/cnn/1/model.onnx
cp "$examples/digits_cnn.onnx" models/cnn/3/model.onnx
cp "$examples/digits_attn.onnx" models/attn/2/net.onnx
cp "$examples/digits_parity.onnx" models/bare/1/model.onnx
cat >models/cnn/config.pbtxt <<'PBTXT'
name: "cnn"
platform: "onnxruntime_onnx"
max_batch_size: 12
input [ { name: "image" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] } ]
output [ { name: "logits" data_type: TYPE_FP32 dims: [ 10 ] } ]
version_policy: { all { } }
PBTXT
echo 'backend: "onnxruntime" default_model_filename: "net.onnx" optimization { }' >models/attn/config.pbtxt
echo 'backend: "python"' >models/python/config.pbtxt
ensemble() { # PRODUCER OUTPUT
    cat <<PBTXT
platform: "ensemble"
max_batch_size: 8
input { name: "PIXELS", data_type: TYPE_FP32, dims: [1, 8, 8] }
output [ { name: "PARITY" data_type: TYPE_FP32 dims: 2 }, { name: "DIGIT" data_type: TYPE_FP32 dims: 10 } ]
ensemble_scheduling { step [
  { model_name: "bare" model_version: -1 input_map { key: "image" value: "PIXELS" } output_map { key: "logits" value: "PARITY" } },
  { model_name: "$1" model_version: -1 input_map { key: "image" value: "PIXELS" } output_map { key: "$2" value: "DIGIT" } }
] }
PBTXT
}
ensemble cnn logits >models/heads/config.pbtxt

expect 0 "$WEFT" compile --repository models -o all.weft
has err "models/python: is of backend 'python', not of ONNX: left out"
has err "models/empty: has neither config.pbtxt nor a folder of a version: left out"
has err "models/attn/config.pbtxt:1: optimization has no counterpart in weft"
"$WEFT" inspect all.weft --format json >all.json
show() { jq -c "[.models[] | $1]" all.json; }
[ "$(show '[.name, .serves, .version]')" = '[["attn","attn","2"],["bare","bare","1"],["cnn","cnn","3"],["cnn.v1","cnn","1"],["heads","heads","1"]]' ] ||
    die "$(show '[.name, .serves, .version]')"
[ "$(jq -c '[.models[2].buckets[].symbols[0]], .models[2].symbols[0].max' all.json | tr -d '\n')" = '[1,2,4,8,12]12' ] ||
    die "$(jq -c '.models[2]' all.json)"
[ "$(jq -c '.models[4] | [[.inputs[].name], [.outputs[].name]]' all.json)" = '[["PIXELS"],["PARITY","DIGIT"]]' ] || die "$(jq -c '.models[4]' all.json)"
expect 0 "$WEFT" inspect all.weft
has out "serves   version 1 of cnn"
# A folder is a set for the other verbs; one model's folder is a repository with that model.
expect 0 "$WEFT" compile models -o again.weft
cmp all.weft again.weft || die "two compilations differ"
expect 0 "$WEFT" compile models/heads -o one.weft
[ "$("$WEFT" inspect one.weft --format json | jq -c '[.models[].name]')" = '["heads"]' ] || die "not heads alone"
expect 0 "$WEFT" plan models --fleet "$examples/fleet.yaml" --bundle all.weft -o plan.json
[ "$(jq '[.placements[].model] | length' plan.json)" -ge 1 ] || die "nothing is placed"

expect 0 "$WEFT" compile models/heads -o one.weft --depfile one.d
for file in heads/config.pbtxt cnn/config.pbtxt cnn/3/model.onnx bare/1/model.onnx; do has one.d "models/$file"; done

# Labels that cannot be used are named, and the model is compiled without them.
cp -r models/bare labelled
echo 'max_batch_size: 8 output { name: "logits" data_type: TYPE_FP32 dims: 2 label_filename: "labels.txt" }' >labelled/config.pbtxt
labels() { # WARNING
    expect 0 "$WEFT" compile labelled -o l.weft
    if [ -n "$1" ]; then has err "$1"; else lacks err labels; fi
}
labels "config.pbtxt:1: label_filename: the model's folder has no file 'labels.txt': left out"
printf 'even\nodd' >labelled/labels.txt
labels ""
printf 'even\0\nodd\n' >labelled/labels.txt
labels "config.pbtxt:1: label_filename: a NUL byte is in file 'labels.txt': left out"
seq 65536 >labelled/labels.txt
labels ""
echo more >>labelled/labels.txt
labels "labels.txt:65537: an output has at most 65536 labels: lines from here on are left out"
head -c 1048577 /dev/zero >labelled/labels.txt
labels "config.pbtxt:1: label_filename: more than 1 MiB are in file 'labels.txt': left out"

# Policies.
policy() {
    sed -i "s/^version_policy.*/version_policy: { $1 }/" models/cnn/config.pbtxt
    expect 0 "$WEFT" compile models/cnn -o p.weft
    "$WEFT" inspect p.weft --format json | jq -c '[.models[].version]'
}
[ "$(policy 'latest { }')" = '["3"]' ] || die "latest"
[ "$(policy 'latest { num_versions: 5 }')" = '["3","1"]' ] || die "latest 5"
[ "$(policy 'specific { versions: [1] }')" = '["1"]' ] || die "specific"

# What does not agree: both sides are named.
wrong() { # PATTERN REPLACEMENT MESSAGE
    cp models/cnn/config.pbtxt kept
    sed -i "s/$1/$2/" models/cnn/config.pbtxt
    expect 1 "$WEFT" compile models/cnn -o wrong.weft
    has err "$3"
    cp kept models/cnn/config.pbtxt
}
wrong 'dims: \[ 10 \]' 'dims: [ 11 ]' "output 'logits' is f32 [?,11] here, models/cnn/1/model.onnx has f32 [?,10]"
wrong 'TYPE_FP32 dims: \[ 1,' 'TYPE_FP16 dims: [ 1,' "input 'image' is f16 [?,1,8,8] here, models/cnn/1/model.onnx has f32 [?,1,8,8]"
wrong '"image"' '"pixels"' "input 'pixels' is f32 [?,1,8,8] here, models/cnn/1/model.onnx has no such input"
wrong 'max_batch_size: 12' '' "input 'image' is f32 [1,8,8] here"
wrong 'name: "cnn"' 'name: "other"' "the model is called 'other', its folder 'cnn'"
wrong 'versions: \[1\]' 'versions: [2]' "version 2, which has no folder"
wrong '"onnxruntime_onnx"' '"pytorch_libtorch"' "is of backend 'pytorch_libtorch', not of ONNX"
wrong 'platform' 'platform {' "config.pbtxt:2"
ensemble cnn none >models/heads/config.pbtxt
expect 1 "$WEFT" compile models/heads -o wrong.weft
has err "has no output 'none'"
ensemble none logits >models/heads/config.pbtxt
expect 1 "$WEFT" compile models/heads -o wrong.weft
has err "the repository has no model 'none'"
ensemble python logits >models/heads/config.pbtxt
expect 1 "$WEFT" compile models/heads -o wrong.weft
has err "has step 'python', which is of backend 'python', not of ONNX: left out"
expect 1 "$WEFT" compile --repository models/empty -o wrong.weft
has err "is a folder without models"
expect 2 "$WEFT" compile --repository models x.onnx -o wrong.weft
[ ! -e wrong.weft ] || die "a bundle was written"
