# Models of equal files and options are estimated once and have equal profiles. A terminal shows each estimate.
command -v jq >/dev/null || skip "no jq"
command -v script >/dev/null || skip "no script(1)"
examples=$WEFT_SOURCE_DIR/examples
mkdir one two
cp "$examples/digits_attn.onnx" one/copy.onnx
# Metadata with the word that names files of weights: these may lie beside the model, so that the folder counts.
{ cat "$examples/digits_cnn.onnx"; printf '\x72\x0d\x0a\x08location\x12\x01x'; } >one/cnn.onnx
cp one/cnn.onnx one/again.onnx
cp one/cnn.onnx two/cnn.onnx
{
    echo models:
    for i in {1..20}; do
        echo "  - {name: attn$i, file: $examples/digits_attn.onnx, slo: 50ms, rate: 9000/s}"
    done
    echo "  - {name: attn-copy, file: one/copy.onnx, slo: 50ms, rate: 9000/s}"
    echo "  - {name: attn-small, file: one/copy.onnx, dims: {batch: [1, 2]}, slo: 50ms, rate: 9000/s}"
    echo "  - {name: parity, file: $examples/digits_parity.onnx, slo: 50ms, rate: 10/s}" # as many bytes, other weights
    echo "  - {name: size, file: $examples/digits_size.onnx, slo: 50ms, rate: 10/s}"
    for file in one/cnn one/again two/cnn; do
        echo "  - {name: ${file/\//-}, file: $file.onnx, slo: 50ms, rate: 10/s}"
    done
} >set.yaml
script -qec "'$WEFT' plan set.yaml --fleet '$examples/fleet_gpu.yaml' --isolated -o plan.json" /dev/null \
    </dev/null >shown || die "$(cat shown)"
grep -o 'estimating [^[:space:][:cntrl:]]*' shown | sort -u >names # a line may be drawn again
printf 'estimating %s\n' attn-small attn1 one-cnn parity size two-cnn | cmp - names || die "$(cat names)"
# The estimates are those of each model by itself.
for name in attn7 attn-copy attn-small one-again; do
    { echo models:; grep "name: $name," set.yaml; } >alone.yaml
    expect 0 "$WEFT" plan alone.yaml --fleet "$examples/fleet_gpu.yaml" --isolated -o alone.json
    expect 0 "$WEFT" plan set.yaml --fleet "$examples/fleet_gpu.yaml" --isolated --explain "$name" --format json
    cp out together.json
    expect 0 "$WEFT" plan alone.yaml --fleet "$examples/fleet_gpu.yaml" --isolated --explain "$name" --format json
    jq -e --slurpfile with together.json 'def of: .options | map(del(.verdict, .reason));
        (of | length > 5) and of == ($with[0] | of)' out >/dev/null || die "$name: $(shown out)"
done
