"""The part of onnxruntime's interface that most scripts use: `import weft.onnxruntime as onnxruntime`.

InferenceSession compiles the model for this machine's CPU and runs it. Options that Weft does not have are named in
one warning; what it cannot do raises NotImplementedError.
"""
from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np

from . import __version__ as __version__
from ._bundle import Bundle, Error, Tensor
from ._command import compile as _compile

_ELEMENTS = {"f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
             "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
             "bool": "bool"}
_warned: set[str] = set()


def _ignored(what: str) -> None:
    if what not in _warned:
        _warned.add(what)
        warnings.warn(f"weft.onnxruntime ignores {what}", stacklevel=3)


class SessionOptions:
    """intra_op_num_threads is used; other options are ignored."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "intra_op_num_threads":
            _ignored(f"SessionOptions.{name}")
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class NodeArg:
    name: str
    shape: list[Union[int, str]]
    type: str


def _node(t: Tensor) -> NodeArg:
    return NodeArg(t.name, list(t.shape), f"tensor({_ELEMENTS.get(t.type, t.type)})")


def get_available_providers() -> list[str]:
    return ["CPUExecutionProvider"]


def get_device() -> str:
    return "CPU"


class InferenceSession:
    def __init__(self, path_or_bytes: Union[str, os.PathLike, bytes], sess_options: Optional[SessionOptions] = None,
                 providers: Optional[Sequence[Any]] = None, provider_options: Any = None, **options: Any):
        for provider in providers or ():
            name = provider if isinstance(provider, str) else provider[0]
            if name != "CPUExecutionProvider":
                _ignored(f"the provider {name}")
        if provider_options:
            _ignored("provider_options")
        for name in options:
            _ignored(name)
        threads = sess_options.intra_op_num_threads if sess_options else 0
        with tempfile.TemporaryDirectory(prefix="weft-") as folder:
            model = path_or_bytes
            if isinstance(model, bytes):
                model = os.path.join(folder, "model.onnx")
                with open(model, "wb") as f:
                    f.write(path_or_bytes)
            bundle = os.path.join(folder, "model.weft")
            _compile(model, bundle)
            self._session = Bundle(bundle, threads=threads).session()  # stays mapped

    def get_inputs(self) -> list[NodeArg]:
        return [_node(t) for t in self._session.model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        return [_node(t) for t in self._session.model.outputs]

    def get_providers(self) -> list[str]:
        return get_available_providers()

    def run(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any],
            run_options: Any = None) -> list[np.ndarray]:
        if run_options is not None:
            _ignored("run_options")
        # onnxruntime takes lists and numbers, too; arrays of another type are refused by both.
        inputs = {t.name: np.asarray(input_feed[t.name], None if hasattr(input_feed[t.name], "dtype") else t.dtype)
                  for t in self._session.model.inputs if t.name in input_feed}
        unknown = set(input_feed) - set(inputs)
        if unknown:
            raise Error(f"no input is named {', '.join(sorted(unknown))}")
        got = self._session.run(inputs)
        names = output_names if output_names else list(got)
        for name in names:
            if name not in got:
                raise Error(f"no output is named {name}; the model has {', '.join(got)}")
        return [got[name] for name in names]

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"weft.onnxruntime has no InferenceSession.{name}")
