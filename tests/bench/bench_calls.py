#!/usr/bin/env python3
"""What a call costs beside the work: a model of one Relu on one float, one thread, by the session that the command has,
the C API (bench_call) and the Python package, and by onnxruntime's C API (bench_call_ort) and Python; medians of
alternating rounds.

usage: bench_calls.py BUILD-FOLDER [ROUNDS]
"""
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

RUNS = 20000
build, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
oracle.need()
os.environ.update(WEFT_LIBRARY=os.path.join(build, "libweft.so.1"), WEFT_COMMAND=os.path.join(build, "weft"))
sys.path.insert(0, os.path.join(oracle.ROOT, "python"))
import numpy as np
import onnx
import onnxruntime
import weft
from onnx import TensorProto, helper


def median_us(call):
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


with tempfile.TemporaryDirectory() as folder:
    model, bundle = os.path.join(folder, "m.onnx"), os.path.join(folder, "m.weft")
    port = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [port("x", TensorProto.FLOAT, [1])],
                              [port("y", TensorProto.FLOAT, [1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    session = (weft.compile(model, bundle) and weft.Bundle(bundle, threads=1)).session()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    other = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    x, out = np.ones(1, "f4"), np.empty(1, "f4")
    inputs, outputs = {"x": x}, {"y": out}
    program = os.path.join(build, "tests", "bench", "bench_call")
    library = glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "libonnxruntime.so.*"))[0]

    def output(*command):
        return subprocess.run([*command, str(RUNS)], capture_output=True, text=True, check=True).stdout

    def bench():
        text = subprocess.run([os.environ["WEFT_COMMAND"], "bench", bundle, "--threads", "1", "--time", "0.05",
                               "--format", "json"], capture_output=True, text=True, check=True).stdout
        return 1e3 * json.loads(text)["results"][0]["median_ms"]

    rows = {"weft bench": bench,
            "C API": lambda: float(output(program, bundle).split()[0]),
            "onnxruntime's C API": lambda: float(output(program + "_ort", library, model).split()[0]),
            "Python": lambda: median_us(lambda: session.run(inputs)),
            "Python, own outputs": lambda: median_us(lambda: session.run(inputs, outputs)),
            "onnxruntime in Python": lambda: median_us(lambda: other.run(None, inputs))}
    got = {name: [] for name in rows}
    for _ in range(rounds):
        for name, measure in rows.items():
            got[name].append(measure())
    for name, us in got.items():
        print(f"{name:24} {statistics.median(us):8.2f} us (rounds {min(us):.2f} to {max(us):.2f})")
