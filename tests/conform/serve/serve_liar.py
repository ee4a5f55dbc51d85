# needs: numpy
"""A worker that lies: what it sends over its socket is written here, while it is stopped. Whatever that is, the router
ends the worker, keeps its own memory, and answers the requests by the next worker."""
import ctypes
import json
import os
import signal
import socket
import struct
import threading
import time

from serving import Server, check_images, compile_bundle, digits, skip, tensor, wait_until

PIDFD_GETFD, MAGIC = 438, 0x57454654
READY, FAILED, RUN, DONE, LOST, PREPARE, BELL = range(1, 8)
GIB = 1 << 30

compile_bundle(more=False)
x, want = digits()
GOOD = json.dumps({"inputs": [tensor("image", x[:1])]})


def head(kind, ident=0, tensors=0, err=0, payload=0, magic=MAGIC):
    return struct.pack("<IIQIIIIQQQQQ", magic, kind, ident, 0, tensors, err, 0, payload, 0, 0, 0, 0)


def take_socket(worker):
    """The worker's end of its socket."""
    with open(f"/proc/{worker}/cmdline", "rb") as f:
        words = f.read().split(b"\0")  # an interpreter of another architecture stands before the program
    number = int(words[words.index(b"--worker") + 1])
    process = os.pidfd_open(worker)
    fd = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, number, 0)
    os.close(process)
    if fd < 0:
        skip(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
    return socket.socket(fileno=fd)


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def lie(s, name, *parts, busy=True):
    """Sends the parts in place of a worker's answer, the last one again and again until the router ends the worker."""
    wait_until(lambda: len(s.workers()) == 1 and s.request("GET", "/v2/health/ready")[0] == 200)
    worker, before = s.workers()[0], resident_mib(s.process.pid)
    end = take_socket(worker)
    os.kill(worker, signal.SIGSTOP)
    answers = []
    asker = threading.Thread(target=lambda: answers.append(s.request("POST", "/v2/models/digits/infer", GOOD)[0]))
    if busy:
        asker.start()
        time.sleep(0.1)
    start, sent = time.monotonic(), 0
    end.settimeout(5)
    try:
        for part in parts[:-1]:
            end.sendall(part)
        while time.monotonic() - start < 5:
            end.sendall(parts[-1])
            sent += len(parts[-1])
    except OSError:
        pass
    took = time.monotonic() - start
    end.close()
    if busy:
        asker.join(20)
    check_images(s.connect(), "digits", x[:1], want[:1])
    grown = resident_mib(s.process.pid) - before
    assert took < 4 and s.workers()[0] != worker, (name, took)
    assert grown < 32 and sent < 64 << 20, (name, grown, sent)
    assert not busy or answers == [200], (name, answers)
    print(f"{name}: ended after {took * 1e3:.0f} ms and {sent} bytes, router + {grown:.1f} MiB")


with Server("--slices", "1", "--stall-timeout", "30s") as server:
    junk = bytes(1 << 20)
    lie(server, "noise", os.urandom(4096))
    lie(server, "bells without end", head(BELL) * 100)
    lie(server, "bells of an idle worker", head(BELL) * 100, busy=False)
    lie(server, "a bell with a payload", head(BELL, payload=4 * GIB), junk)
    lie(server, "an answer to another batch", head(DONE, ident=12345, tensors=1, payload=4 * GIB), junk)
    lie(server, "an answer of an idle worker", head(DONE, ident=1, tensors=1, payload=4 * GIB), junk, busy=False)
    lie(server, "a report without end", head(FAILED, err=1, payload=4 * GIB), junk)
    lie(server, "an error text without end", head(DONE, ident=1, err=1, payload=4 * GIB), junk)
    lie(server, "ready twice", head(READY))
    lie(server, "too many tensors", head(DONE, tensors=1 << 30))
    lie(server, "a message for a worker", head(RUN, tensors=4000, payload=4 * GIB), junk)
    lie(server, "sizes for a worker", head(PREPARE, tensors=4000), junk)
    lie(server, "lost", head(LOST, payload=100) + bytes(100))
    assert server.process.poll() is None
