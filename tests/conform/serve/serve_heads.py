# needs: numpy
"""A model with heads: requests ask for some of them, by the names of outputs, and get what the heads answer by themselves,
also when requests for different heads run in one batch; JSON and binary, HTTP only (gRPC reads the same list). By a plan
it has a slice of its own beside its heads, and another one when the plan changes."""
import json
import os
import random
import subprocess
import threading

import numpy as np
from serving import WEFT, Server, tensor
from tests.support.onnx_file import Graph, Node, Port

HEADS = ("topic", "mood", "spam")
rng = np.random.RandomState(3)
trunk = rng.uniform(-0.5, 0.5, (16, 32)).astype("f4")
own = {h: rng.uniform(-0.5, 0.5, (32, 2 + i)).astype("f4") for i, h in enumerate(HEADS)}
for h in HEADS:
    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", ["N", 16]))
    g.constants.update(trunk=trunk, own=own[h])
    g.nodes += [Node("MatMul", ["x", "trunk"], ["a"], {}), Node("Tanh", ["a"], ["b"], {}), Node("MatMul", ["b", "own"], ["y"], {})]
    g.outputs.append(Port("y", "float32"))
    g.save(f"{h}.onnx")
with open("set.yaml", "w") as f:
    demand = "slo: 200ms, rate: 50/s"
    f.write("models:\n" + "".join(f"  - {{name: {h}, file: {h}.onnx, {demand}}}\n" for h in HEADS))
    f.write(f"  - {{name: support, heads: [{', '.join(HEADS)}], {demand}}}\n")
subprocess.run([WEFT, "compile", "set.yaml", "-o", "models.weft"], check=True)


def ask(server, x, heads, binary, model="support"):
    request = {"inputs": [tensor("x", x)], "parameters": {"binary_data_output": binary}}
    if heads:
        request["outputs"] = [{"name": f"{h}/y" if model == "support" else "y"} for h in heads]
    status, got = server.infer(model, request)
    assert status == 200, got
    return {o["name"]: o["array"] for o in got["outputs"]}


def check(server, x, heads, binary):
    got = ask(server, x, heads, binary)
    wanted = heads or HEADS
    assert list(got) == [f"{h}/y" for h in wanted], list(got)
    for h in wanted:
        want = np.tanh(x @ trunk) @ own[h]
        assert got[f"{h}/y"].shape == want.shape and np.abs(got[f"{h}/y"] - want).max() < 1e-5, h


def ask_at_once(server):
    """Eight clients, each for heads of its own choice."""
    problems = []

    def client(seed):
        mine, inputs = random.Random(seed), np.random.RandomState(seed)
        try:
            for _ in range(60):
                heads = mine.sample(HEADS, mine.randint(0, 3))
                check(server, inputs.uniform(-1, 1, (mine.randint(1, 2), 16)).astype("f4"), tuple(heads), mine.random() < 0.5)
        except Exception as problem:
            problems.append(repr(problem))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    return threads, problems


def finish(threads, problems):
    for t in threads:
        t.join()
    assert not problems, problems


with Server("--max-queue-delay", "5ms") as server:
    x = rng.uniform(-1, 1, (3, 16)).astype("f4")
    status, about = server.get("/v2/models/support")
    assert [o["name"] for o in about["outputs"]] == [f"{h}/y" for h in HEADS], about
    for heads in ((), HEADS, HEADS[:1], HEADS[1:], HEADS[::-1], (HEADS[2], HEADS[0])):
        for binary in (False, True):
            check(server, x, heads, binary)
    for h in HEADS:
        alone = ask(server, x, (h,), False, h)["y"]
        assert np.array_equal(alone, ask(server, x, (h,), False)[f"{h}/y"]), h
    status, got = server.infer("support", {"inputs": [tensor("x", x)], "outputs": [{"name": "y"}]})
    assert status == 400 and "no output 'y'" in got["error"], got

    finish(*ask_at_once(server))
    _, stats = server.get("/v2/models/support/stats")
    sizes = [b["batch_size"] for b in stats["model_stats"][0]["batch_stats"]]
    assert max(sizes) > 2, sizes


def ctl(*arguments):
    return subprocess.run([WEFT, "ctl", "control", *arguments], check=True, capture_output=True, text=True).stdout


def placed():
    workers = json.loads(ctl("status", "--format", "json"))["workers"]
    return {w["slice"]: set(w["models"]) for w in workers if not w["draining"]}


if len(os.sched_getaffinity(0)) >= 2:
    with open("fleet.yaml", "w") as f:
        f.write("devices:\n  - {type: cpu, count: 1, cores: 2, slices: [1, 1]}\n")
    subprocess.run([WEFT, "plan", "set.yaml", "--fleet", "fleet.yaml", "-o", "made.json"], check=True)
    with open("made.json") as f:
        plan = json.load(f)
    for name, alone in (("apart", 1), ("swapped", 0)):
        plan["placements"] = [dict(p, batch=4, slice_id=alone if p["model"] == "support" else 1 - alone) for p in plan["placements"]]
        with open(f"{name}.json", "w") as f:
            json.dump(plan, f)
    subprocess.run([WEFT, "compile", "set.yaml", "--plan", "apart.json", "-o", "models.weft"], check=True)
    with Server("apart.json", "--control", "control") as server:
        before = placed()
        assert sorted(before.values(), key=len) == [{"support"}, set(HEADS)], before
        load = ask_at_once(server)
        ctl("plan", "swapped.json")
        finish(*load)
        after = placed()
        assert set(before) == set(after) and all(before[s] != after[s] for s in before), (before, after)
        finish(*ask_at_once(server))
        _, stats = server.get("/v2/models/support/stats")
        sizes = [b["batch_size"] for b in stats["model_stats"][0]["batch_stats"]]
        assert max(sizes) <= 4, sizes
print("ok")
