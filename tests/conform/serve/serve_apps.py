# needs: grpc numpy google.protobuf
"""Apps: requests to a task are answered by the variant that suits them, the answer says which, and it is that variant's
answer. Bounds of requests, variants that are not placed, killed or busy, the mean accuracy, rights, metrics, gRPC."""
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import numpy as np

from grpc_client import LIMITS, SERVICE, Messages
from serving import EXAMPLES, WEFT, Server, digits, is_close, tensor, wait_until

VARIANTS = {"large": "digits_cnn", "small": "digits_attn"}
ACCURACY = {"large": 97.5, "small": 95}
x, _ = digits()
want = {name: digits(key)[1] for name, key in VARIANTS.items()}


def compile_set(path, mean=0, slo="400ms", more=""):
    with open("set.yaml", "w") as f:
        f.write("models:\n")
        for name, key in VARIANTS.items():
            f.write(f"  - {{name: {name}, file: {EXAMPLES}/{key}.onnx, rate: 10/s}}\n")
        f.write(f"  - {{name: parity, file: {EXAMPLES}/digits_parity.onnx, rate: 10/s}}\napps:\n"
                f"  - name: read\n    rate: 50/s\n    slo: {slo}\n    accuracy: {mean}\n    variants:\n")
        for name, accuracy in ACCURACY.items():
            f.write(f"      - {{model: {name}, accuracy: {accuracy}}}\n")
        f.write(more)
    return subprocess.run([WEFT, "compile", "set.yaml", "-o", path, "--batch", "1,2,4,8,256"], check=True, stderr=subprocess.PIPE, text=True).stderr


def ask(server, i=0, n=1, app="read", **parameters):
    """Status, and the answer; an answer of status 200 is checked to be that of the variant that it names."""
    body = {"inputs": [tensor("image", x[i:i + n])], "id": "q"}
    if parameters:
        body["parameters"] = parameters
    status, answer = server.infer(app, body)
    if status == 200:
        assert answer["model_name"] == app and answer["id"] == "q", answer
        p = answer["parameters"]
        assert is_close(answer["outputs"][0]["array"], want[p["weft_variant"]][i:i + n]), p
        assert p["weft_accuracy"] == ACCURACY[p["weft_variant"]] and p["weft_predicted_us"] >= 0, p
    return status, answer


def variant(server, **parameters):
    status, answer = ask(server, **parameters)
    assert status == 200, answer
    return answer["parameters"]["weft_variant"], answer["parameters"]["weft_reason"]


def results(server, app="read"):
    """By variant and result."""
    out = {}
    for line in server.request("GET", "/metrics", port=server.metrics)[2].decode().splitlines():
        if line.startswith(f'weft_app_requests_total{{app="{app}"'):
            labels, count = line.rsplit(" ", 1)
            out[tuple(part.split('"')[1] for part in labels.split(",")[2:])] = int(count)
    return out


def write_plan(path, place):
    subprocess.run([WEFT, "plan", "set.yaml", "--fleet", f"{EXAMPLES}/fleet.yaml", "-o", "made.json"], check=True,
                   stdout=subprocess.DEVNULL)
    with open("made.json") as f:
        plan = json.load(f)
    like = plan["placements"][0]
    plan["placements"] = [dict(like, model=m, slice_id=i, batch=1) for m, i in place]
    with open(path, "w") as f:
        json.dump(plan, f)


def protocol():
    with Server("--nv-metrics") as s:
        assert s.get("/v2/models/read/ready")[0] == 200
        status, m = s.get("/v2/models/read")
        assert status == 200 and m["name"] == "read" and m["inputs"][0]["shape"] == [-1, 1, 8, 8], m
        assert m["outputs"] == s.get("/v2/models/large")[1]["outputs"]
        assert s.get("/v2/models/read/config")[1]["name"] == "read"
        assert s.get("/v2/models/read/versions/1")[0] == 200
        names = [m["name"] for m in json.loads(s.request("POST", "/v2/repository/index")[2])]
        assert "read" in names and "large" in names, names
        # No request at all is lost in counts.
        n = {"large": 0, "small": 0}
        for i in range(30):
            n[variant(s, i=i)[0]] += 1
        for i in range(0, 60, 7):
            n[ask(s, i=i, n=7)[1]["parameters"]["weft_variant"]] += 1
        assert s.infer("large", {"inputs": [tensor("image", x[:1])]})[0] == 200
        got = results(s)
        assert {v: got[v, "answered"] for v in n} == n, (got, n)
        stats = s.get("/v2/models/read/stats")[1]["model_stats"]
        assert len(stats) == 1 and stats[0]["inference_stats"]["success"]["count"] == 39, stats
        assert stats[0]["inference_count"] == 30 + 9 * 7, stats
        all_stats = {m["name"]: m for m in s.get("/v2/models/stats")[1]["model_stats"]}
        assert sum(all_stats[v]["inference_stats"]["success"]["count"] for v in n) == 40
        text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
        assert 'weft_requests_succeeded_total{model="read"' not in text
        # A raw request, and binary outputs.
        status, headers, body = s.request("POST", "/v2/models/read/infer", x[:1].tobytes(),
                                          {"Inference-Header-Content-Length": "0"})
        head = json.loads(body[:int(headers["inference-header-content-length"])])
        array = np.frombuffer(body[int(headers["inference-header-content-length"]):], "f4").reshape(1, -1)
        assert status == 200 and is_close(array, want[head["parameters"]["weft_variant"]][:1])
        # Bounds. What a variant costs is known once it has run.
        assert s.infer("small", {"inputs": [tensor("image", x[:1])]})[0] == 200
        assert variant(s, min_accuracy=97) == ("large", "active")
        assert variant(s, min_accuracy=95, latency_ms=20000)[1] == "active"
        status, answer = ask(s, min_accuracy=99)
        assert status == 400 and "97.5" in answer["error"], answer
        assert variant(s, min_accuracy=99, best_effort=True) == ("large", "nearest")
        status, answer = ask(s, max_cost=1e-9)
        assert status == 503 and "nearest" in answer["error"], answer
        assert variant(s, max_cost=1e-9, best_effort=True)[1] == "nearest"
        assert variant(s, latency_ms=1e-6)[1] == "late"
        for wrong in ({"min_accuracy": "97"}, {"latency_ms": -1}, {"max_cost": 1e16}, {"best_effort": 1}):
            status, answer = ask(s, **wrong)
            assert status == 400 and next(iter(wrong)) in answer["error"], (wrong, answer)
        # What no variant takes is refused with the reason of a variant.
        status, answer = s.infer("read", {"inputs": [tensor("image", np.zeros((1, 1, 8, 9), "f4"))]})
        assert status == 400 and "8" in answer["error"], answer
        status, answer = s.infer("read", {"inputs": [tensor("image", np.zeros((5000, 1, 8, 8), "f4"))]})
        assert status == 400 and "max_batch_size" in answer["error"], answer
        assert s.infer("none", {"inputs": []})[0] == 404
        # The variants of the other app have different outputs.
        assert s.get("/v2/models/mixed")[0] == 404 and "app_not_served" in s.text()
        by_grpc(s)


def by_grpc(s):
    with tempfile.TemporaryDirectory() as folder:
        pb = Messages(sys.argv[3], sys.argv[4], folder)
    channel = grpc.insecure_channel(f"127.0.0.1:{s.grpc}", options=LIMITS)

    def call(name, request):
        answer = getattr(pb, name + "Response")
        return channel.unary_unary(SERVICE + name, request_serializer=lambda m: m.SerializeToString(),
                                   response_deserializer=answer.FromString)(request, timeout=30)

    def infer(**parameters):
        r = pb.ModelInferRequest(model_name="read", id="g")
        r.inputs.add(name="image", datatype="FP32", shape=[1, 1, 8, 8])
        r.raw_input_contents.append(x[3:4].tobytes())
        for key, value in parameters.items():
            kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(value)]
            setattr(r.parameters[key], kind, value)
        a = call("ModelInfer", r)
        v = a.parameters["weft_variant"].string_param
        array = np.frombuffer(a.raw_output_contents[0], "f4").reshape(1, -1)
        assert a.model_name == "read" and a.id == "g" and is_close(array, want[v][3:4]), a
        assert a.parameters["weft_accuracy"].double_param == ACCURACY[v]
        return v, a.parameters["weft_reason"].string_param

    assert infer()[1] == "active"
    assert infer(min_accuracy=97.0) == ("large", "active")
    assert infer(min_accuracy=97) == ("large", "active")
    assert infer(min_accuracy=99.0, best_effort=True) == ("large", "nearest")
    for wrong, code in (({"min_accuracy": 99.0}, "INVALID_ARGUMENT"), ({"min_accuracy": "99"}, "INVALID_ARGUMENT"),
                        ({"max_cost": 1e-9}, "UNAVAILABLE")):
        try:
            infer(**wrong)
            raise AssertionError(wrong)
        except grpc.RpcError as e:
            assert e.code().name == code, (wrong, e)
    assert call("ModelMetadata", pb.ModelMetadataRequest(name="read")).name == "read"
    assert call("ModelReady", pb.ModelReadyRequest(name="read")).ready
    assert call("ModelConfig", pb.ModelConfigRequest(name="read")).config.name == "read"
    assert "read" in [m.name for m in call("RepositoryIndex", pb.RepositoryIndexRequest()).models]
    assert call("ModelStatistics", pb.ModelStatisticsRequest(name="read")).model_stats[0].name == "read"
    # A large request is read beside the loop.
    r = pb.ModelInferRequest(model_name="read")
    r.inputs.add(name="image", datatype="FP32", shape=[256, 1, 8, 8])
    r.raw_input_contents.append(np.resize(x, (256, 1, 8, 8)).tobytes())
    a = call("ModelInfer", r)
    logits = want[a.parameters["weft_variant"].string_param]
    assert is_close(np.frombuffer(a.raw_output_contents[0], "f4").reshape(256, -1), np.resize(logits, (256, logits.shape[1])))


def passed_over():
    """Variants that are not placed, whose worker is gone, or that are busy."""
    write_plan("small.json", [("small", 0), ("parity", 1)])
    with Server("small.json") as s:
        assert variant(s) == ("small", "active")
        assert ask(s, min_accuracy=97)[0] == 503
        assert variant(s, min_accuracy=97, best_effort=True) == ("small", "nearest")
        assert s.infer("large", {"inputs": [tensor("image", x[:1])]})[0] == 404
    write_plan("other.json", [("parity", 0)])
    with Server("other.json") as s:
        assert s.get("/v2/models/read")[0] == 404
    write_plan("apart.json", [("large", 0), ("small", 1)])
    with Server("apart.json", "--control", "control", "--stall-timeout", "0.2s") as s:
        status = json.loads(subprocess.run([WEFT, "ctl", "control", "status", "--format", "json"], check=True,
                                           stdout=subprocess.PIPE).stdout)
        pid = {w["models"][0]: w["pid"] for w in status["workers"]}
        assert variant(s) == ("large", "active")
        # Stopped, it is not ready; its requests go to the other one, unless they need it.
        os.kill(pid["large"], signal.SIGSTOP)
        try:
            wait_until(lambda: variant(s) == ("small", "active"))
        finally:
            os.kill(pid["large"], signal.SIGCONT)
        wait_until(lambda: variant(s) == ("large", "active"))
        os.kill(pid["large"], signal.SIGKILL)
        for _ in range(40):
            assert ask(s)[0] == 200
        wait_until(lambda: variant(s) == ("large", "active"))
        # Many at once, until both answer: a busy machine may starve the clients; no request is lost.
        answers, lock = [], threading.Lock()

        def client(at):
            for i in range(40):
                got = ask(s, i=(at * 7 + i) % 60)
                with lock:
                    answers.append(got)

        def ask_by_many():
            before = len(answers)
            threads = [threading.Thread(target=client, args=(at,)) for at in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert len(answers) == before + 320 and all(status == 200 for status, _ in answers)
            return {a["parameters"]["weft_variant"] for _, a in answers} == {"large", "small"}

        wait_until(ask_by_many)
        # What the controller sees: requests to the app are not those of its models.
        status = json.loads(subprocess.run([WEFT, "ctl", "control", "status", "--format", "json"], check=True,
                                           stdout=subprocess.PIPE).stdout)
        n = {m["model"]: m for m in status["models"]}
        assert n["large"]["arrivals"] == n["small"]["arrivals"] == 0, n
        assert n["read"]["arrivals"] == n["read"]["answered"] > 360, n


def mean_accuracy():
    """96.5 on average: small answers are paid for by large ones."""
    compile_set("models.weft", mean=96.5)
    write_plan("apart.json", [("large", 0), ("small", 1)])
    with Server("apart.json") as s:
        sums, lock = [], threading.Lock()

        def client():
            for i in range(60):
                status, answer = ask(s, i=i)
                assert status in (200, 503), answer
                if status == 200:
                    with lock:
                        sums.append(answer["parameters"]["weft_accuracy"])
        threads = [threading.Thread(target=client) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(sums) > 300, len(sums)
        assert sum(sums) / len(sums) >= 96.5 - 1e-9, sum(sums) / len(sums)


def rights():
    key = hashlib.sha256(b"k").hexdigest()
    with open("keys", "w") as f:
        f.write(f"app {hashlib.sha256(key.encode()).hexdigest()} read *\n")
    os.chmod("keys", 0o600)
    with Server("--api-keys", "keys") as s:
        body = json.dumps({"inputs": [tensor("image", x[:1])]})
        for model, code in (("read", 200), ("large", 404), ("small", 404)):
            assert s.request("POST", f"/v2/models/{model}/infer", body, {"x-api-key": key})[0] == code, model
        names = [m["name"] for m in json.loads(s.request("POST", "/v2/repository/index", headers={"x-api-key": key})[2])]
        assert names == ["read"], names


said = compile_set("models.weft", more="  - name: mixed\n    variants: [{model: large, accuracy: 1}, "
                                       "{model: parity, accuracy: 2}]\n")
assert "mixed" in said and "cannot be served as an app" in said, said
shown = json.loads(subprocess.run([WEFT, "inspect", "models.weft", "--format", "json"], check=True,
                                  stdout=subprocess.PIPE).stdout)
assert [a["name"] for a in shown["apps"]] == ["read", "mixed"], shown["apps"]
assert shown["apps"][0]["variants"] == [{"model": "large", "accuracy": 97.5}, {"model": "small", "accuracy": 95.0}]
protocol()
passed_over()
mean_accuracy()
rights()
print("ok")
