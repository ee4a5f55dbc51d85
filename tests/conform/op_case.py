"""Cases of one operator, or a few: random operands that are inputs of the model, constants of it, or both.

A maker takes a Case and adds operands and nodes:

    def cum_sum(c):
        x = c.operand(c.reals(c.shape(1, 3)))
        c.node("CumSum", [x, c.constant(np.int64(0))], {"reverse": c.flag()})

`make(maker)` is a maker for operator_cases.py.
"""
import numpy as np

from onnx_file import Graph, Node, Port

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 2.0, -2.0, 3.0, 1e-40, -1e-40,
           1e30, -1e30, 88.0, -88.0, 0.25, 100.0, -100.0)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED


class Case:
    """One model. rs: a numpy RandomState, which decides everything."""

    def __init__(self, rs, opset):
        self.rs, self.opset = rs, opset
        self.graph, self.values, self.count = Graph(opset=opset, ir=10), {}, 0
        # Whether operands are constants: none, some, all (the compiler computes the answer then).
        self.constants = self.pick((0.0, 0.3, 1.0), (5, 4, 2))
        self.symbols = self.chance(0.3)

    # -- Choices ------------------------------------------------------------------------------------

    def chance(self, p):
        return self.rs.random_sample() < p

    def flag(self):
        return int(self.rs.randint(2))

    def number(self, lo, hi):
        """An integer, both ends included."""
        return int(self.rs.randint(lo, hi + 1))

    def pick(self, items, weights=None):
        items = list(items)
        p = None if weights is None else np.asarray(weights, float) / sum(weights)
        return items[int(self.rs.choice(len(items), p=p))]

    def shape(self, least=0, most=4, sizes=(1, 2, 3, 4, 5, 7, 16), empty=0.04):
        rank = self.number(least, most)
        dims = [self.pick(sizes) for _ in range(rank)]
        if dims and self.chance(empty):
            dims[self.number(0, rank - 1)] = 0
        return tuple(dims)

    def like(self, shape):
        """A shape that broadcasts with `shape`, both ways."""
        dims = [d if self.chance(0.6) else 1 for d in shape]
        return tuple(dims[self.number(0, len(dims)):] if dims and self.chance(0.4) else dims)

    def axis(self, rank):
        return self.number(-rank, rank - 1)

    # -- Arrays -------------------------------------------------------------------------------------

    def reals(self, shape, dtype="float32", lo=-3.0, hi=3.0):
        """Multiples of 1/16, so that sums of them are exact."""
        return np.asarray(np.round(self.rs.uniform(lo, hi, shape) * 16) / 16).astype(dtype)

    def special(self, shape, dtype="float32"):
        """NaN, infinities, denormals, halves and zeros of both signs."""
        with np.errstate(over="ignore"):
            return np.asarray(self.rs.choice(SPECIAL, shape)).astype(dtype)

    def integers(self, shape, dtype, lo=None, hi=None):
        info = np.iinfo(dtype)
        lo, hi = max(info.min, info.min if lo is None else lo), min(info.max, info.max if hi is None else hi)
        n = int(np.prod(shape, dtype=np.int64))
        values = [int(lo) + int.from_bytes(self.rs.bytes(9), "little") % (int(hi) - int(lo) + 1) for _ in range(n)]
        return np.asarray(values, dtype).reshape(shape)

    def array(self, shape, dtype, special=0.0):
        """Small numbers of any type, distinct ones among them."""
        if dtype == "bool":
            return np.asarray(self.rs.randint(0, 2, shape)).astype(bool)
        if np.dtype(dtype).kind == "f":
            return self.special(shape, dtype) if self.chance(special) else self.reals(shape, dtype)
        return self.integers(shape, dtype, -9, 9)

    # -- The graph ------------------------------------------------------------------------------------

    def name(self, head):
        self.count += 1
        return f"{head}{self.count}"

    def constant(self, array):
        name = self.name("c")
        self.graph.constants[name] = np.asarray(array)
        return name

    def operand(self, array):
        """An input or a constant."""
        array = np.asarray(array)
        if self.chance(self.constants):
            return self.constant(array)
        return self.input(array)

    def input(self, array):
        array, name = np.asarray(array), self.name("x")
        # A symbol is at least 1 where it may be the batch, and other symbols are taken to be equal or not 1.
        dims = [f"{name}_{i}" if self.symbols and d > 1 and self.chance(0.5) else d for i, d in enumerate(array.shape)]
        self.graph.inputs.append(Port(name, array.dtype.name, dims))
        self.values[name] = array
        return name

    def node(self, op, inputs, attrs=None, n_out=1, domain="", output=True):
        """Results as names; they are outputs of the model."""
        names = [self.name("y") for _ in range(n_out)]
        inputs = [i or "" for i in inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        self.graph.nodes.append(Node(op, inputs, names, attrs or {}, domain))
        if output:
            self.graph.outputs += [Port(n, None) for n in names]
        return names[0] if n_out == 1 else names


def make(maker, opsets=(13, 17, 18, 21)):
    def build(rs):
        c = Case(rs, int(rs.choice(opsets)))
        maker(c)
        if not c.graph.inputs:  # constants only: an input that nothing reads
            c.input(np.zeros(1, np.float32))
        return c.graph, c.values
    return build
