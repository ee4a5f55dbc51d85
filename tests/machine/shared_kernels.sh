# One kernel serves all shapes: kernels of other sizes and learned numbers are compiled once, and each launch computes
# its own result.
# ctest label: slow (a C++ compiler takes the time).
command -v g++ >/dev/null || skip "no g++, which the double of NVRTC calls"
find_python numpy
export WEFT_DOUBLE_CACHE=$PWD/cache
cat >shapes.wir <<'END'
wir 1 graph
symbol ?b = [1, 8]
weight $v : f32[24] = random 1
weight $w : f32[40] = random 2
weight $p : f32[24,24] = random 3
weight $q : f32[24,40] = random 4
weight $d : f32[24,1,3,3] = random 5
weight $e : f32[40,1,3,3] = random 6
graph @m (%x : f32[?b,6,24], %y : f32[?b,10,40], %c : f32[?b,24,8,8], %d : f32[?b,40,6,6]) {
  symbol ?b "batch"
  %1 : f32[?b,6,24] = ew %x, $v {steps = ["mul i0 i1", "add s0 #1.5", "max s1 #-0.25"]}
  %2 : f32[?b,10,40] = ew %y, $w {steps = ["mul i0 i1", "add s0 #-2.5", "max s1 #0.75"]}
  %3 : f32[?b,24,6] = transpose %1 {perm = [0, 2, 1]}
  %4 : f32[?b,40,10] = transpose %2 {perm = [0, 2, 1]}
  %5 : f32[?b,6,120] = concat %x, %1, %x, %x, %1 {axis = 2}
  %6 : f32[?b,10,240] = concat %y, %y, %2, %y, %2, %y {axis = 2}
  %7 : f32[?b,24] = reduce_mean %1 {axes = dims[1], keepdims = 0}
  %8 : f32[?b,40] = reduce_mean %2 {axes = dims[1], keepdims = 0}
  %9 : f32[?b,6,24] = matmul %1, $p {epilogue = ["sigmoid acc", "mul s0 #3.5"]}
  %10 : f32[?b,6,40] = matmul %1, $q {epilogue = ["sigmoid acc", "mul s0 #-1.25"]}
  %11 : f32[?b,24,8,8] = conv %c, $d {group = 24, pads = [1, 1, 1, 1]}
  %12 : f32[?b,40,6,6] = conv %d, $e {group = 40, pads = [1, 1, 1, 1]}
  return "a" %3, "b" %4, "c" %5, "d" %6, "e" %7, "f" %8, "g" %9, "h" %10, "i" %11, "j" %12
}
END
expect 0 "$WEFT" compile shapes.wir -o c.weft
LD_LIBRARY_PATH=$DOUBLES expect 0 "$WEFT" compile shapes.wir --target sm_90 --precision f32 -o g.weft
# ew, transpose, move (of the borders), concat, reduce, gemm, depthwise.
has out "kernels: 7"
"$python" - <<'PY'
import numpy as np
r = np.random.default_rng(1)
for name, shape in (("x", (3, 6, 24)), ("y", (3, 10, 40)), ("c", (3, 24, 8, 8)), ("d", (3, 40, 6, 6))):
    np.save(f"{name}.npy", r.standard_normal(shape).astype(np.float32))
PY
inputs=() want=() got=()
for name in x y c d; do
    inputs+=(--input "$name=@$name.npy")
done
for name in a b c d e f g h i j; do
    want+=(--output "$name=@want.$name.npy")
    got+=(--expect "$name=@want.$name.npy")
done
expect 0 "$WEFT" run c.weft "${inputs[@]}" "${want[@]}"
LD_LIBRARY_PATH=$DOUBLES expect 0 "$WEFT" run g.weft "${inputs[@]}" "${got[@]}"

# Long chains: more numbers than a kernel has parameters for, and names of theirs that are no types.
long_chain() { # FIRST N: steps; the first one reads FIRST
    printf '"mul %s #1.25"' "$1"
    for i in $(seq 1 "$(($2 - 1))"); do
        printf ', "clip s%d #-%d.5 #%d.25"' $((i - 1)) $((i % 5 + 2)) $((i + 3))
    done
}
cat >chains.wir <<END
wir 1 graph
symbol ?b = [1, 8]
weight \$p : f32[24,24] = random 3
graph @m (%x : f32[?b,24], %y : f16[?b,24]) {
  symbol ?b "batch"
  %1 : f32[?b,24] = ew %x {steps = [$(long_chain i0 64)]}
  %2 : f16[?b,24] = ew %y {steps = [$(long_chain i0 20)]}
  %3 : f32[?b,24] = matmul %x, \$p {epilogue = [$(long_chain acc 20)]}
  return "a" %1, "b" %2, "c" %3
}
END
expect 0 "$WEFT" compile chains.wir -o c.weft
LD_LIBRARY_PATH=$DOUBLES expect 0 "$WEFT" compile chains.wir --target sm_90 --precision f32 -o g.weft
"$python" - <<'PY'
import numpy as np
r = np.random.default_rng(2)
for name, dtype in (("x", np.float32), ("y", np.float16)):
    np.save(f"{name}.npy", (3 * r.standard_normal((3, 24))).astype(dtype))
PY
inputs=(--input x=@x.npy --input y=@y.npy)
expect 0 "$WEFT" run c.weft "${inputs[@]}" --output a=@a.npy --output b=@b.npy --output c=@c.npy
LD_LIBRARY_PATH=$DOUBLES expect 0 "$WEFT" run g.weft "${inputs[@]}" --expect a=@a.npy --expect b=@b.npy --expect c=@c.npy
