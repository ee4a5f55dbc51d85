# needs: numpy grpc google.protobuf
"""Tensors in system shared memory that clients register, over HTTP and gRPC: right answers wherever inputs and outputs
are, refusals, and objects that are truncated, unlinked and unregistered while they are used."""
import contextlib
import fcntl
import json
import os
import signal
import sys
import tempfile
import threading

import grpc
import numpy as np
from grpc_client import SERVICE, Messages
from serving import Server, digits, compile_bundle, is_close, tensor

proto, protoc = sys.argv[3], sys.argv[4]
x, want = digits()
x, want = x[:8], want[:8]
PREFIX = f"/weft_test_{os.getpid()}_"
OBJECTS = []


class Object:
    """A shared memory object: a file of /dev/shm, as shm_open makes it."""

    def __init__(self, name, size):
        self.key = PREFIX + name
        self.fd = os.open("/dev/shm" + self.key, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        OBJECTS.append(self)
        os.ftruncate(self.fd, size)

    def put(self, array, at=0):
        os.pwrite(self.fd, array.tobytes(), at)

    def get(self, like, at=0):
        return np.frombuffer(os.pread(self.fd, like.nbytes, at), like.dtype).reshape(like.shape)

    def size(self):
        return os.fstat(self.fd).st_size


def post(path, body=None):
    status, _, got = server.request("POST", "/v2/systemsharedmemory/" + path, None if body is None else json.dumps(body))
    return status, json.loads(got)


def register(name, key, size, offset=0):
    return post(f"region/{name}/register", {"key": key, "byte_size": size, "offset": offset})


def place(region, size, offset=0):
    return {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset}


def ask(image, logits=None):
    """The model's answer to an input and output given as parameters, or an input as an array."""
    if isinstance(image, dict):
        entry = {"name": "image", "datatype": "FP32", "shape": list(x.shape), "parameters": image}
    else:
        entry = tensor("image", image)
    body = {"inputs": [entry]}
    if logits:
        body["outputs"] = [{"name": "logits", "parameters": logits}]
    status, _, got = server.request("POST", "/v2/models/digits/infer", json.dumps(body))
    return status, json.loads(got)


def refused(got, status, *words):
    assert got[0] == status and all(w in got[1]["error"] for w in words), (got, status, words)


def descriptors():
    """Of shared memory; those of connections come and go."""
    folder = f"/proc/{server.process.pid}/fd"
    n = 0
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            n += os.readlink(f"{folder}/{fd}").startswith("/dev/shm" + PREFIX)
    return n


def check_off():
    assert "system_shared_memory" not in server.get("/v2")[1]["extensions"]
    refused(server.get("/v2/systemsharedmemory/status"), 501, "--shared-memory")
    refused(register("a", PREFIX + "a", 4), 501, "--shared-memory")
    refused(post("unregister"), 501, "--shared-memory")
    refused(ask(place("a", x.nbytes)), 501, "--shared-memory")
    refused(ask(x, place("a", want.nbytes)), 501, "--shared-memory")


def check_cuda():
    """Clients of Triton clear its regions before they use others; there are none, and none can be made."""
    def ask_cuda(method, path):
        status, _, got = server.request(method, "/v2/cudasharedmemory/" + path)
        return status, json.loads(got)

    assert ask_cuda("POST", "unregister") == (200, {}) and ask_cuda("POST", "region/a/unregister") == (200, {})
    assert ask_cuda("GET", "status") == (200, []) and ask_cuda("GET", "region/a/status") == (200, [])
    refused(ask_cuda("POST", "region/a/register"), 501, "not supported")


def check_register(a):
    size = a.size()
    assert register("a", a.key, size) == (200, {})
    assert register("part", a.key, 100, size - 100) == (200, {})
    status, got = server.get("/v2/systemsharedmemory/status")
    assert status == 200 and sorted(r["name"] for r in got) == ["a", "part"], got
    assert server.get("/v2/systemsharedmemory/region/part/status") == (
        200, [{"name": "part", "key": a.key, "offset": size - 100, "byte_size": 100}])
    refused(server.get("/v2/systemsharedmemory/region/b/status"), 404, "region 'b'")
    refused(register("a", a.key, 1), 400, "already")
    refused(register("b", a.key, 0), 400, "has no 0 bytes")
    refused(register("b", a.key, size + 1), 400, "has no")
    refused(register("b", a.key, size, 1), 400, "has no")
    refused(register("b", a.key, 1, 2**63 - 1), 400, "has no")
    refused(register("b", a.key, -1), 400, "no JSON object")
    refused(register("b", PREFIX + "missing", 1), 400, "No such file")
    refused(register("b", "/etc", 1), 400, "begin with")
    for key in ("", "/", "weft", PREFIX + "/../../etc/passwd", "/" + "k" * 300):
        refused(register("b", key, 1), 400, "name of shm_open")
    refused(register("n" * 200, a.key, 1), 400, "1 to 127 bytes")
    refused(register("%FF", a.key, 1), 400, "not UTF-8")
    os.symlink("/etc/passwd", "/dev/shm" + PREFIX + "link")
    refused(register("b", PREFIX + "link", 1), 400, "cannot be opened")
    os.unlink("/dev/shm" + PREFIX + "link")
    refused(post("region/b/register", {"key": 1, "byte_size": 1}), 400, "no JSON object")
    refused(post("region/b/register"), 400, "no JSON object")
    assert post("region/unknown/unregister") == (200, {})
    assert post("region/part/unregister") == (200, {})


def check_http(a):
    a.put(x, 64)
    status, got = ask(place("a", x.nbytes, 64), place("a", want.nbytes, 8192))
    assert status == 200, got
    assert got["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": list(want.shape),
                               "parameters": place("a", want.nbytes, 8192)}], got
    assert is_close(a.get(want, 8192), want)
    status, got = ask(place("a", x.nbytes, 64))
    assert status == 200 and is_close(np.array(got["outputs"][0]["data"], "f4").reshape(want.shape), want), got
    status, got = ask(x, place("a", want.nbytes + 8, 12001))  # more room than it needs, and not aligned
    assert status == 200 and is_close(a.get(want, 12001), want), got
    assert got["outputs"][0]["parameters"] == place("a", want.nbytes, 12001), got
    refused(ask(place("b", x.nbytes)), 400, "no region 'b'")
    refused(ask(place("a", x.nbytes - 4)), 400, "its shape needs")
    refused(ask(place("a", x.nbytes, a.size() - 8)), 400, "has no")
    refused(ask(place("a", x.nbytes, 2**64 - 1)), 400, "has no")
    refused(ask(x, place("a", want.nbytes - 4)), 400, "an output has")
    refused(ask({**place("a", x.nbytes), "binary_data_size": x.nbytes}), 400, "both")
    refused(ask({**place("a", x.nbytes), "shared_memory_region": 7}), 400, "not a string")


def check_grpc(a):
    with tempfile.TemporaryDirectory() as folder:
        m = Messages(proto, protoc, folder)
        channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc}")

        def call(method, request, reply):
            return channel.unary_unary(SERVICE + method, request_serializer=lambda r: r.SerializeToString(),
                                       response_deserializer=reply.FromString)(request, timeout=30)

        def fails(code, *arguments):
            try:
                call(*arguments)
            except grpc.RpcError as error:
                assert error.code() == code, error
                return
            raise AssertionError("it was accepted")

        call("SystemSharedMemoryRegister",
             m.SystemSharedMemoryRegisterRequest(name="g", key=a.key, offset=16, byte_size=a.size() - 16),
             m.SystemSharedMemoryRegisterResponse)
        got = call("SystemSharedMemoryStatus", m.SystemSharedMemoryStatusRequest(name="g"),
                   m.SystemSharedMemoryStatusResponse)
        assert [(r.name, r.key, r.offset, r.byte_size) for r in got.regions.values()] == [("g", a.key, 16, a.size() - 16)]
        fails(grpc.StatusCode.NOT_FOUND, "SystemSharedMemoryStatus", m.SystemSharedMemoryStatusRequest(name="h"),
              m.SystemSharedMemoryStatusResponse)
        fails(grpc.StatusCode.INVALID_ARGUMENT, "SystemSharedMemoryRegister",
              m.SystemSharedMemoryRegisterRequest(name="g", key=a.key, byte_size=1), m.SystemSharedMemoryRegisterResponse)

        def put(to, region, size, offset):
            to["shared_memory_region"].string_param = region
            to["shared_memory_byte_size"].int64_param = size
            to["shared_memory_offset"].uint64_param = offset

        def request(shares_input, shares_output, size=x.nbytes):
            r = m.ModelInferRequest(model_name="digits")
            i = r.inputs.add(name="image", datatype="FP32", shape=x.shape)
            if shares_input:
                put(i.parameters, "g", size, 48)
            else:
                r.raw_input_contents.append(x.tobytes())
            if shares_output:
                put(r.outputs.add(name="logits").parameters, "g", want.nbytes, 4096)
            return r

        for shares_input in (False, True):
            for shares_output in (False, True):
                a.put(np.zeros(want.shape, "f4"), 4096 + 16)
                got = call("ModelInfer", request(shares_input, shares_output), m.ModelInferResponse)
                raw = got.raw_output_contents[0]
                values = a.get(want, 4096 + 16) if shares_output else np.frombuffer(raw, "f4").reshape(want.shape)
                assert (raw == b"") == shares_output and is_close(values, want)
                if shares_output:
                    assert got.outputs[0].parameters["shared_memory_region"].string_param == "g"
                    assert got.outputs[0].parameters["shared_memory_byte_size"].int64_param == want.nbytes
        fails(grpc.StatusCode.INVALID_ARGUMENT, "ModelInfer", request(True, False, x.nbytes + 4), m.ModelInferResponse)
        both = request(True, False)
        both.raw_input_contents.append(x.tobytes())
        fails(grpc.StatusCode.INVALID_ARGUMENT, "ModelInfer", both, m.ModelInferResponse)
        call("SystemSharedMemoryUnregister", m.SystemSharedMemoryUnregisterRequest(name="g"),
             m.SystemSharedMemoryUnregisterResponse)
        fails(grpc.StatusCode.INVALID_ARGUMENT, "ModelInfer", request(True, False), m.ModelInferResponse)
        channel.close()


def check_faults(a):
    """An object without a name goes on; one that is truncated is refused, and is not made larger."""
    b = Object("b", 16384)
    b.put(x)
    assert register("b", b.key, b.size()) == (200, {})
    os.unlink("/dev/shm" + b.key)
    OBJECTS.remove(b)
    assert ask(place("b", x.nbytes), place("b", want.nbytes, 8192))[0] == 200 and is_close(b.get(want, 8192), want)
    os.ftruncate(b.fd, x.nbytes - 4)
    refused(ask(place("b", x.nbytes)), 400, "smaller")
    refused(ask(x, place("b", want.nbytes, 8192)), 400, "smaller")
    assert b.size() == x.nbytes - 4
    os.ftruncate(b.fd, 16384)
    b.put(x)
    assert ask(place("b", x.nbytes))[0] == 200
    assert post("unregister") == (200, {})
    refused(ask(place("b", x.nbytes)), 400, "no region")

    # Descriptors are not kept, and are bounded.
    assert descriptors() == 0
    got = [register(f"r{i}", a.key, 4)[0] for i in range(70)]
    assert got == [200] * 64 + [503] * 6, got
    assert descriptors() == 64
    assert post("unregister") == (200, {})
    assert descriptors() == 0

    # Regions come and go while they are used: an answer is right, or there was no region.
    a.put(x)
    got, ends = [], threading.Event()

    def client():
        while not ends.is_set():
            status, reply = ask(place("a", x.nbytes))
            ok = status == 200 and is_close(np.array(reply["outputs"][0]["data"], "f4").reshape(want.shape), want)
            got.append(bool(ok) or (status == 400 and "no region 'a'" in reply["error"]) or reply)

    threads = [threading.Thread(target=client) for _ in range(4)]
    for t in threads:
        t.start()
    for _ in range(100):
        assert register("a", a.key, a.size()) == (200, {})
        assert post("region/a/unregister") == (200, {})
    ends.set()
    for t in threads:
        t.join()
    assert all(g is True for g in got), [g for g in got if g is not True][:3]


def check_lease():
    """An object whose owner has a lease is refused. Opened by the loop, it would keep all clients waiting until the
    kernel takes the lease away after 45 s."""
    leased = Object("leased", 4096)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(leased.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as e:  # kernels of some containers have none
        print("leases are not tried:", e)
        return
    refused(register("leased", leased.key, 4), 400, "cannot be opened")
    fcntl.fcntl(leased.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    assert register("leased", leased.key, 4) == (200, {})
    assert post("region/leased/unregister") == (200, {})


compile_bundle(more=False)
try:
    with Server() as server:
        check_cuda()
        check_off()
    with Server("--shared-memory", PREFIX) as server:
        assert "system_shared_memory" in server.get("/v2")[1]["extensions"]
        a = Object("a", 16384)
        check_register(a)
        check_http(a)
        check_grpc(a)
        check_lease()
        check_faults(a)
finally:
    for o in OBJECTS:
        os.unlink("/dev/shm" + o.key)
