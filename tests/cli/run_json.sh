# weft run --format json: all values, of every kind; numbers that JSON lacks are texts.
find_python
"$python" - "$WEFT_SOURCE_DIR/tests/support" <<'PY'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from onnx_file import Graph, Node, Port

g = Graph(opset=17)
g.inputs.append(Port("x", "float32", [4]))
g.constants["zero"] = np.zeros(1, "f4")
g.constants["big"] = np.full(1, 2**53 + 1, "i8")
g.nodes += [Node("Div", ["x", "zero"], ["quotient"]), Node("Greater", ["x", "zero"], ["above"]),
            Node("Cast", ["x"], ["whole"], {"to": 7}), Node("Add", ["whole", "big"], ["sum"])]
g.outputs += [Port("quotient", "float32"), Port("above", "bool"), Port("sum", "int64")]
g.save("kinds.onnx")
np.save("x.npy", np.array([1, -1, 0, 2.5], "f4"))
PY
expect 0 "$WEFT" compile kinds.onnx -o kinds.weft
expect 0 "$WEFT" run kinds.weft --input x=@x.npy --format json
"$python" - <<'PY'
import json
got = json.load(open("out"))
values = {o["name"]: (o["dtype"], o["shape"], o["data"]) for o in got["outputs"]}
assert got["model"] == "kinds" and got["compared"] == []
assert values["quotient"] == ("f32", [4], ["inf", "-inf", "nan", "inf"]), values
assert values["above"] == ("bool", [4], [True, False, False, True]), values
big = 2**53 + 1
assert values["sum"] == ("i64", [4], [big + 1, big - 1, big, big + 2]), values
PY
