# Programs that embed Weft: every function of the API, and the examples in C (shared and static
# library) and C++, whose answers are those of `weft run`, digit for digit.
find_python
"$WEFT" compile "$examples/digits.yaml" --merge exact --gpu h100 -o digits.weft
expect 0 "$WEFT_API_PROGRAMS/api_calls" digits.weft
if [ -x "$WEFT_API_PROGRAMS/api_calls_cpp" ]; then
    expect 0 "$WEFT_API_PROGRAMS/api_calls_cpp" digits.weft
fi
"$python" - "$examples" <<'PY'
import sys, numpy as np
x = np.load(f"{sys.argv[1]}/digits_test.x.npy")[:40]
x.tofile("images.f32")
for i in range(len(x)):
    np.save(f"x{i}.npy", x[i:i + 1])
PY
for model in digits digits-attn; do
    for i in 0 1 17 39; do
        "$WEFT" run digits.weft --model $model --input image=@x$i.npy --output logits=@y.npy
        "$python" -c 'import numpy; print(*("%.9g" % v for v in numpy.load("y.npy").ravel()))'
    done >want
    for program in api_classify api_classify_static api_classify_cpp; do
        [ -x "$WEFT_API_PROGRAMS/$program" ] || continue
        expect 0 "$WEFT_API_PROGRAMS/$program" digits.weft $model <images.f32
        sed -n '1p;2p;18p;40p' out >got
        diff want got || die "$program, $model: weft run (<) and the program (>)"
    done
done
expect 1 "$WEFT_API_PROGRAMS/api_classify" digits.weft no-such-model
has err "no model is named no-such-model"
expect 1 "$WEFT_API_PROGRAMS/api_classify" "$examples/digits.yaml" digits
has err digits.yaml
expect 2 "$WEFT_API_PROGRAMS/api_classify"
# oneDNN's threads are those of the library, not libgomp's.
case $(uname -m) in x86_64) ;; *) exit 0 ;; esac
LD_DEBUG=bindings "$WEFT_API_PROGRAMS/api_classify" digits.weft digits </dev/null 2>bindings >out || true
if grep -q 'libdnnl' bindings; then
    grep -qE 'binding file .*libdnnl.* to .*libweft\.so\.1 .*GOMP_parallel' bindings ||
        die "oneDNN does not call GOMP_parallel of libweft.so.1"
fi
