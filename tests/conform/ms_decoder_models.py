#!/usr/bin/env python3
"""A decoder as onnxruntime-genai exports it: GroupQueryAttention with a cache, weights of f32, of 4 bits by
onnxruntime's quantiser (as MatMulNBits, or as DequantizeLinear), or of f16. A prompt and 20 steps that feed the presents
back give onnxruntime's logits.

usage: ms_decoder_models.py WORKER [KIND ...]
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

try:
    import onnx
    from onnx import TensorProto, helper
    from onnxruntime.transformers.float16 import convert_float_to_float16
except ImportError as e:
    oracle.skip(f"onnxruntime's tools cannot be imported: {e}")
try:
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
except ImportError as e:
    print(f"not tried: weights of 4 bits, because onnxruntime's quantiser cannot be imported: {e}", flush=True)
    MatMulNBitsQuantizer = None

from worker import Worker

LAYERS, WIDTH, HEADS, KV, SIZE, WORDS, LENGTH = 2, 64, 4, 2, 16, 100, 64
TOLERANCE = {"f32": 1e-4, "nbits": 1e-4, "qdq": 1e-4, "f16": 2e-2}


class Maker:
    def __init__(self):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(1)

    def put(self, op, *inputs, n=1, domain="", **attrs):
        outputs = [f"v{len(self.nodes)}_{i}" for i in range(n)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=f"{op}_{len(self.nodes)}", domain=domain, **attrs))
        if op.startswith("Skip"):
            outputs[1:3] = ["", ""]
            del self.nodes[-1].output[:]
            self.nodes[-1].output.extend(outputs)
        return outputs[0] if n == 1 else outputs

    def ms(self, op, *inputs, **attrs):
        return self.put(op, *inputs, domain="com.microsoft", **attrs)

    def weight(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def random(self, *shape):
        return self.weight((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def product(self, x, rows, columns):
        return self.put("MatMul", x, self.random(rows, columns))

    def layer(self, x, normal, past, last, total, angles):
        packed = self.product(normal, WIDTH, (HEADS + 2 * KV) * SIZE)
        y, k, v = self.ms("GroupQueryAttention", packed, "", "", *past, last, total, *angles, n=3, num_heads=HEADS,
                          kv_num_heads=KV, do_rotary=1, local_window_size=12)
        normal, _, _, x = self.ms("SkipSimplifiedLayerNormalization", x, self.product(y, HEADS * SIZE, WIDTH),
                                  self.random(WIDTH), n=4, epsilon=1e-5)
        gate = self.product(normal, WIDTH, 2 * WIDTH)
        wide = self.put("Mul", self.put("Mul", gate, self.put("Sigmoid", gate)), self.product(normal, WIDTH, 2 * WIDTH))
        normal, _, _, x = self.ms("SkipSimplifiedLayerNormalization", x, self.product(wide, 2 * WIDTH, WIDTH),
                                  self.random(WIDTH), n=4, epsilon=1e-5)
        return x, normal, k, v


def make_decoder():
    m = Maker()
    past = [f"past_key_values.{i}.{kind}" for i in range(LAYERS) for kind in ("key", "value")]
    one = m.weight(np.array([1], np.int64))
    last = m.put("Cast", m.put("Sub", m.put("ReduceSum", "attention_mask", one, keepdims=0), one), to=TensorProto.INT32)
    total = m.put("Gather", m.put("Shape", "attention_mask"), m.weight(np.array(1, np.int64)), axis=0)
    total = m.put("Cast", total, to=TensorProto.INT32)
    turn = np.outer(np.arange(LENGTH), 10.0 ** -np.arange(SIZE // 2))
    angles = [m.weight(f(turn).astype(np.float32)) for f in (np.cos, np.sin)]
    x = m.put("Gather", m.random(WORDS, WIDTH), "input_ids")
    normal = m.put("SimplifiedLayerNormalization", x, m.random(WIDTH), axis=-1, epsilon=1e-5, stash_type=1)
    present = []
    for i in range(LAYERS):
        x, normal, k, v = m.layer(x, normal, past[2 * i:2 * i + 2], last, total, angles)
        present += [k, v]
    logits = m.product(normal, WIDTH, WORDS)
    cache = ["batch_size", KV, "past_sequence_length", SIZE]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        m.nodes, "decoder",
        [info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
         info("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])]
        + [info(n, TensorProto.FLOAT, cache) for n in past],
        [info(logits, TensorProto.FLOAT, ["batch_size", "sequence_length", WORDS])]
        + [info(n, TensorProto.FLOAT, cache[:2] + ["total_sequence_length", SIZE]) for n in present],
        m.weights)
    return helper.make_model(graph, ir_version=10,
                             opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])


def make(kind, path):
    model = make_decoder()
    if kind == "f16":
        model = convert_float_to_float16(model)
    elif kind != "f32":
        q = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=False, accuracy_level=1,
                                 quant_format=QuantFormat.QDQ if kind == "qdq" else QuantFormat.QOperator)
        q.process()
        model = q.model.model
    onnx.save(model, path)


def check(worker, kind, path):
    session = oracle.session(path)
    worker.compile([path])
    rs, dtype = np.random.RandomState(3), np.float16 if kind == "f16" else np.float32
    names = [o.name for o in session.get_outputs()]
    batch, length = 2, 9
    ours = theirs = [np.zeros((batch, KV, 0, SIZE), dtype)] * (2 * LAYERS)
    ids = rs.randint(0, WORDS, (batch, length))
    for step in range(21):
        mask = np.ones((batch, length + step), np.int64)
        values = [ids.astype(np.int64), mask]
        want = session.run(names, dict(zip([i.name for i in session.get_inputs()], values + theirs)))
        got = worker.run(values + ours)
        text = oracle.outputs_differ(dict(zip(names, got)), dict(zip(names, want)), TOLERANCE[kind])
        if text:
            return f"step {step}: {text}"
        ours, theirs = got[1:], want[1:]
        ids = rs.randint(0, WORDS, (batch, 1))
    return None


def main():
    worker, failed = Worker(sys.argv[1]), 0
    for kind in sys.argv[2:] or TOLERANCE:
        if kind in ("nbits", "qdq") and not MatMulNBitsQuantizer:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "decoder.onnx")
            make(kind, path)
            text = check(worker, kind, path)
        failed += text is not None
        print(f"{kind}: {text or 'right'}", flush=True)
    worker.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
