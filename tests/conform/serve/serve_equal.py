# needs: numpy
"""Requests with equal inputs that wait together are computed once, and each gets its own answer: of one model, JSON and binary; of
several heads about one input, by one run of the model that has these heads; and of packed text. Models with random operators and
servers with --compute-each compute each of them."""
import os
import random
import re
import subprocess
import sys
import threading

import numpy as np
from serving import WEFT, Server, ask_at_once, tensor
from tests.support.onnx_file import Graph, Node, Port

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE_DIR"], "tests", "support"))
from text_models import LONGEST, WORDS, encoder

HEADS = ("topic", "mood", "spam")
rng = np.random.RandomState(7)
trunk, bias = rng.uniform(-0.5, 0.5, (16, 32)).astype("f4"), rng.uniform(-0.5, 0.5, 32).astype("f4")
own = {h: rng.uniform(-0.5, 0.5, (32, 2 + i)).astype("f4") for i, h in enumerate(HEADS)}
for i, h in enumerate(HEADS):
    g = Graph(opset=17)
    # The inputs stand in another order in one of the heads.
    g.inputs += [Port("x", "float32", ["N", 16]), Port("s", "float32", ["N", 1])][::-1 if i == 1 else 1]
    g.constants.update(trunk=trunk, bias=bias, own=own[h])
    g.nodes += [Node("MatMul", ["x", "trunk"], ["a"], {}), Node("Add", ["a", "bias"], ["b"], {}), Node("Tanh", ["b"], ["c"], {}),
                Node("Mul", ["c", "s"], ["d"], {}), Node("MatMul", ["d", "own"], ["y"], {})]
    g.outputs.append(Port("y", "float32"))
    g.save(f"{h}.onnx")
g = Graph(opset=17)
g.inputs.append(Port("x", "float32", ["N", 16]))
g.nodes += [Node("RandomUniformLike", ["x"], ["r"], {}), Node("Add", ["x", "r"], ["y"], {})]
g.outputs.append(Port("y", "float32"))
g.save("noise.onnx")
# The model of these heads has the bounds of the first.
for name, size in (("short", 8), ("long", "S"), ("longer", "S")):
    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", ["N", size, 16]))
    g.constants["w"] = trunk
    g.nodes.append(Node("MatMul", ["x", "w"], ["y"], {}))
    g.outputs.append(Port("y", "float32"))
    g.save(f"{name}.onnx")
encoder(np.random.RandomState(4), "lowest", "slice", "gather").save("text.onnx")
with open("set.yaml", "w") as f:
    f.write("models:\n" + "".join(f"  - {{name: {n}, file: {n}.onnx}}\n" for n in (*HEADS, "noise", "text", "short", "long", "longer")))
    f.write(f"  - {{name: support, heads: [{', '.join(HEADS)}]}}\n  - {{name: bounded, heads: [short, long, longer]}}\n")
subprocess.run([WEFT, "compile", "--pack", "set.yaml", "-o", "models.weft"], check=True)

# Few inputs, some of which differ in the last bit of one element.
inputs = [rng.uniform(-1, 1, (rows, 16)).astype("f4") for rows in (1, 1, 2, 3)]
inputs.append(inputs[1].copy())
inputs[-1].view("i4")[0, 9] ^= 1
scales = [np.ones((len(x), 1), "f4") for x in inputs]
requests, want = [], []
for h in HEADS:
    for x, s in zip(inputs, scales):
        for binary in (False, True):
            requests.append((h, {"x": x, "s": s}, binary))
            want.append({"y": (np.tanh(x @ trunk + bias) * s) @ own[h]})


def ask(server, model, arrays, binary):
    request = {"inputs": [tensor(k, a) for k, a in arrays.items()], "parameters": {"binary_data_output": binary}}
    status, got = server.infer(model, request)
    assert status == 200, got
    return {o["name"]: o["array"] for o in got["outputs"]}


def counter(server, name, model):
    text = server.request("GET", "/metrics", port=server.metrics)[2].decode()
    return int(float(re.search(rf'^weft_{name}_total{{[^}}]*model="{model}"[^}}]*}} (\S+)', text, re.M).group(1)))


def stats(server, model):
    return server.get(f"/v2/models/{model}/stats")[1]["model_stats"][0]


def ask_all(server):
    # Texts of different lengths, whose answers are those without company.
    texts = []
    for length in (3, 5, LONGEST):
        values = np.random.RandomState(length)
        texts.append(("text", {"ids": values.randint(0, WORDS, (1, length)), "mask": np.ones((1, length), "i8")}, True))
    alone = [ask(server, *t) for t in texts]
    ask_at_once(requests + 3 * texts, want + 3 * alone, lambda *r: ask(server, *r), lambda: None, each=30)


with Server("--always-together", "--max-queue-delay", "4ms") as server:
    ask_all(server)
    for model in (*HEADS, "text"):
        equal, done = counter(server, "requests_equal", model), counter(server, "requests_succeeded", model)
        assert 0 < equal < done, (model, equal, done)
    assert server.count("heads_executions") > 0
    for model in HEADS:
        computed = sum(b["batch_size"] * b["compute_infer"]["count"] for b in stats(server, model)["batch_stats"])
        assert stats(server, model)["inference_count"] >= computed, stats(server, model)
    # Requests that a model with heads cannot take run by the models of the heads, together.
    long = [(h, {"x": np.ones((1, 5, 16), "f4")}, True) for h in ("long", "longer")]
    heads = server.count("heads_executions")
    ask_at_once(8 * long, 16 * [{"y": np.ones((1, 5, 16), "f4") @ trunk}], lambda *r: ask(server, *r), lambda: None, each=10)
    assert server.count("heads_executions") == heads and counter(server, "requests_equal", "long") > 10
    # Each of its requests draws numbers of its own.
    answers, x = [], np.zeros((1, 16), "f4")
    threads = [threading.Thread(target=lambda: answers.extend(server.ask("noise", x)[0] for _ in range(8)))
               for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == 64 * [200] and counter(server, "requests_equal", "noise") == 0
with Server("--compute-each", "--max-queue-delay", "4ms") as server:
    ask_all(server)
    for model in (*HEADS, "text", "noise"):
        assert counter(server, "requests_equal", model) == 0
    assert server.count("heads_executions") == 0
print("ok")
