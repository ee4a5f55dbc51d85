# Unknown devices, slices, batches, dimensions and operators are refused by name.
model=$examples/digits_cnn.onnx
expect 2 "$WEFT" estimate "$model" --gpu no-such-gpu
has err no-such-gpu
expect 2 "$WEFT" estimate "$model" --gpu h200 --slice 1g.10gb
has err 1g.10gb
for batch in 0 -1 x 1,,2 1,0 99999999 ''; do
    expect 2 "$WEFT" estimate "$model" --gpu h200 --batch "$batch"
    has err batch
done
for procs in 0 49 x; do expect 2 "$WEFT" estimate "$model" --gpu h200 --procs "$procs"; done
expect 2 "$WEFT" estimate "$model" --gpu cpu --procs 2
expect 2 "$WEFT" estimate "$model" --gpu h200 --lowering eager
expect 2 "$WEFT" estimate "$model" --gpu h200 --profile --kernels x.csv
expect 2 "$WEFT" estimate "$model" --kernels x.csv
expect 2 "$WEFT" estimate "$model" --gpu h200 --features
expect 2 "$WEFT" estimate --gpu h200
expect 2 "$WEFT" estimate "$model"
cat >fixed.wir <<'END'
wir 1 kernel
graph @g (%x : f32[2,4]) {
  %1 : f32[2,4] = ew %x {steps = ["relu i0"]}
  return "y" %1
}
END
expect 0 "$WEFT" estimate fixed.wir --gpu h200
expect 2 "$WEFT" estimate fixed.wir --gpu h200 --batch 8
has err 'no batch dimension'
expect 1 "$WEFT" estimate fixed.wir --gpu h200 --lowering framework
has err 'graph stage'
cat >bounded.wir <<'END'
wir 1 kernel
symbol ?b = [1, 4]
symbol ?s = [1, 64]
graph @g (%x : f32[?b,?s]) {
  symbol ?b "batch"
  symbol ?s "seq"
  %1 : f32[?b,?s] = ew %x {steps = ["relu i0"]}
  return "y" %1
}
END
expect 0 "$WEFT" estimate bounded.wir --gpu h200 --batch 4 --dim seq=7
expect 2 "$WEFT" estimate bounded.wir --gpu h200 --batch 5
has err '[1, 4]'
expect 2 "$WEFT" estimate bounded.wir --gpu h200 --dim seq=65
has err '[1, 64]'
expect 2 "$WEFT" estimate bounded.wir --gpu h200 --dim sequence=7
has err "no model has a symbolic dimension 'sequence'"
expect 2 "$WEFT" estimate bounded.wir --gpu h200 --dim batch=2
has err '--batch sets'
expect 2 "$WEFT" estimate bounded.wir --gpu h200 --profile --dim seq=7
# An estimator model that does not exist, or does not support these kernels.
expect 2 "$WEFT" estimate bounded.wir --gpu h200 --model no-such-model
has err no-such-model
has err roofline
expect 1 "$WEFT" estimate bounded.wir --gpu h200 --model wave
has err 'model wave does not support kernels of kind ew in f32'
printf 'kind,dtype,gpu,m,n,k\ngemm,f32,h200,1,2,3\n' >kernels.csv
expect 2 "$WEFT" estimate --kernels kernels.csv --gpu no-such-gpu
has err no-such-gpu
expect 2 "$WEFT" estimate --kernels kernels.csv --gpu h200 --slice 1g.10gb
expect 0 "$WEFT" estimate --kernels kernels.csv --gpu H100-SXM-80GB
# A data-dependent shape: the message names the operator.
cat >late.wir <<'END'
wir 1 kernel
symbol ?d0 data
graph @g (%x : f32[8]) {
  %1 : i64[1,?d0] = nonzero %x
  return "y" %1
}
END
expect 1 "$WEFT" estimate late.wir --gpu h200
has err nonzero
