"""libweft by ctypes: the structures of weft.h and its functions. Calls release the GIL."""
import ctypes
import importlib.resources
import os
from ctypes import (POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32,
                    c_uint64, c_void_p)

DIMS_MAX = 8


class ErrorText(Structure):
    _fields_ = [("status", c_int), ("text", c_char * 1020)]


class Options(Structure):
    _fields_ = [("driver", c_char_p), ("threads", c_uint32), ("cpu", POINTER(c_uint32)), ("n_cpu", c_uint32),
                ("gpu", c_uint32), ("sm_first", c_uint32), ("n_sm", c_uint32), ("time_limit_s", c_double),
                ("memory_limit_bytes", c_uint64), ("reserved", c_uint64 * 8)]


class TensorInfo(Structure):
    _fields_ = [("name", c_char_p), ("type", c_int), ("rank", c_int32), ("dim", c_int64 * DIMS_MAX),
                ("dim_text", c_char_p * DIMS_MAX), ("dim_min", c_int64 * DIMS_MAX),
                ("dim_max", c_int64 * DIMS_MAX)]


class EstimateInfo(Structure):
    _fields_ = [("device", c_char_p), ("slice", c_char_p), ("batch", c_uint32), ("processes", c_uint32),
                ("time_us", c_double), ("creq", c_double), ("mreq_bytes", c_uint64), ("energy_j", c_double),
                ("throughput_per_s", c_double), ("expected_error", c_double), ("source", c_char_p)]


class ModelInfo(Structure):
    _fields_ = [("name", c_char_p), ("input", POINTER(TensorInfo)), ("output", POINTER(TensorInfo)),
                ("n_input", c_uint32), ("n_output", c_uint32), ("batch", POINTER(c_uint32)),
                ("n_batch", c_uint32), ("slo_us", c_double), ("rate_per_s", c_double),
                ("estimate", POINTER(EstimateInfo)), ("n_estimate", c_uint32)]


class Array(Structure):
    _fields_ = [("type", c_int), ("rank", c_int32), ("dim", c_int64 * DIMS_MAX), ("data", c_void_p),
                ("bytes", c_size_t)]


class KernelInfo(Structure):
    _fields_ = [("model", c_char_p), ("op", c_char_p), ("item", c_char_p), ("variant", c_char_p),
                ("time_us", c_double)]


_handle, _error, _arrays = c_void_p, POINTER(ErrorText), POINTER(Array)
_FUNCTIONS = {
    "weft_version": (c_char_p,),
    "weft_open": (_handle, c_char_p, POINTER(Options), _error),
    "weft_open_memory": (_handle, c_char_p, c_size_t, POINTER(Options), _error),
    "weft_close": (None, _handle),
    "weft_describe": (POINTER(ModelInfo), _handle, c_uint32),
    "weft_built_for": (c_char_p, _handle),
    "weft_planned": (c_char_p, _handle),
    "weft_name_of": (c_char_p, c_int),
    "weft_start_joint": (_handle, _handle, POINTER(c_char_p), c_uint32, _error),
    "weft_stop": (None, _handle),
    "weft_joined_by": (c_char_p, _handle),
    "weft_measure": (c_int, _handle, _arrays, c_uint32, _arrays, c_uint32, _error),
    "weft_prepare": (c_int, _handle, _arrays, c_uint32, _error),
    "weft_run": (c_int, _handle, _arrays, c_uint32, _arrays, c_uint32, _error),
    "weft_watch": (None, _handle, c_int),
    "weft_kernels": (POINTER(KernelInfo), _handle, POINTER(c_uint32)),
}


def packaged(*path):
    """A file of this package; None: it was installed without."""
    at = importlib.resources.files("weft").joinpath(*path)
    return str(at) if at.is_file() else None


def _load():
    """WEFT_LIBRARY, the library of the wheel, or that of the system."""
    path = os.environ.get("WEFT_LIBRARY") or packaged("lib", "libweft.so.1") or "libweft.so.1"
    loaded = ctypes.CDLL(path)
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


lib = _load()
