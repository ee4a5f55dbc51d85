#!/usr/bin/env python3
"""Trains the trees of estimator/models/model_trees.c on public measurements and prints their errors.

    scripts/train_estimator.py --weft build/weft --data ../shared/data [--baselines] [--dry-run]

Reads aiconfigurator (bf16 GEMMs, attention), neusight (f32 operators) below --data, writes
estimator/models/trees/*.def, and prints the errors on held-out rows. --baselines also fits
USHER's stacked model (OSDI'24) to the same rows and writes tests/regress/held_out.csv. `weft
estimate --kernels --features` computes the features: this script has no formula of a feature.

Only the subsample of the baselines is random (fixed seed); splits are hashes of shapes. Needs numpy and scikit-learn, for the baselines xgboost.
"""
import argparse
import csv
import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np  # noqa: E402
from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
UNIT = 4096  # parts of a power of two in a leaf, as in model_trees.c
COLUMNS = ["gpu", "kind", "dtype", "b", "m", "n", "k", "cin", "cout", "ksize", "hw", "stride",
           "pad", "h", "isl", "num_heads", "head_dim", "measured_us", "role", "call"]

# -- Data ----------------------------------------------------------------------------------------

NEUSIGHT_GPU = {"V100-PCIE-32GB": "v100", "A100-PCIE-40GB": "a100-40",
                "A100-PCIE-80GB": "a100-80", "H100-SXM-80GB": "h100"}
GEMM_FILES = {"h200": "gemm_bf16_h200_sxm_trtllm_1.3.0rc20.csv",
              "h100": "gemm_bf16_h100_sxm_trtllm_1.3.0rc20.csv",
              "a100-80": "gemm_bf16_a100_sxm_sglang_0.5.10.csv"}
ATTENTION_FILE = "encoder_attention_bf16_h100_sxm_trtllm_1.3.0rc20.csv"


def chance(text):
    """Hash of the text as a number in [0, 1): splits do not depend on the order of rows."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def gemm_role(n, k, m):
    """Whole (n, k) pairs and whole m are held out."""
    pair, size = chance(f"nk {n} {k}") < 0.2, chance(f"m {m}") < 0.15
    return "pair+m" if pair and size else "pair" if pair else "m" if size else "train"


def neusight_role(row, file):
    """The split of the set: random sizes are training rows, layers of language models test rows.
    Two devices have no training rows of linear and batched GEMMs: a quarter of the test shapes,
    by hash, is used for training and tests no device (the error without it is reported as
    given_split). Convolutions have training rows only: a fifth of the shapes is the test."""
    if file == "conv":
        shape = " ".join(row[c] for c in ("b", "cin", "cout", "ksize", "hw", "stride", "pad"))
        return "test" if chance("conv " + shape) < 0.2 else "train"
    if file == "vector_ops" or row["split"] == "train":
        return row["split"]
    shape = (row["n"], row["k"]) if file == "linear" else (row["m"], row["n"], row["k"])
    if chance(f"calibrate {file} " + " ".join(shape)) < 0.25:
        return "calibrate"
    return "test"


def read_rows(data):
    for gpu, name in GEMM_FILES.items():
        for r in csv.DictReader(open(data / "aiconfigurator" / name)):
            yield dict(gpu=gpu, kind="gemm", dtype="bf16", m=r["m"], n=r["n"], k=r["k"],
                       measured_us=r["latency_us"], role=gemm_role(r["n"], r["k"], r["m"]),
                       call="gemm")
    for r in csv.DictReader(open(data / "aiconfigurator" / ATTENTION_FILE)):
        shape = f"attention {r['isl']} {r['num_heads']} {r['head_dim']}"
        yield dict(gpu="h100", kind="attention", dtype="bf16", b=r["batch_size"], isl=r["isl"],
                   num_heads=r["num_heads"], head_dim=r["head_dim"], measured_us=r["latency_us"],
                   role="test" if chance(shape) < 0.2 else "train", call="attention")
    for file in ("linear", "bmm", "conv", "vector_ops"):
        for r in csv.DictReader(open(data / "neusight" / f"{file}.csv")):
            gpu = NEUSIGHT_GPU[r["device"]]
            sizes = {c: r[c] for c in COLUMNS if c in r}
            # The kinds linear and bmm are (m x n) times (n x k), as the recorded grids say.
            yield dict(sizes, gpu=gpu, kind=r["op"], dtype="f32",
                       measured_us=1e3 * float(r["latency_ms"]), role=neusight_role(r, file),
                       call="vector" if file == "vector_ops" else file)


@dataclass
class Family:
    name: str
    features: list
    x: np.ndarray
    base: np.ndarray
    floor: np.ndarray
    measured: np.ndarray
    dispatch: np.ndarray
    gpu: np.ndarray
    role: np.ndarray
    call: np.ndarray
    kind: np.ndarray
    rows: list


def run_weft(weft, rows, options):
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "rows.csv", Path(folder) / "out.csv"
        with open(source, "w", newline="") as f:
            writer = csv.DictWriter(f, COLUMNS, restval="", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        subprocess.run([weft, "estimate", "--kernels", source, "-o", result, *options], check=True)
        with open(result, newline="") as f:
            return list(csv.DictReader(f))


def load_families(weft, data):
    found = {}
    for r in run_weft(weft, read_rows(data), ["--features"]):
        found.setdefault(r["family"], []).append(r)
    families = {}
    for name, rows in found.items():
        pairs = [[f.split("=") for f in r["features"].split(" ")] for r in rows]
        column = lambda c, rows=rows: np.array([r[c] for r in rows])  # noqa: E731
        families[name] = Family(
            name, [p[0] for p in pairs[0]], np.array([[float(p[1]) for p in q] for q in pairs]),
            column("base_us").astype(float), column("floor_us").astype(float),
            column("measured_us").astype(float), np.zeros(len(rows)), column("gpu"),
            column("role"), column("call"), column("kind"), rows)
    return families


def fit_drift(f, mask):
    """Dispatch time of convolutions, which grows along neusight/conv.csv from 50 us to 350 us, as
    if a library searched a growing list of plans. A quadratic of the position in the file (0 to
    1), fitted to the lower edge of the excess of short convolutions over their bound."""
    place = np.arange(mask.sum()) / mask.sum()
    powers = np.stack([np.ones_like(place), place, place**2], 1)
    short = (f.base[mask] < 60) & (f.role[mask] == "train")
    excess = (f.measured - 1.3 * f.base)[mask]
    weight = np.ones(short.sum())
    for _ in range(30):
        root = np.sqrt(weight)
        drift = np.linalg.lstsq(powers[short] * root[:, None], excess[short] * root,
                                rcond=None)[0]
        off = excess[short] - powers[short] @ drift
        weight = np.where(off > 0, 0.3, 0.7) / np.maximum(np.abs(off), 2)
    drift = np.array([float(f"{c:.4g}") for c in drift])
    return drift, powers @ drift


def fit_dispatch(families):
    """Dispatch time: from the call in an eager framework to the start of the kernel; f32
    measurements contain it. Element-wise functions take dispatch + slope * traffic almost exactly:
    least squares of relative errors. For GEMMs it is the excess of the shortest over their bound.
    Fitted for each device to rows that are not tests; other devices get the mean. Returns the
    table, and the drift of convolutions."""
    table, drifts = {}, {}
    for family in families.values():
        known = np.isin(family.role, ("train", "calibrate"))
        for call in np.unique(family.call):
            if call in ("gemm", "attention"):
                continue
            for gpu in np.unique(family.gpu):
                part = (family.call == call) & (family.gpu == gpu)
                mask = part & known
                if gpu in ("v100", "a100-40"):
                    mask = part & (family.role == "train")
                if not mask.any() or gpu == "a100-80" and call != "conv":
                    continue
                t, base = family.measured[mask], family.base[mask]
                if call == "conv":
                    drifts[gpu], family.dispatch[part] = fit_drift(family, part)
                    value = drifts[gpu][0]
                elif call == "vector":
                    plain = ~np.isin(family.kind[mask], ("ln", "softmax"))
                    t, base = t[plain], base[plain]
                    a = np.stack([base, np.ones_like(base)], 1) / t[:, None]
                    value = np.linalg.lstsq(a, np.ones_like(t), rcond=None)[0][1]
                else:
                    value = np.min((t - base)[base <= max(8, np.quantile(base, 0.02))])
                table[call, gpu] = max(0.0, round(float(value), 1))
    for call in {c for c, _ in table}:
        if (call, "a100-40") in table:  # the same host, as far as is known
            table[call, "a100-80"] = table[call, "a100-40"]
        table[call, ""] = round(float(np.mean([v for (c, _), v in table.items() if c == call])), 1)
    for family in families.values():
        other = family.call != "conv"
        family.dispatch[other] = [table.get((c, g), table.get((c, ""), 0.0)) for c, g in
                                  zip(family.call[other], family.gpu[other])]
    return table, drifts


# -- Trees ---------------------------------------------------------------------------------------

SETTINGS = {  # trees, leaves, learning rate, rows of a leaf, loss
    "matrix": (320, 63, 0.1, 20, "squared_error"),
    "plain": (250, 63, 0.1, 20, "absolute_error"),
    "conv": (250, 31, 0.1, 10, "absolute_error"),
    "vector": (150, 15, 0.1, 10, "absolute_error"),
    "attention": (120, 31, 0.12, 10, "absolute_error"),
}


def row_weights(f):
    """Weight of a row: the kernel's part of the measured time; more for A100 GEMMs, which are the
    noisiest, and for calibration rows, which represent a whole device."""
    kernel = np.clip((f.measured - f.dispatch) / f.measured, 0.02, 1)
    return kernel * np.where((f.name == "matrix") & (f.gpu == "a100-80"), 3, 1) * np.where(
        f.role == "calibrate", 3, 1)


@dataclass
class Forest:
    """A forest in the form of model_trees.c: cuts of each feature, trees as lists of words."""
    cuts: list
    trees: list
    start: float

    def predict(self, x):
        x = x.astype(np.float32)
        bins = np.stack([np.searchsorted(c, x[:, i], side="left")
                         for i, c in enumerate(self.cuts)], 1)
        total = np.zeros(len(x), dtype=np.int64)
        for words in self.trees:
            w = np.array(words, dtype=np.int64)
            at = np.zeros(len(x), dtype=np.int64)
            active = np.arange(len(x))
            while len(active):
                word = w[at[active]]
                leaf = word >> 31 == 1
                done = active[leaf]
                value = word[leaf] & 0xFFFF
                total[done] += np.where(value >= 0x8000, value - 0x10000, value)
                active, word = active[~leaf], word[~leaf]
                left = bins[active, word >> 16] <= (word >> 8 & 0xFF)
                at[active] += np.where(left, 1, word & 0xFF)
        return self.start + total / UNIT


def pack_tree(nodes, bins_of):
    """Preorder; the left child follows its parent."""
    words = []

    def visit(i):
        node = nodes[i]
        if node["is_leaf"]:
            value = int(round(float(node["value"]) * UNIT))
            words.append(1 << 31 | max(-0x8000, min(0x7FFF, value)) & 0xFFFF)
            return
        here = len(words)
        words.append(0)
        visit(node["left"])
        distance = len(words) - here
        assert distance < 256
        feature = int(node["feature_idx"])
        words[here] = feature << 16 | bins_of[feature][int(node["bin_threshold"])] << 8 | distance
        visit(node["right"])

    visit(0)
    return words


def train(f, mask):
    n_tree, n_leaf, rate, least, loss = SETTINGS[f.name]
    target = np.log2(np.maximum(f.measured - f.dispatch, 0.25 * f.base) / f.base)
    model = HistGradientBoostingRegressor(
        loss=loss, max_iter=n_tree, max_leaf_nodes=n_leaf, learning_rate=rate, max_bins=127,
        min_samples_leaf=least, l2_regularization=1.0, early_stopping=False, random_state=0)
    model.fit(f.x[mask].astype(np.float32), target[mask], sample_weight=row_weights(f)[mask])
    cuts = model._bin_mapper.bin_thresholds_
    trees = [p[0].nodes for p in model._predictors]
    used = [sorted({int(n["bin_threshold"]) for t in trees for n in t
                    if not n["is_leaf"] and n["feature_idx"] == i}) for i in range(f.x.shape[1])]
    bins_of = [{b: j for j, b in enumerate(u)} for u in used]
    kept = [np.array([np.float32(f"{cuts[i][b]:.7g}") for b in u], dtype=np.float32)
            for i, u in enumerate(used)]
    return Forest(kept, [pack_tree(t, bins_of) for t in trees],
                  float(f"{float(np.ravel(model._baseline_prediction)[0]):.6g}"))


def predict_us(f, forest):
    return np.maximum(f.base * 2 ** forest.predict(f.x), f.floor) + f.dispatch


# -- Errors --------------------------------------------------------------------------------------

def error(predicted, f, mask):
    return np.abs(predicted[mask] / f.measured[mask] - 1)


def held_out(f):
    return np.isin(f.role, ("test", "pair", "m", "pair+m"))


def groups(f):
    """(set, device, mask) of every row of the table of errors."""
    for call in np.unique(f.call):
        for gpu in np.unique(f.gpu):
            mask = held_out(f) & (f.call == call) & (f.gpu == gpu)
            if mask.any():
                yield call, gpu, mask


def left_out(f):
    """Error of each device by trees trained without its rows (and without held-out shapes)."""
    result = {}
    for gpu in np.unique(f.gpu):
        known = np.isin(f.role, ("train", "calibrate")) & (f.gpu != gpu)
        if not known.any():
            continue
        predicted = predict_us(f, train(f, known))
        for call in np.unique(f.call):
            mask = (f.gpu == gpu) & (f.call == call)
            if f.name == "plain" or f.name == "vector":
                mask &= held_out(f)
            if mask.any():
                result[call, gpu] = error(predicted, f, mask)
    return result


# -- Tables --------------------------------------------------------------------------------------

def wrap(head, items, tail):
    lines, line = [], head
    for i, item in enumerate(items):
        piece = item + (tail if i == len(items) - 1 else ",")
        if len(line) + len(piece) > 99:
            lines.append(line.rstrip())
            line = "    "
        line += piece + ("" if len(line) > 100 else "")
    return "\n".join(lines + [line.rstrip()]) + "\n"


def write_forest(folder, f, forest):
    head = f"/* Made by scripts/train_estimator.py; see model_trees.c. Family {f.name}"
    with open(folder / f"{f.name}_cuts.def", "w") as out:
        out.write(head + ": cuts of each feature. */\n")
        for name, cut in zip(f.features, forest.cuts):
            texts = []
            for c in cut:
                text = f"{c:.7g}"
                texts.append(text + ("f" if "." in text or "e" in text else ".0f"))
            out.write(wrap(f"CUTS({name},", texts or ["3e38f"], ")"))
    with open(folder / f"{f.name}.def", "w") as out:
        out.write(head + ": trees. */\n")
        for words in forest.trees:
            out.write(wrap("TREE(", [f"0x{w:x}" for w in words], ")"))


def write_learned(folder, forests, families, errors, elsewhere, dispatch):
    with open(folder / "learned.def", "w") as out:
        out.write("/* Made by scripts/train_estimator.py; see model_trees.c. LEARNED: mean error of "
                  "held-out rows;\n * ELSEWHERE: 1.5 times the error of devices left out of "
                  "training; DISPATCH: us, \"\" is every other\n * device. */\n")
        for name, forest in forests.items():
            out.write(f"FOREST({name.upper()}, {name}, {forest.start:.6g})\n")
        for name in forests:
            for gpu in np.unique(families[name].gpu):
                f = families[name]
                known = np.isin(f.role, ("train", "calibrate")) & (f.gpu == gpu)
                values = [e for (fam, call, g), e in errors.items() if fam == name and g == gpu]
                if values and known.any():
                    out.write(f'LEARNED({name.upper()}, "{gpu}", '
                              f"{np.mean(np.concatenate(values)):.3f})\n")
        for name in forests:
            out.write(f"ELSEWHERE({name.upper()}, {elsewhere[name]:.3f})\n")
        for (call, gpu), us in sorted(dispatch.items()):
            out.write(f'DISPATCH("{call}", "{gpu}", {us:.1f})\n')


# -- Baselines -----------------------------------------------------------------------------------

def analytic_us(weft, f, model):
    rows = run_weft(weft, f.rows, ["--model", model, "--no-dispatch"])
    return np.array([float(r["time_us"]) for r in rows]) + f.dispatch


def usher_features(f):
    """The features of the paper: batch, sizes of weights and inputs, flops, the GPU."""
    intensity = f.features.index("log_intensity")
    compute = f.features.index("log_compute_us")
    memory = f.features.index("log_memory_us")
    gpus = np.unique(f.gpu)
    size = lambda c: np.array([float(r[c] or 1) for r in f.rows])  # noqa: E731
    inputs = np.log2(size("b") * np.maximum(size("m"), size("hw") ** 2) *
                     np.maximum.reduce([size("k"), size("cin"), size("h"), size("isl")]))
    weights = np.log2(size("n") * size("k") * size("cin") * size("cout") * size("ksize") ** 2)
    return np.stack([np.log2(size("b")), weights, inputs, f.x[:, compute], f.x[:, memory],
                     f.x[:, intensity]] + [(f.gpu == g).astype(float) for g in gpus], 1)


def stacked_us(f, x, mask, seed=0):
    """Lasso, kernel ridge, gradient boosting and XGBoost stacked under a linear model, on the
    logarithm of time (which gives this model lower errors than time). 12 thousand rows; kernel
    ridge, which is cubic, 3 thousand."""
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import Lasso, LinearRegression
    from sklearn.preprocessing import StandardScaler
    from xgboost import XGBRegressor
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(mask)
    rows = rng.permutation(rows)[:12000]
    scaled = StandardScaler().fit(x[rows]).transform(x)
    y = np.log2(f.measured)
    makers = [lambda: Lasso(alpha=0.001, max_iter=5000),
              lambda: KernelRidge(kernel="rbf", alpha=0.01, gamma=1.0 / x.shape[1]),
              lambda: GradientBoostingRegressor(n_estimators=100, random_state=0),
              lambda: XGBRegressor(n_estimators=100, n_jobs=1, random_state=0)]

    def fit(maker, part):
        model = maker()
        part = part[:3000] if isinstance(model, KernelRidge) else part
        return model.fit(scaled[part], y[part])

    half = len(rows) // 2
    folds = [(rows[:half], rows[half:]), (rows[half:], rows[:half])]
    inner = np.concatenate([np.stack([fit(m, a).predict(scaled[b]) for m in makers], 1)
                            for a, b in folds])
    top = LinearRegression().fit(inner, np.concatenate([y[b] for _, b in folds]))
    test = np.flatnonzero(held_out(f))
    out = np.full(len(y), np.nan)
    out[test] = 2 ** top.predict(np.stack([fit(m, rows).predict(scaled[test]) for m in makers], 1))
    return out


# -- Measurements not used for training ------------------------------------------------------

def read_vidur(data):
    """Layers of two language models on an A100, f16, as GEMMs and vector functions."""
    for model in ("Llama-2-7b-hf", "phi-2"):
        for r in csv.DictReader(open(data / "vidur" / f"a100_{model}_ops.csv")):
            size = lambda c, r=r: int(r[c])  # noqa: E731
            tp, tokens = size("num_tensor_parallel_workers"), size("num_tokens")
            width = size("n_embd")
            head = width // size("n_head")
            inner = size("n_expanded_embd") // tp
            gates = 2 if r["use_gated_mlp"] == "True" else 1
            heads = size("n_head") + 2 * size("n_kv_head")
            gemms = {"attn_pre_proj": (heads * head // tp, width),
                     "attn_post_proj": (width, width // tp), "mlp_up_proj": (gates * inner, width),
                     "mlp_down_proj": (width, inner)}
            for op, (n, k) in gemms.items():
                yield dict(gpu="a100-80", kind="gemm", dtype="f16", m=tokens, n=n, k=k, call=op,
                           measured_us=1e3 * float(r[f"{op}.median"]), role="test")
            for op, kind in (("input_layernorm", "layer_norm"), ("add", "add")):
                yield dict(gpu="a100-80", kind=kind, dtype="f16", b=tokens, h=width, call=op,
                           measured_us=1e3 * float(r[f"{op}.median"]), role="test")


def check_vidur(weft, data, forests):
    """Rows of the table of errors. Times below 20 us are left out: the resolution is 1 us."""
    rows = [r for r in read_vidur(data) if r["measured_us"] >= 20]
    found = run_weft(weft, rows, ["--features"])
    predicted = np.zeros(len(rows))
    for name, forest in forests.items():
        of = [i for i, r in enumerate(found) if r["family"] == name]
        if of:
            x = np.array([[float(f.split("=")[1]) for f in found[i]["features"].split(" ")]
                          for i in of])
            bound = np.array([[float(found[i][c]) for c in ("base_us", "floor_us")] for i in of])
            predicted[of] = np.maximum(bound[:, 0] * 2 ** forest.predict(x), bound[:, 1])
    measured = np.array([r["measured_us"] for r in rows])
    for call in dict.fromkeys(r["call"] for r in rows):
        of = np.array([r["call"] == call for r in rows])
        e = np.abs(predicted[of] / measured[of] - 1)
        yield dict(family="vidur", call=call, gpu="a100-80", rows=len(e), mape=100 * e.mean(),
                   median=100 * np.median(e), p95=100 * np.quantile(e, 0.95))


# -- Program -------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--dry-run", action="store_true", help="print, write nothing")
    parser.add_argument("--family", help="only this one, with --dry-run")
    o = parser.parse_args()
    families = load_families(o.weft, o.data)
    dispatch, drifts = fit_dispatch(families)
    if o.family:
        families = {o.family: families[o.family]}
    forests, errors, elsewhere, table = {}, {}, {}, []
    for name, f in families.items():
        forest = forests[name] = train(f, np.isin(f.role, ("train", "calibrate")))
        predicted = predict_us(f, forest)
        others = left_out(f)
        elsewhere[name] = max([1.5 * float(np.mean(e)) for e in others.values()] or [0.5])
        rivals = {}
        given = predict_us(f, train(f, f.role == "train")) if name == "plain" else None
        if o.baselines:
            known = np.isin(f.role, ("train", "calibrate"))
            rivals = {"roofline": analytic_us(o.weft, f, "roofline"),
                      "usher": stacked_us(f, usher_features(f), known),
                      "usher_our_features": stacked_us(f, f.x, known)}
            if name in ("matrix", "plain", "conv"):
                rivals["wave"] = analytic_us(o.weft, f, "wave")
        for call, gpu, mask in groups(f):
            e = errors[name, call, gpu] = error(predicted, f, mask)
            row = dict(family=name, call=call, gpu=gpu, rows=int(mask.sum()),
                       mape=100 * e.mean(), median=100 * np.median(e),
                       p95=100 * np.quantile(e, 0.95))
            if (call, gpu) in others:
                row["device_left_out"] = 100 * others[call, gpu].mean()
            if given is not None:
                part = (f.call == call) & (f.gpu == gpu) & np.isin(f.role, ("test", "calibrate"))
                row["given_split"] = 100 * error(given, f, part).mean()
            row.update({k: 100 * error(v, f, mask).mean() for k, v in rivals.items()})
            table.append(row)
            print(" ".join(f"{k} {v:.2f}" if isinstance(v, float) else str(v)
                           for k, v in row.items()), flush=True)
            if name == "matrix":
                for role in ("pair", "m", "pair+m"):
                    part = mask & (f.role == role)
                    print(f"    {role} {100 * error(predicted, f, part).mean():.2f}")
    if not o.family:
        vidur = list(check_vidur(o.weft, o.data, forests))
        table += vidur
        for row in vidur:
            print(" ".join(f"{k} {v:.2f}" if isinstance(v, float) else str(v)
                           for k, v in row.items()))
    print("dispatch", dispatch, "drift", drifts)
    if o.dry_run or o.family:
        return
    folder = ROOT / "estimator" / "trees"
    folder.mkdir(exist_ok=True)
    for name, f in families.items():
        write_forest(folder, f, forests[name])
    write_learned(folder, forests, families, errors, elsewhere, dispatch)
    if o.baselines:
        write_table(table)
    with open(ROOT / "tests" / "regress" / "held_out_drift.csv", "w") as out:
        out.write("# Made by scripts/train_estimator.py: us from the call of a convolution to its "
                  "kernel, c0 + c1 p + c2 p^2\n# at the place p (0 to 1) among the device's rows "
                  "of neusight/conv.csv.\ngpu,c0,c1,c2\n")
        for gpu, drift in sorted(drifts.items()):
            out.write(gpu + "".join(f",{c:.4g}" for c in drift) + "\n")


def write_table(table):
    names = ["family", "call", "gpu", "rows", "mape", "median", "p95", "given_split",
             "device_left_out", "roofline", "wave", "usher", "usher_our_features"]
    with open(ROOT / "tests" / "regress" / "held_out.csv", "w") as out:
        out.write("# Errors of the estimator on rows held out of training, in percent; "
                  "estimator/README.md says how they are split.\n"
                  "# scripts/train_estimator.py --weft WEFT --data DATA --baselines; data: "
                  "ai-dynamo/aiconfigurator at 095f58a (Apache-2.0), sitar-lab/NeuSight at 6945927 "
                  "(MIT).\n"
                  "# mape, median, p95: shipped trees; given_split: neusight's own; "
                  "device_left_out: trees that saw no row of the device; then other models.\n")
        out.write(",".join(names) + "\n")
        for row in table:
            out.write(",".join(f"{row[n]:.2f}" if isinstance(row.get(n), float)
                               else str(row.get(n, "")) for n in names) + "\n")


if __name__ == "__main__":
    sys.exit(main())
