#!/usr/bin/env python3
"""Symbolic dimensions as exporters write them: small models, each run at several sizes beside onnxruntime.

A run either gives onnxruntime's answer, or is refused with a message that has the text the case names. What
onnxruntime accepts and Weft refuses is written as such: Refuses(TEXT).

usage: symbolic_shapes.py WEFT [CASE...]
"""
import dataclasses
import os
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np
import onnx
from onnx import TensorProto, helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
NP = {F32: np.float32, I64: np.int64}


@dataclasses.dataclass
class Refuses:
    """The run ends with a message that contains the text."""
    text: str


@dataclasses.dataclass
class Case:
    nodes: list
    inputs: dict            # name: dims, or (type, dims); None: neither a value nor a name
    outputs: dict           # name: dims as declared, or None
    runs: list              # (sizes or arrays by input, None or Refuses)
    constants: dict = dataclasses.field(default_factory=dict)
    dims: str = ""          # of the set file
    refused: str = ""       # the compiler's message


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"{op}_to_{outputs.split()[0]}", **attrs)


def ints(*values):
    return np.array(values, np.int64)


def floats(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


RELU = [node("Relu", "x", "y")]
ADD = [node("Add", "a b", "y")]
OK = None

CASES = {
    # Dims that say nothing: each is its own.
    "question_marks": Case(
        [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("GlobalAveragePool", "c", "y")],
        {"x": ["?", 3, "?", "?"]}, {"y": ["?", 4, 1, 1]},
        [({"x": (1, 3, 48, 192)}, OK), ({"x": (2, 3, 5, 4)}, OK), ({"x": (1, 2, 48, 192)}, Refuses("must be 3"))],
        {"w": floats(4, 3, 3, 3)}),
    "minus_one": Case(RELU, {"x": [-1, 3, -1]}, {"y": [-1, 3, -1]}, [({"x": (2, 3, 5)}, OK), ({"x": (1, 3, 1)}, OK)]),
    "no_dims": Case(RELU, {"x": [None, None]}, {"y": None}, [({"x": (2, 5)}, OK), ({"x": (4, 1)}, OK)]),
    "empty_names": Case(RELU, {"x": ["", ""]}, {"y": None}, [({"x": (2, 5)}, OK)]),
    "none_names": Case(RELU, {"x": ["None", "None", "-1"]}, {"y": None}, [({"x": (2, 5, 3)}, OK)]),
    "anonymous_of_two_inputs": Case(ADD, {"a": ["?"], "b": ["?"]}, {"y": ["?"]},
                                    [({"a": (4,), "b": (4,)}, OK), ({"a": (4,), "b": (1,)}, OK),
                                     ({"a": (4,), "b": (3,)}, Refuses("Add_to_y: Add: dimension: 4 and 3"))]),
    "zero": Case(RELU, {"x": [0, 3]}, {"y": [0, 3]}, [({"x": (0, 3)}, OK), ({"x": (5, 3)}, Refuses("must be 0"))]),
    # Names: the same one means the same size.
    "names_of_tools": Case(
        ADD, {"a": ["unk__749", 2], "b": ["unk__749", 2]}, {"y": ["M1", 2]},
        [({"a": (3, 2), "b": (3, 2)}, OK),
         ({"a": (1, 2), "b": (4, 2)}, Refuses("unk__749 is 1 elsewhere; `dims:` of a set file with a range for b_0"))]),
    "independent_by_dims": Case(
        ADD, {"a": ["N"], "b": ["N"]}, {"y": ["N"]}, [({"a": (4,), "b": (1,)}, OK), ({"a": (4,), "b": (4,)}, OK)],
        dims="{b_0: [0, 100]}"),
    "names_on_outputs": Case(RELU, {"x": ["n", 4]}, {"y": ["Reshape_524_o0__d2", "DynamicDimension.0"]},
                             [({"x": (3, 4)}, OK)]),
    "expressions": Case(
        [node("Concat", "past x", "all", axis=0), node("Add", "all mask", "y")],
        {"x": ["seq", 2], "past": ["past", 2], "mask": ["floor(past/1) + seq", 1]}, {"y": ["past + seq", 2]},
        [({"x": (1, 2), "past": (5, 2), "mask": (6, 1)}, OK), ({"x": (3, 2), "past": (0, 2), "mask": (3, 1)}, OK),
         ({"x": (3, 2), "past": (2, 2), "mask": (4, 1)}, Refuses("5 and 4"))]),
    "one_name_twice": Case(RELU, {"x": ["N", "N"]}, {"y": ["N", "N"]}, [({"x": (2, 3)}, OK), ({"x": (3, 3)}, OK)]),
    "one_name_thrice": Case(
        [node("Conv", "x w", "c"), node("Flatten", "c", "y")], {"x": ["N", 3, "N", "N"]}, {"y": None},
        [({"x": (1, 3, 8, 6)}, OK), ({"x": (2, 3, 4, 4)}, OK)], {"w": floats(2, 3, 3, 3)}),
    "one_name_needed_twice": Case(
        [node("Transpose", "x", "t", perm=[1, 0]), node("Add", "x t", "y")], {"x": ["N", "N"]}, {"y": ["N", "N"]},
        [({"x": (3, 3)}, OK), ({"x": (2, 3)}, Refuses("N is 2 elsewhere"))]),
    # Sizes of 0: all but the batch.
    "no_past": Case(
        [node("Concat", "past k", "all", axis=2), node("Transpose", "all", "t", perm=[0, 1, 3, 2]),
         node("MatMul", "q t", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p all", "y")],
        {"q": ["b", 2, "seq", 4], "k": ["b", 2, "seq", 4], "past": ["b", 2, "past", 4]},
        {"y": ["b", 2, "seq", 4], "all": ["b", 2, "past + seq", 4]},
        [({"q": (1, 2, 3, 4), "k": (1, 2, 3, 4), "past": (1, 2, 0, 4)}, OK),
         ({"q": (2, 2, 1, 4), "k": (2, 2, 1, 4), "past": (2, 2, 7, 4)}, OK),
         ({"q": (2, 2, 0, 4), "k": (2, 2, 0, 4), "past": (2, 2, 2, 4)}, OK)]),
    "empty_sums": Case(
        [node("MatMul", "x z", "m"), node("ReduceSum", "x axes", "s", keepdims=0), node("Relu", "m", "y")],
        {"x": [2, "n"], "z": ["n", 3]}, {"y": None, "s": None},
        [({"x": (2, 0), "z": (0, 3)}, OK), ({"x": (2, 4), "z": (4, 3)}, OK)], {"axes": ints(1)}),
    "batch_of_none": Case(RELU, {"x": ["b", 2]}, {"y": None}, [({"x": (0, 2)}, Refuses("outside 1"))]),
    # What is declared of outputs is not trusted.
    "wrong_output_dim": Case(RELU, {"x": [5]}, {"y": [7]}, [({"x": (5,)}, OK)]),
    "wrong_output_rank": Case(RELU, {"x": ["n", 5]}, {"y": [7]}, [({"x": (2, 5)}, OK)]),
    "wrong_input_rank": Case(RELU, {"x": ["n", 5]}, {"y": None}, [({"x": (2, 5, 1)}, Refuses("rank"))]),
    # Reshape.
    "reshape_batch_of_one": Case(
        [node("Reshape", "x s", "y")], {"x": ["n", 6]}, {"y": None},
        [({"x": (1, 6)}, OK), ({"x": (2, 6)}, Refuses("Reshape_to_y: Reshape: number of elements: 12 and 6"))],
        {"s": ints(2, 3)}),
    "reshape_parts": Case(
        [node("Reshape", "x s", "y")], {"x": ["n", 3]}, {"y": None},
        [({"x": (4, 3)}, OK), ({"x": (8, 3)}, OK), ({"x": (5, 3)}, Refuses("15 and 12 differ where n = 5"))],
        {"s": ints(-1, 4)}),
    "reshape_copy": Case([node("Reshape", "x s", "y")], {"x": ["n", "m", 4]}, {"y": None},
                         [({"x": (2, 3, 4)}, OK), ({"x": (2, 0, 4)}, OK)], {"s": ints(0, 0, 2, 2)}),
    "reshape_copy_of_none": Case([node("Reshape", "x s", "y")], {"x": ["n", 3]}, {"y": None}, [],
                                 {"s": ints(3, 1, 0)}, refused="entry 2 is 0, the operand has rank 2"),
    "reshape_allowzero": Case([node("Reshape", "x s", "y", allowzero=1)], {"x": ["n", "m"]}, {"y": None},
                              [({"x": (2, 0)}, OK), ({"x": (2, 2)}, Refuses("4 and 0"))], {"s": ints(0, 3)}),
    "reshape_by_shape": Case(
        [node("Shape", "x", "s"), node("Gather", "s i", "n", axis=0), node("Concat", "n k", "t", axis=0),
         node("Reshape", "x t", "y")],
        {"x": ["n", 4, "m"]}, {"y": None}, [({"x": (2, 4, 3)}, OK), ({"x": (3, 4, 1)}, OK)],
        {"i": ints(0), "k": ints(2, -1)}),
    "squeeze": Case([node("Squeeze", "x axes", "y")], {"x": ["n", "m", 3]}, {"y": None},
                    [({"x": (2, 1, 3)}, OK), ({"x": (2, 2, 3)}, Refuses("squeezed dimension: 2 and 1"))],
                    {"axes": ints(1)}),
    "squeeze_all": Case([node("Squeeze", "x", "y")], {"x": ["n", 1, 3]}, {"y": None},
                        [({"x": (2, 1, 3)}, OK), ({"x": (1, 1, 3)}, Refuses("needs a fixed size (`dims:`)"))]),
    "squeeze_all_fixed": Case([node("Squeeze", "x", "y")], {"x": ["n", 1, 3]}, {"y": None}, [({"x": (1, 1, 3)}, OK)],
                              dims="{n: 1}"),
    # Indices that are sizes: -n counts from the end (relative positions of T5), of other signs only running tells.
    "slice_last": Case(
        [node("Shape", "x", "s"), node("Gather", "s one", "n", axis=0), node("Neg", "n", "from"),
         node("Slice", "x from far axis", "y"), node("Add", "y x", "z")],
        {"x": [3, "n"]}, {"z": None}, [({"x": (3, 5)}, OK), ({"x": (3, 1)}, OK), ({"x": (3, 0)}, OK)],
        {"one": ints(1), "far": ints(2**63 - 1), "axis": ints(1)}),
    "slice_last_of_another": Case(
        [node("Shape", "x", "s"), node("Neg", "s", "from"), node("Slice", "t from far", "y"), node("Add", "y x", "z")],
        {"x": ["n"], "t": ["m"]}, {"z": None},
        [({"x": (2,), "t": (6,)}, OK), ({"x": (6,), "t": (6,)}, OK), ({"x": (7,), "t": (6,)}, Refuses("6 and 7"))],
        {"far": ints(2**63 - 1)}),
    "slice_all_but": Case(
        [node("Shape", "x", "s"), node("Sub", "s three", "to"), node("Slice", "t zero to", "y")],
        {"x": ["n"], "t": ["m"]}, {"y": None},
        [({"x": (5,), "t": (6,)}, OK), ({"x": (3,), "t": (6,)}, OK), ({"x": (2,), "t": (6,)}, Refuses("length of a slice: 0 and 5"))],
        {"zero": ints(0), "three": ints(3)}),
    # Sizes that are compared when they are known.
    "concat": Case([node("Concat", "a b", "y", axis=0)], {"a": ["n", "m"], "b": ["k", "l"]}, {"y": None},
                   [({"a": (2, 3), "b": (1, 3)}, OK), ({"a": (2, 3), "b": (1, 2)}, Refuses("Concat: dimension: 3 and 2"))]),
    "product": Case([node("MatMul", "a b", "y")], {"a": ["n", "m"], "b": ["k", 2]}, {"y": None},
                    [({"a": (2, 3), "b": (3, 2)}, OK), ({"a": (2, 3), "b": (4, 2)}, Refuses("inner dimensions: 3 and 4"))]),
    "expand": Case(
        [node("Shape", "b", "s"), node("Expand", "a s", "y")], {"a": ["n", 1], "b": ["m", "k"]}, {"y": None},
        [({"a": (3, 1), "b": (3, 2)}, OK), ({"a": (1, 1), "b": (3, 2)}, OK),
         ({"a": (2, 1), "b": (3, 2)}, Refuses("3 and 2"))]),
    # The sum is dead but for its shape, which must not be that of another sum.
    "shape_of_sum": Case([node("Add", "a b", "c"), node("Shape", "c", "y")], {"a": ["n"], "b": ["m"]}, {"y": None},
                         [({"a": (4,), "b": (4,)}, OK), ({"a": (4,), "b": (1,)}, OK),
                          ({"a": (1,), "b": (4,)}, Refuses("1 and 4"))]),
    # An image that is smaller than a window: an error of onnxruntime's convolutions, too.
    "window": Case(
        [node("Conv", "x w", "c"), node("MaxPool", "c", "y", kernel_shape=[2, 2], strides=[2, 2])],
        {"x": [1, 3, "h", "w"]}, {"y": None},
        [({"x": (1, 3, 4, 7)}, OK), ({"x": (1, 3, 2, 7)}, Refuses("Conv_to_c: Conv: elements that a window needs at least: 2 and 3 differ where h = 2")),
         ({"x": (1, 3, 4, 3)}, Refuses("MaxPool_to_y: MaxPool: elements that a window needs at least: 1 and 2 differ where w = 3"))],
        {"w": floats(2, 3, 3, 3)}),
    "window_fixed": Case(
        [node("AveragePool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 1, 0, 0])], {"x": ["n", 3, 2, 2]}, {"y": None}, [],
        refused="a window of 3 elements does not fit into 2, padded by 0 and 0"),
    # Sizes that data tells.
    "sizes_from_data": Case(
        [node("Slice", "x from to", "y"), node("Expand", "one to", "e"), node("Add", "e y", "z")],
        {"x": ["n"], "from": (I64, [1]), "to": (I64, [1]), "one": [1]}, {"y": None, "z": None},
        [({"x": (6,), "from": ints(0), "to": ints(4), "one": (1,)}, OK),
         ({"x": (6,), "from": ints(3), "to": ints(4), "one": (1,)}, OK)]),
    # Of a sum of two, either may be the 1.
    "sum_of_sizes_from_data": Case(
        [node("Slice", "x zero a", "p"), node("Slice", "x zero b", "q"), node("Add", "p q", "y"), node("Relu", "y", "z")],
        {"x": ["n"], "a": (I64, [1]), "b": (I64, [1])}, {"y": None, "z": None},
        [({"x": (6,), "a": ints(k), "b": ints(m)}, OK) for k, m in ((4, 1), (1, 3), (2, 2), (1, 0))]
        + [({"x": (6,), "a": ints(2), "b": ints(3)}, Refuses("2 and 3"))], {"zero": ints(0)}),
    "fixed_by_dims": Case(RELU, {"x": ["n", "?"]}, {"y": None},
                          [({"x": (2, 7)}, OK), ({"x": (3, 7)}, Refuses("must be 2"))], dims="{n: 2, x_1: [7, 9]}"),
    "unknown_dims": Case(RELU, {"x": ["n"]}, {"y": None}, [], dims="{x_2: 2}", refused='no symbolic dimension "x_2"'),
}


def make_model(case):
    def port(name, spec, default=F32):
        kind, dims = spec if isinstance(spec, tuple) else (default, spec)
        return helper.make_tensor_value_info(name, kind, dims)

    constants = [onnx.numpy_helper.from_array(v, k) for k, v in case.constants.items()]
    outputs = []
    for name, dims in case.outputs.items():
        kind = I64 if any(n.op_type == "Shape" and name in n.output for n in case.nodes) else F32
        outputs.append(helper.make_tensor_value_info(name, kind, dims))
    graph = helper.make_graph(case.nodes, "g", [port(k, v) for k, v in case.inputs.items()], outputs, constants)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def make_inputs(sizes):
    return {k: v if isinstance(v, np.ndarray) else floats(*v) for k, v in sizes.items()}


def compile_case(weft, name, case, folder):
    path, bundle = os.path.join(folder, "m.onnx"), os.path.join(folder, f"{name}.weft")
    onnx.save(make_model(case), path)
    if case.dims:
        path = os.path.join(folder, "set.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"models:\n  - {{name: m, file: m.onnx, dims: {case.dims}}}\n")
    oracle.weft(weft, "compile", path, "-o", bundle)
    return bundle


def check(weft, name, case, folder):
    """What is wrong, as a list of texts."""
    try:
        bundle = compile_case(weft, name, case, folder)
    except oracle.Failed as e:
        return [] if case.refused and case.refused in str(e) else [f"does not compile: {e}"]
    if case.refused:
        return ["compiles, must be refused"]
    wrong, expected = [], oracle.session(make_model(case).SerializeToString())
    for sizes, how in case.runs:
        inputs = make_inputs(sizes)
        shapes = {k: list(v.shape) for k, v in inputs.items()}
        try:
            got = oracle.run_bundle(weft, bundle, inputs, list(case.outputs), folder)
        except oracle.Failed as e:
            if how is OK or how.text not in str(e):
                wrong.append(f"{shapes}: {e}")
            continue
        if how is not OK:
            wrong.append(f"{shapes}: ran, must be refused with \"{how.text}\"")
            continue
        want = dict(zip(case.outputs, expected.run(list(case.outputs), inputs)))
        text = oracle.outputs_differ(got, want)
        if text:
            wrong.append(f"{shapes}: {text}")
    return wrong


def main():
    weft, names = sys.argv[1], sys.argv[2:] or list(CASES)
    warnings.filterwarnings("ignore")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            wrong = check(weft, name, CASES[name], folder)
            failed += bool(wrong)
            print(f"{'FAILED' if wrong else 'ok':6} {name}", *wrong, sep="\n       ", flush=True)
    print(f"{len(names) - failed} of {len(names)} cases")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
