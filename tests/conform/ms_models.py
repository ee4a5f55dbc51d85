#!/usr/bin/env python3
"""Exported transformers after onnxruntime's transformer optimiser, in f32 and f16, compared with onnxruntime on
the same file. WEFT_MODELS names the folder of the exported models.

usage: ms_models.py WORKER [MODEL ...]      e.g. gpt2 (default: bert_tiny, bert_base)
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
    from onnxruntime.transformers import optimizer
except ImportError as e:
    oracle.skip(f"onnxruntime's optimiser cannot be imported: {e}")

from worker import Worker

KINDS = {"gpt2": "gpt2"}  # else bert
# f16 operators round at other places; relative to the largest element.
TOLERANCE = {"f32": 2e-4, "f16": 2e-2}


def optimise(source, name, precision, folder):
    """Path of the optimised file, and how many nodes of com.microsoft it has."""
    made = optimizer.optimize_model(source, model_type=KINDS.get(name, "bert"), num_heads=0, hidden_size=0, opt_level=0)
    if precision == "f16":
        made.convert_float_to_float16(keep_io_types=True)
    path = os.path.join(folder, f"{name}_{precision}.onnx")
    made.save_model_to_file(path, use_external_data_format=False)
    return path, sum(n.domain == "com.microsoft" for n in made.model.graph.node)


def check(worker, source, name, precision, folder):
    path, fused = optimise(source, name, precision, folder)
    if not fused:
        return "the optimiser fused nothing"
    session = oracle.session(path)
    inputs = {i.name: np.load(f"{source[:-5]}.in.{i.name}.npy") for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    want = dict(zip(names, session.run(names, inputs)))
    worker.compile([path])
    got = dict(zip(names, worker.run([inputs[i.name] for i in session.get_inputs()])))
    print(f"{name} {precision}: {fused} fused nodes", flush=True)
    return oracle.outputs_differ(got, want, TOLERANCE[precision])


def main():
    models = os.environ.get("WEFT_MODELS")
    if not models:
        oracle.skip("WEFT_MODELS names no folder of exported models")
    worker, failed, tried = Worker(sys.argv[1]), 0, 0
    for name in sys.argv[2:] or ["bert_tiny", "bert_base"]:
        source = os.path.join(models, name + ".onnx")
        if not os.path.exists(source):
            continue
        for precision in ("f32", "f16"):
            with tempfile.TemporaryDirectory() as folder:
                text = check(worker, source, name, precision, folder)
            tried += 1
            if text:
                failed += 1
                print(f"{name} {precision}: {text}")
    worker.close()
    if not tried:
        oracle.skip("no such model in WEFT_MODELS")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
