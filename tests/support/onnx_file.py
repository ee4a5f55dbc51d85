"""ONNX files without the onnx package: a graph as plain lists, written in protobuf's wire format.

    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", ["N", 8]))
    g.constants["w"] = array
    g.nodes.append(Node("MatMul", ["x", "w"], ["y"], {}))
    g.outputs.append(Port("y", "float32"))
    g.save(path)

Field numbers are those of onnx.proto (ONNX 1.12 and later).
"""
import copy
import dataclasses
import struct
import typing

import numpy as np

# TensorProto.DataType by numpy's name.
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
         "float16": 10, "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16}
# AttributeProto.AttributeType
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 5, 6, 7, 8


@dataclasses.dataclass
class Node:
    op: str
    inputs: list   # names; "": absent
    outputs: list
    attrs: dict = dataclasses.field(default_factory=dict)  # int, float, str, array, Graph or a list of one kind
    domain: str = ""
    name: str = ""  # default: n and its number


@dataclasses.dataclass
class Port:
    name: str
    dtype: typing.Optional[str]  # None: not declared, nor are the dims
    dims: typing.Optional[list] = None  # integers and names of symbols; None: not declared


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field, value):
    return _varint(field << 3) + _varint(int(value))


def _bytes(field, value):
    if isinstance(value, str):
        value = value.encode()
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field, value):
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _tensor(name, array):
    array = np.asarray(array)
    dims = b"".join(_number(1, d) for d in array.shape)
    return (dims + _number(2, TYPES[array.dtype.name]) + (_bytes(8, name) if name else b"")
            + _bytes(9, array.tobytes()))


def _attribute(name, value):
    head = _bytes(1, name)
    if isinstance(value, (bool, int, np.integer)):
        return head + _number(3, value) + _number(20, INT)
    if isinstance(value, (float, np.floating)):
        return head + _float(2, value) + _number(20, FLOAT)
    if isinstance(value, str):
        return head + _bytes(4, value) + _number(20, STRING)
    if isinstance(value, Graph):
        return head + _bytes(6, value.body()) + _number(20, GRAPH)
    if isinstance(value, np.ndarray):
        return head + _bytes(5, _tensor("", value)) + _number(20, TENSOR)
    if all(isinstance(v, (int, np.integer)) for v in value):
        return head + b"".join(_number(8, v) for v in value) + _number(20, INTS)
    if all(isinstance(v, str) for v in value):
        return head + b"".join(_bytes(9, v) for v in value) + _number(20, STRINGS)
    return head + b"".join(_float(7, v) for v in value) + _number(20, FLOATS)


def _node(node, name):
    out = b"".join(_bytes(1, n) for n in node.inputs) + b"".join(_bytes(2, n) for n in node.outputs)
    out += _bytes(3, name) + _bytes(4, node.op)
    out += b"".join(_bytes(5, _attribute(k, v)) for k, v in node.attrs.items())
    return out + (_bytes(7, node.domain) if node.domain else b"")


def _port(port):
    if port.dtype is None:
        return _bytes(1, port.name)
    shape = b""
    if port.dims is not None:
        dims = (_bytes(2, d) if isinstance(d, str) else _number(1, d) for d in port.dims)
        shape = _bytes(2, b"".join(_bytes(1, d) for d in dims))
    tensor = _number(1, TYPES[port.dtype]) + shape
    return _bytes(1, port.name) + _bytes(2, _bytes(1, tensor))


@dataclasses.dataclass
class Function:
    """A function of the domain "f", which imports the default domain and its own."""
    name: str
    inputs: list
    outputs: list
    nodes: list

    def encode(self, opset):
        imports = (_number(2, opset), _bytes(1, "f") + _number(2, 1))
        return (_bytes(1, self.name) + b"".join(_bytes(4, i) for i in self.inputs)
                + b"".join(_bytes(5, o) for o in self.outputs)
                + b"".join(_bytes(7, _node(n, f"n{i}")) for i, n in enumerate(self.nodes))
                + b"".join(_bytes(9, i) for i in imports) + _bytes(10, "f"))


def _reads(node):
    """Names that a node reads, in the graphs of its attributes too."""
    names = set(node.inputs)
    for graph in node.attrs.values():
        if isinstance(graph, Graph):
            names |= {o.name for o in graph.outputs}.union(*map(_reads, graph.nodes))
    return names


@dataclasses.dataclass
class Graph:
    opset: int = 17
    ir: int = 8
    inputs: list = dataclasses.field(default_factory=list)
    outputs: list = dataclasses.field(default_factory=list)
    constants: dict = dataclasses.field(default_factory=dict)  # name: array
    nodes: list = dataclasses.field(default_factory=list)
    dtypes: dict = dataclasses.field(default_factory=dict)  # of nodes' results, as far as the maker knows
    versions: dict = dataclasses.field(default_factory=dict)  # of other domains, else 1
    functions: list = dataclasses.field(default_factory=list)

    def copy(self):
        """A copy whose lists may be changed; arrays and attributes are shared."""
        out = copy.copy(self)
        out.inputs, out.outputs = list(self.inputs), list(self.outputs)
        out.constants = dict(self.constants)
        out.nodes = [Node(n.op, list(n.inputs), list(n.outputs), n.attrs, n.domain, n.name) for n in self.nodes]
        return out

    def prune(self):
        """Drops nodes, constants and inputs that no output depends on."""
        needed = {o.name for o in self.outputs}
        kept = []
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                kept.append(node)
                needed |= _reads(node)
        self.nodes = kept[::-1]
        self.constants = {k: v for k, v in self.constants.items() if k in needed}
        self.inputs = [i for i in self.inputs if i.name in needed]
        return self

    def body(self):
        """As a GraphProto, for the attribute of a node too."""
        return (b"".join(_bytes(1, _node(n, n.name or f"n{i}")) for i, n in enumerate(self.nodes)) + _bytes(2, "g")
                + b"".join(_bytes(5, _tensor(k, v)) for k, v in self.constants.items())
                + b"".join(_bytes(11, _port(p)) for p in self.inputs)
                + b"".join(_bytes(12, _port(p)) for p in self.outputs))

    def encode(self):
        domains = {"": self.opset, **{n.domain: self.versions.get(n.domain, 1) for n in self.nodes if n.domain}}
        opsets = b"".join(_bytes(8, (_bytes(1, d) if d else b"") + _number(2, v)) for d, v in domains.items())
        return _number(1, self.ir) + _bytes(2, "weft-tests") + _bytes(7, self.body()) + opsets \
            + b"".join(_bytes(25, f.encode(self.opset)) for f in self.functions)

    def save(self, path):
        with open(path, "wb") as f:
            f.write(self.encode())

    def text(self):
        """The graph for people: a line for each input, node and output."""
        def describe(name):
            c = self.constants.get(name)
            if c is None:
                return name or "-"
            if c.size <= 4:
                return f"{name}={c.tolist()}"
            return f"{name}:{c.dtype}{list(c.shape)}"
        lines = [f"input {p.name}: {p.dtype}{p.dims}" for p in self.inputs]
        for n in self.nodes:
            attrs = ", ".join(f"{k}={v}" for k, v in n.attrs.items())
            lines.append(f"{', '.join(n.outputs)} = {n.op}({', '.join(describe(i) for i in n.inputs)})"
                         + (f" {{{attrs}}}" if attrs else ""))
        lines.append("output " + ", ".join(p.name for p in self.outputs))
        return "\n".join(lines)
