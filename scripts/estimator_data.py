"""Reads the public measurements that the estimator's models are trained on and compared with:
aiconfigurator (GEMMs of 16, 8 and 4 bits, attention), neusight (f32 operators), vidur (layers of language models,
f16). `weft estimate --kernels --features` computes the features of their rows. Needs numpy."""
import csv
import hashlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ["gpu", "kind", "dtype", "launcher", "b", "m", "n", "k", "cin", "cout", "ksize", "hw", "stride",
           "pad", "h", "isl", "num_heads", "head_dim", "measured_us", "role", "call", "campaign"]

NEUSIGHT_GPU = {"V100-PCIE-32GB": "v100", "A100-PCIE-40GB": "a100-40",
                "A100-PCIE-80GB": "a100-80", "H100-SXM-80GB": "h100"}
AICONFIGURATOR_GPU = {"a100_sxm": "a100-80", "b200_sxm": "b200", "h100_sxm": "h100",
                      "h200_sxm": "h200", "l40s": "l40s",
                      "rtx_pro_6000_server": "rtx-pro-6000"}


def read_names(data, kind):
    """(path, element type, device, campaign) of every campaign of aiconfigurator. A campaign is
    one collection: a device, and the framework that launched the kernels."""
    for path in sorted((data / "aiconfigurator").glob(f"{kind}_*.csv")):
        dtype, rest = path.stem[len(f"{kind}_"):].split("_", 1)
        device, framework, _ = rest.rsplit("_", 2)
        gpu = AICONFIGURATOR_GPU[device]
        suffix = "" if dtype == "bf16" else f"/{dtype}"
        yield path, dtype, gpu, f"{gpu}/{framework}{suffix}"


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
    for path, dtype, gpu, campaign in read_names(data, "gemm"):
        for r in csv.DictReader(open(path)):
            yield dict(gpu=gpu, kind="gemm", dtype=dtype, launcher=campaign.split("/")[1], m=r["m"], n=r["n"], k=r["k"],
                       measured_us=r["latency_us"], role=gemm_role(r["n"], r["k"], r["m"]),
                       call="gemm", campaign=campaign)
    for path, dtype, gpu, campaign in read_names(data, "encoder_attention"):
        for r in csv.DictReader(open(path)):
            shape = f"attention {r['isl']} {r['num_heads']} {r['head_dim']}"
            yield dict(gpu=gpu, kind="attention", dtype=dtype,
                       launcher=campaign.split("/")[1], b=r["batch_size"], isl=r["isl"],
                       num_heads=r["num_heads"], head_dim=r["head_dim"],
                       measured_us=r["latency_us"], campaign=campaign,
                       role="test" if chance(shape) < 0.2 else "train", call="attention")
    for file in ("linear", "bmm", "conv", "vector_ops"):
        for r in csv.DictReader(open(data / "neusight" / f"{file}.csv")):
            gpu = NEUSIGHT_GPU[r["device"]]
            sizes = {c: r[c] for c in COLUMNS if c in r}
            # The kinds linear and bmm are (m x n) times (n x k), as the recorded grids say.
            yield dict(sizes, gpu=gpu, kind=r["op"], dtype="f32",
                       measured_us=1e3 * float(r["latency_ms"]), role=neusight_role(r, file),
                       call="vector" if file == "vector_ops" else file,
                       campaign=f"{gpu}/neusight")


@dataclass
class Family:
    name: str
    features: list
    x: np.ndarray
    base: np.ndarray
    floor: np.ndarray
    measured: np.ndarray
    staging: np.ndarray
    dispatch: np.ndarray  # what is not the kernel's own: the framework's call, staging
    gpu: np.ndarray
    role: np.ndarray
    call: np.ndarray
    campaign: np.ndarray
    kind: np.ndarray
    dtype: np.ndarray
    launcher: np.ndarray
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


def is_needed(row, names):
    """Whether one of the families needs the row; those in f32 share their dispatch times."""
    if row["dtype"] == "f32":
        return bool({"plain", "conv", "vector"} & set(names))
    gemm = "matrix" if row["dtype"] == "bf16" else "narrow"
    return (gemm if row["kind"] == "gemm" else "attention") in names


def load_families(weft, data, names=None):
    """All families, or at least the named ones."""
    found = {}
    rows = (r for r in read_rows(data) if not names or is_needed(r, names))
    for r in run_weft(weft, rows, ["--features"]):
        found.setdefault(r["family"], []).append(r)
    families = {}
    for name, rows in found.items():
        pairs = [[f.split("=") for f in r["features"].split(" ")] for r in rows]
        column = lambda c, rows=rows: np.array([r[c] for r in rows])  # noqa: E731
        families[name] = Family(
            name, [p[0] for p in pairs[0]], np.array([[float(p[1]) for p in q] for q in pairs]),
            column("base_us").astype(float), column("floor_us").astype(float),
            column("measured_us").astype(float), column("staging_us").astype(float),
            column("staging_us").astype(float), column("gpu"),
            column("role"), column("call"), column("campaign"), column("kind"),
            column("dtype"), column("launcher"), rows)
    return families


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
                           measured_us=1e3 * float(r[f"{op}.median"]), role="test",
                           campaign="a100-80/vidur")
            for op, kind in (("input_layernorm", "layer_norm"), ("add", "add")):
                yield dict(gpu="a100-80", kind=kind, dtype="f16", b=tokens, h=width, call=op,
                           measured_us=1e3 * float(r[f"{op}.median"]), role="test",
                           campaign="a100-80/vidur")
