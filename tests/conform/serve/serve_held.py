# needs: numpy
# ctest label: slow (without sanitizers: it measures memory)
"""What clients make the server hold: answers that they do not read, over HTTP and gRPC, and JSON that becomes larger as
tensors. All of it counts, so that memory is bounded, and small requests of others are answered meanwhile."""
import json
import os
import signal
import socket
import struct
import subprocess
import time

import numpy as np

from http2 import DATA, END_HEADERS, END_STREAM, HEADERS, INFER, Connection, frame, infer_message
from serving import WEFT, Server, is_sanitized, skip, tensor, write_small
from tests.support.onnx_file import Graph, Node, Port

WIDE = 1 << 18  # numbers of an output: 1 MiB
LONG = 450000   # rows of four numbers
HELD_MIB = 64   # what the server may hold with bodies of at most 4 MiB
ROWS = 8


def compile_models():
    """`wide` gives 1 MiB a row, `long` takes many INT64, `small` is for the others."""
    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", ["B", 1]))
    g.constants["w"] = np.arange(WIDE, dtype="f4").reshape(1, WIDE)
    g.nodes.append(Node("MatMul", ["x", "w"], ["y"], {}))
    g.outputs.append(Port("y", "float32"))
    g.save("wide.onnx")
    g = Graph(opset=17)
    g.inputs.append(Port("x", "int64", [LONG, 4]))
    g.nodes.append(Node("ReduceMax", ["x"], ["y"], {"keepdims": 1}))
    g.outputs.append(Port("y", "int64"))
    g.save("long.onnx")
    write_small("small.onnx")
    with open("set.yaml", "w") as f:
        f.write("models:\n" + "".join(f"  - name: {n}\n    file: {n}.onnx\n" for n in ("wide", "long", "small")))
    subprocess.run([WEFT, "compile", "set.yaml", "--batch", "1,8", "-o", "held.weft"], check=True)


def ask_wide():
    x = np.ones((ROWS, 1), "f4")
    head = json.dumps({"inputs": [tensor("x", x, True)], "parameters": {"binary_data_output": True}}).encode()
    return (b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
            b"Inference-Header-Content-Length: %d\r\n\r\n" % (len(head) + x.nbytes, len(head)) + head + x.tobytes())


def watch(s, what, before):
    """Small requests for some seconds; the memory of the router stays within what it may hold."""
    longest, largest, end = 0, 0, time.monotonic() + 4
    while time.monotonic() < end:
        longest, largest = max(longest, s.ask_small()), max(largest, s.memory_mib())
        time.sleep(0.02)
    print(f"{what}: memory {before:.0f} -> {largest:.0f} MiB, longest small request beside it {longest * 1e3:.0f} ms",
          flush=True)
    # Of the router's own, buffers that are being made and what malloc keeps.
    assert largest < before + 2 * HELD_MIB + 50, what


def check_unread_http():
    with Server("--max-request", "4MiB", bundle="held.weft") as s:
        s.ask_small()
        before, kept = s.memory_mib(), []
        for _ in range(200):
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", s.http))
            raw.sendall(ask_wide())
            kept.append(raw)
        watch(s, "200 answers of 8 MiB that nobody reads, over HTTP", before)
        for raw in kept:
            raw.close()


def check_unread_grpc():
    with Server("--max-request", "4MiB", bundle="held.weft") as s:
        s.ask_small()
        before = s.memory_mib()
        # A window of 0 bytes for each stream.
        c = Connection(s, struct.pack(">HI", 4, 0))
        x = np.ones((ROWS, 1), "f4")
        for stream in range(1, 401, 2):
            c.send(frame(HEADERS, END_HEADERS, stream, INFER) +
                   frame(DATA, END_STREAM, stream, infer_message(x, b"wide", b"x")))
        watch(s, "200 answers of 8 MiB that nobody reads, over gRPC", before)
        c.close()


def check_decoded():
    """Two bytes of JSON become an INT64: 16 bodies of 4 MiB are 256 MiB of tensors."""
    with Server("--max-request", "4MiB", "--stall-timeout", "60s", bundle="held.weft") as s:
        s.ask_small()
        (worker,) = s.workers()
        before, kept = s.memory_mib(), []
        os.kill(worker, signal.SIGSTOP)
        body = (b'{"inputs":[{"name":"x","datatype":"INT64","shape":[%d,4],"data":[' % LONG + b"0," * (4 * LONG - 1) +
                b"0]}]}")
        for _ in range(15):
            raw = s.raw_socket()
            raw.sendall(b"POST /v2/models/long/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            kept.append(raw)
        time.sleep(3)
        largest = s.memory_mib("VmHWM")
        print(f"15 bodies of 3.6 MB of INT64 as JSON: memory {before:.0f} -> {largest:.0f} MiB")
        assert largest < before + 2 * HELD_MIB + 50
        os.kill(worker, signal.SIGCONT)
        statuses = [raw.recv(65536)[9:12] for raw in kept]
        assert set(statuses) <= {b"200", b"503"} and b"200" in statuses, statuses
        s.ask_small()


if is_sanitized():
    skip("the program is built with AddressSanitizer")
compile_models()
for check in (check_unread_http, check_unread_grpc, check_decoded):
    check()
    print(check.__name__, "ok", flush=True)
