# tests/gpu/run.sh, made for machines with a GPU, on the doubles: packed and run without errors.
# ctest label: slow (a C++ compiler takes the time).
command -v g++ >/dev/null || skip "no g++, which the double of NVRTC calls"
find_python
[ -d /usr/share/libonnx-testdata/data/node ] || skip "no libonnx-testdata"
"$WEFT_SOURCE_DIR/tests/gpu/pack.sh" pack --weft "$WEFT" --loose >/dev/null
printf 'driver 580.65.06 13000\ngpu h200\n' >machine
export WEFT_DOUBLE_CACHE=$PWD/cache WEFT_DOUBLE_NVML=$PWD/machine
expect 0 env LD_LIBRARY_PATH="$DOUBLES" pack/run.sh --quick --out results --seconds 400
has out "serve: 30 answers, a worker killed between"
has out "0 failures"
"$python" -c '
import json
r = json.load(open("results/results.json"))
count = r["steps"]["operators"]["count"]
assert count["right"] >= 5 and count["wrong"] == 0, count
assert "results" in r["steps"]["tuned"]["digits_attn"]["measured"], r["steps"]["tuned"]
assert r["steps"]["serve"]["answers"] == 1 and r["machine"]["gpus"][0]["sms"] == 132
' || die "$(shown results/results.json)"
# Without a GPU: skipped.
expect 77 env WEFT_DOUBLE_NVML="$PWD/none" LD_LIBRARY_PATH="$DOUBLES" pack/run.sh --out none
has out "no GPU here"
# A folder that is not a pack.
expect 1 "$WEFT_SOURCE_DIR/tests/gpu/run.sh" --out none
has err "no payload beside it"
