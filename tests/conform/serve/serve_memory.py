# needs: numpy
# ctest label: slow (without sanitizers: it limits memory)
"""Workers with a memory limit: a request that needs more gets an error that tells the limit, the worker and the others go
on; a limit too small for the models ends the server with that cause."""
import json
import os
import re
import subprocess
import threading

import numpy as np

from serving import WEFT, Server, is_close, is_sanitized, skip, wait_until, write_small
from tests.support.onnx_file import Graph, Node, Port


def compile_models():
    """`outer` needs n * n numbers for an input of n; `small` next to nothing."""
    g = Graph(opset=17)
    g.inputs.append(Port("x", "float32", ["N", 1]))
    g.nodes += [Node("Transpose", ["x"], ["t"], {"perm": [1, 0]}), Node("Mul", ["x", "t"], ["m"], {}),
                Node("MatMul", ["m", "x"], ["y"], {})]
    g.outputs.append(Port("y", "float32"))
    g.save("outer.onnx")
    write_small("small.onnx")
    with open("set.yaml", "w") as f:
        f.write("models:\n  - name: outer\n    file: outer.onnx\n  - name: small\n    file: small.onnx\n")
    subprocess.run([WEFT, "compile", "set.yaml", "-o", "memory.weft"], check=True)


def outer(s, n):
    x = np.linspace(0.5, 1, n, dtype="f4").reshape(n, 1)
    status, got = s.ask("outer", x)
    if status == 200:
        assert is_close(got, x * np.float32((x.astype("f8") ** 2).sum()))
    return status, got


def check_limit():
    with Server("--worker-memory", "400MiB", bundle="memory.weft") as s:
        before = s.workers()
        assert outer(s, 1000)[0] == 200
        for _ in range(3):
            status, error = outer(s, 20000)  # 1.6 GB
            assert status == 500 and "419430400 bytes (--worker-memory)" in error, (status, error)
            s.ask_small()
            assert outer(s, 1000)[0] == 200
        # Together they may need too much: each runs alone then.
        got, n = [], 5000  # 100 MB each
        threads = [threading.Thread(target=lambda: got.append(outer(s, n)[0])) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == [200] * 8, got
        assert s.workers() == before, s.text()
        (worker,) = before
        with open(f"/proc/{worker}/status") as f:
            assert int(re.search(r"VmData:\s+(\d+)", f.read())[1]) <= 400 << 10


def check_default():
    """Without the option there is a limit, and `off` lifts it."""
    for option, limited in (([], True), (["--worker-memory", "off"], False)):
        with Server(*option, bundle="memory.weft") as s:
            (worker,) = s.workers()
            with open(f"/proc/{worker}/limits") as f:
                soft = re.search(r"Max data size\s+(\S+)", f.read())[1]
            assert (soft != "unlimited") == limited and (not limited or 2 << 30 < int(soft) < 4 << 30), soft
            assert outer(s, 1000)[0] == 200


def check_too_small():
    got = subprocess.run([WEFT, "serve", "memory.weft", "--http", "0", "--grpc", "0", "--metrics", "0",
                          "--worker-memory", "2MiB"], stderr=subprocess.PIPE, text=True, timeout=120)
    assert got.returncode == 1 and "error" in got.stderr, got


def check_killed():
    """What kills a worker is told with the memory that it had used."""
    with Server("--log-format", "json", bundle="memory.weft") as s:
        (worker,) = s.workers()
        assert outer(s, 8000)[0] == 200
        os.kill(worker, 9)
        wait_until(lambda: "worker_ended" in s.text())
        (line,) = [json.loads(line) for line in s.text().splitlines() if "worker_ended" in line]
        assert line["status"] == "signal 9 (SIGKILL)" and line["peak_bytes"] > 8000 * 8000 * 4, line
        s.ask_small()


if is_sanitized():
    skip("the program is built with AddressSanitizer")
compile_models()
for check in (check_limit, check_default, check_too_small, check_killed):
    check()
    print(check.__name__, "ok", flush=True)
