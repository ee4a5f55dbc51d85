"""PyTorch 2 on the same models: eager, torch.compile (max-autotune), and eager in a CUDA graph.

usage: bench_torch.py --out FILE [--seconds N] [--models a,b]
Weights are random. Times are of forwards with inputs on the GPU and a synchronisation after each, the
median; `weft bench` also copies inputs and outputs, which is told apart in its results where it is.
Exits with 77 where there is no torch, or no GPU.
"""
import argparse
import json
import sys
import time

try:
    import torch
    from torch import nn
    import torch.nn.functional as F
except ImportError:
    print("no torch here")
    sys.exit(77)


class Attention(nn.Module):
    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, mask=None):
        b, s, w = x.shape
        split = lambda y: y.view(b, s, self.heads, w // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(x)), split(self.v(x)),
                                           attn_mask=mask, is_causal=self.causal)
        return self.o(y.transpose(1, 2).reshape(b, s, w))


class Layer(nn.Module):
    """Of BERT (norms behind) or GPT-2 (norms in front)."""

    def __init__(self, width, heads, front):
        super().__init__()
        self.front = front
        self.attention = Attention(width, heads, causal=front)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None):
        if self.front:
            x = x + self.attention(self.n1(x))
            return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))
        x = self.n1(x + self.attention(x, mask))
        return self.n2(x + self.down(F.gelu(self.up(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, length, front=False):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, front) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary if front else 2)

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def transformer_inputs(batch, vocabulary=30522, length=128):
    return (torch.randint(0, vocabulary, (batch, length), device="cuda"),)


def image_inputs(batch):
    return (torch.randn(batch, 3, 224, 224, device="cuda"),)


def make_models():
    found = {
        "bert_base": (lambda: Transformer(30522, 768, 12, 12, 512), transformer_inputs),
        "bert_tiny": (lambda: Transformer(30522, 128, 2, 2, 512), transformer_inputs),
        "gpt2": (lambda: Transformer(50257, 768, 12, 12, 1024, front=True), transformer_inputs),
    }
    try:
        import torchvision.models as zoo
        for name, maker in (("resnet50", zoo.resnet50), ("resnet18", zoo.resnet18),
                            ("mobilenet_v2", zoo.mobilenet_v2), ("densenet121", zoo.densenet121),
                            ("vgg16", zoo.vgg16), ("shufflenet_v2", zoo.shufflenet_v2_x1_0),
                            ("squeezenet1_1", zoo.squeezenet1_1)):
            found[name] = ((lambda maker=maker: maker(weights=None)), image_inputs)
    except ImportError:
        print("no torchvision here: transformers alone")
    return found


def median_ms(call, seconds=0.3):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2] * 1e3


def in_graph(model, inputs):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(*inputs)
    return graph.replay


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--models")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no GPU here")
        sys.exit(77)
    end = time.monotonic() + args.seconds
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    results = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "rows": []}

    def save():
        with open(args.out, "w") as f:
            json.dump(results, f, indent=1)

    found = make_models()
    names = args.models.split(",") if args.models else ["bert_base", "resnet50", "mobilenet_v2",
                                                        "bert_tiny", "resnet18", "gpt2",
                                                        "densenet121", "shufflenet_v2",
                                                        "squeezenet1_1", "vgg16"]
    cases = [(name, dtype, batch) for dtype in (torch.float32, torch.bfloat16)
             for name in names if name in found for batch in (1, 8, 64)]
    # The slowest compilations come last, so that a short time limit loses only them.
    for how in ("eager", "graph", "compile"):
        for name, dtype, batch in cases:
            if time.monotonic() > end:
                results["left_out"] = "time was over at %s, %s" % (how, name)
                save()
                return
            if how == "compile" and (batch == 64 or dtype == torch.float32 and batch == 8):
                continue
            maker, inputs_of = found[name]
            row = {"model": name, "dtype": str(dtype).split(".")[1], "batch": batch, "how": how}
            try:
                torch.manual_seed(0)
                model = maker().cuda().eval().to(dtype)
                inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs_of(batch)]
                with torch.inference_mode():
                    if how == "compile":
                        begin = time.perf_counter()
                        call = torch.compile(model, mode="max-autotune")
                        call(*inputs)
                        torch.cuda.synchronize()
                        row["compile_s"] = time.perf_counter() - begin
                        run = lambda: call(*inputs)
                    elif how == "graph":
                        run = in_graph(model, inputs)
                    else:
                        run = lambda: model(*inputs)
                    row["median_ms"] = median_ms(run)
            except Exception as error:  # compiler or memory errors; other models continue
                row["error"] = str(error)[:200]
            results["rows"].append(row)
            save()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
