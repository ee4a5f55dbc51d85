#!/usr/bin/env python3
"""The memory that `weft estimate --gpu cpu` predicts beside the peak resident memory of `weft run`.

Every NAME.onnx of a folder, with NAME.in.<input>.npy beside it, is compiled for batch 1, 8 and 32 and run once at each;
the peak is what the kernel counts for the process (VmHWM). The prediction must be within 5 %.

usage: real_memory.py WEFT [NAME...]     (environment: WEFT_MODELS, the folder; absent: exit 77)
"""
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: needs numpy")
    sys.exit(77)

BATCHES = (1, 8, 32)
LIMIT = 0.05

# A small process between this one and weft: after fork, a child has the resident memory of its parent.
PEAK = r"""
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ,
                     file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
_, status, use = os.wait4(pid, 0)
print(use.ru_maxrss * 1024 if status == 0 else -1)
"""


def peak_bytes(command):
    out = subprocess.run([sys.executable, "-S", "-E", "-c", PEAK, *command], check=True, stdout=subprocess.PIPE)
    return int(out.stdout)


def inputs_of(stem, batch, box):
    """Arguments of `weft run`, and of `weft estimate` for the other dimensions."""
    arguments, shapes = [], []
    for path in sorted(glob.glob(f"{stem}.in.*.npy")):
        name = os.path.basename(path)[len(os.path.basename(stem)) + 4:-4]
        x = np.load(path)
        file = os.path.join(box, f"{name}.{batch}.npy")
        np.save(file, np.concatenate([x] * batch)[:batch])
        arguments += ["--input", f"{name}=@{file}"]
        shapes.append((name, x.shape))
    return arguments, shapes


def dims_of(weft, bundle, shapes):
    """Values of the symbols that are not the batch."""
    about = json.loads(subprocess.run([weft, "inspect", bundle, "--no-verify", "--format", "json"], check=True,
                                      stdout=subprocess.PIPE).stdout)["models"][0]
    values = {}
    for name, shape in shapes:
        for dim, size in zip(next(i["shape"] for i in about["inputs"] if i["name"] == name), shape):
            if isinstance(dim, str) and re.fullmatch(r"\w+", dim) and dim != about["batch_symbol"]:
                values[dim] = size
    return [x for item in values.items() for x in ("--dim", "%s=%d" % item)]


def check(weft, onnx, box):
    stem, bundle, errors = onnx[:-5], os.path.join(box, "model.weft"), []
    subprocess.run([weft, "compile", onnx, "-o", bundle, "--batch", ",".join(map(str, BATCHES))], check=True)
    for batch in BATCHES:
        arguments, shapes = inputs_of(stem, batch, box)
        measured = peak_bytes([weft, "run", bundle, "--threads", "2", *arguments])
        if measured < 0:
            raise SystemExit(f"{onnx}: weft run failed")
        estimate = [weft, "estimate", onnx, "--gpu", "cpu", "--slice", "2core", "--batch", str(batch),
                    *dims_of(weft, bundle, shapes), "--format", "json"]
        found = json.loads(subprocess.run(estimate, check=True, stdout=subprocess.PIPE).stdout)["models"][0]
        error = found["mreq_bytes"] / measured - 1
        errors.append(error)
        print(f"{os.path.basename(stem):24} batch {batch:2}: predicted {found['mreq_bytes'] / 1e6:8.1f} MB, "
              f"measured {measured / 1e6:8.1f} MB, {100 * error:+.1f} %", flush=True)
    return errors


def main():
    weft, names, folder = os.path.abspath(sys.argv[1]), sys.argv[2:], os.environ.get("WEFT_MODELS")
    if not folder:
        print("skipped: WEFT_MODELS names no folder of exported models")
        return 77
    with open(weft, "rb") as f:
        if b"__asan_init" in f.read():
            print("skipped: an instrumented program takes other memory")
            return 77
    found = sorted(glob.glob(os.path.join(folder, "*.onnx")))
    found = [x for x in found if not names or os.path.basename(x)[:-5] in names]
    if not found:
        print(f"skipped: no models in {folder}")
        return 77
    errors = []
    with tempfile.TemporaryDirectory() as box:
        for onnx in found:
            errors += check(weft, onnx, box)
    size = [abs(e) for e in errors]
    print(f"{len(size)} runs: median {100 * statistics.median(size):.2f} %, largest {100 * max(size):.2f} %")
    return 1 if max(size) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
