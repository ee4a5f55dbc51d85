"""Sends open-loop requests to two models of a server while the load goes from one to the other, and
compares each answer with the first one of its input.

shifting_load.py PORT MODEL:INPUT:DIMS:R1,R2... MODEL:INPUT:DIMS:R1,R2... SECONDS
R1, R2...: requests per second in each phase; SECONDS: length of a phase. Prints JSON: counts by
model of what was sent, answered, wrong, failed (with the first errors), and the slowest answer."""

import http.client
import json
import queue
import random
import sys
import threading
import time


def body_of(name, dims, seed):
    n = 1
    for d in dims:
        n *= d
    rng = random.Random(seed)
    data = [round(rng.uniform(0, 1), 3) for _ in range(n)]
    tensor = {"name": name, "shape": dims, "datatype": "FP32", "data": data}
    return json.dumps({"inputs": [tensor]}).encode()


class Model:
    def __init__(self, text):
        self.name, name, dims, rates = text.split(":")
        self.rates = [float(r) for r in rates.split(",")]
        self.body = [body_of(name, [int(d) for d in dims.split("x")], s) for s in range(4)]
        self.want = {}
        self.sent = self.answered = self.wrong = self.failed = 0
        self.slowest_s = 0.0
        self.errors = []


def close(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 1e-3 * max(1, abs(y)) for x, y in zip(a, b))


def work(port, jobs, lock):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while True:
        job = jobs.get()
        if job is None:
            return
        model, k, due = job
        error, values = "", None
        try:
            link.request("POST", f"/v2/models/{model.name}/infer", model.body[k])
            answer = link.getresponse()
            text = answer.read()
            if answer.status != 200:
                error = f"{answer.status} {text[:200]!r}"
            else:
                values = json.loads(text)["outputs"][0]["data"]
        except (OSError, http.client.HTTPException) as e:
            error = repr(e)
            link.close()
        with lock:
            model.slowest_s = max(model.slowest_s, time.monotonic() - due)
            if error:
                model.failed += 1
                model.errors = (model.errors + [error])[:3]
            else:
                model.answered += 1
                model.wrong += not close(values, model.want.setdefault(k, values))


def main():
    port, seconds = int(sys.argv[1]), float(sys.argv[-1])
    models = [Model(text) for text in sys.argv[2:-1]]
    jobs, lock, rng = queue.Queue(), threading.Lock(), random.Random(1)
    threads = [threading.Thread(target=work, args=(port, jobs, lock)) for _ in range(32)]
    for t in threads:
        t.start()
    at = time.monotonic()
    for phase in range(len(models[0].rates)):
        end = at + seconds
        due = [(at + rng.expovariate(m.rates[phase]), i) for i, m in enumerate(models)]
        while True:
            t, i = min(due)
            if t >= end:
                break
            time.sleep(max(0, t - time.monotonic()))
            models[i].sent += 1
            jobs.put((models[i], rng.randrange(4), t))
            due[i] = (t + rng.expovariate(models[i].rates[phase]), i)
        at = end
    for _ in threads:
        jobs.put(None)
    for t in threads:
        t.join()
    keys = ["sent", "answered", "wrong", "failed", "slowest_s", "errors"]
    print(json.dumps({m.name: {k: getattr(m, k) for k in keys} for m in models}))


main()
