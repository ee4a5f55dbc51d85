#!/usr/bin/env python3
"""The classic networks of the onnx package (AlexNet, DenseNet, Inception, ResNet, ShuffleNet, SqueezeNet, VGG,
ZFNet in their first exports: opsets 3 to 9, weights made by the graph) beside onnxruntime.

usage: light_models.py WORKER
"""
import glob
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()

import numpy as np
import onnx
from worker import Refused, Worker


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
    files = sorted(glob.glob(os.path.join(folder, "light_*.onnx")))
    worker, rng, failures = Worker(sys.argv[1]), np.random.default_rng(3), 0
    for file in files:
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
