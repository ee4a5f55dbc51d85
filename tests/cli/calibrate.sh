# weft calibrate measures this CPU; other verbs then use the result, name it, and can be told not to.
# ctest label: slow (measuring takes the time).
printf 'kind,dtype,m,n,k,gpu,slice\ngemm,f32,16,512,512,cpu,1core\ngemm,f16,16,512,512,h100,\n' >in.csv
export XDG_STATE_HOME=$PWD/state
estimate() { expect 0 "$WEFT" estimate --kernels in.csv -o "$1" "${@:2}"; }
estimate before.csv
empty err
lacks before.csv calibrated
expect 0 "$WEFT" calibrate --threads 1
has out 'mean error'
has out 'on shapes left out of the fit'
path=$(ls state/weft/calibration-*.csv)
has out "$path"
has "$path" 'gpu,cpu'
estimate after.csv
has err "$path"
grep '1core' after.csv | grep -q ',calibrated,' || die "not calibrated: $(cat after.csv)"
grep 'h100' after.csv | grep -q ',calibrated,' && die "of a CPU, used for a GPU: $(cat after.csv)"
estimate none.csv --calibration none
cmp -s before.csv none.csv || die "--calibration none: $(cat none.csv)"
# Of models as well, and named in their output; a file elsewhere is used only where it is named.
expect 0 "$WEFT" estimate "$examples/digits_cnn.onnx" --gpu cpu
has err "$path"
has out calibrated
mv "$path" own.csv
estimate own_out.csv --calibration own.csv
cmp -s after.csv own_out.csv || die "the same file, named: $(cat own_out.csv)"
echo 'no calibration' >"$path"
expect 1 "$WEFT" estimate --kernels in.csv -o bad.csv
has err "$path"
