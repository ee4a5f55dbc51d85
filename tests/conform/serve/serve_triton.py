# needs: grpc numpy
"""A model repository of Triton, served as it is: versions, an ensemble, loading and unloading by clients, and a folder
that is looked at again. compile_repository and conform/repository have what is compiled of it."""
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import time

import grpc
import numpy as np
from serving import EXAMPLES, WEFT, Server, check_images, digits, tensor, wait_until

x, _ = digits()
want = {key: digits(key)[1] for key in ("digits_cnn", "digits_attn", "digits_parity", "digits_size")}
CONFIG = """platform: "onnxruntime_onnx" max_batch_size: 8 version_policy { all { } }
input { name: "image" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 1, 8, 8 ] }
output { name: "logits" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "labels.txt" }
"""
LABELS = ["zéro", "o\"ne", "two", "three", "four", "five", "six", "seven", "eight"]  # the last has none
ENSEMBLE = """platform: "ensemble" max_batch_size: 8
input { name: "image" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] }
output [ { name: "logits" data_type: TYPE_FP32 dims: [ 10 ] }, { name: "parity" data_type: TYPE_FP32 dims: [ 2 ] } ]
ensemble_scheduling { step [
  { model_name: "m" model_version: 1 input_map { key: "image" value: "image" } output_map { key: "logits" value: "logits" } },
  { model_name: "p" model_version: -1 input_map { key: "image" value: "image" } output_map { key: "logits" value: "parity" } } ] }
"""


def put(model, version, key):
    """Under its name at once, as a deployment would."""
    os.makedirs(f"models/{model}", exist_ok=True)
    os.makedirs("coming")
    shutil.copy(f"{EXAMPLES}/{key}.onnx", "coming/model.onnx")
    os.rename("coming", f"models/{model}/{version}")


def configure(model, text):
    os.makedirs(f"models/{model}", exist_ok=True)
    with open(f"models/{model}/config.pbtxt", "w") as f:
        f.write(text)


def check(server, model, key, version=""):
    connection = server.connect()
    for i in range(4):
        check_images(connection, model + version, x[i:i + 1], want[key][i:i + 1])


def check_classes(server):
    """The classification extension, in JSON and in binary: VALUE:INDEX:LABEL of the largest elements of each row."""
    best = np.argsort(-want["digits_attn"][:6], axis=1)[:, :4]
    for binary in (False, True):
        request = {"inputs": [tensor("image", x[:6])],
                   "outputs": [{"name": "logits", "parameters": {"classification": 4, "binary_data": binary}}]}
        status, head, body = server.request("POST", "/v2/models/m/infer", json.dumps(request))
        size = int(head.get("inference-header-content-length", len(body)))
        output = json.loads(body[:size])["outputs"][0]
        assert status == 200 and output["datatype"] == "BYTES" and output["shape"] == [6, 4], output
        texts, rest = output.get("data", []), body[size:]
        while rest:
            n, = struct.unpack_from("<I", rest)
            texts.append(rest[4:4 + n].decode())
            rest = rest[4 + n:]
        for row, classes in enumerate(np.array(texts).reshape(6, 4)):
            for k, text in enumerate(classes):
                value, at, *label = text.split(":")
                assert int(at) == best[row, k] and label == LABELS[int(at):int(at) + 1], (row, k, text)
                assert abs(float(value) - want["digits_attn"][row, int(at)]) < 1e-3, (row, k, text)
    # More classes than there are: all.
    request["outputs"][0]["parameters"] = {"classification": 100}
    output = json.loads(server.request("POST", "/v2/models/m/infer", json.dumps(request))[2])["outputs"][0]
    assert output["shape"] == [6, 10] and sorted(t.split(":")[1] for t in output["data"][:10]) == [str(i) for i in range(10)], output
    config = server.get("/v2/models/m/config")[1]
    assert config["input"][0]["format"] == "FORMAT_NCHW", config


def field(number, data):
    """A field of protobuf that is bytes, a text or a message."""
    n, size = len(data), b""
    while n > 127:
        size, n = size + bytes([n & 127 | 128]), n >> 7
    return bytes([number << 3 | 2]) + size + bytes([n]) + data


def call(server, method, message, key=None):
    """The code and what is said."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        try:
            channel.unary_unary("/inference.GRPCInferenceService/" + method)(
                message, timeout=60, metadata=[("x-api-key", key)] if key else [])
            return "OK", ""
        except grpc.RpcError as error:
            return error.code().name, error.details()


def load_grpc(server, model, config, key=None):
    return call(server, "RepositoryModelLoad",
                field(2, model.encode()) + field(3, field(1, b"config") + field(2, field(3, config.encode()))), key)


def check_long_labels(server):
    """The text of the classes of a request has a limit."""
    with open("models/p/labels.txt", "w") as f:
        f.write("\n".join(c * 250000 for c in "ab") + "\n")
    config = {"max_batch_size": 64, "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": [1, 8, 8]}],
              "output": [{"name": "logits", "data_type": "TYPE_FP32", "dims": [2], "label_filename": "labels.txt"}]}
    assert server.post_repository("models/p/load", {"parameters": {"config": json.dumps(config)}}) == (200, {})
    for rows, status in ((2, 200), (60, 400)):
        for binary in (False, True):
            request = {"inputs": [tensor("image", np.resize(x, (rows, 1, 8, 8)))],
                       "outputs": [{"name": "logits", "parameters": {"classification": 2, "binary_data": binary}}]}
            got, _, body = server.request("POST", "/v2/models/p/infer", json.dumps(request))
            assert got == status, (rows, binary, got, body[:200])
            assert status == 200 or "at most 16 MiB" in json.loads(body)["error"], body[:200]
        message = field(1, b"p") + field(5, field(1, b"image") + field(2, b"FP32") + field(3, bytes([rows, 1, 8, 8])))
        message += field(6, field(1, b"logits") + field(2, field(1, b"classification") + field(2, b"\x10\x02")))
        got = call(server, "ModelInfer", message + field(7, np.resize(x, (rows, 1, 8, 8)).tobytes()))
        assert got == ("OK", "") if status == 200 else got[0] == "INVALID_ARGUMENT" and "at most 16 MiB" in got[1], got
    os.remove("models/p/labels.txt")
    assert server.post_repository("models/p/load") == (200, {})


def index(server):
    return {(m["name"], m["version"]): m["state"] for m in server.post_repository("index")[1]}


def versions(server, model):
    status, got = server.get(f"/v2/models/{model}")
    return got["versions"] if status == 200 else None


put("m", 1, "digits_cnn")
put("m", 3, "digits_attn")
put("p", 7, "digits_parity")
configure("m", CONFIG)
with open("models/m/labels.txt", "w", encoding="utf-8") as f:
    f.write("\n".join(LABELS) + "\n")
configure("e", ENSEMBLE)

# By hand: one bundle has all versions, of which the latest answers.
subprocess.run([WEFT, "compile", "--repository", "models", "-o", "all.weft"], check=True)
os.makedirs("state")
with Server("--state", "state", "--control", "socket", bundle="all.weft") as server:
    assert versions(server, "m") == ["1", "3"]
    check(server, "m", "digits_attn")
    check(server, "m", "digits_cnn", "/versions/1")
    subprocess.run([WEFT, "ctl", "socket", "weights", "m", "1=1", "3=0"], check=True)
    check(server, "m", "digits_cnn")
with Server("--state", "state", "--control", "socket", bundle="all.weft") as server:  # and over a restart
    assert index(server) == {("m", "1"): "READY", ("m", "3"): "READY", ("p", "7"): "READY", ("e", "1"): "READY"}
    check(server, "m", "digits_cnn")
    check(server, "m", "digits_attn", "/versions/3")
    check(server, "p", "digits_parity", "/versions/7")
    assert len(server.workers()) == 1, server.workers()  # the bundle is served once

with Server("--repository=models", bundle="--log-level=info") as server:
    assert index(server) == {("m", "1"): "READY", ("m", "3"): "READY", ("p", "7"): "READY", ("e", "1"): "READY"}
    check(server, "m", "digits_attn")
    check(server, "m", "digits_cnn", "/versions/1")
    check(server, "p", "digits_parity")
    check_classes(server)
    status, got = server.get("/v2/models/e/config")
    assert status == 200 and [o["dims"] for o in got["output"]] == [[10], [2]], got
    body = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": x[0].ravel().tolist()}]}
    status, _, got = server.request("POST", "/v2/models/e/infer", json.dumps(body))
    answer = {o["name"]: o["data"] for o in json.loads(got)["outputs"]}
    for name, key in (("logits", "digits_cnn"), ("parity", "digits_parity")):
        assert abs(answer[name] - want[key][0]).max() < 1e-3, (name, answer)
    # Without polling a change comes into force when a client loads the model: all versions at once.
    put("m", 4, "digits_cnn")
    configure("m", CONFIG.replace("all { }", "latest { num_versions: 2 }"))
    assert versions(server, "m") == ["1", "3"] and index(server)["m", "4"] == "UNAVAILABLE"
    assert server.post_repository("models/m/load") == (200, {})
    assert versions(server, "m") == ["3", "4"]
    check(server, "m", "digits_cnn")
    check(server, "m", "digits_attn", "/versions/3")
    assert server.post_repository("models/m/unload")[0] == 200 and versions(server, "m") is None
    assert index(server)["m", "4"] == "UNAVAILABLE"
    check(server, "p", "digits_parity")
    # Another configuration, in place of all of config.pbtxt, until the model is loaded again.
    given = {"maxBatchSize": "4", "version_policy": {"specific": {"versions": ["3"]}}, "parameters": {"a": {"string_value": "b"}},
             "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": ["1", 8, 8]}], "dynamic_batching": {}, "cc_model_filenames": None}
    assert server.post_repository("models/m/load", {"parameters": {"config": json.dumps(given)}}) == (200, {})
    assert versions(server, "m") == ["3"] and server.get("/v2/models/m/config")[1]["max_batch_size"] == 4
    check(server, "m", "digits_attn")
    only = {"platform": "ensemble", "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": [1, 1, 8, 8]}],
            "output": [{"name": "parity", "data_type": "TYPE_FP32", "dims": [1, 2]}],
            "ensemble_scheduling": {"step": [{"model_name": "p", "model_version": -1, "input_map": {"image": "image"},
                                              "output_map": {"logits": "parity"}}]}}
    assert server.post_repository("models/e/load", {"parameters": {"config": json.dumps(only)}}) == (200, {})
    assert [o["name"] for o in server.get("/v2/models/e/config")[1]["output"]] == ["parity"]
    # As long as clients of Triton make them.
    given["parameters"]["a"]["string_value"] = "b" * 20000
    assert server.post_repository("models/m/load", {"parameters": {"config": json.dumps(given)}}) == (200, {})
    assert load_grpc(server, "m", json.dumps(given)) == ("OK", "")
    for config, text in (("{", "no JSON object"), ("[1]", "not the JSON of"), ("a" * 65536, "at most 65536 bytes"), ("", "'config' is empty"), (7, "'config' is no text"),
                         ('{"a b": 1}', "not the JSON of"), ('{"a": ' + "[" * 50 + "]" * 50 + "}", "not the JSON of"),
                         ('{"default_model_filename": "../3/model.onnx"}', "cannot be compiled"), ('{"max_batch_size": "x\\" y"}', "cannot be compiled")):
        status, got = server.post_repository("models/m/load", {"parameters": {"config": config}})
        assert status == 400 and text in got["error"] and (text[0] == "'" or "65536" in text or "failed to load m" in got["error"]), (config, got)
    for config, code, text in (("a" * 65536, "RESOURCE_EXHAUSTED", "larger than 65536 bytes"), ("", "INVALID_ARGUMENT", "'config' is empty")):
        got = load_grpc(server, "m", config)
        assert got[0] == code and text in got[1], got
    check(server, "m", "digits_attn")
    assert server.post_repository("models/m/load") == (200, {}) and versions(server, "m") == ["3", "4"]
    check_long_labels(server)
    # What cannot be: the model that was served goes on.
    status, got = server.post_repository("models/none/load")
    assert status == 404 and "failed to load" in got["error"], got
    assert server.post_repository("models/..%2Fmodels/load")[0] in (400, 404)
    assert server.post_repository("models/p/load", {"parameters": {"version": 7}})[0] == 400
    configure("p", 'max_batch_size: 8 input { name: "image" data_type: TYPE_INT8 dims: [ 1, 8, 8 ] }')
    status, got = server.post_repository("models/p/load")
    assert status == 400 and "cannot be compiled" in got["error"] and os.getcwd() not in got["error"], got
    assert "input 'image' is i8 [?,1,8,8] here" in server.text(), server.text()
    check(server, "p", "digits_parity")
    os.remove("models/p/config.pbtxt")

# A key with a right to an ensemble makes it of no model to which it has none, in whatever form the steps are given.
with open("keys", "w") as f:
    for key, names in (("all", "*"), ("some", "e,m")):
        f.write(f"{key} {hashlib.sha256(key.encode()).hexdigest()} {names} *\n")
os.chmod("keys", 0o600)
with Server("--repository=models", "--api-keys=keys", bundle="--log-level=info") as server:
    def load(config, key):
        status, _, body = server.request("POST", "/v2/repository/models/e/load", json.dumps({"parameters": {"config": config}}), {"x-api-key": key})
        return status, json.loads(body).get("error", "")

    step = only["ensemble_scheduling"]["step"][0]
    allowed = {**step, "model_name": "m", "model_version": 3}
    forms = [{"ensemble_scheduling": {"step": [step]}}, {"ensembleScheduling": {"step": [{**allowed}, step]}},
             {"ensemble_scheduling": [{"step": [step]}]}, {"ensemble_scheduling": {"step": step}}, {"ensemble_scheduling": {"step": [[step]]}},
             {"ensemble_scheduling": {"step": [{**allowed, "modelName": "p"}]}}, {"ensemble_scheduling": {"step": [{"model_version": -1}]}},
             {"ensemble_scheduling": {"step": [{**allowed, "model_name": ["m", "p"]}]}}, {"ensemble_scheduling": {"step": [allowed]}, "ensembleScheduling": {"step": [step]}}]
    for form in forms:
        config = json.dumps({**{k: only[k] for k in ("platform", "input", "output")}, **form})
        status, text = load(config, "some")
        assert status == 400 and "the key has no right" in text, (form, status, text)
        got = load_grpc(server, "e", config, "some")
        assert got[0] == "INVALID_ARGUMENT" and "the key has no right" in got[1], (form, got)
    assert load("{", "some")[1] == "'config' is no JSON object"
    assert load(json.dumps(only), "all") == (200, "")
    mine = {**only, "output": [{"name": "parity", "data_type": "TYPE_FP32", "dims": [1, 10]}], "ensemble_scheduling": {"step": [allowed]}}
    assert load(json.dumps(mine), "some") == (200, "")

# Polling: a new version, a new model, one that is gone, one that is wrong.
with Server("--repository=models", "--poll=0.2s", bundle="--log-level=info") as server:
    assert versions(server, "m") == ["3", "4"]
    put("m", 5, "digits_attn")
    put("new", 1, "digits_size")
    wait_until(lambda: versions(server, "m") == ["4", "5"])
    wait_until(lambda: versions(server, "new") == ["1"])
    check(server, "m", "digits_attn")
    check(server, "new", "digits_size")
    put("broken", 1, "digits_cnn")
    with open("models/broken/1/model.onnx", "wb") as f:
        f.write(b"no model")
    wait_until(lambda: "change_refused" in server.text())
    shutil.rmtree("models/new")
    wait_until(lambda: versions(server, "new") is None)
    os.remove("models/m/5/model.onnx")  # a repository that is wrong changes nothing
    wait_until(lambda: "repository_not_read" in server.text())
    check(server, "m", "digits_attn")

# A compiler that is killed, as the kernel does for lack of memory, says nothing of the model: the next look tries again.
os.makedirs("programs")
found = os.path.dirname(os.path.realpath(WEFT))
found = found if os.path.exists(f"{found}/weft-compiler") else f"{found}/../libexec/weft"
os.symlink(f"{found}/weft-server", "programs/weft-server")
with open("programs/weft-compiler", "w") as f:
    f.write(f'#!/bin/sh\n! rm kill 2>/dev/null || kill -KILL $$\nexec {found}/weft-compiler "$@"\n')
os.chmod("programs/weft-compiler", 0o755)
shutil.rmtree("models/m/5")
shutil.rmtree("models/broken")
os.environ["WEFT_LIBEXEC"] = os.path.abspath("programs")
with Server("--repository=models", "--poll=0.2s", bundle="--log-level=info") as server:
    open("kill", "w").close()
    put("late", 1, "digits_size")
    wait_until(lambda: versions(server, "late") == ["1"])
    check(server, "late", "digits_size")
    assert not os.path.exists("kill") and "exit code -1" in server.text(), server.text()
del os.environ["WEFT_LIBEXEC"]
put("m", 5, "digits_cnn")
os.remove("models/m/5/model.onnx")

# A server whose models cannot be compiled does not start; one that is to end while they are does.
done = subprocess.run([WEFT, "serve", "--repository", "models"], stderr=subprocess.PIPE, text=True)
assert done.returncode == 1 and "lacks this file" in done.stderr, done
shutil.rmtree("models/m/5")
os.makedirs("temporary")
put("broken", 1, "digits_cnn")
os.truncate("models/broken/1/model.onnx", 300)
done = subprocess.run([WEFT, "serve", "--repository", "models"], stderr=subprocess.PIPE, text=True,
                      preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
assert done.returncode == 1 and "cannot be compiled (exit code 1)" in done.stderr, done
shutil.rmtree("models/broken")
process = subprocess.Popen([WEFT, "serve", "--repository", "models", "--http", "0", "--grpc", "0", "--metrics", "0"],
                           env={**os.environ, "TMPDIR": os.path.abspath("temporary")}, stderr=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL)
wait_until(lambda: os.listdir("temporary"))
process.send_signal(signal.SIGTERM)
start = time.monotonic()
assert process.wait(20) in (0, 1) and time.monotonic() - start < 10
assert os.listdir("temporary") == [], os.listdir("temporary")
for wrong in (["--repository", "models", "--state", "state"], ["--poll", "1s", "all.weft"]):
    assert subprocess.run([WEFT, "serve", *wrong], stderr=subprocess.DEVNULL).returncode in (1, 2), wrong
