"""Heads of random graphs that newer opsets and onnxruntime's optimisers have: attention, RMS and rotary operators of
opset 23, Swish, fused operators of com.microsoft. As in graph_heads.py, None: no value fits."""
import math

import numpy as np

from graph_heads import elements

MS = "com.microsoft"


def _f32(test):
    return lambda v: v.dtype == "float32" and test(v)


def attention(m):
    """Keys and values of fewer heads than the queries; causal, soft cap, scale."""
    if m.graph.opset < 23:
        return None
    q = m.recent(_f32(lambda u: u.rank == 4 and u.known(1, 3) and 0 < elements(u.dims) < m.limit(6000)))
    if q is None:
        return None
    k = m.recent(_f32(lambda u: u.dims == q.dims)) or q
    v = m.recent(_f32(lambda u: u.dims == q.dims)) or k
    if q.wide * k.wide * q.dims[3] > 400:
        q = k = m.node("Tanh", [q], q.dims, -1, 1)
        v = q if v.wide > 60 else v
    attrs = {}
    if m.chance(0.4) and q.known(2):
        attrs["is_causal"] = 1
    if m.chance(0.3):
        attrs["softcap"] = m.pick((2.0, 30.0))
    if m.chance(0.4):
        attrs["scale"] = m.pick((0.125, 1.0, 0.3))
    return m.node("Attention", [q, k, v], q.dims, min(v.lo, 0), max(v.hi, 0), attrs=attrs)


def rms_norm(m):
    if m.graph.opset < 23:
        return None
    v = m.recent(_f32(lambda u: u.rank >= 1 and u.known(-1) and u.dims[-1] > 1))
    if v is None:
        return None
    most = 2 * math.sqrt(v.dims[-1]) + 1
    return m.node("RMSNormalization", [v, m.constant(m.array(v.dims[-1:], v.dtype, -1, 2))], v.dims, -most, most,
                  attrs={"axis": m.pick((-1, v.rank - 1)), "epsilon": m.pick((1e-5, 1e-2))})


def rotary(m):
    """Heads of an even size, at given positions."""
    if m.graph.opset < 23:
        return None
    v = m.recent(_f32(lambda u: u.rank == 4 and u.known(0, 1, 2, 3) and u.dims[3] % 2 == 0 and 0 not in u.dims))
    if v is None:
        return None
    batch, _, length, size = v.dims
    angle = m.rng.uniform(0, 6, (length + 4, size // 2))
    where = m.rng.randint(0, length + 4, (batch, length)).astype(np.int64)
    tables = [m.constant(f(angle).astype(np.float32)) for f in (np.cos, np.sin)]
    return m.node("RotaryEmbedding", [v, *tables, m.constant(where)], v.dims, -2 * v.wide, 2 * v.wide,
                  attrs={"interleaved": 1} if m.chance(0.5) else {})


def swish(m):
    v = m.recent(_f32(lambda u: u.wide < 30)) if m.graph.opset >= 24 else None
    if v is None:
        return None
    return m.node("Swish", [v], v.dims, min(v.lo, -1), max(v.hi, 1), attrs={"alpha": m.pick((1.0, 1.702))})


def fused_gelu(m):
    v = m.recent(_f32(lambda u: u.rank >= 2 and u.known(-1) and u.dims[-1] > 0 and u.wide < 30))
    if v is None:
        return None
    op = m.pick(("BiasGelu", "FastGelu", "QuickGelu", "Gelu"))
    inputs = [v] + ([m.constant(m.array(v.dims[-1:], v.dtype))] if op in ("BiasGelu", "FastGelu") else [])
    return m.node(op, inputs, v.dims, -2, max(v.hi, 0) + 2, domain=MS)


def skip_norm(m):
    v = m.recent(_f32(lambda u: u.rank == 3 and u.known(-1) and u.dims[-1] > 1 and u.wide < 60))
    if v is None:
        return None
    skip = m.recent(_f32(lambda u: u.dims == v.dims and u.wide < 60)) or v
    size = v.dims[-1:]
    most = 2 * math.sqrt(size[0]) + 1
    inputs = [v, skip, m.constant(m.array(size, v.dtype, -1, 2)), m.constant(m.array(size, v.dtype))]
    if m.chance(0.5):
        inputs.append(m.constant(m.array(size, v.dtype)))
    return m.node("SkipLayerNormalization", inputs, v.dims, -most, most, attrs={"epsilon": 1e-2}, domain=MS)


def fused_matmul(m):
    v = m.recent(_f32(lambda u: u.rank >= 2 and u.known(-1) and u.dims[-1] > 0 and elements(u.dims) < m.limit(20000)))
    if v is None:
        return None
    k, n, alpha = v.dims[-1], m.size(), m.pick((1.0, 0.5, -1.7))
    turn = m.chance(0.5)
    w, most = m.weight((n, k) if turn else (k, n), v.dtype, k)
    bound = abs(alpha) * k * most * v.wide
    return m.node("FusedMatMul", [v, w], v.dims[:-1] + (n,), -bound, bound, attrs={"alpha": alpha, "transB": int(turn)},
                  domain=MS)


def fused_conv(m):
    """An activation of its own, behind an operand that is added."""
    v = m.recent(_f32(lambda u: u.rank == 4 and u.known(1, 2, 3) and u.dims[1] > 0 and elements(u.dims) < m.limit(9000)))
    if v is None:
        return None
    c, features = v.dims[1], m.pick((1, 3, 8, 16))
    w, most = m.weight((features, c, 3, 3), v.dtype, 9 * c)
    inputs = [v, w, m.constant(m.array((features,), v.dtype))]
    bound = 9 * c * most * v.wide + 3
    if m.chance(0.4) and v.known(0):
        inputs.append(m.constant(m.array((v.dims[0], features) + v.dims[2:], v.dtype)))
    act, params = m.pick((("Relu", []), ("LeakyRelu", [0.1]), ("Sigmoid", []), ("Tanh", []), ("Clip", [-0.5, 0.75]),
                          ("HardSigmoid", [0.2, 0.4])))
    attrs = {"kernel_shape": [3, 3], "pads": [1] * 4, "activation": act}
    if params:
        attrs["activation_params"] = params
    return m.node("FusedConv", inputs, (v.dims[0], features) + v.dims[2:], -bound, bound, attrs=attrs, domain=MS)


NEWER_HEADS = ((attention, 4), (rms_norm, 3), (rotary, 3), (swish, 1), (fused_gelu, 1.5), (skip_norm, 1.5),
               (fused_matmul, 1.5), (fused_conv, 1.5))
