#!/usr/bin/env python3
"""Client of the demo: sends held-out digits to a server as Open Inference Protocol requests over
HTTP, checks every answer, prints a report. Only numpy and the standard library.

    demo_client.py --port 8000 --data examples [--connections 8]

Exit code 0: every request was answered, every answer is PyTorch's within a tolerance, and each
model is as accurate as it was when it was trained.
"""
import argparse
import http.client
import json
import os
import sys
import threading
import time

import numpy as np

# Served name, ONNX file, what the label is, accuracy that held-out digits must reach (percent).
MODELS = (
    ("digits", "digits_cnn", lambda y: y, 98.0),
    ("parity", "digits_parity", lambda y: y % 2, 99.0),
    ("size", "digits_size", lambda y: (y >= 5).astype(np.int64), 99.0),
    ("digits-attn", "digits_attn", lambda y: y, 97.0),
)
# Largest difference from PyTorch's logits, relative to the largest logit.
TOLERANCE = 1e-4


class Failure(Exception):
    """The server answered wrongly; the text says how."""


class Connection:
    """One keep-alive connection; not for use by several threads."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def call(self, method, path, body=None, headers=None):
        self.http.request(method, path, body, headers or {})
        answer = self.http.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise Failure(f"{method} {path}: {answer.status} {data[:200].decode(errors='replace')}")
        return data, answer.headers

    def get(self, path):
        data, _ = self.call("GET", path)
        return json.loads(data) if data else None

    def infer_binary(self, model, x):
        raw = np.ascontiguousarray(x, np.float32).tobytes()
        head = json.dumps({
            "inputs": [{"name": "image", "shape": list(x.shape), "datatype": "FP32",
                        "parameters": {"binary_data_size": len(raw)}}],
            "outputs": [{"name": "logits", "parameters": {"binary_data": True}}],
        }).encode()
        data, headers = self.call("POST", f"/v2/models/{model}/infer", head + raw, {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(head)),
        })
        cut = int(headers["Inference-Header-Content-Length"])
        out = json.loads(data[:cut])["outputs"][0]
        size = out["parameters"]["binary_data_size"]
        if out["name"] != "logits" or out["datatype"] != "FP32" or len(data) != cut + size:
            raise Failure(f"{model}: unexpected output {out}")
        return np.frombuffer(data, np.float32, offset=cut).reshape(out["shape"])

    def infer_json(self, model, x):
        body = json.dumps({"inputs": [{"name": "image", "shape": list(x.shape), "datatype": "FP32",
                                       "data": x.ravel().tolist()}]}).encode()
        data, _ = self.call("POST", f"/v2/models/{model}/infer", body,
                            {"Content-Type": "application/json"})
        out = json.loads(data)["outputs"][0]
        return np.array(out["data"], np.float32).reshape(out["shape"])


def run(port, work, connections, progress):
    """Sends the requests of `work`, (model, first image, images), over several connections at once.
    Returns their answers, their latencies in ms, and the seconds that all took."""
    answers, latencies = [None] * len(work), np.zeros(len(work))
    errors, lock, position = [], threading.Lock(), iter(range(len(work)))

    def client():
        try:
            connection = Connection(port)
            while not errors:
                with lock:
                    i = next(position, None)
                if i is None:
                    return
                model, x = work[i]
                began = time.perf_counter()
                answers[i] = connection.infer_binary(model, x)
                latencies[i] = (time.perf_counter() - began) * 1e3
                if i % 200 == 0:
                    progress(i, len(work))
        except Exception as problem:  # pylint: disable=broad-except
            errors.append(problem)

    began = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers, latencies, time.perf_counter() - began


def show(text, i, n):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r  {text}: {i}/{n} requests \033[K")
        sys.stderr.flush()


def quantiles(ms):
    return f"{np.percentile(ms, 50):>8.2f} {np.percentile(ms, 99):>8.2f}"


def check(name, got, want, where):
    """Largest error relative to the scale of `want`; fails above the tolerance."""
    if got.shape != want.shape:
        raise Failure(f"{name}: {where}: shape {got.shape}, expected {want.shape}")
    error = float(np.abs(got - want).max() / np.abs(want).max())
    if not error <= TOLERANCE:
        raise Failure(f"{name}: {where}: differs from PyTorch by {error:.2e} of the scale, "
                      f"allowed {TOLERANCE:.0e}")
    return error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", required=True, help="the folder examples/")
    parser.add_argument("--connections", type=int, default=8)
    args = parser.parse_args()

    x = np.load(os.path.join(args.data, "digits_test.x.npy"))
    y = np.load(os.path.join(args.data, "digits_test.y.npy"))
    logits = np.load(os.path.join(args.data, "digits_test.logits.npz"))
    n = len(x)

    connection = Connection(args.port)
    server = connection.get("/v2")
    served = [m["name"] for m in json.loads(connection.call("POST", "/v2/repository/index")[0])]
    print(f"  server {server['name']} {server['version']}, models: {', '.join(served)}")
    for name, *_ in MODELS:
        connection.get(f"/v2/models/{name}/ready")

    # 1. One connection, one image a request: what a lone client sees.
    work = [(name, x[i:i + 1]) for i in range(n) for name, *_ in MODELS]
    answers, latencies, _ = run(args.port, work, 1, lambda i, m: show("one connection", i, m))
    rows = []
    for k, (name, file, label, needed) in enumerate(MODELS):
        got = np.concatenate(answers[k::len(MODELS)])
        error = check(name, got, logits[file], "one image a request")
        accuracy = 100.0 * float((got.argmax(1) == label(y)).mean())
        rows.append((name, accuracy, needed, error, latencies[k::len(MODELS)]))

    # 2. Several connections, requests of 1 to 8 images, all models mixed: batching on every worker.
    work, spans = [], []
    start = 0
    size = 1
    while start < n:
        for name, file, *_ in MODELS:
            work.append((name, x[start:start + size]))
            spans.append((name, file, start))
        start += size
        size = size % 8 + 1
    work, spans = work * 4, spans * 4
    answers, busy, seconds = run(args.port, work, args.connections,
                                 lambda i, m: show(f"{args.connections} connections", i, m))
    for got, (name, file, start) in zip(answers, spans):
        check(name, got, logits[file][start:start + len(got)], f"images {start}.. under load")
    images = sum(len(part) for _, part in work)

    # 3. The same as plain JSON.
    for name, file, *_ in MODELS:
        check(name, connection.infer_json(name, x[:5]), logits[file][:5], "JSON request")
    stats = connection.get("/v2/models/stats")["model_stats"]
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")

    print(f"  {'model':<12} {'accuracy':>9} {'needed':>7} {'max error':>10} "
          f"{'p50 ms':>8} {'p99 ms':>8}")
    for name, accuracy, needed, error, ms in rows:
        print(f"  {name:<12} {accuracy:>7.2f} % {needed:>5.1f} % {error:>10.1e} {quantiles(ms)}")
    print(f"  {'all, one connection':<42} {quantiles(latencies)}")
    print(f"  {f'all, {args.connections} connections':<42} {quantiles(busy)}")
    print(f"  under load: {len(work)} requests of 1 to 8 images in {seconds:.2f} s, "
          f"{len(work) / seconds:.0f} requests/s, {images / seconds:.0f} images/s")
    print("  (the client is Python and shares the CPU with the server)")
    ran = sum(s["execution_count"] for s in stats)
    asked = sum(s["inference_count"] for s in stats)
    print(f"  the server counts {asked} inferences in {ran} executions"
          + (f", {asked / ran:.1f} a batch" if ran else ""))
    wrong = [row for row in rows if row[1] < row[2]]
    for name, accuracy, needed, *_ in wrong:
        print(f"  FAILED: {name}: accuracy {accuracy:.2f} %, needed {needed} %")
    expected = len(rows) * (n + 5) + images
    if asked < expected:
        print(f"  FAILED: the server counts {asked} inferences, {expected} were sent")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, OSError, http.client.HTTPException, KeyError, ValueError) as failure:
        print(f"  FAILED: {type(failure).__name__}: {failure}")
        sys.exit(1)
