# Prices of a file in place of those of the table: what `weft list prices` prints is read back and
# changes nothing; a fleet file's own price precedes both.
cat >set.yaml <<'END'
models:
  - {name: a, profile: a.csv, slo: 100ms, rate: 50/s}
END
cat >a.csv <<'END'
device,slice,batch,time_us,mreq_bytes
h100,,1,5000,1000000000
t4,,1,8000,1000000000
END
printf 'devices:\n  - {type: h100, count: 1}\n  - {type: t4, count: 1}\n' >fleet.yaml
plan=("$WEFT" plan set.yaml --fleet fleet.yaml)
expect 0 "$WEFT" list prices
mv out prices.csv
has prices.csv "h100,6.88,2025-06,AWS p5.48xlarge / 8"
expect 0 "${plan[@]}" -o without.json
has without.json '"t4"'
expect 0 "${plan[@]}" --prices prices.csv -o with.json
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --check with.json --prices prices.csv
grep -o '"cost_per_hour": [0-9.]*' without.json >before
grep -o '"cost_per_hour": [0-9.]*' with.json >after
cmp -s before after || die "the printed table changes the plan: $(shown after)"
# A cheaper H100 wins, unless the fleet file says otherwise.
printf 'source,date,price_per_hour,device\n"a, b",2026-05-31,0.1,H100-SXM-80GB\n' >own.csv
expect 0 "${plan[@]}" --prices own.csv
has out 'prices: own.csv, 1 device, 2026-05-31'
has out '$0.10/h'
expect 0 "$WEFT" plan set.yaml --fleet fleet.yaml --prices own.csv -o own.json
expect 0 "$WEFT" simulate own.json --fleet fleet.yaml --prices own.csv --duration 10s --format json
printf 'devices:\n  - {type: h100, count: 1, price: 5}\n' >dear.yaml
expect 0 "$WEFT" plan set.yaml --fleet dear.yaml --prices own.csv
has out '$5.00/h'
printf 'devices:\n  - {type: t4, count: 1}\n' >t4.yaml
expect 0 "$WEFT" plan set.yaml --fleet t4.yaml --prices own.csv --gpu h100=1 --gpu t4=0
has out ' 0.10 '
refused() {
    printf "$1" >bad.csv
    expect 1 "${plan[@]}" --prices bad.csv
    has err "$2"
}
head='device,price_per_hour,date,source\n'
refused '' "column 'device' is missing"
refused 'device,price_per_hour,date\n' "column 'source' is missing"
refused 'device,device,price_per_hour,date,source\nt4,h100,1,2026-05,x\n' "column 'device': stands twice"
refused "${head}t4,1,2026-13,x\n" "column 'date'"
refused "${head}t4,1,2026-05-32,x\n" "column 'date'"
refused "${head}z80,1,2026-05,x\n" "bad.csv:2: column 'device': unknown device 'z80'"
refused "${head}t4,1,2026-05,x\nT4,2,2026-05,x\n" "bad.csv:3: column 'device': stands twice: 't4'"
for wrong in 0 -1 nan inf 1x 1e7; do
    refused "${head}t4,$wrong,2026-05,x\n" "column 'price_per_hour'"
done
refused "${head}t4,1,may 2026,x\n" "column 'date'"
refused "${head}t4,1,2026-05,\n" "column 'source': is empty"
refused "${head}t4,1,2026-05\n" "column 'source': is empty"
expect 1 "${plan[@]}" --prices missing.csv
