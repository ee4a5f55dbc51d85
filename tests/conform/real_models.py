#!/usr/bin/env python3
"""Real networks, end to end: every NAME.onnx of a folder is compiled and run, and its answers are
compared with the ones PyTorch gave.

Beside NAME.onnx are NAME.in.<input>.npy and NAME.out.<output>.npy, of batch 2. A model runs at
batch 2 as saved, at batch 1 (each row by itself) and at batch 8 (rows repeated). Models whose
inputs are all [batch, sequence] also run at other lengths, where onnxruntime is the oracle; without
it that part is left out, and the output says so.

The error is the largest difference over the largest expected magnitude, and must be 1e-4 at most.

usage: real_models.py WEFT [NAME...]     (environment: WEFT_MODELS, the folder; absent: exit 77)
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
except ImportError:
    print("skipped: needs numpy")
    sys.exit(77)
try:
    import onnxruntime
except ImportError:
    onnxruntime = None

TOLERANCE = 1e-4
THREADS = (1, 2)
# Batch and length; lengths are far from powers of two, and 2 x 1 is the shortest possible.
LENGTHS = ((1, 7), (3, 33), (2, 57), (1, 100), (2, 1), (8, 19))


def saved(stem, kind):
    """The tensors saved beside a model: {name: array}."""
    head = f"{stem}.{kind}."
    return {p[len(head):-len(".npy")]: np.load(p) for p in sorted(glob.glob(head + "*.npy"))}


class Bundle:
    """Compiled models, run through the command line."""

    def __init__(self, weft, models, path, box, options=()):
        self.weft, self.path, self.box = weft, path, box
        subprocess.run([weft, "compile", *models, "-o", path, *options], check=True)

    def run(self, inputs, names, threads, model=None):
        command = [self.weft, "run", self.path, "--threads", str(threads)]
        if model:
            command += ["--model", model]
        for i, (name, value) in enumerate(inputs.items()):
            file = os.path.join(self.box, f"in{i}.npy")
            np.save(file, value)
            command += ["--input", f"{name}=@{file}"]
        files = [os.path.join(self.box, f"out{i}.npy") for i in range(len(names))]
        for name, file in zip(names, files):
            command += ["--output", f"{name}=@{file}"]
        subprocess.run(command, check=True)
        return {name: np.load(file) for name, file in zip(names, files)}


def worst(got, want, rows=None):
    """The worst error of all outputs; rows picks those of `want`, whose whole gives the scale."""
    out = 0.0
    for name, value in want.items():
        expected = value if rows is None else value[rows]
        mine = got[name]
        if mine.shape != expected.shape or mine.dtype != value.dtype or not np.isfinite(mine).all():
            return float("inf")
        scale = max(float(np.abs(value).max()), 1e-6)
        out = max(out, float(np.abs(mine.astype(np.float64) - expected).max()) / scale)
    return out


def batches(bundle, inputs, outputs, threads):
    """Worst error by batch size."""
    names = list(outputs)
    result = {"batch 2": worst(bundle.run(inputs, names, threads), outputs)}
    one = 0.0
    for row in range(2):
        piece = {k: v[row:row + 1] for k, v in inputs.items()}
        one = max(one, worst(bundle.run(piece, names, threads), outputs, slice(row, row + 1)))
    result["batch 1"] = one
    rows = np.array([0, 1, 1, 0, 0, 1, 0, 1])
    repeated = {k: v[rows] for k, v in inputs.items()}
    result["batch 8"] = worst(bundle.run(repeated, names, threads), outputs, rows)
    return result


def is_sequence(inputs):
    return all(v.ndim == 2 and v.dtype == np.int64 for v in inputs.values())


def resized(inputs, batch, length, random):
    """Inputs of another shape, of the kind of the saved ones."""
    out = {}
    for name, value in inputs.items():
        if name.endswith("mask"):
            # The last row is padded.
            new = np.ones((batch, length), np.int64)
            new[-1, length - length // 3:] = 0
        else:
            new = random.choice(value.reshape(-1), size=(batch, length))
        out[name] = new
    return out


def lengths(bundle, model, inputs, names, threads):
    """Worst error by shape, against onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    random = np.random.RandomState(3)
    result = {}
    for batch, length in LENGTHS:
        shaped = resized(inputs, batch, length, random)
        want = dict(zip(names, session.run(names, shaped)))
        for n in threads:
            got = worst(bundle.run(shaped, names, n), want)
            key = f"{batch}x{length}"
            result[key] = max(result.get(key, 0.0), got)
    return result


def check(weft, model, box):
    """Prints the errors of one model; the worst of them."""
    stem = model[:-len(".onnx")]
    inputs, outputs = saved(stem, "in"), saved(stem, "out")
    if not inputs or not outputs:
        print(f"{os.path.basename(stem)}: no saved inputs and outputs: left out", flush=True)
        return 0.0
    began = time.time()
    bundle = Bundle(weft, [model], os.path.join(box, "model.weft"), box)
    result = {}
    for n in THREADS:
        for key, value in batches(bundle, inputs, outputs, n).items():
            result[key] = max(result.get(key, 0.0), value)
    if is_sequence(inputs) and onnxruntime:
        result.update(lengths(bundle, model, inputs, list(outputs), THREADS))
    os.remove(bundle.path)
    text = ", ".join(f"{k} {v:.1e}" for k, v in result.items())
    print(f"{os.path.basename(stem)}: {text} ({time.time() - began:.0f} s)", flush=True)
    return max(result.values())


def main(argv):
    folder = os.environ.get("WEFT_MODELS")
    if not folder or not os.path.isdir(folder):
        print("skipped: WEFT_MODELS names no folder of exported models")
        return 77
    weft = os.path.abspath(argv[1])
    names = argv[2:] or sorted(
        re.sub(r"\.onnx$", "", os.path.basename(p)) for p in glob.glob(f"{folder}/*.onnx"))
    if not names:
        print(f"skipped: no .onnx file in {folder}")
        return 77
    if not onnxruntime:
        print("other lengths are left out: this Python has no onnxruntime")
    failed = []
    with tempfile.TemporaryDirectory() as box:
        for name in names:
            try:
                if not check(weft, os.path.join(folder, name + ".onnx"), box) <= TOLERANCE:
                    failed.append(name)
            except subprocess.CalledProcessError as e:
                print(f"{name}: `weft {e.cmd[1]}` ended with {e.returncode}", flush=True)
                failed.append(name)
    print(f"{len(names) - len(failed)} of {len(names)} models agree within {TOLERANCE}")
    for name in failed:
        print(f"FAILED: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
