# Operands whose dims are 1 or not in a run, which the compiler cannot know: kernels for GPUs beside the CPU's.
# ctest label: slow (a C++ compiler takes the time).
command -v g++ >/dev/null || skip "no g++, which the double of NVRTC calls"
find_python numpy
export WEFT_DOUBLE_CACHE=$PWD/cache
model=$WEFT_SOURCE_DIR/tests/doubles/broadcast.wir
expect 0 "$WEFT" compile "$model" -o c.weft
LD_LIBRARY_PATH=$DOUBLES expect 0 "$WEFT" compile "$model" --target sm_90 --precision f32 -o g.weft
for s in 1 2 4; do
    "$python" - "$s" <<'END'
import sys
import numpy as np
s = int(sys.argv[1])
r = np.random.default_rng(s)
for name, shape in (("x", (s, 3, 8)), ("y", (1, 3, 8)), ("b", (1, 8, 5)), ("m", (1, 1, 3, 3))):
    np.save(f"{name}.npy", r.standard_normal(shape).astype(np.float32))
END
    inputs=(--input x=@x.npy --input y=@y.npy --input b=@b.npy --input m=@m.npy)
    want=() got=()
    for name in sum least product attended; do
        want+=(--output "$name=@$name.npy")
        got+=(--expect "$name=@$name.npy")
    done
    expect 0 "$WEFT" run c.weft "${inputs[@]}" "${want[@]}"
    LD_LIBRARY_PATH=$DOUBLES expect 0 "$WEFT" run g.weft "${inputs[@]}" "${got[@]}"
    "$python" - <<'END'
import math
import numpy as np
x, y, b, m = (np.load(f"{n}.npy").astype(np.float64) for n in "xybm")
t = x + y
gelu = t * 0.5 * (1 + np.vectorize(math.erf)(t / math.sqrt(2)))
least = np.minimum(gelu, y)
h = lambda a: a.reshape(len(x), 3, 2, 4).transpose(0, 2, 1, 3)
score = h(least) @ h(gelu).transpose(0, 1, 3, 2) * 0.5 + m
score = np.exp(score - score.max(-1, keepdims=True))
attended = (score / score.sum(-1, keepdims=True) @ h(least)).transpose(0, 2, 1, 3).reshape(x.shape)
for name, want in (("sum", gelu), ("least", least), ("product", least @ b), ("attended", attended)):
    assert np.abs(np.load(f"{name}.npy") - want).max() < 1e-5, name
END
done
# Neither equal nor 1: refused when it runs.
"$python" -c '
import numpy as np
for name, shape in (("x", (6, 3, 8)), ("y", (2, 3, 8)), ("b", (2, 8, 5)), ("m", (2, 1, 3, 3))):
    np.save(f"{name}.npy", np.zeros(shape, np.float32))'
LD_LIBRARY_PATH=$DOUBLES expect 1 "$WEFT" run g.weft "${inputs[@]}"
has err "6 and 2 do not broadcast"
