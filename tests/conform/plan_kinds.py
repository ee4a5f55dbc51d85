"""Further kinds of random planning problems for random_plans.py, each made of one of its problems:

margins: times with errors and 90 % bands, planned on a quantile of them (--confidence). cpus: machines whose slices
have their memory in common, alone or beside GPUs, for models whose memory is not always known. crowded: small models
with several processes on MPS shares of a stated memory, which may sum to more than 100 % (--oversubscribe). domains:
models in two failure domains, or rates that outlast the loss of one (--survive).
"""
import statistics

from plan_optimum import Device

ERROR = (3.141592653589793 / 2) ** 0.5  # of a normal distribution, over its mean absolute error


def add_margins(rng, problem):
    """Plans on a quantile: of the 90 % band of a point, or of the mean absolute error that it states"""
    confidence = rng.choice([0.5, 0.7, 0.9, 0.95, 0.99])
    z = statistics.NormalDist().inv_cdf
    problem.options += ["--confidence", str(confidence)]
    for m in problem.models:
        for point, (time, _) in m.points.items():
            error = rng.choice([0, 0.05, 0.2])
            high = round(time * rng.uniform(0.9, 2), 1) if rng.random() < 0.6 else 0
            m.stated[point] = error, high
            m.margin[point] = (high / time) ** (z(confidence) / z(0.95)) if high > time else 1 + error * ERROR * z(confidence)


def make_cpus(rng):
    """A machine or two types of them, half of the time beside a GPU"""
    devices = []
    for kind in rng.sample(["cpu-zen4", "cpu-zen5"], rng.choice([1, 1, 2])):
        slices = rng.choice([[1, 1], [2, 2], [1, 1, 2], [4], [2, 1, 1, 4]])
        device = Device(kind, rng.randint(1, 4), round(rng.uniform(0.3, 2), 2), False, False)
        device.slices, device.mem = slices, rng.choice([0, 4, 8, 16])
        devices.append(device)
    if rng.random() < 0.6:
        way = rng.choice(["mig", "mps", "whole"])
        kind = "a30" if way == "mig" else rng.choice(["t4", "l4"])
        devices.append(Device(kind, rng.randint(1, 3), round(rng.uniform(0.5, 3), 2), way == "mig", way == "mps"))
    return devices


def forget_sizes(rng, problem):
    """Some models whose memory is not known, which profiles say as 0, beside others"""
    for m in problem.models:
        if rng.random() < 0.3:
            m.points = {point: (time, 0) for point, (time, _) in m.points.items()}


def make_crowded(rng):
    device = Device(rng.choice(["t4", "l4", "v100", "a10g"]), rng.randint(1, 4), 0, False, True)
    device.mem = rng.choice([0, 6, 10])
    return [device]


def crowd(rng, problem):
    """Memory or clients decide, not compute units"""
    if rng.random() < 0.6:
        problem.oversubscribe = True
        problem.options.append("--oversubscribe")
    for m in problem.models:
        m.rate = round(m.rate * rng.choice([0.05, 0.3, 1]), 2)
        for point in m.points:
            m.points[point] = m.points[point][0], int(m.points[point][1] * rng.choice([0.05, 0.4, 1]))


def add_domains(rng, problem):
    level = rng.choice(["node", "node", "rack", "zone"])
    for d in problem.devices:
        d.count = rng.randint(2, 4)
        d.per = dict(zip(("node", "rack", "zone"), rng.choice([(1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2)])))
    if rng.random() < 0.6:
        problem.survive = level
        problem.options += ["--survive", level]
    for m in problem.models:
        if rng.random() < 0.5:
            m.spread = level
    if not problem.survive and not any(m.spread for m in problem.models):
        problem.models[0].spread = level
