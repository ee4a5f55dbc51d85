# An endless loop ends at the time limit, in loops of loops too, and says in which node.
find_python
cat >endless.wir <<'WIR'
wir 1 graph
graph @endless (%x : f32[2]) {
  %1 : f32[2] = loop _, _, %x {body = "endless.body", carried = 1}  loc "m.onnx" "Forever"
  return "y" %1
}
body @endless.body (%in0 : i64[], %in1 : bool[], %in2 : f32[2]) {
  %1 : f32[2] = loop _, _, %in2 {body = "endless.body.body", carried = 1}  loc "m.onnx" "Inner"
  return "out0" %in1, "out1" %1
}
body @endless.body.body (%in0 : i64[], %in1 : bool[], %in2 : f32[2]) {
  %1 : f32[2] = tanh %in2
  return "out0" %in1, "out1" %1
}
WIR
"$WEFT" compile endless.wir -o endless.weft
"$python" -c 'import numpy; numpy.save("x.npy", numpy.ones(2, "f4"))'
expect 1 timeout 60 "$WEFT" run endless.weft --input x=@x.npy --timeout 100ms
has err "Inner: loop: ended after"
has err "the run has taken 0.1 s"
expect 1 timeout 60 "$WEFT" bench endless.weft --input x=@x.npy --timeout 100ms
has err "Inner: loop: ended after"
expect 2 "$WEFT" run endless.weft --input x=@x.npy --timeout never
