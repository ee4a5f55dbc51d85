#!/usr/bin/env python3
"""Adapters (LoRA) beside merged models. Random encoders with the names that exporters write, random adapters as PEFT saves them,
several on one base: `weft run --adapter` must answer as onnxruntime does with the merged model, and as the base without one.
What does not fit is refused by name.

usage: adapters.py WEFT [--seed N] [--count N]
"""
import argparse
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import oracle

oracle.need()
import numpy as np

from lora import STYLES, Adapter, base, safetensors
from text_models import LONGEST, make_inputs

ADAPTERS = 3


def write_set(folder, **keys):
    path = os.path.join(folder, "set.yaml")
    with open(path, "w") as f:
        f.write("models:\n  - name: base\n    file: base.onnx\n")
        for key, value in keys.items():
            f.write(f"    {key}: {json.dumps(value)}\n")
    return path


def requests(model, rs):
    """Inputs of a batch of random size, of sequences of one length."""
    length = int(rs.randint(1, LONGEST + 1))
    one = [make_inputs(model.g, length, rs) for _ in range(rs.randint(1, 6))]
    return {p.name: np.concatenate([x[i] for x in one]) for i, p in enumerate(model.g.inputs)}


def run(weft, bundle, inputs, names, folder, rs, *options):
    arguments = ["run", bundle, "--threads", int(rs.choice([1, 2])), *options]
    for name, value in inputs.items():
        np.save(os.path.join(folder, f"{name}.npy"), value)
        arguments += ["--input", f"{name}=@{folder}/{name}.npy"]
    for name in names:
        arguments += ["--output", f"{name}=@{folder}/out.{name}.npy"]
    oracle.weft(weft, *arguments)
    return {name: np.load(f"{folder}/out.{name}.npy") for name in names}


def check(weft, folder, style, rs):
    model = base(rs, style)
    prefix = str(rs.choice(["base_model.model.", "base_model.model.bert.", ""]))
    model.g.save(os.path.join(folder, "base.onnx"))
    adapters = [Adapter(rs, model) for _ in range(ADAPTERS)]
    for i, a in enumerate(adapters):
        a.save(os.path.join(folder, "adapters", f"a{i}"), prefix)
    bundle = os.path.join(folder, "b.weft")
    oracle.weft(weft, "compile", write_set(folder, adapters=["adapters/*"]), "-o", bundle, "--quiet")
    names = [p.name for p in model.g.outputs]
    for i, a in enumerate([None] + adapters):
        graph = a.merged(model) if a else model.g
        path = os.path.join(folder, "merged.onnx")
        graph.save(path)
        inputs = requests(model, rs)
        how = os.path.join(folder, "adapters", "a0") if i == 1 else f"a{i - 1}"  # one from its folder
        got = run(weft, bundle, inputs, names, folder, rs, *(["--adapter", how] if a else []))
        text = oracle.outputs_differ(got, oracle.answers(path, inputs), 1e-5)
        if text:
            return f"adapter {i - 1} of rank {a.rank if a else 0}: {text}"
    return None


def refusals(model, rs):
    """(words of the message, what is done to the files of an adapter)"""
    def config(**keys):
        return lambda a, c, t: c.update(keys)
    def tensor(name, x=None):
        return lambda a, c, t: t.update({name: np.zeros((2, 2), np.float32) if x is None else x})
    def rename(old, new):
        def change(a, c, t):
            for k in list(t):
                t[k.replace(old, new)] = t.pop(k)
        return change
    def drop(a, c, t):
        t.pop(next(iter(t)))
    def shape(a, c, t):
        name = next(k for k in t if "lora_A" in k)
        t[name] = t[name][:, :-1]
    def nan(a, c, t):
        next(iter(t.values()))[0, 0] = np.nan
    return [("only LORA", config(peft_type="IA3")), ("use_dora", config(use_dora=True)),
            ("modules_to_save", config(modules_to_save=["classifier"])), ("bias", config(bias="all")),
            ("regular expression", config(rank_pattern={"^encoder.*": 4})), ("adapter_config.json says", config(r=a_rank(model) + 1)),
            ("is no factor", tensor("base_model.model.x.lora_magnitude_vector")),
            ("is no factor", tensor("base_model.model.x.lora_embedding_A")), ("has no lora_", drop),
            ("features", shape), ("not finite", nan), ("no GEMM by a constant weight", rename("query", "somewhere")),
            ("no GEMM by a constant weight", rename("base_model.model.encoder.layer.0.attention.self.query", "uery"))]


def a_rank(model):
    return 4


def check_refused(weft, folder, rs):
    model = base(rs, "folded", layers=1)
    model.g.save(os.path.join(folder, "base.onnx"))
    for words, change in refusals(model, rs):
        a = Adapter(rs, model, ["encoder.layer.0.attention.self.query", "encoder.layer.0.output.dense"])
        a.rank, a.dtype, a.ranks = 4, "F32", {}
        for path, (x, y) in a.factors.items():
            a.factors[path] = (np.resize(x, (4, x.shape[1])), np.resize(y, (y.shape[0], 4)))
        target = os.path.join(folder, "one", "a")
        a.save(target)
        config = a.config()
        tensors = {f"base_model.model.{p}.lora_{k}.weight": x for p, f in a.factors.items() for k, x in zip("AB", f)}
        change(a, config, tensors)
        with open(os.path.join(target, "adapter_config.json"), "w") as f:
            json.dump(config, f)
        with open(os.path.join(target, "adapter_model.safetensors"), "wb") as f:
            f.write(safetensors(tensors))
        try:
            oracle.weft(weft, "compile", write_set(folder, adapters=["one/a"]), "-o", os.path.join(folder, "x.weft"))
            return f"'{words}' expected, but it was compiled"
        except oracle.Failed as e:
            if words not in str(e) or e.code != 1:
                return f"'{words}' expected: exit code {e.code}, {e}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10)
    o = parser.parse_args()
    failed = 0
    for i in range(o.count):
        with tempfile.TemporaryDirectory() as folder:
            rs = np.random.RandomState(o.seed * 100003 + i)
            try:
                text = check(o.weft, folder, STYLES[i % len(STYLES)], rs)
            except oracle.Failed as e:
                text = str(e)
            if text:
                failed += 1
                print(f"{i} {STYLES[i % len(STYLES)]}: {text}")
    with tempfile.TemporaryDirectory() as folder:
        text = check_refused(o.weft, folder, np.random.RandomState(o.seed))
        if text:
            failed += 1
            print(f"refused: {text}")
    print(f"{o.count} bases with {ADAPTERS} adapters, {failed} wrong")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
