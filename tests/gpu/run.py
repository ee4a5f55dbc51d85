"""What run.sh runs: correctness first, then measurements, into results.json.

Each step has its share of the time; what does not fit is named in the results, never silently left
out. Nothing of the machine is changed: MIG is only read, MPS daemons are private and stopped.
"""
import argparse
import concurrent.futures as futures
import datetime
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2, "f16": 2e-2}
SM_SWEEP = [8, 16, 24, 32, 48, 64, 96, 132]


class Run:
    def __init__(self, args):
        self.args = args
        self.start = time.monotonic()
        self.results = {"steps": {}}
        self.failures = []
        self.work = args.work or tempfile.mkdtemp(prefix="weft-gpu-")
        self.payload = os.path.join(self.work, "payload")
        self.weft = os.path.join(self.payload, "bin", "weft")
        self.env = dict(os.environ)
        self.cores = len(os.sched_getaffinity(0))

    def left(self):
        return self.args.seconds - (time.monotonic() - self.start)

    def note(self, step, value):
        self.results["steps"][step] = value
        with open(os.path.join(self.args.out, "results.json"), "w") as f:
            json.dump(self.results, f, indent=1, sort_keys=True)

    def say(self, text):
        print("[%5.1f s] %s" % (time.monotonic() - self.start, text), flush=True)

    def fail(self, text):
        self.failures.append(text)
        self.say("FAILED " + text)

    def call(self, *argv, seconds=120, env=None):
        """(exit code, output, errors); code 124 when it took too long."""
        try:
            done = subprocess.run(argv, env=dict(self.env, **(env or {})), capture_output=True,
                                  text=True, timeout=max(1, min(seconds, self.left())))
            return done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            return 124, "", "took longer than it may"


# -- The machine ----------------------------------------------------------------------------------

def unpack(run):
    if os.path.isdir(os.path.join(HERE, "payload")):
        run.payload = os.path.join(HERE, "payload")
        run.weft = os.path.join(run.payload, "bin", "weft")
    elif not os.path.exists(run.weft):
        os.makedirs(run.payload, exist_ok=True)
        subprocess.run(["tar", "-xJf", os.path.join(HERE, "payload.tar.xz"), "-C", run.payload],
                       check=True)


def find_libraries(run):
    """Folders of NVRTC, cuBLASLt and cuDNN: the toolkit's, or those that Python packages bring."""
    found = [os.path.join(run.payload, "lib")] + run.env.get("LD_LIBRARY_PATH", "").split(":")
    folders = sorted(glob.glob("/usr/local/cuda*/lib64"), reverse=True)
    for base in sys.path:
        folders += glob.glob(os.path.join(base, "nvidia", "*", "lib"))
    for pattern in ("libnvrtc.so.1*", "libcublasLt.so.1*", "libcudnn.so.9*"):
        for folder in folders:
            if glob.glob(os.path.join(folder, pattern)):
                found.append(folder)
                break
    run.env["LD_LIBRARY_PATH"] = ":".join(f for f in found if f)


def read_machine(run):
    code, out, err = run.call(run.weft, "list", "slices", "--format", "json")
    if code != 0:
        sys.exit("the program does not run here: %s" % (err.strip() or code))
    machine = json.loads(out)
    code, version, _ = run.call(run.weft, "--version")
    run.results["weft"] = version.strip()
    run.results["machine"] = {k: machine[k] for k in ("cpus", "gpus", "driver", "cuda")}
    run.results["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat()
    if not machine["gpus"]:
        print("no GPU here: %s" % machine["no_gpus"])
        sys.exit(77)
    gpu = machine["gpus"][0]
    run.target = "sm_%d" % gpu["cc"]
    run.device = gpu["type"]
    run.sms = gpu["sms"]
    run.mps_control = machine["mps_control"]
    run.say("%s, driver %s, %d SMs" % (gpu["name"], machine["driver"], run.sms))
    for line in gpu["differences"]:
        run.say("differs from the table of devices: " + line)


# -- Single operators -----------------------------------------------------------------------------

def run_case(run, folder, target):
    name = os.path.basename(folder)
    bundle = os.path.join(run.work, name + ".weft")
    if run.left() < run.args.seconds * 0.75:
        return name, "left out", "no time was left"
    code, _, err = run.call(run.weft, "compile", os.path.join(folder, "model.onnx"), "--target", target,
                            "--precision", "f32", "-o", bundle)
    if code != 0:
        return name, "unsupported", err.strip().split("\n")[0]
    data = os.path.join(folder, "test_data_set_0")
    argv = [run.weft, "run", bundle]
    code, out, err = run.call(run.weft, "inspect", "--format", "json", bundle)
    model = json.loads(out)["models"][0] if code == 0 else {"inputs": [], "outputs": []}
    for i, port in enumerate(model["inputs"]):
        argv += ["--input", "%s=@%s/input_%d.pb" % (port["name"], data, i)]
    for i, port in enumerate(model["outputs"]):
        argv += ["--expect", "%s=@%s/output_%d.pb" % (port["name"], data, i)]
    code, out, err = run.call(*argv, "--tolerance", "1e-3")
    os.unlink(bundle)
    return name, "right" if code == 0 else "wrong", (err.strip() or out.strip()).split("\n")[0]


def operators(run):
    folders = sorted(glob.glob(os.path.join(run.payload, "cases", "*")))
    if run.args.quick:
        folders = folders[:: max(1, len(folders) // 8)]
    with futures.ThreadPoolExecutor(run.cores) as pool:
        done = list(pool.map(lambda f: run_case(run, f, run.target), folders))
    count = {kind: sum(1 for d in done if d[1] == kind) for kind in
             ("right", "wrong", "unsupported", "left out")}
    for name, kind, text in done:
        if kind == "wrong":
            run.fail("operator %s: %s" % (name, text))
    run.say("operators: %(right)d right, %(wrong)d wrong, %(unsupported)d not supported, "
            "%(left out)d left out" % count)
    run.note("operators", {"count": count, "not_right": [d for d in done if d[1] != "right"]})


# -- Whole models ---------------------------------------------------------------------------------

def load_models(run):
    """(name, file, manifest entry), small ones first."""
    folder = os.path.join(run.payload, "models")
    path = os.path.join(folder, "manifest.json")
    manifest = json.load(open(path)) if os.path.exists(path) else {}
    names = sorted(manifest, key=lambda n: manifest[n]["bytes"])
    if run.args.only:
        names = [n for n in names if n in run.args.only.split(",")]
    return [(n, os.path.join(folder, n + ".onnx"), manifest[n]) for n in names]


def compile_model(run, name, path, entry, precisions):
    import fill
    folder = os.path.dirname(path)
    fill.fill(folder, name, entry)
    found = {}
    for kind in ["cpu"] + precisions:
        bundle = os.path.join(run.work, "%s.%s.weft" % (name, kind))
        argv = [run.weft, "compile", path, "-o", bundle, "--merge", "off"]
        if kind != "cpu":
            argv += ["--target", run.target]
            argv += ["--gpu", run.device] if run.device else []
            argv += ["--precision", "f32" if kind == "fp32" else kind]
        begin = time.monotonic()
        code, _, err = run.call(*argv, seconds=200)
        if code != 0:
            found[kind] = {"error": err.strip().split("\n")[0]}
        else:
            found[kind] = {"bundle": bundle, "compile_s": time.monotonic() - begin,
                           "bytes": os.path.getsize(bundle)}
    return found


class Mps:
    """A private MPS daemon, stopped on exit; `env` is empty if MPS is missing."""

    def __init__(self, run):
        self.run, self.env, self.why, self.pipe = run, {}, "no nvidia-cuda-mps-control here", None
        if not run.mps_control:
            return
        self.pipe = tempfile.mkdtemp(prefix="weft-mps-")
        env = {"CUDA_MPS_PIPE_DIRECTORY": self.pipe, "CUDA_MPS_LOG_DIRECTORY": self.pipe}
        # The daemon may keep what it inherits open: no pipes.
        code = subprocess.call([run.mps_control, "-d"], env=dict(run.env, **env), timeout=20,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        self.why = "" if code == 0 else "the daemon does not start: code %d" % code
        self.env = env if code == 0 else {}

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.env:
            subprocess.run([self.run.mps_control], input="quit\n", text=True, timeout=30,
                           env=dict(self.run.env, **self.env), capture_output=True)
        if self.pipe:
            shutil.rmtree(self.pipe, ignore_errors=True)


def compare_model(run, name, entry, folder, bundles, batches, mps):
    import fill
    rows = []
    for batch in batches:
        inputs = []
        for port, path in fill.make_inputs(folder, name, entry, batch):
            inputs += ["--input", "%s=@%s" % (port, path)]
        outputs = [(port, os.path.join(run.work, "%s.%d.%d.npy" % (name, batch, i)))
                   for i, port in enumerate(entry["outputs"])]
        argv = [run.weft, "run", bundles["cpu"]["bundle"]] + inputs
        for port, path in outputs:
            argv += ["--output", "%s=@%s" % (port, path)]
        code, _, err = run.call(*argv, seconds=100)
        if code != 0:
            rows.append({"batch": batch, "error": "cpu: " + err.strip().split("\n")[0]})
            continue
        for kind, bundle in bundles.items():
            if kind == "cpu" or "bundle" not in bundle:
                continue
            slices = [("whole", [], {})]
            if batch == batches[0] and run.sms and run.sms >= 64:
                slices += [("sms 32", ["--sms", "32"], {}), ("sms 24@32", ["--sms", "24@32"], {})]
            if batch == batches[0] and mps.env:
                half = dict(mps.env, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50")
                slices += [("mps 50%", [], half)]
            if kind == "f16" and batch != batches[0]:
                continue
            for slice_name, extra, env in slices:
                argv = [run.weft, "run", bundle["bundle"]] + inputs + extra
                for port, path in outputs:
                    argv += ["--expect", "%s=@%s" % (port, path)]
                code, out, err = run.call(*argv, "--tolerance", str(TOLERANCE[kind]), seconds=100,
                                          env=env)
                text = (err.strip() or out.strip()).split("\n")[0]
                rows.append({"batch": batch, "precision": kind, "slice": slice_name,
                             "right": code == 0, "text": text})
                if code != 0:
                    run.fail("model %s batch %d %s on %s: %s" % (name, batch, kind, slice_name, text))
    return rows


def models(run):
    chosen = load_models(run)
    precisions = ["fp32"]
    code, out, _ = run.call(run.weft, "compile", "--help")
    if "--precision" in out and not run.args.quick:
        precisions += ["bf16", "f16"]
    compiled, rows = {}, {}
    with futures.ThreadPoolExecutor(max(1, run.cores // 4)) as pool, Mps(run) as mps:
        jobs = {m[0]: pool.submit(compile_model, run, *m, precisions) for m in chosen}
        for name, path, entry in chosen:
            bundles = jobs[name].result()
            compiled[name] = bundles
            broken = {k: v["error"] for k, v in bundles.items() if "error" in v}
            for kind, error in broken.items():
                run.fail("model %s for %s: %s" % (name, kind, error))
            if "cpu" in broken or len(broken) == len(bundles) - 1:
                continue
            if run.left() < run.args.seconds * 0.45:
                rows[name] = "no time was left"
                continue
            rows[name] = compare_model(run, name, entry, os.path.dirname(path), bundles,
                                       [1] if run.args.quick else [1, 3, 8], mps)
            right = sum(1 for r in rows[name] if r.get("right"))
            run.say("model %s: %d of %d comparisons right" % (name, right, len(rows[name])))
            run.note("models", {"compiled": compiled, "compared": rows})
    run.note("models", {"compiled": compiled, "compared": rows})
    found = {}
    for kind in ("fp32", "bf16"):
        for name, b in compiled.items():
            if "bundle" in b.get(kind, {}):
                found[name if kind == "fp32" else name + " " + kind] = b[kind]["bundle"]
    return found


# -- Quantised models -----------------------------------------------------------------------------

# Graphs of tests/doubles/quantised.wir: inputs, outputs, batches. All GEMMs of bytes, and kernels beside
# them, are in these.
QUANTISED = {
    "quantised": ({"x": (3, 8, 8), "r": (18,)}, ["y", "bytes", "n"], [1, 3, 24]),
    "dynamic": ({"r": (18,)}, ["d"], [40]),
}


def quantised(run):
    """Products of bytes on int8 tensor cores beside the CPU's."""
    import numpy as np
    source = os.path.join(run.payload, "models", "quantised.wir")
    bundles, rows = {}, []
    for kind, extra in (("cpu", []), ("gpu", ["--target", run.target, "--precision", "f32"])):
        bundles[kind] = os.path.join(run.work, "quantised.%s.weft" % kind)
        code, _, err = run.call(run.weft, "compile", source, "-o", bundles[kind], "--merge", "off",
                                *extra, seconds=200)
        if code != 0:
            run.fail("quantised.wir for %s: %s" % (kind, err.strip().split("\n")[0]))
            return
    for name, (shapes, outputs, batches) in QUANTISED.items():
        for batch in batches:
            inputs, wanted = [], []
            for i, (port, shape) in enumerate(shapes.items()):
                path = os.path.join(run.work, "quantised.%s.npy" % port)
                x = np.random.default_rng(batch + 100 * i).uniform(-1, 1, (batch,) + shape)
                np.save(path, x.astype(np.float32))
                inputs += ["--input", "%s=@%s" % (port, path)]
            for port in outputs:
                wanted.append("%s=@%s" % (port, os.path.join(run.work, "quantised.%s.npy" % port)))
            argv = ["run", "--model", name] + inputs
            code, _, err = run.call(run.weft, *argv, bundles["cpu"],
                                    *[a for w in wanted for a in ("--output", w)])
            if code == 0:
                code, out, err = run.call(run.weft, *argv, bundles["gpu"], "--tolerance", "1e-5",
                                          *[a for w in wanted for a in ("--expect", w)])
            rows.append({"model": name, "batch": batch, "right": code == 0, "text": err.strip()})
            if code != 0:
                run.fail("quantised model %s, batch %d: %s" % (name, batch, err.strip()))
    run.say("quantised models: %d of %d comparisons right"
            % (sum(r["right"] for r in rows), len(rows)))
    run.note("quantised", rows)


# -- Measurements ---------------------------------------------------------------------------------

def bench(run, bundle, *extra, env=None, seconds="0.4"):
    code, out, err = run.call(run.weft, "bench", bundle, "--time", seconds, "--format", "json", *extra,
                              env=env, seconds=60)
    if code != 0:
        return {"error": err.strip().split("\n")[0]}
    return json.loads(out)


def measure_models(run, bundles):
    rows = {}
    for name, bundle in bundles.items():
        if run.left() < run.args.seconds * 0.25:
            rows[name] = "no time was left"
            continue
        rows[name] = bench(run, bundle, "--batch", "1" if run.args.quick else "1,8,64")
        for r in rows[name].get("results", []):
            run.say("bench %-18s batch %-3d %.3f ms" % (name, r["batch"], r["median_ms"]))
        run.note("bench", rows)
    run.note("bench", rows)


def sweep_sms(run, bundles):
    rows = {}
    for name in ("resnet50", "bert_base", "bert_tiny"):
        if name not in bundles or not run.sms:
            continue
        rows[name] = {}
        for sms in SM_SWEEP:
            if sms > run.sms or run.left() < run.args.seconds * 0.2:
                continue
            got = bench(run, bundles[name], "--batch", "8", "--sms", str(sms), seconds="0.25")
            rows[name][sms] = got.get("results", got)
    run.note("sm_sweep", rows)


def concurrent_bench(run, bundle, count, env, extra):
    begin = [subprocess.Popen([run.weft, "bench", bundle, "--time", "1", "--batch", "1", "--format",
                               "json"] + extra(i), env=dict(run.env, **env), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(count)]
    total, error, end = 0.0, None, time.monotonic() + min(30, max(1, run.left()))
    for process in begin:
        try:
            out, err = process.communicate(timeout=max(0.1, end - time.monotonic()))
            total += json.loads(out)["results"][0]["throughput_per_s"]
        except (subprocess.TimeoutExpired, ValueError, LookupError):
            process.kill()
            process.communicate()
            error = "one process gave no result"
    return {"throughput_per_s": total, "error": error}


def sharing(run, bundles):
    """Several processes on one GPU: in turn, under MPS, and on SMs of their own under MPS."""
    name = next((n for n in ("bert_tiny", "resnet18", "resnet50") if n in bundles), None)
    if not name:
        return
    rows = {"model": name}
    none = lambda i: []
    if run.left() < 60:
        run.note("sharing", "no time was left")
        return
    for count in (1, 2, 4):
        rows["in turn %d" % count] = concurrent_bench(run, bundles[name], count, {}, none)
    with Mps(run) as mps:
        if mps.why:
            rows["mps"] = mps.why
        for count in (1, 2, 4) if mps.env else ():
            rows["mps %d" % count] = concurrent_bench(run, bundles[name], count, mps.env, none)
            capped = dict(mps.env, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=str(100 // count))
            rows["mps percent %d" % count] = concurrent_bench(run, bundles[name], count, capped, none)
            part = (run.sms or 0) // count // 8 * 8
            rows["mps green %d" % count] = concurrent_bench(
                run, bundles[name], count, mps.env,
                lambda i: ["--sms", "%d@%d" % (part, i * part)])
    run.note("sharing", rows)


def siblings(run):
    """Merged and unmerged bundles."""
    rows = {}
    folder = os.path.join(run.payload, "models")
    for family in ("sib_bert", "sib_resnet18"):
        paths = [m[1] for m in load_models(run) if m[0].startswith(family)][:4]
        if len(paths) < 2 or run.left() < run.args.seconds * 0.2:
            continue
        for mode in ("off", "auto"):
            bundle = os.path.join(run.work, "%s.%s.weft" % (family, mode))
            argv = [run.weft, "compile", *paths, "--target", run.target, "--merge", mode, "-o", bundle]
            argv += ["--gpu", run.device] if run.device else []
            code, _, err = run.call(*argv, seconds=100)
            if code != 0:
                rows[family + " " + mode] = {"error": err.strip().split("\n")[0]}
            else:
                rows[family + " " + mode] = bench(run, bundle, "--batch", "1,8")
    run.note("siblings", rows)


def tuned(run):
    """GEMMs with the algorithms measured here and with those that cuBLASLt's heuristics choose."""
    rows = {}
    batches = "1" if run.args.quick else "1,8,64"
    for name in ("digits_attn", "bert_tiny", "bert_base"):
        path = os.path.join(run.payload, "models", name + ".onnx")
        if not os.path.exists(path) or run.left() < run.args.seconds * 0.2:
            continue
        rows[name] = {}
        for kind, extra in (("guessed", []), ("measured", ["--tune"])):
            bundle = os.path.join(run.work, "%s.%s.weft" % (name, kind))
            begin = time.monotonic()
            code, _, err = run.call(run.weft, "compile", path, "--target", run.target, "--precision",
                                    "bf16", "--batch", batches, "-o", bundle, *extra, seconds=100)
            if code != 0:
                run.fail("%s, GEMMs %s: %s" % (name, kind, err.strip().split("\n")[0]))
                continue
            took = time.monotonic() - begin
            rows[name][kind] = dict(bench(run, bundle, "--batch", batches), compile_s=took)
    run.note("tuned", rows)


def per_kernel(run, bundles):
    rows = {}
    for name in ("bert_base", "resnet50", "mobilenet_v2"):
        if name in bundles and run.left() > run.args.seconds * 0.15:
            code, out, err = run.call(run.weft, "bench", bundles[name], "--batch", "8", "--time", "0.3",
                                      "--per-kernel", seconds=60)
            rows[name] = (out if code == 0 else err).split("\n")
    run.note("per_kernel", rows)


def serve(run):
    """The server on this GPU: one worker that is killed does not lose a request."""
    path = os.path.join(run.payload, "models", "digits_cnn.onnx")
    bundle = os.path.join(run.work, "serve.weft")
    code, _, err = run.call(run.weft, "compile", path, "--target", run.target, "-o", bundle)
    if code != 0:
        run.fail("serve: " + err.strip().split("\n")[0])
        return
    import urllib.request
    server = subprocess.Popen([run.weft, "serve", bundle, "--http", "0", "--grpc", "off", "--metrics",
                               "0"], env=run.env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    try:
        ready = server.stdout.readline().split()
        if not ready or ready[0] != "READY":
            run.fail("serve: " + server.stderr.read().strip()[:200])
            return
        port = ready[1].split("=")[1]
        body = json.dumps({"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
                                       "data": [float(i % 17) for i in range(64)]}]}).encode()
        url = "http://127.0.0.1:%s/v2/models/digits_cnn/infer" % port
        answers, times = set(), []
        for i in range(30):
            begin = time.monotonic()
            answers.add(urllib.request.urlopen(url, body, timeout=30).read())
            times.append(time.monotonic() - begin)
            if i == 10:
                for pid in workers_of(server.pid):
                    os.kill(pid, 9)
        times.sort()
        if len(answers) != 1:
            run.fail("serve: %d different answers" % len(answers))
        run.say("serve: 30 answers, a worker killed between, median %.2f ms" % (times[15] * 1e3))
        run.note("serve", {"answers": len(answers), "median_ms": times[15] * 1e3,
                           "slowest_ms": times[-1] * 1e3})
    except OSError as error:
        run.fail("serve: %s" % error)
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()


def workers_of(pid):
    found = []
    for path in glob.glob("/proc/[0-9]*/status"):
        try:
            text = open(path).read()
        except OSError:
            continue
        if "\nPPid:\t%d\n" % pid in text:
            found.append(int(path.split("/")[2]))
    return found


def facts(run):
    """Device properties that only a CUDA program can read."""
    nvcc = shutil.which("nvcc", path=run.env.get("PATH", "") + ":/usr/local/cuda/bin")
    if not nvcc:
        run.note("facts", "no nvcc here")
        return
    program = os.path.join(run.work, "facts")
    code, _, err = run.call(nvcc, "-O2", "-arch", run.target, "-o", program,
                            os.path.join(HERE, "facts.cu"), "-lcuda", "-lcublasLt", seconds=90)
    if code != 0:
        run.note("facts", {"error": err.strip()[-400:]})
        return
    code, out, err = run.call(program, seconds=60)
    try:
        run.note("facts", json.loads(out))
        run.say("facts: read")
    except ValueError:
        run.note("facts", {"error": (err or out)[-400:], "code": code})


def sanitize(run):
    tool = shutil.which("compute-sanitizer", path=run.env.get("PATH", "") + ":/usr/local/cuda/bin")
    bundle = os.path.join(run.work, "serve.weft")
    rows = {}
    for check in ("memcheck", "racecheck"):
        if not tool or not os.path.exists(bundle):
            rows[check] = "no compute-sanitizer here"
            continue
        code, out, err = run.call(tool, "--tool", check, "--error-exitcode", "9", run.weft, "bench",
                                  bundle, "--time", "0.01", "--batch", "1", seconds=60)
        rows[check] = {"code": code, "text": (out + err).strip().split("\n")[-1]}
        if code == 9:
            run.fail("compute-sanitizer %s: %s" % (check, rows[check]["text"]))
    run.note("sanitizer", rows)


def torch(run, reserve):
    seconds = run.left() - reserve
    if seconds < 20:
        run.note("torch", "no time was left")
        return
    out = os.path.join(run.args.out, "torch.json")
    code, text, err = run.call(sys.executable, os.path.join(HERE, "bench_torch.py"), "--out", out,
                               "--seconds", str(int(seconds)), seconds=seconds + 10,
                               env={"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")})
    if os.path.exists(out):
        run.note("torch", json.load(open(out)))
    else:
        run.note("torch", {"error": (err or text).strip()[-400:], "code": code})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="gpu-results")
    parser.add_argument("--work", help="where bundles and weights go (a temporary folder)")
    parser.add_argument("--seconds", type=float, default=460)
    parser.add_argument("--only", help="these models alone")
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    if args.work:
        os.makedirs(args.work, exist_ok=True)
    run = Run(args)
    sys.path.insert(0, HERE)
    unpack(run)
    find_libraries(run)
    read_machine(run)
    operators(run)
    serve(run)
    quantised(run)
    bundles = models(run)
    measure_models(run, bundles)
    siblings(run)
    tuned(run)
    sweep_sms(run, bundles)
    if not args.quick:
        torch(run, 60)
        facts(run)
        sharing(run, bundles)
        per_kernel(run, bundles)
        sanitize(run)
    run.results["failures"] = run.failures
    run.results["seconds"] = time.monotonic() - run.start
    run.note("end", {"failures": len(run.failures)})
    run.say("%d failures; results in %s" % (len(run.failures), os.path.join(args.out, "results.json")))
    if not args.work:
        shutil.rmtree(run.work, ignore_errors=True)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
