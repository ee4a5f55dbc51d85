"""Bundles and sessions over NumPy arrays."""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Mapping, NoReturn, Optional, Sequence, Union

import numpy as np

from . import _native
from ._native import Array, ErrorText, lib

_STATUS = {1: "input", 2: "unsupported", 3: "no memory", 4: "no device", 5: "io", 6: "internal"}
_NUMPY = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8",
          "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
          "u64": "uint64", "bool": "bool", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz",
          "f8e5m2": "float8_e5m2", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu",
          "f6e2m3": "float6_e2m3fn", "f6e3m2": "float6_e3m2fn", "f4e2m1": "float4_e2m1fn", "i4": "int4",
          "u4": "uint4", "i2": "int2", "u2": "uint2"}

_NUMBER = {lib.weft_name_of(k).decode(): k for k in range(1, len(_NUMPY) + 1)}


class Error(RuntimeError):
    """What Weft refused, and why. `status` is one word of: input, unsupported, no memory, no device, io,
    internal, infeasible."""

    def __init__(self, text: str, status: str = "input"):
        super().__init__(text)
        self.status = status


def _fail(error: ErrorText) -> Error:
    return Error(error.text.decode(errors="replace"), _STATUS.get(error.status, "internal"))


@dataclass(frozen=True)
class Tensor:
    """An input or output: a dim is an int, or a text such as "batch" or "2*seq"."""
    name: str
    type: str
    shape: tuple[Union[int, str], ...]
    shape_min: tuple[int, ...]
    shape_max: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        name = _NUMPY[self.type]
        try:
            return np.dtype(name)
        except TypeError:
            pass
        try:
            import ml_dtypes
            return np.dtype(getattr(ml_dtypes, name))
        except (ImportError, AttributeError):
            raise Error(f"{self.name}: type {self.type} needs a newer package ml_dtypes", "unsupported") from None


@dataclass(frozen=True)
class Estimate:
    """Of one execution on a device or slice; from `weft compile --gpu`."""
    device: str
    slice: str
    batch: int
    processes: int
    time_us: float
    creq: float
    mreq_bytes: int
    energy_j: float
    throughput_per_s: float
    expected_error: float
    source: str


@dataclass(frozen=True)
class Model:
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batches: tuple[int, ...]
    slo_us: float
    rate_per_s: float
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True)
class Kernel:
    """Mean time of a kernel over the runs since Session.watch."""
    model: str
    op: str
    node: str
    variant: str
    time_us: float


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _record(kind: type, info: ctypes.Structure) -> Any:
    return kind(*(_plain(getattr(info, name)) for name, _ in info._fields_))


def _tensor(info: _native.TensorInfo) -> Tensor:
    n = info.rank
    shape = tuple(d if d >= 0 else text.decode() for d, text in zip(info.dim[:n], info.dim_text[:n]))
    return Tensor(info.name.decode(), lib.weft_name_of(info.type).decode(), shape, tuple(info.dim_min[:n]),
                  tuple(info.dim_max[:n]))


def _model(info: _native.ModelInfo) -> Model:
    return Model(info.name.decode(), tuple(_tensor(info.input[i]) for i in range(info.n_input)),
                 tuple(_tensor(info.output[i]) for i in range(info.n_output)),
                 tuple(info.batch[i] for i in range(info.n_batch)), info.slo_us, info.rate_per_s,
                 tuple(_record(Estimate, info.estimate[i]) for i in range(info.n_estimate)))


class Bundle:
    """An open bundle: a path, or the bytes of one. Its sessions run on one slice of a device: `threads`, `cpus`
    (which threads that run are then bound to), `gpu`, `sms` = (number, first) of a green context."""

    def __init__(self, source: Union[str, os.PathLike, bytes], *, driver: Optional[str] = None, threads: int = 0,
                 cpus: Sequence[int] = (), gpu: int = 0, sms: tuple[int, int] = (0, 0), time_limit_s: float = 0,
                 memory_limit_bytes: int = 0):
        error = ErrorText()
        cpu = (ctypes.c_uint32 * len(cpus))(*cpus)
        options = _native.Options(driver.encode() if driver else None, threads, cpu if cpus else None, len(cpus),
                                  gpu, sms[1], sms[0], time_limit_s, memory_limit_bytes)
        if isinstance(source, bytes):
            handle = lib.weft_open_memory(source, len(source), options, error)
        else:
            handle = lib.weft_open(os.fsencode(source), options, error)
        if not handle:
            raise _fail(error)
        self._handle = handle
        self._close = weakref.finalize(self, lib.weft_close, handle)
        self.models: dict[str, Model] = {}
        while info := lib.weft_describe(handle, len(self.models)):
            model = _model(info.contents)
            self.models[model.name] = model
        self.target: str = lib.weft_built_for(handle).decode()
        #: Text of the plan.json in the bundle, if there is one.
        self.plan: Optional[str] = _plain(lib.weft_planned(handle))
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<weft.Bundle for {self.target}: {', '.join(self.models)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bundle cannot be pickled: open it in each process")

    def session(self, model: Optional[str] = None) -> Session:
        """A model that runs. Without a name: the only one of the bundle."""
        if model is None and len(self.models) == 1:
            model = next(iter(self.models))
        if model is None:
            raise Error(f"the bundle has {len(self.models)} models, name one: {', '.join(self.models)}")
        return Session(self, [model])

    def joint(self, models: Sequence[str]) -> JointSession:
        """Several models that run together, by the bundle's joint program for them where there is one."""
        return JointSession(self, models)

    def run(self, model: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """A run by a session that the bundle keeps for the model."""
        with self._lock:
            if model not in self._sessions:
                self._sessions[model] = self.session(model)
            session = self._sessions[model]
        return session.run(inputs)


class _Runner:
    """What sessions of one and of several models share: runs of lists of arrays."""

    def __init__(self, bundle: Bundle, models: Sequence[str]):
        error = ErrorText()
        names = (ctypes.c_char_p * len(models))(*(name.encode() for name in models))
        handle = lib.weft_start_joint(bundle._handle, names, len(models), error)
        if not handle:
            known = ", ".join(bundle.models)
            raise _fail(error) if all(m in bundle.models for m in models) else Error(
                f"{error.text.decode(errors='replace')}: {known}")
        self._handle = handle
        self._stop = weakref.finalize(self, lib.weft_stop, handle)
        self._models = [bundle.models[name] for name in models]
        self._in = [t for m in self._models for t in m.inputs]
        self._out = [t for m in self._models for t in m.outputs]
        self._in_dtype = [t.dtype for t in self._in]
        self._out_dtype = [t.dtype for t in self._out]
        self._sizes: dict[tuple, _Sizes] = {}
        self._lock = threading.Lock()
        self._worker: Optional[ThreadPoolExecutor] = None

    @property
    def joint_program(self) -> Optional[str]:
        """Name of the joint program that runs several models; None: there is none for them."""
        return _plain(lib.weft_joined_by(self._handle))

    def watch(self, on: bool = True) -> None:
        """Times kernels from now on, or no longer."""
        lib.weft_watch(self._handle, on)

    def kernels(self) -> list[Kernel]:
        n = ctypes.c_uint32()
        with self._lock:
            info = lib.weft_kernels(self._handle, n)
            return [_record(Kernel, info[i]) for i in range(n.value)]

    def _take(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The inputs as dense arrays of the model's types."""
        kept = []
        for value, dtype, info in zip(values, self._in_dtype, self._in):
            a = value if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__") else np.from_dlpack(value)
            a = np.asarray(a)
            if a.dtype != dtype:
                raise Error(f"input {info.name} has dtype {a.dtype}, the model takes {dtype}")
            kept.append(a if a.flags.c_contiguous else np.ascontiguousarray(a))
        return kept

    def _measure(self, kept: Sequence[np.ndarray]) -> _Sizes:
        """What runs on inputs of these shapes have in common."""
        shapes = tuple(a.shape for a in kept)
        sizes = self._sizes.get(shapes)
        if sizes is None:
            error, arrays, out = ErrorText(), (Array * len(kept))(), (Array * len(self._out))()
            for array, a, info in zip(arrays, kept, self._in):
                _describe(array, a, info)
            if lib.weft_measure(self._handle, arrays, len(arrays), out, len(out), error):
                raise _fail(error)
            sizes = _Sizes(arrays, out)
            if len(self._sizes) >= 64:
                self._sizes.clear()
            self._sizes[shapes] = sizes
        return sizes

    def _run(self, values: Sequence[Any], given: Sequence[Optional[np.ndarray]]) -> list[np.ndarray]:
        kept = self._take(values)
        sizes = self._measure(kept)
        arrays, out, result = sizes.arrays(), sizes.out(), []
        for array, a in zip(arrays, kept):
            array.data = _address(a)
        for i, (own, shape, dtype) in enumerate(zip(given, sizes.shapes, self._out_dtype)):
            if own is not None:
                _check_output(self._out[i], own, dtype, shape)
            elif shape is not None:
                own = np.empty(shape, dtype)
            if own is not None:
                out[i].data = _address(own)
            result.append(own)
        error = _error()
        if None not in sizes.shapes or all(a is not None for a in result):
            if lib.weft_run(self._handle, arrays, len(arrays), out, len(out), error):
                raise _fail(error)
            return result
        # An output of unknown size is in the session's memory until its next run.
        with self._lock:
            if lib.weft_run(self._handle, arrays, len(arrays), out, len(out), error):
                raise _fail(error)
            for i, a in enumerate(result):
                if a is None:
                    text = ctypes.string_at(out[i].data, out[i].bytes) if out[i].bytes else b""
                    result[i] = np.frombuffer(bytearray(text), self._out_dtype[i]).reshape(out[i].dim[:out[i].rank])
        return result

    def _submit(self, call: Any, *arguments: Any) -> Future:
        with self._lock:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "weft")
        return self._worker.submit(call, *arguments)


_own = threading.local()


def _error() -> ErrorText:
    """One of the thread, for calls that are often made: it is read before the thread's next call."""
    try:
        return _own.error
    except AttributeError:
        _own.error = ErrorText()
        return _own.error


class _Sizes:
    """Structures for runs on inputs of equal shapes, without the addresses; `shapes` of the outputs, None: only a run
    can tell."""

    def __init__(self, arrays: Any, out: Any):
        self.shapes = [None if -1 in a.dim[:a.rank] else tuple(a.dim[:a.rank]) for a in out]
        for a in (*arrays, *out):
            a.data = None
        self._arrays, self._out = bytes(arrays), bytes(out)
        self._types = type(arrays), type(out)

    def arrays(self) -> Any:
        return self._types[0].from_buffer_copy(self._arrays)

    def out(self) -> Any:
        return self._types[1].from_buffer_copy(self._out)


def _address(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]  # a.ctypes.data takes several times as long


def _describe(out: Array, a: np.ndarray, info: Tensor) -> None:
    if a.ndim > _native.DIMS_MAX:
        raise Error(f"{info.name} has {a.ndim} dims, the limit is {_native.DIMS_MAX}")
    out.type, out.rank, out.data, out.bytes = _NUMBER[info.type], a.ndim, _address(a), a.nbytes
    out.dim[:a.ndim] = a.shape


def _check_output(info: Tensor, own: Any, dtype: np.dtype, shape: Optional[tuple[int, ...]]) -> None:
    if not isinstance(own, np.ndarray) or own.dtype != dtype or not own.flags.c_contiguous or not own.flags.writeable:
        raise Error(f"output {info.name} wants a writeable, contiguous array of {dtype}")
    if own.shape != shape:
        raise Error(f"output {info.name} has the shape {shape or 'that a run tells'}, the array {own.shape}")


def _by_name(ports: Sequence[Tensor], values: Mapping[str, Any], what: str, model: str) -> list[Any]:
    """Values in the order of the model's ports."""
    if what == "output" and not values:
        return [None] * len(ports)
    if what == "input" and len(values) == len(ports):
        try:
            return [values[t.name] for t in ports]
        except KeyError:
            pass  # said below
    known = {t.name for t in ports}
    for name in values:
        if name not in known:
            raise Error(f"{model}: no {what} is named {name}; it has {', '.join(t.name for t in ports)}")
    if what == "output":
        return [values.get(t.name) for t in ports]
    for t in ports:
        if t.name not in values:
            raise Error(f"{model}: {what} {t.name} is missing")
    return [values[t.name] for t in ports]


class Session(_Runner):
    """One model that runs. Threads may share it; its runs wait for each other, and release the GIL."""

    @property
    def model(self) -> Model:
        return self._models[0]

    def run(self, inputs: Mapping[str, Any], outputs: Optional[Mapping[str, np.ndarray]] = None) -> dict[str, np.ndarray]:
        """Runs once. Contiguous arrays and DLPack tensors of the host are read where they are; `outputs` are arrays to
        write into, others are made."""
        name = self.model.name
        got = self._run(_by_name(self._in, inputs, "input", name), _by_name(self._out, outputs or {}, "output", name))
        return {t.name: a for t, a in zip(self._out, got)}

    def run_async(self, inputs: Mapping[str, Any], outputs: Optional[Mapping[str, np.ndarray]] = None) -> Future:
        """The same on a thread of the session, in the order of the calls."""
        return self._submit(self.run, inputs, outputs)


class JointSession(_Runner):
    """Several models that run together: inputs and outputs by model, then by name."""

    @property
    def models(self) -> list[Model]:
        return list(self._models)

    def run(self, inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
        values: list[Any] = []
        for m in self._models:
            if m.name not in inputs:
                raise Error(f"model {m.name} has no inputs")
            values += _by_name(m.inputs, inputs[m.name], "input", m.name)
        if len(inputs) != len(self._models):
            raise Error(f"inputs for {', '.join(set(inputs) - {m.name for m in self._models})}, which is not run")
        got = iter(self._run(values, [None] * len(self._out)))
        return {m.name: {t.name: next(got) for t in m.outputs} for m in self._models}

    def run_async(self, inputs: Mapping[str, Mapping[str, Any]]) -> Future:
        return self._submit(self.run, inputs)
