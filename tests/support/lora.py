"""Encoders with the names that exporters give them, random adapters (LoRA) as PEFT writes them, and merged models."""
import json
import math
import os
import struct

import numpy as np

from onnx_file import Node
from text_models import MASKS, POSITIONS, Model, port

# How exporters write a linear module (families.md of torch: constant folding on or off, Gemm, dynamo).
# "one_zero": equal constants, biases that are zero here, have the name of the first.
STYLES = ["folded", "folded_without_bias", "transposed", "gemm", "named", "one_zero"]


class Named(Model):
    """A model whose linear modules have paths; `modules`: path -> (constant, whether it is [out, in])."""

    def __init__(self, rs, style, hidden, heads):
        super().__init__(rs, hidden, heads)
        self.style, self.modules, self.layers, self.paths = style, {}, 0, []
        self.zeros = {}  # size -> name

    def layer(self, x, mask):
        at = f"encoder.layer.{self.layers}"
        self.layers += 1
        self.paths = [f"{at}.attention.self.{n}" for n in ("query", "key", "value")] + \
            [f"{at}.{n}" for n in ("attention.output.dense", "intermediate.dense", "output.dense")]
        return super().layer(x, mask)

    def linear(self, x, n_in, n_out):
        path = self.paths.pop(0) if self.paths else "classifier"
        turned, bias = self.style in ("gemm", "transposed"), self.style != "folded_without_bias"
        name = f"{path}.weight" if self.style in ("gemm", "transposed", "named") else f"onnx::MatMul_{len(self.modules) + 100}"
        w = self.rs.uniform(-0.5, 0.5, (n_out, n_in) if turned else (n_in, n_out)).astype(np.float32)
        self.g.constants[name] = w
        self.modules[path] = (name, turned)
        b = self.rs.uniform(-0.5, 0.5, n_out).astype(np.float32)
        bias_name = f"{path}.bias"
        if self.style == "one_zero":
            bias_name, b = self.zeros.setdefault(n_out, bias_name), np.zeros(n_out, np.float32)
        if bias:
            self.g.constants[bias_name] = b
        node = "/" + path.replace(".", "/").replace("/layer/", "/layer.")
        if self.style == "gemm":
            flat = self.op("Reshape", x, self.ints(-1, n_in))
            y = self.named(f"{node}/Gemm", "Gemm", flat, name, f"{path}.bias", transB=1)
            shape = self.op("Concat", self.op("Slice", self.op("Shape", x), self.ints(0), self.ints(-1)), self.ints(n_out), axis=0)
            return self.op("Reshape", y, shape)
        w = self.op("Transpose", name, perm=[1, 0]) if turned else name
        y = self.named(f"{node}/MatMul", "MatMul", x, w)
        return self.op("Add", bias_name, y) if bias else y

    def named(self, name, op, *inputs, **attrs):
        self.count += 1
        self.g.nodes.append(Node(op, list(inputs), [f"v{self.count}"], attrs, name=name))
        return f"v{self.count}"


def base(rs, style, layers=None, hidden=None):
    m = Named(rs, style, hidden or 8 * rs.randint(1, 5), rs.choice([2, 4]))
    mask = MASKS[rs.randint(len(MASKS))]
    m.g.inputs.append(port("ids"))
    if mask not in ("none", "causal where", "causal add", "causal trilu"):
        m.g.inputs.append(port("mask"))
    x, apply = m.embed(POSITIONS[rs.randint(len(POSITIONS))]), m.mask(mask)
    for _ in range(layers or rs.randint(1, 3)):
        x = m.layer(x, apply)
    m.output(x, "hidden")
    m.output(m.op("Tanh", m.linear(m.op("Gather", x, m.const(np.int64(0)), axis=1), m.e, 3)), "class")
    return m


class Adapter:
    """Factors of some modules of a model: f32 of random ranks."""

    def __init__(self, rs, model, paths=None, size=0.3):
        self.rs, self.alpha, self.rslora = rs, float(rs.randint(1, 33)), bool(rs.randint(2))
        self.rank = int(rs.choice([1, 2, 4, 8, 16, 19]))
        self.dtype = rs.choice(["F32", "F16", "BF16"], p=[0.6, 0.2, 0.2])
        self.ranks, self.alphas, self.factors = {}, {}, {}
        if paths is None:
            ends = [e for e in ("query", "key", "value", "dense", "classifier") if rs.randint(2)] or ["query", "value"]
            paths = [p for p in model.modules if p.rsplit(".", 1)[-1] in ends]
        for path in paths:
            rank = self.rank
            if rs.randint(8) == 0:
                rank = self.ranks[path] = int(rs.randint(1, 7))
            if rs.randint(8) == 0:
                self.alphas[path] = float(rs.randint(1, 33))
            name, turned = model.modules[path]
            n_out, n_in = model.g.constants[name].shape if turned else model.g.constants[name].shape[::-1]
            a, b = (self.narrow(rs.uniform(-size, size, shape)) for shape in ((rank, n_in), (n_out, rank)))
            self.factors[path] = a, b

    def narrow(self, x):
        x = x.astype(np.float32)
        if self.dtype == "F16":
            return x.astype(np.float16).astype(np.float32)
        if self.dtype == "BF16":
            return (x.view(np.uint32) & 0xffff0000).view(np.float32)
        return x

    def scale(self, path):
        rank = self.ranks.get(path, self.rank)
        alpha = self.alphas.get(path, self.alpha)
        return alpha / math.sqrt(rank) if self.rslora else alpha / rank

    def merged(self, model):
        """The model's graph with the adapter merged into its weights."""
        g = model.g.copy()
        for path, (a, b) in self.factors.items():
            name, turned = model.modules[path]
            delta = self.scale(path) * (b.astype(np.float64) @ a.astype(np.float64))
            g.constants[name] = (g.constants[name] + (delta if turned else delta.T)).astype(np.float32)
        return g

    def config(self):
        return {"peft_type": "LORA", "r": self.rank, "lora_alpha": self.alpha, "use_rslora": self.rslora, "bias": "none",
                "rank_pattern": self.ranks, "alpha_pattern": self.alphas, "fan_in_fan_out": False, "use_dora": False,
                "modules_to_save": None, "target_modules": sorted({p.rsplit(".", 1)[-1] for p in self.factors})}

    def save(self, folder, prefix="base_model.model."):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "adapter_config.json"), "w") as f:
            json.dump(self.config(), f)
        tensors = {}
        for path, (a, b) in self.factors.items():
            tensors[f"{prefix}{path}.lora_A.weight"] = a
            tensors[f"{prefix}{path}.lora_B.weight"] = b
        with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as f:
            f.write(safetensors(tensors, self.dtype))


def encode(x, dtype):
    if dtype == "F16":
        return x.astype(np.float16).tobytes()
    if dtype == "BF16":
        return (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return x.astype(np.float32).tobytes()


def safetensors(tensors, dtype="F32"):
    """The bytes of a file with these arrays of f32, stored as `dtype`."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, x in tensors.items():
        raw = encode(np.ascontiguousarray(x), dtype)
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data
