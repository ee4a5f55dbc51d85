# needs: numpy
"""A joint program of three models serves every subset that has requests: the answers are right, and no
request waits for a model without requests."""
import itertools
import threading
import time

from serving import Server, check_images, compile_bundle, digits

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


with Server() as server:
    for n in (1, 2, 3):
        for models in itertools.combinations(SIBLINGS, n):
            joint = load(server, models)
            assert joint == 0 if n == 1 else joint > 0, (models, joint)
