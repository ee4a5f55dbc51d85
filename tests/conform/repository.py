#!/usr/bin/env python3
"""Model repositories of Triton: ensembles, other shapes and fixed sizes against onnxruntime on each of the files.

usage: repository.py WEFT
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle
oracle.need()
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEFT = os.path.abspath(sys.argv[1])
random = np.random.default_rng(5)


def save(name, nodes, inputs, outputs, weights=(), version=1):
    def ports(given):
        return [helper.make_tensor_value_info(n, kind, dims) for n, kind, dims in given]
    graph = helper.make_graph([helper.make_node(op, i.split(), o.split(), **attrs) for op, i, o, attrs in nodes], name,
                              ports(inputs), ports(outputs), [numpy_helper.from_array(w, n) for n, w in weights])
    os.makedirs(f"models/{name}/{version}", exist_ok=True)
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
              f"models/{name}/{version}/model.onnx")


def config(name, text):
    os.makedirs(f"models/{name}", exist_ok=True)
    with open(f"models/{name}/config.pbtxt", "w") as f:
        f.write(text)


def compile_model(name, fails=None):
    try:
        oracle.compile_models(WEFT, [f"models/{name}"], "m.weft")
    except oracle.Failed as error:
        assert fails and fails in str(error), (name, error)
        return
    assert not fails, (name, fails)


def run(inputs, outputs):
    got = oracle.run_bundle(WEFT, "m.weft", inputs, outputs, ".")
    return [got[name] for name in outputs]


def ort(name, inputs, version=1):
    return list(oracle.answers(f"models/{name}/{version}/model.onnx", inputs).values())


def same(got, want):
    why = oracle.difference(got, want)
    assert not why, why


os.chdir(tempfile.mkdtemp(prefix="weft-repository."))
F = TensorProto.FLOAT
w1, w2 = random.standard_normal((2, 4, 4)).astype("f4")
# body: x [n, s, 4] -> h [n, s, 4], m [n, 4]; head: z [b, 4], k [b] -> y [b, 4]
save("body", [("MatMul", "x w", "h", {}), ("ReduceMax", "h", "m", {"axes": [1], "keepdims": 0}), ("Neg", "m", "unused", {})],
     [("x", F, ["n", "s", 4])], [("h", F, ["n", "s", 4]), ("m", F, ["n", 4]), ("unused", F, ["n", 4])], [("w", w1)])
save("head", [("MatMul", "z w", "p", {}), ("Unsqueeze", "k last", "c", {}), ("Mul", "p c", "y", {})],
     [("z", F, ["b", 4]), ("k", F, ["b"])], [("y", F, ["b", 4])], [("w", w2), ("last", np.array([1]))])
# k [b] is [b, 1] for clients, y [b, 4] is [b, 2, 2]; s is fixed, "unused" not listed.
config("body", """max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 3, 4 ] }
output [ { name: "m" data_type: TYPE_FP32 dims: 4 }, { name: "h" data_type: TYPE_FP32 dims: [ 3, 4 ] } ]""")
config("head", """max_batch_size: 8
input [ { name: "z" data_type: TYPE_FP32 dims: 4 }, { name: "k" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } } ]
output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 4 ] } }""")
x, k = random.standard_normal((2, 3, 4)).astype("f4"), random.standard_normal((2, 1)).astype("f4")

compile_model("body")
h, m, _ = ort("body", {"x": x})
for got, want in zip(run({"x": x}, ["m", "h"]), (m, h)):
    same(got, want)
compile_model("head")
(y,) = ort("head", {"z": m, "k": k[:, 0]})
same(run({"z": m, "k": k}, ["y"])[0], y)
config("head", """max_batch_size: 8
input [ { name: "z" data_type: TYPE_FP32 dims: 4 }, { name: "k" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } } ]
output { name: "y" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } }""")
compile_model("head")
same(run({"z": m, "k": k}, ["y"])[0], y.reshape(2, 2, 2))

# The steps in another order than they run; the second's second input is the ensemble's.
ENSEMBLE = """platform: "ensemble" max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 4 ] }, { name: "K" data_type: TYPE_FP32 dims: 1 } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2, 2 ] }, { name: "H" data_type: TYPE_FP32 dims: [ -1, 4 ] } ]
ensemble_scheduling { step [
  { model_name: "head" model_version: -1 input_map { key: "z" value: "top" } input_map { key: "k" value: "K" }
    output_map { key: "y" value: "Y" } },
  { model_name: "body" model_version: 1 input_map { key: "x" value: "X" } output_map { key: "m" value: "top" }
    output_map { key: "h" value: "H" } } ] }"""
config("both", ENSEMBLE)
compile_model("both", fails="input 'X' is f32 [?,?,4] here")  # the step's configuration fixes the size
fixed = ENSEMBLE.replace("[ -1, 4 ]", "[ 3, 4 ]")
config("both", fixed)
compile_model("both")
for got, want in zip(run({"X": x, "K": k}, ["Y", "H"]), (y.reshape(2, 2, 2), h)):
    same(got, want)
os.remove("models/body/config.pbtxt")
config("both", ENSEMBLE)
compile_model("both")
x5 = random.standard_normal((2, 5, 4)).astype("f4")
h, m, _ = ort("body", {"x": x5})
(y,) = ort("head", {"z": m, "k": k[:, 0]})
for got, want in zip(run({"X": x5, "K": k}, ["Y", "H"]), (y.reshape(2, 2, 2), h)):
    same(got, want)

# What cannot be.
config("both", ENSEMBLE.replace('key: "m"', 'key: "h"').replace('{ key: "h" value: "H" }', '{ key: "m" value: "H" }'))
compile_model("both", fails='input "z" has another type, size or bounds')
config("both", ENSEMBLE.replace('value: "top" } input', 'value: "nothing" } input'))
compile_model("both", fails="step 'head' needs tensor 'nothing'")
config("both", ENSEMBLE.replace('input_map { key: "k" value: "K" }', ""))
compile_model("both", fails="input 'K' of the ensemble is an input of no step")
config("both", ENSEMBLE.replace('input_map { key: "k" value: "K" }', "").replace(', { name: "K" data_type: TYPE_FP32 dims: 1 }', ""))
compile_model("both", fails="input 'k' of a step, which no input_map names, is not listed")
config("both", ENSEMBLE.replace('value: "H"', 'value: "Y"'))
compile_model("both", fails="made twice")
config("both", ENSEMBLE.replace("dims: [ 2, 2 ]", "dims: [ 2, 3 ]"))
compile_model("both", fails="output 'Y' is f32 [?,2,3] here")
config("head", """max_batch_size: 8
input [ { name: "z" data_type: TYPE_FP32 dims: 4 }, { name: "k" data_type: TYPE_FP32 dims: 2 reshape { shape: [] } } ]""")
compile_model("head", fails='"k" is to be reshaped from 2 elements to 1')
print("ok")
