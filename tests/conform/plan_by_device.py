"""The best plan of a small planning problem by another route than plan_optimum.py, to check that one.

Every device of the fleet and every place for a slice on it is its own variable. What a slice is used for is not
enumerated: models and batches are chosen by the program, and the rate of a model in turn, at most batch over the sum of
all times, is a product of a rate and a choice, which is exact for choices of 0 and 1. So neither sets of models, nor
layouts of instances, nor dominated columns enter. Failure domains do, since devices are told apart. Slow: for problems
of few devices (is_small).
"""
import math

from plan_optimum import CLIENTS, GIB, MIG, Program

PLACES_MAX = 56


def places(problem, device):
    """(slice, room, start of the instance or None) of every place on one device"""
    parts = sorted({s for m in problem.models for d, s, _, _ in m.points if d == device.kind})
    for part in parts:
        if problem.room(device, part) is None:
            continue
        if part == "":
            yield part, None, None
        elif "/" in part:
            profile, percent = part.split("/")
            for start in MIG[device.kind][1][profile][2]:
                for _ in range(100 // int(percent[:-1])):
                    yield part, profile, start
        elif part.endswith("%"):
            for _ in range(100 // int(part[:-1])):
                yield part, None, None
        else:
            for start in MIG[device.kind][1][part][2]:
                yield part, part, start


def is_small(problem):
    count = 0
    for device in problem.devices:
        at = list(places(problem, device))
        uses = sum(1 for part, _, _ in at for _ in uses_of(problem, device, part))
        count += device.count * (len(at) + uses / 4)
    return count <= PLACES_MAX * 4


def uses_of(problem, device, part):
    memory, clients = problem.room(device, part)
    for i, m in enumerate(problem.models):
        for (d, s, b, p), (_, size) in m.points.items():
            if (d, s) != (device.kind, part) or size * p > memory or p > clients:
                continue
            time = m.execution(d, s, b, p, problem.rule)
            if m.allows(time, problem.rule):
                yield i, b, p, time, size


class Place:
    """One place: its variables, all of which are 0 if it stays empty"""
    def __init__(self, p, problem, device, part):
        self.part = part
        self.open = p.variable(0, 1)
        self.rates = []  # (model, variable: part of its rate)
        self.chosen = []  # (variable, time, bytes, processes, model)
        self.fill(p, problem, device)

    def fill(self, p, problem, device):
        self.uses = list(uses_of(problem, device, self.part))
        for i, b, procs, time, size in self.uses:
            x = p.variable(0, 1)
            p.row([(x, 1), (self.open, -1)], hi=0)
            self.chosen.append((x, time, size, procs, i))
            rate = problem.models[i].rate
            point = device.kind, self.part, b, procs
            most = min(1, problem.models[i].alone_per_s(point, time) / rate) if rate else 1
            q = p.variable(0, 1, whole=not rate)
            p.row([(q, 1), (x, -most)], hi=0)
            self.rates.append((i, q))
        self.limit(p, problem, device)

    def limit(self, p, problem, device):
        memory, _ = problem.room(device, self.part)
        p.row([(x, size * procs / GIB) for x, _, size, procs, _ in self.chosen], hi=memory / GIB)
        p.row([(x, -1) for x, *_ in self.chosen] + [(self.open, 1)], hi=0)
        for i in range(len(problem.models)):
            p.row([(x, 1) for x, _, _, _, m in self.chosen if m == i], hi=1)
        if problem.isolated:
            p.row([(x, 1) for x, *_ in self.chosen], hi=1)
            return
        several = [(x, 1) for x, _, _, procs, _ in self.chosen if procs > 1]
        for x, _ in several:  # several processes of a model leave no room for others
            p.row([(y, 1) for y, *_ in self.chosen] + [(x, len(self.chosen))], hi=len(self.chosen) + 1)
        for (x, time, _, procs, i), (_, q), (_, b, _, _, _) in zip(self.chosen, self.rates, self.uses):
            each = problem.models[i].turn_per_s((device.kind, self.part, b, procs), time, 1e6)  # a batch, or less
            self.turn(p, problem, x, time, procs, i, q, each)

    def turn(self, p, problem, x, time, procs, i, q, each):
        """SLO and rate of one use among those that are chosen with it"""
        slo, rate = problem.models[i].slo, problem.models[i].rate
        total = sum(t for _, t, *_ in self.chosen)
        p.row([(y, t / slo) for y, t, *_ in self.chosen] + [(x, (time + total) / slo)], hi=1 + total / slo)
        if not rate or procs > 1:
            return
        terms = []  # sum of time * (q if chosen) <= each / rate
        for y, other, *_ in self.chosen:
            w = p.variable(0, 1, whole=False)
            p.row([(w, 1), (q, -1), (y, -1)], lo=-1)
            terms.append((w, other))
        p.row([(w, t * rate / (each * 1e6)) for w, t in terms], hi=1)


class Mixed(Program):
    """Some variables may take any value"""
    def __init__(self):
        super().__init__()
        self.whole = []

    def variable(self, cost=0.0, limit=math.inf, whole=True):
        self.whole.append(whole)
        return super().variable(cost, limit)

    def row(self, terms, lo=-math.inf, hi=math.inf):
        sums = {}
        for x, a in terms:
            sums[x] = sums.get(x, 0) + a
        super().row(list(sums.items()), lo, hi)

    def kinds(self):
        import highspy
        kind = highspy.HighsVarType
        return [kind.kInteger if w else kind.kContinuous for w in self.whole]


def add_device(p, problem, device, price, serve, runs):
    """Adds what the device serves of each model to `serve`, and whether it runs it to `runs`"""
    y = p.variable(price, 1)
    taken, shares, instance = {}, {}, {}
    ways = {"whole": [], "mig": [], "mps": []}
    percent, memory, clients = [], [], []
    for part, profile, start in places(problem, device):
        place = Place(p, problem, device, part)
        p.row([(place.open, 1), (y, -1)], hi=0)
        for i, q in place.rates:
            serve[i].append((q, 1))
        for x, _, _, _, i in place.chosen:
            runs[i].append((x, -1))
        size = [(x, s * procs / GIB) for x, _, s, procs, _ in place.chosen]
        # Models in turn are one client.
        procs = [(x, n - 1) for x, _, _, n, _ in place.chosen if n > 1] + [(place.open, 1)]
        way = "whole" if part == "" else "mig" if profile else "mps"
        ways[way].append(place.open)
        if way == "mps":
            percent.append((place.open, int(part[:-1])))
            memory += size
            clients += procs
        elif "/" in part:
            shares.setdefault((profile, start), []).append((place, size, procs))
        elif profile:
            instance[profile, start] = place.open
    for (profile, start), inside in shares.items():
        add_instance(p, problem, device, profile, start, inside, instance)
    for (profile, start), x in instance.items():
        for cell in range(start, start + MIG[device.kind][1][profile][1]):
            taken.setdefault(cell, []).append((x, 1))
    for terms in taken.values():
        p.row(terms, hi=1)
    p.row(percent, hi=100)
    p.row(memory, hi=problem.memory(device))
    p.row(clients, hi=CLIENTS)
    split = []
    for way, opened in ways.items():
        if opened:
            w = p.variable(0, 1)
            split.append((w, 1))
            for x in opened:
                p.row([(x, 1), (w, -1)], hi=0)
            if way == "whole":
                p.row([(x, 1) for x in opened], hi=1)
    p.row(split, hi=1)
    return y


def add_instance(p, problem, device, profile, start, inside, instance):
    """An instance that is split into shares"""
    gpcs, _, _, gib = MIG[device.kind][1][profile]
    most = max(x[0] for x in MIG[device.kind][1].values())
    x = p.variable(0, 1)
    p.row([(x, 1)] + [(place.open, -1) for place, _, _ in inside], hi=0)
    p.row([(place.open, int(place.part.split("/")[1][:-1])) for place, _, _ in inside] + [(x, -100)], hi=0)
    p.row([t for _, size, _ in inside for t in size], hi=gib)
    p.row([t for _, _, procs in inside for t in procs], hi=CLIENTS * gpcs // most)
    if problem.isolated:
        owner = [p.variable(0, 1) for _ in problem.models]
        p.row([(o, 1) for o in owner], hi=1)
        for place, _, _ in inside:
            for use, _, _, _, i in place.chosen:
                p.row([(use, 1), (owner[i], -1)], hi=0)
    if (profile, start) in instance:
        either = p.variable(0, 1)
        p.row([(either, 1), (x, -1), (instance[profile, start], -1)], lo=0, hi=0)
        instance[profile, start] = either
    else:
        instance[profile, start] = x


def optimum(problem, seconds=60):
    """As plan_optimum.optimum"""
    p = Mixed()
    priced = any(d.price > 0 for d in problem.devices)
    serve = [[] for _ in problem.models]
    placed = []  # (device, its number among those of the type, by model: served, runs)
    for device in problem.devices:
        last = None
        for n in range(device.count):
            own, runs = [[] for _ in problem.models], [[] for _ in problem.models]
            y = add_device(p, problem, device, device.price if priced else 1, own, runs)
            if last is not None and not device.per:
                p.row([(last, 1), (y, -1)], lo=0)
            last = y
            placed.append((device, n, own, runs))
            for all_of, terms in zip(serve, own):
                all_of += terms
    for terms in serve:
        if not terms:
            return None
        p.row(terms, lo=1 - 1e-7)
    for i, m in enumerate(problem.models):
        keep_apart(p, problem, i, m, placed)
    return p.solve(seconds)


def keep_apart(p, problem, i, model, placed):
    """Two domains of a model, and its rate without any one of them"""
    for level in {problem.survive, model.spread} - {None}:
        domains = {}
        for device, n, own, runs in placed:
            name = n // device.per[level]
            domains.setdefault(name if level == "zone" else (device.kind, name), []).append((own[i], runs[i]))
        used = []
        for inside in domains.values():
            z = p.variable(0, 1)
            p.row([(z, 1)] + [t for _, runs in inside for t in runs], hi=0)
            used.append((z, 1))
        p.row(used, lo=2)
        for name in domains if level == problem.survive else ():
            p.row([t for other, inside in domains.items() if other != name for own, _ in inside for t in own], lo=1 - 1e-7)


def disagree(problem, best, seconds=60):
    """What is wrong with the optimum `best` of plan_optimum; None: nothing, or the problem is too large"""
    if not is_small(problem):
        return None
    other = optimum(problem, seconds)
    if "time" in (other, best):
        return None
    if (other is None) != (best is None) or (best is not None and abs(other - best) > 1e-5 * max(1, best)):
        return f"optimum {best} by columns, {other} by devices"
    return ""
