#!/usr/bin/env python3
"""Errors and bands of the estimator on campaigns that are left out of its training.

    scripts/leave_out.py --weft build/weft --wave build/tests/regress/regress_wave_gemms
                         --data ../shared/data [--dry-run | --only-vidur]
                         [--family matrix,narrow]

A campaign is one collection: a device, and the framework that launched the kernels. Each campaign
is left out entirely, the trees are fitted to the others, and predict its rows of shapes that no
campaign trained on; then the same with all campaigns of its device left out, also of the fit of the
wave model where that was fitted to GEMMs of the device (`--wave`). Writes
tests/regress/left_out.csv (errors, bias, coverage; the analytic models beside them) and
estimator/models/trees/bands.def.

Bands. The score of a row is log2(measured / predicted). Rows of one campaign are not exchangeable
with those of another, campaigns are: so a band is made of campaigns, each of which gives one
interval, the 5 % and 95 % quantiles of its scores, and the band is the smallest that holds the
intervals of all, and a part 1 / K wider, because the extremes of few fall short. Of K + 1
exchangeable campaigns, the next one leaves that band on either side with a probability of at most
1 / (K + 1). This is conformal prediction (Vovk, Gammerman, Shafer,
"Algorithmic learning in a random world", 2005) with groups as units (Dunn, Wasserman, Ramdas,
"Distribution-free prediction sets for two-layer hierarchical models", JASA 2022), and with a band
for each class (Mondrian: Vovk et al., "Mondrian confidence machine", 2003): family, whether the
library that launches the kernel is known (of families that tell them apart), distance of the
device (measured by another campaign; only its architecture was measured; new), and whether the
launch takes much of the time. Where no device has two campaigns, a campaign left out leaves its
device out, too: the band of measured devices is then no narrower than that of their architecture. Few campaigns: the envelope is used because the pooled quantile of
K < 19 groups has no finite 95 % bound.

Coverage of a campaign is that of the band that the other campaigns give: neither trees nor band
have seen it. (The scores of those others come from trees that have; leaving out pairs would square
the number of fits.) Fits use at most ROWS_MAX rows and fewer trees than the shipped ones.

vidur, which nothing is ever trained on, is predicted by the program as it is (`--only-vidur`
replaces its rows of the table alone): run it again after the tables of the trees were changed."""
import argparse
import csv
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np  # noqa: E402

from estimator_data import ROOT, load_families, read_vidur, run_weft  # noqa: E402
from train_estimator import (SETTINGS, fit_dispatch, held_out, launchers, predict_us,  # noqa: E402
                             train)

TREES = ROOT / "estimator" / "models" / "trees"
TREES_MAX, ROWS_MAX = 200, 60000  # of a fit
CLASSES = ("seen", "arch", "new")
LAUNCHERS = ("any", "known")
SHORT_LAUNCHES = 3.0  # a bound of fewer launches is short; as in model_trees.c
BLENDS = np.linspace(0, 1, 9)  # part of the trees in the logarithm of time
FEW, FEW_PART = 3, 0.75  # with fewer campaigns, the trees have at most that part
SLACK = {"narrow": 1.1, "plain": 1.1}  # of few campaigns: the error that a smaller part may cost
EDGES = (0.05, 0.95)
ARCHITECTURE = {"a100-40": 80, "a100-80": 80, "b200": 100, "h100": 90, "h200": 90, "l40s": 89,
                "rtx-pro-6000": 120, "v100": 70}


def class_of(f, gpu, known):
    """The nearest device among the rows of `known`."""
    gpus = set(np.unique(f.gpu[known]))
    if gpu in gpus:
        return "seen"
    return "arch" if ARCHITECTURE[gpu] in {ARCHITECTURE[g] for g in gpus} else "new"


def fit(f, known, test):
    """Fits to the rows `known`, and predicts the rows `test`; the others become NaN. The second
    prediction does not know the library."""
    rows = np.flatnonzero(known)
    step = max(1, -(-len(rows) // ROWS_MAX))
    mask = np.zeros(len(f.measured), bool)
    mask[rows[::step]] = True
    SETTINGS[f.name] = (min(TREES_MAX, SETTINGS[f.name][0]), *SETTINGS[f.name][1:])
    part = replace(f, x=f.x[test], base=f.base[test], floor=f.floor[test],
                   dispatch=f.dispatch[test])
    forest = train(f, mask)
    measured = []
    if len(launchers(f)):
        measured = np.unique(f.x[mask, f.features.index("launcher")])
    out = []
    for values in ([], measured):
        out.append(np.full(len(f.measured), np.nan))
        out[-1][test] = predict_us(part, forest, values)
    return out


class Case:
    """One campaign, predicted by trees of one class of distance."""

    def __init__(self, f, campaign, how, launcher, predicted, analytic, mask):
        self.family, self.campaign, self.how, self.launcher = f.name, campaign, how, launcher
        self.gpu = f.gpu[mask][0]
        self.measured = (f.measured - f.dispatch)[mask]
        self.trees = (predicted - f.dispatch)[mask]
        self.wave, self.roofline = ((a - f.dispatch)[mask] for a in analytic)
        self.dispatch = f.dispatch[mask]
        self.short = f.base[mask] < SHORT_LAUNCHES * 2.5

    def blend(self, part):
        return self.trees ** part * self.wave ** (1 - part)

    def errors(self, time):
        return np.abs((time + self.dispatch) / (self.measured + self.dispatch) - 1)

    def scores(self, part):
        """Of the kernel; the dispatch time is not the estimator's."""
        return np.log2(np.maximum(self.measured, 0.05 * self.trees) / self.blend(part))

    def edges(self, part, short):
        rows = self.short == short
        if rows.sum() < 20:
            return None
        return np.quantile(self.scores(part)[rows], EDGES)


def read_wave(program, data, folder):
    """{(device, type, m, n, k): us} by the wave model as fitted without the device."""
    path = Path(folder) / "wave.csv"
    subprocess.run([program, "--left-out", path], check=True,
                   env=os.environ | {"WEFT_DATA": str(data.resolve())})
    with open(path, newline="") as rows:
        return {tuple(r[:5]): float(r[5]) for r in csv.reader(rows) if r[0] != "gpu"}


def wave_left_out(f, analytic, wave):
    names = {"fp8": "f8e4m3fn", "nvfp4": "f4e2m1"}
    time = [wave.get((r["gpu"], names.get(r["dtype"], r["dtype"]), r["m"], r["n"], r["k"]))
            for r in f.rows]
    known = np.array([t is not None for t in time])
    out = analytic[0].copy()
    out[known] = np.array([t for t in time if t is not None]) + (f.dispatch - f.staging)[known]
    return out, analytic[1]


def leave_out(f, analytic, wave):
    cases, left_out = [], wave_left_out(f, analytic, wave)
    train_rows = np.isin(f.role, ("train", "calibrate"))
    for campaign in np.unique(f.campaign):
        own = f.campaign == campaign
        test = own & (held_out(f) | (f.call == "conv"))
        gpu = f.gpu[own][0]
        for left in (own, f.gpu == gpu):
            by = analytic if left is own else left_out
            known = train_rows & ~left
            if not known.any() or not test.any():
                continue
            how = class_of(f, gpu, known)
            if any(c.campaign == campaign and c.how == how for c in cases):
                continue
            with_launcher, without = fit(f, known, test)
            cases.append(Case(f, campaign, how, "any", without, by, test))
            show(cases[-1], cases[-1].trees)
            if len(launchers(f)) and (known & (f.launcher == f.launcher[own][0])).any():
                cases.append(Case(f, campaign, how, "known", with_launcher, by, test))
                show(cases[-1], cases[-1].trees)
    if len({c.campaign for c in cases if c.how == "seen"}) == 0:
        # One campaign a device: its own held-out shapes, beside it only devices left out.
        predicted = fit(f, train_rows, held_out(f))[0]
        for campaign in np.unique(f.campaign):
            test = (f.campaign == campaign) & held_out(f)
            if (train_rows & (f.campaign == campaign)).any() and test.any():
                cases.append(Case(f, campaign, "same", "any", predicted, analytic, test))
                show(cases[-1], cases[-1].trees)
    return cases


def show(case, time):
    e = 100 * case.errors(time)
    print(f"{case.family:9} {case.campaign:24} {case.how:4} {case.launcher:5} {len(e):6} rows  trees "
          f"{e.mean():5.1f} %  wave {100 * case.errors(case.wave).mean():5.1f} %  roofline "
          f"{100 * case.errors(case.roofline).mean():5.1f} %", flush=True)


def choose_blend(cases):
    """The part of the trees with which no campaign is worse than by the analytic model alone, or as
    little worse as can be; of these, the one with the least mean error. Where few campaigns of other
    devices say little, and the wave model is an alternative, it is the least part with a mean error
    within SLACK of that. (Like the rule of one standard error, Breiman et al., "Classification and
    regression trees", 1984, but with a margin chosen by hand.)"""
    if not cases:
        return None
    few = cases[0].how in ("arch", "new") and len(cases) < FEW
    parts = [p for p in BLENDS if not few or cases[0].how == "arch" or p <= FEW_PART]

    def rank(p):
        errors = np.array([c.errors(c.blend(p)).mean() for c in cases])
        alone = np.array([c.errors(c.wave).mean() for c in cases])
        return max(1, (errors / alone).max()), errors.mean()
    ranks = {p: rank(p) for p in parts}
    worst, mean = min(ranks.values())
    slack = SLACK.get(cases[0].family, 1) if few else 1
    return min(p for p in parts if ranks[p][0] <= worst and ranks[p][1] <= slack * mean)


def envelope(cases, part, short):
    edges = [e for e in (c.edges(part, short) for c in cases) if e is not None]
    if not edges:
        return None
    band = np.array([min(0, *(e[0] for e in edges)), max(0, *(e[1] for e in edges))])
    return band * (1 + 1 / len(edges))


def is_of(case, how):
    return case.how == how or how == "seen" and case.how == "same"


def make_bands(cases, parts):
    """{(class, short): (lo, hi)}. A class without a campaign has the band of the next nearer one
    and half again, that of new devices with fewer than FEW at least twice the nearer one; a
    farther class is never narrower than a nearer one."""
    bands, nearer = {}, {}
    for how in CLASSES:
        own = [c for c in cases if is_of(c, how)]
        for short in (False, True):
            band = envelope(own, parts[how], short)
            grown = 1.0
            if own and own[0].how == "same":
                grown = 2.0
                arch = envelope([c for c in cases if c.how == "arch"], parts["arch"], short)
                if arch is not None and band is not None:
                    band = np.array([min(band[0], arch[0] / grown), max(band[1], arch[1] / grown)])
            if band is None:
                band, grown = nearer.get(short), 1.5
            if band is None:
                other = envelope(own, parts[how], not short)
                band, grown = other if other is not None else np.array([-1.0, 1.0]), 1.5
            band = band * grown
            if how == "new" and len(own) < FEW and any(c.how in ("seen", "arch") for c in cases):
                twice = 2 * nearer[short]
                band = np.array([min(band[0], twice[0]), max(band[1], twice[1])])
            if short in nearer:
                band = np.array([min(band[0], nearer[short][0]), max(band[1], nearer[short][1])])
            bands[how, short] = nearer[short] = band
    return bands


def mean_error(cases, parts, how):
    own = [c for c in cases if is_of(c, how)]
    nearer = CLASSES[:CLASSES.index(how)]
    if not own:
        return 1.5 * mean_error(cases, parts, nearer[-1]) if nearer else 0.5
    found = float(np.mean([c.errors(c.blend(parts[how])).mean() for c in own]))
    if own[0].how == "same" and any(c.how == "arch" for c in cases):
        found = max(found, mean_error(cases, parts, "arch"))
    return found


def covered(case, bands, parts):
    how = "seen" if case.how == "same" else case.how
    lo = np.where(case.short, bands[how, True][0], bands[how, False][0])
    hi = np.where(case.short, bands[how, True][1], bands[how, False][1])
    s = case.scores(parts[how])
    return float(np.mean((s >= lo) & (s <= hi))), float(np.median(2 ** hi - 2 ** lo))


def choose_parts(cases):
    parts = {}
    for how in CLASSES:
        part = choose_blend([c for c in cases if is_of(c, how)])
        parts[how] = part if part is not None else parts[CLASSES[CLASSES.index(how) - 1]]
    return parts


def rows_of(cases):
    for launcher in LAUNCHERS:
        yield from rows_of_launcher([c for c in cases if c.launcher == launcher])


def rows_of_launcher(cases):
    parts = choose_parts(cases) if cases else None
    for c in cases:
        how = "seen" if c.how == "same" else c.how
        others = [o for o in cases if o.campaign != c.campaign]
        if c.how != "seen":
            others = [o for o in others if o.gpu != c.gpu or c.how == "same"]
        own_parts = choose_parts(others) if others else parts
        cover, width = covered(c, make_bands(others, own_parts), own_parts)
        time = c.blend(own_parts[how])
        e, bias = c.errors(time), np.median(np.log(time / c.measured))
        yield dict(family=c.family, campaign=c.campaign, left_out={
            "same": "shapes", "seen": "campaign"}.get(c.how, "device"), device=how,
            launcher=c.launcher, rows=len(e),
            mape=100 * e.mean(), median=100 * np.median(e), bias=100 * np.expm1(bias),
            p90=100 * np.quantile(e, 0.9), inside=100 * cover, band_width=100 * width,
            trees=100 * c.errors(c.trees).mean(), wave=100 * c.errors(c.wave).mean(),
            roofline=100 * c.errors(c.roofline).mean())


# -- Measurements that are not used for training --------------------------------------------------

def rows_of_vidur(weft, data):
    """Layers of language models. Times below 20 us are left out: the resolution is 1 us."""
    calls = {}
    for r in read_vidur(data):
        if r["measured_us"] >= 20:
            calls.setdefault(r["call"], []).append(r)
    for call, rows in calls.items():
        measured = np.array([r["measured_us"] for r in rows])

        def predict(*options, rows=rows):
            found = run_weft(weft, rows, options)
            return [np.array([float(r[c]) for r in found])
                    for c in ("time_us", "time_p5_us", "time_p95_us")]

        def mape(time, measured=measured):
            return 100 * np.abs(time / measured - 1).mean()

        time, lo, hi = predict()
        e = np.abs(time / measured - 1)
        wave = "wave" if rows[0]["kind"] == "gemm" else "roofline"
        yield dict(family=call, campaign="a100-80/vidur", left_out="campaign", device="seen", launcher="any",
                   rows=len(e), mape=mape(time), median=100 * np.median(e),
                   bias=100 * np.median(time / measured - 1), p90=100 * np.quantile(e, 0.9),
                   inside=100 * np.mean((lo <= measured) & (measured <= hi)),
                   band_width=100 * np.median((hi - lo) / time), trees=mape(time),
                   wave=mape(predict("--model", wave)[0]),
                   roofline=mape(predict("--model", "roofline")[0]))


# -- Output ---------------------------------------------------------------------------------------

def replace_vidur(rows):
    path = ROOT / "tests" / "regress" / "left_out.csv"
    kept = [line for line in path.read_text().splitlines(True) if "/vidur," not in line]
    path.write_text("".join(kept) + "".join(line(r) + "\n" for r in rows))


def line(row):
    return ",".join(f"{v:.1f}" if isinstance(v, float) else str(v) for v in row.values())


def write_table(rows):
    """Rows of other families stay, those of this run follow."""
    made = {r["family"] for r in rows}
    path = ROOT / "tests" / "regress" / "left_out.csv"
    kept = [t for t in path.read_text().splitlines(True)
            if t[0] != "#" and t.split(",")[0] not in made | {"family"}]
    with open(ROOT / "tests" / "regress" / "left_out.csv", "w") as out:
        out.write(
            "# Errors on campaigns left out of training entirely, in percent, on shapes that no "
            "campaign trained on;\n# scripts/leave_out.py --weft WEFT --data DATA, which says what "
            "a band is. Data: ai-dynamo/aiconfigurator at\n# 095f58a (Apache-2.0), "
            "sitar-lab/NeuSight at 6945927 (MIT).\n"
            "# left_out: the campaign, every campaign of its device, or only its shapes (families "
            "with one campaign a device).\n# device: the nearest device that was trained on. launcher: whether the library was told. "
            "inside: rows in the 90 % band of the other campaigns; band_width: of the "
            "prediction.\n")
        out.write(",".join(rows[0]) + "\n" + "".join(kept)
                  + "".join(line(r) + "\n" for r in rows))


def write_bands(found):
    path = TREES / "bands.def"
    kept = [t for t in path.read_text().splitlines(True)
            if t.startswith("BAND(") and t[5:].split(",")[0].lower() not in found]
    with open(path, "w") as out:
        out.write(
            "/* Made by scripts/leave_out.py, which has the method. BAND(family, launcher, device, part, "
            "error, edges): how far\n * log2(measured / predicted) went on campaigns left out; "
            "launcher: whether the library is known, of families\n * that tell them apart; device: the "
            "nearest one that was trained on; part: of the trees in the logarithm of\n * time, the "
            "rest is the analytic model's; error: mean relative error; edges: 5 % and 95 %, of "
            "kernels bound\n * by work and of those in which launches count. */\n")
        out.write("".join(kept))
        for name, all_cases in found.items():
            for launcher in LAUNCHERS:
                cases = [c for c in all_cases if c.launcher == launcher]
                if not cases:
                    continue
                parts = choose_parts(cases)
                bands = make_bands(cases, parts)
                for how in CLASSES:
                    b = [*bands[how, False], *bands[how, True]]
                    out.write(f"BAND({name.upper()}, {launcher.upper()}, {how.upper()}, "
                              f"{parts[how]:g}, {mean_error(cases, parts, how):.3f}, "
                              + ", ".join(f"{x:.3f}" for x in b) + ")\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", required=True)
    parser.add_argument("--wave", help="regress_wave_gemms; without it the wave model is as it is")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true", help="print, write nothing")
    parser.add_argument("--only-vidur", action="store_true", help="of the program as it is")
    parser.add_argument("--family", help="only these, separated by commas")
    o = parser.parse_args()
    if o.only_vidur:
        replace_vidur(rows_of_vidur(o.weft, o.data))
        return
    names = o.family.split(",") if o.family else []
    families = load_families(o.weft, o.data, names)
    fit_dispatch(families)
    if names:
        families = {name: families[name] for name in names}
    wave = {}
    if o.wave:
        with tempfile.TemporaryDirectory() as folder:
            wave = read_wave(o.wave, o.data, folder)
    found, table = {}, []
    for name, f in families.items():
        analytic = []
        for model in ("wave", "roofline"):
            if model == "wave":
                model = {"conv": "implicit", "vector": "roofline", "attention": "roofline"}.get(
                    name, model)
            rows = run_weft(o.weft, f.rows, ["--model", model, "--no-dispatch"])
            analytic.append(np.array([float(r["time_us"]) for r in rows]) + f.dispatch - f.staging)
        found[name] = leave_out(f, analytic, wave)
        for row in rows_of(found[name]):
            table.append(row)
            print(" ".join(f"{k} {v:.1f}" if isinstance(v, float) else str(v)
                           for k, v in row.items()), flush=True)
    if not o.family:
        table += rows_of_vidur(o.weft, o.data)
    if not o.dry_run:
        write_table(table)
        write_bands(found)


if __name__ == "__main__":
    sys.exit(main())
