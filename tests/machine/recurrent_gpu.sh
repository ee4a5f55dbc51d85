# Random lstm, gru and rnn layers on GPUs (the doubles) beside the reference kernels.
# ctest label: slow (a C++ compiler takes the time).
command -v g++ >/dev/null || skip "no g++, which the double of NVRTC calls"
find_python numpy
export WEFT_DOUBLE_CACHE=$PWD/cache
count=${WEFT_RECURRENT_LAYERS:-24}
WEFT_ORACLE=reference PYTHONPATH=$WEFT_SOURCE_DIR/tests/conform:$WEFT_SOURCE_DIR/tests/support:${PYTHONPATH:-} \
    "$python" - "$count" "${WEFT_RECURRENT_SEED:-1}" <<'END'
import sys
import numpy as np
import random_recurrent
random_recurrent.REFERENCE = True # layouts and empty sequences, too
from onnx_file import Graph
for k in range(int(sys.argv[1])):
    maker = random_recurrent.Maker(np.random.RandomState(int(sys.argv[2]) * 1000 + k))
    graph, inputs, text = maker.make()
    graph.save(f"layer{k}.onnx")
    with open(f"layer{k}.txt", "w") as f:
        f.write(" ".join(f"--input {n}=@layer{k}.{n}.npy" for n in inputs))
        f.write("\n" + " ".join(p.name for p in graph.outputs) + "\n" + text + "\n")
    for name, x in inputs.items():
        np.save(f"layer{k}.{name}.npy", x)
END
expect 0 "$WEFT" compile layer*.onnx --merge none -o c.weft
LD_LIBRARY_PATH=$DOUBLES expect 0 "$WEFT" compile layer*.onnx --merge none --target sm_90 --precision f32 -o g.weft
for k in $(seq 0 $((count - 1))); do
    { read -r -a inputs; read -r -a outputs; read -r text; } <"layer$k.txt"
    want=() got=()
    for name in "${outputs[@]}"; do
        want+=(--output "$name=@want.$name.npy")
        got+=(--expect "$name=@want.$name.npy")
    done
    expect 0 "$WEFT" run c.weft --model "layer$k" --driver null "${inputs[@]}" "${want[@]}"
    LD_LIBRARY_PATH=$DOUBLES expect 0 "$WEFT" run g.weft --model "layer$k" "${inputs[@]}" "${got[@]}" --tolerance 1e-5 ||
        die "$text"
done
