#!/usr/bin/env python3
"""Trains the trees of estimator/models/model_trees.c on public measurements and prints their errors.

    scripts/train_estimator.py --weft build/weft --data ../shared/data [--baselines] [--dry-run]

Reads aiconfigurator (GEMMs, attention), neusight (f32 operators) below --data, writes
estimator/models/trees/*.def, and prints the errors of the trees on held-out rows. --baselines also
fits USHER's stacked model (OSDI'24) to the same rows. Afterwards: scripts/leave_out.py, then
`regress_held_out --bless`. `weft estimate --kernels --features` computes the features: this script has no formula of a feature.

Only the subsample of the baselines is random (fixed seed); splits are hashes of shapes. Needs numpy and scikit-learn, for the baselines xgboost.
"""
import argparse
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np  # noqa: E402
from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: E402

from estimator_data import ROOT, load_families  # noqa: E402

UNIT = 4096  # parts of a power of two in a leaf, as in model_trees.c
# Exponent of the bound; the trees find the rest. Vector functions take nearly a constant multiple of
# their bound, which also holds for sizes that were not measured.
TYPES = {"bf16": "BF16", "fp8": "F8E4M3FN", "nvfp4": "F4E2M1", "f32": "F32"}  # weft_dtype
SLOPES = {"matrix": 0.5, "narrow": 0.5, "plain": 0.5, "conv": 0.5, "vector": 1.0, "attention": 0.5}


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
        other = ~np.isin(family.call, ("conv", "gemm"))
        family.dispatch[other] = [table.get((c, g), table.get((c, ""), 0.0)) for c, g in
                                  zip(family.call[other], family.gpu[other])]
    return table, drifts


# -- Trees ---------------------------------------------------------------------------------------

SIZES = ("log_m", "log_n", "log_k")  # vector functions extrapolate by their exponent
SETTINGS = {  # trees, leaves, learning rate, rows of a leaf
    "matrix": (300, 63, 0.1, 20),
    "narrow": (200, 63, 0.1, 20),
    "plain": (250, 63, 0.1, 20),
    "conv": (250, 31, 0.1, 10),
    "vector": (150, 15, 0.1, 10),
    "attention": (150, 31, 0.12, 10),
}


def row_weights(f):
    """Weight of a row: the kernel's part of the measured time; more for calibration rows, which
    represent a whole device; less for each of several campaigns of one device."""
    kernel = np.clip((f.measured - f.dispatch) / f.measured, 0.02, 1)
    campaigns = {g: len(np.unique(f.campaign[f.gpu == g])) for g in np.unique(f.gpu)}
    share = np.array([2 / (1 + campaigns[g]) for g in f.gpu])
    return kernel * share * np.where(f.role == "calibrate", 3, 1)


@dataclass
class Forest:
    """A forest in the form of model_trees.c: cuts of each feature, trees as lists of words."""
    cuts: list
    trees: list
    start: float
    most: float  # bound of the largest kernels it was trained on, us

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


def rising(f):
    """Which features grow with rows and batch: column `rises` of features.def."""
    text = (ROOT / "estimator" / "models" / "features.def").read_text()
    rises = {name: int(r) for r, name in re.findall(r"^FEATURE\([^,]+, ([01]), (\w+),", text, re.M)}
    return [rises[name] for name in f.features]


def train(f, mask):
    """Squared error: for other losses the library sets leaves after it has grown a tree, and they
    would no longer rise with the features that must."""
    n_tree, n_leaf, rate, least = SETTINGS[f.name]
    target = np.log2(np.maximum(f.measured - f.dispatch, 0.25 * f.base)) - SLOPES[f.name] * np.log2(f.base)
    model = HistGradientBoostingRegressor(
        max_iter=n_tree, max_leaf_nodes=n_leaf, learning_rate=rate, max_bins=127,
        min_samples_leaf=least, l2_regularization=1.0, early_stopping=False, random_state=0,
        monotonic_cst=rising(f))
    model.fit(f.x[mask].astype(np.float32), target[mask], sample_weight=row_weights(f)[mask])
    cuts = model._bin_mapper.bin_thresholds_
    trees = [p[0].nodes for p in model._predictors]
    used = [sorted({int(n["bin_threshold"]) for t in trees for n in t
                    if not n["is_leaf"] and n["feature_idx"] == i}) for i in range(f.x.shape[1])]
    bins_of = [{b: j for j, b in enumerate(u)} for u in used]
    kept = [np.array([np.float32(f"{cuts[i][b]:.7g}") for b in u], dtype=np.float32)
            for i, u in enumerate(used)]
    return Forest(kept, [pack_tree(t, bins_of) for t in trees],
                  float(f"{float(np.ravel(model._baseline_prediction)[0]):.6g}"),
                  float(f"{np.quantile(f.base[mask], 0.999):.5g}"))


def launchers(f):
    """The libraries that the family's rows tell apart."""
    return np.unique(f.launcher) if "launcher" in f.features else []


def predict_us(f, forest, known=()):
    """Beyond the largest kernels of the training the time grows as the bound does. `known`: values
    of the feature launcher over which to take the mean, for a library that is not known."""
    base = np.minimum(f.base, forest.most)
    x, sums = f.x.copy(), []
    for value in known:
        x[:, f.features.index("launcher")] = value
        sums.append(forest.predict(x))
    correction = 2 ** (np.mean(sums, 0) if sums else forest.predict(x))
    time = base ** SLOPES[f.name] * np.maximum(f.base / forest.most, 1) * correction
    return np.maximum(time, f.floor) + f.dispatch


# -- Errors --------------------------------------------------------------------------------------

def error(predicted, f, mask):
    return np.abs(predicted[mask] / f.measured[mask] - 1)


def held_out(f):
    return np.isin(f.role, ("test", "pair", "m", "pair+m"))


def predict_held_out(f, forest):
    """NaN for other rows."""
    test = held_out(f)
    out = np.full(len(f.measured), np.nan)
    part = replace(f, x=f.x[test], base=f.base[test], floor=f.floor[test],
                   dispatch=f.dispatch[test])
    out[test] = predict_us(part, forest)
    return out


def groups(f):
    """(set, campaign, mask) of every row of the table of errors."""
    for call in np.unique(f.call):
        for campaign in np.unique(f.campaign):
            mask = held_out(f) & (f.call == call) & (f.campaign == campaign)
            if mask.any():
                yield call, campaign, mask


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


def write_learned(folder, forests, families, dispatch):
    with open(folder / "learned.def", "w") as out:
        out.write("/* Made by scripts/train_estimator.py; see model_trees.c. FOREST: start, the bound of the\n"
                  " * largest kernels of the training, exponent; LEARNED: types and devices of the\n"
                  " * training; LAUNCHED: libraries that are told apart; RANGE: sizes, powers of two; DISPATCH: us,\n"
                  " * \"\" is every other device. Rows whose macro is not defined are left out; all macros are undefined at the end. */\n")
        rows = ("FOREST", "LEARNED", "LAUNCHED", "RANGE", "DISPATCH")
        out.write("".join(f"#ifndef {r}\n#define {r}(...)\n#endif\n" for r in rows))
        for name, forest in forests.items():
            out.write(f"FOREST({name.upper()}, {name}, {forest.start:.6g}, {forest.most:.5g}, "
                      f"{SLOPES[name]:g})\n")
        for name, f in families.items():
            known = np.isin(f.role, ("train", "calibrate"))
            for dtype, gpu in sorted(set(zip(f.dtype[known], f.gpu[known]))):
                out.write(f'LEARNED({name.upper()}, {TYPES[dtype]}, "{gpu}")\n')
        for name, f in families.items():
            for launcher in launchers(f):
                out.write(f"LAUNCHED({name.upper()}, {launcher.upper()})\n")
        for name, f in families.items():
            known = np.isin(f.role, ("train", "calibrate"))
            for i, feature in enumerate(f.features):
                if feature in SIZES:
                    x = f.x[known, i]
                    out.write(f"RANGE({name.upper()}, {feature}, {x.min():.4g}, {x.max():.4g})\n")
        for (call, gpu), us in sorted(dispatch.items()):
            out.write(f'DISPATCH("{call}", "{gpu}", {us:.1f})\n')
        out.write("".join(f"#undef {r}\n" for r in rows))


# -- Baselines -----------------------------------------------------------------------------------

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
    forests = {}
    for name, f in families.items():
        known = np.isin(f.role, ("train", "calibrate"))
        forest = forests[name] = train(f, known)
        predicted = predict_held_out(f, forest)
        rivals = {}
        if name == "plain":
            rivals["given_split"] = predict_held_out(f, train(f, f.role == "train"))
        if o.baselines:
            rivals |= {"usher": stacked_us(f, usher_features(f), known),
                       "usher_our_features": stacked_us(f, f.x, known)}
        for call, campaign, mask in groups(f):
            e = error(predicted, f, mask)
            row = dict(family=name, call=call, campaign=campaign, rows=int(mask.sum()),
                       mape=100 * e.mean(), median=100 * np.median(e),
                       p95=100 * np.quantile(e, 0.95))
            row.update({k: 100 * error(v, f, mask).mean() for k, v in rivals.items()})
            print(" ".join(f"{k} {v:.2f}" if isinstance(v, float) else str(v)
                           for k, v in row.items()), flush=True)
            if name == "matrix":
                for role in ("pair", "m", "pair+m"):
                    part = mask & (f.role == role)
                    print(f"    {role} {100 * error(predicted, f, part).mean():.2f}")
    print("dispatch", dispatch, "drift", drifts)
    if o.dry_run or o.family:
        return
    folder = ROOT / "estimator" / "models" / "trees"
    for name, f in families.items():
        write_forest(folder, f, forests[name])
    write_learned(folder, forests, families, dispatch)
    with open(ROOT / "tests" / "regress" / "held_out_drift.csv", "w") as out:
        out.write("# Made by scripts/train_estimator.py: us from the call of a convolution to its "
                  "kernel, c0 + c1 p + c2 p^2\n# at the place p (0 to 1) among the device's rows "
                  "of neusight/conv.csv.\ngpu,c0,c1,c2\n")
        for gpu, drift in sorted(drifts.items()):
            out.write(gpu + "".join(f",{c:.4g}" for c in drift) + "\n")


if __name__ == "__main__":
    sys.exit(main())
