#!/usr/bin/env python3
"""The node cases of the newest `onnx` package (tests/oracles.txt) through onnx_cases.

The package has its node cases as Python objects; they are written to a cache folder once, in the form
of the test data that distributions ship: DIR/node/NAME/model.onnx and
DIR/node/NAME/test_data_set_N/{input,output}_K.pb. Their inputs come from numpy.random, so that the
seed below fixes them for one version of onnx and of numpy.

usage: onnx_newest.py ONNX_CASES GAPS [option of onnx_cases]...    (77: the packages cannot be had)
"""

import os
import shutil
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

SEED = 20


def tensor_bytes(value, info):
    """The serialised input or output `value` of the graph's ValueInfoProto `info`."""
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        return value.SerializeToString()
    convert = {"map_type": numpy_helper.from_dict, "sequence_type": numpy_helper.from_list,
               "optional_type": numpy_helper.from_optional}
    kind = info.type.WhichOneof("value")
    return convert.get(kind, numpy_helper.from_array)(value, info.name).SerializeToString()


def write_file(path, data):
    with open(path, "wb") as f:
        f.write(data)


def write_case(case, folder):
    graph = case.model.graph
    os.makedirs(folder)
    write_file(os.path.join(folder, "model.onnx"), case.model.SerializeToString())
    for number, data_set in enumerate(case.data_sets):
        at = os.path.join(folder, f"test_data_set_{number}")
        os.makedirs(at)
        for kind, values, infos in (("input", data_set[0], graph.input),
                                    ("output", data_set[1], graph.output)):
            for k, value in enumerate(values):
                write_file(os.path.join(at, f"{kind}_{k}.pb"), tensor_bytes(value, infos[k]))


def make_data():
    """The folder of the data, written if it is not in the cache."""
    import numpy
    import onnx

    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weft")
    folder = os.path.join(cache, f"onnx-cases-{onnx.__version__}-{numpy.__version__}-{SEED}")
    if os.path.isdir(folder):
        return folder
    os.makedirs(cache, exist_ok=True)
    made = tempfile.mkdtemp(prefix="making.", dir=cache)
    numpy.random.seed(SEED)
    warnings.simplefilter("ignore")  # overflow in casts, which is what the cases are about
    from onnx.backend.test.loader import load_node_model_tests
    for case in load_node_model_tests():
        write_case(case, os.path.join(made, "node", case.name))
    try:
        os.rename(made, folder)
    except OSError:
        shutil.rmtree(made)  # another test was faster
    return folder


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    oracle.need()
    os.execv(sys.argv[1], [sys.argv[1], "--data", make_data(), "--suite", "node", "--gaps",
                           sys.argv[2], *sys.argv[3:]])


if __name__ == "__main__":
    main()
