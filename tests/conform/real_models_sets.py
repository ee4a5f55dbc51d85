#!/usr/bin/env python3
"""Sets of real siblings: what they share is stored once and reported, and being in a set changes no
answer by a single bit.

Every set is compiled as one bundle, beside one bundle for each of its models. Two models that
differ in their heads only must cost at most 1.1 times one. `weft inspect` and `--report` must name
what is shared. Siblings that share no weight are a set, too: nothing may be claimed for them.

usage: real_models_sets.py WEFT [SET...]     (environment: WEFT_MODELS; absent: exit 77)
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: needs numpy")
    sys.exit(77)

from real_models import Bundle, saved

# Name: models, largest size over that of the first alone (0: any), whether weights are shared.
SETS = {
    "resnet18 heads": (("sib_resnet18_base", "sib_resnet18_head"), 1.1, True),
    "resnet18 rows": (("sib_resnet18_base", "sib_resnet18_rows"), 1.1, True),
    "resnet18 last": (("sib_resnet18_base", "sib_resnet18_last"), 1.5, True),
    "resnet18 moved": (("sib_resnet18_base", "sib_resnet18_moved"), 0, False),
    "resnet18 all": (tuple("sib_resnet18_" + s for s in ("base", "head", "last", "moved", "rows")),
                     3, True),
    "bert heads": (("sib_bert_base", "sib_bert_head"), 1.1, True),
    "bert last": (("sib_bert_base", "sib_bert_last"), 1.3, True),
    "bert all": (tuple("sib_bert_" + s for s in ("base", "head", "last", "moved", "lora")),
                 3, True),
    "bert_base": (("bert_base", "bert_base_sib"), 1.1, True),
}


def expect(ok, text):
    if not ok:
        raise AssertionError(text)


def check_answers(weft, whole, single, stem, name, box):
    """The set's answers for one model are those of its own bundle, bit for bit."""
    inputs, outputs = saved(stem, "in"), list(saved(stem, "out"))
    for rows in ([0], [0, 1], [1, 0, 1]):
        picked = {k: v[rows] for k, v in inputs.items()}
        a = single.run(picked, outputs, 2)
        b = whole.run(picked, outputs, 2, model=name)
        for key in outputs:
            expect(np.array_equal(a[key].view(np.uint8), b[key].view(np.uint8)),
                   f"{name}: {key} differs in the set, batch {len(rows)}")


def check_words(weft, whole, report, names, shares):
    """inspect and the report agree with each other and with the set."""
    told = json.load(open(report))
    text = subprocess.run([weft, "inspect", whole.path, "--no-verify"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    # Small tensors, such as a bias of zeros, may be equal in any two models.
    fraction = told["bytes_saved"] / told["weight_bytes"]
    expect((fraction > 0.01) == shares, f"the report claims {told['bytes_saved']} bytes")
    lines = [line for line in text.splitlines() if line.startswith("  shared ")]
    expect(bool(lines) == bool(told["shared"]), "inspect and the report disagree")
    for entry in told["shared"]:
        expect(set(entry["models"]) <= set(names), f"the report names {entry['models']}")
    if shares:
        expect(any(names[0] in line and names[1] in line for line in lines),
               "inspect does not name the two that share")
    return told["bytes_saved"]


def check(weft, folder, models, most, shares, box):
    paths = [os.path.join(folder, m + ".onnx") for m in models]
    report = os.path.join(box, "report.json")
    whole = Bundle(weft, paths, os.path.join(box, "set.weft"), box, ["--report", report])
    size = os.path.getsize(whole.path)
    first = 0
    for name, path in zip(models, paths):
        single = Bundle(weft, [path], os.path.join(box, "single.weft"), box)
        first = first or os.path.getsize(single.path)
        check_answers(weft, whole, single, path[:-len(".onnx")], name, box)
    bytes_saved = check_words(weft, whole, report, models, shares)
    expect(not most or size <= most * first, f"{size} bytes, more than {most} times {first}")
    print(f"{len(models)} models in {size} bytes, {size / first:.3f} times the first alone, "
          f"{bytes_saved} saved; answers equal bit for bit", flush=True)


def main(argv):
    folder = os.environ.get("WEFT_MODELS")
    if not folder or not os.path.isdir(folder):
        print("skipped: WEFT_MODELS names no folder of exported models")
        return 77
    failed = met = 0
    with tempfile.TemporaryDirectory() as box:
        for name in argv[2:] or SETS:
            models, most, shares = SETS[name]
            if not all(os.path.exists(os.path.join(folder, m + ".onnx")) for m in models):
                print(f"{name}: not exported: left out")
                continue
            met += 1
            try:
                print(f"{name}: ", end="", flush=True)
                check(os.path.abspath(argv[1]), folder, models, most, shares, box)
            except (AssertionError, subprocess.CalledProcessError) as e:
                failed += 1
                print(f"FAILED: {e}", flush=True)
    return 1 if failed else 0 if met else 77


if __name__ == "__main__":
    sys.exit(main(sys.argv))
