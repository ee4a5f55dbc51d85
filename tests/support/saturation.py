"""Integer products of onnxruntime that are exact on every processor.

On x86 without VNNI, onnxruntime multiplies u8 by i8 with an instruction that adds pairs of products
in 16 bits, with saturation. Its products of u8 by u8 are exact, so a model's i8 weights w with zero
point z become the u8 weights w + 128 with zero point z + 128: the same products.
"""
import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

# Operator: places of the first operand or its zero point (either tells the type; None: always u8),
# of each factor and its zero point.
FACTORS = {
    "QLinearMatMul": (2, [(3, 5)]), "QLinearConv": (2, [(3, 5)]), "QGemm": (2, [(3, 5)]),
    "MatMulInteger": (0, [(1, 3)]), "ConvInteger": (0, [(1, 3)]), "MatMulIntegerToFloat": (0, [(1, 5)]),
    "QAttention": (0, [(1, 7)]), "DynamicQuantizeMatMul": (None, [(1, 3)]),
    "DynamicQuantizeLSTM": (None, [(1, 9), (2, 11)]),
}


def saturates():
    """Whether onnxruntime's products of u8 by i8 saturate on this processor."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        flags = next((line.split() for line in f if line.startswith("flags")), [])
    return "avx2" in flags and not {"avx512_vnni", "avx_vnni"} & set(flags)


def exact(model):
    """The model with factors of u8 instead of i8 where a u8 operand meets them; a copy."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    constant = {t.name: t for t in graph.initializer}
    types = {i.name: i.type.tensor_type.elem_type for i in graph.input}
    types.update((t.name, t.data_type) for t in graph.initializer)
    types.update((n.output[k], TensorProto.UINT8) for n in graph.node
                 if n.op_type == "DynamicQuantizeLinear" for k in (0, 2))
    types.update((n.output[0], types.get(n.input[2], TensorProto.UNDEFINED)) for n in graph.node
                 if n.op_type == "QuantizeLinear" and len(n.input) > 2)
    for node in graph.node:
        first, factors = FACTORS.get(node.op_type, (None, []))
        if first is not None and types.get(node.input[first]) != TensorProto.UINT8:
            continue
        for factor, zero in factors:
            if types.get(node.input[factor]) == TensorProto.INT8 and node.input[factor] in constant:
                make_unsigned(graph, constant, node, factor, zero)
    return copy


def make_unsigned(graph, constant, node, factor, zero):
    node.input.extend([""] * (zero + 1 - len(node.input)))
    given = constant.get(node.input[zero])
    points = numpy_helper.to_array(given) if given else np.zeros((), np.int8)
    for place, values in ((factor, numpy_helper.to_array(constant[node.input[factor]])), (zero, points)):
        name = f"{node.output[0]}/unsigned{place}"
        graph.initializer.append(
            numpy_helper.from_array((values.astype(np.int16) + 128).astype(np.uint8), name))
        node.input[place] = name
