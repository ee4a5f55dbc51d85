"""The sides of a comparison: peers of Weft, each in a process of its own (peer.py), and Weft itself."""
import csv
import datetime
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


class Peer:
    """A peer's process (peer.py); it sleeps between its turns."""

    def __init__(self, name, model, threads, folder):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "peer.py"), name, model, str(threads), folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended")
        return json.loads(line)

    def measure(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Neighbours:
    """Processes that compute without end."""

    def __init__(self, n):
        self.n = n

    def __enter__(self):
        self.processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                          for _ in range(self.n)]

    def __exit__(self, *_):
        for p in self.processes:
            p.kill()
            p.wait()


# -- Weft ------------------------------------------------------------------------------------------

def weft_inputs(paths):
    return [a for key, path in paths.items() for a in ("--input", f"{key}=@{path}")]


class Weft:
    def __init__(self, weft, bundle, paths, threads):
        self.command = [weft, "bench", bundle, "--threads", str(threads), "--format", "json"]
        self.command += weft_inputs(paths)

    def measure(self, seconds):
        out = subprocess.run(self.command + ["--time", str(seconds)], check=True, capture_output=True)
        row = json.loads(out.stdout)["results"][0]
        return {"median_ms": row["median_ms"], "mean_ms": 1e3 / row["throughput_per_s"] * row["batch"]}

    def end(self):
        pass


class Server:
    """`weft serve` on the CPUs of this process, and one client."""

    def __init__(self, weft, bundle, paths, threads):
        import http.client
        import socket
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        cpus = sorted(os.sched_getaffinity(0))[:threads]
        self.process = subprocess.Popen(
            ["taskset", "-c", ",".join(map(str, cpus)), weft, "serve", bundle, "--compute-each", "--http", str(port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        name = os.path.basename(bundle)[:-5]
        header, body = [], b""
        for key, path in paths.items():
            x = np.load(path)
            kind = {"f": "FP", "i": "INT", "u": "UINT"}[x.dtype.kind] + str(8 * x.itemsize)
            header.append({"name": key, "shape": list(x.shape), "datatype": kind,
                           "parameters": {"binary_data_size": x.nbytes}})
            body += x.tobytes()
        text = json.dumps({"inputs": header, "parameters": {"binary_data_output": True}}).encode()
        self.client = http.client.HTTPConnection("127.0.0.1", port)
        self.request = ("POST", f"/v2/models/{name}/infer", text + body,
                        {"Inference-Header-Content-Length": str(len(text)),
                         "Content-Type": "application/octet-stream"})
        for _ in range(600):
            try:
                self.ask()
                return
            except OSError:
                self.client.close()
                time.sleep(0.1)
        raise RuntimeError("the server does not answer")

    def ask(self):
        self.client.request(*self.request)
        answer = self.client.getresponse()
        text = answer.read()
        if answer.status == 503:
            raise ConnectionError("not ready")
        if answer.status != 200:
            raise RuntimeError(f"the server answers {answer.status}: {text[:200]!r}")

    def measure(self, seconds):
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            self.ask()
            times.append(1e3 * (time.perf_counter() - start))
        return {"median_ms": statistics.median(times), "mean_ms": statistics.fmean(times)}

    def end(self):
        self.client.close()
        self.process.terminate()
        self.process.wait()


def weft_first(weft, bundle, paths, threads, outputs=()):
    """Milliseconds and peak kB of a process from nothing to the first answer."""
    args = [x for name, path in outputs for x in ("--output", f"{name}=@{path}")]
    start = time.perf_counter()
    out = subprocess.run(["/usr/bin/time", "-f", "%M", weft, "run", bundle, "--threads", str(threads)] +
                         weft_inputs(paths) + args, check=True, capture_output=True)
    return 1e3 * (time.perf_counter() - start), int(out.stderr.split()[-1])


# -- Results ---------------------------------------------------------------------------------------

def machine(peers):
    """A line on the commit, the peers' versions and the machine."""
    cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read()).group(1)
    versions = ", ".join(f"{p} {__import__(p).__version__}" for p in peers)
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True,
                            text=True).stdout.strip()
    return f"weft {commit or '?'}, {versions}; {os.cpu_count()} CPUs, {cpu}; {datetime.date.today()}"


def load():
    return open("/proc/loadavg").read().split()[0]


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def write_csv(path, comments, rows):
    keys = list(dict.fromkeys(k for r in rows for k in r))
    with open(path, "w", newline="") as f:
        for line in comments:
            f.write(f"# {line}\n")
        w = csv.DictWriter(f, keys)
        w.writeheader()
        for row in rows:
            w.writerow({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
