"""Plans with families beside the optimum: `random_family_plans.py WEFT EXAMPLES [--seed 1] [--count 100] [--keep DIR]`.

The bundle of EXAMPLES/digits.yaml has a joint program. Its models get random rates and SLOs on random fleets, and
`weft plan --bundle` is compared with the least optimum (plan_optimum.py) over all sets of families without common
models; a family is a model with the profile of its joint program, the sum of the rates and the shortest SLO. The same
is checked as in random_plans.py. Exit code 1: some check failed.
"""
import argparse
import copy
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import random_plans  # noqa: E402
from plan_optimum import Device, Model, Problem, optimum, violations  # noqa: E402

GPU = "h100"


def read_points(model, listed):
    for p in listed:
        model.points[p["device"], p["slice"], p["batch"], p["procs"]] = p["time_us"], p["mreq_bytes"]
        if p["throughput_per_s"]:
            model.measured[p["device"], p["slice"], p["batch"], p["procs"]] = p["throughput_per_s"]
    return model


def compile_bundle(weft, examples, folder):
    """Its models, and the names and profiles of its families"""
    bundle = os.path.join(folder, "digits.weft")
    subprocess.run([weft, "compile", os.path.join(examples, "digits.yaml"), "--gpu", GPU, "-o", bundle], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shown = json.loads(subprocess.run([weft, "inspect", bundle, "--format", "json"], check=True,
                                      stdout=subprocess.PIPE).stdout)
    models = {m["name"]: read_points(Model(m["name"], 0, 0), m["profile"]) for m in shown["models"]}
    families = [read_points(Model("+".join(sorted(j["models"])), 0, 0), j["profile"]) for j in shown["joint"]
                if not j["packed"]]
    return bundle, models, families


def make_devices(rng):
    way = rng.choice(["mig", "mps", "whole", "cpu", "both"])
    cpu = Device("cpu", rng.randint(1, 3), round(rng.uniform(0.2, 1), 2), False, False)
    cpu.slices = rng.choice([[1], [1, 1]])
    gpu = Device(GPU, rng.randint(1, 4), round(rng.uniform(1, 4), 2), way in ("mig", "both"), way == "mps")
    return [cpu] if way == "cpu" else [gpu, cpu] if way == "both" else [gpu]


def make(rng, models, families):
    """Problems, one for each set of families"""
    devices = make_devices(rng)
    here = {d.kind for d in devices}
    rule, isolated = rng.choice(["exact", "half", "half09"]), rng.random() < 0.4
    own = []
    for m in models.values():
        m = copy.copy(m)
        points = sorted((t, b * p) for (d, _, b, p), (t, _) in m.points.items() if d in here)
        m.slo = round(rng.choice(points[:len(points) // 2])[0] * rng.uniform(2.2, 9)) + 1
        m.limit = m.slo
        m.rate = round(max((n * 1e6 / t for t, n in points if 2.3 * t < m.slo), default=1e3) * 10 ** rng.uniform(-2, 0.3))
        own.append(m)
    sets = [chosen for n in range(len(families) + 1) for chosen in itertools.combinations(families, n)
            if len({name for f in chosen for name in f.name.split("+")}) == sum(f.name.count("+") + 1 for f in chosen)]
    return [Problem(group(own, chosen), devices, rule, isolated) for chosen in sets]


def group(own, chosen):
    taken = {name for f in chosen for name in f.name.split("+")}
    models = [m for m in own if m.name not in taken]
    for family in chosen:
        f = copy.copy(family)
        members = [m for m in own if m.name in f.name.split("+")]
        f.rate = sum(m.rate for m in members)
        f.slo = f.limit = min(m.slo for m in members)
        models.append(f)
    return models


def write(problem, bundle, folder):
    random_plans.write(problem, folder)
    with open(os.path.join(folder, "set.yaml"), "w", encoding="utf-8") as f:
        f.write("models:\n" + "".join(f"  - {{name: {m.name}, file: {bundle}, slo: {m.slo}us, rate: {m.rate}/s}}\n"
                                      for m in problem.models))


def problem_of(problems, plan):
    """The problem whose families a plan places"""
    placed = {p["model"] for p in plan["placements"]}
    return next((p for p in problems if {m.name for m in p.models} == placed), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("examples")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--keep")
    o = parser.parse_args()
    import oracle
    oracle.need("plan_oracles.txt")
    table, failed, families_used = {}, 0, 0
    with tempfile.TemporaryDirectory() as own:
        bundle, models, families = compile_bundle(o.weft, o.examples, own)
        for seed in range(o.seed, o.seed + o.count):
            folder = os.path.join(o.keep or own, str(seed))
            os.makedirs(folder, exist_ok=True)
            problems = make(random.Random(seed), models, families)
            write(problems[0], bundle, folder)
            problems[0].options += ["--bundle", bundle]
            plan, text = random_plans.run(o.weft, problems[0], folder)
            found = [optimum(p) for p in problems]
            problem = problem_of(problems, plan) if isinstance(plan, dict) else problems[0]
            families_used += problem is not problems[0]
            if not problem:
                wrong, word = ["unknown families"], "error"
            elif "time" in found:
                wrong, word = violations(problem, plan) if isinstance(plan, dict) else [], "not known"
            else:
                best = min((x for x in found if x is not None), default=None)
                wrong, word = random_plans.judge(problem, plan, text, best)
            table[word] = table.get(word, 0) + 1
            failed += bool(wrong)
            if wrong:
                print(f"seed {seed}: {word}, {'; '.join(wrong)} (by families: {found})", flush=True)
    print(", ".join(f"{n} {word}" for word, n in sorted(table.items())) + f"; {families_used} with families")
    sys.exit(1 if failed or not families_used else 0)


if __name__ == "__main__":
    main()
