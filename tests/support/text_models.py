"""Small encoders and decoders of text as exporters write them, with each form of mask and of positions: inputs `ids` and, for
masks of keys, `mask`, [batch, seq] of int64; outputs `hidden`, a row for each token, and `class`, one for each sequence."""
import numpy as np

from onnx_file import Graph, Node, Port

WORDS, LONGEST = 50, 24
LOWEST = np.finfo(np.float32).min


class Model:
    def __init__(self, rs, hidden=16, heads=2):
        self.rs, self.e, self.h, self.g, self.count = rs, hidden, heads, Graph(opset=14), 0
        self.turn = None

    def const(self, value):
        self.count += 1
        self.g.constants[f"c{self.count}"] = np.asarray(value)
        return f"c{self.count}"

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def weight(self, *shape):
        return self.const(self.rs.uniform(-0.5, 0.5, shape).astype(np.float32))

    def op(self, op, *inputs, **attrs):
        self.count += 1
        self.g.nodes.append(Node(op, list(inputs), [f"v{self.count}"], attrs))
        return f"v{self.count}"

    def size(self, x, axis):
        return self.op("Gather", self.op("Shape", x), self.ints(axis), axis=0)

    def slice(self, x, end, axis):
        return self.op("Slice", x, self.ints(0), end, self.ints(axis))

    def embed(self, positions):
        x = self.op("Gather", self.weight(WORDS, self.e), "ids")
        length = self.size("ids", 1)
        if positions == "slice":
            at = self.slice(self.const(np.arange(LONGEST, dtype=np.int64)[None]), length, 1)
            x = self.op("Add", x, self.op("Gather", self.weight(LONGEST, self.e), at))
        if positions == "range":
            zero = self.const(np.int64(0))
            at = self.op("Range", zero, self.op("Squeeze", length, self.ints(0)), self.const(np.int64(1)))
            x = self.op("Add", x, self.op("Gather", self.weight(LONGEST, self.e), at))
        if positions in ("table", "rotary gathered"):  # without it, no operator bounds the length of the latter
            x = self.op("Add", x, self.slice(self.weight(1, LONGEST, self.e), length, 1))
        if positions == "running":  # RoBERTa
            kept = self.op("Cast", self.op("Not", self.op("Equal", "ids", self.const(np.int64(1)))), to=6)
            at = self.op("Mul", self.op("CumSum", kept, self.const(np.int64(1))), kept)
            at = self.op("Add", self.op("Cast", at, to=7), self.const(np.int64(1)))
            x = self.op("Add", x, self.op("Gather", self.weight(LONGEST + 2, self.e), at))
        if positions.startswith("rotary"):
            self.rotary(positions, length)
        return self.norm(x)

    def rotary(self, kind, length):
        """Sets cosines and sines, which queries and keys are turned by: cut from tables, gathered from these by positions, or
        computed for each request."""
        d = self.e // self.h
        speed = 1 / 100 ** (np.arange(0, d, 2) / d)
        angle = np.arange(LONGEST)[:, None] * np.concatenate([speed, speed])
        zero, one = self.const(np.int64(0)), self.const(np.int64(1))
        if kind == "rotary computed":
            at = self.op("Range", zero, self.op("Squeeze", length, self.ints(0)), one)
            at = self.op("Cast", self.op("Unsqueeze", at, self.ints(0, 1)), to=1)
            each = self.op("Concat", self.size("ids", 0), self.ints(len(speed), 1), axis=0)
            speeds = self.op("Expand", self.const(speed.astype(np.float32)[None, :, None]), each)
            turns = self.op("Transpose", self.op("MatMul", speeds, at), perm=[0, 2, 1])
            turns = self.op("Unsqueeze", self.op("Concat", turns, turns, axis=-1), self.ints(1))
            self.turn = (self.op("Cos", turns), self.op("Sin", turns))
            return
        self.turn = [self.slice(self.const(f(angle).astype(np.float32)[None, None]), length, 2) for f in (np.cos, np.sin)]
        if kind == "rotary gathered":  # by positions, as older versions of Hugging Face's models do
            at = self.op("Unsqueeze", self.op("Range", zero, self.op("Squeeze", length, self.ints(0)), one), self.ints(0))
            self.turn = [self.op("Unsqueeze", self.op("Gather", self.op("Squeeze", t, self.ints(0, 1)), at), self.ints(1))
                         for t in self.turn]

    def turned(self, x):
        """x of [batch, heads, length, size], turned by positions."""
        if not self.turn:
            return x
        half = self.e // self.h // 2
        a = self.op("Slice", x, self.ints(0), self.ints(half), self.ints(3))
        b = self.op("Slice", x, self.ints(half), self.ints(1 << 40), self.ints(3))
        other = self.op("Concat", self.op("Neg", b), a, axis=-1)
        return self.op("Add", self.op("Mul", x, self.turn[0]), self.op("Mul", other, self.turn[1]))

    def norm(self, x):
        mean = self.op("ReduceMean", x, axes=[-1])
        d = self.op("Sub", x, mean)
        var = self.op("ReduceMean", self.op("Mul", d, d), axes=[-1])
        root = self.op("Sqrt", self.op("Add", var, self.const(np.float32(1e-5))))
        return self.op("Add", self.op("Mul", self.op("Div", d, root), self.weight(self.e)), self.weight(self.e))

    def mask(self, kind):
        """(what is done to scores, function of scores)"""
        if kind == "none":
            return lambda s: s
        length = self.size("ids", 1)
        if kind in ("causal where", "causal add", "causal trilu"):
            if kind == "causal trilu":
                square = self.op("Concat", length, length, axis=0)
                seen = self.op("Trilu", self.op("Expand", self.const(np.float32(1)), square), upper=0)
                seen = self.op("Equal", seen, self.const(np.float32(1)))
            else:
                table = self.const(np.tril(np.ones((1, 1, LONGEST, LONGEST), bool)))
                seen = self.slice(self.slice(table, length, 2), length, 3)
            if kind == "causal where":
                return lambda s: self.op("Where", seen, s, self.const(np.float32(-10000)))
            added = self.op("Where", seen, self.const(np.float32(0)), self.const(np.float32(LOWEST)))
            return lambda s: self.op("Add", s, added)
        m = self.op("Unsqueeze", "mask", self.ints(1, 2))
        if kind in ("both add", "both fill", "both scores"):
            seen = self.slice(self.slice(self.const(np.tril(np.ones((1, 1, LONGEST, LONGEST), bool))), length, 2), length, 3)
            lowest, none = self.const(np.float32(LOWEST)), self.const(np.float32(0))
            causal = self.op("Where", seen, none, lowest)
            hidden = self.op("Mul", self.op("Sub", self.const(np.float32(1)), self.op("Cast", m, to=1)), lowest)
            if kind == "both scores":  # GPT-2
                return lambda s: self.op("Add", self.op("Where", seen, s, lowest), hidden)
            if kind == "both add":
                both = self.op("Add", causal, hidden)
            else:  # Llama's masked_fill
                shape = self.op("Concat", self.size("ids", 0), self.ints(1), length, length, axis=0)
                out = self.op("Cast", self.op("Sub", self.const(np.int64(1)), self.op("Expand", m, shape)), to=9)
                both = self.op("Where", out, lowest, causal)
            return lambda s: self.op("Add", s, both)
        if kind in ("relative", "relative twice"):  # T5; MPNet
            at = self.op("Range", self.const(np.int64(0)), self.op("Squeeze", length, self.ints(0)), self.const(np.int64(1)))
            far = self.op("Sub", self.op("Unsqueeze", at, self.ints(0)), self.op("Unsqueeze", at, self.ints(1)))
            far = self.op("Min", self.op("Abs", far), self.const(np.int64(7)))
            bias = self.op("Transpose", self.op("Gather", self.weight(8, self.h), far), perm=[2, 0, 1])
            bias = self.op("Unsqueeze", bias, self.ints(0))
            hidden = self.op("Mul", self.op("Sub", self.const(np.float32(1)), self.op("Cast", m, to=1)), self.const(np.float32(LOWEST)))
            if kind == "relative twice":
                return lambda s: self.op("Add", self.op("Add", s, bias), hidden)
            both = self.op("Add", bias, hidden)
            return lambda s: self.op("Add", s, both)
        if kind == "expand":  # Hugging Face's _expand_mask
            shape = self.op("Concat", self.size("ids", 0), self.ints(1), length, length, axis=0)
            m = self.op("Cast", self.op("Expand", m, shape), to=1)
            m = self.op("Sub", self.const(np.float32(1)), m)
            m = self.op("Where", self.op("Cast", m, to=9), self.const(np.float32(LOWEST)), m)
            return lambda s: self.op("Add", s, m)
        if kind == "where":  # DistilBERT
            out = self.op("Equal", m, self.const(np.int64(0)))
            return lambda s: self.op("Where", out, self.const(np.float32(LOWEST)), s)
        if kind == "infinite":  # torch's scaled_dot_product_attention
            m = self.op("Where", self.op("Cast", m, to=9), self.const(np.float32(0)), self.const(np.float32(-np.inf)))
            return lambda s: self.op("Add", s, m)
        m = self.op("Sub", self.const(np.float32(1)), self.op("Cast", m, to=1))
        m = self.op("Mul", m, self.const(np.float32(-10000 if kind == "thousands" else LOWEST)))
        return lambda s: self.op("Add", s, m)

    def heads(self, x, perm):
        shape = self.op("Concat", self.size(x, 0), self.size(x, 1), self.ints(self.h, self.e // self.h), axis=0)
        return self.op("Transpose", self.op("Reshape", x, shape), perm=perm)

    def linear(self, x, n_in, n_out):
        return self.op("Add", self.op("MatMul", x, self.weight(n_in, n_out)), self.weight(n_out))

    def layer(self, x, mask):
        q, k, v = (self.linear(x, self.e, self.e) for _ in range(3))
        if self.turn:
            k = self.op("Transpose", self.turned(self.heads(k, [0, 2, 1, 3])), perm=[0, 1, 3, 2])
        else:
            k = self.heads(k, [0, 2, 3, 1])
        scores = self.op("MatMul", self.turned(self.heads(q, [0, 2, 1, 3])), k)
        scores = mask(self.op("Div", scores, self.const(np.float32((self.e / self.h) ** 0.5))))
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), self.heads(v, [0, 2, 1, 3]))
        y = self.op("Transpose", y, perm=[0, 2, 1, 3])
        y = self.op("Reshape", y, self.op("Concat", self.size(y, 0), self.size(y, 1), self.ints(self.e), axis=0))
        x = self.norm(self.op("Add", x, self.linear(y, self.e, self.e)))
        y = self.op("Relu", self.linear(x, self.e, 2 * self.e))
        return self.norm(self.op("Add", x, self.linear(y, 2 * self.e, self.e)))

    def pool(self, x, kind, has_mask):
        """One row for each sequence, as sentence-transformers and classifiers make it."""
        if kind == "gather":
            return self.op("Gather", x, self.const(np.int64(0)), axis=1)
        if kind == "slice":
            return self.op("Squeeze", self.slice(x, self.ints(1), 1), self.ints(1))
        if kind == "last":
            return self.op("Gather", x, self.const(np.int64(-1)), axis=1)
        if kind == "average" or not has_mask:
            return self.op("ReduceMean", x, axes=[1], keepdims=0)
        m = self.op("Expand", self.op("Unsqueeze", "mask", self.ints(2)), self.op("Shape", x))
        if kind == "max":
            low = self.op("Equal", m, self.const(np.int64(0)))
            return self.op("ReduceMax", self.op("Where", low, self.const(np.float32(-1e9)), x), axes=[1], keepdims=0)
        m = self.op("Cast", m, to=1)
        n = self.op("Clip", self.op("ReduceSum", m, self.ints(1), keepdims=0), self.const(np.float32(1e-9)))
        y = self.op("Div", self.op("ReduceSum", self.op("Mul", x, m), self.ints(1), keepdims=0), n)
        norm = self.op("Clip", self.op("ReduceL2", y, axes=[1], keepdims=1), self.const(np.float32(1e-12)))
        return self.op("Div", y, self.op("Expand", norm, self.op("Shape", y)))

    def output(self, x, name):
        self.g.nodes.append(Node("Identity", [x], [name], {}))
        self.g.outputs.append(Port(name, "float32"))


def port(name):
    return Port(name, "int64", ["batch", "seq"])


WITHOUT_MASK = ["none", "causal where", "causal add", "causal trilu"]
MASKS = WITHOUT_MASK + ["expand", "where", "infinite", "thousands", "lowest", "both add", "both fill", "both scores", "relative",
                        "relative twice"]
POSITIONS = ["none", "slice", "range", "table", "running", "rotary", "rotary gathered", "rotary computed"]
POOLS = ["", "gather", "slice", "last", "average", "mean", "max"]


def encoder(rs, mask, positions, pool):
    m = Model(rs, 8 * rs.randint(1, 5), rs.choice([2, 4]))
    m.g.inputs.append(port("ids"))
    if mask not in WITHOUT_MASK:
        m.g.inputs.append(port("mask"))
    x, apply = m.embed(positions), m.mask(mask)
    for _ in range(rs.randint(1, 3)):
        x = m.layer(x, apply)
    m.output(x, "hidden")
    if pool:
        m.output(m.op("Tanh", m.linear(m.pool(x, pool, mask not in WITHOUT_MASK), m.e, 3)), "class")
    return m.g


def make_inputs(graph, length, rs):
    out = []
    for p in graph.inputs:
        a = rs.randint(0, WORDS, (1, length)).astype(np.int64)
        if p.name == "mask":
            a = (rs.uniform(size=(1, length)) < 0.7).astype(np.int64)  # holes
            a[:, length - rs.randint(0, length // 2 + 1):] = 0         # and zeros behind
            a[:, 0] = 1
        out.append(a)
    return out
