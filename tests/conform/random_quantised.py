#!/usr/bin/env python3
"""Random quantised networks with NaN, infinities, denormals and large numbers in their float inputs, run every way and
compared with onnxruntime: pairs of QuantizeLinear and DequantizeLinear around float operators, operators of bytes,
and products whose operands are quantised at run time.

NaN and infinities must stand where onnxruntime has them. Inputs have no answer if NaN is in data whose range is asked for,
where what onnxruntime finds depends on the element's place, or if a product of floats adds up finite numbers above HUGE,
where the order of the sum decides which elements become infinite or NaN, and with them the bytes of a range that follows.
Other elements may differ by a unit of the output's scale, and few of them by more: a tie that is rounded the other way
changes what follows.

usage: random_quantised.py WORKER [--seed N] [--count N] [--plain] [--save DIR]

--plain: without special values
"""
import argparse
import collections
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import saturation
from worker import Died, Refused, Worker

MS = "com.microsoft"
SPECIAL = (np.nan, np.inf, -np.inf, 1e-40, -0.0, 1e5, -1e5)
FAR, MANY = 0.002, 0.06  # the share of elements that may differ by more than UNITS, by more than half a unit
UNITS = 4.01
HUGE = 1e36  # sums of a few numbers above it may overflow


class Net:
    """A graph whose values are images of floats; `unit` is the largest step of quantisation on the way."""

    def __init__(self, rng):
        self.rng, self.nodes, self.constants, self.inputs, self.n = rng, [], {}, {}, 0
        self.dtype = rng.choice([np.uint8, np.int8])
        self.batch, self.size = int(rng.integers(1, 4)), int(rng.integers(1, 10))
        self.unit, self.narrow = 1e-6, []

    def maybe(self, share):
        return self.rng.uniform() < share

    def node(self, op, inputs, outputs=1, **attrs):
        names = [f"v{self.n + i}" for i in range(outputs)]
        self.n += outputs
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names[0] if outputs == 1 else names

    def constant(self, value):
        self.n += 1
        self.constants[f"c{self.n}"] = np.asarray(value)
        return f"c{self.n}"

    def constant_of(self, kind, value):
        """One of an element type that numpy lacks."""
        self.n += 1
        self.narrow.append(helper.make_tensor(f"c{self.n}", kind, value.shape, value.ravel().tolist()))
        return f"c{self.n}"

    def floats(self, *shape):
        return self.constant(self.rng.normal(0, 1, shape).astype(np.float32))

    def input(self, channels):
        self.n += 1
        self.inputs[f"x{self.n}"] = self.rng.normal(0, 1, (self.batch, channels, self.size, self.size)).astype(np.float32)
        return f"x{self.n}"

    def scale(self, spread=None):
        """Names of a scale and a zero point."""
        value = np.float32((spread or self.rng.uniform(0.5, 4)) / 100)
        self.unit = max(self.unit, float(value))
        low, high = np.iinfo(self.dtype).min, np.iinfo(self.dtype).max
        zero = self.rng.choice([low, high, (low + high + 1) // 2, self.rng.integers(low, high + 1)])
        return [self.constant(value), self.constant(np.asarray(zero, self.dtype))]

    def quantise(self, v, by=None):
        """(bytes, their scale and zero point)"""
        by = by or self.scale()
        return self.node("QuantizeLinear", [v] + by), by

    def pair(self, v, by=None):
        q, by = self.quantise(v, by)
        return self.node("DequantizeLinear", [q] + by)

    def bytes_weight(self, shape, dtype=np.int8, axis=0):
        """Names of a weight of bytes, its scale and its zero point; of each channel along the axis or of all."""
        n = shape[axis] if self.maybe(0.5) else None
        taps = np.prod(shape) / shape[axis]
        s = (self.rng.uniform(0.5, 1, n) / 64 / np.sqrt(taps)).astype(np.float32)
        zero = 0 if dtype == np.int8 else 128
        low = -127 if dtype == np.int8 else 1
        return [self.constant(self.rng.integers(low, low + 255, shape).astype(dtype)), self.constant(s),
                self.constant(np.full(n or (), zero, dtype))]

    def model(self, out):
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in self.inputs.items()],
            [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(x, n) for n, x in self.constants.items()] + self.narrow)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)], ir_version=10)


def window(net, channels):
    """(channels, shape of a weight, attributes) of a convolution that keeps the size."""
    k, out, group = int(net.rng.choice([1, 3])), int(net.rng.integers(1, 40)), 1
    if net.maybe(0.3):
        out, group = channels, channels
    return out, (out, channels // group, k, k), {"pads": [k // 2] * 4, "group": group}


def float_step(net, v, channels):
    """An operator of floats that NaN and infinities pass through in ways of their own."""
    op = net.rng.choice(["Relu", "Sigmoid", "Clip", "Add", "Mul", "Tanh", "HardSwish", "LeakyRelu", "Residual", "Swish", "Elu",
                         "HardSigmoid", "Neg", "Abs", "Max", "Softmax"])
    if op == "Clip":
        low, high = net.constant(np.float32(-0.3)), net.constant(np.float32(net.rng.uniform(0.2, 2)))
        return net.node("Clip", [v] + [["", low][net.maybe(0.7)], high])
    if op in ("Add", "Mul"):
        return net.node(op, [v, net.floats(channels, 1, 1)])
    if op == "Max":
        return net.node("Max", [v, net.floats(1)])
    if op == "Residual":
        return net.node(net.rng.choice(["Add", "Mul", "Sub"]), [v, net.input(channels)])
    if op == "Swish":
        return net.node("Mul", [v, net.node("Sigmoid", [v])])
    if op == "Softmax":
        return net.node("Softmax", [v], axis=int(net.rng.choice([1, 3])))
    return net.node(op, [v])


def float_conv(net, v, channels):
    """A convolution of floats by a weight that is stored as bytes."""
    out, shape, attrs = window(net, channels)
    w = net.node("DequantizeLinear", net.bytes_weight(shape), axis=0)
    bias = [net.floats(out)] if net.maybe(0.5) else []
    return net.node("Conv", [v, w] + bias, **attrs), out


def pool(net, v):
    op = net.rng.choice(["MaxPool", "AveragePool", "Transpose"])
    if op == "Transpose":
        return net.node(op, [v], perm=[0, 1, 3, 2])
    return net.node(op, [v], kernel_shape=[3, 3], pads=[1] * 4)


def make_pairs(net):
    """Float operators with pairs of QuantizeLinear and DequantizeLinear between most of them."""
    channels = int(net.rng.integers(1, 40))
    v = net.input(channels)
    if net.maybe(0.5):
        v = net.pair(v)
    for _ in range(int(net.rng.integers(1, 7))):
        kind = net.rng.choice(["conv", "step", "step", "pool", "concat"])
        if kind == "conv":
            v, channels = float_conv(net, v, channels)
        elif kind == "pool":
            by = net.scale()
            v = net.pair(pool(net, net.pair(v, by)), by)  # of floats, max pools of onnxruntime drop NaN
        elif kind == "concat":
            v, channels = net.node("Concat", [v, net.input(channels)], axis=1), 2 * channels
        else:
            v = float_step(net, v, channels)
        if net.maybe(0.7):
            v = net.pair(v)
    return v


def make_bytes(net):
    """Operators of bytes between QuantizeLinear and DequantizeLinear, float operators around."""
    channels = int(net.rng.integers(1, 40))
    v = net.input(channels)
    for _ in range(int(net.rng.integers(1, 3))):
        if net.maybe(0.5):
            v = float_step(net, v, channels)
        q, by = net.quantise(v)
        for _ in range(int(net.rng.integers(1, 4))):
            to = net.scale()
            kind = net.rng.choice(["conv", "conv", "add", "mul", "sigmoid", "leaky", "pool", "max"])
            if kind == "conv":
                channels, shape, attrs = window(net, channels)
                bias = [net.constant(net.rng.integers(-5000, 5000, channels).astype(np.int32))] if net.maybe(0.5) else []
                q = net.node("QLinearConv", [q] + by + net.bytes_weight(shape) + to + bias, **attrs)
            elif kind in ("add", "mul"):
                other, its = net.quantise(net.input(channels))
                q = net.node("QLinear" + kind.capitalize(), [q] + by + [other] + its + to, domain=MS)
            elif kind == "sigmoid":
                q = net.node("QLinearSigmoid", [q] + by + to, domain=MS)
            elif kind == "leaky":
                q = net.node("QLinearLeakyRelu", [q] + by + to, domain=MS, alpha=0.1)
            elif kind == "pool":
                q = net.node("QLinearAveragePool", [q] + by + to, domain=MS, kernel_shape=[3, 3], pads=[1] * 4)
            else:
                q, to = net.node("MaxPool", [q], kernel_shape=[3, 3], pads=[1] * 4), by
            by = to
        v = net.node("DequantizeLinear", [q] + by)
        if net.maybe(0.5):
            v = float_step(net, v, channels)
    return v


def narrow_weight(net, taps, out):
    """The name of a dequantised weight [taps, out]: of bytes, or of four bits in blocks of rows."""
    if net.maybe(0.3):
        block = int(net.rng.choice([1, 2, 4]))
        while taps % block:
            block //= 2
        kind = net.rng.choice([TensorProto.INT4, TensorProto.UINT4])
        low, high = (-8, 7) if kind == TensorProto.INT4 else (0, 15)
        made = [net.constant_of(kind, net.rng.integers(low, high + 1, (taps, out))),
                net.constant((net.rng.uniform(0.5, 1, (taps // block, out)) / 4 / np.sqrt(taps)).astype(np.float32)),
                net.constant_of(kind, net.rng.integers(low, high + 1, (taps // block, out)))]
        return net.node("DequantizeLinear", made, axis=0, block_size=block)
    kind = net.rng.choice([np.uint8, np.int8])
    w, s, z = net.bytes_weight((taps, out), kind, axis=1)
    return net.node("DequantizeLinear", [w, s] + ([z] if kind == np.uint8 or net.maybe(0.7) else []), axis=1)


def make_rows(net):
    """Rows of features: products with weights and with each other, norms, softmax, moves."""
    width = int(net.rng.integers(1, 40))
    lead = [(), (net.batch,), (net.batch, 2)][net.rng.integers(3)]
    v = net.input(1)
    net.inputs[v] = net.rng.normal(0, 1, (*lead, net.size, width)).astype(np.float32)
    wide = [np.uint16, np.int16]
    for _ in range(int(net.rng.integers(1, 7))):
        kind = net.rng.choice(["product", "product", "gemm", "bytes", "qgemm", "step", "self", "norm", "turn", "concat", "softmax"])
        out = int(net.rng.integers(1, 40))
        if kind == "product":
            v, width = net.node("MatMul", [net.pair(v) if net.maybe(0.7) else v, narrow_weight(net, width, out)]), out
            if net.maybe(0.5):
                v = net.node("Add", [v, net.floats(out)])
        elif kind == "gemm" and not lead:
            v = net.node("Gemm", [net.pair(v), narrow_weight(net, width, out)] + ([net.floats(out)] if net.maybe(0.5) else []))
            width = out
        elif kind in ("bytes", "qgemm") and (kind == "bytes" or not lead):
            (q, by), to = net.quantise(v), net.scale()
            w = net.bytes_weight((width, out), net.rng.choice([np.uint8, np.int8]) if net.dtype == np.uint8 else np.int8, axis=1)
            if kind == "bytes":
                q = net.node("QLinearMatMul", [q] + by + w + to)
            else:
                bias = net.constant(net.rng.integers(-5000, 5000, out).astype(np.int32)) if net.maybe(0.5) else ""
                q = net.node("QGemm", [q] + by + w + [bias] + to, domain=MS, alpha=float(net.rng.choice([1, 0.5])))
            v, width = net.node("DequantizeLinear", [q] + to), out
        elif kind == "step":
            v = net.node(net.rng.choice(["Relu", "Gelu", "Sigmoid", "Tanh", "Elu", "HardSwish", "Erf"]), [v])
        elif kind == "self" and net.size > 0:
            perm = [*range(len(lead)), len(lead) + 1, len(lead)]
            t = net.node("Transpose", [net.pair(v)], perm=perm)
            scores = net.pair(net.node("Mul", [net.node("MatMul", [net.pair(v), t]), net.constant(np.float32(0.2))]))
            v = net.node("MatMul", [net.pair(net.node("Softmax", [scores], axis=-1)), net.pair(v)])
        elif kind == "norm":
            v = net.node("LayerNormalization", [v, net.floats(width), net.floats(width)], axis=-1)
        elif kind == "turn":
            by = net.scale()
            v = net.node("DequantizeLinear", [net.node("Reshape", [net.quantise(v, by)[0], net.constant(np.int64([*lead, net.size, width]))])] + by)
        elif kind == "concat":
            v, width = net.node("Concat", [v, net.pair(v)], axis=-1), 2 * width
        elif kind == "softmax":
            v = net.node("Softmax", [v], axis=-1)
        if net.maybe(0.5):
            kept, net.dtype = net.dtype, net.rng.choice(wide) if net.maybe(0.2) else net.dtype
            v = net.pair(v)
            net.dtype = kept
    return v


def make_dynamic(net):
    """Products and convolutions whose first operand is quantised by its range at run time."""
    channels = int(net.rng.integers(1, 40))
    v = net.input(channels)
    for _ in range(int(net.rng.integers(1, 3))):
        if net.maybe(0.6):
            v = float_step(net, v, channels)
        kind = net.rng.choice(["conv", "product", "fused"])
        w_type = net.rng.choice([np.uint8, np.int8])
        if kind == "fused":
            out = int(net.rng.integers(1, 40))
            weight = net.bytes_weight((net.size, out), w_type, axis=1)
            bias = [net.floats(out)] if net.maybe(0.5) else []
            v = net.node("DynamicQuantizeMatMul", [v] + weight + bias, domain=MS)
            v = net.node("MatMul", [v, net.floats(out, net.size)])
            continue
        q, s, z = net.node("DynamicQuantizeLinear", [v], 3)
        if kind == "conv":
            channels, shape, attrs = window(net, channels)
            w, w_s, w_z = net.bytes_weight(shape, w_type)
            if net.constants[w_s].ndim:
                net.constants[w_s] = net.constants[w_s].reshape(-1, 1, 1)
                net.constants[w_z] = net.constants[w_z][:1].reshape(())
            i = net.node("ConvInteger", [q, w, z, w_z], **attrs)
        else:
            w, w_s, w_z = net.bytes_weight((net.size, net.size), w_type, axis=1)
            i = net.node("MatMulInteger", [q, w, z, w_z])
        v = net.node("Mul", [net.node("Cast", [i], to=TensorProto.FLOAT), net.node("Mul", [s, w_s])])
        if net.maybe(0.5):
            v = net.node("Add", [v, net.floats(channels, 1, 1)])
    if net.maybe(0.5):
        v = float_step(net, v, channels)
    net.unit = max(net.unit, 0.01)
    return v


def make_recurrent(net):
    """A layer of LSTM with weights of bytes, whose input and state are quantised at run time."""
    d, h, i, steps = 1 + int(net.maybe(0.3)), int(net.rng.integers(1, 30)), int(net.rng.integers(1, 30)), int(net.rng.integers(1, 8))
    x = net.input(1)
    net.inputs[x] = net.rng.normal(0, 1, (steps, net.batch, i)).astype(np.float32)
    w, r = (net.constant(net.rng.integers(-127, 128, (d, k, 4 * h)).astype(np.int8)) for k in (i, h))
    zero, scales = net.constant(np.zeros(d, np.int8)), [net.constant(net.rng.uniform(0.002, 0.004, d).astype(np.float32)) for _ in range(2)]
    y, yh, yc = net.node("DynamicQuantizeLSTM", [x, w, r, "", "", "", "", "", scales[0], zero, scales[1], zero], 3, domain=MS,
                         hidden_size=h, direction="bidirectional" if d == 2 else "forward")
    net.unit = 2e-3
    return net.rng.choice([y, yh, yc])


MAKERS = {"rows": make_rows, "pairs": make_pairs, "bytes": make_bytes, "dynamic": make_dynamic, "recurrent": make_recurrent}


def plant(rng, inputs):
    """The same inputs with special values in one or two of them."""
    inputs = {k: v.copy() for k, v in inputs.items()}
    names = list(inputs)
    for name in rng.choice(names, min(len(names), int(rng.integers(1, 3))), replace=False):
        x = inputs[name]
        for _ in range(int(rng.choice([1, 1, 2, 4, x.size]))):
            x[tuple(rng.integers(0, x.shape))] = SPECIAL[rng.integers(len(SPECIAL))]
    return inputs


def ranged(model):
    """Names of the values whose range is asked for."""
    return [name for n in model.graph.node if n.op_type.startswith("Dynamic")
            for name in [n.input[0]] + list(n.output if n.op_type == "DynamicQuantizeLSTM" else [])]


def added(model):
    """Names of the data that products of floats add up, where a range is asked for."""
    return [n.input[0] for n in model.graph.node if n.op_type == "MatMul"] if ranged(model) else []


def difference(got, want, unit):
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    # The order of a sum decides whether it overflows.
    got, want = (np.where(np.abs(a) > HUGE, np.copysign(np.inf, a), a) for a in (got, want))
    finite = np.isfinite(want)
    same = np.where(finite, np.isfinite(got), (got == want) | (np.isnan(got) & np.isnan(want)))
    if not same.all():
        return oracle.difference(got, want)
    with np.errstate(invalid="ignore"):
        error = np.where(finite, np.abs(got.astype(np.float64) - want), 0)
    error /= unit + 1e-4 * np.where(finite, np.abs(want), 0)
    far, off = float(np.mean(error > UNITS)), float(np.mean(error > 0.51))
    few = 2 / want.size if want.size else 0  # of small outputs
    if far > max(FAR, few) or off > max(MANY, few):
        at = np.unravel_index(np.argmax(error), error.shape)
        return f"{off:.1%} differ, {far:.1%} by more, the most at {[int(i) for i in at]}: {got[at]}, expected {want[at]}, unit {unit:.2g}"
    return None


class Fuzzer:
    def __init__(self, program, plain, save, folder):
        self.workers = [("widest", Worker(program, {})), ("avx2", Worker(program, {"ONEDNN_MAX_CPU_ISA": "AVX2"}))]
        self.plain, self.save, self.path = plain, save, os.path.join(folder, "model.onnx")
        self.counts, self.saturates = collections.Counter(), saturation.saturates()

    def try_seed(self, seed):
        """The report of a failure, or None."""
        rng = np.random.default_rng(seed)
        kind = str(rng.choice(list(MAKERS), p=[0.3, 0.25, 0.2, 0.2, 0.05]))
        net = Net(rng)
        out = MAKERS[kind](net)
        model = net.model(out)
        onnx.save(model, self.path)
        peer = saturation.exact(model) if self.saturates else model
        self.counts[kind] += 1
        feeds = [net.inputs] + ([] if self.plain else [plant(rng, net.inputs) for _ in range(3)])
        inputs, wants = self.answers(peer, feeds)
        for name, worker in self.workers:
            try:
                worker.compile([self.path], target="cpu" if name == "widest" else "cpu:avx2")
                for feed, want in zip(inputs, wants):
                    for threads in (1, 2):
                        self.counts["runs"] += 1
                        got = worker.run(list(feed.values()), threads=threads)[0]
                        text = difference(got, want, self.unit_of(kind, net, want))
                        if text:
                            kept = self.keep(seed, model, feed, want)
                            ops = [n.op_type for n in model.graph.node]
                            return f"seed {seed}, {kind}, {name}, {threads} threads: {text}\n    {ops}{kept}"
            except (Died, Refused) as e:
                return f"seed {seed}, {kind}, {name}: {e}{self.keep(seed, model, net.inputs, wants[0])}"
        return None

    @staticmethod
    def unit_of(kind, net, want):
        """Ranges that the data tell have steps of their own."""
        size = np.abs(want[np.isfinite(want)]).max(initial=0)
        return max(net.unit, float(size) / 127) if kind == "dynamic" else net.unit

    @staticmethod
    def answers(model, feeds):
        """(the inputs that have an answer, onnxruntime's)"""
        seen = onnx.ModelProto()
        seen.CopyFrom(model)
        asked, sums = ranged(model), added(model)
        known = {p.name for p in list(model.graph.input) + list(model.graph.output)}
        names = [n for n in dict.fromkeys(asked + sums) if n not in known]
        seen.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
        session = oracle.session(seen.SerializeToString())
        told = []
        for feed in feeds:
            out = session.run(None, feed)
            at = {**feed, **dict(zip(names, out[1:]))}
            huge = any((np.isfinite(at[n]) & (np.abs(at[n]) > HUGE)).any() for n in sums if n in at)
            if not huge and not any(np.isnan(at[n]).any() for n in asked if n in at):
                told.append((feed, out[0]))
        return [feed for feed, _ in told], [want for _, want in told]

    def keep(self, seed, model, feed, want):
        if not self.save:
            return ""
        os.makedirs(self.save, exist_ok=True)
        path = os.path.join(self.save, f"{seed}.onnx")
        onnx.save(model, path)
        np.savez(path.removesuffix(".onnx") + ".npz", want=want, **feed)
        return f"\n    {path}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("worker")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=150)
    p.add_argument("--plain", action="store_true")
    p.add_argument("--save")
    o = p.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(o.worker, o.plain, o.save, folder)
        for i in range(o.count):
            text = fuzzer.try_seed(o.seed + i)
            if text:
                failed += 1
                print(text)
        for _, worker in fuzzer.workers:
            worker.close()
    print(f"{o.count} networks ({', '.join(f'{n} {k}' for k, n in sorted(fuzzer.counts.items()))}), {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
