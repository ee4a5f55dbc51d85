# needs: numpy
# ctest label: both (memory is measured)
"""Attacks on HTTP/2, frame by frame: floods of control frames, streams that are reset by the client or that make the
server reset them, header tables, clients that do not read, half-sent requests on every connection. Each is refused or
survived: memory stays bounded and others are served meanwhile."""
import os
import struct
import threading
import time

import numpy as np
from http2 import (ACK, CONTINUATION, DATA, EMPTY, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS,
                   INFER, LIVE, PING, PRIORITY, PUSH, RST, SETTINGS, SETTINGS_TIMEOUT, WINDOW, Connection, field, frame, head,
                   infer_message, literal, number)
from serving import Server, compile_bundle, digits, is_close, is_sanitized, wait_until

compile_bundle(more=False)
# A sanitizer keeps some of what was freed.
KEPT_MIB = 700 if is_sanitized() else 0
x, want = digits()
def goaway_code(frames):
    codes = [int.from_bytes(f[3][4:8], "big") for f in frames if f and f[0] == GOAWAY]
    return codes[-1] if codes else None


def live(s, seconds=5):
    """A call on a new connection; seconds that it took."""
    start = time.monotonic()
    c = Connection(s, timeout=seconds)
    c.send(frame(HEADERS, END_HEADERS, 1, LIVE) + frame(DATA, END_STREAM, 1, EMPTY))
    while True:
        f = c.frame()
        assert f, "the connection ended"
        if f[0] in (DATA, HEADERS) and f[1] & END_STREAM:
            break
    c.close()
    return time.monotonic() - start


def infer(s, n=1):
    c = Connection(s, timeout=30)
    c.send(frame(HEADERS, END_HEADERS, 1, INFER) + frame(DATA, END_STREAM, 1, infer_message(x[:n])))
    data = b""
    while True:
        f = c.frame()
        assert f, "the connection ended"
        if f[0] == DATA:
            data += f[3]
        if f[1] & END_STREAM and f[0] in (DATA, HEADERS):
            break
    c.close()
    # The values are the last field of the message.
    got = np.frombuffer(data[-40 * n:], "f4").reshape(n, 10)
    assert is_close(got, want[:n]), got


def cpu_s(s):
    with open(f"/proc/{s.process.pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(s):
    return len(os.listdir(f"/proc/{s.process.pid}/fd"))


class Watch(threading.Thread):
    """Calls as another client all the time, and tells the longest time and the largest memory."""

    def __init__(self, s):
        super().__init__(daemon=True)
        self.s, self.over, self.longest, self.largest, self.failed = s, False, 0, 0, []

    def run(self):
        while not self.over:
            try:
                self.longest = max(self.longest, live(self.s))
            except (OSError, AssertionError) as problem:
                self.failed.append(repr(problem))
            self.largest = max(self.largest, self.s.memory_mib())
            time.sleep(0.02)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.join()


# -- Floods on one connection -----------------------------------------------------------------


def repeat(part, n, at_once=200):
    for _ in range(n // at_once):
        yield part * at_once


def streams(n, payload):
    """Each with its frames made by payload(stream)."""
    for first in range(1, 2 * n, 200):
        yield b"".join(payload(stream) for stream in range(first, first + 200, 2))


def bomb():
    """A field of 3900 bytes that the table keeps, named 16000 times in each of many heads."""
    yield frame(HEADERS, END_HEADERS, 1, LIVE + literal(b"x-large", b"a" * 3900, True))
    for stream in range(3, 4000, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, LIVE + b"\xbe" * 16000)


def table_sizes():
    """The table is shrunk and grown before each field."""
    for stream in range(1, 2000, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, (number(0, 5, 0x20) + number(4096, 5, 0x20)) * 2000 + LIVE)


def reset_in_flight(stream):
    """A body of which the half has come when the stream is reset."""
    message = infer_message(x[:8])
    return (frame(HEADERS, END_HEADERS, stream, INFER) + frame(DATA, 0, stream, message[:len(message) // 2]) +
            frame(RST, 0, stream, struct.pack(">I", 8)))


def reset_running(stream):
    """A request that runs when the stream is reset."""
    return (frame(HEADERS, END_HEADERS, stream, INFER) + frame(DATA, END_STREAM, stream, infer_message(x[:1])) +
            frame(RST, 0, stream, struct.pack(">I", 8)))


def made_to_reset(stream):
    """A request that runs when the client makes the server reset the stream: a window of more than 2^31 - 1."""
    return (frame(HEADERS, END_HEADERS, stream, INFER) + frame(DATA, END_STREAM, stream, infer_message(x[:1])) +
            frame(WINDOW, 0, stream, struct.pack(">I", 0x7fffffff)))


# Name, frames, whether the server must close the connection.
FLOODS = [
    ("settings", lambda: repeat(frame(SETTINGS, 0, 0), 200000), True),
    ("pings", lambda: repeat(frame(PING, 0, 0, b"12345678"), 200000), True),
    ("table sizes in settings", lambda: repeat(frame(SETTINGS, 0, 0, b"\0\1\0\0\0\0\0\1\x7f\xff\xff\xff"), 100000), True),
    ("settings with many entries", lambda: repeat(frame(SETTINGS, 0, 0, b"\0\3\0\0\0\1" * 1000), 1000), True),
    ("acknowledgements nobody asked for", lambda: repeat(frame(SETTINGS, ACK, 0), 20000), True),
    ("resets by the client", lambda: streams(50000, lambda i: frame(HEADERS, END_HEADERS | END_STREAM, i, LIVE) +
                                             frame(RST, 0, i, struct.pack(">I", 8))), True),
    ("resets of half-sent bodies", lambda: streams(20000, reset_in_flight), True),
    ("resets of running requests", lambda: streams(20000, reset_running), True),
    ("resets by the server", lambda: streams(20000, made_to_reset), True),
    ("streams without an end", lambda: streams(20000, lambda i: frame(HEADERS, END_HEADERS, i, INFER)), True),
    ("continuations", lambda: [frame(HEADERS, 0, 1, LIVE)] + [frame(CONTINUATION, 0, 1, literal(b"x-a", b"b" * 1000)) * 50] * 400,
     True),
    ("empty continuations", lambda: [frame(HEADERS, 0, 1, LIVE)] + [frame(CONTINUATION, 0, 1) * 500] * 400, True),
    ("header bomb", bomb, False),
    ("sizes of the header table", table_sizes, False),
    ("a frame larger than allowed", lambda: [frame(HEADERS, END_HEADERS, 1, LIVE), b"\xff\xff\xff\0\0\0\0\0\1"] +
     [b"a" * 65536] * 100, True),
    ("window of 0 bytes more", lambda: repeat(frame(WINDOW, 0, 0, b"\0\0\0\0"), 2000), True),
    ("window over 2^31", lambda: repeat(frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"), 400), True),
    ("promises", lambda: repeat(frame(PUSH, END_HEADERS, 1, b"\0\0\0\2" + LIVE), 400), True),
    ("trailers again and again", lambda: [frame(HEADERS, END_HEADERS, 1, INFER)] + [frame(HEADERS, END_HEADERS, 1) * 100] * 1000,
     False),
    ("empty data", lambda: [frame(HEADERS, END_HEADERS, 1, INFER)] + [frame(DATA, 0, 1) * 500] * 1000, False),
    ("priorities", lambda: repeat(frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"), 200000), False),
    ("windows", lambda: repeat(frame(WINDOW, 0, 0, b"\0\0\0\1"), 200000), False),
    ("unknown frames", lambda: repeat(frame(0xfe, 0, 0, b"a" * 1000), 20000), False),
    ("farewells", lambda: repeat(frame(GOAWAY, 0, 0, b"\0" * 8), 100000), False),
]


def check_floods():
    """The client sends for some seconds, and reads when the server does not take more."""
    with Server() as s:
        infer(s)
        silent, since = Connection(s), time.monotonic()
        before = descriptors(s)
        for name, parts, must_end in FLOODS:
            memory, cpu = s.memory_mib(), cpu_s(s)
            with Watch(s) as watch:
                c = Connection(s)
                took_all = c.flood(parts())
                frames = c.frames()
                c.close()
            ended = not took_all or frames[-1:] == [None]
            code = goaway_code(frames)
            print(f"{name}: {'closed' if ended else 'open'}, GOAWAY {code}, router {cpu_s(s) - cpu:.2f} s CPU, memory "
                  f"{memory:.0f} -> {watch.largest:.0f} MiB, longest call beside it {watch.longest * 1e3:.0f} ms", flush=True)
            assert ended or not must_end, name
            assert not watch.failed, (name, watch.failed[:3])
            assert watch.largest < memory + 100 + KEPT_MIB, name
        # A client that never acknowledges the server's settings (section 6.5.3 of RFC 9113).
        frames = silent.frames(max(1, 13 - (time.monotonic() - since)))
        assert frames[-1] is None and goaway_code(frames) == SETTINGS_TIMEOUT, frames
        infer(s)
        wait_until(lambda: descriptors(s) <= before + 1)


# -- Clients that do not read -----------------------------------------------------------------


def refused_streams(first, n):
    """Streams above the limit: each is answered with a reset."""
    return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, first + 2 * i, LIVE) for i in range(n))


def check_unread():
    """A client that never reads makes the server owe it answers, resets and acknowledgements without end."""
    with Server() as s:
        infer(s)
        memory = s.memory_mib()
        for name, part in (("answers", lambda k: refused_streams(1 + 2000 * k, 1000)),
                           ("pings", lambda k: frame(PING, 0, 0, b"12345678") * 10000)):
            with Watch(s) as watch:
                c = Connection(s, timeout=1)
                sent, k, end = 0, 0, time.monotonic() + 6
                try:
                    while time.monotonic() < end:
                        data = part(k)
                        c.send(data)
                        sent += len(data)
                        k += 1
                except OSError:
                    pass
            print(f"unread {name}: {sent / 1e6:.1f} MB taken, memory {memory:.0f} -> {watch.largest:.0f} MiB, longest call "
                  f"beside it {watch.longest * 1e3:.0f} ms", flush=True)
            assert not watch.failed, watch.failed[:3]
            assert watch.largest < memory + 60 + KEPT_MIB, name
            c.close()
        infer(s)


# -- Slow clients on every connection ---------------------------------------------------------


def check_full():
    """Each connection that may be open has a request that never becomes whole; a new client is served all the same."""
    with Server("--max-connections", "64") as s:
        infer(s)
        kept = []
        for _ in range(64):
            try:
                c = Connection(s, timeout=1)
                c.send(frame(HEADERS, END_HEADERS, 1, INFER) + frame(DATA, 0, 1, infer_message(x[:1])[:20]))
                kept.append(c)
            except OSError:  # closed for another one
                pass
        assert len(kept) >= 60, len(kept)
        time.sleep(1.5)
        start = time.monotonic()
        took = [live(s) for _ in range(20)]
        infer(s)
        print(f"64 half-sent requests on 64 connections: longest call of a new client {max(took) * 1e3:.0f} ms, "
              f"20 in {time.monotonic() - start:.1f} s")
        # Connections with a request that runs are never closed for others.
        for c in kept:
            c.close()


# -- Half-sent requests on many streams of many connections ------------------------------------


def check_streams():
    """More of them than there may be: those that have waited longest are reset, others are served."""
    per_connection, connections, most = 1000, 40, 16384
    part = b"".join(frame(HEADERS, END_HEADERS, 1 + 2 * i, INFER) for i in range(per_connection))
    with Server() as s:
        infer(s)
        memory, resets = s.memory_mib(), 0
        with Watch(s) as watch:
            kept = []
            for _ in range(connections):
                kept.append(Connection(s, timeout=30))
                kept[-1].send(part)
            # An acknowledgement overtakes the resets of its turn, not those of the turns before.
            for c in kept * 3:
                c.send(frame(PING, 0, 0, b"12345678"))
                while (f := c.frame())[0] != PING:
                    resets += f[0] == RST and int.from_bytes(f[3], "big") == ENHANCE_YOUR_CALM
            infer(s)
        print(f"{per_connection * connections} half-sent requests: {resets} reset, memory {memory:.0f} -> {watch.largest:.0f} MiB, "
              f"longest call beside them {watch.longest * 1e3:.0f} ms")
        assert not watch.failed, watch.failed[:3]
        assert resets >= per_connection * connections - most, resets
        for c in kept:
            c.close()


# -- Strings -----------------------------------------------------------------------------------


def check_strings():
    """Names that end at a NUL for a library in C and go on for a proxy, and bytes that are not UTF-8, which no other
    client could read in an answer or a log."""
    def framed(body):
        return b"\0" + struct.pack(">I", len(body)) + body

    plain = infer_message(x[:1])[5:]
    entry = field(4, field(1, b"a\0b") + field(2, b"\x10\1"))
    cases = [(b"ModelInfer", infer_message(x[:1], name=b"image\0"))]
    cases += [(b"ModelInfer", framed(more + plain)) for more in (field(3, b"id\0x"), field(3, b"\xff\xfe"), entry)]
    cases += [(method, framed(field(1, name))) for method in (b"ModelMetadata", b"ModelReady", b"ModelConfig", b"ModelStatistics")
              for name in (b"digits\0x", b"digits\xc0\x80")]
    cases.append((b"TraceSetting", framed(field(1, field(1, b"trace_level") + field(2, field(1, b"OFF\0"))))))
    with Server() as s:
        for method, message in cases:
            c = Connection(s, timeout=30)
            c.send(frame(HEADERS, END_HEADERS, 1, head(method)) + frame(DATA, END_STREAM, 1, message))
            headers, data = c.answer()
            c.close()
            assert b"\x013" in headers and not data, (method, message, headers, data)
        infer(s)


for check in (check_floods, check_unread, check_full, check_streams, check_strings):
    check()
    print(check.__name__, "ok", flush=True)
