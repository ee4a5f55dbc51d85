# needs: numpy
"""What the machine and its other programs do to a server: no descriptors left at any stage, logs that take nothing, no
room for the copy of the bundle, several servers at one socket, signals and scrapes without end, a worker that writes
garbage into the shared memory, a crowd at the control socket. Requests are answered, and nothing spins or is left."""
import json
import mmap
import multiprocessing
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

from serving import WEFT, Server, check_images, compile_bundle, digits, tensor, wait_until

compile_bundle(more=False)
x, want = digits()
GOOD = json.dumps({"inputs": [tensor("image", x[:1])]})
PORTS = ["--http", "0", "--grpc", "0", "--metrics", "0"]


def good(s, connection=None, n=1):
    c = connection or s.connect()
    check_images(c, "digits", x[:n], want[:n])


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def metric(s, name):
    text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
    return float(re.search(rf"^{name}\S* (\S+)$", text, re.M).group(1))


class Load(threading.Thread):
    """One client that asks all the time; its answers are right or, where that is allowed, errors."""

    def __init__(self, s, may_fail=False):
        super().__init__(daemon=True)
        self.s, self.may_fail, self.over = s, may_fail, False
        self.took, self.problems, self.failed = [], [], 0

    def run(self):
        connection = self.s.connect(10)
        while not self.over:
            start = time.monotonic()
            try:
                good(self.s, connection)
            except Exception as problem:
                self.failed += 1
                if not self.may_fail:
                    self.problems.append(repr(problem))
                connection.close()
                connection = self.s.connect(10)
            self.took.append(time.monotonic() - start)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        self.over = True
        self.join()
        assert kind or not self.problems, self.problems[:3]
        assert kind or self.took

    def longest_ms(self):
        return max(self.took) * 1e3


# -- Descriptors ------------------------------------------------------------------------------


def check_descriptors():
    """The limit is what is used, or a few more; then all that needs a descriptor happens at once."""
    with open("keys", "w") as f:
        f.write("anyone none * *\n")
    os.chmod("keys", 0o600)
    with Server("--health", "0", "--api-keys", "keys", "--control", "control.sock") as s:
        pid, worst = s.process.pid, 0
        good(s)
        before, limit = descriptors(pid), resource.prlimit(pid, resource.RLIMIT_NOFILE)
        for spare in (0, 1, 2, 3, 5):
            opened = []
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid) + spare, limit[1]))
            for port in (s.http, s.grpc, s.metrics, s.health) * 3:
                opened.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            for _ in range(3):
                opened.append(socket.socket(socket.AF_UNIX))
                opened[-1].connect("control.sock")
            os.kill(s.workers()[0], signal.SIGKILL)
            s.process.send_signal(signal.SIGHUP)
            start = cpu_s(pid)
            time.sleep(1)
            worst = max(worst, cpu_s(pid) - start)
            for c in opened:
                c.close()
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
            good(s)  # waits for the worker that is started again
            s.request("GET", "/v2/health/live", port=s.health)
        wait_until(lambda: descriptors(pid) <= before)
        assert worst < 0.5, f"{worst} s CPU in a second without descriptors"
        print(f"descriptors: none, 1, 2, 3, 5 left, at most {worst:.2f} s CPU a second; all served afterwards")


# -- Logs, disks ------------------------------------------------------------------------------


def check_logs():
    """Standard error that is a full disk, a pipe that nobody reads, or closed."""
    reader, writer = os.pipe()
    for name, stderr in (("a full disk", open("/dev/full", "w")), ("a full pipe", writer)):
        process = subprocess.Popen([WEFT, "serve", "models.weft", *PORTS, "--log-level", "access", "--log-format", "json"],
                                   stdout=subprocess.PIPE, stderr=stderr, text=True)
        port = int(re.search(r"http=(\d+)", process.stdout.readline()).group(1))
        s = Server.__new__(Server)
        s.http, s.process = port, process
        connection, start = s.connect(), time.monotonic()
        for _ in range(600):  # more lines than a pipe holds
            good(s, connection)
        print(f"log on {name}: 600 requests in {time.monotonic() - start:.2f} s")
        process.terminate()
        assert process.wait(30) == 0
    os.close(reader)
    os.close(writer)


def limit_files(size):
    def set_limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return set_limit


def check_no_room():
    """No file may have so many bytes: the copy of the bundle fails with a reason; without the copy, workers that
    can share no memory with the router are asked over their sockets."""
    got = subprocess.run([WEFT, "serve", "models.weft", *PORTS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         timeout=60, preexec_fn=limit_files(16384))
    assert got.returncode == 1 and "models.weft" in got.stderr and got.stdout == "", got
    process = subprocess.Popen([WEFT, "serve", "models.weft", *PORTS, "--trust-bundle"], stdout=subprocess.PIPE, text=True,
                               preexec_fn=limit_files(16384))
    s = Server.__new__(Server)
    s.http, s.process = int(re.search(r"http=(\d+)", process.stdout.readline()).group(1)), process
    for n in (1, 8):
        good(s, n=n)
    (worker,) = s.workers()
    shared = [os.readlink(f"/proc/{worker}/fd/{fd}") for fd in os.listdir(f"/proc/{worker}/fd")]
    assert not [f for f in shared if "weft-channel" in f], shared
    process.terminate()
    assert process.wait(30) == 0


# -- Sockets ----------------------------------------------------------------------------------


def ask_unix(path):
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(10)
        raw.connect(path)
        raw.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        return raw.recv(4096).startswith(b"HTTP/1.1 200")


def check_sockets():
    """Servers that start at once beside a socket that was left: one gets it, the others say why not."""
    options = ["serve", "models.weft", "--http", "unix:race.sock", "--grpc", "off", "--metrics", "off"]
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as left:
            if not os.path.exists("race.sock"):
                left.bind("race.sock")
        processes = [subprocess.Popen([WEFT, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for _ in range(5)]
        lines = [p.stdout.readline() for p in processes]
        winners = [p for p, line in zip(processes, lines) if line]
        assert len(winners) == 1, lines
        for p in processes:
            if p not in winners:
                assert p.wait(30) == 1 and "in use" in p.stderr.read()
        assert ask_unix("race.sock")
        winners[0].kill()
        winners[0].wait()
    # What has taken the place of the socket is not removed.
    process = subprocess.Popen([WEFT, *options], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    os.rename("race.sock", "moved.sock")
    assert ask_unix("moved.sock")
    with open("race.sock", "w"):
        pass
    process.terminate()
    assert process.wait(30) == 0 and os.path.isfile("race.sock")


def check_control():
    """Thousands of connections at the control socket, half lines, requests whose answers nobody reads: the operator
    is answered all the same, and so are requests."""
    with Server("--control", "crowd.sock") as s, Load(s) as load:
        assert os.stat("crowd.sock").st_mode & 0o777 == 0o600
        crowd = []
        for i in range(400):
            c = socket.socket(socket.AF_UNIX)
            c.connect("crowd.sock")
            c.setblocking(False)
            crowd.append(c)
            try:
                c.send(b'{"do": "sta' if i % 2 else b'{"do": "status"}\n' * 5000)
            except OSError:
                pass  # closed for a later one
            if i % 100 == 99:
                got = subprocess.run([WEFT, "ctl", "crowd.sock", "status"], stdout=subprocess.PIPE, timeout=30, text=True)
                assert got.returncode == 0 and "digits" in got.stdout, got
        print(f"control socket: 400 connections, longest request beside it {load.longest_ms():.0f} ms")
        for c in crowd:
            c.close()
        before = descriptors(s.process.pid)
    assert before < 60


def mutated(choose, line):
    """The line with some of its bytes changed, removed or doubled; no end of a line in it."""
    line = bytearray(line)
    for _ in range(choose.choice((0, 1, 1, 2, 8))):
        at = choose.randrange(len(line)) if line else 0
        how = choose.randrange(4)
        if how == 0 and line:
            line[at] = choose.randrange(256)
        elif how == 1:
            del line[at:at + choose.choice((1, 4, 30))]
        elif how == 2:
            line[at:at] = line[at:at + 30] * choose.choice((1, 5))
        else:
            line[at:at] = choose.choice((b"[" * 3000, b'{"a":' * 100, b"1e999", b"\xff\xfe", b"\0", b'"\\ud83d"', b"-0", b"null"))
    return bytes(line).replace(b"\n", b" ")


def check_control_lines():
    """Each line gets one line of JSON, whatever is in it; one that is too long ends the connection."""
    choose = random.Random(1)
    with Server("--control", "lines.sock") as s:
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(20)
        raw.connect("lines.sock")
        reader, refused = raw.makefile("rb"), 0
        seeds = [b'{"do": "status"}', b'{"do": "plan"}', b'{"do": "explain"}', b'{"do": "note", "text": "because"}',
                 b'{"do": "replan"}', b'{"do": "apply", "plan": {"version": 1, "placements": [{"model": "digits", '
                 b'"batch": 8, "device": 0, "slice_id": 0}], "fleet": {"devices": [{"type": "cpu", "count": 1}]}}}', b"", b"[]"]
        for _ in range(3000):
            line = mutated(choose, choose.choice(seeds))
            if b'"drain"' in line:
                continue
            raw.sendall(line + b"\n")
            got = json.loads(reader.readline())
            refused += not got["ok"]
        raw.sendall(b'{"do": "note", "text": "' + b"a" * (3 << 20) + b'"}\n')
        assert json.loads(reader.readline())["ok"]
        try:
            raw.sendall(b"x" * (5 << 20))
            assert reader.readline() == b""
        except OSError:
            pass  # closed before all was sent
        good(s)
        print(f"control socket: 3000 lines, {refused} refused")


# -- Signals, scrapes -------------------------------------------------------------------------


def check_signals():
    """SIGHUP as fast as it can be sent; the router stopped for seconds."""
    with Server("--api-keys", "keys", "--log-level", "info") as s:
        with Load(s) as load:
            end, n = time.monotonic() + 2, 0
            while time.monotonic() < end:
                s.process.send_signal(signal.SIGHUP)
                n += 1
        loads = s.text().count(" reloaded ")
        print(f"{n} SIGHUP in 2 s: files read {loads} times, longest request beside it {load.longest_ms():.0f} ms")
        assert 2 <= loads <= 40, loads
        workers = s.workers()
        with Load(s) as load:
            for _ in range(2):
                s.process.send_signal(signal.SIGSTOP)
                time.sleep(2)
                s.process.send_signal(signal.SIGCONT)
                time.sleep(0.5)
        assert s.workers() == workers, s.text()


def scrape(port, seconds):
    """A process that scrapes on 20 connections as fast as it is answered; its exit code is 0 if it was."""
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            sockets = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(20)]
            while time.monotonic() < end:
                for raw in sockets:
                    raw.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                for raw in sockets:
                    got = raw.recv(1 << 20)
                    if not got:
                        raise OSError
                    n += got.startswith(b"HTTP/1.1 200")
        except OSError:
            pass  # closed for another one
    sys.exit(0 if n else 1)


def check_scrapes():
    """Scrapers that ask as fast as they are answered, on more connections than there may be."""
    with Server() as s:
        scrapers = [multiprocessing.Process(target=scrape, args=(s.metrics, 3)) for _ in range(4)]
        for p in scrapers:
            p.start()
        with Load(s) as load:
            for p in scrapers:
                p.join()
        assert all(p.exitcode == 0 for p in scrapers)
        took = sorted(load.took)
        print(f"80 connections of scrapers: {len(took)} requests beside them, half in {took[len(took) // 2] * 1e3:.1f} ms, "
              f"the longest {took[-1] * 1e3:.0f} ms")
        text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
        done = int(re.search(r'weft_requests_succeeded_total{model="digits",version="1"} (\d+)', text).group(1))
        assert done <= len(took) + 1


# -- Garbage of a worker ----------------------------------------------------------------------


def open_channel(worker):
    """The memory that the worker shares with the router."""
    for fd in os.listdir(f"/proc/{worker}/fd"):
        path = f"/proc/{worker}/fd/{fd}"
        try:
            if "weft-channel" in os.readlink(path):
                with open(path, "r+b") as f:
                    return mmap.mmap(f.fileno(), os.fstat(f.fileno()).st_size)
        except OSError:
            pass
    # It has mapped the memory and closed the descriptor: the router has it too.
    return None


def check_garbage():
    """The memory of a worker is overwritten at random while requests run: the router lives, every request gets an
    answer, and the next ones are right. (Numbers that a worker makes up cannot be told from its answers.)"""
    choose = random.Random(1)
    with Server("--slices", "1", "--stall-timeout", "5s") as s:
        good(s)
        memory = open_channel(s.process.pid)
        if not memory:
            print("no shared memory here")
            return
        pid, statuses, over = s.process.pid, {}, time.monotonic() + 6
        kills = len(re.findall("worker_ended", s.text()))

        def ask():
            while time.monotonic() < over:
                start = time.monotonic()
                status = s.request("POST", "/v2/models/digits/infer", GOOD)[0]
                statuses[status] = statuses.get(status, 0) + 1
                assert time.monotonic() - start < 20

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        while time.monotonic() < over:
            how = choose.randrange(4)
            at = choose.choice((0, 64, 128, 192, 4096, 4096 + choose.randrange(512), choose.randrange(len(memory) - 600)))
            if how == 0:
                memory[at:at + 8] = os.urandom(8)
            elif how == 1:
                memory[at:at + 512] = os.urandom(512)
            elif how == 2:
                memory[at:at + 64] = b"\xff" * 64
            else:
                memory[at:at + 4] = choose.randrange(1 << 32).to_bytes(4, "little")
            time.sleep(choose.choice((0.01, 0.1, 0.4)))
        for t in threads:
            t.join()
        assert s.process.poll() is None and s.process.pid == pid
        assert set(statuses) <= {200, 400, 500, 503} and 200 in statuses, statuses
        # The values of a batch that was on its way may be garbage: the worker is replaced.
        for worker in s.workers():
            os.kill(worker, signal.SIGKILL)
        for n in (1, 5, 8):
            good(s, n=n)
        kills = len(re.findall("worker_ended", s.text())) - kills
        print(f"garbage in the memory of a worker: answers {statuses}, workers replaced {kills} times")


for check in (check_descriptors, check_logs, check_no_room, check_sockets, check_control, check_control_lines, check_signals, check_scrapes,
              check_garbage):
    check()
    print(check.__name__, "ok", flush=True)
