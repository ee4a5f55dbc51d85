#!/usr/bin/env python3
"""ONNX models without the bulk of their weights, to carry to a machine with a GPU: fill.py makes
weights of the same distribution there. Equal tensors stay equal, so siblings keep what they share.

usage: skeleton.py OUT MODEL.onnx...    writes OUT/NAME.onnx and adds NAME to OUT/manifest.json
Needs python3-onnx and python3-numpy. NAME.in.INPUT.npy beside a model tell the range of its inputs.
"""
import glob
import hashlib
import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

KEEP_BYTES = 32768  # smaller tensors travel as they are: biases, norms, constants


def describe_inputs(graph, path):
    given = {t.name for t in graph.initializer}
    found = []
    for value in graph.input:
        if value.name in given:
            continue
        tensor = value.type.tensor_type
        dims = [d.dim_param or d.dim_value for d in tensor.shape.dim]
        entry = {"name": value.name, "dims": dims, "dtype": int(tensor.elem_type)}
        sample = path[:-5] + ".in." + value.name + ".npy"
        if os.path.exists(sample):
            x = np.load(sample)
            entry["shape"] = list(x.shape)
            entry["low"], entry["high"] = float(x.min()), float(x.max())
        found.append(entry)
    return found


def main():
    out, paths = sys.argv[1], sys.argv[2:]
    os.makedirs(out, exist_ok=True)
    manifest_path = os.path.join(out, "manifest.json")
    manifest = json.load(open(manifest_path)) if os.path.exists(manifest_path) else {}
    for path in paths:
        name = os.path.basename(path)[:-5]
        model = onnx.load(path)
        tensors, at = [], 0
        for t in model.graph.initializer:
            x = numpy_helper.to_array(t)
            if x.dtype != np.float32 or x.nbytes <= KEEP_BYTES:
                continue
            seed = int.from_bytes(hashlib.sha256(x.tobytes()).digest()[:8], "little")
            tensors.append({"offset": at, "count": int(x.size), "seed": seed,
                            "mean": float(x.mean()), "std": float(x.std()),
                            "low": float(x.min()), "high": float(x.max())})
            t.ClearField("raw_data")
            t.ClearField("float_data")
            t.data_location = TensorProto.EXTERNAL
            del t.external_data[:]
            for key, value in (("location", name + ".weights"), ("offset", at), ("length", x.nbytes)):
                entry = t.external_data.add()
                entry.key, entry.value = key, str(value)
            at += (x.nbytes + 4095) // 4096 * 4096
        with open(os.path.join(out, name + ".onnx"), "wb") as f:
            f.write(model.SerializeToString())
        manifest[name] = {"bytes": at, "tensors": tensors,
                          "inputs": describe_inputs(model.graph, path),
                          "outputs": [v.name for v in model.graph.output]}
        print(name, "%.1f MB of weights left out" % (at / 1e6), file=sys.stderr)
    with open(manifest_path, "w") as f:
        json.dump(manifest, f)


if __name__ == "__main__":
    main()
