# needs: grpc numpy google.protobuf
# ctest label: both (memory is measured)
"""gRPC beyond one message each way: compressed messages, streams of inferences, reflection, settings of log and traces;
by grpcio and by single frames, and by Triton's client and grpcio-reflection where they are installed (WEFT_CLIENTS)."""
import gzip
import os
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

sys.path[:0] = [p for p in os.environ.get("WEFT_CLIENTS", "").split(":") if p]
import grpc
import numpy as np
from grpc_client import Messages, Test
from http2 import (ACK, DATA, EMPTY, END_HEADERS, END_STREAM, HEADERS, PING, Connection, frame, head, infer_message,
                   literal)
from serving import SLOW, Server, digits, is_close, is_sanitized, wait_until

try:
    import tritonclient.grpc as triton
except ImportError:
    triton = None
try:
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
except ImportError:
    ProtoReflectionDescriptorDatabase = None

x, want = digits()
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
MAX_REQUEST = 1 << 20
# A sanitizer keeps some of what was freed.
MORE_MIB = 700 if is_sanitized() else 100


def exchange(server, message, encoding):
    """Header blocks and data that answer a compressed message, sent by frames."""
    c = Connection(server, timeout=20 * SLOW)
    fields = literal(b"grpc-encoding", encoding) if encoding else b""
    data = b"\1" + struct.pack(">I", len(message)) + message
    c.send(frame(HEADERS, END_HEADERS, 1, head(b"ModelInfer", fields)))
    for at in range(0, len(data), 16384):  # the largest frame that needs no agreement
        c.send(frame(DATA, 0, 1, data[at:at + 16384]))
    c.send(frame(DATA, END_STREAM, 1))
    got = c.answer()
    c.close()
    return got


def has_status(server, status, message, encoding):
    """Whether the answer's headers have it; values so short are not coded by Huffman."""
    return bytes([len(str(status))]) + str(status).encode() in exchange(server, message, encoding)[0]


def check_compression(test, server):
    infer = test.method("/inference.GRPCInferenceService/ModelInfer", test.pb.ModelInferResponse)
    for how in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        for n in (1, 3, 800):  # at once, and beside the loop
            rows = np.resize(x, (n, 1, 8, 8))
            answer = infer(test.request(rows), timeout=60 * SLOW, compression=how)
            assert is_close(test.logits(answer), np.resize(want, (n, 10)))
    # The answer is packed as the request was.
    rows = np.resize(x, (200, 1, 8, 8))
    _, data = exchange(server, zlib.compress(infer_message(rows)[5:]), b"deflate")
    answer = test.pb.ModelInferResponse.FromString(zlib.decompress(data[5:]))
    assert data[0] == 1 and is_close(test.logits(answer), np.resize(want, (200, 10)))
    # Errors of a request, packed or not.
    got = test.error(test.request(x[:1], model="none"), compression=grpc.Compression.Gzip)
    assert got[0] == "NOT_FOUND", got

    message = infer_message(x[:1])[5:]
    packed, bomb = gzip.compress(message), zlib.compress(bytes(64 << 20))
    verbose = test.pb.LogSettingsRequest()
    verbose.settings["log_verbose_level"].uint32_param = 1  # the log has the texts of errors
    test.call("LogSettings", verbose)
    for status, text, part, encoding in (
            (3, "the compressed message is damaged", packed[:-9], b"gzip"),
            (3, "the compressed message is damaged", packed + b"x", b"gzip"),
            (3, "the compressed message is damaged", b"nothing", b"deflate"),
            (12, "messages may be compressed by gzip and deflate only", packed, b"zstd"),
            (13, "grpc-encoding is not set", packed, b""),
            (13, "grpc-encoding is not set", packed, b"identity"),
            (8, "more than 1048576 bytes when it is unpacked", bomb, b"deflate"),
            (8, "more than 1048576 bytes when it is unpacked", gzip.compress(bytes(2 << 20)), b"gzip")):
        seen = server.text().count(text)
        assert has_status(server, status, part, encoding), (status, text, encoding)
        wait_until(lambda: server.text().count(text) == seen + 1)
    verbose.settings["log_verbose_level"].uint32_param = 0
    verbose.settings["log_info"].bool_param = False
    test.call("LogSettings", verbose)
    before = server.memory_mib()
    for _ in range(40):
        exchange(server, bomb, b"deflate")
    assert server.memory_mib() < before + MORE_MIB, (before, server.memory_mib())
    # One that fills the limit of ratio and of size is taken: an input that is all zero.
    zeros = np.zeros((3000, 1, 8, 8), "f4")
    answer = infer(test.request(zeros), timeout=60 * SLOW, compression=grpc.Compression.Gzip)
    assert test.logits(answer).shape == (3000, 10)


class Talk:
    """A stream of inferences: requests are put, answers taken by id."""

    def __init__(self, test, **options):
        self.requests = queue.Queue()
        call = test.channel.stream_stream(STREAM, request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=test.pb.ModelStreamInferResponse.FromString)
        self.call = call(iter(self.requests.get, None), **{"timeout": 60, **options})

    def put(self, request):
        self.requests.put(request)

    def take(self, n):
        out = {}
        for _ in range(n):
            answer = next(self.call)
            assert answer.infer_response.parameters["triton_final_response"].bool_param
            assert answer.infer_response.id not in out
            out[answer.infer_response.id] = answer
        return out

    def finish(self):
        self.requests.put(None)
        assert list(self.call) == []
        return self.call.code().name


def request(test, i, **options):
    r = test.request(x[i:i + 1], **options)
    r.id = f"no {i}"
    return r


def check_stream(test):
    for options in ({}, {"compression": grpc.Compression.Gzip}):
        talk = Talk(test, **options)
        talk.put(request(test, 0))
        assert is_close(test.logits(talk.take(1)["no 0"].infer_response), want[:1])
        for i in range(300):
            talk.put(request(test, i))
        for id, answer in talk.take(300).items():
            i = int(id.split()[1])
            assert is_close(test.logits(answer.infer_response), want[i:i + 1])
        assert talk.finish() == "OK"
    # Nothing at all; and more than may run at once, of which none is refused.
    assert Talk(test).finish() == "OK"
    talk = Talk(test)
    for i in range(3000):
        talk.put(request(test, i % len(x)) if i < len(x) else request(test, 0))
    talk.requests.put(None)
    answers = list(talk.call)
    assert len(answers) == 3000 and not any(a.error_message for a in answers), len(answers)


def check_stream_errors(test):
    talk = Talk(test)
    talk.put(request(test, 1, model="none"))
    wrong = request(test, 2)
    wrong.inputs[0].shape[0] = 2
    talk.put(wrong)
    talk.put(request(test, 3))
    got = talk.take(3)
    assert "none" in got["no 1"].error_message and "bytes" in got["no 2"].error_message, got
    assert not got["no 3"].error_message and is_close(test.logits(got["no 3"].infer_response), want[3:4])
    assert talk.finish() == "OK"

    def failing(requests, code, **options):
        talk = Talk(test, **options)
        for r in requests:
            talk.put(r)
        try:
            for _ in talk.call:
                pass
        except grpc.RpcError as e:
            assert e.code().name == code, e
            return e.details()
        raise AssertionError("no error")

    failing([request(test, 1, model="none")], "NOT_FOUND", metadata=[("triton_grpc_error", "true")])
    large = test.request(np.zeros((MAX_REQUEST // 256 + 1, 1, 8, 8), "f4"))
    assert "larger" in failing([request(test, 0), large], "RESOURCE_EXHAUSTED")
    failing([], "DEADLINE_EXCEEDED", timeout=0.3)


def check_stream_ends(test, server):
    """Clients that leave, in the middle of a message or with requests under way."""
    before = server.memory_mib()
    for i in range(30):
        talk = Talk(test)
        for k in range(20):
            talk.put(test.request(np.resize(x, (500, 1, 8, 8))))
        if i % 2:
            next(talk.call)
        talk.call.cancel()
    for i in range(30):
        c = Connection(server)
        c.send(frame(HEADERS, END_HEADERS, 1, head(b"ModelStreamInfer")) +
               frame(DATA, 0, 1, infer_message(x[:1]) * 3 + infer_message(x[:2])[:-20 - i]))
        if i % 2:
            c.send(frame(DATA, END_STREAM, 1))
            c.until(lambda kind, flags: kind == HEADERS and flags & END_STREAM)
        c.close()
    assert is_close(test.logits(test.call("ModelInfer", test.request(x[:2]))), want[:2])
    assert server.memory_mib() < before + MORE_MIB, (before, server.memory_mib())


def check_long_times(server):
    """The longest times that a client can give, centuries, are not over at once."""
    for method in (b"ModelInfer", b"ModelStreamInfer"):
        for text in (b"35868669H", b"99999999H"):
            c = Connection(server, timeout=20)
            c.send(frame(HEADERS, END_HEADERS, 1, head(method, literal(b"grpc-timeout", text))) +
                   frame(DATA, END_STREAM, 1, infer_message(x[:1])))
            headers, data = c.answer()
            assert len(data) > want[:1].nbytes, (method, text, headers, data)
            c.close()


def check_idle_reader(server):
    """A client that takes no answers: the server holds a bounded number, and serves others."""
    c = Connection(server, settings=struct.pack(">HI", 4, 0))  # SETTINGS_INITIAL_WINDOW_SIZE 0
    c.send(frame(HEADERS, END_HEADERS, 1, head(b"ModelStreamInfer")))
    one = frame(DATA, 0, 1, infer_message(x[:1]) * 20)
    before = server.memory_mib()
    c.flood((one for _ in range(2000)), seconds=3)
    assert server.memory_mib() < before + MORE_MIB, (before, server.memory_mib())
    c.close()


def is_answered(test):
    try:
        test.call("ModelInfer", test.request(x[:1]))
        return True
    except grpc.RpcError as e:
        assert "too many requests" in e.details(), e
        return False


def check_many_waiting(test, server):
    """Answers that nobody takes, of the shortest messages on many streams: each costs the server more than its bytes."""
    c = Connection(server, settings=struct.pack(">HI", 4, 0))
    before = server.memory_mib()
    streams = range(1, 401, 2)
    c.send(b"".join(frame(HEADERS, END_HEADERS, i, head(b"ModelStreamInfer")) for i in streams))
    c.flood((frame(DATA, 0, i, EMPTY * 2000) for i in streams), seconds=20)
    c.send(frame(PING, 0, 0, b"answered"))
    c.until(lambda kind, flags: kind == PING and flags & ACK)
    assert server.memory_mib() < before + MORE_MIB, (before, server.memory_mib())
    c.close()
    wait_until(lambda: is_answered(test))  # when what its socket still had is read and dropped


def check_ends_together(test, server):
    """Requests of one stream whose time is over in the same moment: the first ends the stream, and with it the others."""
    worker = server.workers()[0]
    for _ in range(3):
        talk = Talk(test, metadata=[("triton_grpc_error", "true")])
        os.kill(worker, signal.SIGSTOP)
        for i in range(20):
            r = request(test, i)
            r.parameters["timeout"].int64_param = 200000
            talk.put(r)
        try:
            next(talk.call)
            raise AssertionError("no error")
        except grpc.RpcError as e:
            # Of later rounds: the server may have learnt that it is late.
            assert "deadline passed" in e.details() or "answered" in e.details(), e
        finally:
            os.kill(worker, signal.SIGCONT)
        talk.requests.put(None)
    assert is_close(test.logits(test.call("ModelInfer", test.request(x[:2]))), want[:2])


def check_reflection(test):
    pb = test.pb
    for version in ("v1", "v1alpha"):
        talk = test.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=pb.ServerReflectionResponse.FromString)

        def ask(**what):
            return next(talk(iter([pb.ServerReflectionRequest(host="h", **what)]), timeout=20 * SLOW))
        services = [s.name for s in ask(list_services="").list_services_response.service]
        assert services == ["inference.GRPCInferenceService", "grpc.health.v1.Health",
                            "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"], services
        for symbol in services + ["inference.ModelInferRequest.InferInputTensor", "inference.DataType",
                                  "grpc.health.v1.Health.Check", "grpc.health.v1.HealthCheckResponse.ServingStatus"]:
            files = ask(file_containing_symbol=symbol).file_descriptor_response.file_descriptor_proto
            assert len(files) == 1 and symbol.split(".")[-1].encode() in files[0], symbol
        assert ask(file_by_filename="grpc_health.proto").file_descriptor_response.file_descriptor_proto
        for what in ({"file_containing_symbol": "inference.None"}, {"file_containing_symbol": "inference"},
                     {"file_containing_symbol": ""}, {"file_by_filename": "/etc/passwd"},
                     {"all_extension_numbers_of_type": "x"}):
            answer = ask(**what)
            assert answer.error_response.error_code == 5 and answer.original_request.host == "h", (what, answer)
    if ProtoReflectionDescriptorDatabase:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(test.channel))
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        assert service.FindMethodByName("ModelStreamInfer").output_type.fields_by_name["infer_response"]
        assert pool.FindServiceByName("grpc.health.v1.Health").FindMethodByName("Check")
    else:
        print("(no grpcio-reflection)")


def check_settings(test):
    pb = test.pb

    def log(**settings):
        r = pb.LogSettingsRequest()
        for name, value in settings.items():
            kind = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
            setattr(r.settings[name], kind, value)
        answer = test.call("LogSettings", r).settings
        return {name: getattr(v, v.WhichOneof("parameter_choice")) for name, v in answer.items()}
    first = log()
    assert first == {"log_file": "", "log_info": False, "log_warning": True, "log_error": True,
                     "log_verbose_level": 0, "log_format": "default"}, first
    assert log(log_verbose_level=1)["log_info"] is True
    assert log(log_verbose_level=0, log_info=False) == first

    def trace(**settings):
        r = pb.TraceSettingRequest()
        for name, value in settings.items():
            r.settings[name].value.extend([value] if value else [])
        return {name: list(v.value) for name, v in test.call("TraceSetting", r).settings.items()}
    assert trace()["trace_level"] == ["TIMESTAMPS"] and trace()["trace_rate"] == ["1"], trace()
    assert trace(trace_rate="10", trace_count="-1")["trace_rate"] == ["10"]
    assert trace(trace_level="OFF")["trace_level"] == ["OFF"]
    spans = os.path.getsize("spans")
    for i in range(5):
        test.call("ModelInfer", test.request(x[:1]))
    time.sleep(0.2)
    assert os.path.getsize("spans") == spans
    assert trace(trace_level=None, trace_rate=None) == {**trace(), "trace_level": ["TIMESTAMPS"], "trace_rate": ["1"]}
    test.call("ModelInfer", test.request(x[:1]))
    wait_until(lambda: os.path.getsize("spans") > spans)
    for wrong in ({"trace_level": "TENSORS"}, {"trace_rate": "0"}, {"trace_file": "/tmp/x"}, {"trace_count": "5"}):
        try:
            trace(**wrong)
        except grpc.RpcError as e:
            assert e.code().name == "INVALID_ARGUMENT" and next(iter(wrong)) in e.details(), e
        else:
            raise AssertionError(wrong)


def check_triton(server):
    if not triton:
        print("(no tritonclient)")
        return
    c = triton.InferenceServerClient(f"127.0.0.1:{server.grpc}")
    image = triton.InferInput("image", [3, 1, 8, 8], "FP32")
    image.set_data_from_numpy(x[:3])
    for how in ("gzip", "deflate"):
        r = c.infer("digits", [image], compression_algorithm=how)
        assert is_close(r.as_numpy("logits"), want[:3])
    for how in (None, "gzip"):
        got = queue.Queue()
        c.start_stream(lambda result, error: got.put((result, error)), compression_algorithm=how)
        for i in range(20):
            c.async_stream_infer("digits", [image], request_id=str(i), enable_empty_final_response=True)
        answers = [got.get(timeout=30 * SLOW) for _ in range(20)]
        assert all(error is None for _, error in answers)
        assert sorted(int(r.get_response().id) for r, _ in answers) == list(range(20))
        assert all(is_close(r.as_numpy("logits"), want[:3]) for r, _ in answers)
        c.async_stream_infer("none", [image], request_id="wrong")
        result, error = got.get(timeout=30 * SLOW)
        assert result is None and "none" in error.message(), error
        c.stop_stream()
    assert c.get_log_settings(as_json=True)["settings"]["log_error"]["bool_param"]
    assert c.update_log_settings({"log_verbose_level": 1, "log_info": True}).settings["log_verbose_level"].uint32_param == 1
    assert c.get_trace_settings().settings["trace_level"].value[0] == "TIMESTAMPS"
    assert c.update_trace_settings(settings={"trace_rate": "5"}).settings["trace_rate"].value[0] == "5"
    assert c.get_inference_statistics("digits").model_stats[0].memory_usage[0].byte_size > 7500


def main(weft, examples, proto, protoc):
    subprocess.run([weft, "compile", os.path.join(examples, "digits.yaml"), "-o", "models.weft",
                    "--batch", "1,2,4,8,4096"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        messages = Messages(proto, protoc, folder)
    with Server("--max-request", str(MAX_REQUEST), "--trace-file", "spans") as server:
        server.target = f"127.0.0.1:{server.grpc}"
        test = Test(server, messages, examples)
        for check in (check_compression, check_stream, check_stream_errors, check_stream_ends, check_ends_together,
                      check_reflection, check_settings):
            with_server = check in (check_compression, check_stream_ends, check_ends_together)
            check(*([test, server] if with_server else [test]))
            print(check.__name__, flush=True)
        check_long_times(server)
        check_idle_reader(server)
        check_many_waiting(test, server)
        check_triton(server)
        # A drain ends a stream that is open, behind its answers; one that the client has ended gets all of its own.
        talk = Talk(test)
        for i in range(10):
            talk.put(request(test, i))
        talk.take(1)
        worker = server.workers()[0]
        os.kill(worker, signal.SIGSTOP)
        whole = Talk(test)
        for i in range(10):
            whole.put(request(test, i))
        whole.requests.put(None)
        threading.Timer(0.2, server.process.terminate).start()
        threading.Timer(0.5, os.kill, (worker, signal.SIGCONT)).start()
        try:
            assert len(list(talk.call)) == 9
        except grpc.RpcError as e:
            assert e.code().name == "UNAVAILABLE", e
        assert len(list(whole.call)) == 10 and whole.call.code().name == "OK", whole.call.code()
        assert server.process.wait(30) == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
