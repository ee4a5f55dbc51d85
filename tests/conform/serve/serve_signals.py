# needs: numpy
"""Signals to the processes and threads of a server, when it starts, is idle, is busy and drains: what happens, how many
requests are lost or wrong, and how long clients notice it. WEFT_SIGNALS=all: every pair, not a choice."""
import contextlib
import http.client
import os
import random
import signal
import subprocess
import threading
import time

from serving import WEFT, Server, check_images, compile_bundle, digits, wait_until

ALL = os.environ.get("WEFT_SIGNALS") == "all"
FATAL = (signal.SIGKILL, signal.SIGBUS, signal.SIGSEGV)
STOP_SECONDS = 1.2
compile_bundle(more=False)
x, want = digits()


class Client(threading.Thread):
    """Asks without a pause, each request on an open connection. `may_end`: the server may close it between answers."""

    def __init__(self, server, seed):
        super().__init__(daemon=True)
        self.server, self.random = server, random.Random(seed)
        self.stop = self.may_end = False
        self.asked = []  # when a request was sent, and how long its answer took
        self.lost, self.wrong = [], []

    def run(self):
        c = self.server.connect()
        while not self.stop:
            n, start = self.random.choice((1, 1, 2, 8)), time.monotonic()
            at = self.random.randrange(len(x) - n)
            try:
                check_images(c, "digits", x[at:at + n], want[at:at + n])
                self.asked.append((start, time.monotonic() - start))
            except AssertionError as problem:
                if self.may_end and problem.args and problem.args[0][0] == 503:
                    return
                self.wrong.append(repr(problem))
                return
            except (OSError, http.client.HTTPException) as problem:
                if not self.may_end:
                    self.lost.append(repr(problem))
                return


class Load:
    def __init__(self, server, clients=8):
        self.clients = [Client(server, i) for i in range(clients)]
        for c in self.clients:
            c.start()
        time.sleep(0.5)

    def may_end(self):
        for c in self.clients:
            c.may_end = True

    def end(self, fault):
        """Joins the clients. Returns lost, wrong, answers, and when after the fault the last request was sent that took
        longer than all but one in a hundred before it."""
        for c in self.clients:
            c.stop = True
        for c in self.clients:
            c.join(60)
            assert not c.is_alive(), "a request was never answered"
        asked = sorted(a for c in self.clients for a in c.asked)
        before = sorted(took for at, took in asked if at + took < fault)
        usual = max(0.05, 3 * before[len(before) * 99 // 100]) if before else 0.05
        slow = [at + took - fault for at, took in asked if at + took > fault and took > usual]
        return (sum((c.lost for c in self.clients), []), sum((c.wrong for c in self.clients), []), len(asked),
                max(slow, default=0))


def tell(target, phase, number, what):
    print(f"  {target:7} {phase:6} {signal.Signals(number).name:8} {what}", flush=True)


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            threading.Timer(STOP_SECONDS, send, (pid, signal.SIGCONT)).start()


def threads_of(pid):
    return [int(t) for t in os.listdir(f"/proc/{pid}/task") if int(t) != pid]


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def check_worker(number, phase):
    """One of two workers: nothing is lost, whatever it does."""
    with Server("--slices", "1,1") as s:
        wait_until(lambda: len(s.workers()) == 2)
        load = Load(s, 8 if phase != "idle" else 0)
        victim, fault = s.workers()[0], time.monotonic()
        if phase == "drain":
            load.may_end()
            s.process.send_signal(signal.SIGTERM)
        send(victim, number)
        if phase == "drain":
            assert s.process.wait(30) == 0, s.text()
        else:
            time.sleep(2.5 if number == signal.SIGSTOP else 1)
        lost, wrong, answers, back = load.end(fault)
        assert not lost and not wrong, (lost, wrong, s.text())
        if phase != "drain":
            wait_until(lambda: len(s.workers()) == 2 and s.get("/v2/health/ready")[0] == 200)
            assert (number not in FATAL) or is_gone(victim)
        if phase == "idle":
            check_images(s.connect(), "digits", x[:2], want[:2])
        tell("worker", phase, number, f"{answers} answers, lost 0, wrong 0, as fast as before after {back:.2f} s")


def check_router(number, phase):
    """It ends with its workers, or goes on; a server that is started again at once takes its ports."""
    s = Server("--slices", "1,1")
    try:
        load = Load(s, 8 if phase != "idle" else 0)
        workers, fault = s.workers(), time.monotonic()
        if number in FATAL or phase == "drain":
            load.may_end()
        if phase == "drain":
            s.process.send_signal(signal.SIGTERM)
        send(s.process.pid, number)
        if number in FATAL:
            code = s.process.wait(20)
            assert code == -number or (phase == "drain" and code == 0), code
            wait_until(lambda: all(is_gone(w) for w in workers), 5)
            s.process.stdout.close()
            lost, wrong, answers, _ = load.end(fault)
            s.start((s.http, s.grpc, s.metrics))
            what = f"its workers end, {answers} answers, wrong 0; started again on its ports"
        else:
            time.sleep(STOP_SECONDS + 1)
            lost, wrong, answers, back = load.end(fault)
            what = f"{answers} answers, lost 0, wrong 0, as fast as before after {back:.2f} s"
            if phase == "drain":
                assert s.process.wait(30) == 0, s.text()
            else:
                assert s.workers() == workers, "a worker was ended for the time when the router stood still"
        assert not lost and not wrong, (lost, wrong)
        if s.process.poll() is None:
            check_images(s.connect(), "digits", x[:2], want[:2])
            s.stop()
        tell("router", phase, number, what)
    finally:
        if s.process.poll() is None:
            s.kill()


def check_threads(number):
    """A signal that kill(1) directs to a thread beside the loop reaches the loop, and ends nothing."""
    with Server("--slices", "1,1", "--health", "0", "--trace-file", "spans", "--log-level", "info") as s:
        load = Load(s, 4)
        fault = time.monotonic()
        threads = threads_of(s.process.pid)
        assert len(threads) >= 4, threads  # work beside the loop, probes, spans
        for tid in threads:
            send(tid, number)
        time.sleep(0.3)
        for pid in s.workers():
            for tid in [pid, *threads_of(pid)]:
                send(tid, number)
        time.sleep(1)
        lost, wrong, answers, back = load.end(fault)
        assert not lost and not wrong, (lost, wrong, s.text())
        assert len(s.workers()) == 2 and s.count("worker_restarts") == 0
        tell("threads", "busy", number, f"{len(threads)} of the router, all of the workers: {answers} answers, lost 0, "
                                        f"wrong 0, as fast as before after {back:.2f} s")


def check_terminal():
    """Ctrl-C at a terminal reaches the workers, too: the server drains all the same."""
    with Server("--slices", "1,1") as s:
        load = Load(s)
        load.may_end()
        for pid in [*s.workers(), s.process.pid]:
            send(pid, signal.SIGINT)
        assert s.process.wait(30) == 0, s.text()
        lost, wrong, answers, _ = load.end(time.monotonic())
        assert not lost and not wrong, (lost, wrong)
        tell("all", "busy", signal.SIGINT, f"drains: {answers} answers, wrong 0")


def check_start(number):
    """A worker that ends while it starts ends the start with the reason; one that is stopped is continued or ended."""
    process = subprocess.Popen([WEFT, "serve", "models.weft", "--http", "0", "--grpc", "0", "--metrics", "0", "--slices",
                                "1,1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children, workers = f"/proc/{process.pid}/task/{process.pid}/children", []
    while process.poll() is None and not workers:
        with open(children) as f:
            workers = f.read().split()
    send(int(workers[0]), number)
    if number == signal.SIGSTOP:
        assert process.stdout.readline().startswith("READY")
        process.terminate()
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        tell("worker", "start", number, "continued, then ready")
        return
    line = process.stdout.readline()
    if line.startswith("READY"):  # it was ready before the signal came
        process.terminate()
        process.communicate(timeout=30)
        tell("worker", "start", number, "was ready already")
        return
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "worker" in err, (process.returncode, err)
    tell("worker", "start", number, "the start ends: " + err.strip().splitlines()[-1])


cells = [(check_worker, (number, phase)) for number in (*FATAL, signal.SIGSTOP) for phase in ("idle", "busy", "drain")]
cells += [(check_router, (number, phase)) for number in (*FATAL, signal.SIGSTOP) for phase in ("idle", "busy", "drain")]
cells += [(check_threads, (number,)) for number in (signal.SIGHUP, signal.SIGPIPE)]
cells += [(check_start, (number,)) for number in (*FATAL, signal.SIGSTOP)] + [(check_terminal, ())]
chosen = [(check_worker, (signal.SIGBUS, "busy")), (check_router, (signal.SIGSTOP, "busy")),
          (check_threads, (signal.SIGHUP,)), (check_start, (signal.SIGSTOP,)), (check_terminal, ())]
for check, arguments in cells if ALL else chosen:
    check(*arguments)
