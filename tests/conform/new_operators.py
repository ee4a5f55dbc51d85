#!/usr/bin/env python3
"""Operators of opset 23 and later with random parameters beside onnxruntime: one-node models with constant or
symbolic dimensions, compiled and run in one process (model_worker.c).

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
from onnx import helper
from worker import Refused, Worker

IR_VERSION = 13


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


MAKERS = {"Attention": attention}


def check(case, symbolic, worker, folder):
    """A text if Weft's results differ from onnxruntime's; None if they agree or onnxruntime refuses."""
    model = case.model(symbolic)
    path = os.path.join(folder, "m.onnx")
    onnx.save(model, path)
    try:
        want = oracle.answers(model.SerializeToString(),
                              {f"i{k}": v[0] for k, v in enumerate(case.operands) if v is not None})
    except Exception:  # a combination that onnxruntime does not implement
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
