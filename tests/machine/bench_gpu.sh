# `weft bench` shows measurements of the GPU beside the estimates of the bundle.
# ctest label: slow (compilers of kernels take the time).
command -v g++ >/dev/null || skip "no g++, which the double of NVRTC calls"
export LD_LIBRARY_PATH=$DOUBLES WEFT_DOUBLE_CACHE=$PWD/cache WEFT_DOUBLE_NVML=$PWD/machine
printf 'driver 580.65.06 13000\ngpu h200\npower 0 250000\n' >machine
expect 0 "$WEFT" compile "$examples/digits_cnn.onnx" --target sm_90 --gpu h200 --batch 1 -o d.weft
expect 0 "$WEFT" bench d.weft --time 0.3 --format json
python3 -c '
import json
r = json.load(open("out"))["results"][0]
assert 100 < r["power_w"] < 600 and r["energy_j"] > 0 and r["mem_bytes"] == 0, r
assert r["sm_activity"] == 0.12 and r["memory_activity"] == 0.2, r
e = r["estimate"]
assert e["time_us"] > 0 and e["energy_j"] > 0 and e["mreq_bytes"] > 0 and e["source"], r
' || die "$(shown out)"
expect 0 "$WEFT" bench d.weft --time 0.3
has out "    measured  "
has out " W  SMs 12%  tensor cores 15%  bandwidth 20%"
has out "    estimated "
# CUDA_VISIBLE_DEVICES makes the second GPU CUDA's only one.
printf 'driver 580.65.06 13000\ngpu a100-40\ngpu h200\npower 0 50000\npower 1 250000\n' >machine
WEFT_DOUBLE_FASTEST=1 expect 0 "$WEFT" bench d.weft --time 0.3 --format json
python3 -c '
import json
r = json.load(open("out"))["results"][0]
assert 100 < r["power_w"] < 600 and r["estimate"]["time_us"] > 0, r
' || die "$(shown out)"
# A GPU that reports nothing: the estimates are shown alone.
LD_LIBRARY_PATH=$DOUBLES WEFT_DOUBLE_NVML=$PWD/none expect 0 "$WEFT" bench d.weft --time 0.1 --format json
python3 -c '
import json
r = json.load(open("out"))["results"][0]
assert r["energy_j"] is None and r["mem_bytes"] is None and r["median_ms"] > 0, r
' || die "$(shown out)"
