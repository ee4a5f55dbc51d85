"""Random graphs of fused chains, as onnx_file.Graph.

A graph is a few blocks. A block is a head (matrix product, convolution, normalisation, pool, reduction or
movement) and up to six element-wise steps: functions, constants, run-time operands of every broadcast,
and idioms of exporters. Inner values may be outputs too, values are used several times (residuals).

Every value carries an interval that holds all its elements, so that no function is taken outside its
domain and nothing overflows; functions that jump are applied only to values that every implementation
computes exactly. Dimensions are integers or names of symbols; an operator may use the size of a symbol
only where it keeps it.
"""
import dataclasses

import numpy as np

from onnx_file import Graph, Node, Port

FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int32", "int64", "uint8", "int8")
# Widest interval that a value may have before it is scaled down.
WIDEST = 60.0
# Sizes of channels and features; large graphs reach the kernels for several blocks and threads.
SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48)
LARGE = (1, 16, 31, 48, 64, 65, 96, 128, 160, 256)


@dataclasses.dataclass
class Value:
    name: str
    dtype: str
    dims: tuple
    lo: float
    hi: float
    exact: bool = False

    @property
    def wide(self):
        return max(abs(self.lo), abs(self.hi))

    @property
    def rank(self):
        return len(self.dims)

    def known(self, *axes):
        """Whether these dimensions are integers."""
        return all(isinstance(self.dims[a], int) for a in axes)


class Maker:
    """Builds one graph; `rng` decides everything."""

    def __init__(self, rng, opset=21):
        self.rng, self.graph, self.count = rng, Graph(opset=opset, ir=10), 0
        self.values, self.ranges = [], {}
        self.large = self.chance(0.08)

    def size(self):
        """A number of channels or features."""
        return self.pick(LARGE if self.large else SMALL)

    def limit(self, elements):
        """The most elements of a value that an operator is tried on."""
        return elements * 8 if self.large else elements

    # -- Choices ----------------------------------------------------------------------------------

    def chance(self, p):
        return self.rng.random_sample() < p

    def pick(self, items, weights=None):
        items = list(items)
        if weights is None:
            return items[self.rng.randint(len(items))]
        w = np.cumsum(np.asarray(weights, float))
        return items[int(np.searchsorted(w, self.rng.random_sample() * w[-1], side="right"))]

    def number(self, lo, hi):
        """Mostly round numbers, as in models."""
        x = self.rng.uniform(lo, hi)
        return float(round(x, 2)) if self.chance(0.7) else float(np.float32(x))

    # -- Emitting -----------------------------------------------------------------------------------

    def name(self, head="v"):
        self.count += 1
        return f"{head}{self.count}"

    def constant(self, array):
        name = self.name("c")
        self.graph.constants[name] = np.asarray(array)
        return name

    def node(self, op, inputs, dims, lo, hi, dtype=None, exact=False, attrs=None, track=True, domain=""):
        """Adds a node with one result; inputs are Values, names or None."""
        first = next(i for i in inputs if isinstance(i, Value))
        out = Value(self.name(), dtype or first.dtype, tuple(dims), float(lo), float(hi), exact)
        names = ["" if i is None else i.name if isinstance(i, Value) else i for i in inputs]
        self.graph.nodes.append(Node(op, names, [out.name], attrs or {}, domain))
        self.graph.dtypes[out.name] = out.dtype
        if track and out.dtype != "bool":
            self.values.append(out)
        return out

    def input(self, dims, dtype, lo=-2.0, hi=2.0):
        name = self.name("x")
        self.graph.inputs.append(Port(name, dtype, list(dims)))
        if dtype == "bool":
            lo, hi = 0.0, 1.0
        elif dtype in INTEGERS:
            lo, hi = (0.0 if dtype == "uint8" else -4.0), 4.0
        out = Value(name, dtype, tuple(dims), lo, hi, True)
        self.ranges[name] = (lo, hi)
        self.values.append(out)
        return out

    def array(self, shape, dtype, lo=-1.0, hi=1.0):
        if dtype in INTEGERS:
            return self.rng.randint(int(np.ceil(max(lo, 0 if dtype == "uint8" else lo))), int(hi) + 1,
                                    size=shape).astype(dtype)
        return np.asarray(self.rng.uniform(lo, hi, size=shape)).astype(dtype)

    def scalar(self, x, v):
        """A constant of one element for an operator with v: rank 0 mostly, else [1] or [1, 1]."""
        shape = self.pick([(), (1,), (1, 1)], [8, 3, 1])
        return self.constant(np.full(shape if len(shape) <= v.rank else (), x, v.dtype))

    def weight(self, shape, dtype, fan):
        """Random weights that keep the magnitude of what they multiply; (name, largest)."""
        most = 1.5 / np.sqrt(max(fan, 1))
        return self.constant(self.array(shape, dtype, -most, most)), most

    def calm(self, v):
        """v, scaled down when its interval is wide."""
        if v.wide <= WIDEST or v.dtype not in FLOATS:
            return v
        if self.chance(0.3):
            return self.node("Tanh", [v], v.dims, -1, 1)
        f = 2.0 ** -np.ceil(np.log2(v.wide / 4))
        return self.node("Mul", [v, self.scalar(f, v)], v.dims, v.lo * f, v.hi * f)

    def recent(self, test=lambda v: True):
        """A value that passes the test, more likely a late one; None: there is none."""
        fit = [v for v in self.values if test(v)]
        return self.pick(fit, [1.6 ** min(i, 40) for i in range(len(fit))]) if fit else None

    def output(self, v):
        if v.name not in [o.name for o in self.graph.outputs]:
            if any(v.name == i.name for i in self.graph.inputs):
                v = self.node("Identity", [v], v.dims, v.lo, v.hi, exact=v.exact)
            self.graph.outputs.append(Port(v.name, v.dtype, list(v.dims)))


# What a graph begins with: (name, weight).
FORMS = (("image", 6), ("rows", 4), ("sequence", 4), ("signal", 1), ("volume", 1), ("any", 2))


def first_dims(m, form):
    """Dimensions of the first input; the first is often a symbol."""
    batch = m.pick(["N", 1, 2, 3], [5, 2, 1, 1])
    channels = m.size()
    if form == "rows":
        return (batch, channels)
    if form == "sequence":
        return (batch, m.pick(["S", 1, 4, 7, 40 if m.large else 12], [3, 1, 2, 2, 1]), channels)
    if form == "any":
        return tuple(m.pick((1, 2, 3, 4, 5)) for _ in range(m.rng.randint(1, 6)))
    spatial = {"signal": 1, "image": 2, "volume": 3}[form]
    most = {1: (1, 5, 9, 16, 33), 2: (1, 3, 5, 7, 8, 9, 14), 3: (1, 3, 4, 5)}[spatial]
    if m.large:
        most = {1: (33, 100, 257), 2: (14, 28, 29), 3: (7, 8)}[spatial]
    if spatial == 2 and m.chance(0.15):
        return (batch, channels, "H", m.pick(most))
    return (batch, channels, *(m.pick(most) for _ in range(spatial)))


def make_graph(seed, kinds=("float",)):
    """(graph, ranges of its inputs, symbols). kinds: which element types, float or integer."""
    from graph_heads import CHAIN_HEADS, HEADS, INTEGER_HEADS
    from graph_newer import NEWER_HEADS
    from graph_steps import element_wise, integer_step
    from graph_types import TYPE_HEADS
    rng = np.random.RandomState(seed)
    m = Maker(rng, opset=int(rng.choice([13, 15, 17, 18, 20, 21, 23, 24], p=[.1, .1, .2, .15, .1, .1, .1, .15])))
    if "integer" in kinds and m.chance(0.1):
        # Arithmetic on eight bits is newer.
        dtype = m.pick(INTEGERS if m.graph.opset >= 14 else ("int32", "int64"))
        heads, step = INTEGER_HEADS, integer_step
    else:
        dtype, heads, step = m.pick(FLOATS, [8, 1.2, 0.8]), HEADS, element_wise
        if m.graph.opset >= 23 or m.chance(0.15):
            heads += 3 * NEWER_HEADS
        if m.chance(0.25):
            heads = TYPE_HEADS if m.chance(0.4) else heads + 3 * TYPE_HEADS
    blocks = m.pick((1, 2, 3, 4, 6), [3, 4, 3, 2, 1])
    step_weights = [2, 2, 3, 3, 2, 2, 1]
    if heads == HEADS and m.chance(0.3):
        # One product or convolution, and a chain.
        blocks, heads, step_weights = 1, CHAIN_HEADS, [0, 1, 2, 2, 2, 2, 2]
    form = m.pick([f for f, _ in FORMS], [w for _, w in FORMS])
    m.input(first_dims(m, form), dtype)
    if m.chance(0.15):
        m.input(m.values[0].dims, dtype)
    inner = []
    for _ in range(blocks):
        v = None
        for _ in range(12):
            head = m.pick([h for h, _ in heads], [w for _, w in heads])
            v = head(m)
            if v is not None:
                break
        v = m.calm(v if v is not None else m.values[-1])
        for _ in range(m.pick(range(7), step_weights)):
            v = m.calm(step(m, v))
            if m.chance(0.06):
                inner.append(v)
    m.output(m.values[-1])
    for v in inner[:3]:
        m.output(v)
    g = m.graph.prune()
    ranges = {p.name: m.ranges[p.name] for p in g.inputs}
    return g, ranges, sorted({d for p in g.inputs for d in p.dims if isinstance(d, str)})


def make_inputs(graph, ranges, sizes, rng):
    """Random inputs for these sizes of the symbols, {name: array}. Floats are multiples of 1/64, so
    that comparisons with constants are decided exactly."""
    out = {}
    for p in graph.inputs:
        shape = [sizes[d] if isinstance(d, str) else d for d in p.dims]
        lo, hi = ranges[p.name]
        if p.dtype == "bool":
            out[p.name] = rng.randint(0, 2, size=shape).astype(bool)
        elif p.dtype in INTEGERS:
            out[p.name] = rng.randint(int(lo), int(hi) + 1, size=shape).astype(p.dtype)
        else:
            out[p.name] = np.asarray(np.round(rng.uniform(lo, hi, size=shape) * 64) / 64).astype(p.dtype)
    return out
