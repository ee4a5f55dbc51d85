#!/usr/bin/env python3
"""Quantised models beside onnxruntime: every quantised operator of com.microsoft with random and with
tied values, small networks by onnxruntime's quantisers (static as QDQ and QOperator, u8 and s8
activations, per tensor and per channel, and dynamic), and chains of random quantised operators.

An answer is right if it differs from onnxruntime's by at most one unit of the output's scale, for
networks UNITS of them, because a tie that is rounded the other way inside changes later values; the
error against the float network is at most that of onnxruntime.

usage: quantised.py WEFT [--only PART] [--chains N] [--seed S] [--gpu DOUBLES]

--gpu: the same compiled for a GPU, on the doubles of NVIDIA's libraries in that folder (tests/doubles), or on
the GPU of this machine if the folder is empty. Without times. What GPUs refuse is counted, by message.
(77: the packages cannot be had)
"""

import argparse
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import saturation

MS = "com.microsoft"
UNITS = 4  # of the output's scale, for networks of a dozen quantised operators
U8, S8 = np.uint8, np.int8
TYPE = {np.dtype(U8): TensorProto.UINT8, np.dtype(S8): TensorProto.INT8,
        np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32,
        np.dtype(np.int64): TensorProto.INT64, np.dtype(bool): TensorProto.BOOL}


def model_of(nodes, inputs, outputs, constants, opset=17):
    """inputs: {name: array}; outputs: {name: element type}; constants: {name: array}."""
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, TYPE[x.dtype], x.shape) for n, x in inputs.items()],
        [helper.make_tensor_value_info(n, TYPE[np.dtype(t)], None) for n, t in outputs.items()],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset),
                                                    helper.make_opsetid(MS, 1)], ir_version=8)
    return model


class Check:
    def __init__(self, weft, gpu=None):
        self.weft, self.failed, self.n, self.refused = weft, 0, 0, {}
        self.options = [] if gpu is None else ["--target", "sm_90"]
        self.env = {"LD_LIBRARY_PATH": gpu, "WEFT_DOUBLE_CACHE": os.path.join(gpu, "cache"), "WEFT_KERNEL_CACHE": "off"} if gpu else {}
        self.folder = tempfile.mkdtemp(prefix="weft-quantised-")
        self.saturates = saturation.saturates()

    def run(self, model, inputs, optimise=False):
        """(Weft's, onnxruntime's) outputs."""
        path = os.path.join(self.folder, "model.onnx")
        bundle = os.path.join(self.folder, "model.weft")
        onnx.save(model, path)
        self.compile(path, bundle)
        names = [o.name for o in model.graph.output]
        peer = saturation.exact(model).SerializeToString() if self.saturates else path
        want = oracle.answers(peer, inputs, names, optimise)
        return self.answers(bundle, inputs, names), want

    def compile(self, path, bundle):
        oracle.compile_models(self.weft, [path], bundle, *self.options, env=self.env)

    def answers(self, bundle, inputs, names):
        return oracle.run_bundle(self.weft, bundle, inputs, names, self.folder, env=self.env)

    def one(self, what, model, inputs, unit=1.0):
        """Outputs of bytes agree within one; floats within `unit`, and 1e-5 of the scale."""
        self.n += 1
        try:
            got, want = self.run(model, inputs)
        except oracle.Failed as e:
            self.fail(what, str(e))
            return
        for name, w in want.items():
            g = got[name]
            if g.shape != w.shape or g.dtype != w.dtype:
                self.fail(what, f"{name}: {g.dtype}{list(g.shape)}, expected {w.dtype}{list(w.shape)}")
                return
            error = np.abs(g.astype(np.float64) - w.astype(np.float64))
            bound = 1 if w.dtype in (U8, S8) else unit + 1e-5 * np.abs(w.astype(np.float64)).max(initial=0)
            if not np.all(error <= bound):
                self.fail(what, f"{name}: {np.sum(~(error <= bound))} of {w.size} elements differ, by up to "
                                f"{error.max()}, bound {bound}")
                return

    def fail(self, what, text):
        refusal = re.search(r"error: .*?(\w+: (no CUDA kernel|.*--target cpu).*)", text)
        if self.options and refusal:
            self.refused[refusal.group(1)] = self.refused.get(refusal.group(1), 0) + 1
            return
        self.failed += 1
        print(f"{what}: {text}")


# -- Operators -----------------------------------------------------------------------------------


def some(rng, dtype, shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def params(rng, name, dtype, tied=False):
    """Scale and zero point as constants; tied: powers of two, so that many results are ties."""
    scale = np.float32(2.0 ** rng.integers(-3, 1)) if tied else np.float32(rng.uniform(0.01, 0.1))
    return {name + "_s": scale, name + "_z": some(rng, dtype, ())}


def operators(check, rng):
    for dtype in (U8, S8):
        for tied in (False, True):
            x, y = some(rng, dtype, (2, 3, 5, 7)), some(rng, dtype, (2, 3, 5, 7))
            c = {}
            for name in "xyo":
                c.update(params(rng, name, dtype, tied))
            tag = f"{np.dtype(dtype).name}{' tied' if tied else ''}"
            three = ["x", "x_s", "x_z"]
            for op in ("QLinearAdd", "QLinearMul"):
                node = helper.make_node(op, three + ["y", "y_s", "y_z", "o_s", "o_z"], ["o"], domain=MS)
                check.one(f"{op} {tag}", model_of([node], {"x": x, "y": y}, {"o": dtype}, c), {"x": x, "y": y})
                const = dict(c, y=some(rng, dtype, (3, 1, 1)))
                check.one(f"{op} {tag} constant", model_of([node], {"x": x}, {"o": dtype}, const), {"x": x})
            unary = {"QLinearLeakyRelu": {"alpha": 0.1}, "QLinearSigmoid": {},
                     "QLinearGlobalAveragePool": {"channels_last": 0},
                     "QLinearAveragePool": {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 1, 0, 1]},
                     "QLinearSoftmax": {"axis": -1, "opset": 13}}
            for op, attrs in unary.items():
                node = helper.make_node(op, three + ["o_s", "o_z"], ["o"], domain=MS, **attrs)
                check.one(f"{op} {tag}", model_of([node], {"x": x}, {"o": dtype}, c), {"x": x})
            node = helper.make_node("QLinearSoftmax", three + ["o_s", "o_z"], ["o"], domain=MS, axis=1, opset=11)
            check.one(f"QLinearSoftmax flattened {tag}", model_of([node], {"x": x}, {"o": dtype}, c), {"x": x})
            node = helper.make_node("QLinearConcat", ["o_s", "o_z"] + three + ["y", "y_s", "y_z"], ["o"],
                                    domain=MS, axis=1)
            check.one(f"QLinearConcat {tag}", model_of([node], {"x": x, "y": y}, {"o": dtype}, c),
                      {"x": x, "y": y})
            cond = rng.integers(0, 2, x.shape).astype(bool)
            node = helper.make_node("QLinearWhere", ["c"] + three + ["y", "y_s", "y_z", "o_s", "o_z"], ["o"],
                                    domain=MS)
            check.one(f"QLinearWhere {tag}", model_of([node], {"c": cond, "x": x, "y": y}, {"o": dtype}, c),
                      {"c": cond, "x": x, "y": y})
            quantise(check, rng, dtype, tag, tied, c)


def quantise(check, rng, dtype, tag, tied, c):
    x = rng.normal(0, 4, (3, 40)).astype(np.float32)
    if tied:
        x = (rng.integers(-64, 64, (3, 40)) / 16).astype(np.float32)
    x[0, :4] = np.inf, -np.inf, np.nan, 1e30
    for domain in ("", MS):
        q = helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["q"], domain=domain)
        d = helper.make_node("DequantizeLinear", ["q", "x_s", "x_z"], ["o"], domain=domain)
        check.one(f"QuantizeLinear {tag} {domain}",
                  model_of([q, d], {"x": x}, {"q": dtype, "o": np.float32}, c), {"x": x})


def gemms(check, rng):
    for a_type, b_type in ((U8, U8), (U8, S8), (S8, S8)):
        for per_channel in (False, True):
            for symmetric in (False, True):
                a, b = some(rng, a_type, (6, 33)), some(rng, b_type, (33, 17))
                n = 17 if per_channel else 1
                c = dict(params(rng, "a", a_type), **params(rng, "o", a_type), b=b,
                         b_s=rng.uniform(0.001, 0.01, n).astype(np.float32), b_z=some(rng, b_type, n))
                c["o_s"] = np.float32(rng.uniform(0.05, 0.2))
                if symmetric:
                    c["b_z"] = np.full(n, 128 if b_type == U8 else 0, b_type)
                if not per_channel:
                    c["b_s"], c["b_z"] = c["b_s"][0], c["b_z"][0]
                one_gemm(check, rng, a, c, f"{np.dtype(a_type).name} {np.dtype(b_type).name}"
                         f"{' per channel' if per_channel else ''}{' symmetric' if symmetric else ''}")


def one_gemm(check, rng, a, c, tag):
    unit = float(np.max(c["b_s"]) * c["a_s"])
    bias = rng.integers(-3000, 3000, 17).astype(np.int32)
    for alpha, with_bias, to_float in ((1.0, True, False), (0.5, False, False), (1.0, True, True)):
        names = ["a", "a_s", "a_z", "b", "b_s", "b_z", "bias" if with_bias else ""]
        if not to_float:
            names += ["o_s", "o_z"]
        node = helper.make_node("QGemm", names, ["o"], domain=MS, alpha=alpha)
        out = np.float32 if to_float else a.dtype
        check.one(f"QGemm {tag} {alpha}", model_of([node], {"a": a}, {"o": out}, dict(c, bias=bias)), {"a": a},
                  unit)
    node = helper.make_node("QGemm", ["a", "a_s", "a_z", "t", "b_s", "b_z", "bias", "o_s", "o_z"], ["o"],
                            domain=MS, transB=1)
    moved = dict({k: v for k, v in c.items() if k != "b"}, t=np.ascontiguousarray(c["b"].T), bias=bias)
    check.one(f"QGemm {tag} transB", model_of([node], {"a": a}, {"o": a.dtype}, moved), {"a": a})
    node = helper.make_node("QLinearMatMul", ["a", "a_s", "a_z", "b", "b_s", "b_z", "o_s", "o_z"], ["o"])
    check.one(f"QLinearMatMul {tag}", model_of([node], {"a": a}, {"o": a.dtype}, c), {"a": a})
    real = rng.normal(0, 1, 17).astype(np.float32)
    node = helper.make_node("MatMulIntegerToFloat", ["a", "b", "a_s", "b_s", "a_z", "b_z", "real"], ["o"],
                            domain=MS)
    check.one(f"MatMulIntegerToFloat {tag}",
              model_of([node], {"a": a}, {"o": np.float32}, dict(c, real=real)), {"a": a}, unit)
    if a.dtype == U8:
        x = rng.normal(0, 1, a.shape).astype(np.float32)
        node = helper.make_node("DynamicQuantizeMatMul", ["x", "b", "b_s", "b_z", "real"], ["o"], domain=MS)
        check.one(f"DynamicQuantizeMatMul {tag}",
                  model_of([node], {"x": x}, {"o": np.float32}, dict(c, real=real)), {"x": x}, unit)


# -- Convolutions --------------------------------------------------------------------------------

CONVS = (  # input, weight, attributes
    ((1, 3, 15, 15), (16, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 16, 9, 9), (32, 16, 1, 1), {}),
    ((1, 24, 11, 8), (24, 1, 3, 3), {"group": 24, "pads": [1, 1, 1, 1]}),
    ((1, 16, 10, 10), (32, 8, 3, 3), {"group": 2, "pads": [1, 0, 1, 0]}),
    ((1, 32, 12, 12), (17, 32, 3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    ((1, 8, 20), (12, 8, 5), {"pads": [2, 2]}),
    ((1, 4, 6, 7, 5), (8, 4, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
)


def convolutions(check, rng):
    for number, (x_dim, w_dim, attrs) in enumerate(CONVS):
        for x_type, w_type in ((U8, S8), (U8, U8), (S8, S8)):
            for per_channel in (False, True):
                zeros = (0,) if w_type == S8 else (128, 117)
                for zero in zeros:
                    one_conv(check, rng, number, x_dim, w_dim, attrs, x_type, w_type, per_channel, zero)


def one_conv(check, rng, number, x_dim, w_dim, attrs, x_type, w_type, per_channel, zero):
    m = w_dim[0]
    x = some(rng, x_type, x_dim)
    n = m if per_channel else 1
    w_s = rng.uniform(0.002, 0.01, n).astype(np.float32)
    c = dict(params(rng, "x", x_type), w=some(rng, w_type, w_dim), w_s=w_s if per_channel else w_s[0],
             w_z=np.full(n, zero, w_type) if per_channel else np.array(zero, w_type),
             o_s=np.float32(rng.uniform(0.1, 0.3)), o_z=some(rng, x_type, ()),
             b=rng.integers(-5000, 5000, m).astype(np.int32))
    tag = f"{number} {np.dtype(x_type).name} {np.dtype(w_type).name} {zero}{' per channel' if per_channel else ''}"
    node = helper.make_node("QLinearConv", ["x", "x_s", "x_z", "w", "w_s", "w_z", "o_s", "o_z", "b"], ["o"], **attrs)
    check.one(f"QLinearConv {tag}", model_of([node], {"x": x}, {"o": x_type}, c), {"x": x})
    if per_channel or x_type != U8:
        return
    f = rng.normal(0, 1, x_dim).astype(np.float32)
    shape = [1, m] + [1] * (len(x_dim) - 2)
    c = {"w": c["w"], "w_s": c["w_s"], "w_z": c["w_z"], "b": rng.normal(0, 1, shape).astype(np.float32)}
    nodes = [helper.make_node("DynamicQuantizeLinear", ["f"], ["q", "s", "z"]),
             helper.make_node("ConvInteger", ["q", "w", "z", "w_z"], ["i"], **attrs),
             helper.make_node("Cast", ["i"], ["r"], to=TensorProto.FLOAT),
             helper.make_node("Mul", ["s", "w_s"], ["sw"]), helper.make_node("Mul", ["r", "sw"], ["y"]),
             helper.make_node("Add", ["y", "b"], ["o"])]
    check.one(f"ConvInteger {tag}", model_of(nodes, {"f": f}, {"o": np.float32}, c), {"f": f}, 1e-4)


def recurrent(check, rng):
    for direction in ("forward", "reverse", "bidirectional"):
        for per_gate in (False, True):
            d, h, i, s, b = (2 if direction == "bidirectional" else 1), 19, 13, 7, 3
            n = (d, 4 * h) if per_gate else (d,)
            for w_type in (S8, U8):
                zero = np.zeros(n, S8) if w_type == S8 else np.full(n, 131, U8)  # onnxruntime: all equal
                c = {"w": some(rng, w_type, (d, i, 4 * h)), "r": some(rng, w_type, (d, h, 4 * h)),
                     "b": rng.normal(0, 0.2, (d, 8 * h)).astype(np.float32), "z": zero,
                     "ws": rng.uniform(0.002, 0.004, n).astype(np.float32),
                     "rs": rng.uniform(0.002, 0.004, n).astype(np.float32)}
                x = {"x": rng.normal(0, 1, (s, b, i)).astype(np.float32),
                     "h0": rng.normal(0, 0.3, (d, b, h)).astype(np.float32),
                     "c0": rng.normal(0, 0.3, (d, b, h)).astype(np.float32)}
                node = helper.make_node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "h0", "c0", "", "ws", "z", "rs", "z"],
                                        ["y", "yh", "yc"], domain=MS, hidden_size=h, direction=direction)
                outs = {"y": np.float32, "yh": np.float32, "yc": np.float32}
                # A state that is rounded the other way changes by one unit, 1/255 of its range.
                check.one(f"DynamicQuantizeLSTM {direction} {per_gate} {np.dtype(w_type).name}",
                          model_of([node], x, outs, c), x, 2e-3)


def lengths(check, rng):
    """Layers of bytes with lengths, results left out, and named results that nothing reads: results decide what
    ended sequences count as. Padding and initial states are far larger than what the ranges should contain.
    onnxruntime asks for one zero point a weight; without Y it leaves the states of empty sequences unset."""
    for number in range(36):
        direction = ("forward", "reverse", "bidirectional")[number % 3]
        kept = (("y", "yh", "yc"), ("", "yh", "yc"), ("y", "", ""), ("unread", "yh", "yc"))[number % 4]
        d, h, i = (2 if direction == "bidirectional" else 1), int(rng.integers(1, 20)), int(rng.integers(1, 15))
        s, b = int(rng.integers(2, 9)), int(rng.integers(2, 6))
        ends = rng.integers(0 if kept[0] else 1, s + 1, b).astype(np.int32)
        ends[0] = max(1, ends[0])
        w_type = U8 if number % 2 else S8
        zeros = [np.full((d, 4 * h), some(rng, U8, ()) if w_type == U8 else 0, w_type) for _ in range(2)]
        c = {"w": some(rng, w_type, (d, i, 4 * h)), "r": some(rng, w_type, (d, h, 4 * h)),
             "b": rng.normal(0, 0.2, (d, 8 * h)).astype(np.float32), "wz": zeros[0], "rz": zeros[1],
             "ws": rng.uniform(0.001, 0.004, (d, 4 * h)).astype(np.float32),
             "rs": rng.uniform(0.001, 0.004, (d, 4 * h)).astype(np.float32)}
        x = {"x": rng.normal(0, 1, (s, b, i)).astype(np.float32), "n": ends,
             "h0": rng.normal(0, 1, (d, b, h)).astype(np.float32), "c0": rng.normal(0, 0.3, (d, b, h)).astype(np.float32)}
        x["x"][ends.max():] *= 9
        x["h0"][:, ends == 0] *= 9
        node = helper.make_node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "n", "h0", "c0", "", "ws", "wz", "rs", "rz"],
                                kept, domain=MS, hidden_size=h, direction=direction)
        check.one(f"DynamicQuantizeLSTM {number} {direction} {kept} lengths {ends}",
                  model_of([node], x, {k: np.float32 for k in kept if k not in ("", "unread")}, c), x, 1e-5)


def scaled(check, rng):
    """Weights of bytes that are cast and multiplied by scales, for exporters that write no DequantizeLinear: scales of
    each axis, of all and of single elements, on either side; read by products, by Gather, and as they are."""
    for dtype in (U8, S8):
        x = {"x": rng.normal(0, 1, (4, 19)).astype(np.float32), "i": rng.integers(0, 19, (5,))}
        nodes, c, outs = [], {}, {}
        for k, (dims, scale) in enumerate([((19, 13), ()), ((19, 13), (1,)), ((19, 13), (13,)), ((19, 13), (1, 13)),
                                           ((19, 13), (19, 1)), ((19, 13), (19, 13)), ((19, 19), (19,)),
                                           ((19, 19), (19, 1)), ((2, 19, 13), (19, 1)), ((2, 19, 13), (2, 1, 1)),
                                           ((19, 1), (13,)), ((1, 13), (19, 1)), ((13,), (19, 13))]):
            c[f"w{k}"], c[f"s{k}"] = some(rng, dtype, dims), rng.uniform(0.01, 0.02, scale).astype(np.float32)
            nodes += [helper.make_node("Cast", [f"w{k}"], [f"c{k}"], to=TensorProto.FLOAT),
                      helper.make_node("Mul", [f"c{k}", f"s{k}"] if k % 2 else [f"s{k}", f"c{k}"], [f"d{k}"]),
                      helper.make_node("MatMul", ["x", f"d{k}"], [f"p{k}"])]
            if len(dims) == 2 and dims[0] == 19:
                nodes.append(helper.make_node("Gather", [f"d{k}", "i"], [f"g{k}"]))
                outs[f"g{k}"] = np.float32
            outs[f"p{k}"] = outs[f"d{k}"] = np.float32
        check.one(f"cast and scaled {np.dtype(dtype).name}", model_of(nodes, x, outs, c), x, 1e-6)


def attention(check, rng):
    """QAttention and QEmbedLayerNormalization with random operands, and as onnxruntime's quantisers write
    them for a network that its transformer tool has fused."""
    heads, size, batch, seq = 3, 24, 2, 11
    mask = np.ones((batch, seq), np.int32)
    mask[1, 7:] = 0
    for x_type, w_type in ((U8, S8), (U8, U8)):
        for n in (1, 3 * size):
            for causal in (0, 1):
                x = some(rng, x_type, (batch, seq, size))
                c = {"w": some(rng, w_type, (size, 3 * size)), "b": rng.normal(0, 0.1, 3 * size).astype(np.float32),
                     "xs": np.float32(0.02), "ws": rng.uniform(0.004, 0.008, n).astype(np.float32),
                     "xz": np.array(some(rng, x_type, ())), "wz": np.full(n, 0 if w_type == S8 else 128, w_type)}
                node = helper.make_node("QAttention", ["x", "w", "b", "xs", "ws", "m", "xz", "wz"], ["o"], domain=MS,
                                        num_heads=heads, unidirectional=causal)
                check.one(f"QAttention {np.dtype(x_type).name} {np.dtype(w_type).name} {n} {causal}",
                          model_of([node], {"x": x, "m": mask}, {"o": np.float32}, c), {"x": x, "m": mask}, 1e-4)
    nodes, c, inputs = fused_network(rng, heads, size, batch, seq, mask)
    fused_networks(check, rng, nodes, c, inputs)


def fused_network(rng, heads, size, batch, seq, mask):
    def scale(*shape):
        return rng.normal(1, 0.1, shape).astype(np.float32)

    c = {"words": weights(rng, 50, size), "positions": weights(rng, 16, size), "segments": weights(rng, 2, size),
         "g0": scale(size), "b0": weights(rng, size), "wa": weights(rng, size, 3 * size), "ba": weights(rng, 3 * size),
         "wo": weights(rng, size, size), "bo": weights(rng, size), "g1": scale(size), "b1": weights(rng, size),
         "wf": weights(rng, size, 2 * size), "bf": weights(rng, 2 * size), "wg": weights(rng, 2 * size, size),
         "bg": weights(rng, size), "g2": scale(size), "b2": weights(rng, size)}
    ms = dict(domain=MS)
    nodes = [helper.make_node("EmbedLayerNormalization", ["ids", "types", "words", "positions", "segments", "g0", "b0", "m"],
                              ["e", "lengths"], **ms),
             helper.make_node("Attention", ["e", "wa", "ba", "lengths"], ["a"], num_heads=heads, **ms),
             helper.make_node("MatMul", ["a", "wo"], ["p"]),
             helper.make_node("SkipLayerNormalization", ["p", "e", "g1", "b1", "bo"], ["h"], **ms),
             helper.make_node("MatMul", ["h", "wf"], ["f0"]), helper.make_node("BiasGelu", ["f0", "bf"], ["f"], **ms),
             helper.make_node("MatMul", ["f", "wg"], ["r"]),
             helper.make_node("SkipLayerNormalization", ["r", "h", "g2", "b2", "bg"], ["y"], **ms)]
    inputs = {"ids": rng.integers(0, 50, (batch, seq)).astype(np.int32),
              "types": rng.integers(0, 2, (batch, seq)).astype(np.int32), "m": mask}
    return nodes, c, inputs


def fused_networks(check, rng, nodes, constants, inputs):
    from onnxruntime import quantization as q
    import logging
    logging.disable(logging.WARNING)
    path, out = os.path.join(check.folder, "float.onnx"), os.path.join(check.folder, "quantised.onnx")
    model = model_of(nodes, inputs, {"y": np.float32}, constants)
    onnx.save(model, path)
    feeds = [dict(inputs, ids=rng.integers(0, 50, inputs["ids"].shape).astype(np.int32)) for _ in range(3)]
    exact = [oracle.answers(path, f)["y"] for f in feeds]
    for weight in (q.QuantType.QInt8, q.QuantType.QUInt8):
        for per_channel in (False, True):
            q.quantize_dynamic(path, out, weight_type=weight, per_channel=per_channel,
                               extra_options={"DefaultTensorType": TensorProto.FLOAT})
            found = {n.op_type for n in onnx.load(out).graph.node}
            if not {"QAttention", "QEmbedLayerNormalization"} <= found:
                check.fail("fused network", f"the quantiser wrote only {sorted(found)}")
            one_network(check, f"fused dynamic {weight.name} {per_channel}", out, feeds, exact)


# -- Networks ------------------------------------------------------------------------------------


def weights(rng, *shape):
    return (rng.normal(0, 1, shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)


def image_network(rng):
    c = {"w1": weights(rng, 16, 3, 3, 3), "b1": weights(rng, 16), "w2": weights(rng, 16, 16, 3, 3),
         "w3": weights(rng, 16, 1, 3, 3), "b3": weights(rng, 16), "w4": weights(rng, 10, 32), "b4": weights(rng, 10),
         "k": np.float32(0.7)}
    n = [("Conv", ["x", "w1", "b1"], "c1", {"pads": [1] * 4, "strides": [2, 2]}), ("Relu", ["c1"], "r1", {}),
         ("MaxPool", ["r1"], "p", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
         ("Conv", ["p", "w2"], "c2", {"pads": [1] * 4}), ("Add", ["c2", "p"], "a", {}),
         ("LeakyRelu", ["a"], "l", {"alpha": 0.1}), ("Conv", ["l", "w3", "b3"], "c3", {"pads": [1] * 4, "group": 16}),
         ("Sigmoid", ["c3"], "s", {}), ("Mul", ["s", "c3"], "m", {}), ("Concat", ["m", "l"], "k1", {"axis": 1}),
         ("GlobalAveragePool", ["k1"], "g", {}), ("Flatten", ["g"], "f", {}),
         ("Gemm", ["f", "w4", "b4"], "y", {"transB": 1})]
    return [helper.make_node(op, i, [o], **a) for op, i, o, a in n], c, {"x": (2, 3, 32, 32)}


def text_network(rng):
    c = {"wq": weights(rng, 32, 32).T.copy(), "wk": weights(rng, 32, 32).T.copy(), "wv": weights(rng, 32, 32).T.copy(),
         "bq": weights(rng, 32), "w1": weights(rng, 64, 32).T.copy(), "b1": weights(rng, 64),
         "w2": weights(rng, 32, 64).T.copy(), "g": 1 + weights(rng, 32), "b": weights(rng, 32),
         "heads": np.array([0, 0, 4, 8], np.int64), "flat": np.array([0, 0, 32], np.int64), "half": np.float32(0.35)}
    n = [("MatMul", ["x", "wq"], "q0", {}), ("Add", ["q0", "bq"], "q1", {}), ("MatMul", ["x", "wk"], "k1", {}),
         ("MatMul", ["x", "wv"], "v1", {})]
    for v, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        n += [("Reshape", [v + "1", "heads"], v + "2", {}), ("Transpose", [v + "2"], v + "3", {"perm": perm})]
    n += [("MatMul", ["q3", "k3"], "s0", {}), ("Mul", ["s0", "half"], "s1", {}), ("Softmax", ["s1"], "s", {"axis": -1}),
          ("MatMul", ["s", "v3"], "o0", {}), ("Transpose", ["o0"], "o1", {"perm": [0, 2, 1, 3]}),
          ("Reshape", ["o1", "flat"], "o", {}), ("Add", ["o", "x"], "r", {}),
          ("LayerNormalization", ["r", "g", "b"], "n", {"axis": -1}), ("MatMul", ["n", "w1"], "h0", {}),
          ("Add", ["h0", "b1"], "h1", {}), ("Relu", ["h1"], "h", {}), ("MatMul", ["h", "w2"], "y0", {}),
          ("Add", ["y0", "n"], "y", {})]
    return [helper.make_node(op, i, [o], **a) for op, i, o, a in n], c, {"x": (2, 12, 32)}


def networks(check, rng):
    from onnxruntime import quantization as q
    import logging

    class Reader(q.CalibrationDataReader):
        def __init__(self, feeds):
            self.feeds = iter(feeds)

        def get_next(self):
            return next(self.feeds, None)

    logging.disable(logging.WARNING)
    for name, make in (("image", image_network), ("text", text_network)):
        nodes, constants, shapes = make(rng)
        feeds = [{k: rng.normal(0, 1, s).astype(np.float32) for k, s in shapes.items()} for _ in range(4)]
        model = model_of(nodes, feeds[0], {"y": np.float32}, constants)
        path, out = os.path.join(check.folder, "float.onnx"), os.path.join(check.folder, "quantised.onnx")
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        exact = [oracle.answers(path, f)["y"] for f in feeds]
        for form in (q.QuantFormat.QDQ, q.QuantFormat.QOperator):
            for act in (q.QuantType.QUInt8, q.QuantType.QInt8):
                for extra in ({}, {"per_channel": True}, {"extra_options": {"ActivationSymmetric": True}},
                              {"weight_type": q.QuantType.QUInt8}, {"extra_options": {"AddQDQPairToWeight": True}},
                              {"extra_options": {"DedicatedQDQPair": True}}, {"reduce_range": True}):
                    if act == q.QuantType.QInt8 and extra.get("weight_type"):
                        continue
                    q.quantize_static(path, out, Reader(feeds), quant_format=form, activation_type=act, **extra)
                    one_network(check, f"{name} {form.name} {act.name} {extra}", out, feeds, exact)
        for weight in (q.QuantType.QInt8, q.QuantType.QUInt8):
            for per_channel in (False, True):
                q.quantize_dynamic(path, out, weight_type=weight, per_channel=per_channel)
                one_network(check, f"{name} dynamic {weight.name} {per_channel}", out, feeds, exact)


def one_network(check, what, path, feeds, exact):
    """As onnxruntime's answer: no further from it than a part of quantisation's own error, and no
    further from the float network."""
    check.n += 1
    model = onnx.load(path)
    ours, theirs, apart = 0.0, 0.0, 0.0
    try:
        for feed, want in zip(feeds, exact):
            got, peer = check.run(model, feed)
            scale = np.abs(want).max()
            ours += float(np.abs(got["y"] - want).mean() / scale)
            theirs += float(np.abs(peer["y"] - want).mean() / scale)
            apart = max(apart, float(np.abs(got["y"] - peer["y"]).max() / scale))
    except oracle.Failed as e:
        check.fail(what, str(e))
        return
    unit = 1 / 127
    if not (ours <= 1.1 * theirs + 1e-3 and apart <= UNITS * unit):
        check.fail(what, f"mean error {ours:.2e}, onnxruntime's {theirs:.2e}, apart by {apart:.2e}")


# -- Chains --------------------------------------------------------------------------------------


def chain(rng):
    """A random QDQ graph: products and convolutions with element-wise steps, moves and pools."""
    dtype = rng.choice([U8, S8])
    channels, size = int(rng.integers(1, 40)), int(rng.integers(3, 12))
    nodes, c = [], {}
    x = rng.normal(0, 1, (int(rng.integers(1, 3)), channels, size, size)).astype(np.float32)
    last, at, n = "x", 0, int(rng.integers(1, 7))
    last_scale = 1.0

    def pair(v, spread):
        nonlocal at
        at += 1
        c[f"s{at}"] = np.float32(spread / 100)
        c[f"z{at}"] = some(rng, dtype, ())
        nodes.append(helper.make_node("QuantizeLinear", [v, f"s{at}", f"z{at}"], [f"q{at}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{at}", f"s{at}", f"z{at}"], [f"d{at}"]))
        return f"d{at}", float(c[f"s{at}"])

    def weight(name, *shape):
        per = bool(rng.integers(2))
        w_n = shape[0] if per else 1
        c[name + "q"] = rng.integers(-127, 128, shape).astype(S8)
        c[name + "s"] = (rng.uniform(0.5, 1, w_n) / 64 / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        if not per:
            c[name + "s"] = c[name + "s"][0]
        c[name + "z"] = np.zeros(w_n if per else (), S8)
        nodes.append(helper.make_node("DequantizeLinear", [name + "q", name + "s", name + "z"], [name], axis=0))
        return name

    last, last_scale = pair(last, 4)
    for i in range(n):
        op = rng.choice(["conv", "dw", "relu", "sigmoid", "add", "pool", "transpose", "concat", "mul", "avg", "clip",
                         "self", "hswish"])
        o = f"v{i}"
        if op == "conv":
            out = int(rng.integers(1, 40))
            k = int(rng.choice([1, 3]))
            ins = [last, weight(f"w{i}", out, channels, k, k)]
            if rng.integers(2):
                c[f"b{i}"] = rng.normal(0, 1, out).astype(np.float32)
                ins.append(f"b{i}")
            nodes.append(helper.make_node("Conv", ins, [o], pads=[k // 2] * 4))
            channels = out
        elif op == "dw":
            nodes.append(helper.make_node("Conv", [last, weight(f"w{i}", channels, 1, 3, 3)], [o], pads=[1] * 4,
                                          group=channels))
        elif op in ("relu", "sigmoid"):
            nodes.append(helper.make_node(op.capitalize(), [last], [o]))
        elif op == "hswish":
            nodes.append(helper.make_node("HardSwish", [last], [o]))
        elif op == "clip":
            c[f"lo{i}"], c[f"hi{i}"] = np.float32(-0.3), np.float32(rng.uniform(0.2, 2))
            nodes.append(helper.make_node("Clip", [last, f"lo{i}", f"hi{i}"], [o]))
        elif op in ("add", "mul"):
            c[f"k{i}"] = rng.normal(0, 1, (channels, 1, 1)).astype(np.float32)
            nodes.append(helper.make_node(op.capitalize(), [last, f"k{i}"], [o]))
        elif op == "self":
            nodes.append(helper.make_node("Add", [last, last], [o]))
        elif op == "pool":
            nodes.append(helper.make_node("MaxPool", [last], [o], kernel_shape=[3, 3], pads=[1] * 4))
        elif op == "avg":
            nodes.append(helper.make_node("AveragePool", [last], [o], kernel_shape=[2, 2], pads=[0, 0, 1, 1]))
        elif op == "transpose":
            nodes.append(helper.make_node("Transpose", [last], [o], perm=[0, 1, 3, 2]))
        else:
            nodes.append(helper.make_node("Concat", [last, last], [o], axis=1))
            channels *= 2
        last = o
        if op in ("pool", "transpose"):
            nodes += [helper.make_node("QuantizeLinear", [last, f"s{at}", f"z{at}"], [f"e{i}"]),
                      helper.make_node("DequantizeLinear", [f"e{i}", f"s{at}", f"z{at}"], [f"f{i}"])]
            last = f"f{i}"
        elif rng.integers(4):
            last, last_scale = pair(last, float(rng.uniform(0.5, 4)))
    last, last_scale = pair(last, float(rng.uniform(0.5, 4)))
    nodes.append(helper.make_node("Identity", [last], ["o"]))
    return model_of(nodes, {"x": x}, {"o": np.float32}, c), {"x": x}, last_scale


def chains(check, seed, n):
    for i in range(n):
        rng = np.random.default_rng([seed, i])
        model, inputs, unit = chain(rng)
        before = check.failed
        chain_one(check, f"chain {seed}/{i}", model, inputs, unit)
        if check.failed > before:
            onnx.save(model, os.path.join(check.folder, f"chain-{seed}-{i}.onnx"))


def chain_one(check, what, model, inputs, unit):
    """Rounding ties that go the other way change single elements; most must be equal."""
    check.n += 1
    try:
        got, want = check.run(model, inputs)
    except oracle.Failed as e:
        check.fail(what, str(e))
        return
    error = np.abs(got["o"].astype(np.float64) - want["o"]) / unit
    far, off = float(np.mean(error > UNITS + 0.01)), float(np.mean(error > 0.5))
    if got["o"].shape != want["o"].shape or far > 0.001 or off > 0.05 or not np.isfinite(got["o"]).all():
        check.fail(what, f"{off:.1%} of the elements differ, by up to {error.max():.1f} units: "
                         f"{[n.op_type for n in model.graph.node if not n.op_type.endswith('Linear')]}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("weft")
    p.add_argument("--chains", type=int, default=int(os.environ.get("WEFT_QUANTISED_CHAINS", 40)))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="")
    p.add_argument("--gpu")
    a = p.parse_args()
    check = Check(a.weft, a.gpu)
    parts = {"operators": lambda: operators(check, np.random.default_rng(a.seed)),
             "gemms": lambda: gemms(check, np.random.default_rng(a.seed)),
             "convolutions": lambda: convolutions(check, np.random.default_rng(a.seed)),
             "recurrent": lambda: recurrent(check, np.random.default_rng(a.seed)),
             "lengths": lambda: lengths(check, np.random.default_rng(a.seed)),
             "scaled": lambda: scaled(check, np.random.default_rng(a.seed)),
             "attention": lambda: attention(check, np.random.default_rng(a.seed)),
             "networks": lambda: networks(check, np.random.default_rng(a.seed)),
             "chains": lambda: chains(check, a.seed, a.chains)}
    for name, part in parts.items():
        if a.only in ("", name):
            part()
    for text, n in sorted(check.refused.items()):
        print(f"refused {n} times: {text}")
    print(f"{check.n} cases, {check.failed} failed{f'; the models: {check.folder}' if check.failed else ''}")
    if not check.failed:
        shutil.rmtree(check.folder)
    sys.exit(1 if check.failed else 0)


main()
