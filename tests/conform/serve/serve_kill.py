# needs: numpy
"""Workers killed under load: every request gets the right answer. WEFT_SOAK: seconds of load
(5)."""
import contextlib
import os
import random
import signal
import threading
import time

from serving import SLOW, Server, check_images, compile_bundle, digits

SECONDS = float(os.environ.get("WEFT_SOAK", "5")) * SLOW
compile_bundle(more=False)
x, _ = digits()
MODELS = {m: digits(k)[1] for m, k in (("digits", "digits_cnn"), ("parity", "digits_parity"),
                                       ("size", "digits_size"), ("digits-attn", "digits_attn"))}


class Client(threading.Thread):
    def __init__(self, server, until, seed):
        super().__init__()
        self.server, self.until, self.random = server, until, random.Random(seed)
        self.answered, self.problem = 0, None

    def run(self):
        try:
            c = self.server.connect()
            while time.monotonic() < self.until:
                model = self.random.choice(list(MODELS))
                n = self.random.choice((1, 1, 1, 2, 3, 5, 7, 8))
                at = self.random.randrange(len(x) - n)
                check_images(c, model, x[at:at + n], MODELS[model][at:at + n])
                self.answered += 1
        except Exception as problem:  # reported by the main thread
            self.problem = repr(problem)


def soak(*options):
    with Server(*options) as server:
        workers = len(server.workers())
        until = time.monotonic() + SECONDS
        clients = [Client(server, until, i) for i in range(12)]
        for c in clients:
            c.start()
        killed = 0
        choose = random.Random(1)
        while time.monotonic() < until - SLOW:
            time.sleep(choose.uniform(0.2, 0.6) * SLOW)
            pids = server.workers()
            if pids:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(choose.choice(pids), signal.SIGKILL)
                killed += 1
        for c in clients:
            c.join()
        problems = [c.problem for c in clients if c.problem]
        assert not problems, problems
        text = server.request("GET", "/metrics", port=server.metrics)[2].decode()
        restarts = [l for l in text.splitlines() if l.startswith("weft_worker_restarts_total ")]
        assert float(restarts[0].split()[1]) >= killed * 0.9, (restarts, killed)
        assert len(server.workers()) <= workers
        answered = sum(c.answered for c in clients)
        failed = [l for l in text.splitlines() if l.startswith("weft_requests_failed_total{")]
        assert all(l.endswith(" 0") for l in failed), failed
        joint = [l for l in text.splitlines() if l.startswith("weft_joint_executions_total ")]
        joint = float(joint[0].split()[1])
        print(f"{answered} answers, all right; {killed} workers killed; {joint:.0f} joint executions")
        # Three of the models are siblings: a worker that serves all of them may run them together.
        assert joint > 0 or options
        assert answered > killed


soak()
if len(os.sched_getaffinity(0)) > 1:
    soak("--slices", "1,1")
