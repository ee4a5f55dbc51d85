# needs: grpc numpy google.protobuf
"""A server and real gRPC clients: every method, both forms of contents, invalid input, clients that
vanish, garbage on the port, a worker that is killed, and the end by SIGTERM.

    grpc_client.py WEFT EXAMPLES PROTO [PROTOC_C]

Exit codes: 0 passed, 1 failed, 77 skipped (no grpcio, protobuf or NumPy for this Python). Message
classes come from PROTO; tritonclient is exercised as well where it is installed."""
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

SKIP = 77
try:
    import grpc
    import numpy as np
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from serving import SLOW, patience
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIP)
try:
    import tritonclient.grpc as triton
except ImportError:
    triton = None

SERVICE = "/inference.GRPCInferenceService/"
MAX_REQUEST = 4 << 20 if SLOW == 1 else 64 << 10  # a batch of so many bytes is computed
LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Messages:
    """Classes of the server's packages, by name; in a separate pool, because tritonclient
    registers the same names."""

    def __init__(self, proto, protoc, folder):
        path = os.path.join(folder, "descriptors")
        protos = ["grpc_service.proto", "grpc_health.proto", "grpc_reflection.proto"]
        subprocess.run([protoc, f"--proto_path={os.path.dirname(proto)}",
                        f"--descriptor_set_out={path}", *protos], check=True)
        files = descriptor_pb2.FileDescriptorSet()
        with open(path, "rb") as f:
            files.ParseFromString(f.read())
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)

    def __getattr__(self, name):
        package = ("grpc.health.v1" if name.startswith("Health") else
                   "grpc.reflection.v1" if name.startswith("ServerReflection") else "inference")
        found = self.pool.FindMessageTypeByName(f"{package}.{name}")
        if hasattr(message_factory, "GetMessageClass"):
            return message_factory.GetMessageClass(found)
        return message_factory.MessageFactory(self.pool).GetPrototype(found)


class Server:
    def __init__(self, weft, bundle, log):
        self.log = open(log, "w")
        self.process = subprocess.Popen(
            [weft, "serve", bundle, "--http", "off", "--grpc", "0", "--metrics", "off",
             "--max-request", str(MAX_REQUEST), *patience()], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"grpc=(\d+)", line)
        assert found, f"the server said '{line.strip()}'"
        self.port = int(found.group(1))
        self.target = f"127.0.0.1:{self.port}"

    def workers(self):
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(x) for x in f.read().split()]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Test:
    def __init__(self, server, pb, examples):
        self.server, self.pb = server, pb
        self.x = np.load(os.path.join(examples, "digits_test.x.npy")).astype(np.float32)
        self.y = np.load(os.path.join(examples, "digits_test.logits.npz"))["digits_cnn"]
        self.channel = grpc.insecure_channel(server.target, options=LIMITS)

    def method(self, path, answer, channel=None):
        def dump(m):
            return m if isinstance(m, bytes) else m.SerializeToString()
        return (channel or self.channel).unary_unary(
            path, request_serializer=dump, response_deserializer=answer.FromString)

    def call(self, name, request, **options):
        answer = getattr(self.pb, name + "Response")
        return self.method(SERVICE + name, answer)(request, timeout=60 * SLOW, **options)

    def error(self, request, path=SERVICE + "ModelInfer", **options):
        """Code and text of a call that must fail."""
        try:
            self.method(path, self.pb.ModelInferResponse)(request, **{"timeout": 60, **options})
        except grpc.RpcError as e:
            text = e.details()
            assert "/" not in text or "Received" in text or "RST" in text, text
            return e.code().name, text
        raise AssertionError("no error")

    def request(self, x, typed=False, model="digits"):
        r = self.pb.ModelInferRequest(model_name=model)
        t = r.inputs.add(name="image", datatype="FP32", shape=x.shape)
        if typed:
            t.contents.fp32_contents.extend(x.flatten().tolist())
        else:
            r.raw_input_contents.append(x.tobytes())
        return r

    def logits(self, answer):
        o = answer.outputs[0]
        assert o.name == "logits" and o.datatype == "FP32", o
        return np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(o.shape)

    def is_close(self, got, want):
        return got.shape == want.shape and np.abs(got - want).max() < 1e-4 * np.abs(want).max()

    # -- Methods -----------------------------------------------------------------------------

    def test_health(self):
        assert self.call("ServerLive", b"").live
        assert self.call("ServerReady", b"").ready
        pb = self.pb
        assert self.call("ModelReady", pb.ModelReadyRequest(name="digits")).ready
        assert self.call("ModelReady", pb.ModelReadyRequest(name="digits", version="1")).ready
        assert not self.call("ModelReady", pb.ModelReadyRequest(name="digits", version="2")).ready
        assert not self.call("ModelReady", pb.ModelReadyRequest(name="none")).ready
        check = self.method("/grpc.health.v1.Health/Check", pb.HealthCheckResponse)
        assert check(b"").status == 1

    def test_metadata(self):
        pb = self.pb
        m = self.call("ModelMetadata", pb.ModelMetadataRequest(name="digits"))
        assert list(m.inputs[0].shape) == [-1, 1, 8, 8] and m.inputs[0].datatype == "FP32", m
        assert m.name == "digits" and list(m.versions) == ["1"]
        config = self.call("ModelConfig", pb.ModelConfigRequest(name="digits")).config
        assert config.max_batch_size > 1 and list(config.input[0].dims) == [1, 8, 8], config
        index = self.call("RepositoryIndex", b"").models
        assert {"digits", "parity"} <= {m.name for m in index if m.state == "READY"}
        server = self.call("ServerMetadata", b"")
        assert server.name == "weft" and "statistics" in server.extensions

    def test_infer_raw(self):
        for n in (1, 2, 3, 7, 8):
            r = self.request(self.x[:n])
            r.id = f"no {n}"
            answer = self.call("ModelInfer", r)
            assert answer.id == r.id and answer.model_version == "1"
            assert self.is_close(self.logits(answer), self.y[:n])

    def test_infer_typed(self):
        answer = self.call("ModelInfer", self.request(self.x[:3], typed=True))
        assert self.is_close(self.logits(answer), self.y[:3])

    def test_infer_parameters(self):
        r = self.request(self.x[:1])
        r.outputs.add(name="logits")
        r.parameters["timeout"].int64_param = 5000000
        r.parameters["priority"].uint64_param = 1
        r.parameters["triton_enable_empty_final_response"].bool_param = True
        r.parameters["other"].string_param = "x"
        assert self.is_close(self.logits(self.call("ModelInfer", r)), self.y[:1])

    def test_statistics(self):
        ask = self.pb.ModelStatisticsRequest(name="digits")
        before = self.call("ModelStatistics", ask).model_stats[0]
        self.call("ModelInfer", self.request(self.x[:2]))
        after = self.call("ModelStatistics", ask).model_stats[0]
        assert after.inference_count == before.inference_count + 2
        memory = after.memory_usage[0]  # its weights, 7.5 KB, and what a batch needs
        assert len(after.memory_usage) == 1 and memory.type == "CPU" and memory.byte_size > 7500, memory
        for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
            rose = getattr(after.inference_stats, part).count
            assert rose == getattr(before.inference_stats, part).count + 1, part
        assert len(self.call("ModelStatistics", b"").model_stats) > 1

    # -- Invalid requests --------------------------------------------------------------------

    def test_wrong_requests(self):
        def changed(change, x=self.x[:1], **options):
            r = self.request(x, **options)
            change(r)
            return r
        i = lambda r: r.inputs[0]
        wrong = [
            ("NOT_FOUND", "none", changed(lambda r: setattr(r, "model_name", "none"))),
            ("NOT_FOUND", "7", changed(lambda r: setattr(r, "model_version", "7"))),
            ("INVALID_ARGUMENT", "missing", self.pb.ModelInferRequest(model_name="digits")),
            ("INVALID_ARGUMENT", "contents field must not be specified when using raw_input_contents for",
             changed(lambda r: i(r).contents.fp32_contents.append(1))),
            ("INVALID_ARGUMENT", "raw_input_contents",
             changed(lambda r: r.raw_input_contents.append(b""))),
            ("INVALID_ARGUMENT", "bytes", changed(lambda r: i(r).shape.__setitem__(0, 2))),
            ("INVALID_ARGUMENT", "negative", changed(lambda r: i(r).shape.__setitem__(0, -1))),
            ("INVALID_ARGUMENT", "too large",
             changed(lambda r: i(r).shape.__setitem__(0, 1 << 62))),
            ("INVALID_ARGUMENT", "shape", changed(lambda r: i(r).shape.extend([1] * 8))),
            ("INVALID_ARGUMENT", "more outputs",
             changed(lambda r: [r.outputs.add(name="logits") for _ in "ab"])),
            ("INVALID_ARGUMENT", "100% \u00fc\n",
             changed(lambda r: r.outputs.add(name="100% \u00fc\n"))),
            ("INVALID_ARGUMENT", "datatype", changed(lambda r: setattr(i(r), "datatype", "X"))),
            ("INVALID_ARGUMENT", "image", changed(lambda r: setattr(i(r), "datatype", "INT32"))),
            ("UNIMPLEMENTED", "BYTES", changed(lambda r: setattr(i(r), "datatype", "BYTES"))),
            ("INVALID_ARGUMENT", "values",
             changed(lambda r: i(r).contents.fp32_contents.pop(), typed=True)),
            ("INVALID_ARGUMENT", "another type",
             changed(lambda r: i(r).contents.int_contents.append(1), typed=True)),
            ("INVALID_ARGUMENT", "malformed", b"\xff\xff\xff"),
            ("INVALID_ARGUMENT", "memory", b"\x2a\x00" * (MAX_REQUEST // 2 - 1)),
            # Empty entries of maps, of the request and of an input; fields that nobody knows.
            ("INVALID_ARGUMENT", "memory",
             self.request(self.x[:1]).SerializeToString() + b"\x22\x00" * 65),
            ("INVALID_ARGUMENT", "memory",
             self.request(self.x[:1]).SerializeToString() + b"\x2a\x84\x01" + b"\x22\x00" * 66),
            ("INVALID_ARGUMENT", "memory",
             self.request(self.x[:1]).SerializeToString() + b"\x98\x06\x01" * 65),
            ("RESOURCE_EXHAUSTED", "larger", b"x" * (MAX_REQUEST + 1)),
        ]
        for kind, value in (("string_param", "5"), ("bool_param", True), ("int64_param", -1), ("double_param", 0.5)):
            wrong.append(("INVALID_ARGUMENT", "timeout",
                          changed(lambda r: setattr(r.parameters["timeout"], kind, value))))
        shared = changed(lambda r: None)
        shared.inputs[0].parameters["shared_memory_region"].string_param = "x"
        classes = changed(lambda r: r.outputs.add(name="logits"))
        classes.outputs[0].parameters["classification"].int64_param = 1025
        wrong += [("UNIMPLEMENTED", "shared memory", shared),
                  ("INVALID_ARGUMENT", "at most 1024 classes", classes)]
        for code, text, request in wrong:
            got = self.error(request)
            assert got[0] == code and text in got[1], (code, text, got)

    def test_wrong_calls(self):
        assert self.error(b"", path="/a/b")[0] == "UNIMPLEMENTED"
        # What is read on the loop's thread is small: all but ModelInfer.
        got = self.error(b"\x98\x06\x01" * 1366, path=SERVICE + "ServerLive")
        assert got[0] == "RESOURCE_EXHAUSTED" and "4096" in got[1], got

    def test_classes(self):
        """The largest elements of each row as VALUE:INDEX, in BYTES."""
        r = self.request(self.x[:5])
        r.outputs.add(name="logits").parameters["classification"].int64_param = 3
        answer = self.call("ModelInfer", r)
        o, raw, got = answer.outputs[0], answer.raw_output_contents[0], []
        assert o.datatype == "BYTES" and list(o.shape) == [5, 3], o
        while raw:
            n = struct.unpack_from("<I", raw)[0]
            value, at = raw[4:4 + n].decode().split(":")
            got.append((int(at), float(value)))
            raw = raw[4 + n:]
        best = np.argsort(-self.y[:5], axis=1)[:, :3].ravel()
        assert [at for at, _ in got] == best.tolist(), got
        assert np.abs(np.array([v for _, v in got]).reshape(5, 3) - np.take_along_axis(self.y[:5], best.reshape(5, 3), 1)).max() < 1e-3

    # -- Load and faults ---------------------------------------------------------------------

    def test_many_at_once(self):
        channels = [grpc.insecure_channel(self.server.target, options=[("weft.channel", k)])
                    for k in range(3)]
        infer = [self.method(SERVICE + "ModelInfer", self.pb.ModelInferResponse, c)
                 for c in channels]
        calls = []
        for k in range(600):
            n = k % len(self.x)
            calls.append((n, infer[k % 3].future(self.request(self.x[n:n + 1]), timeout=60 * SLOW)))
        for n, call in calls:
            assert self.is_close(self.logits(call.result()), self.y[n:n + 1])

    def test_large_messages(self):
        n = (MAX_REQUEST - 4096) // self.x[0].nbytes
        x = np.resize(self.x, (n,) + self.x.shape[1:])
        want = np.resize(self.y, (n,) + self.y.shape[1:])
        calls = [self.method(SERVICE + "ModelInfer", self.pb.ModelInferResponse).future(
            self.request(x), timeout=60 * SLOW) for _ in range(3)]
        for call in calls:
            assert self.is_close(self.logits(call.result()), want)

    def test_cancelled_calls(self):
        infer = self.method(SERVICE + "ModelInfer", self.pb.ModelInferResponse)
        for k in range(200):
            call = infer.future(self.request(np.resize(self.x, (64, 1, 8, 8))), timeout=60 * SLOW)
            if k % 4:
                time.sleep(0.0005 * (k % 4))
            call.cancel()
        self.test_infer_raw()

    def test_lost_clients(self):
        before = self.server.descriptors()
        rng = random.Random(1)
        body = self.request(self.x[:1]).SerializeToString()
        end = time.time() + 3
        while time.time() < end:
            s = socket.create_connection(("127.0.0.1", self.server.port))
            try:
                s.sendall(hostile_bytes(rng, body))
                s.settimeout(rng.choice([0.0005, 0.01]))
                s.recv(65536)
            except OSError:
                pass
            if rng.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        self.test_infer_raw()
        end = time.time() + 10
        while self.server.descriptors() > before + 2 and time.time() < end:
            time.sleep(0.1)
        assert self.server.descriptors() <= before + 2, "descriptors were left open"

    def test_killed_worker(self):
        infer = self.method(SERVICE + "ModelInfer", self.pb.ModelInferResponse)
        calls = [infer.future(self.request(self.x[:1]), timeout=60 * SLOW) for _ in range(100)]
        for pid in self.server.workers():
            os.kill(pid, signal.SIGKILL)
        calls += [infer.future(self.request(self.x[:1]), timeout=60 * SLOW) for _ in range(100)]
        for call in calls:
            assert self.is_close(self.logits(call.result()), self.y[:1])

    def test_triton_client(self):
        if not triton:
            print("  (no tritonclient)")
            return
        c = triton.InferenceServerClient(self.server.target)
        assert c.is_server_live() and c.is_server_ready() and c.is_model_ready("digits")
        assert c.get_model_metadata("digits").name == "digits"
        assert c.get_model_config("digits").config.max_batch_size > 1
        i = triton.InferInput("image", [4, 1, 8, 8], "FP32")
        i.set_data_from_numpy(self.x[:4])
        wanted = [triton.InferRequestedOutput("logits")]
        r = c.infer("digits", [i], outputs=wanted, request_id="a", timeout=9000000, priority=1)
        assert self.is_close(r.as_numpy("logits"), self.y[:4]) and r.get_response().id == "a"
        assert c.get_inference_statistics("digits").model_stats[0].inference_count > 0

    def test_z_drain(self):
        infer = self.method(SERVICE + "ModelInfer", self.pb.ModelInferResponse)
        calls = [infer.future(self.request(self.x[:1]), timeout=60 * SLOW) for _ in range(300)]
        calls[0].result()
        self.server.process.terminate()
        done = 0
        for call in calls:
            if call.exception() is None:
                assert self.is_close(self.logits(call.result()), self.y[:1])
                done += 1
            else:
                assert call.code() == grpc.StatusCode.UNAVAILABLE, call.exception()
        assert done > 0 and self.server.process.wait(20) == 0


def hostile_bytes(rng, body):
    """Bytes of a broken or hostile client: HTTP/2 frames, half of them damaged."""
    def frame(kind, flags, stream, payload):
        length = struct.pack(">I", len(payload))[1:]
        return length + struct.pack(">BBI", kind, flags, stream) + payload

    def literal(name, value):
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    head = (literal(b":method", b"POST") + literal(b":scheme", b"http") +
            literal(b":path", SERVICE.encode() + b"ModelInfer") +
            literal(b"content-type", b"application/grpc"))
    message = b"\0" + struct.pack(">I", len(body)) + body
    out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    for stream in range(1, 2 * rng.randint(1, 6), 2):
        out += rng.choice([
            lambda: frame(1, 4, stream, head) + frame(0, 1, stream, message),
            lambda: frame(1, 5, stream, head),
            lambda: frame(1, 4, stream, head) + frame(0, 0, stream, message[:20]),
            lambda: (frame(1, 4, stream, head) + frame(0, 1, stream, message) +
                     frame(3, 0, stream, b"\0\0\0\x08")),
            lambda: frame(1, 4, stream, head + literal(b"grpc-timeout", b"x")),
            lambda: frame(1, 4, stream, head) + frame(0, 1, stream, message + b"more"),
            lambda: frame(1, 4, stream, head) + frame(0, 1, stream, b"\1" + message[1:]),
            lambda: frame(1, 4, stream, head + literal(b"long", b"v" * 100) * 300),
            lambda: frame(6, 0, 0, b"12345678") * 100,
        ])()
    if rng.random() < 0.1:
        return rng.choice([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(256)) * 9])
    damaged = bytearray(out)
    for _ in range(rng.choice([0, 0, 1, 3])):
        damaged[rng.randrange(24, len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def main(weft, examples, proto, protoc="protoc-c"):
    with tempfile.TemporaryDirectory() as folder:
        bundle, log = os.path.join(folder, "digits.weft"), os.path.join(folder, "log")
        subprocess.run([weft, "compile", os.path.join(examples, "digits.yaml"), "-o", bundle,
                        "--batch", f"1,2,4,8,{MAX_REQUEST // 256}"], check=True)
        server = Server(weft, bundle, log)
        try:
            test = Test(server, Messages(proto, protoc, folder), examples)
            for name in sorted(n for n in dir(test) if n.startswith("test_")):
                print(name, flush=True)
                getattr(test, name)()
        except BaseException:
            with open(log) as f:
                print("the server's log:", f.read())
            raise
        finally:
            if server.process.poll() is None:
                server.process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
