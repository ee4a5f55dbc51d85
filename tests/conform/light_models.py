#!/usr/bin/env python3
"""The classic networks of the onnx package (AlexNet, DenseNet, Inception, ResNet, ShuffleNet, SqueezeNet, VGG,
ZFNet in their first exports: opsets 3 to 9, weights made by the graph) beside onnxruntime. A softmax at
the end is left out: their logits are equal numbers up to 1e10, of which it would show only the rounding.

usage: light_models.py WORKER
"""
import glob
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()

import numpy as np
import onnx
from worker import Refused, Worker


def without_softmax(file, folder):
    """The path of the model up to its logits: a new file in the folder if it ends with a softmax."""
    model = onnx.load(file)
    last = model.graph.node[-1]
    if last.op_type != "Softmax":
        return file
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None))
    model.graph.node.remove(last)
    path = os.path.join(folder, os.path.basename(file))
    onnx.save(model, path)
    return path


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
    files = sorted(glob.glob(os.path.join(folder, "light_*.onnx")))
    worker, rng, failures = Worker(sys.argv[1]), np.random.default_rng(3), 0
    work = tempfile.TemporaryDirectory()
    for file in (without_softmax(f, work.name) for f in files):
        session = oracle.session(file)
        x = session.get_inputs()[0]
        inputs = {x.name: rng.random(size=x.shape, dtype=np.float32)}
        want = oracle.answers(file, inputs)
        try:
            worker.compile([file])
            text = oracle.outputs_differ(dict(zip(want, worker.run(list(inputs.values())))), want)
        except Refused as e:
            text = str(e)
        failures += text is not None
        print(f"{os.path.basename(file)}: {text or 'equal'}")
    worker.close()
    sys.exit(failures > 0 or not files)


if __name__ == "__main__":
    main()
