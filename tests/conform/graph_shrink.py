"""Makes a failing graph smaller: fewer outputs, nodes replaced by inputs or left out, as long as it fails."""
import numpy as np

from onnx_file import Port


def _fewer_outputs(graph, _):
    if len(graph.outputs) > 1:
        for i in range(len(graph.outputs)):
            g = graph.copy()
            g.outputs = [graph.outputs[i]]
            yield g.prune(), {}
        for i in range(len(graph.outputs)):
            g = graph.copy()
            del g.outputs[i]
            yield g.prune(), {}


def _earlier_output(graph, values):
    """An inner value as the only output."""
    for node in graph.nodes[:-1]:
        for name in node.outputs:
            if name in values:
                g = graph.copy()
                g.outputs = [Port(name, values[name].dtype.name)]
                yield g.prune(), {}


def _value_as_input(graph, values):
    """A node's results become inputs, with the values that the oracle has for them."""
    for i in reversed(range(len(graph.nodes))):
        names = graph.nodes[i].outputs
        if any(n not in values or n in [o.name for o in graph.outputs] for n in names):
            continue
        g = graph.copy()
        del g.nodes[i]
        g.inputs += [Port(n, values[n].dtype.name, list(values[n].shape)) for n in names]
        yield g.prune(), {n: values[n] for n in names}


def _left_out(graph, values):
    """Users of a node take its first operand of the same type and shape instead."""
    for i, node in enumerate(graph.nodes):
        out = node.outputs[0]
        for source in node.inputs:
            a, b = values.get(source), values.get(out)
            if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
                continue
            g = graph.copy()
            del g.nodes[i]
            for other in g.nodes:
                other.inputs = [source if n == out else n for n in other.inputs]
            for k, o in enumerate(g.outputs):
                if o.name == out:
                    g.outputs[k] = Port(source, o.dtype)
            if any(o.name in [p.name for p in g.inputs] or o.name in g.constants for o in g.outputs):
                continue
            yield g.prune(), {}


def _without_symbols(graph, values):
    if any(isinstance(d, str) for p in graph.inputs for d in p.dims):
        g = graph.copy()
        g.inputs = [Port(p.name, p.dtype, list(values[p.name].shape)) for p in g.inputs]
        g.outputs = [Port(p.name, p.dtype) for p in g.outputs]
        yield g, {}


def _simple_constants(graph, _):
    """Small integers instead of random weights."""
    for name, a in graph.constants.items():
        a = np.asarray(a)
        if a.dtype.kind == "f" and a.size > 1 and np.any(a != np.round(a * 4) / 4):
            g = graph.copy()
            g.constants[name] = (np.round(a * 4) / 4).astype(a.dtype)
            yield g, {}


CHANGES = (_fewer_outputs, _earlier_output, _value_as_input, _left_out, _without_symbols, _simple_constants)


def shrink(graph, inputs, fails, trace, rounds=60):
    """The smallest (graph, inputs) found for which fails(graph, inputs) holds. trace(graph, inputs): all
    inner values, {name: array}."""
    for _ in range(rounds):
        values = {**trace(graph, inputs), **inputs}
        for change in CHANGES:
            smaller = next((pair for pair in _candidates(change, graph, inputs, values) if _holds(fails, *pair)), None)
            if smaller:
                graph, inputs = smaller
                break
        else:
            break
    return graph, inputs


def _candidates(change, graph, inputs, values):
    for g, more in change(graph, values):
        every = {**inputs, **more}
        if g.outputs and g.nodes:
            yield g, {p.name: every[p.name] for p in g.inputs}


def _holds(fails, graph, inputs):
    try:
        return fails(graph, inputs)
    except Exception:  # the oracle rejects it
        return False
