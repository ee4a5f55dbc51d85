# needs: grpc numpy
"""Keys and their rights over HTTP and gRPC, client certificates as keys, restricted APIs, rates, and keys and
certificates that are read again while the server runs."""
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import time

import grpc

from serving import WEFT, Server, compile_bundle, digits, skip, tensor, wait_until

compile_bundle(more=False)
x, _ = digits()
BODY = json.dumps({"inputs": [tensor("image", x[:1])]})
KEYS = {name: hashlib.sha256(b"seed " + name.encode()).hexdigest()[:40]
        for name in ("all", "one", "health", "slow", "new")}
SERVICE = "/inference.GRPCInferenceService/"


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


LINES = {"all": f"all {sha(KEYS['all'])} * *",
         "one": f"one {sha(KEYS['one'])} digits inference,metadata,statistics,model-repository,health",
         "health": f"health {sha(KEYS['health'])} * health",
         "slow": f"slow {sha(KEYS['slow'])} * * 2"}


def write_keys(path="keys", lines=LINES.values(), mode=0o600):
    """In the place of the file at once, as tools that write such files do."""
    with open(path + ".new", "w") as f:
        f.write("# name sha256 models groups rate\n\n" + "\n".join(lines) + "\n")
    os.chmod(path + ".new", mode)
    os.rename(path + ".new", path)


def ask(s, path, key=None, method="GET", header="x-api-key", body=None, **more):
    headers = dict(more.get("headers", {}))
    if key:
        headers[header] = f"Bearer {KEYS.get(key, key)}" if header == "Authorization" else KEYS.get(key, key)
    status, got, answer = s.request(method, path, body, headers)
    return status, got, json.loads(answer)


def infer(s, key, model="digits", **more):
    return ask(s, f"/v2/models/{model}/infer", key, "POST", body=BODY, **more)[0]


def call(s, method, message=b"", key=None, metadata=(), channel=None):
    """Status code of gRPC, and the answer or the text of the error."""
    own = channel or grpc.insecure_channel(f"127.0.0.1:{s.grpc}")
    headers = list(metadata) + ([("authorization", f"Bearer {KEYS.get(key, key)}")] if key else [])
    path = method if method.startswith("/") else SERVICE + method
    try:
        return grpc.StatusCode.OK, own.unary_unary(path)(message, timeout=20, metadata=headers)
    except grpc.RpcError as error:
        return error.code(), error.details()
    finally:
        if not channel:
            own.close()


def name(text):
    return b"\x0a" + bytes([len(text)]) + text.encode()


CODE = grpc.StatusCode
GRPC_METHODS = ["ModelInfer", "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata",
                "ModelConfig", "ModelStatistics", "RepositoryIndex", "/grpc.health.v1.Health/Check"]
HTTP_ROUTES = [("GET", "/v2"), ("GET", "/v2/health/live"), ("GET", "/v2/health/ready"), ("GET", "/v2/models/stats"),
               ("GET", "/v2/models/digits"), ("HEAD", "/v2/models/digits"), ("GET", "/v2/models/digits/ready"),
               ("GET", "/v2/models/digits/config"), ("GET", "/v2/models/digits/versions/1/stats"),
               ("POST", "/v2/models/digits/infer"), ("POST", "/v2/repository/index"), ("GET", "/v2/logging"),
               ("POST", "/v2/repository/models/digits/load"), ("GET", "/v2/trace/setting"),
               ("GET", "/v2/systemsharedmemory/status"), ("POST", "/v2/models/digits/generate")]


def check_http(s):
    for method, path in HTTP_ROUTES:
        for key in (None, "wrong", KEYS["all"][:-1], KEYS["all"] + "0", sha(KEYS["all"]), " "):
            status, got, _ = s.request(method, path, BODY if method == "POST" else None,
                                       {"x-api-key": key} if key else {})
            assert status == 401 and got["www-authenticate"] == "Bearer", (method, path, key, status)
        assert ask(s, path, "all", method, body=BODY if method == "POST" else None)[0] not in (401, 403) \
            if method != "HEAD" else True
        if "health" not in path and "ready" not in path and method != "HEAD":
            assert ask(s, path, "health", method)[0] == 403, path
    for header in ("x-api-key", "X-API-KEY", "Authorization"):
        assert infer(s, "all", header=header) == 200
    assert ask(s, "/v2", headers={"authorization": "bearer  " + KEYS["all"]})[0] == 200
    assert ask(s, "/v2", headers={"authorization": "Basic " + KEYS["all"]})[0] == 401
    both = {"authorization": "Bearer " + KEYS["all"]}
    assert ask(s, "/v2", "all", headers=both)[0] == 200
    assert ask(s, "/v2", "one", headers=both)[0] == 400
    # Encoded paths meet the same gate.
    assert ask(s, "/v2/models/%40igits")[0] == 401 and ask(s, "/v2/models/%40igits/config", "health")[0] == 403
    assert ask(s, "/v2/models/%64igits")[0] == 400
    # A model without the right is like one that does not exist.
    for path in ("/v2/models/%s", "/v2/models/%s/versions/1", "/v2/models/%s/stats", "/v2/models/%s/ready"):
        assert ask(s, path % "digits", "one")[0] == 200
        status, _, hidden = ask(s, path % "digits-attn", "one")
        unknown = ask(s, path % "digits-none", "one")
        assert (status, hidden["error"].replace("attn", "none")) == (unknown[0], unknown[2]["error"]), path
        assert status == 404 and ask(s, path % "digits-attn", "all")[0] == 200
    assert infer(s, "one") == 200 and infer(s, "one", "digits-attn") == 404
    assert {m["name"] for m in ask(s, "/v2/repository/index", "one", "POST")[2]} == {"digits"}
    assert len(ask(s, "/v2/repository/index", "all", "POST")[2]) > 1
    assert {m["name"] for m in ask(s, "/v2/models/stats", "one")[2]["model_stats"]} == {"digits"}
    assert ask(s, "/v2/models/digits/config", "one")[0] == 403
    # A key is checked before the body is read.
    head = f"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {64 << 20}\r\n\r\n"
    with s.raw_socket(10) as raw:
        raw.sendall(head.encode())
        assert raw.recv(4096).startswith(b"HTTP/1.1 401")
    assert s.request("GET", "/metrics", port=s.metrics)[0] == 200
    assert s.request("GET", "/v2/health/ready", port=s.metrics)[0] == 200


def check_grpc(s):
    for method in GRPC_METHODS:
        for key in (None, "wrong", KEYS["all"][:-1]):
            assert call(s, method, key=key)[0] == CODE.UNAUTHENTICATED, (method, key)
        if method not in ("ServerLive", "ServerReady", "ModelReady", "/grpc.health.v1.Health/Check"):
            assert call(s, method, key="health")[0] == CODE.PERMISSION_DENIED, method
        else:
            assert call(s, method, key="health")[0] == CODE.OK
    assert call(s, "ServerMetadata", metadata=[("x-api-key", KEYS["all"])])[0] == CODE.OK
    assert call(s, "ServerMetadata", key="one", metadata=[("x-api-key", KEYS["all"])])[0] == CODE.INVALID_ARGUMENT
    assert call(s, "ServerMetadata", key="one", metadata=[("authorization", "Bearer " + KEYS["all"])])[0] == \
        CODE.INVALID_ARGUMENT
    for method in ("ModelMetadata", "ModelInfer", "ModelStatistics"):
        hidden = call(s, method, name("digits-attn"), "one")
        unknown = call(s, method, name("digits-none"), "one")
        assert hidden[0] == unknown[0] == CODE.NOT_FOUND and hidden[1].replace("attn", "none") == unknown[1], method
        assert call(s, method, name("digits"), "one")[0] != CODE.NOT_FOUND
    assert call(s, "ModelReady", name("digits-attn"), "one")[1] == b"" != call(s, "ModelReady", name("digits"), "one")[1]
    for method in ("RepositoryIndex", "ModelStatistics"):
        assert b"digits-attn" not in call(s, method, key="one")[1]
        assert b"digits-attn" in call(s, method, key="all")[1]


def check_rate(s):
    """2 requests a second, over both transports together."""
    start = time.monotonic()
    got = [infer(s, "slow") for _ in range(20)]
    code = call(s, "ServerLive", key="slow")[0]
    took = time.monotonic() - start
    assert set(got) <= {200, 429} and 1 <= got.count(200) <= 2 + 2 * took + 1, (got, took)
    assert took > 1 or code == CODE.RESOURCE_EXHAUSTED, (code, took)
    time.sleep(1.1)
    assert infer(s, "slow") == 200
    assert infer(s, "all") == 200


def check_reload(s):
    """Open connections and both transports get the new rights; a wrong file changes nothing."""
    held = s.connect()
    def on_held(key):
        held.request("GET", "/v2", headers={"x-api-key": KEYS[key]})
        reply = held.getresponse()
        reply.read()
        return reply.status
    channel = grpc.insecure_channel(f"127.0.0.1:{s.grpc}")
    assert on_held("one") == 200 and on_held("new") == 401
    assert call(s, "ServerMetadata", key="new", channel=channel)[0] == CODE.UNAUTHENTICATED
    write_keys(lines=[LINES["all"], f"new {sha(KEYS['new'])} digits* *"])
    s.process.send_signal(signal.SIGHUP)
    wait_until(lambda: on_held("new") == 200)
    assert on_held("one") == 401 and on_held("all") == 200
    assert call(s, "ServerMetadata", key="new", channel=channel)[0] == CODE.OK
    assert call(s, "ServerMetadata", key="one", channel=channel)[0] == CODE.UNAUTHENTICATED
    def failures():
        text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
        return int(re.search(r'weft_reload_failures_total\{what="keys"\} (\d+)', text)[1])
    for n, (lines, mode) in enumerate((([], 0o600), (["one"], 0o600), (LINES.values(), 0o644), (LINES.values(), 0o620))):
        write_keys(lines=lines, mode=mode)
        s.process.send_signal(signal.SIGHUP)
        wait_until(lambda: failures() == n + 1)
        assert on_held("new") == 200 and on_held("one") == 401
    os.remove("keys")
    s.process.send_signal(signal.SIGHUP)
    wait_until(lambda: failures() == 5)
    assert on_held("new") == 200
    # Without a signal, within 10 s.
    write_keys()
    wait_until(lambda: on_held("one") == 200, 15)
    assert on_held("new") == 401
    channel.close()
    assert "reload_failed" in s.text()
    assert not any(key in s.text() for key in KEYS.values())


def check_anonymous():
    write_keys(lines=[LINES["all"], "anyone none digits health,metadata"])
    with Server("--api-keys", "keys") as s:
        assert ask(s, "/v2/health/live")[0] == ask(s, "/v2/models/digits")[0] == 200
        assert infer(s, None) == 401 and ask(s, "/v2/models/digits-attn")[0] == 404
        assert ask(s, "/v2/health/live", "wrong")[0] == 401
        assert call(s, "/grpc.health.v1.Health/Check")[0] == CODE.OK
        assert infer(s, "all") == 200


def check_restricted():
    with open("secret", "w") as f:
        f.write("from=file\n")
    os.chmod("secret", 0o400)
    with Server("--http-restricted-api", "model-repository,statistics:X-Admin=let: me=in",
                "--http-restricted-api", "inference:infer-key=@secret",
                "--grpc-restricted-protocol", "inference,health:infer-key=value") as s:
        for method, path, header, value in (("POST", "/v2/repository/index", "x-admin", "let: me=in"),
                                            ("GET", "/v2/models/stats", "X-Admin", "let: me=in"),
                                            ("POST", "/v2/models/digits/infer", "infer-key", "from=file")):
            body = BODY if method == "POST" else None
            want = {"x-admin": "X-Admin"}.get(header.lower(), header)
            for wrong in ({}, {header: value + "x"}, {header: value[:-1]}, {"other": value}):
                status, _, text = s.request(method, path, body, wrong)
                assert status == 403, (path, wrong, status)
                assert json.loads(text)["error"] == f"This API is restricted, expecting header '{want}'"
            assert s.request(method, path, body, {header: value})[0] == 200, path
        assert s.request("GET", "/v2")[0] == s.request("GET", "/v2/health/live")[0] == 200
        header = "triton-grpc-protocol-infer-key"
        for method in ("ModelInfer", "ServerLive", "/grpc.health.v1.Health/Check"):
            for wrong in ([], [(header, "valu")], [("infer-key", "value")]):
                got = call(s, method, metadata=wrong)
                assert got == (CODE.UNAVAILABLE, f"This protocol is restricted, expecting header '{header}'"), got
            assert call(s, method, metadata=[(header, "value")])[0] != CODE.UNAVAILABLE
        assert call(s, "ServerMetadata")[0] == CODE.OK


def check_files():
    """What is refused at the start, and that no secret is told."""
    write_keys()
    write_keys("open", mode=0o644)
    for file, line in (("short", "a " + "0" * 63 + " * *"), ("group", f"a {sha('a')} * inference,nothing"),
                       ("models", f"a {sha('a')} a,,b *"), ("rate", f"a {sha('a')} * * -1"),
                       ("twice", LINES["all"] + "\n" + LINES["all"].replace("all", "other", 1))):
        write_keys(file, [line])
    os.mkdir("folder")
    cases = [(["--api-keys", file], word) for file, word in (
        ("none", "No such file"), ("open", "chmod"), ("short", "64 hex"), ("group", "'nothing'"), ("models", "empty"),
        ("rate", "'-1'"), ("twice", "same"), ("folder", "regular"), ("/dev/null", "regular"))]
    cases += [(["--http-restricted-api", text], word) for text, word in (
        ("inference", "header"), ("nothing:a=b", "group"), ("inference:a=", "empty"), ("inference:a b=c", "header"),
        ("inference,inference:a=b", "twice"), ("inference:a=@open", "chmod"))]
    cases += [(["--http-restricted-api", "trace:a=b", "--http-restricted-api", "logging,trace:c=d"], "twice")]
    for options, word in cases:
        got = subprocess.run([WEFT, "serve", "models.weft", "--http", "0", "--grpc", "0", "--metrics", "0", *options],
                             stderr=subprocess.PIPE, text=True, timeout=60)
        assert got.returncode == 1 and word in got.stderr, (options, got)
        assert sha("a") not in got.stderr
    for address, warned in (("0.0.0.0", True), ("localhost", False)):
        with Server("--api-keys", "keys", "--address", address) as s:
            assert ("keys_without_tls" in s.text()) == warned


# -- Certificates ---------------------------------------------------------------------------------

def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_certificate(name, names, days=2, ca="ca"):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    if not os.path.exists(f"{ca}.pem"):
        openssl("req", "-x509", *key, "-days", "2", "-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-subj", f"/CN={ca}")
    openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    with open("ext", "w") as f:
        f.write(f"subjectAltName={names}\n")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial",
            "-days", str(days), "-extfile", "ext", "-out", f"{name}.pem")


def secure(s, client=None, key=None):
    """Status of a request over TLS, and the serial number of the server's certificate."""
    context = ssl.create_default_context(cafile="ca.pem")
    if client:
        context.load_cert_chain(f"{client}.pem", f"{client}.key")
    c = http.client.HTTPSConnection("localhost", s.http, context=context, timeout=20)
    c.request("GET", "/v2/models/digits", headers={"x-api-key": KEYS[key]} if key else {})
    serial = c.sock.getpeercert()["serialNumber"]
    status = c.getresponse().status
    c.close()
    return status, serial


def secure_call(s, client):
    def read(name):
        with open(name, "rb") as f:
            return f.read()
    channel = grpc.secure_channel(f"localhost:{s.grpc}", grpc.ssl_channel_credentials(
        read("ca.pem"), read(f"{client}.key"), read(f"{client}.pem")))
    try:
        return call(s, "ModelMetadata", name("digits"), channel=channel)[0]
    finally:
        channel.close()


def check_certificates():
    make_certificate("server", "DNS:localhost,IP:127.0.0.1")
    make_certificate("known", "URI:spiffe://here/known,DNS:other")
    make_certificate("few", "DNS:few")
    make_certificate("second", "IP:127.0.0.1,DNS:unknown,DNS:few")
    write_keys(lines=[LINES["one"], "spiffe://here/known certificate * *", "few certificate * health"])
    with Server("--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-ca", "ca.pem",
                "--api-keys", "keys") as s:
        assert [secure(s, c)[0] for c in ("known", "few", "second")] == [200, 403, 401]
        # A key counts more than a certificate.
        assert secure(s, "few", "one")[0] == 200 and secure(s, "known", "new")[0] == 401
        assert [secure_call(s, c) for c in ("known", "few", "second")] == \
            [CODE.OK, CODE.PERMISSION_DENIED, CODE.UNAUTHENTICATED]


def check_renewal():
    """A new certificate, by SIGHUP and by itself; a wrong one changes nothing; open connections go on."""
    make_certificate("old", "DNS:localhost")
    make_certificate("new", "DNS:localhost", 30)
    os.symlink("old.pem", "live.pem")
    os.symlink("old.key", "live.key")
    def point(cert, key):
        for link, to in (("live.pem", cert), ("live.key", key)):
            os.symlink(to, "link")
            os.rename("link", link)
    with Server("--tls-cert", "live.pem", "--tls-key", "live.key") as s:
        def metric(name):
            return float(re.search(rf"^{name} (\S+)$", s.request("GET", "/metrics", port=s.metrics)[2].decode(), re.M)[1])
        assert 1 < (metric("weft_tls_certificate_expiry_seconds") - time.time()) / 86400 < 3
        held = http.client.HTTPSConnection("localhost", s.http, context=ssl.create_default_context(cafile="ca.pem"))
        first = secure(s)[1]
        held.request("GET", "/v2")
        held.getresponse().read()
        point("new.pem", "old.key")
        s.process.send_signal(signal.SIGHUP)
        wait_until(lambda: metric(r'weft_reload_failures_total\{what="tls-http"\}') == 1)
        assert metric(r'weft_reload_failures_total\{what="tls-grpc"\}') == 1 and secure(s)[1] == first
        point("new.pem", "new.key")
        s.process.send_signal(signal.SIGHUP)
        wait_until(lambda: secure(s)[1] != first)
        assert (metric("weft_tls_certificate_expiry_seconds") - time.time()) / 86400 > 20
        point("old.pem", "old.key")
        wait_until(lambda: secure(s)[1] == first, 15)
        held.request("GET", "/v2")
        assert held.getresponse().status == 200


write_keys()
with Server("--api-keys", "keys") as server:
    for check in (check_http, check_grpc, check_rate, check_reload):
        check(server)
        print(check.__name__, "ok", flush=True)
checks = [check_anonymous, check_restricted, check_files]
checks += [check_certificates, check_renewal] if shutil.which("openssl") else []
for check in checks:
    check()
    print(check.__name__, "ok", flush=True)
