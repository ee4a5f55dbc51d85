# weft run gives PyTorch's answers for the held-out digits, for every batch size.
find_python
"$WEFT" compile "$examples/digits.yaml" -o digits.weft
cat >check.py <<'PY'
import subprocess, sys, numpy as np
weft, examples = sys.argv[1:]
x = np.load(f"{examples}/digits_test.x.npy")
logits = np.load(f"{examples}/digits_test.logits.npz")
for name, key in (("digits", "digits_cnn"), ("parity", "digits_parity"), ("size", "digits_size"),
                  ("digits-attn", "digits_attn")):
    for n in (1, 2, 3, 8, 13, 450):
        np.save("x.npy", x[:n])
        subprocess.run([weft, "run", "digits.weft", "--model", name, "--input", "image=@x.npy",
                        "--output", "logits=@y.npy"], check=True)
        got, want = np.load("y.npy"), logits[key][:n]
        assert got.shape == want.shape and got.dtype == want.dtype, (name, n, got.shape, got.dtype)
        error = np.abs(got - want).max() / np.abs(want).max()
        assert error < 1e-4, (name, n, error)
PY
"$python" check.py "$WEFT" "$examples"
# Wrong inputs are refused by name.
expect 1 "$WEFT" run digits.weft --model no-such-model --input image=@x.npy
has err no-such-model
expect 1 "$WEFT" run digits.weft --model digits --input no-such-input=@x.npy
has err no-such-input
expect 1 "$WEFT" run digits.weft --model digits
has err image
"$python" -c 'import numpy; numpy.save("wrong.npy", numpy.zeros((1, 1, 8, 9), "f4"))'
expect 1 "$WEFT" run digits.weft --model digits --input image=@wrong.npy
has err image
"$python" -c 'import numpy; numpy.save("wrong.npy", numpy.zeros((1, 1, 8, 8), "f8"))'
expect 1 "$WEFT" run digits.weft --model digits --input image=@wrong.npy
has err image
