#!/usr/bin/env python3
"""Small ONNX files made to take the compiler much time or memory: each is compiled or refused with one clear
message, in 10 seconds of CPU time and 4 GiB of address space, into a bundle in proportion to the file.

usage: hostile_models.py WEFT [NAME...]
"""
import os
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
try:
    import numpy as np
except ImportError:
    print("skipped: needs numpy")
    sys.exit(77)
from onnx_file import Function, Graph, Node, Port

SECONDS, MEMORY_BYTES, MESSAGE_BYTES, BUNDLE_BYTES = 10, 4 << 30, 20000, 8 << 20
SANITIZER_SECONDS = 60
MOST = (1 << 63) - 1
CASES = []


def case(text=None):
    """text: what the message says; None: the file is compiled."""
    def keep(maker):
        CASES.append((maker.__name__, maker, text))
        return maker
    return keep


def ints(*values):
    return np.asarray(values, np.int64)


def graph(nodes, constants=None, dims=(2, 4), opset=17, inputs=None):
    g = Graph(opset=opset, ir=10, inputs=inputs or [Port("x", "float32", list(dims))], nodes=nodes,
              outputs=[Port("y", "float32")])
    g.constants = {k: np.asarray(v) for k, v in (constants or {}).items()}
    return g


def folded(nodes, dims, last="q", constants=None, opset=17):
    """Nodes on constants only: "m" are ones of these dims. Their last result is added to the input."""
    every = {"one": np.ones((1,) * len(dims), np.float32), "dims": ints(*dims), **(constants or {})}
    return graph([Node("Expand", ["one", "dims"], ["m"]), *nodes, Node("Cast", [last], ["f"], {"to": 1}),
                  Node("ReduceSum", ["f"], ["s"], {"keepdims": 0}), Node("Add", ["x", "s"], ["y"])], every, opset=opset)


# -- Constants that are expensive to compute ------------------------------------------------------------


@case()
def pool_of_large_windows():
    return folded([Node("LpPool", ["m"], ["q"], {"kernel_shape": [251, 251], "pads": [125] * 4, "p": 3})], (1, 1, 500, 500))


@case()
def regions_of_many_points():
    return folded([Node("RoiAlign", ["m", "r", "b"], ["q"], {"output_height": 100, "output_width": 100,
                                                             "sampling_ratio": 1000})],
                  (1, 1, 100, 100), constants={"r": np.asarray([[0, 0, 90, 90]] * 20, np.float32), "b": ints(*[0] * 20)})


@case()
def fourier_transform_of_a_prime_length():
    return folded([Node("DFT", ["m"], ["q"], {"axis": 1})], (1, 125003, 1))


@case()
def fourier_transforms_in_a_chain():
    return folded([Node("DFT", [f"q{i - 1}" if i else "m"], [f"q{i}"], {"axis": 1}) for i in range(100)], (1, 20011, 2), "q99")


@case()
def sum_of_products_of_four():
    return folded([Node("Einsum", ["m"] * 4, ["q"], {"equation": "ab,cb,cd,ad->ac"})], (300, 300))


@case()
def boxes_side_by_side():
    n = 20000
    left = np.arange(n) * 2
    boxes = np.stack([left, left * 0, left + 1, left * 0 + 1], 1)[None].astype(np.float32)
    return folded([Node("NonMaxSuppression", ["b", "scores", "k"], ["q"])], (1,),
                  constants={"b": boxes, "scores": np.arange(n, dtype=np.float32)[None, None], "k": ints(MOST)})


@case()
def tree_that_is_a_chain():
    n = 20000
    inner = [v for i in range(n) for v in (2 * i + 1, 0)] + [0]
    attrs = {"nodes_treeids": [0] * (2 * n + 1), "nodes_nodeids": list(range(2 * n + 1)),
             "nodes_featureids": [0] * (2 * n + 1), "nodes_modes": ["BRANCH_LEQ", "LEAF"] * n + ["LEAF"],
             "nodes_values": [-0.5] * (2 * n + 1), "nodes_truenodeids": inner,
             "nodes_falsenodeids": [v + 1 if v else 0 for v in inner], "target_ids": [0] * (n + 1),
             "target_nodeids": [2 * i + 1 for i in range(n)] + [2 * n], "target_treeids": [0] * (n + 1),
             "target_weights": [1.0] * (n + 1), "n_targets": 1}
    return folded([Node("TreeEnsembleRegressor", ["m"], ["q"], attrs, "ai.onnx.ml")], (250000, 1))


@case()
def products_in_a_chain():
    return folded([Node("MatMul", [f"q{i - 1}" if i else "m", "m"], [f"q{i}"]) for i in range(100)], (500, 500), "q99")


@case("too large")
def tile_of_2_to_the_60():
    return folded([Node("Tile", ["m", "r"], ["q"])], (1, 1, 1), constants={"r": ints(1 << 20, 1 << 20, 1 << 20)})


@case("too large")
def outer_product_of_eight():
    return folded([Node("Einsum", ["m"] * 4, ["q"], {"equation": "ab,cd,ef,gh->abcdefgh"})], (64, 64))


@case("is 3e+18")
def resize_by_3e18():
    return folded([Node("Resize", ["m", "", "r"], ["q"])], (1, 1, 2, 2),
                  constants={"r": np.asarray([1, 1, 3e18, 3e18], np.float32)})


# -- Graphs in graphs -------------------------------------------------------------------------------------


def _doubling(inner):
    """Functions that call the one before twice, 40 levels."""
    g = graph([Node("f40", ["x"], ["y"], {}, "f")])
    g.functions = [Function("f0", ["a"], ["b" if inner else "a"], inner)]
    g.functions += [Function(f"f{i}", ["a"], ["b"], [Node(f"f{i - 1}", ["a"], ["t"], {}, "f"),
                                                     Node(f"f{i - 1}", ["t"], ["b"], {}, "f")]) for i in range(1, 41)]
    return g


@case("more than 1000000 nodes")
def functions_that_double():
    return _doubling([Node("Relu", ["a"], ["b"])])


@case("more than 1000000 nodes")
def empty_functions_that_double():
    return _doubling([])


@case("calls itself")
def function_of_itself():
    g = graph([Node("f0", ["x"], ["y"], {}, "f")])
    g.functions = [Function("f0", ["a"], ["b"], [Node("f0", ["a"], ["b"], {}, "f")])]
    return g


def _branches(nodes):
    return Graph(nodes=nodes, outputs=[Port("o", None)])


def _if(then, otherwise, out):
    return Node("If", ["c"], [out], {"then_branch": then, "else_branch": otherwise})


CHOICE = [Port("x", "float32", [2]), Port("c", "bool", [])]


@case("more than 4096 graphs")
def branches_of_branches():
    b = _branches([Node("Relu", ["x"], ["o"])])
    for _ in range(11):
        b = _branches([_if(b, b, "o")])
    return graph([_if(b, b, "y")], inputs=CHOICE)


@case("nested more than")
def branches_60_deep():
    b = _branches([Node("Relu", ["x"], ["o"])])
    for _ in range(60):
        b = _branches([_if(b, _branches([Node("Neg", ["x"], ["o"])]), "o")])
    return graph([_if(b, b, "y")], inputs=CHOICE)


@case()
def conditions_side_by_side():
    n = 1500
    pair = _branches([Node("Relu", ["x"], ["o"])]), _branches([Node("Neg", ["x"], ["o"])])
    return graph([_if(*pair, f"v{i}") for i in range(n)] + [Node("Sum", [f"v{i}" for i in range(n)], ["y"])], inputs=CHOICE)


@case()
def loop_that_never_ends():
    body = Graph(nodes=[Node("Identity", ["on"], ["on2"]), Node("Concat", ["s", "s"], ["s2"], {"axis": 0})],
                 inputs=[Port("i", "int64", []), Port("on", "bool", []), Port("s", "float32", ["n"])],
                 outputs=[Port("on2", None), Port("s2", None)])
    return graph([Node("Loop", ["n", "t", "k"], ["q"], {"body": body}), Node("ReduceSum", ["q"], ["r"], {"keepdims": 0}),
                  Node("Add", ["x", "r"], ["y"])],
                 {"n": np.int64(MOST), "t": np.bool_(True), "k": np.ones(2, np.float32)})


# -- Many of a kind ---------------------------------------------------------------------------------------


@case()
def initialisers():
    return graph([Node("Relu", ["x"], ["y"])], {f"c{i}": np.float32(i) for i in range(100000)})


@case()
def operands():
    return graph([Node("Sum", ["x"] * 100000, ["y"])])


@case()
def functions():
    g = graph([Node("f9", ["x"], ["y"], {}, "f")])
    g.functions = [Function(f"f{i}", ["a"], ["b"], [Node("Relu", ["a"], ["b"])]) for i in range(50000)]
    return g


@case("over 64")
def attributes():
    return graph([Node("Relu", ["x"], ["y"], {f"a{i}": i for i in range(50000)})])


@case("more than 1024 symbolic dimensions")
def symbols():
    return graph([Node("Relu", ["x0"], ["y"])], inputs=[Port(f"x{i}", "float32", [f"d{i}", 4]) for i in range(50000)])


@case("is not supported")
def unknown_operators():
    return graph([Node(f"Op{i}", ["x"], [f"v{i}"]) for i in range(50000)] + [Node("Relu", ["x"], ["y"])])


@case("on a cycle")
def cycle():
    return graph([Node("Relu", ["b"], ["a"]), Node("Relu", ["a"], ["b"]), Node("Relu", ["x"], ["y"])])


# -- Numbers and names at their limits ------------------------------------------------------------------------


@case("`pads` does not fit")
def pads_of_a_convolution():
    return graph([Node("Conv", ["x", "w"], ["y"], {"pads": [MOST] * 4})], {"w": np.ones((1, 1, 3, 3), np.float32)},
                 (1, 1, 4, 4))


@case("`strides` does not fit")
def strides_of_a_convolution():
    return graph([Node("Conv", ["x", "w"], ["y"], {"strides": [MOST] * 2, "dilations": [MOST] * 2})],
                 {"w": np.ones((1, 1, 3, 3), np.float32)}, (1, 1, 4, 4))


@case()
def slice_at_the_limits():
    return graph([Node("Slice", ["x", "a", "b", "c", "d"], ["y"])],
                 {"a": ints(MOST), "b": ints(-MOST - 1), "c": ints(0), "d": ints(-MOST - 1)})


@case("too many elements")
def dims_of_an_input():
    return graph([Node("Relu", ["x"], ["y"])], dims=(MOST, MOST, MOST))


@case("a NUL byte in a string")
def nul_in_a_name():
    return graph([Node("Re\0lu", ["x"], ["y"])])


@case("operator %s%n%x is not supported")
def format_as_a_name():
    return graph([Node("%s%n%x", ["x"], ["y"])])


@case("a name of more than 65536 bytes")
def name_of_a_megabyte():
    return graph([Node("A" * 1000000, ["x"], ["y"])])


# -- Trying -----------------------------------------------------------------------------------------------------


def try_one(weft, maker, text, folder, sanitized):
    """None, or what is wrong."""
    path, bundle = os.path.join(folder, "m.onnx"), os.path.join(folder, "m.weft")
    maker().save(path)
    if os.path.exists(bundle):
        os.remove(bundle)

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (SANITIZER_SECONDS if sanitized else SECONDS,) * 2)
        if not sanitized:  # sanitizers reserve terabytes of addresses
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    done = subprocess.run([weft, "compile", path, "-o", bundle], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          preexec_fn=limit, check=False)
    message = done.stderr.decode(errors="replace")
    if len(message) > MESSAGE_BYTES:
        return f"{len(message)} bytes of messages"
    if done.returncode != (1 if text else 0):
        return f"ended with {done.returncode}: {message[:300]}"
    if text and text not in message:
        return f"the message does not say \"{text}\": {message[:300]}"
    size = os.path.getsize(bundle) if not text else 0
    if size > BUNDLE_BYTES + 4 * os.path.getsize(path):
        return f"a bundle of {size} bytes"
    return None


def main():
    weft, only, wrong = sys.argv[1], sys.argv[2:], 0
    with open(weft, "rb") as f:
        sanitized = b"__asan_" in f.read()
    with tempfile.TemporaryDirectory() as folder:
        for name, maker, text in CASES:
            if only and name not in only:
                continue
            began = time.time()
            fault = try_one(weft, maker, text, folder, sanitized)
            wrong += fault is not None
            if fault or only:
                print(f"{name} ({time.time() - began:.1f} s): {fault or 'right'}", flush=True)
    print(f"{len(only or CASES)} files, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
