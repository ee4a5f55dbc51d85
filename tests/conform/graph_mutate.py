"""Small changes of a graph, so that what a pass looks for is nearly there: another constant, axis or operator, operands
in the other order, one more consumer, a node more or less. Whether the result is a model at all, the oracle says."""
import numpy as np

from onnx_file import Graph, Node, Port

SIBLINGS = (("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"), ("ReduceMean", "ReduceMax", "ReduceL2", "ReduceMin"),
            ("Tanh", "Sigmoid", "Erf", "Relu", "HardSigmoid", "Softplus", "Neg", "Abs", "Identity", "HardSwish"),
            ("Sqrt", "Exp", "Abs", "Reciprocal"), ("Softmax", "LogSoftmax", "Hardmax"), ("Less", "Greater", "Equal"))
FLAGS = ("interleaved", "keepdims", "ceil_mode", "count_include_pad", "linear_before_reset", "transB")
FUNCTIONS = ("Identity", "Identity", "Relu", "Neg", "Abs", "Tanh", "Sigmoid")


def _pick(rs, items):
    items = list(items)
    return items[rs.randint(len(items))] if items else None


def _fresh(graph, head):
    graph.made = getattr(graph, "made", 0) + 1
    return f"{head}_{graph.made}"


def _readers(graph, name):
    return [(n, i) for n in graph.nodes for i, x in enumerate(n.inputs) if x == name]


def other_number(g, rs):
    """A scalar is nearly the same, of the other sign, 0, twice as large; or it has another rank."""
    name = _pick(rs, [k for k, a in g.constants.items() if a.size == 1])
    if name is None:
        return False
    a = np.asarray(g.constants[name])
    if rs.random_sample() < 0.4:
        shape = _pick(rs, ((), (1,), (1, 1), (1, 1, 1), (1, 1, 1, 1), (1,) * 5))
        g.constants[name] = a.reshape(shape)
    elif a.dtype.kind == "f":
        g.constants[name] = np.asarray(_pick(rs, (a * 1.01, -a, a * 0, a * 2, a + 1, a / 3)), a.dtype)
    elif a.dtype.kind == "i":
        g.constants[name] = np.asarray(_pick(rs, (a + 1, a - 1, -a, a * 0, a * 2)), a.dtype)
    return True


def other_array(g, rs):
    """A constant of several elements: another order, one element other, one dim more or summed to one element."""
    name = _pick(rs, [k for k, a in g.constants.items() if a.size > 1])
    if name is None:
        return False
    a = np.asarray(g.constants[name])
    how = rs.randint(5)
    if how == 0:
        b = a[::-1]
    elif how == 1:
        b = a.copy()
        b.reshape(-1)[rs.randint(a.size)] = _pick(rs, (0, 1, 2, -1))
    elif how == 2:
        b = a[None]
    elif how == 3:
        b = a[..., None]
    else:
        b = a.reshape(-1)[:1].reshape((1,) * a.ndim)
    g.constants[name] = np.ascontiguousarray(b)
    return True


def other_attribute(g, rs):
    node = _pick(rs, [n for n in g.nodes if n.attrs])
    if node is None:
        return False
    key = _pick(rs, node.attrs)
    value = node.attrs[key]
    if isinstance(value, (str, np.ndarray, Graph)) or key == "to":
        return False
    node.attrs = dict(node.attrs)
    if isinstance(value, int):
        node.attrs[key] = 1 - value if key in FLAGS else _pick(rs, (1 - value, value + 1, value - 1, -value))
    elif isinstance(value, float):
        node.attrs[key] = float(_pick(rs, (value * 2, value * 1.1, 1.0)))
    elif key == "perm":
        node.attrs[key] = [int(i) for i in rs.permutation(len(value))]
    else:
        value = list(value)
        value[rs.randint(len(value))] += _pick(rs, (1, -1))
        node.attrs[key] = value
    return True


def no_attribute(g, rs):
    node = _pick(rs, [n for n in g.nodes if n.attrs and n.op not in ("Cast", "Conv")])
    if node is None:
        return False
    node.attrs = {k: v for k, v in node.attrs.items() if k != _pick(rs, node.attrs)}
    return True


def swap_operands(g, rs):
    node = _pick(rs, [n for n in g.nodes if len(n.inputs) >= 2])
    if node is None:
        return False
    node.inputs[0], node.inputs[1] = node.inputs[1], node.inputs[0]
    return True


def other_operator(g, rs):
    node = _pick(rs, [n for n in g.nodes if any(n.op in s for s in SIBLINGS)])
    if node is None:
        return False
    node.op = _pick(rs, next(s for s in SIBLINGS if node.op in s))
    return True


def other_operand(g, rs):
    """An operand is an earlier value instead."""
    at = rs.randint(len(g.nodes))
    node = g.nodes[at]
    earlier = [o for n in g.nodes[:at] for o in n.outputs] + [p.name for p in g.inputs if p.dtype == "float32"]
    if not node.inputs or not earlier:
        return False
    node.inputs[rs.randint(min(len(node.inputs), 2))] = _pick(rs, earlier)
    return True


def also_output(g, rs):
    name = _pick(rs, _pick(rs, g.nodes).outputs)
    if name in [o.name for o in g.outputs]:
        return False
    g.outputs.append(Port(name, None))
    return True


def second_reader(g, rs):
    """Another node reads an inner value, and what it gives is an output."""
    name, y = _pick(rs, _pick(rs, g.nodes).outputs), _fresh(g, "other")
    g.nodes.append(Node(_pick(rs, FUNCTIONS), [name], [y]))
    g.outputs.append(Port(y, None))
    return True


def one_more_node(g, rs):
    """Between a value and one of its readers, or all of them."""
    at = rs.randint(len(g.nodes))
    name, y = _pick(rs, g.nodes[at].outputs), _fresh(g, "more")
    readers = _readers(g, name)
    if not readers:
        return False
    how = rs.randint(4)
    if how == 0:
        node = Node("Transpose", [name], [y])
    elif how == 1:
        scale = _fresh(g, "scale")
        g.constants[scale] = np.asarray(_pick(rs, (2.0, -1.0, 0.5, 1.0, 0.0)), np.float32)
        node = Node(_pick(rs, ("Mul", "Add", "Sub", "Div", "Pow")), [name, scale], [y])
    elif how == 2:
        wide = _fresh(g, "wide")
        g.nodes.insert(at + 1, Node("Cast", [name], [wide], {"to": _pick(rs, (11, 10, 7))}))
        at, node = at + 1, Node("Cast", [wide], [y], {"to": 1})
    else:
        node = Node(_pick(rs, FUNCTIONS), [name], [y])
    for reader, i in readers if rs.random_sample() < 0.5 else [_pick(rs, readers)]:
        reader.inputs[i] = y
    g.nodes.insert(at + 1, node)
    return True


def one_node_less(g, rs):
    at = rs.randint(len(g.nodes))
    node = g.nodes[at]
    if not node.inputs or node.outputs[0] in [o.name for o in g.outputs]:
        return False
    for reader, i in _readers(g, node.outputs[0]):
        reader.inputs[i] = node.inputs[0]
    del g.nodes[at]
    return True


def constant_as_input(g, rs):
    name = _pick(rs, [k for k, a in g.constants.items() if a.dtype == np.float32 and a.size])
    if name is None:
        return False
    g.given[name] = a = np.asarray(g.constants.pop(name))
    g.inputs.append(Port(name, "float32", list(a.shape)))
    return True


CHANGES = (other_number, other_number, other_number, other_array, other_array, other_attribute, other_attribute, no_attribute,
           swap_operands, swap_operands, other_operator, other_operator, other_operand, other_operand, also_output, second_reader,
           one_more_node, one_more_node, one_node_less, constant_as_input)


def mutate(graph, rs, times):
    """A changed copy; `given` has arrays for constants that became inputs."""
    g = graph.copy()
    g.given = {}
    for _ in range(times if g.nodes else 0):
        if not g.nodes or not any(_pick(rs, CHANGES)(g, rs) for _ in range(8)):
            break
    return g
