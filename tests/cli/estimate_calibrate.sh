# Calibration from measurements: finds a device on which GEMMs take 1.4 times as long as estimated.
command -v jq >/dev/null || skip "no jq"
python3 -c '' 2>/dev/null || skip "no python3"
python3 - <<'END' >kernels.csv
print("kind,dtype,m,n,k")
for m in (256, 512, 1024, 2048, 4096):
    for n in (1024, 2048, 4096, 8192):
        for k in (2048, 4096):
            print(f"gemm,float16,{m},{n},{k}")
END
expect 0 "$WEFT" estimate --kernels kernels.csv --gpu h100 -o predicted.csv
python3 - <<'END' >measured.csv
import csv
print("kind,dtype,m,n,k,measured_us")
for row in csv.DictReader(open("predicted.csv")):
    us = 1.4 * float(row["time_us"]) + 0.5
    print(*(row[c] for c in ("kind", "dtype", "m", "n", "k")), us, sep=",")
END
expect 0 "$WEFT" estimate --gpu h100 --calibrate measured.csv -o h100.cal
has out '40 measurements'
has out 'left out of the fit'
has out 'vector       kept'
has h100.cal 'gpu,h100'
before=$(sed -n 's/^error_before,0*\([0-9.]*\)$/\1/p' h100.cal)
after=$(sed -n 's/^error_after,0*\([0-9.]*\)$/\1/p' h100.cal)
python3 -c "import sys; sys.exit(not ($before > 0.25 and $after < 0.05))" || die "$before $after"
# It applies only to its device, and states the error on held-out rows.
model=$examples/digits_attn.onnx
expect 0 "$WEFT" estimate "$model" --gpu h100 --batch 8 --calibration h100.cal --format json
jq -e '.models[0].source == "calibrated" and .calibration == "h100.cal"' out >/dev/null || die "$(shown out)"
expect 1 "$WEFT" estimate "$model" --gpu l4 --calibration h100.cal
has err 'a calibration of h100'
expect 0 "$WEFT" compile "$model" -o m.weft --gpu h100 --calibration h100.cal
expect 0 "$WEFT" estimate m.weft --gpu h100
has out calibrated
expect 1 "$WEFT" estimate m.weft --gpu h100 --calibration h100.cal
has err "give the model file"
expect 1 "$WEFT" estimate m.weft --gpu h100 --precision f32
printf 'models:\n  - {name: m, file: %s, slo: 50ms, rate: 10/s}\n' "$model" >set.yaml
printf 'devices:\n  - {type: h100, count: 1}\n' >fleet.yaml
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --calibration h100.cal
# Whole models.
printf 'batch,measured_us\n' >models.csv
for batch in 1 2 3 4 5 6 8 10 12 16; do
    expect 0 "$WEFT" estimate "$model" --gpu t4 --batch "$batch" --format json
    printf '%s,%s\n' "$batch" "$(jq '.models[0].time_us * 2' out)" >>models.csv
done
expect 0 "$WEFT" estimate "$model" --gpu t4 --calibrate models.csv -o t4.cal
has out '10 measurements'
has t4.cal 'gpu,t4'
# Invalid calibrations and invalid measurements.
for wrong in 's/^calibration,2/calibration,1/' 's/^launch,.*/launch,nan/' 's/^memory,.*//' \
    's/^gpu,h100/gpu,h101/' 's/^rows/rwos/' 's/^fitted,.*/fitted,all/' 's/^product,.*/product,1000 0 0 0/' 's/^product,.*/product,1/' \
    '$aproduct,1 0 0 0' 's/^key,/kye,/'; do
    sed "$wrong" h100.cal >bad.cal
    expect 1 "$WEFT" estimate "$model" --gpu h100 --calibration bad.cal
    has err bad.cal
done
expect 1 "$WEFT" estimate "$model" --gpu h100 --calibration /nowhere.cal
head -5 measured.csv >few.csv
expect 1 "$WEFT" estimate --gpu h100 --calibrate few.csv
has err "at least 8"
for bad in -1 0 nan inf x ''; do
    { head -20 measured.csv; printf 'gemm,float16,64,64,64,%s\n' "$bad"; } >bad.csv
    expect 1 "$WEFT" estimate --gpu h100 --calibrate bad.csv
    has err 'bad.csv:21'
done
expect 1 "$WEFT" estimate --gpu h100 --calibrate kernels.csv
has err measured_us
printf 'model,batch,measured_us\nother,1,5\n' >bad.csv
expect 1 "$WEFT" estimate "$model" --gpu t4 --calibrate bad.csv
has err 'bad.csv:2'
