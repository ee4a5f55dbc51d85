#!/usr/bin/env python3
"""Sequences beside onnxruntime: parts of a split of unknown size, elements at positions that data tells, lists that
loops read and append to. Each model runs at several sizes, through the CPU driver with all passes and through the
reference kernels (driver null) without passes.

usage: sequences.py WORKER [CASE...]
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from worker import Refused, UNSUPPORTED, Worker

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
CONSTANTS = {"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "last": np.int64(-1), "true": np.bool_(True),
             "ends": np.array([0], np.int64), "minus": np.array([-1], np.int64),
             "half": np.float32(0.5)}


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, [i if i != "_" else "" for i in inputs.split()], outputs.split(), **attrs)


def port(name):
    """NAME, or NAME:DIM,DIM; a list begins with "l", an integer with "i", a condition with "c"."""
    name, _, dims = name.partition(":")
    dims = [int(d) if d.isdigit() else d for d in dims.split(",")] if dims else None
    if name[0] == "l":
        return helper.make_tensor_sequence_value_info(name, F32, None)
    dtype = {"i": I64, "c": BOOL}.get(name[0], F32)
    return helper.make_tensor_value_info(name, dtype, dims if dims is not None else [] if name[0] in "ic" else None)


def body(inputs, nodes, outputs):
    return helper.make_graph(nodes, "body", [port(n) for n in inputs.split()], [port(n) for n in outputs.split()])


def loop(count, carried, inner, results):
    return node("Loop", f"{count} true {carried}", results, body=inner)


# Rounds that append to a list: i.round-dependent elements, of one size or of sizes that grow.
ROW = [node("Cast", "i", "fi", to=F32), node("Mul", "x fi", "e"), node("Identity", "c", "c1")]
GROWING = ROW + [node("Add", "i one", "i1"), node("Unsqueeze", "i1 ends", "top"), node("Slice", "e ends top ends", "p")]
APPEND = [node("SequenceInsert", "l e", "l1")]
ROUND = body("i c l", ROW + APPEND, "c1 l1")
EMPTY = node("SequenceEmpty", "", "l0")
N3 = {"x": ["n", 3]}

# name: (nodes, inputs, outputs, runs) or, refused, (nodes, inputs, outputs, text)
CASES = {
    "appended_stacked": ([EMPTY, loop("k", "l0", ROUND, "r"), node("ConcatFromSequence", "r", "y", axis=1, new_axis=1)],
                         {**N3, "k": []}, "y", [{"x": (2, 3), "k": 4}, {"x": (1, 3), "k": 1}]),
    "appended_joined": ([EMPTY, loop("k", "l0", body("i c l", GROWING + [node("SequenceInsert", "l p", "l1")], "c1 l1"),
                                     "r"), node("ConcatFromSequence", "r", "y", axis=-2)],
                        {**N3, "k": []}, "y", [{"x": (5, 3), "k": 4}, {"x": (1, 3), "k": 1}]),
    "appended_joined_inner": ([EMPTY, loop("k", "l0", body("i c l", GROWING + [
        node("Transpose", "p", "q"), node("SequenceInsert", "l q", "l1")], "c1 l1"), "r"),
        node("ConcatFromSequence", "r", "y", axis=1)], {**N3, "k": []}, "y", [{"x": (5, 3), "k": 4}, {"x": (2, 3), "k": 2}]),
    "appended_twice": ([EMPTY, loop("k", "l0", body("i c l", ROW + APPEND + [
        node("Neg", "e", "f"), node("SequenceInsert", "l1 f", "l2")], "c1 l2"), "r"),
        node("SequenceLength", "r", "in"), node("SequenceAt", "r last", "a"),
        node("ConcatFromSequence", "r", "b", axis=0, new_axis=1), node("Add", "a b", "y")],
        {**N3, "k": []}, "y in", [{"x": (2, 3), "k": 3}, {"x": (4, 3), "k": 1}]),
    "appended_twice_joined": ([EMPTY, loop("k", "l0", body("i c l", GROWING + APPEND + [
        node("SequenceInsert", "l1 p", "l2")], "c1 l2"), "r"), node("ConcatFromSequence", "r", "y", axis=0)],
        {**N3, "k": []}, "y", [{"x": (3, 3), "k": 3}, {"x": (4, 3), "k": 1}]),
    "appended_to_some": ([node("SequenceConstruct", "x z", "l0"), loop("k", "l0", ROUND, "r"),
                          node("ConcatFromSequence", "r", "y", axis=0, new_axis=1), node("SequenceAt", "r k", "a")],
                         {**N3, "z": ["n", 3], "k": []}, "y a", [{"x": (2, 3), "z": (2, 3), "k": 2},
                                                                 {"x": (2, 3), "z": (2, 3), "k": 1}]),
    "appended_to_some_joined": ([node("SequenceConstruct", "x z", "l0"), loop("k", "l0", ROUND, "r"),
                                 node("ConcatFromSequence", "r", "y", axis=0)],
                                {**N3, "z": ["m", 3], "k": []}, "y", [{"x": (2, 3), "z": (1, 3), "k": 2},
                                                                      {"x": (2, 3), "z": (4, 3), "k": 0}]),
    "appended_with_tensors": ([EMPTY, loop("k", "x l0 l0 x", body(
        "i c a l lm b", [node("Mul", "a half", "a1"), node("Sub", "b a1", "b1"), node("Identity", "c", "c1"),
                        node("SequenceInsert", "l a1", "l1"), node("SequenceInsert", "lm b1", "l2"),
                        node("ReduceSum", "b1", "s", keepdims=0)], "c1 a1 l1 l2 b1 s"), "ra r q rb rs"),
        node("ConcatFromSequence", "r", "y", axis=2, new_axis=1), node("ConcatFromSequence", "q", "w", axis=0)],
        {**N3, "k": []}, "y w ra rb rs", [{"x": (2, 3), "k": 3}, {"x": (1, 3), "k": 1}]),
    "read_back": ([EMPTY, loop("k", "l0", ROUND, "r"), node("Sub", "k one", "ik"), loop(
        "k", "x r", body("i c a l", [node("Sub", "ik i", "ij"), node("SequenceAt", "l ij", "e"), node("Mul", "a half", "b"),
                                     node("Add", "b e", "d"), node("Identity", "c", "c1"), node("Identity", "l", "l1")],
                         "c1 d l1"), "y r2"), node("SequenceAt", "r2 zero", "z")],
        {**N3, "k": []}, "y z", [{"x": (2, 3), "k": 3}, {"x": (4, 3), "k": 1}]),
    "two_loops": ([EMPTY, loop("k", "l0", ROUND, "r"), loop("two", "r", ROUND, "q"),
                   node("ConcatFromSequence", "q", "y", axis=0, new_axis=1)],
                  {**N3, "k": []}, "y", [{"x": (2, 3), "k": 3}, {"x": (4, 3), "k": 0}]),
    "split_read": ([node("SplitToSequence", "x two", "l0", axis=0), node("SequenceLength", "l0", "in"),
                    node("SequenceAt", "l0 k", "y")],
                   {**N3, "k": []}, "in y", [{"x": (5, 3), "k": 2}, {"x": (5, 3), "k": -1}, {"x": (4, 3), "k": -2},
                                             {"x": (1, 3), "k": 0}]),
    "split_by_one": ([node("SplitToSequence", "x", "l0", axis=1), node("SequenceAt", "l0 k", "y"),
                      node("SplitToSequence", "x one", "l1", axis=1, keepdims=0), node("SequenceAt", "l1 k", "z"),
                      node("ConcatFromSequence", "l1", "w", axis=0, new_axis=0),
                      node("ConcatFromSequence", "l1", "v", axis=2, new_axis=1)],
                     {"x": [2, "n", 3], "k": []}, "y z w v", [{"x": (2, 5, 3), "k": 2}, {"x": (2, 1, 3), "k": -1}]),
    "split_fixed": ([node("SplitToSequence", "x one", "l0", axis=0, keepdims=0), node("SequenceAt", "l0 one", "y"),
                     node("SequenceLength", "l0", "in")], {"x": [4, 3]}, "y in", [{"x": (4, 3)}]),
    "position": ([node("SequenceConstruct", "x z x", "l0"), node("SequenceAt", "l0 k", "y")],
                 {**N3, "z": ["n", 3], "k": []}, "y", [{"x": (2, 3), "z": (2, 3), "k": k} for k in (0, 1, -1, -2)]),
    "read_of_appended": ([EMPTY, loop("k", "l0", body("i c l", ROW + APPEND + [
        node("SequenceAt", "l1 last", "s")], "c1 l1 s"), "r rs"), node("ConcatFromSequence", "r", "y", axis=0)],
        {**N3, "k": []}, "y rs", "may only be appended to"),
    "joined_along_two_axes": ([EMPTY, loop("k", "l0", ROUND, "r"), node("ConcatFromSequence", "r", "y", axis=0), node(
        "If", "true", "z", then_branch=body("", [node("ConcatFromSequence", "r", "a", axis=1)], "a"),
        else_branch=body("", [node("ConcatFromSequence", "r", "b", axis=-2)], "b"))],
        {**N3, "k": []}, "y z", "a list of unknown length that is also concatenated"),
    "appended_or_not": ([EMPTY, loop("k", "l0", body("i c l", ROW + [
        node("Less", "i one", "cond"), node("If", "cond", "l1", then_branch=body("", [node("SequenceInsert", "l e", "l2")], "l2"),
             else_branch=body("", [node("Identity", "l", "l3")], "l3"))], "c1 l1"), "r"),
        node("ConcatFromSequence", "r", "y", axis=0)], {**N3, "k": []}, "y", "output 0 is a sequence"),
}


def model(nodes, inputs, outputs):
    ports = [helper.make_tensor_value_info(n, I64 if n == "k" else F32, d) for n, d in inputs.items()]
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "g", ports, [port(n) for n in outputs.split()], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feed(run, rng):
    return {n: np.array(v, np.int64) if isinstance(v, int) else rng.standard_normal(v).astype(np.float32)
            for n, v in run.items()}


def check(worker, path, runs):
    """None, or what is wrong."""
    rng = np.random.default_rng(3)
    session = oracle.session(path)
    names = [o.name for o in session.get_outputs()]
    for pipeline, driver in (("cpu", "cpu"), ("plain", "null")):
        worker.compile([path], pipeline)
        for run in runs:
            inputs = feed(run, rng)
            got, want = worker.run(list(inputs.values()), driver=driver), session.run(None, inputs)
            text = oracle.outputs_differ(dict(zip(names, got)), dict(zip(names, want)))
            if text:
                return f"{driver}, {run}: {text}"
    return None


def refusal(worker, path, text):
    """None, or what is wrong."""
    try:
        worker.compile([path])
    except Refused as e:
        return None if e.code == UNSUPPORTED and text in str(e) else f"refused with code {e.code}: {e}"
    return "is not refused"


def run(cases):
    worker, bad = Worker(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        for name, (nodes, inputs, outputs, runs) in cases.items():
            if sys.argv[2:] and name not in sys.argv[2:]:
                continue
            with open(path, "wb") as f:
                f.write(model(nodes, inputs, outputs).SerializeToString())
            try:
                text = refusal(worker, path, runs) if isinstance(runs, str) else check(worker, path, runs)
            except Refused as e:
                text = f"refused: {e}"
            bad += text is not None
            if text:
                print(f"{name}: {text}")
    worker.close()
    print(f"{len(cases)} models, {bad} wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    run(CASES)
