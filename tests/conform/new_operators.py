#!/usr/bin/env python3
"""Operators of opset 23 and later, and old forms, with random parameters beside onnxruntime: one-node models with constant or
symbolic dimensions, compiled and run in one process (model_worker.c). ONNX's own reference answers for what
onnxruntime does not have.

usage: new_operators.py WORKER [--cases N] [--seed S] [--only OPERATOR]
"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()

import numpy as np
import onnx
import onnx.reference
from onnx import helper
from worker import Refused, Worker

IR_VERSION = 14


class Case:
    """A node, its operands as (array, names of dims or None for constant ones), its number of results."""

    def __init__(self, op, attrs, operands, n_out=1, opset=25, tolerance=None):
        self.op, self.attrs, self.operands = op, attrs, operands
        self.n_out, self.opset, self.tolerance = n_out, opset, tolerance

    def model(self, symbolic):
        names = [f"i{k}" if v is not None else "" for k, v in enumerate(self.operands)]
        ports = []
        for name, v in zip(names, self.operands):
            if v is not None:
                array, dims = v
                shape = [d if d and symbolic else n for n, d in zip(array.shape, dims)]
                ports.append(helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
        outs = [f"o{k}" for k in range(self.n_out)]
        node = helper.make_node(self.op, names, outs, **self.attrs)
        graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name=o) for o in outs])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                 ir_version=IR_VERSION)

    def arrays(self):
        return [v[0] for v in self.operands if v is not None]

    def text(self):
        shapes = ", ".join("-" if v is None else f"{v[0].dtype}{list(v[0].shape)}" for v in self.operands)
        return f"{self.op}-{self.opset} {self.attrs} ({shapes}) -> {self.n_out}"


def normal(rng, *shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def attention(rng):
    """Every combination of layouts, caches, masks and modes that onnxruntime has."""
    batch, groups, kv_heads = rng.integers(1, 4), rng.choice([1, 1, 2, 3]), rng.integers(1, 4)
    rows, keys, past = rng.integers(1, 7), rng.integers(1, 9), rng.integers(1, 5)
    size, v_size = int(rng.choice([4, 8, 16])), int(rng.choice([4, 8, 12]))
    heads = int(groups * kv_heads)
    flat, cached, causal = rng.random() < 0.5, rng.random() < 0.35, rng.random() < 0.4
    valid = not cached and rng.random() < 0.3
    attrs = {"is_causal": 1} if causal else {}
    if cached and causal:
        keys = rows  # elsewhere onnxruntime counts from the last key, ONNX from the end of the cache
    if flat:
        attrs.update({"q_num_heads": heads, "kv_num_heads": int(kv_heads)})
        q = (normal(rng, batch, rows, heads * size), ["B", "S", None])
        k = (normal(rng, batch, keys, kv_heads * size), ["B", "K", None])
        v = (normal(rng, batch, keys, kv_heads * v_size), ["B", "K", None])
    else:
        q = (normal(rng, batch, heads, rows, size), ["B", None, "S", None])
        k = (normal(rng, batch, kv_heads, keys, size), ["B", None, "K", None])
        v = (normal(rng, batch, kv_heads, keys, v_size), ["B", None, "K", None])
    pasts = [None, None]
    total = int(keys)
    if cached:
        pasts = [(normal(rng, batch, kv_heads, past, n), ["B", None, "P", None]) for n in (size, v_size)]
        total += int(past)
    mask = None
    if rng.random() < 0.5:
        shape = [[rows, total], [1, 1, rows, total], [batch, 1, rows, total], [batch, heads, rows, total]]
        shape = [int(n) for n in shape[rng.integers(len(shape))]]
        names = [None, None, "S", "T"][-len(shape):] if rng.random() < 0.5 else [None] * len(shape)
        if rng.random() < 0.5:
            mask = (rng.random(shape) < 0.6, names)
        else:
            mask = (normal(rng, *shape), names)
    seqlen = None
    if valid:
        seqlen = (rng.integers(1, keys + 1, size=batch).astype(np.int64), ["B"])
    if rng.random() < 0.3:
        attrs["scale"] = float(rng.uniform(0.1, 1.0))
    if rng.random() < 0.3:
        attrs["softcap"] = float(rng.uniform(0.5, 3.0))
    n_out = int(rng.choice([1, 3])) if cached else 1
    operands = [q, k, v, mask, *pasts, seqlen]
    while operands[-1] is None:
        operands.pop()
    opset = 24 if valid else int(rng.choice([23, 24]))
    return Case("Attention", attrs, operands, n_out, opset)


def rms_norm(rng):
    shape = [int(n) for n in rng.integers(1, 7, size=rng.integers(1, 5))]
    shape[-1] = int(rng.choice([1, 5, 16, 77]))
    axis = int(rng.integers(-len(shape), len(shape)))
    scale = normal(rng, *(shape[axis:] if rng.random() < 0.7 else shape[-1:]))
    names = ["B" if k == 0 and axis % len(shape) > 0 else None for k in range(len(shape))]
    attrs = {"axis": axis, "epsilon": float(rng.choice([1e-5, 1e-2]))}
    return Case("RMSNormalization", attrs, [(normal(rng, *shape), names), (scale, [None] * scale.ndim)])


def rotary(rng):
    batch, heads, length = (int(n) for n in rng.integers(1, 6, size=3))
    size, rows = int(rng.choice([4, 8, 20, 64])), int(rng.integers(5, 12))
    part = int(rng.choice([0, 0, 2, size // 2]))
    half = (part or size) // 2
    attrs = {"interleaved": int(rng.integers(2)), "rotary_embedding_dim": part}
    if rng.random() < 0.5:
        attrs["num_heads"] = heads
        x = (normal(rng, batch, length, heads * size), ["B", "S", None])
    else:
        x = (normal(rng, batch, heads, length, size), ["B", None, "S", None])
        if part:
            attrs["num_heads"] = heads  # onnxruntime asks for it
    if rng.random() < 0.6:
        positions = rng.integers(0, rows, size=(batch, length))
        angles, names = rng.uniform(-3, 3, size=(rows, half)), [None, None]
        extra = [(positions, ["B", "S"])]
    else:
        angles, names, extra = rng.uniform(-3, 3, size=(batch, length, half)), ["B", "S", None], []
    return Case("RotaryEmbedding", attrs, [x, (np.cos(angles).astype(np.float32), names),
                                           (np.sin(angles).astype(np.float32), names), *extra])


def tensor_scatter(rng):
    shape = [int(n) for n in rng.integers(1, 6, size=rng.integers(3, 5))]
    axis = int(rng.integers(1, len(shape)))
    n = int(rng.integers(1, shape[axis] + 1))
    new = shape[:axis] + [n] + shape[axis + 1:]
    circular = rng.random() < 0.5
    at = rng.integers(0, shape[axis] if circular else shape[axis] - n + 1, size=shape[0])
    names = ["B"] + [None] * (len(shape) - 1)
    operands = [(normal(rng, *shape), names), (normal(rng, *new), names)]
    if circular or rng.random() < 0.7:
        operands.append((at.astype(np.int64), ["B"]))
    attrs = {"axis": axis - len(shape) * int(rng.integers(2)), "mode": "circular" if circular else "linear"}
    return Case("TensorScatter", attrs, operands)


def swish(rng):
    x = (normal(rng, 3, 17), ["B", None])
    if rng.random() < 0.5:
        return Case("Swish", {"alpha": float(rng.choice([1.0, 0.7]))}, [x])
    return Case("SwiGLU", {"alpha": float(rng.choice([1.0, 1.7]))}, [x, (normal(rng, 3, 17), ["B", None])],
                opset=28)


def cum_prod(rng):
    shape = [int(n) for n in rng.integers(1, 5, size=rng.integers(1, 4))]
    x = normal(rng, *shape) if rng.random() < 0.6 else rng.integers(-3, 4, size=shape).astype(np.int32)
    attrs = {"exclusive": int(rng.integers(2)), "reverse": int(rng.integers(2))}
    axis = np.array(rng.integers(-len(shape), len(shape)), np.int64)
    return Case("CumProd", attrs, [(x, [None] * len(shape)), (axis, [])], opset=26)


def bit_shift(rng):
    dtype = np.dtype(str(rng.choice(["int8", "int16", "int32", "int64", "uint8", "uint64"])))
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, size=(4, 5), dtype=dtype, endpoint=True)
    low = 0 if dtype.kind == "u" else -3
    y = rng.integers(low, info.bits + 4, size=(4, 5)).astype(dtype)
    attrs = {"direction": str(rng.choice(["LEFT", "RIGHT"]))}
    return Case("BitShift", attrs, [(x, ["B", None]), (y, ["B", None])], opset=28)


def bit_cast(rng):
    pairs = [("float32", "int32"), ("int64", "float64"), ("uint8", "int8"), ("float16", "uint16")]
    a, b = pairs[rng.integers(len(pairs))]
    x = (100 * rng.normal(size=(3, 4))).astype(np.int64).astype(a)
    return Case("BitCast", {"to": helper.np_dtype_to_tensor_dtype(np.dtype(b))}, [(x, ["B", None])], opset=26)


def linear_attention(rng):
    batch, length, groups, kv = (int(n) for n in rng.integers(1, 4, size=4))
    dk, dv = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    rule = str(rng.choice(["linear", "gated", "delta", "gated_delta"]))
    names = ["B", "S", None]
    operands = [(normal(rng, batch, length, groups * kv * dk), names),
                (0.5 * normal(rng, batch, length, kv * dk), names), (normal(rng, batch, length, kv * dv), names)]
    state = (normal(rng, batch, kv, dk, dv), ["B", None, None, None]) if rng.random() < 0.6 else None
    decay = beta = None
    if "gated" in rule:
        wide = kv * dk if rng.random() < 0.5 else kv
        decay = (-np.abs(normal(rng, batch, length, wide)), names)
    if "delta" in rule:
        beta = (rng.random((batch, length, kv if rng.random() < 0.5 else 1)).astype(np.float32), names)
    attrs = {"q_num_heads": groups * kv, "kv_num_heads": kv, "update_rule": rule}
    if rng.random() < 0.3:
        attrs["scale"] = 0.3
    operands += [state, decay, beta]
    while operands[-1] is None:
        operands.pop()
    return Case("LinearAttention", attrs, operands, 2, 27)


def causal_conv(rng):
    batch, channels, length, k = (int(n) for n in rng.integers(1, 6, size=4))
    operands = [(normal(rng, batch, channels, length), ["B", None, "S"]),
                (normal(rng, channels, 1, k), [None] * 3),
                (normal(rng, channels), [None]) if rng.random() < 0.5 else None,
                (normal(rng, batch, channels, k - 1), ["B", None, None]) if rng.random() < 0.5 else None]
    while operands[-1] is None:
        operands.pop()
    attrs = {"activation": str(rng.choice(["none", "silu", "swish"]))}
    return Case("CausalConvWithState", attrs, operands, 2, 27)


def deform_conv(rng):
    images, groups, offset_groups = (int(n) for n in rng.integers(1, 3, size=3))
    channels, kernels = 2 * groups * offset_groups, 2 * groups
    height, width = (int(n) for n in rng.integers(4, 8, size=2))
    kernel, stride, dilation = ([int(n) for n in rng.integers(1, m, size=2)] for m in (4, 3, 3))
    pads = [int(n) for n in rng.integers(0, 3, size=4)]
    out = [(n + pads[i] + pads[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
           for i, n in enumerate((height, width))]
    if min(out) < 1:
        return deform_conv(rng)
    taps = offset_groups * kernel[0] * kernel[1]
    operands = [normal(rng, images, channels, height, width), normal(rng, kernels, channels // groups, *kernel),
                normal(rng, images, 2 * taps, *out), normal(rng, kernels) if rng.random() < 0.5 else None]
    if rng.random() < 0.5:
        operands.append(rng.random((images, taps, *out)).astype(np.float32))
    operands = [None if a is None else (a, [None] * a.ndim) for a in operands]
    while operands[-1] is None:
        operands.pop()
    attrs = {"group": groups, "offset_group": offset_groups, "pads": pads, "strides": stride,
             "dilations": dilation}
    return Case("DeformConv", attrs, operands, opset=22)


def max_roi_pool(rng):
    images, channels, height, width = (int(n) for n in rng.integers(1, 7, size=4))
    n = int(rng.integers(1, 5))
    rois = np.concatenate([rng.integers(0, images, size=(n, 1)), rng.integers(-2, 12, size=(n, 4))], axis=1)
    attrs = {"pooled_shape": [int(k) for k in rng.integers(1, 4, size=2)],
             "spatial_scale": float(rng.choice([1.0, 0.5]))}
    return Case("MaxRoiPool", attrs, [(normal(rng, images, channels, height, width), [None] * 4),
                                      (rois.astype(np.float32), ["R", None])], opset=21)


def norm_elements(rng):
    shape = [int(n) for n in rng.integers(1, 6, size=rng.integers(2, 5))]
    params = [(normal(rng, *shape[1:]), [None] * (len(shape) - 1)) for _ in range(3)]
    var = (rng.uniform(0.1, 2, size=shape[1:]).astype(np.float32), [None] * (len(shape) - 1))
    x = (normal(rng, *shape), ["B"] + [None] * (len(shape) - 1))
    return Case("BatchNormalization", {"spatial": 0, "epsilon": 1e-3}, [x, *params, var], opset=7)


MAKERS = {"Attention": attention, "BatchNormalization": norm_elements, "RMSNormalization": rms_norm, "RotaryEmbedding": rotary,
          "TensorScatter": tensor_scatter, "Swish": swish, "CumProd": cum_prod, "BitShift": bit_shift,
          "BitCast": bit_cast, "LinearAttention": linear_attention, "CausalConvWithState": causal_conv,
          "DeformConv": deform_conv, "MaxRoiPool": max_roi_pool}


def expected(case, model):
    """onnxruntime's results, or those of ONNX's reference where it lacks the operator; None where both
    do."""
    inputs = {f"i{k}": v[0] for k, v in enumerate(case.operands) if v is not None}
    try:
        return oracle.answers(model.SerializeToString(), inputs)
    except Exception:  # a combination that onnxruntime does not implement
        if case.op in ("Attention", "MaxRoiPool"):
            return None
    reference = onnx.reference.ReferenceEvaluator(model)
    return dict(zip(reference.output_names, reference.run(None, inputs)))


def check(case, symbolic, worker, folder):
    """A text if Weft's results differ; None if they agree."""
    model = case.model(symbolic)
    path = os.path.join(folder, "m.onnx")
    onnx.save(model, path)
    want = expected(case, model)
    if want is None:
        return "skipped"
    try:
        worker.compile([path])
        got = worker.run(case.arrays())
    except Refused as e:
        return str(e)
    return oracle.outputs_differ(dict(zip(want, got)), want, case.tolerance)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--cases", type=int, default=40, help="of each operator")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    args = parser.parse_args()
    worker = Worker(args.worker)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for op, make in MAKERS.items():
            if args.only and op != args.only:
                continue
            rng = np.random.default_rng(args.seed)
            tried = 0
            for k in range(args.cases):
                case = make(rng)
                text = check(case, k % 2 == 1, worker, folder)
                tried += text != "skipped"
                if text and text != "skipped":
                    failures += 1
                    print(f"{case.text()}{' symbolic' if k % 2 else ''}: {text}")
            print(f"{op}: {tried} of {args.cases} cases compared")
            if tried == 0:
                failures += 1
    worker.close()
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
