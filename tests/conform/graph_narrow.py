"""Random graphs in bfloat16. onnxruntime computes hardly anything in it on CPUs: the oracle gets the same graph in
f32, with weights and inputs that bfloat16 holds exactly, and the answers are compared as bfloat16's few bits allow."""
import numpy as np

from onnx_file import Node, Port

try:
    import ml_dtypes
    BF16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:  # without the packages of the oracles
    BF16 = None

# Operators with an f32 operand that stays f32, or whose result jumps where bits are few.
KEPT = ("Resize", "QuantizeLinear", "DequantizeLinear", "Cast", "Floor", "Ceil", "Round", "Sign", "Greater", "Less", "Equal",
        "GreaterOrEqual", "LessOrEqual")


def is_bf16(graph):
    return BF16 is not None and (any(a.dtype == BF16 for a in graph.constants.values()) or
                                 any(p.dtype == "bfloat16" for p in graph.inputs))


def _changed(graph, old, new, of_array):
    out = graph.copy()
    out.constants = {k: of_array(np.asarray(a)) for k, a in graph.constants.items()}
    out.inputs = [Port(p.name, new if p.dtype == old else p.dtype, p.dims) for p in graph.inputs]
    out.outputs = [Port(p.name, new if p.dtype == old else p.dtype, p.dims) for p in graph.outputs]
    out.nodes = [Node(n.op, n.inputs, n.outputs, n.attrs, n.domain) for n in graph.nodes]
    out.dtypes = {k: new if d == old else d for k, d in graph.dtypes.items()}
    return out


def narrow(graph):
    """A graph of f32 in bfloat16; None: it has other types, or operators of KEPT."""
    if BF16 is None or any(n.op in KEPT or n.domain for n in graph.nodes) or \
            any(d not in ("float32", "int64", "bool") for d in graph.dtypes.values()):
        return None
    return _changed(graph, "float32", "bfloat16", lambda a: a.astype(BF16) if a.dtype == np.float32 else a)


def widen(graph):
    """The inverse: the same numbers in f32."""
    return _changed(graph, "bfloat16", "float32", wide)


def wide(array):
    return array.astype(np.float32) if array.dtype == BF16 else array


def narrow_inputs(inputs):
    return {k: a.astype(BF16) if a.dtype == np.float32 else a for k, a in inputs.items()}
