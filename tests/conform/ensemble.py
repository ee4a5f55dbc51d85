"""Ensembles of a set file: heads whose outputs are combined, beside each member on onnxruntime and numpy.

`ensemble.py WEFT --seed N --count N`: random members (layers of different widths, activations and norms, a layer or the whole
member in common, convolutions in front of some), 2 to 5 of them, combined in a random way, at several batches."""
import argparse
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
sys.dont_write_bytecode = True
import oracle  # noqa: E402

oracle.need()
import numpy as np  # noqa: E402
from onnx_file import Graph, Node, Port  # noqa: E402

HOW = ("mean", "sum", "max", "min", "softmax", "vote")
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 1e-42, -7)
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Gelu", None)


def draw_form(rs):
    """What all members have in common: sizes, operators, and which weights are equal in all."""
    layers = [{"width": int(rs.randint(2, 40)), "gemm": bool(rs.randint(2)), "bias": bool(rs.randint(2)), "norm": rs.randint(5) == 0,
               "residual": rs.randint(4) == 0, "activation": ACTIVATIONS[rs.randint(len(ACTIVATIONS))], "common": rs.randint(5) == 0,
               "odd": rs.randint(8) == 0} for _ in range(rs.randint(1, 5))]
    return {"layers": layers, "in": int(rs.randint(1, 30)), "rank": 2 + int(rs.randint(3) == 0), "outputs": 1 + int(rs.randint(4) == 0),
            "softmax": rs.randint(3) == 0, "classes": int(rs.randint(1, 7))}


def member(form, rs, common):
    g = Graph(opset=20)
    g.inputs.append(Port("x", "float32", ["N", form["in"]] if form["rank"] == 2 else ["N", 3, form["in"]]))
    x, width = "x", form["in"]

    def op(name, *inputs, **attrs):
        out = f"v{len(g.nodes)}"
        g.nodes.append(Node(name, list(inputs), [out], attrs))
        return out

    def weight(a):
        name = f"w{len(g.constants)}"
        g.constants[name] = a.astype("f4")
        return name

    for i, layer in enumerate(form["layers"] + [{"width": form["classes"], "gemm": True, "bias": True, "norm": False, "residual": False,
                                                 "activation": None, "common": False, "odd": False}]):
        own = np.random.RandomState(common + i) if layer["common"] else rs
        w, b = own.uniform(-1, 1, (width, layer["width"])), own.uniform(-1, 1, layer["width"])
        if layer["odd"]:  # what is not stacked
            x = op("CumSum", x, weight(np.array(1)))
            g.constants[g.nodes[-1].inputs[1]] = np.array(1, "i8")
        if layer["gemm"] and form["rank"] == 2:
            turned = layer["width"] % 2
            y = op("Gemm", x, weight(w.T if turned else w), *([weight(b)] if layer["bias"] else []), transB=turned)
        else:
            y = op("MatMul", x, weight(w))
            y = op("Add", y, weight(b)) if layer["bias"] else y
        if layer["norm"]:
            y = op("LayerNormalization", y, weight(np.ones(layer["width"])), weight(own.uniform(-1, 1, layer["width"])), axis=-1)
        y = op(layer["activation"], y) if layer["activation"] else y
        x = op("Add", op("Mul", y, weight(own.uniform(-1, 1, 1))), y) if layer["residual"] else y
        width = layer["width"]
    if form["softmax"]:
        x = op("Softmax", x, axis=-1)
    g.nodes.append(Node("Identity", [x], ["y"], {}))
    g.outputs.append(Port("y", "float32"))
    if form["outputs"] == 2:
        g.nodes.append(Node("ReduceMean", [x], ["z"], {"keepdims": 1}))
        g.outputs.append(Port("z", "float32"))
    return g


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def combine(how, answers):
    a = np.stack(answers).astype("f8")
    if how == "softmax":
        return softmax(a).mean(0)
    if how == "vote":
        return (a.argmax(-1)[..., None] == np.arange(a.shape[-1])).mean(0)
    return getattr(a, how)(0)


def has_tie(answers):
    """Two largest elements so near that rounding decides."""
    a = np.sort(np.stack(answers), -1)
    return a.shape[-1] > 1 and bool((a[..., -1] - a[..., -2] < 1e-4).any())


def check(weft, folder, seed):
    """Whether GEMMs were stacked."""
    rs = np.random.RandomState(seed)
    form, n, how = draw_form(rs), int(rs.randint(2, 6)), HOW[seed % len(HOW)]
    for i in range(n):
        member(form, np.random.RandomState(seed * 10 + i), seed).save(os.path.join(folder, f"m{i}.onnx"))
    names = [f"m{i}" for i in range(n)]
    with open(os.path.join(folder, "set.yaml"), "w") as f:
        f.write("models:\n" + "".join(f"  - {{name: {m}, file: {m}.onnx}}\n" for m in names))
        f.write(f"  - {{name: all, heads: [{', '.join(names)}], combine: {how}}}\n")
    bundle = os.path.join(folder, "set.weft")
    oracle.weft(weft, "compile", os.path.join(folder, "set.yaml"), "-o", bundle)
    outputs = ["y", "z"][:form["outputs"]]
    for rows in (1, 3, 9):
        x = rs.uniform(-1, 1, (rows, form["in"]) if form["rank"] == 2 else (rows, 3, form["in"])).astype("f4")
        own = [oracle.answers(os.path.join(folder, f"{m}.onnx"), {"x": x}) for m in names]
        got = oracle.run_bundle(weft, bundle, {"x": x}, outputs, folder, "all")
        for name in outputs:
            answers = [a[name] for a in own]
            if how == "vote" and has_tie(answers):
                continue
            want = combine(how, answers)
            assert got[name].shape == want.shape, (seed, name, got[name].shape, want.shape)
            error = np.abs(got[name] - want).max() / max(1, np.abs(want).max())
            assert error < 2e-5, (seed, how, name, rows, error)
    if how != "vote":
        x = np.zeros((len(SPECIAL), *x.shape[1:]), "f4")
        x[np.arange(len(SPECIAL)), ..., 0] = SPECIAL if x.ndim == 2 else np.float32(SPECIAL)[:, None]
        own = [oracle.answers(os.path.join(folder, f"{m}.onnx"), {"x": x}) for m in names]
        got = oracle.run_bundle(weft, bundle, {"x": x}, outputs, folder, "all")
        for name in outputs:
            np.testing.assert_allclose(got[name], combine(how, [a[name] for a in own]), 1e-4, 1e-5, err_msg=f"{seed} {how} {name}")
    with open(bundle, "rb") as f:
        return b"stacked" in f.read()


def check_refused(weft, folder):
    """What cannot be combined is named."""
    for name, more in (("a", None), ("b", ("z", "Neg", "float32", {})), ("c", ("label", "ArgMax", "int64", {"axis": 1}))):
        g = Graph(opset=17, inputs=[Port("x", "float32", ["N", 3])])
        g.nodes.append(Node("Relu", ["x"], ["y"], {}))
        g.outputs.append(Port("y", "float32"))
        if more:
            g.nodes.append(Node(more[1], ["x"], [more[0]], more[3]))
            g.outputs.append(Port(more[0], more[2]))
        for copy in (name, name * 2):
            g.save(os.path.join(folder, f"{copy}.onnx"))
    for heads, why in (("a, b", "head 'b' has other outputs than 'a'"), ("b, a", "head 'a' has other outputs than 'b'"),
                       ("c, cc", "output 'label' is i64")):
        with open(os.path.join(folder, "set.yaml"), "w") as f:
            f.write("models:\n" + "".join(f"  - {{name: {m}, file: {m}.onnx}}\n" for m in ("a", "aa", "b", "c", "cc")))
            f.write(f"  - {{name: all, heads: [{heads}], combine: mean}}\n")
        done = subprocess.run([weft, "compile", os.path.join(folder, "set.yaml"), "-o", os.path.join(folder, "set.weft")],
                              capture_output=True, text=True)
        assert done.returncode == 1 and why in done.stderr, (heads, done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft", type=os.path.abspath)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=12)
    options = parser.parse_args()
    stacked = 0
    with tempfile.TemporaryDirectory() as folder:
        check_refused(options.weft, folder)
    for seed in range(options.seed, options.seed + options.count):
        with tempfile.TemporaryDirectory() as folder:
            stacked += check(options.weft, folder, seed)
    print(f"{options.count} ensembles ok, with batched GEMMs in {stacked}")
    assert stacked >= options.count // 4


if __name__ == "__main__":
    main()
