#!/usr/bin/env python3
"""Writes the networks of ParvaGPU's and Orion's measurements as text IR at the graph stage.

    make_networks.py WEFT FOLDER [NAME...]

WEFT is the built program. Needs torch and torchvision (Debian's python3-torchvision). Structure and
sizes are real, weights are all zero: only their shapes matter to an estimate. Networks of
torchvision keep their batch norms as nodes. Images are 3 x 224 x 224, for Inception v3 too (see tests/regress/whole_models.c).
BERT-large has the masked language model's head, as in ParvaGPU's measurements (see
tests/regress/whole_models.c for why the sequence is taken to be 64 long).
"""
import math
import re
import subprocess
import sys
import tempfile

import torch
import torchvision

CNNS = [
    "densenet121", "densenet169", "densenet201", "mobilenet_v2", "resnet50", "resnet101",
    "resnet152", "vgg16", "vgg19", "inception_v3",
]
# For sets of many models (tests/regress/usher_setting.c).
MORE_CNNS = [
    "alexnet", "efficientnet_b0", "mnasnet1_0", "resnet18", "resnext50_32x4d",
    "shufflenet_v2_x1_0", "squeezenet1_1", "vgg11",
]
BERTS = {"bert_base": (12, 768, 12), "bert_large": (24, 1024, 16)}  # layers, hidden size, heads


class Layer(torch.nn.Module):
    """One encoder layer, operators as the transformers library writes them."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (
            torch.nn.Linear(hidden, hidden) for _ in range(4))
        self.norm1, self.norm2 = (torch.nn.LayerNorm(hidden, eps=1e-12) for _ in range(2))
        self.up = torch.nn.Linear(hidden, 4 * hidden)
        self.down = torch.nn.Linear(4 * hidden, hidden)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / 8.0 + mask
        context = torch.matmul(torch.softmax(scores, -1), v).permute(0, 2, 1, 3).contiguous()
        context = context.view(x.shape[0], x.shape[1], -1)
        x = self.norm1(self.out(context) + x)
        return self.norm2(self.down(torch.nn.functional.gelu(self.up(x))) + x)


class Bert(torch.nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary):
        super().__init__()
        self.words = torch.nn.Embedding(vocabulary, hidden)
        self.positions = torch.nn.Embedding(512, hidden)
        self.types = torch.nn.Embedding(2, hidden)
        self.norm, self.head_norm = (torch.nn.LayerNorm(hidden, eps=1e-12) for _ in range(2))
        self.layers = torch.nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.head = torch.nn.Linear(hidden, hidden)
        self.decoder = torch.nn.Linear(hidden, vocabulary)

    def forward(self, ids, mask):
        n = ids.shape[1]
        x = self.words(ids) + self.types.weight[0] + self.positions.weight[:n]
        x = self.norm(x)
        bias = (1.0 - mask[:, None, None, :]) * -10000.0
        for layer in self.layers:
            x = layer(x, bias)
        x = self.head_norm(torch.nn.functional.gelu(self.head(x)))
        return self.decoder(x)


def make(name):
    """Returns (model, inputs, input names, number of characters that name the network)."""
    if name in BERTS:
        ids = torch.zeros(2, 64, dtype=torch.int64)
        return Bert(*BERTS[name], 30522), (ids, torch.ones(2, 64)), ["ids", "mask"]
    kind = getattr(torchvision.models, name)
    extra = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    if name.startswith("vgg"):
        extra = {"init_weights": False}
    side = 224
    return kind(weights=None, **extra), (torch.zeros(2, 3, side, side),), ["image"]


def strip(text):
    """Weights become zeros unless they are short (constants of patterns); locations go."""
    def fill(m):
        size = math.prod(int(d) for d in m.group(2).split(",") if d)
        return f"{m.group(1)} = splat {0.0 if size >= 1 << 20 else 0.5}"
    bulk = r'file .*|base64 .*|dense \[([^,\]]*,){4,}.*'
    text = re.sub(rf'^(weight .*: f32\[([0-9,]*)\]) = ({bulk})$', fill, text, flags=re.M)
    text = re.sub(r'^(weight \S+)( "[^"]*")', r"\1", text, flags=re.M)
    return re.sub(r'  loc "[^"]*"( \d+)?( "[^"]*")?$', "", text, flags=re.M)


def main():
    weft, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    for name in names or CNNS + MORE_CNNS + list(BERTS):
        torch.manual_seed(0)
        model, inputs, input_names = make(name)
        axes = {n: {0: "batch"} for n in input_names + ["result"]}
        with tempfile.TemporaryDirectory() as tmp:
            path = f"{tmp}/{name}.onnx"
            with torch.no_grad():
                torch.onnx.export(
                    model.eval(), inputs, path, input_names=input_names, output_names=["result"],
                    dynamic_axes=axes, do_constant_folding=True, opset_version=17,
                    training=torch.onnx.TrainingMode.PRESERVE)
            run = subprocess.run(
                [weft, "opt", path, "-p", "infer-shapes,fold-const,simplify,dce"],
                check=True, capture_output=True, text=True)
        with open(f"{folder}/{name}.wir", "w") as out:
            out.write(strip(run.stdout))
        print(name, flush=True)


main()
