# A bundle for GPUs where there is none: run, bench and serve say what they looked for; the null
# driver checks what would be launched, and the CPU's runs the same bundle.
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then
    skip "this machine has a GPU"
fi
code=0
"$WEFT" compile "$examples/digits_cnn.onnx" --target sm_90 --batch 1 \
    -o gpu.weft >out 2>err || code=$?
if [ "$code" -ne 0 ] && grep -q "NVRTC, the compiler of CUDA kernels, is not here" err; then
    skip "no NVRTC: $(head -1 err)"
fi
[ "$code" -eq 0 ] || die "compile: $(shown err)"
for verb in "run gpu.weft --model digits_cnn" "bench gpu.weft" "serve gpu.weft --http 0 --grpc off"; do
    # shellcheck disable=SC2086
    expect 1 "$WEFT" $verb
    has err "the CUDA driver is not here: looked for libcuda.so.1"
done
expect 0 "$WEFT" bench gpu.weft --driver null --time 0.01 --batch 1
has out digits_cnn
expect 0 "$WEFT" bench gpu.weft --driver cpu --time 0.01 --batch 1
has out digits_cnn
lacks out device
expect 2 "$WEFT" bench gpu.weft --driver gpu
has err "no driver is named 'gpu'"
expect 2 "$WEFT" bench gpu.weft --sms 0
has err "not '0'"
expect 2 "$WEFT" run gpu.weft --sms 8@x
has err "not '8@x'"
expect 2 "$WEFT" run gpu.weft --gpu -1
has err "not '-1'"
