"""The best plan of a small planning problem, and a check of any plan, both written from the documents
(docs/set-file.md, docs/plan-json.md) without Weft's code.

A problem is a Problem. optimum() lists every way to use a slice (a model alone, or any set of models with
any batches in turn), and chooses among them with an integer program that HiGHS solves: MIG and whole
devices by counts, devices and instances with MPS shares one by one, so that their memory is exact. violations()
follows a plan's placements device by device.
"""
import itertools
import math

GIB = 1 << 30
CLIENTS = 48

# name: (GPCs, memory slots, start slots, usable GiB), as NVIDIA's MIG user guide has them
SEVEN = list(range(7))
EVEN = [0, 2, 4, 6]


def of_seven(names, gib):
    """The profiles of an eight-slot device: 1g, 1g with double memory, 2g, 3g, 4g, 7g"""
    shapes = [(1, 1, SEVEN), (1, 2, EVEN), (2, 2, [0, 2, 4]), (3, 4, [0, 4]), (4, 4, [0]), (7, 8, [0])]
    return 8, {name: shape + (size,) for name, shape, size in zip(names.split(), shapes, gib)}


MIG = {
    "a30": (4, {"1g.6gb": (1, 1, [0, 1, 2, 3], 5.81), "2g.12gb": (2, 2, [0, 2], 11.69),
                "4g.24gb": (4, 4, [0], 23.5)}),
    "a100-40": of_seven("1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", [4.75, 9.6, 9.6, 19.5, 19.5, 39.25]),
    "a100-80": of_seven("1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", [9.6, 19.5, 19.5, 39.25, 39.25, 78.5]),
    "b200": of_seven("1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb", [20.5, 44.25, 44.25, 89.0, 89.0, 178.5]),
    "h100": of_seven("1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", [9.75, 19.62, 19.62, 39.4, 39.4, 79.1]),
    "h200": of_seven("1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", [16.0, 32.25, 32.25, 69.5, 69.5, 140.0]),
}
MEMORY = {"a30": 23.5, "a100-40": 39.25, "a100-80": 78.5, "b200": 178.5, "h100": 79.1, "h200": 140.0, "t4": 14.5, "l4": 22.0, "v100": 15.5, "a10g": 22.0}


class Model:
    """`slo` is what the set states; the rules are held at `limit`, which --whole-ms and --host make shorter"""
    def __init__(self, name, slo_ms, rate):
        self.name, self.slo, self.rate = name, slo_ms * 1e3, rate
        self.limit = self.slo
        self.queue = None  # under the rule queue: (quantile, peak rate over mean rate)
        self.points = {}  # (type, slice, batch, procs): (time_us, bytes of a process)
        self.measured = {}  # the same: requests per second of all processes, where it was measured
        self.stated = {}  # the same: expected error, end of the 90 % band in us
        self.margin = {}  # the same: what each time is multiplied by, where that is not 1
        self.spread = None  # the level of the failure domains of which it is in two

    def execution(self, device, part, batch, procs, rule):
        """us; under the rule exact the longest of this batch and all smaller ones"""
        if rule not in ("exact", "queue"):
            return self.time((device, part, batch, procs))
        return max(self.time(point) for point in self.points
                   if (*point[:2], point[3]) == (device, part, procs) and point[2] <= batch)

    def time(self, point):
        return self.points[point][0] * self.margin.get(point, 1)

    def busy_per_s(self, point, time):
        """Requests per second of all processes, with full batches all the time"""
        if point in self.measured:
            return self.measured[point] / self.margin.get(point, 1)
        return point[2] * point[3] * 1e6 / time

    def alone_per_s(self, point, time):
        return self.queued(self.busy_per_s(point, time), point, time)

    def turn_per_s(self, point, time, cycle):
        """In turn with others: a batch each cycle, and no more than it serves alone for its part of the time"""
        full = point[2] * 1e6 / cycle
        most = self.busy_per_s(point, time) * time / cycle if point in self.measured else full
        return self.queued(min(full, most), point, time)

    def queued(self, peak, point, time):
        """Of a peak rate, what random arrivals leave"""
        if not self.queue:
            return peak
        batch, procs = point[2:]
        return random_rate(batch, procs, time, batch * 1e6 / peak, self.limit, self.queue[0]) / self.queue[1]

    def allows(self, time, rule):
        if rule == "half":
            return time < self.limit / 2
        if rule == "half09":
            return time < 0.9 * self.limit / 2
        return 2 * time <= self.limit


def random_rate(batch, procs, time, period, slo, quantile):
    """Largest rate of Poisson arrivals of which `quantile` are answered in time (docs/plan-json.md, Rule queue):
    Bailey's decay of the requests left behind by full batches, at a level that the Cramer-Lundberg constant gives"""
    n = (slo - time) / period
    if n < 1 - 1e-9:
        return 0

    def load(y):
        return y / math.expm1(y)

    def late(y):
        rho, x = load(y), batch * y
        # rho e^y - 1 cancels for small y; rho e^y = y / (1 - e^-y)
        k = 1 - y * 5 / 6 if y < 1e-3 else rho * (1 - rho) / (y / -math.expm1(-y) - 1)
        return math.log(k) - x * (max(1, n) - 1) + math.log(-math.expm1(-x) / x)

    low, high = 1e-12, 500.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if late(middle) > math.log(1 - quantile) else (low, middle)
    return batch * 1e6 / period * (0.99 if procs > 1 else 1) * 0.995 * load(high)


class Device:
    def __init__(self, kind, count, price, mig, mps):
        self.kind, self.count, self.price, self.mig, self.mps = kind, count, price, mig, mps
        self.mem = 0  # GiB that the fleet states; 0: those of the type, for a CPU no limit
        self.slices = []  # of a CPU: cores of each
        self.per = {}  # devices of a node, a rack and a zone


def core_slices(device, part):
    """How many slices of a CPU have this name"""
    return sum(part == f"{cores}core" for cores in device.slices)


class Problem:
    def __init__(self, models, devices, rule, isolated):
        self.models, self.devices, self.rule, self.isolated = models, devices, rule, isolated
        self.reserve, self.procs_max = 0, 0  # part of each memory that stays free; most processes, 0: no limit
        self.oversubscribe = False  # MPS shares may sum to more than 100 %
        self.survive = None  # the level of the failure domains of which one may be lost
        self.options = []  # of `weft plan`, for what is above and in the models

    def memory(self, device):
        """GiB"""
        return (device.mem or MEMORY.get(device.kind, math.inf)) * (1 - self.reserve)

    def room(self, device, part):
        """(bytes, clients) of a slice; None: the device has no such slice"""
        if device.slices:
            return (self.memory(device) * GIB, CLIENTS) if core_slices(device, part) else None
        if part == "":
            return self.memory(device) * GIB, CLIENTS
        if part.endswith("%") and not device.mps:
            return None
        if part.endswith("%") and "/" not in part:
            return self.memory(device) * GIB, CLIENTS
        part = part.split("/")[0]
        if not device.mig or part not in MIG[device.kind][1]:
            return None
        gpcs, _, _, gib = MIG[device.kind][1][part]
        most = max(p[0] for p in MIG[device.kind][1].values())
        return gib * (1 - self.reserve) * GIB, CLIENTS * gpcs // most


class Column:
    """A use of a slice: what each model is served, and what the slice takes."""
    def __init__(self, device, part, served, memory, clients):
        self.device, self.part, self.served = device, part, served
        self.memory, self.clients = memory, clients


def singles(problem, device, part):
    """(model index, batch, procs, us, bytes) of all points that may run there alone"""
    memory, clients = problem.room(device, part)
    for i, m in enumerate(problem.models):
        for (d, s, b, p), (_, size) in m.points.items():
            if (d, s) != (device.kind, part):
                continue
            time = m.execution(d, s, b, p, problem.rule)
            if m.allows(time, problem.rule) and size * p <= memory and p <= min(clients, problem.procs_max or p):
                yield i, b, p, time, size


def columns(problem):
    for device in problem.devices:
        parts = {s for m in problem.models for d, s, _, _ in m.points if d == device.kind}
        for part in sorted(parts):
            if problem.room(device, part) is None:
                continue
            memory, _ = problem.room(device, part)
            points = list(singles(problem, device, part))
            found = [Column(device, part, {i: problem.models[i].alone_per_s((device.kind, part, b, p), t)}, size * p, p)
                     for i, b, p, t, size in points]
            alone = {}
            for i, b, p, t, size in points:
                if p == 1:
                    alone.setdefault(i, []).append((b, t, size))
            for n in range(2, 1 if problem.isolated else len(alone) + 1):
                for who in itertools.combinations(sorted(alone), n):
                    for chosen in itertools.product(*(alone[i] for i in who)):
                        cycle = sum(t for _, t, _ in chosen)
                        if sum(size for _, _, size in chosen) <= memory and all(
                                cycle + t <= problem.models[i].limit for i, (_, t, _) in zip(who, chosen)):
                            served = {i: problem.models[i].turn_per_s((device.kind, part, b, 1), t, cycle)
                                      for i, (b, t, _) in zip(who, chosen)}
                            found.append(Column(device, part, served, sum(c[2] for c in chosen), 1))
            yield from useful(problem, found)


def useful(problem, found):
    """The columns that no other one of the same slice makes needless."""
    def parts(c):
        return [0 if i not in c.served else 1 if not m.rate else min(1, c.served[i] / m.rate)
                for i, m in enumerate(problem.models)]

    kept = []
    for c in sorted(found, key=lambda c: -sum(parts(c))):
        mine = parts(c)
        if not any(all(a >= b for a, b in zip(other, mine)) and k.memory <= c.memory and
                   k.clients <= c.clients for k, other in kept):
            kept.append((c, mine))
    return [c for c, _ in kept]


def layouts(kind):
    """The sets of instances that fit one device, largest ones only: {profile: count} each"""
    slots, profiles = MIG[kind]
    found = set()

    def go(at, have):
        grew = False
        for start in range(at, slots):
            for name, (_, width, starts, _) in profiles.items():
                if start in starts and start + width <= slots:
                    grew = True
                    go(start + width, have + (name,))
        if not grew:
            found.add(tuple(sorted(have)))

    go(0, ())
    return [{p: list(f).count(p) for p in set(f)} for f in found]


class Program:
    """min cost x, rows lo <= a x <= hi, x integer from 0 to its limit"""
    def __init__(self):
        self.cost, self.limit, self.rows = [], [], []

    def variable(self, cost=0.0, limit=math.inf):
        self.cost.append(cost)
        self.limit.append(limit)
        return len(self.cost) - 1

    def row(self, terms, lo=-math.inf, hi=math.inf):
        self.rows.append((terms, lo, hi))

    def kinds(self):
        import highspy
        return [highspy.HighsVarType.kInteger] * len(self.cost)

    def solve(self, seconds):
        """The least cost; None: impossible; "time": not known"""
        import highspy
        import numpy as np
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        h.setOptionValue("time_limit", float(seconds))
        h.setOptionValue("mip_rel_gap", 0.0)
        h.setOptionValue("mip_abs_gap", 1e-7)
        h.setOptionValue("threads", 1)
        n = len(self.cost)
        top = [min(x, 1e6) for x in self.limit]
        h.addVars(n, np.zeros(n), np.array(top, dtype=float))
        h.changeColsCost(n, np.arange(n, dtype=np.int32), np.array(self.cost, dtype=float))
        h.changeColsIntegrality(n, np.arange(n, dtype=np.int32), np.array(self.kinds()))
        for terms, lo, hi in self.rows:
            h.addRow(max(lo, -1e30), min(hi, 1e30), len(terms),
                     np.array([t[0] for t in terms], dtype=np.int32),
                     np.array([t[1] for t in terms], dtype=float))
        h.run()
        status = h.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            return h.getInfo().objective_function_value
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        return "time"


def split_instances(p, problem, device, name, mine, use):
    """Variables of the instances of a profile that are split into shares, one for each that the devices can have"""
    nested = [c for c in mine if c.part.startswith(name + "/")]
    gpcs, _, starts, gib = MIG[device.kind][1][name]
    most = max(q[0] for q in MIG[device.kind][1].values())
    opened = []
    for _ in range(device.count * len(starts) if nested else 0):
        y = p.variable(0, 1)
        uses = [(use(c, 100), c) for c in nested]
        p.row([(x, int(c.part.split("/")[1][:-1])) for x, c in uses] + [(y, -100)], hi=0)
        p.row([(x, c.memory / GIB) for x, c in uses] + [(y, -gib * (1 - problem.reserve))], hi=0)
        p.row([(x, c.clients) for x, c in uses] + [(y, -(CLIENTS * gpcs // most))], hi=0)
        if problem.isolated:
            owner = [p.variable(0, 1) for _ in problem.models]
            p.row([(o, 1) for o in owner], hi=1)
            for x, c in uses:
                p.row([(x, 1), (owner[next(iter(c.served))], -100)], hi=0)
        if opened:
            p.row([(opened[-1], 1), (y, -1)], lo=0)
        opened.append(y)
    return opened


def core_devices(p, problem, device, price, mine, use):
    """A variable for each CPU: its slices are used one by one, their memory is one"""
    opened = []
    for _ in range(device.count if device.slices else 0):
        y = p.variable(price, 1)
        uses = [(use(c, 8), c) for c in mine]
        for part in {c.part for c in mine}:
            p.row([(x, 1) for x, c in uses if c.part == part] + [(y, -core_slices(device, part))], hi=0)
        if device.mem:
            p.row([(x, c.memory / GIB) for x, c in uses] + [(y, -problem.memory(device))], hi=0)
        if opened:
            p.row([(opened[-1], 1), (y, -1)], lo=0)
        opened.append(y)
    return opened


def optimum(problem, seconds=60):
    """The least price (without prices: number of devices) of a plan; None: there is no plan; "time"."""
    p = Program()
    priced = any(d.price > 0 for d in problem.devices)
    serve = [[] for _ in problem.models]
    listed = list(columns(problem))

    def use(column, limit):
        x = p.variable(0, limit)
        for i, rate in column.served.items():
            need = problem.models[i].rate
            serve[i].append((x, min(1, rate / need) if need else 1))
        return x

    for device in problem.devices:
        mine = [c for c in listed if c.device is device]
        price = device.price if priced else 1
        opened = []
        whole = [(use(c, device.count), 1) for c in mine if c.part == ""]
        if whole:
            y = p.variable(price, device.count)
            opened.append(y)
            p.row(whole + [(y, -1)], hi=0)
        instances = {c.part.split("/")[0] for c in mine if "g." in c.part}
        if instances:
            split = [(p.variable(price, device.count), layout) for layout in layouts(device.kind)]
            opened += [y for y, _ in split]
            for name in sorted(instances):
                uses = [(use(c, 7 * device.count), 1) for c in mine if c.part == name]
                uses += [(x, 1) for x in split_instances(p, problem, device, name, mine, use)]
                p.row(uses + [(y, -layout[name]) for y, layout in split if name in layout], hi=0)
        shares = [c for c in mine if c.part.endswith("%") and "/" not in c.part]
        last = None
        for _ in range(device.count if shares else 0):
            y = p.variable(price, 1)
            uses = [(use(c, 100), c) for c in shares]
            if not problem.oversubscribe:
                p.row([(x, int(c.part[:-1])) for x, c in uses] + [(y, -100)], hi=0)
            p.row([(x, c.memory / GIB) for x, c in uses] + [(y, -problem.memory(device))], hi=0)
            p.row([(x, c.clients) for x, c in uses] + [(y, -CLIENTS)], hi=0)
            if last is not None:
                p.row([(last, 1), (y, -1)], lo=0)  # equal devices are taken in order
            last = y
            opened.append(y)
        opened += core_devices(p, problem, device, price, mine, use)
        if opened:
            p.row([(y, 1) for y in opened], hi=device.count)
    for terms in serve:
        if not terms:
            return None
        p.row(terms, lo=1 - 1e-9)
    return p.solve(seconds)


# -- The check --------------------------------------------------------------------------------


def violations(problem, plan):
    """What is wrong with a plan.json, as texts"""
    wrong = []
    by_name = {m.name: m for m in problem.models}
    kinds = {d.kind: d for d in problem.devices}
    served = {name: 0.0 for name in by_name}
    seen = set()
    devices = {}
    for p in plan["placements"]:
        devices.setdefault(p["device"], []).append(p)
        served[p["model"]] += p["rate_per_s"]
        seen.add(p["model"])
    for name, m in by_name.items():
        if name not in seen or abs(served[name] - m.rate) > 1e-6 * max(1, m.rate):
            wrong.append(f"{name}: {served[name]}/s of {m.rate}/s")
    used, cost = {}, 0.0
    for number, placed in devices.items():
        kind = placed[0]["type"]
        used[kind] = used.get(kind, 0) + 1
        cost += kinds[kind].price
        wrong += device_violations(problem, kinds[kind], number, placed, by_name)
    for kind, n in used.items():
        if n > kinds[kind].count:
            wrong.append(f"{n} devices {kind}")
    wrong += domain_violations(problem, plan)
    if abs(cost - plan["cost_per_hour"]) > 1e-6 * max(1, cost):
        wrong.append(f"price {plan['cost_per_hour']}, it is {cost}")
    if len(devices) != plan["gpus"]:
        wrong.append(f"{plan['gpus']} devices, they are {len(devices)}")
    return wrong


def domain_violations(problem, plan):
    wrong, places = [], {}
    for p in plan["placements"]:
        if "where" in p:
            places.setdefault((p["where"]["node"], p["where"]["gpu"]), set()).add(p["device"])
    if any(len(devices) > 1 for devices in places.values()):
        wrong.append(f"devices at one place: {places}")
    for m in problem.models:
        mine = [p for p in plan["placements"] if p["model"] == m.name]
        if m.spread and len({p["where"][m.spread] for p in mine}) < 2:
            wrong.append(f"{m.name} is in one {m.spread}")
        for lost in {p["where"][problem.survive] for p in mine} if problem.survive else ():
            left = sum(p["capacity_per_s"] for p in mine if p["where"][problem.survive] != lost)
            if left < m.rate * (1 - 1e-6):
                wrong.append(f"{m.name}: {left}/s of {m.rate}/s without {problem.survive} {lost}")
        if problem.survive and len({p["where"][problem.survive] for p in mine}) < 2:
            wrong.append(f"{m.name} does not survive")
    return wrong


def device_violations(problem, device, number, placed, by_name):
    wrong = []
    slices = {}
    for p in placed:
        slices.setdefault(p["slice_id"], []).append(p)
        if p["type"] != device.kind:
            wrong.append(f"device {number} has two types")
    percent = memory = clients = 0
    cores = {}
    ways = set()
    taken = set()
    inside = {}
    for members in slices.values():
        part = members[0]["slice"]
        room = problem.room(device, part)
        if room is None or any(p["slice"] != part for p in members):
            wrong.append(f"device {number}: slice '{part}'")
            continue
        size = sum(by_name[p["model"]].points[device.kind, part, p["batch"], p["procs"]][1] * p["procs"]
                   for p in members)
        procs = members[0]["procs"] if len(members) == 1 else 1
        if size > room[0] or procs > min(room[1], problem.procs_max or procs):
            wrong.append(f"device {number} {part}: {size} bytes, {procs} processes")
        clients += procs
        if "/" in part:
            ways.add("mig")
            inside.setdefault((part.split("/")[0], members[0]["mig_start"]), []).append((part, size, procs, members))
        elif part.endswith("%"):
            ways.add("mps")
            percent += int(part[:-1])
            memory += size
        elif device.slices:
            ways.add("cores")
            memory += size
            cores[part] = cores.get(part, 0) + 1
        elif part == "":
            ways.add("whole" if "whole" not in ways else "twice whole")
        else:
            ways.add("mig")
            wrong += take_cells(device, number, part, members[0]["mig_start"], taken)
        wrong += slice_violations(problem, device, part, members, by_name)
    for (part, start), shares in inside.items():
        wrong += take_cells(device, number, part, start, taken)
        room = problem.room(device, part)
        if sum(int(s.split("/")[1][:-1]) for s, _, _, _ in shares) > 100 or sum(s for _, s, _, _ in shares) > room[0] or \
                sum(n for _, _, n, _ in shares) > room[1]:
            wrong.append(f"device {number}: shares of {part} at {start}")
        if problem.isolated and len({m["model"] for _, _, _, members in shares for m in members}) > 1:
            wrong.append(f"device {number}: several models in {part} at {start}")
    if any(n > core_slices(device, part) for part, n in cores.items()):
        wrong.append(f"device {number}: slices {cores}")
    if percent > 100 and not problem.oversubscribe or len(ways) > 1 or memory > problem.memory(device) * GIB or \
            clients > CLIENTS:
        wrong.append(f"device {number}: {ways}, {percent} %, {memory} bytes, {clients} processes")
    return wrong


def take_cells(device, number, part, start, taken):
    _, width, starts, _ = MIG[device.kind][1][part]
    cells = set(range(start, start + width))
    wrong = start not in starts or cells & taken or max(cells) >= MIG[device.kind][0]
    taken |= cells
    return [f"device {number}: {part} at {start}"] if wrong else []


def slice_violations(problem, device, part, members, by_name):
    wrong = []
    times = [by_name[p["model"]].execution(device.kind, part, p["batch"], p["procs"], problem.rule)
             for p in members]
    if len(members) > 1 and (problem.isolated or any(p["procs"] != 1 for p in members)):
        wrong.append(f"{[p['model'] for p in members]} share a slice")
    if len({p["model"] for p in members}) < len(members):
        wrong.append(f"{[p['model'] for p in members]} twice on a slice")
    for p, time in zip(members, times):
        m = by_name[p["model"]]
        cycle = sum(times) if len(members) > 1 else time
        point = device.kind, part, p["batch"], p["procs"]
        most = m.turn_per_s(point, time, cycle) if len(members) > 1 else m.alone_per_s(point, time)
        if p["rate_per_s"] > most * (1 + 1e-6):
            wrong.append(f"{m.name}: {p['rate_per_s']}/s on {part}")
        if not m.allows(time, problem.rule) or cycle + time > m.limit * (1 + 1e-6):
            wrong.append(f"{m.name}: late on {part}")
    return wrong
