# needs: numpy
"""Clients load and unload models of a folder by the protocol: off unless the server was started with the folder, and
never another file than one of the folder."""
import hashlib
import json
import os
import secrets as secrets_module
import shutil
import subprocess
import threading

try:
    import grpc
except ImportError:
    grpc = None

from serving import EXAMPLES, WEFT, Server, check_images, digits, wait_until

x, _ = digits()
want = {key: digits(key)[1] for key in ("digits_cnn", "digits_attn", "digits_parity")}


def make_bundle(path, **models):
    with open("set.yaml", "w") as f:
        f.write("models:\n" + "".join(f"  - name: {m}\n    file: {EXAMPLES}/{key}.onnx\n" for m, key in models.items()))
    subprocess.run([WEFT, "compile", "set.yaml", "-o", path], check=True)


os.makedirs("models/m")
make_bundle("models/m/1.weft", m="digits_cnn", other="digits_parity")
make_bundle("models/m/2.weft", m="digits_attn")
make_bundle("models/p.weft", p="digits_parity")
make_bundle("outside.weft", m="digits_parity", outside="digits_parity")
os.symlink("../outside.weft", "models/outside.weft")
os.mkdir("models/link")
os.symlink("../../outside.weft", "models/link/1.weft")
os.symlink(os.path.abspath("."), "models/away")
shutil.copy("outside.weft", "models/wrong.weft")  # has no model of this name
with open("models/cut.weft", "wb") as f:
    f.write(open("outside.weft", "rb").read()[:-1000])
os.mkfifo("models/pipe.weft")


def check(server, model, key, version=""):
    connection = server.connect()
    for i in range(4):
        check_images(connection, model + version, x[i:i + 1], want[key][i:i + 1])


with Server(bundle="models/p.weft") as server:  # off by default
    status, got = server.post_repository("models/m/load")
    assert status == 400 and "--repository" in got["error"], got
    assert server.post_repository("models/p/unload")[0] == 400
    check(server, "p", "digits_parity")

make_bundle("start.weft", s="digits_cnn")
with Server("--repository", "models", bundle="start.weft") as server:
    index = server.post_repository("index")[1]
    assert {(i["name"], i["version"], i["state"]) for i in index} == {
        ("s", "1", "READY"), ("m", "1", "UNAVAILABLE"), ("m", "2", "UNAVAILABLE"), ("p", "1", "UNAVAILABLE"),
        ("wrong", "1", "UNAVAILABLE"), ("cut", "1", "UNAVAILABLE")}, index
    assert {i["name"] for i in server.post_repository("index", {"ready": True})[1]} == {"s"}
    assert server.post_repository("models/m/load") == (200, {})  # the latest
    assert server.get("/v2/models/m")[1]["versions"] == ["2"] and server.get("/v2/models/m/ready")[0] == 200
    check(server, "m", "digits_attn")
    assert server.post_repository("models/m/load", {"parameters": {"version": 1, "weight": 0}})[0] == 200  # beside it
    assert server.get("/v2/models/m")[1]["versions"] == ["1", "2"]
    check(server, "m", "digits_attn")
    check(server, "m/versions/1", "digits_cnn")
    assert server.get("/v2/models/other")[0] == 404  # of the same bundle, and not asked for
    assert server.post_repository("models/m/load")[0] == 200  # again: the latest, alone
    assert server.get("/v2/models/m")[1]["versions"] == ["2"]
    assert server.post_repository("models/p/load", {})[0] == 200
    check(server, "p", "digits_parity")
    assert server.post_repository("models/p/unload", {"parameters": {"unload_dependents": False}})[0] == 200
    assert server.get("/v2/models/p")[0] == 404 and server.post_repository("models/p/unload")[0] == 400
    # Names that are no file of the folder, and files that are no bundle of the model.
    for name in ("none", "outside", "link", "away", "pipe", ".weft", ".", "m%00", "a" * 3000, "%2e%2e", "m%2F1", "..%2Foutside"):
        assert server.post_repository(f"models/{name}/load")[0] in (400, 404), name
    for name, text in (("wrong", "no model is named wrong"), ("cut", "")):
        status, got = server.post_repository(f"models/{name}/load")
        assert status == 400 and text in got["error"] and os.getcwd() not in got["error"], got
    for body, text in (({"parameters": {"config": "{}"}}, "config"), ({"parameters": {"file:1/model.onnx": "x"}}, "file:1"),
                       ({"parameters": {"version": "../1"}}, "version"), ({"parameters": {"version": "x"}}, "version"),
                       ({"parameters": {"weight": -1}}, "weight"), ({"parameters": 1}, "parameters"), ([], "parameters")):
        status, got = server.post_repository("models/m/load", body)
        assert status == 400 and text in got["error"], (body, got)
    assert server.post_repository("models/m/load", {"parameters": {"version": "3"}})[0] == 404
    assert server.request("POST", "/v2/repository/models/m/load", b"{" * 100000)[0] == 400
    # Many clients at once, some of which leave.
    def come_and_go(i):
        for k in range(6):
            if (i + k) % 3 == 0:
                with server.raw_socket() as s:
                    s.sendall(b"POST /v2/repository/models/m/load HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            else:
                assert server.post_repository(f"models/{'mp'[k % 2]}/load")[0] == 200
    threads = [threading.Thread(target=come_and_go, args=(i,)) for i in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(server, "m", "digits_attn")
    check(server, "p", "digits_parity")
    check(server, "s", "digits_cnn")
# Over gRPC, and with keys: the API model-repository and a right to the model.
def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def parameter(name, text):
    return field(3, field(1, name.encode()) + field(2, field(3, text.encode())))


secrets = {"all": secrets_module.token_hex(16), "m": secrets_module.token_hex(16), "reader": secrets_module.token_hex(16)}
with open("keys", "w") as f:
    for key, models, apis in (("all", "*", "*"), ("m", "m*", "*"), ("reader", "*", "inference,metadata")):
        f.write(f"{key} {hashlib.sha256(secrets[key].encode()).hexdigest()} {models} {apis}\n")
os.chmod("keys", 0o600)
with Server("--repository", "models", "--api-keys", "keys", bundle="start.weft") as server:
    def over_http(key, path):
        return server.request("POST", f"/v2/repository/{path}", headers={"x-api-key": secrets[key]})[0]
    assert over_http("reader", "models/m/load") == 403 and over_http("m", "models/p/load") == 404
    assert over_http("m", "models/m/load") == 200 and over_http("m", "models/s/unload") == 404
    index = json.loads(server.request("POST", "/v2/repository/index", headers={"x-api-key": secrets["m"]})[2])
    assert {i["name"] for i in index} == {"m"}, index
    if grpc:
        channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc}")

        def call(method, message, key="all"):
            try:
                channel.unary_unary("/inference.GRPCInferenceService/" + method)(
                    message, timeout=30, metadata=[("x-api-key", secrets[key])])
                return "OK", ""
            except grpc.RpcError as error:
                return error.code().name, error.details()
        load, unload = "RepositoryModelLoad", "RepositoryModelUnload"
        assert call(load, field(2, b"p")) == ("OK", "")
        assert call("ModelReady", field(1, b"p"))[0] == "OK"
        assert call(load, field(2, b"m") + parameter("version", "1") + parameter("weight", "0.5"))[0] == "OK"
        head = {"x-api-key": secrets["all"]}
        assert json.loads(server.request("GET", "/v2/models/m", headers=head)[2])["versions"] == ["1", "2"]
        assert call(unload, field(2, b"m") + parameter("version", "2"))[0] == "OK"
        assert json.loads(server.request("GET", "/v2/models/m", headers=head)[2])["versions"] == ["1"]
        for method, message, key, code in (
                (load, field(2, b"p"), "m", "NOT_FOUND"), (load, field(2, b"m"), "reader", "PERMISSION_DENIED"),
                (load, field(2, b"../outside"), "all", "NOT_FOUND"), (load, b"", "all", "NOT_FOUND"),
                (load, field(2, b"m") + parameter("config", "{}"), "all", "INVALID_ARGUMENT"),
                (load, field(2, b"m") + parameter("version", "0"), "all", "INVALID_ARGUMENT"),
                (load, field(2, b"wrong"), "all", "INVALID_ARGUMENT"), (load, b"\x12\xff", "all", "INVALID_ARGUMENT"),
                (unload, field(2, b"none"), "all", "INVALID_ARGUMENT"),
                ("ModelInfer", field(1, b"m") + field(2, b"2"), "all", "NOT_FOUND")):
            assert call(method, message, key)[0] == code, (method, message, call(method, message, key))
        # Calls that are given up.
        for i in range(20):
            channel.unary_unary("/inference.GRPCInferenceService/" + load).future(
                field(2, b"m"), timeout=30, metadata=[("x-api-key", secrets["all"])]).cancel()
        assert call(load, field(2, b"m"))[0] == "OK"
        channel.close()
# Without any bundle at the start.
with Server("--repository=models", bundle="--log-level=info") as server:
    assert server.get("/v2/health/ready")[0] == 200
    assert server.post_repository("models/m/load")[0] == 200
    check(server, "m", "digits_attn")
