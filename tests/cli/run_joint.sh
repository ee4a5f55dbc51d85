# A joint program by hand, as docs/compile-report.md says: under the name that inspect shows, with the
# inputs of all its models, batches of their own, and a model left out. The answers are the models'.
command -v jq >/dev/null || skip "no jq"
find_python
expect 0 "$WEFT" compile "$examples"/digits_{cnn,parity}.onnx -o a.weft
joint=$("$WEFT" inspect --format json a.weft | jq -r '.joint[0].name')
[ "$joint" = digits_cnn+digits_parity ] || die "$joint"
"$python" - "$examples"/digits_test.x.npy <<'PY'
import sys
import numpy as np
x = np.load(sys.argv[1]).astype("f4")
for n in (0, 1, 3):
    np.save(f"x{n}.npy", x[:n])
PY
output() { jq -r --arg m "$1" '.models[] | select(.name == $m) | .outputs[0].name' a.json; }
"$WEFT" inspect --format json a.weft >a.json
cnn=$(output digits_cnn) parity=$(output digits_parity)
for n in 0 1; do
    expect 0 "$WEFT" run a.weft --model "$joint" --input digits_cnn/image=@x3.npy \
        --input digits_parity/image=@x$n.npy --output digits_cnn/"$cnn"=@cnn.npy \
        --output digits_parity/"$parity"=@parity.npy
    expect 0 "$WEFT" run a.weft --model digits_cnn --input image=@x3.npy --expect "$cnn"=@cnn.npy
done
expect 0 "$WEFT" run a.weft --model digits_parity --input image=@x1.npy --expect "$parity"=@parity.npy
expect 1 "$WEFT" run a.weft --model "$joint" --input digits_cnn/image=@x3.npy
has err digits_parity/image
