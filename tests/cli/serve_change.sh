# Plans change back and forth under load, and new workers are killed while they start: nothing is
# lost, nothing is wrong, and a change that fails is undone.
command -v jq >/dev/null || skip "no jq"
[ "$(nproc)" -ge 2 ] || skip "fewer than two CPUs"
cat >profile.csv <<'END'
device,slice,batch,time_us,mreq_bytes
cpu,1core,1,20000,50000000
cpu,1core,8,80000,50000000
END
for rates in "120 20" "20 120"; do
    cat >"set${rates%% *}.yaml" <<END
models:
  - {name: digits, file: $examples/digits_cnn.onnx, profile: profile.csv, slo: 500ms, rate: ${rates% *}/s}
  - {name: attn, file: $examples/digits_attn.onnx, profile: profile.csv, slo: 500ms, rate: ${rates#* }/s}
END
    "$WEFT" plan "set${rates%% *}.yaml" --fleet "$examples/fleet.yaml" -o "plan${rates%% *}.json"
done
"$WEFT" compile set120.yaml -o live.weft
expect 0 timeout 100 python3 "$WEFT_SOURCE_DIR/tests/support/change_plans.py" "$WEFT" live.weft plan120.json \
    plan20.json 3 digits:image:1x1x8x8:150 attn:image:1x1x8x8:150
jq -e '.changes >= 6 and .undone >= 1 and .undone <= .changes / 3 and .unready == 0 and .exit == 0 and
    all(.load[]; .failed == 0 and .wrong == 0 and .answered == .sent and .sent > 200)' out \
    >/dev/null || die "$(shown out) $(shown err)"
