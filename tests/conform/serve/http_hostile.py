# needs: numpy
"""Invalid requests, each with its status; clients that misbehave; the server still answers after all
of them."""
import gzip
import json
import os
import resource
import socket
import struct
import threading
import time

import numpy as np
from serving import Server, compile_bundle, digits, is_close, tensor

have = compile_bundle()
x, want = digits()
MAX_REQUEST = 1 << 20
GOOD = {"inputs": [tensor("image", x[:1])]}
ONE = x[:1].tobytes()


def image(**changes):
    """The valid input with changes; None removes a key."""
    t = dict(tensor("image", x[:1]), **changes)
    return {"inputs": [{k: v for k, v in t.items() if v is not None}]}


def sized(size):
    return image(data=None, parameters={"binary_data_size": size})


LENGTH = "Inference-Header-Content-Length"
nested = lambda n: b'{"inputs":' + b"[" * n + b"]" * n + b"}"

# Name, status, word in the error, request (object or bytes), binary part, headers.
BAD_REQUESTS = [
    ("empty body", 400, "", b""),
    ("no JSON", 400, "JSON", b"nonsense"),
    ("cut JSON", 400, "JSON", json.dumps(GOOD).encode()[:-3]),
    ("text behind", 400, "JSON", json.dumps(GOOD).encode() + b"{}"),
    ("array", 400, "object", b"[]"),
    ("no UTF-8", 400, "JSON", b'{"id":"\xff\xfe"}'),
    ("NUL in a name", 400, "JSON", b'{"inputs":[{"name":"a\\u0000b"}]}'),
    ("key twice", 400, "JSON", b'{"id":"a","id":"b"}'),
    ("parameter twice", 400, "twice", json.dumps(GOOD).encode()[:-1] + b',"parameters":{"timeout":9000000,"timeout":1}}'),
    ("parameters twice", 400, "twice", json.dumps(GOOD).encode()[:-1] + b',"parameters":{},"parameters":{}}'),
    ("parameters of an output twice", 400, "twice",
     json.dumps(GOOD).encode()[:-1] + b',"outputs":[{"name":"logits","parameters":{},"parameters":{"binary_data":true}}]}'),
    ("parameter of an output twice", 400, "twice",
     json.dumps(GOOD).encode()[:-1] + b',"outputs":[{"name":"logits","parameters":{"binary_data":false,"binary_data":true}}]}'),
    ("parameter twice, once with escapes", 400, "twice",
     json.dumps(GOOD).encode()[:-1] + b',"parameters":{"binary_data_output":false,"binary_data_\\u006futput":true}}'),
    ("half a surrogate pair", 400, "JSON", b'{"id":"\\ud83d","inputs":[]}'),
    ("surrogates in the wrong order", 400, "JSON", b'{"id":"\\ude00\\ud83d","inputs":[]}'),
    ("huge exponent", 400, "FP32", json.dumps(image(data=[7] * 64)).replace("7,", "1e99999999999999999999,", 1).encode()),
    ("timeout with an exponent that is no integer", 400, "timeout",
     json.dumps(GOOD).encode()[:-1] + b',"parameters":{"timeout":1e-9}}'),
    ("timeout over 64 bits", 400, "timeout", json.dumps(GOOD).encode()[:-1] + b',"parameters":{"timeout":1e30}}'),
    ("no inputs", 400, "inputs", {}),
    ("inputs no array", 400, "inputs", {"inputs": {"name": "image"}}),
    ("no input", 400, "missing", {"inputs": []}),
    ("input no object", 400, "name", {"inputs": [1]}),
    ("no name", 400, "name", image(name=None)),
    ("name a number", 400, "name", image(name=3)),
    ("unknown input", 400, "no-such", image(name="no-such")),
    ("name of bytes that are cut", 400, "no input", image(name="\u20ac" * 100)),
    ("input twice", 400, "twice", {"inputs": GOOD["inputs"] * 2}),
    ("no datatype", 400, "datatype", image(datatype=None)),
    ("unknown datatype", 400, "FP31", image(datatype="FP31")),
    ("BYTES", 501, "BYTES", image(datatype="BYTES")),
    ("other datatype", 400, "image", image(datatype="INT64", data=[1] * 64)),
    ("no shape", 400, "shape", image(shape=None)),
    ("shape no array", 400, "shape", image(shape="1,1,8,8")),
    ("shape of text", 400, "dimension", image(shape=["1", 1, 8, 8])),
    ("shape of fractions", 400, "dimension", image(shape=[1.5, 1, 8, 8])),
    ("negative dimension", 400, "dimension", image(shape=[-1, 1, 8, 8])),
    ("two negative dimensions", 400, "dimension", image(shape=[-1, -1, 8, 8])),
    ("no rank", 400, "image", image(shape=[], data=[1])),
    ("other rank", 400, "image", image(shape=[1, 8, 8])),
    ("rank too high", 400, "shape", image(shape=[1] * 100, data=[1])),
    ("other dimension", 400, "image", image(shape=[1, 1, 4, 16])),
    ("batch of nothing", 400, "image", image(shape=[0, 1, 8, 8], data=[])),
    ("shape over int64", 400, "JSON", json.dumps(GOOD).replace("[1,", "[99999999999999999999,", 1).encode()),
    ("product over int64", 400, "large", image(shape=[2**40, 2**40, 8, 8])),
    ("product wraps to 64", 400, "large", image(shape=[2**32, 2**32, 8, 8])),
    ("shape without data", 400, "data", image(shape=[2**30, 1, 8, 8])),
    ("no data", 400, "data", image(data=None)),
    ("data a number", 400, "data", image(data=1)),
    ("data of text", 400, "numbers", image(data=["1"] * 64)),
    ("data of objects", 400, "numbers", image(data=[{}] * 64)),
    ("data of null", 400, "numbers", image(data=[None] * 64)),
    ("NaN", 400, "JSON", image(data=[float("nan")] * 64)),
    ("number over double", 400, "JSON", json.dumps(image(data=[7] * 64)).replace("7,", "1e999,", 1).encode()),
    ("too little data", 400, "63", image(data=[0] * 63)),
    ("too much data", 400, "more", image(data=[0] * 65)),
    ("ragged data", 400, "more", image(data=[[0] * 64, [1]])),
    ("nested 100 deep", 400, "", nested(99)),
    ("nested 101 deep", 400, "deep", nested(100)),
    ("nested very deep", 400, "deep", nested(100000)),
    ("only brackets", 400, "deep", b"[" * 500000),
    ("unknown output", 400, "no-such", dict(GOOD, outputs=[{"name": "no-such"}])),
    ("outputs no array", 400, "outputs", dict(GOOD, outputs={"name": "logits"})),
    ("output no object", 400, "output", dict(GOOD, outputs=["logits"])),
    ("output twice", 400, "", dict(GOOD, outputs=[{"name": "logits"}] * 2)),
    ("very many outputs", 400, "outputs", dict(GOOD, outputs=[{"name": "logits"}] * 10000)),
    ("too many classes", 400, "at most 1024 classes",
     dict(GOOD, outputs=[{"name": "logits", "parameters": {"classification": 1025}}])),
    ("classes of text", 400, "classification", dict(GOOD, outputs=[{"name": "logits", "parameters": {"classification": "3"}}])),
    ("classes in shared memory", 501, "shared memory",
     dict(GOOD, outputs=[{"name": "logits", "parameters": {"classification": 3, "shared_memory_region": "a"}}])),
    ("shared memory in", 501, "shared memory", image(parameters={"shared_memory_region": "a"})),
    ("shared memory out", 501, "shared memory",
     dict(GOOD, outputs=[{"name": "logits", "parameters": {"shared_memory_region": "a"}}])),
    ("size of text", 400, "binary_data_size", sized("256"), ONE),
    ("negative size", 400, "binary_data_size", sized(-256), ONE),
    ("size too small", 400, "binary_data_size", sized(252), ONE),
    ("size too large", 400, "binary_data_size", sized(260), ONE + b"1234"),
    ("size huge", 400, "binary_data_size", sized(2**62), ONE),
    ("body too short", 400, "ends", sized(256), ONE[:-1]),
    ("body too long", 400, "follow", sized(256), ONE + b"1"),
    ("bytes without an input", 400, "follow", GOOD, b"12345678"),
    ("length over the body", 400, LENGTH, GOOD, b"", {LENGTH: "100000"}),
    ("length over 64 bits", 400, LENGTH, GOOD, b"", {LENGTH: "9" * 30}),
    ("negative length", 400, LENGTH, GOOD, b"", {LENGTH: "-1"}),
    ("length no number", 400, LENGTH, GOOD, b"", {LENGTH: "12a"}),
    ("length empty", 400, LENGTH, GOOD, b"", {LENGTH: ""}),
    ("length inside JSON", 400, "JSON", GOOD, b"", {LENGTH: "20"}),
    ("raw, too short", 400, "image", b"1234", b"", {LENGTH: "0"}),
    ("raw, empty", 400, "image", b"", b"", {LENGTH: "0"}),
    ("unknown encoding", 501, "zstd", GOOD, b"", {"Content-Encoding": "zstd"}),
    ("no gzip", 400, "damaged", GOOD, b"", {"Content-Encoding": "gzip"}),
    ("cut gzip", 400, "damaged", gzip.compress(json.dumps(GOOD).encode())[:-20], b"",
     {"Content-Encoding": "gzip"}),
    ("bomb", 400, "larger", gzip.compress(bytes(1 << 28)), b"", {"Content-Encoding": "gzip"}),
    ("length of the packed body", 400, "", gzip.compress(json.dumps(GOOD).encode()), b"",
     {"Content-Encoding": "gzip", LENGTH: "100000"}),
    ("oversize", 400, "larger", b" " * (MAX_REQUEST + 1)),
]

BAD_ROUTES = [
    ("GET", "/", 404), ("GET", "/v3", 404), ("GET", "/v2/nothing", 404), ("GET", "/v2/health", 404),
    ("GET", "/v2/models", 404), ("GET", "/v2/models/digits/nothing", 404),
    ("GET", "/v2/models/none", 404), ("GET", "/v2/models/none/ready", 404),
    ("GET", "/v2/models/none/stats", 404), ("POST", "/v2/models/none/infer", 404),
    ("GET", "/v2/models/digits/versions/2", 404), ("GET", "/v2/models/digits/versions/x", 404),
    ("GET", "/v2/models/digits/versions/01", 404), ("GET", "/v2/models/digits/versions", 404),
    ("POST", "/v2/models/digits/versions/2/infer", 404),
    ("GET", "/v2/models/digi", 404), ("GET", "/v2/models/digitss", 404),
    ("GET", "/v2/models/%ff%fe", 404), ("GET", "/v2/models/%25s%25n", 404),
    ("GET", "/v2/models/" + "a" * 2000, 404), ("GET", "/v2" * 500, 404), ("GET", "/v2/models/" + "a" * 9000, 414),
    # Paths that proxies and servers read in different ways.
    ("GET", "/v2/models/../../etc/passwd", 400), ("GET", "/v2/models/%2e%2e%2fetc", 400),
    ("GET", "/v2/models%2Fdigits", 400), ("POST", "/v2/models%2Fdigits/infer", 400),
    ("POST", "/v2/models%2fdigits%2finfer", 400), ("POST", "/v2/models/digits%5Cinfer", 400),
    ("GET", "/v2/models/%00", 400), ("GET", "/v2/models/digits%0d", 400), ("GET", "/v2/models/%2", 400),
    ("GET", "/" * 2000, 400), ("GET", "//v2", 400), ("GET", "/v2//models/digits", 400), ("GET", "/v2/./models", 400),
    ("GET", "/v2/models/digits/infer", 405), ("PUT", "/v2/models/digits/infer", 405),
    ("DELETE", "/v2/models/digits", 405), ("POST", "/v2", 405), ("POST", "/v2/health/ready", 405),
    ("GET", "/v2/repository/index", 405), ("OPTIONS", "/v2/health/live", 405),
    ("POST", "/v2/repository/models/digits/load", 400),
    ("POST", "/v2/repository/models/digits/unload", 400),
    ("POST", "/v2/models/digits/generate", 501), ("GET", "/v2/systemsharedmemory/status", 501),
    ("POST", "/v2/systemsharedmemory/region/a/register", 501), ("POST", "/v2/logging", 400),
    ("POST", "/v2/trace/setting", 400), ("PUT", "/v2/logging", 405),
    ("GET", "/v2/models/none/trace/setting", 404),
]


def check_requests(s):
    for what, status, word, request, *rest in BAD_REQUESTS:
        binary, headers = (rest + [b"", {}])[:2] if len(rest) < 2 else rest
        got, answer = s.infer("digits", request, binary, headers)
        assert got == status, (what, got, answer)
        assert list(answer) == ["error"] and word in answer["error"], (what, answer)
        assert "/" not in answer["error"], ("a path?", answer)
    # A body exactly at the limit is not refused for its size.
    body = json.dumps(GOOD).encode()
    assert s.infer("digits", body + b" " * (MAX_REQUEST - len(body)))[0] == 200
    # Too large, without and with Content-Length.
    for chunked in (True, False):
        c = s.connect()
        c.request("POST", "/v2/models/digits/infer", iter([b" " * 65536] * 17) if chunked else b" " * 65536 * 17,
                  encode_chunked=chunked)
        assert c.getresponse().status == 400


def check_routes(s):
    for method, path, status in BAD_ROUTES:
        got, headers, body = s.request(method, path)
        assert got == status, (method, path[:80], got, body)
        assert "error" in json.loads(body), body
        assert headers["content-type"] == "application/json"
    # Parameters are read on the loop's thread: large ones are refused unread.
    for path, most in (("/v2/trace/setting", 4096), ("/v2/logging", 4096), ("/v2/repository/models/digits/load", 65536),
                       ("/v2/repository/models/digits/unload", 4096)):
        for size, word in ((most, ""), (most + 1, f"at most {most} bytes")):
            body = json.dumps({"k" * 99: 1}).encode().ljust(size)
            status, _, answer = s.request("POST", path, body)
            assert status == 400 and word in json.loads(answer)["error"], (path, size, answer)
            assert bool(word) == (str(most) in json.loads(answer)["error"]), answer
    status, headers, _ = s.request("POST", "/v2/models/digits/infer", b"x", {"Content-Encoding": "br"})
    assert status == 501 and headers["accept-encoding"] == "gzip, deflate", headers
    # HEAD: the head of GET, no body, and the connection stays usable.
    c = s.connect()
    for method in ("HEAD", "GET"):
        c.request(method, "/v2/health/live")
        reply = c.getresponse()
        body = reply.read()
        assert reply.status == 200 and int(reply.getheader("Content-Length")) == 13, reply.getheaders()
        assert len(body) == (13 if method == "GET" else 0), body
    for path, allow in (("/v2/models/digits/infer", "POST"), ("/v2/health/live", "GET, HEAD")):
        assert s.request("DELETE", path)[1]["allow"] == allow
    # A query and an absolute URL are the same path; what a proxy that does not decode takes for another is refused.
    for path in ("/v2/models/digits?a=/../b", "http://any.host:1/v2/models/digits"):
        assert s.get(path)[1]["name"] == "digits", path
    for path in ("/v2/models/digits/", "/v2/models/%64igits", "/v2/models/digits/infe%72", "/v2//", "/%762/"):
        assert s.get(path)[0] == 400, path
    assert s.get("/v2/") == s.get("/v2")


def head_of(path, length, more=""):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n").encode()


def check_lines(s):
    """Bytes that are not HTTP, or barely."""
    body = json.dumps(GOOD).encode()
    head = head_of("/v2/models/digits/infer", len(body))
    for bad in (b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\xff" * 40000, b"GET /" + b"a" * 100000,
                b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"ffffffffffffffff1\r\nabc\r\n",
                b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20000 + b"\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"):
        raw = s.raw_socket(2)
        try:
            raw.sendall(bad)
            raw.shutdown(socket.SHUT_WR)
            got = raw.recv(65536)
            assert not got or got.startswith(b"HTTP/1.1 4") or got.startswith(b"HTTP/1.1 5") or \
                got.startswith(b"HTTP/1.0 4"), (bad[:60], got[:100])
        except TimeoutError:
            # An incomplete line may be kept until the idle timeout.
            assert b"\n" not in bad, ("no answer and no end", bad[:60])
        except OSError:
            pass  # the server closed the connection before all was sent
        raw.close()
    # 100-continue
    raw = s.raw_socket()
    raw.sendall(head_of("/v2/models/digits/infer", len(body), "Expect: 100-continue\r\n"))
    assert raw.recv(65536).startswith(b"HTTP/1.1 100")
    raw.sendall(body)
    assert raw.recv(65536).startswith(b"HTTP/1.1 200")
    # Byte by byte.
    raw = s.raw_socket()
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for i in range(0, len(head)):
        raw.sendall(head[i:i + 1])
    for i in range(0, len(body), 7):
        raw.sendall(body[i:i + 7])
    assert raw.recv(65536).startswith(b"HTTP/1.1 200")


def check_pipelining(s):
    """Pipelined requests on one connection: all are answered, in order."""
    raw = s.raw_socket()
    sent = b""
    for i in range(50):
        body = json.dumps({"id": str(i), "inputs": [tensor("image", x[i:i + 1])]}).encode()
        sent += head_of("/v2/models/digits/infer", len(body)) + body
        sent += b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    threading.Thread(target=raw.sendall, args=(sent,)).start()
    reader = raw.makefile("rb")
    for i in range(100):
        assert reader.readline().startswith(b"HTTP/1.1 200"), i
        length = 0
        for line in iter(reader.readline, b"\r\n"):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        got = json.loads(reader.read(length))
        if i % 2 == 0:
            assert got["id"] == str(i // 2)
            assert is_close(np.array([got["outputs"][0]["data"]], "f4"), want[i // 2:i // 2 + 1])


def check_vanishing(s):
    """Clients that disconnect at every point of an exchange, some with a reset."""
    body = json.dumps(GOOD).encode()
    whole = head_of("/v2/models/digits/infer", len(body)) + body
    reset = struct.pack("ii", 1, 0)
    for cut in list(range(0, len(whole), 23)) + [len(whole)] * 50:
        raw = s.raw_socket()
        raw.sendall(whole[:cut])
        if cut % 2 or cut == len(whole):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        raw.close()
    # Half-closed: the client has shut down its sending side and still reads.
    raw = s.raw_socket()
    raw.sendall(whole)
    raw.shutdown(socket.SHUT_WR)
    got = raw.recv(65536)
    assert got == b"" or got.startswith(b"HTTP/1.1 200"), got[:100]
    wait = [s.raw_socket() for _ in range(200)]
    for i, raw in enumerate(wait):
        raw.sendall(whole[:i * 3])
    good(s)  # with all of those still open
    for raw in wait:
        raw.close()


def good(s):
    status, got = s.infer("digits", GOOD)
    assert status == 200 and is_close(got["outputs"][0]["array"], want[:1]), got


def pending(s):
    text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
    return sum(float(l.split()[-1]) for l in text.splitlines() if l.startswith("weft_requests_pending{"))


with Server("--max-request", str(MAX_REQUEST)) as server:
    workers = server.workers()
    for check in (check_requests, check_routes, check_lines, check_pipelining, check_vanishing):
        check(server)
        good(server)
        print(check.__name__, "ok")
    assert server.workers() == workers, "a worker died"
    end = time.monotonic() + 5
    while pending(server) and time.monotonic() < end:
        time.sleep(0.05)
    assert pending(server) == 0
