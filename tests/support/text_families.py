"""Siblings of a model of text_models: what people do to a trained encoder. Each changes a copy of the base's weights (or, for
`classes`, the last layer's size)."""
import copy

import numpy as np


def _floats(g, keep=lambda a: True):
    return [n for n, a in g.constants.items() if a.dtype == np.float32 and a.size > 1 and keep(a)]


def _products(g):
    """Names of the weights by which tokens are multiplied."""
    used = [n.inputs[1] for n in g.nodes if n.op == "MatMul" and n.inputs[1] in g.constants]
    head = _head(g)
    return [n for n in used if head is None or n != head[0]]


def _head(g):
    """Weight and bias of the output `class`."""
    by_output = {o: n for n in g.nodes for o in n.outputs}
    if "class" not in by_output:
        return None
    tanh = by_output[by_output["class"].inputs[0]]
    add = by_output[tanh.inputs[0]]
    return by_output[add.inputs[0]].inputs[1], add.inputs[1]


def _noise(rs, a, size=0.3):
    return (a + rs.uniform(-size, size, a.shape)).astype(np.float32)


def head(g, rs):
    for n in _head(g) or ():
        g.constants[n] = _noise(rs, g.constants[n])


def classes(g, rs):
    if _head(g):
        w, b = _head(g)
        n = rs.randint(2, 7)
        g.constants[w] = _noise(rs, np.zeros((g.constants[w].shape[0], n)))
        g.constants[b] = _noise(rs, np.zeros(n))


def biases(g, rs):
    names = _floats(g, lambda a: a.ndim == 1)
    for n in rs.choice(names, rs.randint(1, len(names) + 1), replace=False):
        g.constants[n] = _noise(rs, g.constants[n])


def low_rank(g, rs):
    names = _products(g)
    for n in rs.choice(names, rs.randint(1, len(names) + 1), replace=False):
        w, r = g.constants[n], rs.randint(1, 3)
        g.constants[n] = (w + 0.3 * rs.uniform(-1, 1, (w.shape[0], r)) @ rs.uniform(-1, 1, (r, w.shape[1]))).astype(np.float32)
    head(g, rs)


def words(g, rs):
    tables = {n.inputs[0] for n in g.nodes if n.op in ("Gather", "Slice")}
    for n in _floats(g):
        if n in tables and rs.randint(2):
            g.constants[n] = _noise(rs, g.constants[n])


def one_product(g, rs):
    n = rs.choice(_products(g))
    g.constants[n] = _noise(rs, g.constants[n])


def sparse(g, rs):
    for n in _products(g):
        a = g.constants[n]
        g.constants[n] = np.where(rs.uniform(size=a.shape) < 0.02, _noise(rs, a), a).astype(np.float32)


def renamed(g, rs):
    """As another exporter names and orders things."""
    names = {n: f"w{i}" for i, n in enumerate(sorted(g.constants, key=lambda _: rs.uniform()))}
    g.constants = {names[n]: a for n, a in g.constants.items()}
    for node in g.nodes:
        node.inputs = [names.get(i, i) for i in node.inputs]
    head(g, rs)


def half(g, rs):
    """A trip through float16."""
    for n in _products(g):
        g.constants[n] = g.constants[n].astype(np.float16).astype(np.float32)


KINDS = [head, classes, biases, low_rank, words, one_product, sparse, renamed, half]


def make(base, rs, n, kinds=None):
    """The base and n siblings of it; (graphs, names of what was done)."""
    graphs, done = [base], ["base"]
    for _ in range(n):
        g, what = copy.deepcopy(base), []
        for kind in rs.choice(len(KINDS), rs.randint(1, 3), replace=False) if kinds is None else kinds:
            kind = KINDS[kind] if kinds is None else kind
            kind(g, rs)
            what.append(kind.__name__)
        graphs.append(g)
        done.append("+".join(what))
    return graphs, done
