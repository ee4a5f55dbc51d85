"""The compiler and the planner, by the command `weft`: its programs have other licences than the library."""
from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Sequence, Union

from ._bundle import Bundle, Error
from ._native import packaged

Path = Union[str, os.PathLike]
_STATUS = {2: "input", 3: "infeasible", 4: "input"}


def _options(options: dict[str, Any]) -> list[str]:
    """Keywords as options: batch=[1, 8] is --batch 1,8; tune=True is --tune; rate=... may be a list of texts."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else os.fspath(value) if isinstance(
                value, os.PathLike) else str(value)
            words += [option, text]
    return words


def _weft(*words: str) -> str:
    """Standard output of the command: WEFT_COMMAND, that of the wheel, or that in PATH."""
    command = os.environ.get("WEFT_COMMAND") or packaged("bin", "weft") or "weft"
    try:
        done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Error(f"the command {command} is not installed", "no device") from None
    if done.returncode:
        text = done.stderr.strip().removeprefix("error: ")
        raise Error(text or f"weft {words[0]} ended with {done.returncode}", _STATUS.get(done.returncode, "input"))
    return done.stdout


def compile(models: Union[Path, Sequence[Path]], output: Path, **options: Any) -> Bundle:
    """Compiles ONNX files, or a set file, into a bundle and opens it. Options are those of `weft compile`:
    compile("resnet.onnx", "resnet.weft", batch=[1, 8], gpu="h100")."""
    paths = [models] if isinstance(models, (str, os.PathLike)) else list(models)
    _weft("compile", *map(os.fspath, paths), "-o", os.fspath(output), *_options(options))
    return Bundle(output)


def estimate(model: Path, *, gpu: str, **options: Any) -> dict[str, Any]:
    """`weft estimate --format json` (docs/estimate-json.md): time, compute, memory and energy on a device, without
    running anything: estimate("resnet.onnx", gpu="h100", slice="1g.10gb", batch=8)."""
    return json.loads(_weft("estimate", os.fspath(model), "--gpu", gpu, "--format", "json", *_options(options)))


def plan(set_file: Path, fleet: Path, **options: Any) -> dict[str, Any]:
    """`weft plan -o -` (docs/plan-json.md): which model runs on which slice. Error.status is "infeasible" where no plan
    meets the demands."""
    return json.loads(_weft("plan", os.fspath(set_file), "--fleet", os.fspath(fleet), "-o", "-", *_options(options)))
