# needs: numpy
"""Workers and bundles that fail: a stopped worker is left out and its requests go elsewhere, answers
leave at their deadline, a client's timeout ends no worker, and whatever happens to the bundle's file
changes no answer."""
import json
import os
import shutil
import signal
import subprocess
import threading
import time

from serving import EXAMPLES, SLOW, WEFT, Server, compile_bundle, digits, is_close, tensor, wait_until

compile_bundle(more=False)
x, WANT = digits()
PARITY = digits("digits_parity")[1]
GOOD = {"inputs": [tensor("image", x[:1])]}


def good(s, model="digits", want=WANT):
    status, got = s.infer(model, GOOD)
    assert status == 200 and is_close(got["outputs"][0]["array"], want[:1]), (status, got)


def timed(s, request):
    start = time.monotonic()
    status, got = s.infer("digits", request)
    return status, time.monotonic() - start, got


def restarts(s):
    text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
    return int(next(l for l in text.splitlines() if l.startswith("weft_worker_restarts_total ")).split()[1])


def check_stopped_beside_another():
    """A stopped worker is out of rotation; requests that it had go to the other one."""
    with Server("--slices", "1,1", "--log-level", "info") as s:
        wait_until(lambda: s.text().count("worker_ready") == 2)
        first, _ = s.workers()
        for _ in range(4):
            good(s)
        os.kill(first, signal.SIGSTOP)
        slowest = max(timed(s, GOOD)[1] for _ in range(50))
        assert slowest < 1.5 * SLOW, slowest
        assert s.get("/v2/models/digits/ready")[0] == 200
        wait_until(lambda: "worker_continued" in s.text())
        wait_until(lambda: "worker_answers_again" in s.text())
        assert restarts(s) == 0
        # Stopped again, it is not continued but ended.
        os.kill(first, signal.SIGSTOP)
        wait_until(lambda: first not in s.workers())
        wait_until(lambda: len(s.workers()) == 2)
        good(s)


def check_stopped_alone():
    """The only worker is stopped: not ready, with the cause; requests wait and are answered."""
    with Server() as s:
        good(s)
        os.kill(s.workers()[0], signal.SIGSTOP)
        wait_until(lambda: s.get("/v2/health/ready")[0] == 400, 5)
        status, got = s.get("/v2/models/digits/ready")
        assert status == 400 and "no sign of life" in got["why"], got
        status, took, got = timed(s, GOOD)
        assert status == 200 and took < 5 * SLOW, (status, took, got)
        assert s.get("/v2/models/digits/ready")[0] == 200


def check_deadline_while_running():
    """The answer leaves at its deadline while the worker hangs, which no client's timeout ends."""
    with Server("--stall-timeout", "60s") as s:
        good(s)
        worker, = s.workers()
        os.kill(worker, signal.SIGSTOP)
        for timeout_us in (200000, 500000):
            status, took, got = timed(s, dict(GOOD, parameters={"timeout": timeout_us}))
            assert status == 503 and timeout_us * 1e-6 <= took < timeout_us * 1e-6 + 0.4 * SLOW, (took, got)
        # The late answer of the worker goes to nobody.
        os.kill(worker, signal.SIGCONT)
        good(s)
        assert s.workers() == [worker] and restarts(s) == 0
        for _ in range(20):
            timed(s, dict(GOOD, parameters={"timeout": 1}))
        good(s)
        assert s.workers() == [worker] and restarts(s) == 0


def check_batch_limit():
    with Server() as s:
        for rows in (9, 100, 20000):
            status, got = s.infer("digits", {"inputs": [tensor("image", x[:1].repeat(rows, 0), True)]},
                                  x[:1].repeat(rows, 0).tobytes())
            assert status == 400 and "max_batch_size 8" in got["error"], (rows, got)
        good(s)


def other_bundle(path):
    """The same names, and each has another's model."""
    text = open("models.yaml").read()
    for name, file in (("digits", "parity"), ("parity", "cnn")):
        text = text.replace(f"name: {name}\n    file: {EXAMPLES}/digits_{'cnn' if name == 'digits' else 'parity'}.onnx",
                            f"name: {name}\n    file: {EXAMPLES}/digits_{file}.onnx")
    with open("other.yaml", "w") as f:
        f.write(text)
    subprocess.run([WEFT, "compile", "other.yaml", "-o", path], check=True)


def check_bundle_faults():
    """Replaced, overwritten, truncated or removed, with workers killed: every answer stays right."""
    other_bundle("other.weft")
    with open("other.weft", "rb") as f:
        other = f.read()

    def replace():
        shutil.copy("other.weft", "new.weft")
        os.rename("new.weft", "served.weft")

    def overwrite():
        with open("served.weft", "r+b") as f:
            f.write(other)

    def garble():
        with open("served.weft", "r+b") as f:
            f.write(os.urandom(os.path.getsize("served.weft")))

    def truncate():
        os.truncate("served.weft", 4096)

    def empty():
        os.truncate("served.weft", 0)

    def remove():
        os.remove("served.weft")

    for fault in (replace, overwrite, garble, truncate, empty, remove):
        shutil.copy("models.weft", "served.weft")
        with Server("--slices", "1,1", bundle="served.weft") as s:
            problems, answered, stop = [], [0], threading.Event()

            def ask():
                try:
                    while not stop.is_set():
                        good(s)
                        good(s, "parity", PARITY)
                        answered[0] += 2
                except Exception as problem:  # reported by the main thread
                    problems.append(repr(problem))
            threads = [threading.Thread(target=ask) for _ in range(3)]
            for t in threads:
                t.start()
            fault()
            for _ in range(3):
                for pid in s.workers():
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.4 * SLOW)
            stop.set()
            for t in threads:
                t.join()
            assert not problems, (fault.__name__, problems)
            assert answered[0] > 10
            wait_until(lambda: s.get("/v2/health/ready")[0] == 200)
            good(s)
            print(f"  {fault.__name__}: {answered[0]} answers, all right")


def check_trusted_bundle():
    """With --trust-bundle the file itself is mapped: a change is told, never answered from."""
    shutil.copy("models.weft", "served.weft")
    with Server("--trust-bundle", bundle="served.weft") as s:
        good(s)
        os.truncate("served.weft", 8192)
        os.kill(s.workers()[0], signal.SIGKILL)
        wait_until(lambda: "cut off" in s.text() or "should have" in s.text() or "checksum" in s.text())
        status, got = s.get("/v2/models/digits/ready")
        assert status == 400 and got["why"], got
        assert timed(s, dict(GOOD, parameters={"timeout": 100000}))[0] == 503


def check_log():
    """One JSON object a line; an access line for each request."""
    with Server("--log-format", "json", "--log-level", "access") as s:
        good(s)
        os.kill(s.workers()[0], signal.SIGKILL)
        wait_until(lambda: "worker_ended" in s.text())
        good(s)
        events = [json.loads(line) for line in s.text().splitlines()]
        names = [e["event"] for e in events]
        assert names.count("request") == 2 and names.count("worker_ready") >= 1, names
        ended = next(e for e in events if e["event"] == "worker_ended")
        assert "SIGKILL" in ended["status"] and ended["level"] == "warn", ended
        request = next(e for e in events if e["event"] == "request")
        assert request["model"] == "digits" and request["answer"] == "ok" and request["total_us"] > 0


for check in (check_stopped_beside_another, check_stopped_alone, check_deadline_while_running,
              check_batch_limit, check_bundle_faults, check_trusted_bundle, check_log):
    check()
    print(check.__name__, "ok", flush=True)
