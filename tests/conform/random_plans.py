"""Random small planning problems: `weft plan` beside the optimum (plan_optimum.py).

    random_plans.py WEFT [--seed 1] [--count 300] [--also 5,6] [--kinds isolated,shared,mixed] [--change] [--second]
                    [--keep DIR] [--verbose]

isolated: one type of GPU split by MIG, a slice for each model. shared: one type, in turn on whole devices or MIG
instances, or by MPS. mixed: two or three types with prices, each split in its own way, with few devices, so that some
problems have no plan. single: one or two devices. nested: MPS shares of MIG instances, and of devices. odd: types with
other MIG profiles, of unequal prices. tight: SLOs near the shortest times. ruled: any of isolated, shared and mixed,
under the rule queue and with --reserve, --procs, --whole-ms and --host. More kinds: plan_kinds.py. Checked: every plan
is legal; it is optimal, or says that it may not be, by at most 1 %; what it states to be proven is so; a bound is one;
no problem with a plan is refused. With failure domains a plan may be dearer, and a problem with a plan refused, if that
is said. Exit code 1: some check failed.

--change: the problem is changed (a rate, an SLO, a model or a device more or less) and planned again with the plan in
force. The plan may then cost more than the optimum, by what it saves in moves, but must say so. --second: the optimum
of small problems is computed by another program, too (plan_by_device.py).
"""
import argparse
import copy
import json
import math
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import plan_by_device  # noqa: E402
import plan_kinds  # noqa: E402
from plan_optimum import GIB, MEMORY, MIG, Device, Model, Problem, optimum, violations  # noqa: E402

OLD = ["a30", "a100-80", "h100"]  # split by MIG in the first three kinds
ODD = ["a30", "a100-40", "h200", "b200"]
SPEED = {"a30": 0.55, "a100-80": 1.0, "h100": 1.9, "t4": 0.25, "l4": 0.45, "v100": 0.5, "a10g": 0.4}
MORE = {"a100-40": 0.95, "h200": 2.1, "b200": 3.6}
CPUS = {"cpu-zen4": 0.1, "cpu-zen5": 0.13}
SHARES = [[20, 40, 60, 80, 100], [10, 25, 50, 100], [30, 50, 70], [20, 50, 80]]


def slices_of(rng, device):
    """Names of the slices that are profiled, and their parts of the device"""
    parts = [(f"{n}core", n / 4) for n in sorted(set(device.slices))]
    if device.slices:
        return parts
    if device.mig:
        most = max(p[0] for p in MIG[device.kind][1].values())
        parts += [(name, p[0] / most * (1.08 if p[1] > p[0] else 1)) for name, p in
                  MIG[device.kind][1].items() if rng.random() < 0.85]
    if device.mig and device.mps:
        parts += [(f"{name}/{x}%", part * x / 100) for name, part in parts for x in rng.choice([[50], [40, 60], [30]])
                  if rng.random() < 0.5]
    if device.mps:
        parts += [(f"{x}%", x / 100) for x in rng.choice(SHARES)]
    if not parts or rng.random() < 0.4:
        parts.append(("", 1.02))
    return parts


def profile(rng, model, devices, slices, batches, procs_max):
    fixed, each = rng.uniform(0.3, 4), rng.uniform(0.1, 3)  # ms on an a100
    scaling = rng.uniform(0.5, 1)
    weights, activations = rng.choice([0.3, 1, 2.5, 6]), rng.uniform(0.02, 0.3)  # GiB
    for device in devices:
        speed = {**SPEED, **MORE, **CPUS}[device.kind] * rng.uniform(0.8, 1.25)
        for name, part in slices[device.kind]:
            if rng.random() < 0.05:
                continue
            for procs in range(1, procs_max + 1):
                for batch in batches:
                    time = (fixed + each * batch) / (speed * part ** scaling) * rng.uniform(0.93, 1.07)
                    time *= 1 + (procs - 1) * rng.uniform(0.55, 1)
                    size = int((weights + activations * batch) * GIB)
                    model.points[device.kind, name, batch, procs] = (round(time * 1e3, 1), size)


def make_devices(rng, kind):
    if kind == "isolated":
        return [Device(rng.choice(OLD), rng.randint(4, 12), 0, True, False)]
    if kind == "shared":
        way = rng.choice(["mig", "mps", "whole"])
        name = rng.choice(OLD) if way == "mig" else rng.choice(list(SPEED))
        return [Device(name, rng.randint(3, 6), 0, way == "mig", way == "mps")]
    if kind in ("single", "nested"):
        way = "nested" if kind == "nested" else rng.choice(["mig", "mps", "whole", "nested"])
        name = rng.choice(OLD + ODD if way in ("mig", "nested") else list(SPEED) + list(MORE))
        count = rng.choice([1, 1, 2] if kind == "single" else [1, 2, 3])
        return [Device(name, count, 0, way in ("mig", "nested"), way in ("mps", "nested"))]
    if kind == "cpus":
        return plan_kinds.make_cpus(rng)
    if kind == "crowded":
        return plan_kinds.make_crowded(rng)
    if kind == "odd":
        return [Device(name, rng.randint(1, 5), round(rng.uniform(0.5, 9), 2), True, False)
                for name in rng.sample(ODD, rng.choice([1, 2]))]
    devices = []
    for name in rng.sample(list(SPEED), rng.choice([2, 2, 3])):
        way = rng.choice(["mig", "mps", "whole"] if name in OLD else ["mps", "whole"])
        price = round(SPEED[name] * rng.uniform(2.5, 5), 2)
        devices.append(Device(name, rng.randint(1, 4), price, way == "mig", way == "mps"))
    return devices


def restrict(rng, problem):
    """Rules beside the latency rule"""
    host = rng.choice([0, 300, 1500])  # us
    if rng.random() < 0.7:
        problem.rule = "queue"
        burst = rng.choice([1, 1, 1.5])
        problem.options += ["--arrivals", "poisson"] if burst == 1 else ["--arrivals", "bursty", "--burst", str(burst)]
    if rng.random() < 0.3:
        problem.reserve = 0.15
        problem.options += ["--reserve", "15%"]
    if rng.random() < 0.3:
        problem.procs_max = rng.choice([1, 2])
        problem.options += ["--procs", str(problem.procs_max)]
    whole = rng.random() < 0.3
    if whole:
        problem.options.append("--whole-ms")
    if problem.rule == "queue" and host:
        problem.options += ["--host", f"{host}us"]
    for m in problem.models:
        m.limit = math.floor(m.slo / 1e3) * 1e3 if whole else m.slo
        if problem.rule == "queue":
            m.limit -= host
            m.queue = (0.99, burst)


def make(rng, kind):
    if kind == "ruled":
        problem = make(rng, rng.choice(["isolated", "shared", "mixed"]))
        restrict(rng, problem)
        return problem
    if kind == "margins":
        problem = make(rng, rng.choice(["isolated", "shared", "mixed", "ruled"]))
        plan_kinds.add_margins(rng, problem)
        return problem
    if kind == "domains":
        problem = make(rng, rng.choice(["single", "shared"]))
        plan_kinds.add_domains(rng, problem)
        return problem
    devices = make_devices(rng, kind)
    isolated = kind == "isolated" or (kind not in ("shared", "isolated") and rng.random() < 0.4)
    for device in devices:
        if not device.price:
            device.price = rng.choice([1.0, 3.5])
    slices = {d.kind: slices_of(rng, d) for d in devices}
    batches = sorted(rng.sample([1, 2, 4, 8, 16], 3 if isolated else 2))
    models = []
    for i in range(rng.randint(2, 6 if isolated else 4)):
        model = Model(f"m{i}", 0, 0)
        profile(rng, model, devices, slices, batches, rng.choice([1, 1, 12 if kind == "crowded" else 3]))
        if not model.points:
            continue
        times = sorted(t for t, _ in model.points.values())
        time = rng.choice(times[:len(times) // 2 + 1])
        model.slo = round(time * (rng.uniform(2, 2.4) if kind == "tight" else rng.uniform(2.2, 9)) / 1e3, 2) * 1e3
        model.limit = model.slo
        best = max((b * p * 1e6 / t for (_, _, b, p), (t, _) in model.points.items()
                    if model.allows(t, "half09")), default=1)
        model.rate = 0 if rng.random() < 0.04 else round(best * 10 ** rng.uniform(-1.6, 0.35), 2)
        models.append(model)
    problem = Problem(models, devices, rng.choice(["exact", "half", "half09"]), isolated)
    if kind == "crowded":
        plan_kinds.crowd(rng, problem)
    if kind == "cpus":
        plan_kinds.forget_sizes(rng, problem)
    return problem


def measure(rng, problem):
    """Gives most points of a problem a measured throughput, less or more than the times say"""
    for m in problem.models:
        for (d, s, b, p), (t, _) in m.points.items():
            if rng.random() < 0.8:
                m.measured[d, s, b, p] = round(b * p * 1e6 / t * rng.uniform(0.7, 1.1), 2)


def change(rng, problem):
    """The problem after a change, and the one before it; both are parts of `problem`"""
    before, after = copy.copy(problem), copy.copy(problem)
    before.models, after.models = ([copy.copy(m) for m in problem.models] for _ in range(2))
    before.devices, after.devices = ([copy.copy(d) for d in problem.devices] for _ in range(2))
    what = rng.choice(["rate", "rate", "slo", "added", "removed", "device"])
    one, device = rng.randrange(len(after.models)), rng.randrange(len(after.devices))
    if what == "rate":
        after.models[one].rate = round(after.models[one].rate * rng.choice([0.3, 0.8, 1.2, 2]), 2)
    elif what == "slo":
        after.models[one].slo = round(after.models[one].slo * rng.choice([0.7, 1.5]) / 1e3, 2) * 1e3
        after.models[one].limit = after.models[one].slo
    elif what == "added" and len(problem.models) > 1:
        del before.models[one]
    elif what == "removed" and len(problem.models) > 1:
        del after.models[one]
    elif after.devices[device].count > 1:
        after.devices[device].count -= 1
    return what, before, after


def write(problem, folder):
    lines = ["profile_layout: weft", "models:"]
    for m in problem.models:
        lines.append(f"  - {{name: {m.name}, profile: {m.name}.csv, slo: {m.slo / 1e3:.6g}ms" +
                     (f", rate: {m.rate}/s" if m.rate else "") + (f", spread: {m.spread}}}" if m.spread else "}"))
        with open(os.path.join(folder, m.name + ".csv"), "w", encoding="utf-8") as f:
            f.write("device,slice,batch,procs,time_us,mreq_bytes,throughput_per_s,expected_error,time_p95_us\n")
            for (d, s, b, p), (t, size) in m.points.items():
                error, high = m.stated.get((d, s, b, p), (0.05, 0))
                f.write(f"{d},{s},{b},{p},{t},{size},{m.measured.get((d, s, b, p), 0)},{error},{high}\n")
    fleet = ["devices:"]
    for d in problem.devices:
        keys = [f"cores: {sum(d.slices)}, slices: {d.slices}"] if d.slices else [
            f"mig: {str(d.mig).lower()}, mps: {str(d.mps).lower()}"]
        keys += [f"mem: {d.mem}GiB"] * (d.mem > 0) + [f"per_{level}: {n}" for level, n in d.per.items()]
        fleet.append(f"  - {{type: {d.kind}, count: {d.count}, price: {d.price}, {', '.join(keys)}}}")
    for name, text in (("set.yaml", lines), ("fleet.yaml", fleet)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write("\n".join(text) + "\n")


def run(weft, problem, folder, previous=None):
    command = [weft, "plan", os.path.join(folder, "set.yaml"), "--fleet", os.path.join(folder, "fleet.yaml"),
               "--rule", problem.rule, "-o", os.path.join(folder, "plan.json")]
    if previous:
        command += ["--previous", previous]
    done = subprocess.run(command + problem.options + ["--isolated"] * problem.isolated, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 3:
        return None, done.stderr
    if done.returncode:
        return "error", f"exit code {done.returncode}: {done.stderr}"
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as f:
        return json.load(f), done.stdout


def judge(problem, plan, text, best, kept=False):
    """What is wrong, and a word for the table. `kept`: made from a plan in force, it may be dearer than the best"""
    if plan == "error":
        return [text], "error"
    apart = problem.survive or any(m.spread for m in problem.models)
    if plan is None:
        if apart and best is not None and "does not show" in text:
            return [], "not found"
        return ([f"refused, a plan for {best} exists: {text.strip()}"] if best is not None else []), "refused"
    wrong = violations(problem, plan)
    if best is None:
        return wrong + ["a plan where none is possible"], "error"
    cost, bound = plan["cost_per_hour"], plan.get("cost_bound", 0)
    if bound > best * (1 + 1e-6):
        wrong.append(f"the bound {bound} is above the optimum {best}")
    if cost < best * (1 - 1e-6):
        wrong.append(f"price {cost} is below the optimum {best}")
    above = cost / best - 1
    if plan["proven"] and above > 1e-6:
        wrong.append(f"price {cost} is stated to be proven, the optimum is {best}")
    if not plan["proven"] and plan.get("gap", 1) < above - 1e-6:
        wrong.append(f"gap {plan['gap']} is stated, it is {above}")
    if above > 1e-6 or (not plan["proven"] and plan.get("gap", 1) > 0.01):
        word = "above" if above > 1e-6 else "unproven"
        if not kept and not apart and (above > 0.01 or plan.get("gap", 1) > 0.01):
            wrong.append(f"price {cost}, optimum {best}, bound {bound}")
        return wrong, word
    return wrong, "proven" if plan["proven"] else "within 1 %"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--also", default="", help="further seeds, by commas")
    parser.add_argument("--kinds", default="isolated,shared,mixed")
    parser.add_argument("--change", action="store_true")
    parser.add_argument("--second", action="store_true")
    parser.add_argument("--keep")
    parser.add_argument("--seconds", type=float, default=60, help="limit of the optimum's solver")
    parser.add_argument("--verbose", action="store_true")
    o = parser.parse_args()
    import oracle
    oracle.need("plan_oracles.txt")
    kinds = o.kinds.split(",")
    table = {k: {} for k in kinds}
    failed = 0
    for number in list(range(o.seed, o.seed + o.count)) + [int(x) for x in o.also.split(",") if x]:
        kind = kinds[number % len(kinds)]
        rng = random.Random(number)
        problem = make(rng, kind)
        if number % 3 == 2 and not number % 2:  # one of six, with numbers of its own
            measure(random.Random(-number), problem)
        with tempfile.TemporaryDirectory() as own:
            folder = os.path.join(o.keep, str(number)) if o.keep else own
            os.makedirs(folder, exist_ok=True)
            what, previous = "", None
            if o.change:
                what, before, problem = change(rng, problem)
                write(before, folder)
                if isinstance(run(o.weft, before, folder)[0], dict):
                    previous = os.path.join(folder, "previous.json")
                    os.replace(os.path.join(folder, "plan.json"), previous)
            write(problem, folder)
            plan, text = run(o.weft, problem, folder, previous)
            apart = kind == "domains"
            best = (plan_by_device.optimum if apart else optimum)(problem, o.seconds)
        if best == "time":
            word = "not known"
            wrong = violations(problem, plan) if isinstance(plan, dict) else []
        else:
            wrong, word = judge(problem, plan, text, best, previous is not None)
        if o.second and not apart:
            other = plan_by_device.disagree(problem, best, o.seconds)
            table[kind]["twice"] = table[kind].get("twice", 0) + (other is not None)
            wrong += [other] if other else []
        table[kind][word] = table[kind].get(word, 0) + 1
        failed += bool(wrong)
        if wrong or o.verbose:
            ms = plan.get("decision_ms", 0) if isinstance(plan, dict) else 0
            print(f"seed {number} {kind} {what}: {word}, {ms:.0f} ms {'; '.join(wrong)}", flush=True)
    for kind in kinds:
        print(kind, ", ".join(f"{n} {word}" for word, n in sorted(table[kind].items())))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
