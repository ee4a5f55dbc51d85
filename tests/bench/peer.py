#!/usr/bin/env python3
"""One peer of bench_models in a process of its own: onnxruntime or OpenVINO.

usage: peer.py onnxruntime|openvino MODEL.onnx THREADS FOLDER

FOLDER holds X.npy for each input. Loads the model, runs it once, writes the outputs to
FOLDER/PEER.out.NAME.npy, and prints a line of JSON: first_ms (from loading to the first answer), peak_kb
(resident memory above that of the interpreter with numpy), version, outputs. Then, for each
line "SECONDS" of standard input, runs the model for so long and prints {"median_ms", "mean_ms"}.
"""
import glob
import importlib
import json
import os
import statistics
import sys
import time

import numpy as np


def peak_kb():  # of this program only: ru_maxrss would count the parent before exec
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])


def load_onnxruntime(path, threads, feeds):
    o = peer.SessionOptions()
    o.intra_op_num_threads = threads
    o.inter_op_num_threads = 1
    session = peer.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_outputs()]
    return names, lambda: session.run(None, feeds)


def load_openvino(path, threads, feeds):
    """Latency hint, one stream, f32; the model at the inputs' sizes, which OpenVINO runs fastest."""
    core = peer.Core()
    model = core.read_model(path)
    names = [o.get_any_name() for o in model.outputs]
    try:
        model.reshape({k: list(x.shape) for k, x in feeds.items()})
    except RuntimeError:
        pass  # sizes that the model fixes by itself
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()

    def run():
        answer = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [answer[o] for o in compiled.outputs]
    return names, run


def measure(run, seconds):
    run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return {"median_ms": statistics.median(times), "mean_ms": statistics.fmean(times)}


def main():
    global peer
    name, path, threads, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    feeds = {os.path.basename(p)[:-4]: np.load(p) for p in glob.glob(f"{folder}/*.npy")
             if ".out." not in os.path.basename(p)}
    before = peak_kb()
    peer = importlib.import_module(name)
    start = time.perf_counter()
    names, run = (load_openvino if name == "openvino" else load_onnxruntime)(path, threads, feeds)
    outputs = run()
    first = {"first_ms": 1e3 * (time.perf_counter() - start), "peak_kb": peak_kb() - before,
             "version": peer.__version__, "outputs": names}
    for i, x in enumerate(outputs):
        np.save(f"{folder}/{name}.out.{i}.npy", x)
    print(json.dumps(first), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(run, float(line))), flush=True)


if __name__ == "__main__":
    main()
