# needs: grpc numpy
"""TLS over HTTP and gRPC: large bodies, pipelines, renewed handshakes, clients with and without
certificates, versions and protocols that are refused, plain bytes and broken handshakes on the port."""
import http.client
import json
import multiprocessing
import os
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time

import grpc

from http2 import HELLO
from serving import WEFT, Server, compile_bundle, digits, is_close, read_answer, skip, tensor, wait_until

if not shutil.which("openssl"):
    skip("no openssl to make certificates")
compile_bundle(more=False)
# As many descriptors as most systems allow: floods reach the limit of connections.
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
x, want = digits()
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPLOAD = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_certificates():
    """Two authorities; a server's certificate of the first, and a client's of each."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for ca in ("ca", "other"):
        openssl("req", "-x509", *key, "-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-subj", f"/CN={ca}")
    for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        openssl("req", *key[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        with open("ext", "w") as f:
            f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial",
                "-days", "2", "-extfile", "ext", "-out", f"{name}.pem")


def context(client=None, alpn=None, versions=None):
    c = ssl.create_default_context(cafile="ca.pem")
    if client:
        c.load_cert_chain(f"{client}.pem", f"{client}.key")
    if alpn:
        c.set_alpn_protocols(alpn)
    if versions:
        c.minimum_version, c.maximum_version = versions
    return c


def connect(s, port=None, source="127.0.0.1", **options):
    raw = socket.create_connection(("127.0.0.1", port or s.http), 20, (source, 0))
    return context(**options).wrap_socket(raw, server_hostname="localhost")


def ask(s, pad=0, connection=None, **options):
    c = connection or http.client.HTTPSConnection("localhost", s.http, context=context(**options), timeout=60)
    c.request("POST", "/v2/models/digits/infer", json.dumps({"inputs": [tensor("image", x[:3])]}) + " " * pad)
    reply = c.getresponse()
    got = read_answer({k.lower(): v for k, v in reply.getheaders()}, reply.read())
    assert reply.status == 200 and is_close(got["outputs"][0]["array"], want[:3]), got
    return c


def refused(call):
    try:
        call()
    except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected, OSError):
        return
    raise AssertionError("not refused")


def live(s, **options):
    with connect(s, **options) as tls:
        tls.sendall(LIVE)
        got = tls.recv(65536)
        assert got.startswith(b"HTTP/1.1 200"), got


def check_http(s):
    for versions in ((ssl.TLSVersion.TLSv1_2,) * 2, (ssl.TLSVersion.TLSv1_3,) * 2):
        c = ask(s, versions=versions)
        for pad in (0, 1, 16383, 16384, 16385, 100000, 8 << 20):
            ask(s, pad, c)
    # A pipeline in one write, its requests cut by the borders of records, and in single bytes.
    for step in (1 << 20, 17, 1):
        tls, count = connect(s), 400 if step > 1 else 10
        # All before the first answer is read: an SSL object of Python is not for two threads.
        for i in range(0, len(LIVE) * count, step):
            tls.sendall((LIVE * count)[i:i + step])
        got = b""
        while got.count(b'{"live":true}') < count:
            part = tls.recv(65536)
            assert part, got[-100:]
            got += part
        assert got.count(b"HTTP/1.1 200") == count
        tls.close()
    # An answer that is larger than what the client takes at once.
    tls = connect(s)
    tls.sendall((b"GET /v2/models/stats HTTP/1.1\r\nHost: x\r\n\r\n") * 300)
    time.sleep(0.5)
    got = b""
    while got.count(b"HTTP/1.1 200") < 300:
        part = tls.recv(65536)
        assert part
        got += part
    # The end is announced: the client knows that nothing was cut off.
    tls = connect(s)
    tls.sendall(LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    got = b""
    while part := tls.recv(65536):
        got += part
    assert got.endswith(b'{"live":true}'), got
    # 100-continue.
    tls = connect(s)
    body = json.dumps({"inputs": [tensor("image", x[:1])]}).encode()
    tls.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
                b"Expect: 100-continue\r\n\r\n" % len(body))
    assert tls.recv(65536).startswith(b"HTTP/1.1 100")
    tls.sendall(body)
    assert tls.recv(65536).startswith(b"HTTP/1.1 200")
    curl = shutil.which("curl")
    if curl:
        got = subprocess.run([curl, "-s", "--cacert", "ca.pem", f"https://localhost:{s.http}/v2/health/live"],
                             stdout=subprocess.PIPE, check=True).stdout
        assert got == b'{"live":true}', got


def check_refused(s):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    refused(lambda: old.wrap_socket(socket.create_connection(("127.0.0.1", s.http), timeout=10)))
    # Each port has its protocol.
    live(s, alpn=["http/1.1"])
    live(s, alpn=["h2", "http/1.1"])
    refused(lambda: live(s, alpn=["h2"]))
    refused(lambda: connect(s, s.grpc, alpn=["http/1.1"]))
    # Plain bytes, and handshakes that end in the middle: no answer, and others are served.
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    for data in (LIVE, b"\0" * 100, hello, hello + bytes(600), b"\x16\x03\x03\xff\xff" + bytes(70000)):
        for _ in range(50):
            with s.raw_socket(10) as raw:
                try:
                    raw.sendall(data)
                    raw.shutdown(socket.SHUT_WR)
                    got = raw.recv(65536)
                    assert not got.startswith(b"HTTP"), got
                except OSError:
                    pass
    held = [s.raw_socket() for _ in range(100)]
    for raw in held:
        raw.sendall(hello)
    live(s)
    for raw in held:
        raw.close()
    # The metrics port is plain.
    assert s.request("GET", "/metrics", port=s.metrics)[0] == 200


def first_message(**options):
    """What a client sends first, a record."""
    sent = ssl.MemoryBIO()
    try:
        context(**options).wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


def change_message(change):
    """The first message of a client, with other extensions."""
    body = first_message()[9:]  # behind the heads of the record and of the message
    at = 34  # version and random; then the session, the suites, the compression
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at:at + 2], "big")
    at += 1 + body[at]
    more = change(body[at + 2:])
    body = body[:at] + struct.pack(">H", len(more)) + more
    return b"\x01" + len(body).to_bytes(3, "big") + body


def large_message(size):
    return change_message(lambda extensions: extensions + struct.pack(">HH", 0x7777, size) + bytes(size))


def drop_keys(extensions):
    """An empty list of keys: the server asks for one."""
    at = extensions.index(b"\0\x33\0\x26\0\x24")
    return extensions[:at] + b"\0\x33\0\2\0\0" + extensions[at + 4 + 0x26:]


def records(message, size):
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(message[i:i + size])) + message[i:i + size]
                    for i in range(0, len(message), size))


def wait_closed(raw):
    """Sooner than the deadline of a handshake."""
    raw.settimeout(5)
    try:
        while raw.recv(65536):
            pass
    except ConnectionError:
        pass


def check_announced(s):
    """A few bytes that announce a first message of 128 KiB take no memory for it: the connection is closed. Large ones
    that a client may have are taken, in any records."""
    head = b"\1" + (131000).to_bytes(3, "big") + b"\3\3"
    asked = records(change_message(drop_keys), 16384)
    for port in (s.http, s.grpc):
        for data in (b"\x16\3\1\x40\0" + head, records(head, 3), records(head, 1), records(large_message(16400), 16384)):
            for first in (b"", asked):
                with open_raw("127.0.0.1", port, first) as raw:
                    if first:
                        assert raw.recv(1) == b"\x16"
                    raw.sendall(data)
                    wait_closed(raw)
        for size in (16384, 1000):
            with open_raw("127.0.0.1", port, records(large_message(15000), size)) as raw:
                assert raw.recv(1) == b"\x16"


def send_fragments(port, data, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
                raw.sendall(data)
        except OSError:
            pass


def renew_keys(port, seconds):
    """openssl changes its key for each K that it reads."""
    p = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-quiet"], stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            p.stdin.write(b"K\n")
            p.stdin.flush()
    except OSError:
        pass  # the server has closed the connection
    p.kill()
    p.wait()


def shake_hands(raw, **options):
    """The client's side of TLS, and what it has written and not sent: for records and ends that a socket would hide."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context(**options).wrap_bio(received, sent, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
            return tls, sent
        except ssl.SSLWantReadError:
            raw.sendall(sent.read())
            received.write(raw.recv(65536))


def send_small_records(port, hello, n, seconds):
    """Records of a byte on n connections at once, again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        raws = []
        for _ in range(n):
            raw = socket.create_connection(("127.0.0.1", port), timeout=20)
            tls, sent = shake_hands(raw)
            for byte in hello + b"a" * 8000:
                tls.write(bytes([byte]))
            raws.append((raw, sent.read()))
        for raw, data in raws:
            raw.setblocking(False)
        left = dict(raws)
        while left and time.monotonic() < end:
            for raw, data in list(left.items()):
                try:
                    left[raw] = data[raw.send(data[:4096]):]
                    if not left[raw]:
                        del left[raw]
                except BlockingIOError:
                    pass
                except OSError:
                    del left[raw]  # the server has closed it
        for raw, _ in raws:
            raw.close()


def check_small_records(s):
    """Such connections are closed; one that sends small records now and then beside whole requests is not."""
    tls = connect(s)
    # More than the sockets hold, however slowly the server reads.
    refused(lambda: [tls.send(b"a") for _ in range(500000)])
    with connect(s) as tls:
        for _ in range(40):
            for part in [LIVE[i:i + 1] for i in range(0, 20)] + [LIVE[20:]] + [LIVE * 4]:
                tls.sendall(part)
            got = b""
            while got.count(b'{"live":true}') < 5:
                part = tls.recv(65536)
                assert part, "closed"
                got += part


def check_floods(s):
    """Messages of TLS itself as fast as they are taken: other addresses are answered meanwhile."""
    for what, flood, data in (("handshakes in records of a byte", send_fragments, (s.http, records(large_message(15000), 1), 3)),
                              ("changes of keys", renew_keys, (s.http, 3)), ("changes of keys", renew_keys, (s.grpc, 3)),
                              ("records of a byte", send_small_records, (s.http, UPLOAD, 20, 4)),
                              ("records of a byte", send_small_records, (s.grpc, HELLO, 20, 4))):
        floods = [multiprocessing.Process(target=flood, args=data) for _ in range(3)]
        for p in floods:
            p.start()
        took, end = [], time.monotonic() + 2.5
        time.sleep(0.2)
        while time.monotonic() < end:
            start = time.monotonic()
            live(s, source="127.0.0.2")
            took.append(time.monotonic() - start)
            time.sleep(0.01)
        for p in floods:
            p.join()
        print(f"{what}: {len(took)} new connections beside them, half in {sorted(took)[len(took) // 2] * 1e3:.0f} ms, the "
              f"longest {max(took) * 1e3:.0f} ms")


def check_half_closed(s):
    """Clients that have said at once that they send no more: answered or not, the connection ends and is not kept."""
    before = len(os.listdir(f"/proc/{s.process.pid}/fd"))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for request in (b"", LIVE[:10], LIVE):
            with s.raw_socket(5) as raw:
                tls, sent = shake_hands(raw, versions=(version,) * 2)
                if request:
                    tls.write(request)
                try:
                    tls.unwrap()
                except ssl.SSLWantReadError:
                    pass
                raw.sendall(sent.read())
                while raw.recv(65536):
                    pass
    wait_until(lambda: len(os.listdir(f"/proc/{s.process.pid}/fd")) <= before)


def check_grpc(s, client=None):
    def read(name):
        with open(name, "rb") as f:
            return f.read()
    pair = (read(f"{client}.key"), read(f"{client}.pem")) if client else (None, None)
    channel = grpc.secure_channel(f"localhost:{s.grpc}", grpc.ssl_channel_credentials(read("ca.pem"), *pair))
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    for _ in range(100):
        assert check(b"", timeout=20) == b"\x08\x01"
    # A large message that is no valid one: it is received whole.
    for _ in range(3):
        try:
            infer(b"\x0a\x06digits\x3a\x80\x80\x80\x02" + bytes(4 << 20), timeout=60)
            raise AssertionError("accepted")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    channel.close()


def check_clients():
    """--tls-ca: a certificate of the authority is required."""
    with Server("--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-ca", "ca.pem") as s:
        for _ in range(3):
            ask(s, client="client")
        check_grpc(s, client="client")
        for client in (None, "stranger"):
            refused(lambda: live(s, client=client))
            try:
                check_grpc(s, client=client)
                raise AssertionError("not refused")
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE, error


def open_raw(address, port, data):
    raw = socket.socket()
    raw.settimeout(30)
    raw.bind((address, 0))
    raw.connect(("127.0.0.1", port))
    raw.sendall(data)
    return raw


def count_readable(raws):
    return len(select.select(raws, [], [], 0)[0])


def check_turns():
    """Handshakes of an address wait behind few of another's that came before. A key whose signatures take milliseconds
    leaves time to look at the order."""
    openssl("req", "-x509", "-newkey", "rsa:4096", "-nodes", "-days", "2", "-keyout", "slow.key", "-out", "slow.pem",
            "-subj", "/CN=localhost")
    with Server("--tls-cert", "slow.pem", "--tls-key", "slow.key") as s:
        for port, alpn in ((s.http, ["http/1.1"]), (s.grpc, ["h2"])):
            hello = first_message(alpn=alpn)
            s.process.send_signal(signal.SIGSTOP)
            flood = [open_raw("127.0.0.9", port, hello) for _ in range(100)]
            # Clients that have gone, with or without a part of the first message, take no turn.
            gone = [open_raw("127.0.0.8", port, hello[:n % 2 * 100]) for n in range(50)]
            for raw in gone:
                raw.shutdown(socket.SHUT_WR)
            s.process.send_signal(signal.SIGCONT)
            wait_until(lambda: count_readable(flood) > 10)
            s.process.send_signal(signal.SIGSTOP)
            assert count_readable(gone) == 50, count_readable(gone)
            before = count_readable(flood)
            late = open_raw("127.0.0.1", port, hello)
            s.process.send_signal(signal.SIGCONT)
            assert late.recv(1) == b"\x16"
            s.process.send_signal(signal.SIGSTOP)
            before = count_readable(flood) - before
            s.process.send_signal(signal.SIGCONT)
            assert before < 20, before
            assert all(raw.recv(1) == b"\x16" for raw in flood)
            for raw in [late, *flood, *gone]:
                raw.close()


def check_files():
    openssl("ec", "-in", "server.key", "-aes128", "-passout", "pass:word", "-out", "locked.key")
    os.mkfifo("pipe")
    for options, word in ((["--tls-cert", "server.pem"], "key"), (["--tls-ca", "ca.pem"], "certificate"),
                          (["--tls-cert", "none.pem", "--tls-key", "server.key"], "none.pem"),
                          (["--tls-cert", "server.pem", "--tls-key", "client.key"], "client.key"),
                          (["--tls-cert", "server.key", "--tls-key", "server.key"], "server.key"),
                          (["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-ca", "none"], "none"),
                          (["--tls-cert", "server.pem", "--tls-key", "locked.key"], "takes no password"),
                          (["--tls-cert", "server.pem", "--tls-key", "pipe"], "not a regular file")):
        got = subprocess.run([WEFT, "serve", "models.weft", "--http", "0", "--grpc", "0", "--metrics", "0", *options],
                             stderr=subprocess.PIPE, text=True, timeout=60)
        assert got.returncode == 1 and word in got.stderr, (options, got)


make_certificates()
with Server("--tls-cert", "server.pem", "--tls-key", "server.key") as server:
    for check in (check_http, check_refused, check_half_closed, check_announced, check_small_records,
                  check_floods, check_grpc):
        check(server)
        print(check.__name__, "ok", flush=True)
for check in (check_clients, check_turns, check_files):
    check()
    print(check.__name__, "ok", flush=True)
