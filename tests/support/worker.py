"""A long-lived process that compiles and runs models (tests/conform/model_worker.c), so that one test
can try thousands. It is started at the first request and again after it died."""
import os
import subprocess

import numpy as np

try:  # of the oracles' packages, if oracle.need() was called
    import ml_dtypes
    MORE = {"bf16": np.dtype(ml_dtypes.bfloat16)}
except ImportError:
    MORE = {}

DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "i8": "int8", "i16": "int16", "i32": "int32",
          "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool"}
NAMES = {v: k for k, v in DTYPES.items()} | {v.name: k for k, v in MORE.items()}
DTYPES |= MORE
UNSUPPORTED = 2  # WEFT_ERR_UNSUP


class Refused(Exception):
    """The worker answered with an error of code `code`."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Died(Exception):
    """The worker crashed or took too long."""


class Worker:
    def __init__(self, program, env=None, restart_after=4000):
        self.program, self.env = program, dict(os.environ, OMP_WAIT_POLICY="passive", **(env or {}))
        self.process, self.served, self.restart_after = None, 0, restart_after
        self.batched = set()

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
            self.process = None

    def _start(self):
        self.process = subprocess.Popen([self.program], env=self.env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.served = 0

    def _ask(self, data):
        """Sends a request; the number of items of the reply."""
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
            line = self.process.stdout.readline().decode()
        except BrokenPipeError:
            line = ""
        self.served += 1
        if line.startswith("ok "):
            return int(line[3:])
        if line.startswith("error "):
            _, code, text = line.rstrip("\n").split(" ", 2)
            raise Refused(int(code), text)
        self.process.stdin.close()
        self.process.stdout.close()
        code = self.process.wait()
        self.process = None
        raise Died(f"the process ended by signal {-code}" if code < 0 else f"the process ended with {code}")

    def compile(self, files, pipeline="cpu", target="cpu", merge="off", deltas="off", pack=False):
        """Compiles ONNX files as models m0, m1, ...; {program: models of the joint program}. `batched`
        has the names of those whose requests may be batched."""
        if self.process and self.served > self.restart_after:
            self.close()
        if not self.process:
            self._start()
        n = self._ask(f"compile {pipeline} {target} {merge} {deltas} {'pack' if pack else 'off'} {len(files)}\n".encode()
                      + "".join(f"{f}\n" for f in files).encode())
        words = [self.process.stdout.readline().decode().split() for _ in range(n)]
        self.batched = {w[0] for w in words if w[3] == "1"}
        return {w[0]: w[4:] for w in words}

    def run(self, inputs, program="m0", driver="cpu", threads=1):
        """Runs a program of the last compile on a list of arrays; the list of its outputs."""
        data = [f"run {program} {driver} {threads} {len(inputs)}\n".encode()]
        for a in inputs:
            a = np.asarray(a)
            data.append(f"{NAMES[a.dtype.name]} {a.ndim} {' '.join(map(str, a.shape))}\n".encode())
            data.append(a.tobytes())
        return [self._read() for _ in range(self._ask(b"".join(data)))]

    def _read(self):
        words = self.process.stdout.readline().decode().split()
        dtype, dims = np.dtype(DTYPES[words[0]]), [int(d) for d in words[2:]]
        size = int(np.prod(dims, dtype=np.int64)) * dtype.itemsize
        data = self.process.stdout.read(size)
        if len(data) != size:
            raise Died("the process ended within a reply")
        return np.frombuffer(data, dtype).reshape(dims)

    def kernels(self):
        """Lines "LAUNCH VARIANT" of the last run."""
        return [self.process.stdout.readline().decode().strip() for _ in range(self._ask(b"kernels\n"))]
