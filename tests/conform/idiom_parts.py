"""What exporters write for layers of networks, as parts of random graphs: norms, activations and softmax spelt out, heads of
attention, rotary positions, windows and rolls, masks, sizes read from shapes, heads of detectors. A part takes a
Parts and one of its values and returns a new one, or None where the value does not suit.

    def pixel_shuffle(p, v):
        ...
        return p.node("Reshape", [v, p.ints(0, c // 4, 2 * h, 2 * w)], dims)
"""
import collections

import numpy as np

from onnx_file import Graph, Node, Port

# dims: numbers and names of symbols
Value = collections.namedtuple("Value", "name dims")
FAR = (1 << 63) - 1


class Parts:
    """A graph that grows; rs decides everything."""

    def __init__(self, rs):
        self.rs, self.count, self.values = rs, 0, []
        self.graph = Graph(opset=int(rs.choice([11, 13, 17, 18, 20, 22])), ir=8)

    # -- Choices -------------------------------------------------------------------------------------

    def chance(self, p):
        return self.rs.random_sample() < p

    def pick(self, items):
        items = list(items)
        return items[self.rs.randint(len(items))]

    # -- Emitting --------------------------------------------------------------------------------------

    def name(self, head):
        self.count += 1
        return f"{head}{self.count}"

    def constant(self, array, dtype=np.float32):
        name = self.name("c")
        self.graph.constants[name] = np.asarray(array, dtype)
        return name

    def ints(self, *values):
        return self.constant(values, np.int64)

    def scalar(self, x):
        return self.constant(np.full(self.pick(((), (), (), (1,), (1, 1))), x))

    def weight(self, *shape, lo=-0.5, hi=0.5):
        return self.constant(np.round(self.rs.uniform(lo, hi, shape), 3))

    def input(self, dims, dtype="float32"):
        v = Value(self.name("x"), tuple(dims))
        self.graph.inputs.append(Port(v.name, dtype, list(dims)))
        return v

    def node(self, op, inputs, dims=(), n_out=1, **attrs):
        names = [self.name("v") for _ in range(n_out)]
        self.graph.nodes.append(Node(op, [i.name if isinstance(i, Value) else i or "" for i in inputs], names, attrs))
        if n_out > 1:
            return [Value(n, tuple(d)) for n, d in zip(names, dims)]
        return Value(names[0], tuple(dims))

    def with_axes(self, op, inputs, axes, dims, since, **attrs):
        """A node whose axes are an operand since some opset."""
        if self.graph.opset >= since:
            return self.node(op, [*inputs, self.ints(*axes)], dims, **attrs)
        return self.node(op, inputs, dims, axes=list(axes), **attrs)

    def reduce(self, op, v, axes, keep=1):
        rank = len(v.dims)
        at = {a % rank for a in axes}
        dims = [1 if i in at else d for i, d in enumerate(v.dims) if keep or i not in at]
        return self.with_axes(op, [v], axes, dims, 13 if op == "ReduceSum" else 18, keepdims=keep)

    def last(self, v):
        return -1 if self.chance(0.7) else len(v.dims) - 1

    def split(self, v, axis, parts):
        dims = list(v.dims)
        dims[axis] //= parts
        sizes = [dims[axis]] * parts
        if self.graph.opset < 13:
            return self.node("Split", [v], [dims] * parts, parts, axis=axis, split=sizes)
        return self.node("Split", [v, self.ints(*sizes)], [dims] * parts, parts, axis=axis)

    def slice(self, v, start, end, axis, step=1):
        dims = list(v.dims)
        if isinstance(dims[axis], int):
            dims[axis] = len(range(dims[axis])[slice(start, min(end, 1 << 40), step)])
        more = [self.ints(step)] if step != 1 or self.chance(0.3) else []
        return self.node("Slice", [v, self.ints(start), self.ints(end), self.ints(axis), *more], dims)

    def transpose(self, v, *perm):
        return self.node("Transpose", [v], [v.dims[i] for i in perm], perm=list(perm))

    def reshape(self, v, entries, dims):
        return self.node("Reshape", [v, self.ints(*entries)], dims)

    def size(self, v, axis):
        """A dim as i64[1], read from the shape."""
        shape = self.node("Shape", [v], (len(v.dims),))
        if self.chance(0.5):
            return self.node("Slice", [shape, self.ints(axis), self.ints(axis + 1), self.ints(0)], (1,))
        scalar = self.node("Gather", [shape, self.constant(axis, np.int64)], (), axis=0)
        return self.with_axes("Unsqueeze", [scalar], [0], (1,), 13)

    def ew(self, op, *values, **attrs):
        """Element-wise: dims of the first operand that is a Value."""
        return self.node(op, values, next(v for v in values if isinstance(v, Value)).dims, **attrs)


def _known(v, *axes):
    return all(isinstance(v.dims[a], int) for a in axes)


# -- Norms ---------------------------------------------------------------------------------------------

def _statistics(p, v, axes):
    mean = p.reduce("ReduceMean", v, axes)
    d = p.ew("Sub", v, mean)
    square = p.ew("Mul", d, d) if p.chance(0.4) else p.ew("Pow", d, p.scalar(2.0))
    var = p.reduce("ReduceMean", square, axes)
    return d, p.ew("Sqrt", p.ew("Add", var, p.scalar(p.pick((1e-5, 1e-3, 0.1)))))


def _affine(p, y, shape):
    y = p.ew("Mul", *((y, p.weight(*shape, lo=0.5, hi=1.5)) if p.chance(0.7) else (p.weight(*shape), y)))
    return p.ew("Add", y, p.weight(*shape)) if p.chance(0.8) else y


def layer_norm(p, v):
    if len(v.dims) < 2 or not _known(v, -1):
        return None
    d, std = _statistics(p, v, [p.last(v)])
    y = p.ew("Div", d, std) if p.chance(0.6) else p.ew("Mul", d, p.ew("Reciprocal", std))
    return _affine(p, y, p.pick(((v.dims[-1],), (1, v.dims[-1]), (1,))))


def channel_norm(p, v):
    """Layer norm of images over channels, transposed there and back or spelt out over axis 1."""
    if len(v.dims) != 4 or not _known(v, 1):
        return None
    c = v.dims[1]
    if p.chance(0.5):
        y = p.transpose(v, 0, 2, 3, 1)
        if p.graph.opset >= 17:
            y = p.node("LayerNormalization", [y, p.weight(c), p.weight(c)], y.dims, axis=p.pick((-1, 3)), epsilon=1e-4)
        else:
            y = layer_norm(p, y)
        return p.transpose(y, 0, 3, 1, 2)
    d, std = _statistics(p, v, [1])
    return _affine(p, p.ew("Div", d, std), (1, c, 1, 1) if p.chance(0.5) else (c, 1, 1))


def group_norm(p, v):
    if len(v.dims) < 3 or not _known(v, 1) or v.dims[1] % 2:
        return None
    groups, c = 2, v.dims[1]
    y = p.reshape(v, (0, groups, -1), (v.dims[0], groups, None))
    y = p.ew("InstanceNormalization", y, p.constant(np.ones(groups)), p.constant(np.zeros(groups)), epsilon=1e-3)
    y = p.node("Reshape", [y, p.node("Shape", [v], (len(v.dims),))], v.dims)
    return _affine(p, y, (c,) + (1,) * (len(v.dims) - 2))


def batch_norm(p, v):
    if len(v.dims) < 2 or not _known(v, 1):
        return None
    c = v.dims[1]
    return p.ew("BatchNormalization", v, p.weight(c), p.weight(c), p.weight(c), p.weight(c, lo=0.5, hi=2.0), epsilon=1e-3)


def normalise(p, v):
    """Vectors of length 1, as F.normalize."""
    if len(v.dims) < 2 or not _known(v, -1):
        return None
    n = p.reduce("ReduceL2", v, [p.pick((-1, 1))])
    low = p.constant(1e-3)
    n = p.ew("Clip", n, low) if p.chance(0.5) else p.ew("Max", n, low)
    n = p.node("Expand", [n, p.node("Shape", [v], (len(v.dims),))], v.dims) if p.chance(0.5) else n
    return p.ew("Div", v, n)


# -- Activations -----------------------------------------------------------------------------------------

def gelu(p, v):
    if p.chance(0.5):
        inner = p.ew("Div", v, p.scalar(2 ** 0.5)) if p.chance(0.5) else p.ew("Mul", v, p.scalar(0.5 ** 0.5))
        y = p.ew("Erf", inner)
    else:
        cube = p.ew("Pow", v, p.scalar(3.0)) if p.chance(0.5) else p.ew("Mul", v, p.ew("Mul", v, v))
        y = p.ew("Tanh", p.ew("Mul", p.ew("Add", v, p.ew("Mul", cube, p.scalar(0.044715))), p.scalar((2 / np.pi) ** 0.5)))
    y = p.ew("Add", y, p.scalar(1.0))
    if p.chance(0.5):
        return p.ew("Mul", p.ew("Mul", v, y), p.scalar(0.5))
    return p.ew("Mul", p.ew("Mul", v, p.scalar(0.5)), y)


def gate(p, v):
    """SiLU, quick GELU, hard swish, mish."""
    which = p.rs.randint(4)
    if which == 0:
        return p.ew("Mul", v, p.ew("Sigmoid", v))
    if which == 1:
        return p.ew("Mul", v, p.ew("Sigmoid", p.ew("Mul", v, p.scalar(1.702))))
    if which == 2:
        if p.chance(0.5):
            return p.ew("Mul", v, p.ew("HardSigmoid", v, alpha=1 / 6, beta=0.5))
        y = p.ew("Clip", p.ew("Add", v, p.scalar(3.0)), p.constant(0), p.constant(6))
        return p.ew("Mul", v, p.ew("Div", y, p.scalar(6.0))) if p.chance(0.5) else p.ew("Div", p.ew("Mul", v, y), p.scalar(6.0))
    return p.ew("Mul", v, p.ew("Tanh", p.ew("Softplus", v)))


def gated_halves(p, v):
    """GLU, GEGLU, SwiGLU: halves of an axis."""
    a = p.pick(range(1, len(v.dims))) if len(v.dims) > 1 else 0
    if not _known(v, a) or v.dims[a] % 2 or v.dims[a] < 4:
        return None
    x, y = p.split(v, a, 2)
    op = p.pick(("Sigmoid", "silu", "Relu"))
    y = p.ew("Mul", y, p.ew("Sigmoid", y)) if op == "silu" else p.ew(op, y)
    return p.ew("Mul", x, y)


def softmax(p, v):
    a = p.pick((-1, len(v.dims) - 1, max(len(v.dims) - 2, 0)))
    if p.chance(0.5):
        return p.ew(p.pick(("Softmax", "LogSoftmax")), v, axis=a)
    d = p.ew("Sub", v, p.reduce("ReduceMax", v, [a]))
    e = p.ew("Exp", d)
    s = p.reduce("ReduceSum", e, [a])
    return p.ew("Div", e, s) if p.chance(0.7) else p.ew("Sub", d, p.ew("Log", s))


def clipped(p, v):
    if p.chance(0.5):
        return p.ew("Min", p.ew("Max", v, p.scalar(-0.5)), p.scalar(0.75))
    return p.ew("Max", v, p.ew("Mul", v, p.scalar(0.1)))


# -- Products ----------------------------------------------------------------------------------------------

def linear(p, v):
    if len(v.dims) < 2 or not _known(v, -1):
        return None
    k, n = v.dims[-1], p.pick((4, 8, 12, 16))
    how = p.rs.randint(4)
    dims = v.dims[:-1] + (n,)
    if how == 0:
        w = p.node("Transpose", [p.weight(n, k)], (k, n), perm=[1, 0])
        y = p.node("MatMul", [v, w], dims)
    elif how == 1 and len(v.dims) == 2:
        return p.node("Gemm", [v, p.weight(n, k), p.pick((p.weight(n), p.weight(1, n), p.weight(1)))], dims, transB=1, alpha=p.pick((1.0, 0.5)))
    elif how == 2 and p.graph.opset >= 12 and len(v.dims) == 3:
        return p.node("Einsum", [v, p.weight(n, k)], dims, equation="abk,nk->abn")
    else:
        y = p.node("MatMul", [v, p.weight(k, n)], dims)
    if p.chance(0.8):
        b = p.pick((p.weight(n), p.weight(1, n), p.weight(1), p.weight(1, 1, n) if len(dims) == 3 else p.weight(n)))
        y = p.ew("Add", *((y, b) if p.chance(0.6) else (b, y)))
    return Value(y.name, dims)


def einsum(p, v):
    """A sum over one axis of products with a weight, or with the value itself; the result's axes in any order."""
    own = "abcd"[:len(v.dims)]
    inner = [x for x, d in zip(own[1:], v.dims[1:]) if isinstance(d, int)]
    if p.graph.opset < 12 or len(v.dims) > 4 or not inner:
        return None
    k, size = p.pick(inner), dict(zip(own, v.dims))
    turned = [x for x in own[1:] if x != k]
    if not turned or p.chance(0.5):
        size["n"], labels = p.pick((4, 8)), p.pick((k + "n", "n" + k))
        other = p.weight(*(size[x] for x in labels))
    else:
        other, turn = v, p.pick(turned)
        size["n"], labels = size[turn], own.replace(turn, "n")
    out = own[0] + "".join(p.rs.permutation([x for x in own[1:] + "n" if x != k]))
    equation = f"{own},{labels}->{out}" if p.chance(0.5) else f"{labels},{own}->{out}"
    operands = [v, other] if equation.startswith(own + ",") else [other, v]
    return p.node("Einsum", operands, tuple(size[x] for x in out), equation=equation)


def siblings(p, v):
    """Projections of one value, joined or added."""
    if len(v.dims) < 2 or not _known(v, -1):
        return None
    k, n = v.dims[-1], p.pick((4, 8))
    parts = [p.node("MatMul", [v, p.weight(k, n)], v.dims[:-1] + (n,)) for _ in range(p.pick((2, 3)))]
    parts = [p.ew("Add", y, p.weight(n)) if p.chance(0.7) else y for y in parts]
    parts = [p.ew(p.pick(("Relu", "Sigmoid")), y) if p.chance(0.4) else y for y in parts]
    if p.chance(0.5):
        return p.node("Concat", parts, v.dims[:-1] + (n * len(parts),), axis=p.last(v))
    y = parts[0]
    for u in parts[1:]:
        y = p.ew(p.pick(("Add", "Mul", "Sub")), y, u)
    return y


def _heads(p, x, n, s, h, d, swapped):
    entries = p.pick(((0, 0, h, d), (0, -1, h, d), (0, 0, h, -1)))
    x = p.reshape(x, entries, (n, s, h, d))
    if swapped and p.chance(0.5):
        return p.transpose(x, 0, 2, 3, 1)
    x = p.transpose(x, 0, 2, 1, 3)
    return p.transpose(x, 0, 1, 3, 2) if swapped else x


def rotary(p, x):
    """x cos + rotate(x) sin, of halves or of pairs."""
    n, h, s, d = x.dims
    if d % 2 or not isinstance(s, int):
        return x
    if p.chance(0.6):
        a, b = (p.slice(x, 0, d // 2, 3), p.slice(x, d // 2, p.pick((d, FAR)), 3)) if p.chance(0.5) else p.split(x, 3, 2)
        turned = p.node("Concat", [p.ew("Neg", b), a], x.dims, axis=p.last(x))
    else:
        a, b = p.slice(x, 0, FAR, 3, 2), p.slice(x, 1, FAR, 3, 2)
        parts = [p.with_axes("Unsqueeze", [y], [4], (n, h, s, d // 2, 1), 13) for y in (p.ew("Neg", b), a)]
        turned = p.reshape(p.node("Concat", parts, (n, h, s, d // 2, 2), axis=-1), (0, 0, 0, d), x.dims)
    shape = (1, 1, s, d) if p.chance(0.5) else (s, d)
    return p.ew("Add", p.ew("Mul", x, p.weight(*shape)), p.ew("Mul", turned, p.weight(*shape)))


def attention(p, v):
    if len(v.dims) != 3 or not _known(v, 2) or v.dims[2] % 4 or v.dims[2] < 8:
        return None
    n, s, e = v.dims
    h = p.pick((2, 4))
    d = e // h
    if p.chance(0.3):   # one product for all three
        y = p.ew("Add", p.node("MatMul", [v, p.weight(e, 3 * e)], (n, s, 3 * e)), p.weight(3 * e))
        if p.chance(0.5):
            q, k, u = (_heads(p, x, n, s, h, d, i == 1) for i, x in enumerate(p.split(y, 2, 3)))
        else:
            y = p.transpose(p.reshape(y, (0, p.pick((0, -1)), 3, h, d), (n, s, 3, h, d)), 2, 0, 3, 1, 4)
            q, k, u = (p.node("Gather", [y, p.constant(i, np.int64)], y.dims[1:], axis=0) for i in range(3))
            k = p.transpose(k, 0, 1, 3, 2)
    else:
        q, k, u = (p.ew("Add", p.node("MatMul", [v, p.weight(e, e)], v.dims), p.weight(e)) for _ in range(3))
        q, k, u = _heads(p, q, n, s, h, d, False), _heads(p, k, n, s, h, d, True), _heads(p, u, n, s, h, d, False)
    if p.chance(0.2) and k.dims[2] == d:
        q = rotary(p, q)
    scale = p.scalar(p.pick((d ** -0.5, 0.3)))
    if p.chance(0.5):
        q = p.ew("Mul", q, scale)
    score = p.node("MatMul", [q, k], (n, h, s, s))
    if p.chance(0.5):
        score = p.ew("Div", score, p.scalar(d ** 0.5))
    for _ in range(p.pick((0, 0, 1, 1, 2))):
        score = _masked(p, score, n, h, s)
    y = p.ew("Softmax", score, axis=p.pick((-1, 3)))
    y = p.transpose(p.node("MatMul", [y, u], (n, h, s, d)), 0, 2, 1, 3)
    y = p.reshape(y, p.pick(((0, 0, e), (0, -1, e), (0, 0, -1))), v.dims)
    return linear(p, y) if p.chance(0.5) else y


def _masked(p, score, n, h, s):
    how = p.rs.randint(4)
    if how == 0:    # (1 - mask) * -10000
        m = p.input((n, s), "int64")
        m = p.with_axes("Unsqueeze", [m], [1, 2], (n, 1, 1, s), 13)
        m = p.ew("Mul", p.ew("Sub", p.scalar(1.0), p.ew("Cast", m, to=1)), p.scalar(p.pick((-10000.0, -3e38, -2.0))))
        return p.ew("Add", score, m)
    if how == 1:    # a fill where a mask of bool is true, or not
        m = p.input(p.pick(((n, 1, s, s), (s, s), (n, 1, 1, s), (1, h, s, s))), "bool")
        fill = p.scalar(p.pick((-1e9, -3e38, -5.0)))
        return p.ew("Where", m, *((score, fill) if p.chance(0.5) else (fill, score)))._replace(dims=score.dims)
    if how == 2 and isinstance(s, int):
        if p.chance(0.5):   # causal, of constants
            return p.ew("Add", score, p.constant(np.triu(np.full((s, s), -1e9), 1)))
        return p.ew("Add", score, p.weight(*p.pick(((1, h, s, s), (h, s, s), (h, 1, 1), (s, 1)))))
    # causal, from sizes
    row = p.node("Range", [p.constant(0, np.int64), p.node("Squeeze", [p.size(score, 3)], ()), p.constant(1, np.int64)], (s,))
    column = p.with_axes("Unsqueeze", [row], [1], (s, 1), 13)
    m = p.node(p.pick(("Less", "Greater")), [column, row], (s, s))
    return p.node("Where", [m, p.scalar(-1e9), score], score.dims)


def signal(p, v):
    """Tokens as channels of a signal: one-dimensional convolutions, padded on one side or through images."""
    if len(v.dims) != 3 or not _known(v, 2):
        return None
    n, s, c = v.dims
    y, k = p.transpose(v, 0, 2, 1), p.pick((1, 3, 3))
    m = p.pick((c, 8))
    w = p.weight(m, 1 if m == c and p.chance(0.4) else c, k)
    group = c // p.graph.constants[w].shape[1]
    bias = [p.weight(m)] if p.chance(0.6) else []
    how = p.rs.randint(3)
    if how == 0 and k == 3:    # causal: room on both sides, the end cut off
        y = p.node("Conv", [y, w, *bias], (n, m, None), pads=[2, 2], group=group)
        y = p.slice(y, 0, -2, 2)._replace(dims=(n, m, s))
    elif how == 1:
        y = p.with_axes("Unsqueeze", [y], [2], (n, c, 1, s), 13)
        w2 = p.constant(p.graph.constants[w][:, :, None])
        y = p.node("Conv", [y, w2, *bias], (n, m, 1, s), pads=[0, k // 2, 0, k // 2], group=group)
        y = p.with_axes("Squeeze", [y], [2], (n, m, s), 13)
    else:
        y = p.node("Conv", [y, w, *bias], (n, m, s), pads=[k // 2] * 2, group=group)
    y = p.ew(p.pick(("Relu", "Sigmoid", "Identity")), y)
    return p.transpose(y, 0, 2, 1)


def recurrent(p, v):
    """LSTM or GRU as of PyTorch: sequences first, directions joined."""
    if len(v.dims) != 3 or not _known(v, 2):
        return None
    n, s, c = v.dims
    h, both = p.pick((3, 8)), p.pick((1, 2))
    op, gates = p.pick((("LSTM", 4), ("GRU", 3)))
    attrs = {"hidden_size": h, "direction": "bidirectional" if both == 2 else p.pick(("forward", "reverse"))}
    if op == "GRU":
        attrs["linear_before_reset"] = 1
    weights = [p.weight(both, gates * h, c), p.weight(both, gates * h, h), p.weight(both, 2 * gates * h)]
    outs = [(s, both, n, h), (both, n, h)] + ([(both, n, h)] if op == "LSTM" else [])
    y, last = p.node(op, [p.transpose(v, 1, 0, 2), *weights], outs, len(outs), **attrs)[:2]
    if p.chance(0.3):    # the last state
        return p.reshape(p.transpose(last, 1, 0, 2), p.pick(((0, -1), (-1, both * h))), (n, both * h))
    if both == 1:
        y = p.with_axes("Squeeze", [y], [1], (s, n, h), 13)
    else:
        y = p.reshape(p.transpose(y, 0, 2, 1, 3), (0, 0, -1), (s, n, both * h))
    return p.transpose(y, 1, 0, 2)


def positions(p, v):
    """A row of a table for each place, added."""
    if len(v.dims) != 3 or v.dims[1] is None or not _known(v, 2):
        return None
    length = p.node("Squeeze", [p.size(v, 1)], ())
    at = p.node("Range", [p.constant(0, np.int64), length, p.constant(1, np.int64)], (v.dims[1],))
    if p.chance(0.4):
        at = p.ew("Min", p.ew("Add", at, p.constant(p.pick((1, 2)), np.int64)), p.constant(11, np.int64))
    table = p.weight(12, v.dims[2])
    rows = p.node("Gather", [table, at], v.dims[1:], axis=0)
    if p.chance(0.5):
        rows = p.with_axes("Unsqueeze", [rows], [0], (1, *v.dims[1:]), 13)
    return p.ew("Add", v, rows)


def largest(p, v):
    """The largest few along the last axis, or the elements where they are."""
    if not _known(v, -1) or v.dims[-1] < 4:
        return None
    dims = (*v.dims[:-1], 3)
    top, at = p.node("TopK", [v, p.ints(3)], [dims, dims], 2, axis=p.last(v))
    if p.chance(0.4):
        return top
    return p.node("GatherElements", [p.ew(p.pick(("Sigmoid", "Neg")), v), at], dims, axis=p.last(v))


def written(p, v):
    """Some rows or elements written anew."""
    if len(v.dims) < 2 or not _known(v, -1) or not isinstance(v.dims[0], int) and p.chance(0.5):
        return None
    if p.chance(0.5) and _known(v, *range(len(v.dims))):
        at = p.constant([[v.dims[0] - 1], [0]][:v.dims[0]], np.int64)
        return p.node("ScatterND", [v, at, p.weight(min(2, v.dims[0]), *v.dims[1:])], v.dims)
    kept = p.slice(v, 1, FAR, len(v.dims) - 1)
    return p.node("Concat", [p.ew("Mul", p.slice(v, 0, 1, len(v.dims) - 1), p.scalar(0.0)), kept], v.dims, axis=-1)


def branch(p, v):
    """An If whose branches compute with values from outside."""
    test = p.node("Greater", [p.reduce("ReduceMax", v, range(len(v.dims)), 0), p.constant(p.pick((-9.0, 1.5, 9.0)))], ())
    graphs = []
    for op in (p.pick(("Relu", "Tanh")), p.pick(("Neg", "Sigmoid"))):
        inner, out = p.name("i"), p.name("i")
        nodes = [Node(op, [v.name], [inner]), Node(p.pick(("Add", "Mul")), [inner, p.pick((v.name, p.scalar(0.5)))], [out])]
        graphs.append(Graph(nodes=nodes, outputs=[Port(out, None)]))
    return p.node("If", [test], v.dims, then_branch=graphs[0], else_branch=graphs[1])


# -- Images ----------------------------------------------------------------------------------------------------

def _image(v):
    return len(v.dims) == 4 and _known(v, 1)


def conv(p, v):
    if not _image(v):
        return None
    c, n = v.dims[1], p.pick((4, 8, 16))
    groups = p.pick((1, 1, 1, c, 2 if c % 2 == 0 else 1))
    if groups == c:
        n = c * p.pick((1, 1, 2))
    k = p.pick((1, 1, 3, 3, 5))
    attrs = {"group": groups, "kernel_shape": [k, k]}
    pads = [k // 2] * 4
    if p.chance(0.2) and k > 1:    # padded before
        mode = p.pick(("constant", "constant", "reflect", "edge"))
        more = [p.constant(p.pick((0, 0, 0.5)))] if mode == "constant" else []
        v = p.node("Pad", [v, p.ints(0, 0, 1, 1, 0, 0, 1, 1), *more], (v.dims[0], c, None, None), mode=mode)
        pads = [0] * 4
    if p.chance(0.15):
        attrs["auto_pad"] = p.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attrs["pads"] = pads
    stride = p.pick((1, 1, 2))
    attrs["strides"] = [stride, stride]
    same = stride == 1 and (pads[0] == k // 2 and attrs.get("auto_pad") != "VALID")
    dims = (v.dims[0], n, *(v.dims[2:] if same else (None, None)))
    bias = [p.weight(n)] if p.chance(0.5) else []
    y = p.node("Conv", [v, p.weight(n, c // groups, k, k), *bias], dims, **attrs)
    if p.chance(0.5):
        y = batch_norm(p, y)
    if p.chance(0.3):    # a scale or shift of channels, or of columns
        shape = p.pick(((n, 1, 1), (1, n, 1, 1), (1,), (1, 1, 1, 1)))
        y = p.ew(p.pick(("Mul", "Add", "Sub", "Div")), y, p.weight(*shape, lo=0.5, hi=1.5))
    return y


def up(p, v):
    """Twice the size: transposed convolutions, Resize by sizes or scales, depth to space."""
    if not _image(v) or v.dims[1] % 4:
        return None
    n, c, h, w = v.dims
    dims = (n, c, None, None)
    how = p.rs.randint(4)
    if how == 0:
        y = p.node("ConvTranspose", [v, p.weight(c, c, 2, 2), *([p.weight(c)] if p.chance(0.5) else [])], dims, strides=[2, 2], kernel_shape=[2, 2])
        return batch_norm(p, y) if p.chance(0.5) else y
    if how == 1:
        attrs = p.pick(({"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
                        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
                        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
                        {"mode": "cubic", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75}))
        none = p.constant(np.zeros(0))
        if p.chance(0.5):
            return p.node("Resize", [v, none, p.constant((1, 1, 2, p.pick((2, 3))))], dims, **attrs)
        size = p.node("Shape", [v], (4,))
        front = p.node("Slice", [size, p.ints(0), p.ints(2), p.ints(0)], (2,))
        back = p.node("Mul", [p.node("Slice", [size, p.ints(2), p.ints(4), p.ints(0)], (2,)), p.ints(2, 2)], (2,))
        return p.node("Resize", [v, none, none, p.node("Concat", [front, back], (4,), axis=0)], dims, **attrs)
    if how == 2:
        return p.node("DepthToSpace", [v], (n, c // 4, None, None), blocksize=2, mode=p.pick(("DCR", "CRD")))
    if not isinstance(h, int) or not isinstance(w, int):
        return None
    order = p.pick(((0, 1, 4, 2, 5, 3), (0, 3, 4, 1, 5, 2)))
    parts = (c // 4, 2, 2) if order[1] == 1 else (2, 2, c // 4)
    y = p.transpose(p.reshape(v, (0, *parts, h, w), (n, *parts, h, w)), *order)
    return p.reshape(y, (0, c // 4, 2 * h, 2 * w), (n, c // 4, 2 * h, 2 * w))


def shuffle(p, v):
    if not _image(v) or v.dims[1] % 2 or not _known(v, 2, 3):
        return None
    n, c, h, w = v.dims
    y = p.transpose(p.reshape(v, (0, 2, c // 2, h, w), (n, 2, c // 2, h, w)), 0, 2, 1, 3, 4)
    return p.reshape(y, (0, -1, h, w), v.dims)


def focus(p, v):
    """Pixels of four phases, joined."""
    if not _image(v) or not _known(v, 2, 3) or v.dims[2] % 2 or v.dims[3] % 2:
        return None
    parts = []
    for a, b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        parts.append(p.slice(p.slice(v, a, FAR, 2, 2), b, FAR, 3, 2))
    return p.node("Concat", parts, (v.dims[0], 4 * v.dims[1], v.dims[2] // 2, v.dims[3] // 2), axis=1)


def roll(p, v):
    a = p.pick(range(1, len(v.dims))) if len(v.dims) > 1 else 0
    k = p.pick((1, 2, -1))
    return p.node("Concat", [p.slice(v, k, FAR, a), p.slice(v, 0, k, a)], v.dims, axis=a)


def windows(p, v):
    """Windows of 2x2 tokens, as of Swin: apart and together again."""
    if not _image(v) or not _known(v, 2, 3) or v.dims[2] % 2 or v.dims[3] % 2:
        return None
    n, c, h, w = v.dims
    x = p.transpose(v, 0, 2, 3, 1)
    x = p.reshape(x, (-1, h // 2, 2, w // 2, 2, c), (n, h // 2, 2, w // 2, 2, c))
    x = p.reshape(p.transpose(x, 0, 1, 3, 2, 4, 5), (-1, 4, c), (None, 4, c))
    x = linear(p, x)
    c = x.dims[-1]
    x = p.transpose(p.reshape(x, (-1, h // 2, w // 2, 2, 2, c), (n, h // 2, w // 2, 2, 2, c)), 0, 1, 3, 2, 4, 5)
    return p.transpose(p.reshape(x, (-1, h, w, c), (n, h, w, c)), 0, 3, 1, 2)


def squeeze_excite(p, v):
    if not _image(v):
        return None
    n, c = v.dims[:2]
    y = p.node("GlobalAveragePool", [v], (n, c, 1, 1)) if p.chance(0.5) else p.reduce("ReduceMean", v, p.pick(((2, 3), (-1, -2), (3, 2))))
    if p.chance(0.6):
        y = p.ew("Relu", p.node("Conv", [y, p.weight(4, c, 1, 1), p.weight(4)], (n, 4, 1, 1)))
        y = p.node("Conv", [y, p.weight(c, 4, 1, 1)], (n, c, 1, 1))
    elif p.chance(0.5):    # across channels
        y = p.transpose(p.with_axes("Squeeze", [y], [3], (n, c, 1), 13), 0, 2, 1)
        y = p.node("Conv", [y, p.weight(1, 1, 3)], (n, 1, c), pads=[1, 1])
        y = p.with_axes("Unsqueeze", [p.transpose(y, 0, 2, 1)], [3], (n, c, 1, 1), 13)
    else:
        y = p.node("Flatten", [y], (n, c), axis=1)
        y = p.node("Gemm", [y, p.weight(c, c), p.weight(c)], (n, c), transB=1)
        y = p.reshape(y, p.pick(((0, c, 1, 1), (-1, c, 1, 1))), (n, c, 1, 1))
    y = p.ew(p.pick(("Sigmoid", "HardSigmoid", "Relu")), y)
    y = p.ew("Mul", *((v, y) if p.chance(0.5) else (y, v)))
    return Value(y.name, v.dims)


def spatial_gate(p, v):
    """Mean and largest of channels, joined: a map that scales every channel."""
    if not _image(v):
        return None
    parts = [p.reduce("ReduceMean", v, [1]), p.reduce("ReduceMax", v, [p.pick((1, -3))])]
    y = p.node("Concat", parts, (v.dims[0], 2, *v.dims[2:]), axis=1)
    y = p.node("Conv", [y, p.weight(1, 2, 3, 3)], (v.dims[0], 1, *v.dims[2:]), pads=[1] * 4)
    return Value(p.ew("Mul", v, p.ew("Sigmoid", y)).name, v.dims)


def pools(p, v):
    if not _image(v):
        return None
    k = p.pick((2, 3))
    if p.chance(0.4):
        y = [p.ew("MaxPool", v, kernel_shape=[s, s], pads=[s // 2] * 4) for s in (3, 5)]
        return p.node("Concat", [v, *y], (v.dims[0], 3 * v.dims[1], *v.dims[2:]), axis=1)
    attrs = {"kernel_shape": [k, k], "strides": [2, 2], "pads": [p.pick((0, 1))] * 4, "ceil_mode": p.pick((0, 0, 1))}
    if p.chance(0.5):
        attrs["count_include_pad"] = p.pick((0, 1))
        return p.node("AveragePool", [v], (*v.dims[:2], None, None), **attrs)
    return p.node("MaxPool", [v], (*v.dims[:2], None, None), **attrs)


# -- Views -------------------------------------------------------------------------------------------------------

def to_tokens(p, v):
    if not _image(v) or v.dims[2] is None:
        return None
    n, c, h, w = v.dims
    hw = h * w if isinstance(h, int) and isinstance(w, int) else None
    if p.chance(0.5):
        return p.transpose(p.reshape(v, (0, c, -1), (n, c, hw)), 0, 2, 1)
    return p.reshape(p.transpose(v, 0, 2, 3, 1), (0, -1, c), (n, hw, c))


def by_shape(p, v):
    """A reshape to its own sizes, read from the shape, with the last two axes joined and apart again."""
    if len(v.dims) < 3 or not _known(v, -1):
        return None
    rank = len(v.dims)
    sizes = [p.size(v, i) for i in range(rank)]
    y = p.node("Reshape", [v, p.node("Concat", [*sizes[:-2], p.ints(-1)], (rank - 1,), axis=0)], (*v.dims[:-2], None))
    y = p.ew(p.pick(("Relu", "Tanh", "Neg")), y)
    return p.node("Reshape", [y, p.node("Concat", [*sizes[:-1], p.ints(v.dims[-1])], (rank,), axis=0)], v.dims)


def swap_last(p, v):
    if len(v.dims) < 2:
        return None
    perm = list(range(len(v.dims)))
    perm[-1], perm[-2] = perm[-2], perm[-1]
    return p.transpose(v, *perm)


def any_transpose(p, v):
    return p.transpose(v, *(int(i) for i in p.rs.permutation(len(v.dims))))


def first_token(p, v):
    if len(v.dims) != 3 or v.dims[1] is None:
        return None
    if p.chance(0.5):
        return p.node("Gather", [v, p.constant(p.pick((0, -1)), np.int64)], (v.dims[0], v.dims[2]), axis=1)
    y = p.slice(v, 0, 1, 1)
    return p.with_axes("Squeeze", [y], [1], (v.dims[0], v.dims[2]), 13)


def mean_tokens(p, v):
    """The mean of the tokens that a mask leaves."""
    if len(v.dims) != 3 or v.dims[1] is None or not _known(v, 2):
        return None
    m = p.ew("Cast", p.with_axes("Unsqueeze", [p.input(v.dims[:2], "int64")], [2], (*v.dims[:2], 1), 13), to=1)
    if p.chance(0.5):
        m = p.node("Expand", [m, p.node("Shape", [v], (3,))], v.dims)
    total = p.reduce("ReduceSum", p.ew("Mul", v, m), [1], 0)
    count = p.ew("Clip", p.reduce("ReduceSum", m, [1], 0), p.constant(1e-3))
    return p.ew("Div", total, count)


def joined(p, v):
    """With a value of the same sizes, or with itself changed."""
    u = p.pick([u for u in p.values if u.dims == v.dims] or [v])
    if u.name == v.name:
        u = p.ew(p.pick(("Relu", "Neg", "Sigmoid")), v)
    if p.chance(0.5) and len(v.dims) > 1 and _known(v, 1):
        return p.node("Concat", [v, u], (v.dims[0], v.dims[1] * 2, *v.dims[2:]), axis=1)
    return p.ew(p.pick(("Add", "Mul", "Sub", "Max")), v, u)


def cast_round(p, v):
    return p.ew("Cast", p.ew("Cast", v, to=p.pick((10, 11, 6))), to=1)


def chosen(p, v):
    """Elements by a comparison with a constant, an index or a mask of its own."""
    if p.chance(0.5):
        return p.ew("Where", p.ew("Greater", v, p.scalar(0.1)), v, p.pick((p.scalar(0.0), p.scalar(-1.0))))
    if not _known(v, -1) or v.dims[-1] < 3:
        return None
    return p.node("Gather", [v, p.ints(2, 0, p.pick((-1, 1)))], (*v.dims[:-1], 3), axis=p.last(v))


TOKENS = (layer_norm, normalise, gelu, gate, gated_halves, softmax, clipped, linear, einsum, siblings, attention, attention, by_shape,
          swap_last, any_transpose, first_token, mean_tokens, joined, cast_round, chosen, roll, signal, recurrent, positions, largest,
          written, branch)
IMAGES = (conv, conv, conv, channel_norm, group_norm, batch_norm, up, shuffle, focus, windows, squeeze_excite, spatial_gate, pools,
          gate, gelu, gated_halves, softmax, clipped, to_tokens, by_shape, any_transpose, joined, cast_round, chosen, roll, largest, written,
          branch)


def make_graph(rs):
    """A graph of one to six parts."""
    p = Parts(rs)
    n = p.pick(("N", "N", 1, 2))
    if p.chance(0.55):
        v = p.input((n, p.pick(("S", "S", 4, 6)), p.pick((8, 12, 16))))
    else:
        v = p.input((n, p.pick((3, 4, 8, 16)), p.pick((4, 6, 8, "H")), p.pick((4, 6, 8))))
    p.values.append(v)
    for _ in range(p.pick((1, 2, 3, 4, 5, 6))):
        for _ in range(10):
            part = p.pick(IMAGES if len(v.dims) == 4 else TOKENS)
            if None in v.dims and part in (attention, up, to_tokens, windows):
                continue
            y = part(p, v)
            if y is not None:
                break
        else:
            continue
        if p.chance(0.15) and y.dims == v.dims:
            y = p.ew("Add", y, v)
        v = y
        p.values.append(v)
    p.graph.outputs.append(Port(v.name, None))
    return p.graph
