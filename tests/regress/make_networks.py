#!/usr/bin/env python3
"""Writes the networks of published measurements as text IR at the graph stage.

    make_networks.py FOLDER        one file NAME.wir a network

Structure and sizes are those of torchvision's networks and of BERT as the transformers library
writes it, exported with a symbolic batch and with batch normalisation kept as nodes; weights are
constants, since only their shapes matter to an estimate. Images are 3 x 224 x 224, for Inception v3
too (whole_models.c says why). BERT has the masked language model's head and 64 tokens, as in
ParvaGPU's measurements.

Sources: K. He et al., "Deep residual learning" (2016); S. Xie et al., ResNeXt (2017); G. Huang et
al., DenseNet (2017); M. Sandler et al., MobileNetV2 (2018); M. Tan et al., MnasNet (2019); M. Tan,
Q. Le, EfficientNet (2019); N. Ma et al., ShuffleNet V2 (2018); F. Iandola et al., SqueezeNet (2016);
C. Szegedy et al., Inception v3 (2016); K. Simonyan, A. Zisserman, VGG (2015); A. Krizhevsky, "One
weird trick" (2014); J. Devlin et al., BERT (2019).
"""
import math
import os
import sys

FLOAT_1E_5 = "9.999999747378752e-06"  # the nearest f32, as the printer writes it


class Network:
    """A graph in the making. Values are names; `dims` holds the dimensions behind the batch."""

    def __init__(self, name, inputs):
        self.name, self.inputs = name, inputs
        self.weights, self.nodes, self.dims = [], [], {}
        self.epsilon, self.momentum = FLOAT_1E_5, "0.8999999761581421"
        for value, _, dims in inputs:
            self.dims[value] = dims

    # -- Values --------------------------------------------------------------------------------

    def weight(self, *dims, fill=None):
        if fill is None:
            fill = 0.0 if math.prod(dims) >= 1 << 20 else 0.5
        self.weights.append((dims, f"splat {fill}"))
        return f"$w{len(self.weights)}"

    def scalar(self, number):
        self.weights.append(((), f"dense [{number}]"))
        return f"$w{len(self.weights)}"

    def node(self, op, operands, dims, **attributes):
        value = f"%{len(self.nodes) + 1}"
        self.dims[value] = dims
        listed = ", ".join(f"{key} = {text}" for key, text in sorted(attributes.items()))
        shape = ",".join(map(str, ("?batch",) + tuple(dims)))
        self.nodes.append(f"  {value} : f32[{shape}] = {op} {', '.join(operands)}"
                          + (f" {{{listed}}}" if listed else ""))
        return value

    def text(self, result):
        lines = ["wir 1 graph", "symbol ?batch = [1, inf]"]
        for i, (dims, content) in enumerate(self.weights):
            lines.append(f"weight $w{i + 1} : f32[{','.join(map(str, dims))}] = {content}")
        given = ", ".join(f"{value} : {dtype}[{','.join(map(str, ('?batch',) + tuple(dims)))}]"
                          for value, dtype, dims in self.inputs)
        lines += ["", f"graph @{self.name} ({given}) {{", '  symbol ?batch "batch"', *self.nodes,
                  f'  return "result" {result}', "}"]
        return "\n".join(lines) + "\n"

    # -- Layers --------------------------------------------------------------------------------

    def conv(self, x, out, kernel, stride=1, pad=None, group=1, bias=False):
        """kernel and pad: a number or (rows, columns); pad None: half of the kernel."""
        kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        ph, pw = ((kh // 2, kw // 2) if pad is None
                  else pad if isinstance(pad, tuple) else (pad, pad))
        channels, h, w = self.dims[x]
        operands = [x, self.weight(out, channels // group, kh, kw)]
        if bias:
            operands.append(self.weight(out))
        size = ((h + 2 * ph - kh) // stride + 1, (w + 2 * pw - kw) // stride + 1)
        return self.node("conv", operands, (out, *size), dilations=[1, 1], group=group,
                         kernel_shape=[kh, kw], pads=[ph, pw, ph, pw], strides=[stride, stride])

    def norm(self, x):
        n = self.dims[x][0]
        operands = [x, self.weight(n, fill=1.0), self.weight(n, fill=0.0),
                    self.weight(n, fill=0.0), self.weight(n, fill=1.0)]
        return self.node("batch_norm", operands, self.dims[x], epsilon=self.epsilon,
                         momentum=self.momentum, training_mode=0)

    def act(self, op, x, **attributes):
        return self.node(op, [x], self.dims[x], **attributes)

    def relu(self, x):
        return self.act("relu", x)

    def relu6(self, x):
        return self.act("clip", x, max=6.0, min=0.0)

    def silu(self, x):
        return self.node("mul", [x, self.act("sigmoid", x)], self.dims[x])

    def max_pool(self, x, kernel, stride, pad=0, ceil=0):
        c, h, w = self.dims[x]
        size = lambda n: (n + 2 * pad - kernel + ceil * (stride - 1)) // stride + 1
        return self.node("max_pool", [x], (c, size(h), size(w)), ceil_mode=ceil,
                         kernel_shape=[kernel, kernel], pads=[pad] * 4, strides=[stride, stride])

    def average_pool(self, x, kernel, stride):
        c, h, w = self.dims[x]
        return self.node("average_pool", [x],
                         (c, (h - kernel) // stride + 1, (w - kernel) // stride + 1), ceil_mode=0,
                         kernel_shape=[kernel, kernel], pads=[0] * 4, strides=[stride, stride])

    def add(self, a, b):
        return self.node("add", [a, b], self.dims[a])

    def concat(self, values):
        c = sum(self.dims[v][0] for v in values)
        return self.node("concat", values, (c, *self.dims[values[0]][1:]), axis=1)

    def flatten(self, x):
        n = math.prod(self.dims[x])
        return self.node("reshape", [x], (n,), shape=f"dims[?batch, {n}]")

    def linear(self, x, out):
        n = self.dims[x][-1]
        return self.node("matmul", [x, self.weight(out, n), self.weight(out)], (out,), trans_b=1)

    def global_pool(self, x):
        return self.node("global_average_pool", [x], (self.dims[x][0], 1, 1))

    def classify(self, x, out=1000):
        return self.linear(self.flatten(self.global_pool(x)), out)

    def conv_norm(self, x, out, kernel, stride=1, act=None, **more):
        x = self.norm(self.conv(x, out, kernel, stride, **more))
        return act(x) if act else x


def image_network(name):
    return Network(name, [("%image", "f32", (3, 224, 224))])


# -- Plain chains of convolutions ------------------------------------------------------------------


def classify_densely(net, x, hidden):
    """AlexNet's and VGG's head; their adaptive pooling keeps the size it finds."""
    x = net.flatten(net.node("average_pool", [x], net.dims[x], kernel_shape=[1, 1], strides=[1, 1]))
    for _ in range(2):
        x = net.relu(net.linear(x, hidden))
    return net.linear(x, 1000)


def alexnet(net):
    x = net.max_pool(net.relu(net.conv("%image", 64, 11, 4, pad=2, bias=True)), 3, 2)
    x = net.max_pool(net.relu(net.conv(x, 192, 5, bias=True)), 3, 2)
    for out in (384, 256, 256):
        x = net.relu(net.conv(x, out, 3, bias=True))
    return classify_densely(net, net.max_pool(x, 3, 2), 4096)


def vgg(net, convolutions):
    x = "%image"
    for out, n in zip((64, 128, 256, 512, 512), convolutions):
        for _ in range(n):
            x = net.relu(net.conv(x, out, 3, bias=True))
        x = net.max_pool(x, 2, 2)
    return classify_densely(net, x, 4096)


def squeezenet(net):
    def fire(x, squeeze, expand):
        x = net.relu(net.conv(x, squeeze, 1, bias=True))
        return net.concat([net.relu(net.conv(x, expand, 1, bias=True)),
                           net.relu(net.conv(x, expand, 3, bias=True))])

    x = net.max_pool(net.relu(net.conv("%image", 64, 3, 2, pad=0, bias=True)), 3, 2, ceil=1)
    for squeeze, expand, pool in ((16, 64, 0), (16, 64, 1), (32, 128, 0), (32, 128, 1), (48, 192, 0),
                                  (48, 192, 0), (64, 256, 0), (64, 256, 0)):
        x = fire(x, squeeze, expand)
        if pool:
            x = net.max_pool(x, 3, 2, ceil=1)
    return net.flatten(net.global_pool(net.relu(net.conv(x, 1000, 1, bias=True))))


# -- Residual networks -----------------------------------------------------------------------------


def resnet(net, blocks, bottleneck=True, groups=1, width=64):
    x = net.conv_norm("%image", 64, 7, 2, net.relu)
    x = net.max_pool(x, 3, 2, pad=1)
    for stage, n in enumerate(blocks):
        planes = 64 << stage
        out = planes * (4 if bottleneck else 1)
        inner = planes * width // 64 * groups
        for i in range(n):
            stride = 2 if stage > 0 and i == 0 else 1
            if bottleneck:
                y = net.conv_norm(x, inner, 1, act=net.relu)
                y = net.conv_norm(y, inner, 3, stride, net.relu, group=groups)
                y = net.conv_norm(y, out, 1)
            else:
                y = net.conv_norm(x, planes, 3, stride, net.relu)
                y = net.conv_norm(y, planes, 3)
            if stride != 1 or net.dims[x][0] != out:
                x = net.conv_norm(x, out, 1, stride)
            x = net.relu(net.add(y, x))
    return net.classify(x)


def densenet(net, blocks, growth=32):
    x = net.max_pool(net.conv_norm("%image", 64, 7, 2, net.relu), 3, 2, pad=1)
    for i, n in enumerate(blocks):
        features = [x]
        for _ in range(n):
            y = net.concat(features) if len(features) > 1 else x
            y = net.conv_norm(net.relu(net.norm(y)), 4 * growth, 1, act=net.relu)
            features.append(net.conv(y, growth, 3))
        x = net.relu(net.norm(net.concat(features)))
        if i + 1 < len(blocks):
            x = net.average_pool(net.conv(x, net.dims[x][0] // 2, 1), 2, 2)
    return net.classify(x)


# -- Inverted residuals ----------------------------------------------------------------------------


def inverted_residual(net, x, out, kernel, stride, inner, act, squeeze=0):
    y = x
    if inner != net.dims[x][0]:
        y = net.conv_norm(y, inner, 1, act=act)
    y = net.conv_norm(y, inner, kernel, stride, act, group=inner)
    if squeeze:
        gate = net.silu(net.conv(net.global_pool(y), squeeze, 1, bias=True))
        gate = net.act("sigmoid", net.conv(gate, inner, 1, bias=True))
        y = net.node("mul", [gate, y], net.dims[y])
    y = net.conv_norm(y, out, 1)
    return y if stride != 1 or net.dims[x][0] != out else (x, y)


def mobilenet_v2(net):
    x = net.conv_norm("%image", 32, 3, 2, net.relu6)
    for expand, out, n, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                   (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(n):
            y = inverted_residual(net, x, out, 3, stride if i == 0 else 1,
                                  expand * net.dims[x][0], net.relu6)
            x = net.add(*y) if isinstance(y, tuple) else y
    return net.classify(net.conv_norm(x, 1280, 1, act=net.relu6))


def mnasnet(net):
    net.momentum = "0.9997000098228455"
    x = net.conv_norm("%image", 32, 3, 2, net.relu)
    x = net.conv_norm(x, 32, 3, 1, net.relu, group=32)
    x = net.conv_norm(x, 16, 1)
    for kernel, stride, expand, out, n in ((3, 2, 3, 24, 3), (5, 2, 3, 40, 3), (5, 2, 6, 80, 3),
                                           (3, 1, 6, 96, 2), (5, 2, 6, 192, 4), (3, 1, 6, 320, 1)):
        for i in range(n):
            y = inverted_residual(net, x, out, kernel, stride if i == 0 else 1,
                                  expand * net.dims[x][0], net.relu)
            x = net.add(*reversed(y)) if isinstance(y, tuple) else y
    return net.classify(net.conv_norm(x, 1280, 1, act=net.relu))


def efficientnet_b0(net):
    x = net.conv_norm("%image", 32, 3, 2, net.silu)
    for expand, kernel, stride, out, n in ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2),
                                           (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
                                           (6, 3, 1, 320, 1)):
        for i in range(n):
            channels = net.dims[x][0]
            y = inverted_residual(net, x, out, kernel, stride if i == 0 else 1, expand * channels,
                                  net.silu, max(1, channels // 4))
            x = net.add(*reversed(y)) if isinstance(y, tuple) else y
    return net.classify(net.conv_norm(x, 1280, 1, act=net.silu))


def shufflenet_v2(net):
    def shuffle(x):
        c, h, w = net.dims[x]
        dims = lambda *d: f"dims[?batch, {', '.join(map(str, d))}]"
        x = net.node("reshape", [x], (2, c // 2, h, w), allowzero=0, shape=dims(2, c // 2, h, w))
        x = net.node("transpose", [x], (c // 2, 2, h, w), perm=[0, 2, 1, 3, 4])
        return net.node("reshape", [x], (c, h, w), allowzero=0, shape=dims(c, h, w))

    def half(x, start):
        c, h, w = net.dims[x]
        return net.node("slice", [x], (c // 2, h, w), axes="dims[1]", ends=f"dims[{start + c // 2}]",
                        starts=f"dims[{start}]")

    def branch(x, out, stride):
        x = net.conv_norm(x, out, 1, act=net.relu)
        x = net.conv_norm(x, out, 3, stride, group=out)
        return net.conv_norm(x, out, 1, act=net.relu)

    x = net.max_pool(net.conv_norm("%image", 24, 3, 2, net.relu), 3, 2, pad=1)
    for out, n in ((116, 4), (232, 8), (464, 4)):
        for i in range(n):
            if i == 0:
                y = net.conv_norm(x, net.dims[x][0], 3, 2, group=net.dims[x][0])
                left, right = net.conv_norm(y, out // 2, 1, act=net.relu), branch(x, out // 2, 2)
            else:
                left, right = half(x, 0), half(x, out // 2)
                right = branch(right, out // 2, 1)
            x = shuffle(net.concat([left, right]))
    return net.classify(net.conv_norm(x, 1024, 1, act=net.relu))


# -- Inception v3 ----------------------------------------------------------------------------------


def inception_v3(net):
    net.epsilon = "0.0010000000474974513"

    def chain(x, *layers):
        """Layers are (channels, kernel) or (channels, kernel, stride, padding)."""
        for out, kernel, *rest in layers:
            stride, pad = rest or (1, None)
            x = net.conv_norm(x, out, kernel, stride, net.relu, pad=pad)
        return x

    def pooled(x, out):
        c, h, w = net.dims[x]
        y = net.node("pad", [x], (c, h + 2, w + 2), mode='"constant"',
                     pads="dims[0, 0, 1, 1, 0, 0, 1, 1]")
        return chain(net.average_pool(y, 3, 1), (out, 1))

    def block_a(x, pool):
        return net.concat([chain(x, (64, 1)), chain(x, (48, 1), (64, 5)),
                           chain(x, (64, 1), (96, 3), (96, 3)), pooled(x, pool)])

    def block_c(x, c):
        return net.concat([
            chain(x, (192, 1)), chain(x, (c, 1), (c, (1, 7)), (192, (7, 1))),
            chain(x, (c, 1), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7))), pooled(x, 192)])

    def block_e(x):
        first = chain(x, (320, 1))
        y = chain(x, (384, 1))
        values = [first, chain(y, (384, (1, 3))), chain(y, (384, (3, 1)))]
        y = chain(x, (448, 1), (384, 3))
        values += [chain(y, (384, (1, 3))), chain(y, (384, (3, 1))), pooled(x, 192)]
        return net.concat(values)

    x = chain("%image", (32, 3, 2, 0), (32, 3, 1, 0), (64, 3))
    x = chain(net.max_pool(x, 3, 2), (80, 1), (192, 3, 1, 0))
    x = net.max_pool(x, 3, 2)
    for pool in (32, 64, 64):
        x = block_a(x, pool)
    x = net.concat([chain(x, (384, 3, 2, 0)), chain(x, (64, 1), (96, 3), (96, 3, 2, 0)),
                    net.max_pool(x, 3, 2)])
    for c in (128, 160, 160, 192):
        x = block_c(x, c)
    x = net.concat([chain(x, (192, 1), (320, 3, 2, 0)),
                    chain(x, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, 0)),
                    net.max_pool(x, 3, 2)])
    return net.classify(block_e(block_e(x)))


# -- BERT ------------------------------------------------------------------------------------------


def bert(net, layers, hidden, heads, tokens=64, vocabulary=30522):
    size = hidden // heads

    def elementwise(op, a, b):
        return net.node(op, [a, b], net.dims[a] if a in net.dims else net.dims[b])

    def linear(x, out):
        y = net.node("matmul", [x, net.weight(net.dims[x][-1], out)], (tokens, out))
        return net.node("add", [net.weight(out), y], (tokens, out))

    def layer_norm(x):
        operands = [x, net.weight(hidden, fill=1.0), net.weight(hidden, fill=0.0)]
        return net.node("layer_norm", operands, net.dims[x], axis=-1,
                        epsilon="9.999999960041972e-13")

    def gelu(x):
        y = net.act("erf", elementwise("div", x, net.scalar("1.4142135")))
        y = elementwise("mul", x, elementwise("add", y, net.scalar("1.0")))
        return elementwise("mul", y, net.scalar("0.5"))

    def reshape(x, *dims):
        return net.node("reshape", [x], dims, allowzero=0,
                        shape=f"dims[?batch, {', '.join(map(str, dims))}]")

    def transpose(x, *perm):
        return net.node("transpose", [x], [net.dims[x][p - 1] for p in perm], perm=[0, *perm])

    x = net.node("gather", [net.weight(vocabulary, hidden), "%ids"], (tokens, hidden))
    x = elementwise("add", x, net.weight(hidden))
    x = layer_norm(elementwise("add", x, net.weight(tokens, hidden)))
    mask = net.node("reshape", ["%mask"], (1, 1, tokens), shape=f"dims[?batch, 1, 1, {tokens}]")
    mask = net.node("sub", [net.scalar("1.0"), mask], net.dims[mask])
    mask = elementwise("mul", mask, net.scalar("-10000.0"))
    for _ in range(layers):
        q = transpose(reshape(linear(x, hidden), tokens, heads, size), 2, 1, 3)
        k = reshape(linear(x, hidden), tokens, heads, size)
        v = transpose(reshape(linear(x, hidden), tokens, heads, size), 2, 1, 3)
        k = transpose(k, 2, 3, 1)
        scores = net.node("matmul", [q, k], (heads, tokens, tokens))
        scores = elementwise("mul", scores, net.scalar("0.125"))
        scores = net.act("softmax", elementwise("add", scores, mask), axis=-1)
        y = net.node("matmul", [scores, v], (heads, tokens, size))
        y = reshape(transpose(y, 2, 1, 3), tokens, hidden)
        x = layer_norm(elementwise("add", linear(y, hidden), x))
        y = linear(gelu(linear(x, 4 * hidden)), hidden)
        x = layer_norm(elementwise("add", y, x))
    return linear(layer_norm(gelu(linear(x, hidden))), vocabulary)


# -- The table -------------------------------------------------------------------------------------

IMAGE_NETWORKS = {
    "alexnet": alexnet,
    "densenet121": lambda net: densenet(net, (6, 12, 24, 16)),
    "densenet169": lambda net: densenet(net, (6, 12, 32, 32)),
    "densenet201": lambda net: densenet(net, (6, 12, 48, 32)),
    "efficientnet_b0": efficientnet_b0,
    "inception_v3": inception_v3,
    "mnasnet1_0": mnasnet,
    "mobilenet_v2": mobilenet_v2,
    "resnet18": lambda net: resnet(net, (2, 2, 2, 2), bottleneck=False),
    "resnet50": lambda net: resnet(net, (3, 4, 6, 3)),
    "resnet101": lambda net: resnet(net, (3, 4, 23, 3)),
    "resnet152": lambda net: resnet(net, (3, 8, 36, 3)),
    "resnext50_32x4d": lambda net: resnet(net, (3, 4, 6, 3), groups=32, width=4),
    "shufflenet_v2_x1_0": shufflenet_v2,
    "squeezenet1_1": squeezenet,
    "vgg11": lambda net: vgg(net, (1, 1, 2, 2, 2)),
    "vgg16": lambda net: vgg(net, (2, 2, 3, 3, 3)),
    "vgg19": lambda net: vgg(net, (2, 2, 4, 4, 4)),
}
TEXT_NETWORKS = {"bert_base": (12, 768, 12), "bert_large": (24, 1024, 16)}  # layers, hidden, heads


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    texts = {}
    for name, build in IMAGE_NETWORKS.items():
        net = image_network(name)
        texts[name] = net.text(build(net))
    for name, sizes in TEXT_NETWORKS.items():
        net = Network(name, [("%ids", "i64", (64,)), ("%mask", "f32", (64,))])
        texts[name] = net.text(bert(net, *sizes))
    for name, text in texts.items():
        with open(f"{folder}/{name}.wir", "w", encoding="utf-8") as out:
            out.write(text)


if __name__ == "__main__":
    main()
