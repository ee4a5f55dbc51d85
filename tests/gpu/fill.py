"""Weights for the models that skeleton.py wrote, and inputs for them. Needs numpy."""
import os

import numpy as np

DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}


def fill(folder, name, entry):
    """Writes NAME.weights: normal, of the mean, deviation and range of what was left out."""
    path = os.path.join(folder, name + ".weights")
    if os.path.exists(path) and os.path.getsize(path) == entry["bytes"]:
        return
    if entry["bytes"] == 0:
        return
    with open(path + ".part", "wb") as f:
        for t in entry["tensors"]:
            rng = np.random.default_rng(t["seed"])
            x = rng.standard_normal(t["count"], dtype=np.float32)
            x *= np.float32(t["std"])
            x += np.float32(t["mean"])
            np.clip(x, np.float32(t["low"]), np.float32(t["high"]), out=x)
            f.seek(t["offset"])
            f.write(x.tobytes())
        f.truncate(entry["bytes"])
    os.rename(path + ".part", path)


def make_inputs(folder, name, entry, batch):
    """Writes NAME.B.INPUT.npy with `batch` rows; returns [(input, path)]."""
    found = []
    for i, port in enumerate(entry["inputs"]):
        sample = port.get("shape")
        shape = []
        for k, d in enumerate(port["dims"]):
            symbolic = isinstance(d, str) or d == 0
            if symbolic and k == 0:
                shape.append(batch)
            elif symbolic:
                shape.append(sample[k] if sample else 16)
            else:
                shape.append(d)
        dtype = DTYPES[port["dtype"]]
        rng = np.random.default_rng(1000 * batch + i)
        if np.issubdtype(dtype, np.floating):
            x = rng.standard_normal(shape).astype(dtype)
        else:
            low, high = int(port.get("low", 0)), int(port.get("high", 1))
            x = rng.integers(low, high + 1, size=shape).astype(dtype)
        path = os.path.join(folder, "%s.%d.%s.npy" % (name, batch, port["name"]))
        np.save(path, x)
        found.append((port["name"], path))
    return found
