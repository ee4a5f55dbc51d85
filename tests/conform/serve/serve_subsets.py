# needs: numpy
"""A joint program of three models serves every subset that has requests: the answers are right, and no
request waits for a model without requests. A worker that serves two of the three runs it too."""
import itertools
import json
import os
import threading
import time

from serving import SLOW, Server, check_images, compile_bundle, digits

SECONDS = 1.5 * SLOW
compile_bundle(more=False)
x, _ = digits()
SIBLINGS = {m: digits(k)[1] for m, k in (("digits", "digits_cnn"), ("parity", "digits_parity"),
                                         ("size", "digits_size"))}


def send(server, model, until, problems, answered, rows):
    try:
        c = server.connect()
        n = 0
        while time.monotonic() < until:
            k = next(rows)
            at = (7 * n) % (len(x) - k)
            check_images(c, model, x[at:at + k], SIBLINGS[model][at:at + k])
            n += 1
        answered.append(n)
    except Exception as problem:  # reported by the main thread
        problems.append(repr(problem))


def joint_executions(server):
    text = server.request("GET", "/metrics", port=server.metrics)[2].decode()
    line = [l for l in text.splitlines() if l.startswith("weft_joint_executions_total ")]
    return float(line[0].split()[1])


def load(server, models):
    """Loads some models only; returns the number of joint executions."""
    before, problems, answered = joint_executions(server), [], []
    until = time.monotonic() + SECONDS
    clients = [threading.Thread(target=send, args=(server, m, until, problems, answered,
                                                   itertools.cycle(sizes)))
               for m in models for sizes in ((1,), (1, 2), (1, 5, 1))]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    assert not problems, problems
    assert len(answered) == len(clients) and min(answered) > 10, (models, answered)
    joint = joint_executions(server) - before
    print(f"{'+'.join(models)}: {sum(answered)} answers, {joint:.0f} joint executions")
    return joint


with Server("--always-together") as server:
    for n in (1, 2, 3):
        for models in itertools.combinations(SIBLINGS, n):
            joint = load(server, models)
            assert joint == 0 if n == 1 else joint > 0, (models, joint)


def write_plan(path, *slices):
    """A plan of slices of one core, each with the models of a name."""
    places = [{"model": name, "device": 0, "type": "cpu", "slice": "1core", "slice_id": i, "mig_start": None,
               "share": 1 / len(slices), "batch": 1, "procs": 1, "rate_per_s": 1, "capacity_per_s": 1,
               "latency_us": 1, "mem_bytes": 0, "expected_error": 0, "source": "analytic"}
              for i, name in enumerate(slices)]
    rules = {"latency": "exact", "whole_ms": False, "procs_max": 0, "isolated": False, "oversubscribe": False,
             "mem_reserve": 0}
    with open(path, "w") as f:
        json.dump({"format": "weft-plan", "version": 3, "policy": "test", "goal": "cost", "rules": rules,
                   "gpus": 1, "cost_per_hour": 0, "goodput_per_s": 1, "power_w": 0, "lower_bound": 1,
                   "proven": False, "decision_ms": 0, "models": [], "placements": places}, f)


if len(os.sched_getaffinity(0)) >= 2:
    write_plan("plan.json", "digits+parity", "size")
    with Server("plan.json", "--always-together") as server:
        assert load(server, ("digits", "parity", "size")) > 0
        assert load(server, ("digits", "size")) == 0
        # The plan places three of the bundle's models here: the server is ready for these.
        assert server.request("GET", "/v2/health/ready")[0] == 200
        assert server.request("GET", "/v2/models/digits/ready")[0] == 200
        assert server.request("GET", "/v2/models/digits-attn/ready")[0] == 404
