"""Answers to compare Weft's with: onnxruntime's, and Weft's own through its command line.

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
    import oracle
    oracle.need()              # before numpy, onnx, onnxruntime are imported; ends with 77 without them
    import numpy as np

need() takes the packages from the folder that scripts/oracles.sh makes (pinned versions, verified
hashes), never those of the interpreter: they come first on sys.path.
"""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77

# Largest difference over the largest magnitude of the expected output, by element type: sums of
# these networks' sizes, computed in another order. Integers and bool must be equal.
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}


def skip(text):
    print(f"skipped: {text}")
    sys.exit(SKIPPED)


def need(requirements=None):
    """Puts the packages of a list (default tests/oracles.txt) on sys.path; ends the program with 77
    and a message where they cannot be had."""
    command = ["bash", os.path.join(ROOT, "scripts", "oracles.sh")]
    if requirements:
        command.append(os.path.join(ROOT, "tests", requirements))
    done = subprocess.run(command, env=dict(os.environ, WEFT_PYTHON=sys.executable),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == SKIPPED:
        skip(done.stderr.strip().removeprefix("skipped: "))
    if done.returncode:
        sys.exit(f"scripts/oracles.sh ended with {done.returncode}: {done.stderr.strip()}")
    sys.path.insert(0, done.stdout.strip())


def session(model, optimise=False, log=4):
    """An onnxruntime session of a file or of bytes: one thread, graph optimisations off unless asked
    for, silent unless `log` (a severity, 0 to 4) is lower."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = log
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def answers(model, inputs, names=None, optimise=False):
    """onnxruntime's outputs, {name: array}."""
    s = session(model, optimise)
    names = names or [o.name for o in s.get_outputs()]
    return dict(zip(names, s.run(names, inputs)))


def difference(got, want, tolerance=None, scale=None):
    """Why two arrays differ, or None. Shape and element type must be equal, integers and strings too;
    NaN must stand where NaN is expected and infinities where the same infinity is. Other floats may
    differ by tolerance (default by element type) times scale (default: the expected array's largest
    finite magnitude)."""
    import numpy as np
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    if got.dtype != want.dtype:
        return f"element type {got.dtype}, expected {want.dtype}"
    if want.dtype.name not in TOLERANCE:
        wrong = np.argwhere(got != want)
        return _first(got, want, wrong, "elements") if len(wrong) else None
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    same = np.where(finite, np.isfinite(a), (a == b) | (np.isnan(a) & np.isnan(b)))
    if not same.all():
        return _first(got, want, np.argwhere(~same), "of NaN and infinities")
    if not finite.any():
        return None
    if scale is None:
        scale = max(float(np.abs(b[finite]).max()), float(np.finfo(np.float32).tiny))
    if tolerance is None:
        tolerance = TOLERANCE[want.dtype.name]
    with np.errstate(invalid="ignore"):
        error = np.where(finite, np.abs(a - b), 0) / scale
    if error.max() <= tolerance:
        return None
    wrong = np.argwhere(error > tolerance)
    return f"error {error.max():.1e}: " + _first(got, want, wrong, "elements")


def _first(got, want, wrong, what):
    at = tuple(int(i) for i in wrong[0])
    return (f"{len(wrong)} of {want.size} {what} differ, the first at {list(at)}: {got[at]!s}, "
            f"expected {want[at]!s}")


def outputs_differ(got, want, tolerance=None):
    """The same for two sets of outputs, {name: array}: a text with the output's name, or None."""
    for name, value in want.items():
        if name not in got:
            return f"{name}: missing"
        text = difference(got[name], value, tolerance)
        if text:
            return f"{name}: {text}"
    return None


class Failed(Exception):
    """`weft` ended with an error; the text is its messages, code its exit code (negative: signal)."""

    def __init__(self, command, done):
        super().__init__(done.stderr.strip() or f"{os.path.basename(command[0])} {command[1]}: no message")
        self.code = done.returncode


def weft(program, *arguments, env=None, timeout=None):
    """Runs the command line and returns its standard output; raises Failed. env: variables to add."""
    command = [program, *(str(a) for a in arguments)]
    done = subprocess.run(command, env=dict(os.environ, **(env or {})), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=timeout)
    if done.returncode:
        raise Failed(command, done)
    return done.stdout


def compile_models(program, models, bundle, *options, env=None):
    """Compiles files into one bundle; a model is named as its file without .onnx."""
    weft(program, "compile", *models, "-o", bundle, *options, env=env)


def run_bundle(program, bundle, inputs, names, folder, model=None, threads=1, driver=None, env=None):
    """Runs one model of a bundle on {name: array} and returns its outputs {name: array}; folder is one
    for temporary files."""
    import numpy as np
    arguments = ["run", bundle, "--threads", threads]
    if model:
        arguments += ["--model", model]
    if driver:
        arguments += ["--driver", driver]
    for i, (name, value) in enumerate(inputs.items()):
        file = os.path.join(folder, f"in{i}.npy")
        np.save(file, value)
        arguments += ["--input", f"{name}=@{file}"]
    files = [os.path.join(folder, f"out{i}.npy") for i in range(len(names))]
    for name, file in zip(names, files):
        arguments += ["--output", f"{name}=@{file}"]
    weft(program, *arguments, env=env)
    return {name: np.load(file) for name, file in zip(names, files)}
