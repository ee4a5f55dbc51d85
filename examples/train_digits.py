#!/usr/bin/python3
"""Trains the small models of the demo and writes them as ONNX.

    /usr/bin/python3 examples/train_digits.py [OUTPUT_DIR]

Needs Debian's python3-torch and python3-sklearn (which ships the 1,797 handwritten digits of 8x8
pixels). Everything is seeded and single-threaded: the same packages write the same bytes. Writes

    digits_cnn.onnx      convolutions with batch norm, a hidden layer, ten classes
    digits_parity.onnx   the frozen backbone of digits_cnn with a new head: is the digit odd?
    digits_size.onnx     the same backbone, another head: is the digit five or more?
    digits_attn.onnx     a transformer of two layers over the 16 patches of 2x2 pixels, ten classes
    digits_test.x.npy    the held-out images, float32 [n,1,8,8] in 0..1
    digits_test.y.npy    their digits, int64 [n]
    digits_test.logits.npz  what PyTorch answers for them: float32 [n,classes] for each model

The batch is dynamic in all four. The two siblings hold bit for bit the backbone of the base.
"""
import os
import sys
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

SEED = 2024
BATCH = 64
HELD_OUT = 0.25


class Backbone(nn.Module):
    """8x8 pixels to 128 features. Convolution biases are left to the batch norms."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(32)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(64)
        self.hidden = nn.Linear(64 * 2 * 2, 128)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        x = F.max_pool2d(F.relu(self.norm3(self.conv3(x))), 2)
        return F.relu(self.hidden(torch.flatten(x, 1)))


class Classifier(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(128, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


class Block(nn.Module):
    """One pre-norm transformer layer: attention, then a GELU feed-forward."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x))
        qkv = qkv.reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = torch.matmul(q, k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        mixed = torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Attention(nn.Module):
    def __init__(self, width=64, heads=4, layers=2, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 3, padding=1)
        self.patch = nn.Conv2d(32, width, 2, stride=2)
        self.place = nn.Parameter(torch.randn(1, 16, width) * 0.3)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(F.gelu(self.stem(x))).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def shifted(x, generator):
    """Moves each image by up to one pixel in each direction: the cheapest augmentation."""
    padded = F.pad(x, (1, 1, 1, 1))
    n = x.shape[0]
    dy = torch.randint(0, 3, (n,), generator=generator)
    dx = torch.randint(0, 3, (n,), generator=generator)
    return torch.stack([padded[i, :, dy[i]:dy[i] + 8, dx[i]:dx[i] + 8] for i in range(n)])


def train(name, model, params, x, y, epochs, rate, frozen=None):
    """Trains `params` of `model`; the modules of `frozen` keep every bit (batch norms included)."""
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(params, lr=rate, weight_decay=1e-3)
    steps = epochs * ((len(x) + BATCH - 1) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    for epoch in range(epochs):
        model.train()
        if frozen is not None:
            frozen.eval()
        total = 0.0
        order = torch.randperm(len(x), generator=generator)
        for part in order.split(BATCH):
            loss = F.cross_entropy(model(shifted(x[part], generator)), y[part],
                                   label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(part)
        if (epoch + 1) % 10 == 0 or epoch + 1 == epochs:
            print(f"  {name}: epoch {epoch + 1}/{epochs}, loss {total / len(x):.4f}", flush=True)
    model.eval()


def write(model, path, opset):
    """PRESERVE keeps the batch norms as nodes of their own: folding them is the compiler's work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, torch.zeros(1, 1, 8, 8), path, opset_version=opset,
                          input_names=["image"], output_names=["logits"],
                          dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
                          training=torch.onnx.TrainingMode.PRESERVE)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    digits = load_digits()
    x = (digits.images[:, None] / 16.0).astype(np.float32)
    y = digits.target.astype(np.int64)
    x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=HELD_OUT, random_state=SEED, stratify=y)
    xs, ys = torch.from_numpy(x_train), torch.from_numpy(y_train)
    xt, yt = torch.from_numpy(x_test), torch.from_numpy(y_test)

    base = Classifier(Backbone(), 10)
    train("digits_cnn", base, base.parameters(), xs, ys, epochs=40, rate=4e-3)
    models = [("digits_cnn", base, 13, yt)]

    siblings = (("digits_parity", lambda d: d % 2), ("digits_size", lambda d: (d >= 5).long()))
    for name, label in siblings:
        sibling = Classifier(base.backbone, 2)
        train(name, sibling, sibling.head.parameters(), xs, label(ys), epochs=20, rate=1e-2,
              frozen=base.backbone)
        models.append((name, sibling, 13, label(yt)))

    attention = Attention()
    train("digits_attn", attention, attention.parameters(), xs, ys, epochs=80, rate=1.5e-3)
    models.append(("digits_attn", attention, 17, yt))

    logits = {}
    for name, model, opset, target in models:
        path = os.path.join(out, name + ".onnx")
        write(model, path, opset)
        with torch.no_grad():
            answer = model(xt)
        logits[name] = answer.numpy()
        accuracy = (answer.argmax(1) == target).float().mean().item()
        print(f"{name}: {os.path.getsize(path)} bytes, held-out accuracy {100 * accuracy:.2f} % "
              f"of {len(target)}", flush=True)
    np.save(os.path.join(out, "digits_test.x.npy"), x_test)
    np.save(os.path.join(out, "digits_test.y.npy"), y_test)
    np.savez(os.path.join(out, "digits_test.logits.npz"), **logits)


if __name__ == "__main__":
    main()
