# needs: numpy
"""What a service manager is told (sd_notify): ready, reloading, stopping, and signs of life for the watchdog; and the
port for probes, which a thread of its own answers."""
import json
import os
import signal
import socket
import time

from serving import Server, compile_bundle, wait_until

compile_bundle(more=False)


class Manager:
    def __init__(self, address, watchdog_us=None, watchdog_pid=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0"))
        self.socket.settimeout(20)
        os.environ["NOTIFY_SOCKET"] = address
        for name, value in (("WATCHDOG_USEC", watchdog_us), ("WATCHDOG_PID", watchdog_pid)):
            os.environ.pop(name, None)
            if value:
                os.environ[name] = str(value)

    def receive(self):
        return self.socket.recv(4096).decode()

    def next(self):
        """The next message that is no sign of life."""
        while (got := self.receive()) == "WATCHDOG=1":
            pass
        return dict(line.split("=", 1) for line in got.split("\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)


def check_states(address):
    with Manager(address) as manager:
        with Server() as s:
            assert manager.next()["READY"] == "1"
            for worker in s.workers():
                with open(f"/proc/{worker}/environ") as f:
                    assert "NOTIFY_SOCKET" not in f.read()
            before = time.monotonic_ns() // 1000
            s.process.send_signal(signal.SIGHUP)
            got = manager.next()
            assert got["RELOADING"] == "1" and before <= int(got["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            assert manager.next() == {"READY": "1"}
            assert s.request("GET", "/v2/health/live")[0] == 200
            s.process.send_signal(signal.SIGTERM)
            assert manager.next()["STOPPING"] == "1"
            assert s.process.wait(20) == 0


def check_watchdog():
    with Manager(os.path.abspath("watched"), 200000) as manager:
        with Server() as s:
            manager.next()
            times = []
            while len(times) < 10:
                if manager.receive() == "WATCHDOG=1":
                    times.append(time.monotonic())
            mean = (times[-1] - times[0]) / (len(times) - 1)
            assert 0.08 < mean < 0.2, times
            # A process that does not run gives no sign.
            s.process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            manager.socket.settimeout(0.5)
            try:
                for _ in range(5):  # those that were on the way
                    manager.receive()
                raise AssertionError("a stopped process gave signs of life")
            except TimeoutError:
                pass
            manager.socket.settimeout(20)
            s.process.send_signal(signal.SIGCONT)
            assert manager.receive() == "WATCHDOG=1"
    # A watchdog of another process is not answered.
    with Manager(os.path.abspath("other"), 200000, os.getpid()) as manager:
        with Server():
            assert manager.receive().startswith("READY=1")
            manager.socket.settimeout(0.5)
            try:
                raise AssertionError(manager.receive())
            except TimeoutError:
                pass


def check_busy():
    """A manager that reads nothing for a while: its queue is full of signs of life, and no state is lost."""
    with Manager(os.path.abspath("busy"), 10000) as manager:
        with Server() as s:
            time.sleep(0.5)
            s.process.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            assert manager.next()["READY"] == "1"
            assert manager.next()["RELOADING"] == "1"
            assert manager.next() == {"READY": "1"}
            s.process.send_signal(signal.SIGTERM)
            assert manager.next()["STOPPING"] == "1"
            assert s.process.wait(20) == 0


def check_absent():
    """A manager that does not listen, or does not read, stops nothing."""
    os.environ["NOTIFY_SOCKET"] = os.path.abspath("none")
    with Server() as s:
        assert s.request("GET", "/v2/health/live")[0] == 200
    with Manager(os.path.abspath("full"), 2000):
        with Server() as s:
            time.sleep(1)
            for _ in range(20):
                assert s.request("GET", "/v2/health/live")[0] == 200


def check_health():
    with Server("--health", "0", "--max-connections", "8") as s:
        def ask(what, port):
            status, _, body = s.request("GET", "/v2/health/" + what, port=port)
            return status, json.loads(body)
        assert ask("live", s.health) == (200, {"live": True}) and ask("ready", s.health) == (200, {"ready": True})
        # While all connections and the loop are busy.
        held = [s.raw_socket() for _ in range(60)]
        body = b'{"inputs":[' + b" " * (16 << 20)
        for raw in held[:4]:
            raw.settimeout(0.2)
            try:
                raw.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n" + body)
            except OSError:
                pass
        for _ in range(20):
            assert ask("live", s.health)[0] == 200
        for raw in held:
            raw.close()
        # Its worker is stopped for a while: not ready, but live.
        for worker in s.workers():
            os.kill(worker, signal.SIGSTOP)
        wait_until(lambda: ask("ready", s.health) == (400, {"ready": False}))
        assert ask("live", s.health)[0] == 200
        wait_until(lambda: ask("ready", s.health)[0] == 200)


check_states(os.path.abspath("manager"))
check_states("@weft-notify-%d" % os.getpid())
for check in (check_watchdog, check_busy, check_absent, check_health):
    check()
    print(check.__name__, "ok", flush=True)
