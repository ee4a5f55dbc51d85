#!/usr/bin/env python3
"""Sparse initialisers and constants beside the dense ones that they mean, and damaged ones, which are refused.

usage: sparse_tensors.py WORKER
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper
from worker import Refused, UNSUPPORTED, Worker

INVALID = 1  # WEFT_ERR_INPUT


def sparse(dense, coordinates, name="w"):
    at = np.flatnonzero(dense)
    values = numpy_helper.from_array(dense.reshape(-1)[at], name)
    where = np.stack(np.unravel_index(at, dense.shape), 1) if coordinates else at
    return helper.make_sparse_tensor(values, numpy_helper.from_array(where.astype(np.int64), name + "_at"), list(dense.shape))


def model(tensor, as_constant, dtype):
    ports = [helper.make_tensor_value_info(n, dtype, None if n == "y" else ["n", 1]) for n in ("x", "y")]
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    if as_constant:
        node = helper.make_node("Constant", [], ["w"])
        attr = node.attribute.add(name="sparse_value", type=11)
        attr.sparse_tensor.CopyFrom(tensor)
        graph.node.insert(0, node)
    else:
        graph.sparse_initializer.append(tensor)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def right(worker, path):
    rs, bad = np.random.RandomState(1), 0
    for dtype in (np.float32, np.float64, np.int64, np.int32, np.float16):
        for shape in ((5,), (3, 4), (1, 7), (3, 0), (1, 33)):
            for full in (0.0, 0.3, 1.0):
                dense = (rs.randint(-9, 10, shape) * (rs.rand(*shape) < full)).astype(dtype)
                x = np.zeros((shape[0] if len(shape) > 1 else 2, 1), dtype)
                for coordinates in (False, True):
                    for as_constant in (False, True):
                        onnx_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
                        with open(path, "wb") as f:
                            f.write(model(sparse(dense, coordinates), as_constant, onnx_type).SerializeToString())
                        worker.compile([path])
                        (got,) = worker.run([x])
                        if not np.array_equal(got, x + dense):
                            bad += 1
                            print(f"{dtype.__name__} {shape} {full} {coordinates} {as_constant}: {got}, expected {x + dense}")
    return bad


def damaged():
    """(what, tensor, error code, part of the message)"""
    def make(values, at, dims):
        out = SparseTensorProto(dims=dims)
        out.values.CopyFrom(numpy_helper.from_array(np.asarray(values, np.float32), "w"))
        out.indices.CopyFrom(numpy_helper.from_array(np.asarray(at, np.int64), "at"))
        return out
    nameless = make([1], [0], [3])
    nameless.values.name = ""
    empty = SparseTensorProto(dims=[3])
    empty.values.CopyFrom(TensorProto(name="w", data_type=1, dims=[2]))
    yield "beyond the end", make([1], [3], [3]), INVALID, "index 0 is out of range"
    yield "before the start", make([1], [-1], [3]), INVALID, "index 0 is out of range"
    yield "beyond an axis", make([1], [[0, 3]], [4, 3]), INVALID, "index 0 is out of range"
    yield "twice", make([1, 2], [1, 1], [3]), INVALID, "index 1 is out of range or order"
    yield "out of order", make([1, 2], [2, 1], [3]), INVALID, "index 1 is out of range or order"
    yield "fewer indices", make([1, 2], [2], [3]), INVALID, "indices that do not fit"
    yield "other rank", make([1], [[0, 0, 0]], [3, 3]), INVALID, "indices that do not fit"
    yield "more values than elements", make([1, 2], [0, 1], [1]), INVALID, "too many elements"
    yield "negative", make([1], [0], [-3]), INVALID, "dimension 0 is -3"
    yield "overflow", make([1], [0], [1 << 40, 1 << 40]), INVALID, "too many elements"
    yield "large", make([1], [0], [1 << 20, 1 << 10]), UNSUPPORTED, "store them as dense ones"
    yield "no name", nameless, INVALID, "has no name"
    yield "no elements", empty, INVALID, "no elements"


def main():
    worker = Worker(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        bad = right(worker, path)
        for what, tensor, code, text in damaged():
            with open(path, "wb") as f:
                f.write(model(tensor, False, TensorProto.FLOAT).SerializeToString())
            try:
                worker.compile([path])
                problem = "is not refused"
            except Refused as e:
                problem = None if e.code == code and text in str(e) else f"code {e.code}: {e}"
            if problem:
                bad += 1
                print(f"{what}: {problem}")
    worker.close()
    print(f"{bad} wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
