# An estimate has the documented keys and names the source of its numbers.
command -v jq >/dev/null || skip "no jq"
for gpu in h100 a100-80 cpu; do
    expect 0 "$WEFT" estimate "$examples/digits_cnn.onnx" --gpu "$gpu" --batch 8 --format json
    jq -e '[.. | objects | select(has("time_us"))] | length > 0 and all(.time_us > 0
        and has("creq") and has("mreq_bytes") and has("energy_j") and has("source")
        and has("expected_error"))' out >/dev/null || die "$gpu: $(shown out)"
done
expect 2 "$WEFT" estimate "$examples/digits_cnn.onnx" --gpu no-such-gpu
has err no-such-gpu
