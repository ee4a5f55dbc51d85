# needs: numpy
"""A joint program of three models serves every subset that has requests: the answers are right, and no
request waits for a model without requests."""
import itertools
import json
import threading
import time

from serving import Server, compile_bundle, digits, is_close, read_answer, tensor

SECONDS = 1.5
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
            part = x[at:at + k]
            head = json.dumps({"inputs": [tensor("image", part, True)],
                               "parameters": {"binary_data_output": True}}).encode()
            c.request("POST", f"/v2/models/{model}/infer", head + part.tobytes(),
                      {"Inference-Header-Content-Length": str(len(head))})
            reply = c.getresponse()
            got = read_answer({k.lower(): v for k, v in reply.getheaders()}, reply.read())
            assert reply.status == 200, (reply.status, got)
            assert is_close(got["outputs"][0]["array"], SIBLINGS[model][at:at + k]), (model, at, k)
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


with Server() as server:
    for n in (1, 2, 3):
        for models in itertools.combinations(SIBLINGS, n):
            joint = load(server, models)
            assert joint == 0 if n == 1 else joint > 0, (models, joint)
