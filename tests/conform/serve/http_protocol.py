# needs: numpy
"""The Open Inference Protocol over HTTP, by its specification and as its clients use it: routes,
metadata, JSON and binary tensors, compression, statistics, metrics."""
import gzip
import json
import os
import re
import shutil
import subprocess
import zlib

import numpy as np
from serving import ONNX_DATA, Server, compile_bundle, digits, is_close, tensor

have = compile_bundle()
x, want = digits()


def check_metadata(s):
    assert s.get("/v2/health/live") == (200, {"live": True})
    assert s.get("/v2/health/ready") == (200, {"ready": True})
    status, server = s.get("/v2")
    assert status == 200 and server["name"] == "weft" and server["version"], server
    # perf_analyzer requests statistics only if "statistics" is an extension.
    assert {"binary_tensor_data", "classification", "statistics"} <= set(server["extensions"]), server
    for path in ("/v2/models/digits", "/v2/models/digits/versions/1"):
        status, meta = s.get(path)
        assert status == 200 and meta["name"] == "digits" and meta["versions"] == ["1"], meta
        assert meta["platform"], meta
        assert meta["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]
        assert meta["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}]
        assert s.get(path + "/ready") == (200, {"name": "digits", "ready": True})
        status, config = s.get(path + "/config")
        assert status == 200 and config["name"] == "digits" and config["max_batch_size"] == 8
        assert config["input"] == [{"name": "image", "data_type": "TYPE_FP32", "dims": [1, 8, 8]}]
        assert config["output"] == [{"name": "logits", "data_type": "TYPE_FP32", "dims": [10]}]
    # Triton's client sends no body and no length.
    raw = s.raw_socket()
    raw.sendall(b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n\r\n")
    assert raw.recv(65536).startswith(b"HTTP/1.1 200")
    raw.close()
    status, _, body = s.request("POST", "/v2/repository/index", b'{"ready":true}')
    index = json.loads(body)
    assert status == 200 and {"name": "digits", "version": "1", "state": "READY",
                              "reason": ""} in index, index


def check_json(s):
    for n in (1, 2, 3, 7, 8):
        status, got = s.infer("digits", {"id": f"n{n}", "inputs": [tensor("image", x[:n])]})
        assert status == 200 and got["id"] == f"n{n}" and got["model_name"] == "digits", got
        assert got["model_version"] == "1" and is_close(got["outputs"][0]["array"], want[:n]), n
    nested = {"name": "image", "shape": [2, 1, 8, 8], "datatype": "FP32", "data": x[:2].tolist()}
    status, got = s.infer("digits", {"inputs": [nested]}, version="/versions/1")
    assert status == 200 and "id" not in got and is_close(got["outputs"][0]["array"], want[:2])
    # Unknown parameters are ignored.
    status, got = s.infer("digits", {
        "inputs": [tensor("image", x[:1])],
        "parameters": {"priority": 1, "timeout": 5000000, "triton_enable_empty_final_response": True,
                       "sequence_id": 0, "own": "text"}})
    assert status == 200 and is_close(got["outputs"][0]["array"], want[:1]), got
    # The id is returned with its escapes.
    name = 'a"b\\c\n\t\u20ac\U0001f600'
    status, got = s.infer("digits", {"id": name, "inputs": [tensor("image", x[:1])]})
    assert status == 200 and got["id"] == name, got


def check_binary(s):
    for model, key in (("digits", "digits_cnn"), ("parity", "digits_parity"),
                       ("size", "digits_size"), ("digits-attn", "digits_attn")):
        _, expected = digits(key)
        for n in (1, 5, 8):
            request = {"inputs": [tensor("image", x[:n], True)],
                       "parameters": {"binary_data_output": True}}
            status, got = s.infer(model, request, x[:n].tobytes())
            assert status == 200 and "data" not in got["outputs"][0], got
            assert is_close(got["outputs"][0]["array"], expected[:n]), (model, n)
    # Binary in, JSON out, and vice versa; the flag of an output overrides that of the request.
    one = x[:1].tobytes()
    status, got = s.infer("digits", {"inputs": [tensor("image", x[:1], True)]}, one)
    assert status == 200 and "data" in got["outputs"][0]
    for whole, own, binary in ((True, False, False), (False, True, True), (None, True, True),
                               (True, None, True)):
        request = {"inputs": [tensor("image", x[:1])], "outputs": [{"name": "logits"}]}
        if whole is not None:
            request["parameters"] = {"binary_data_output": whole}
        if own is not None:
            request["outputs"][0]["parameters"] = {"binary_data": own}
        status, got = s.infer("digits", request)
        assert status == 200 and ("data" not in got["outputs"][0]) == binary, (whole, own, got)
        assert is_close(got["outputs"][0]["array"], want[:1])
    # JSON of different lengths: the tensor after it has any alignment.
    for pad in range(9):
        request = {"id": "i" * pad, "inputs": [tensor("image", x[:1], True)]}
        status, got = s.infer("digits", request, one)
        assert status == 200 and is_close(got["outputs"][0]["array"], want[:1]), pad


def check_raw(s):
    status, got = s.infer("digits", x[:1].tobytes(),
                          headers={"Inference-Header-Content-Length": "0"})
    assert status == 200 and is_close(got["outputs"][0]["array"], want[:1]), got
    assert "data" not in got["outputs"][0]
    status, got = s.infer("digits", x[:2].tobytes(),
                          headers={"Inference-Header-Content-Length": "0"})
    assert status == 400 and "image" in got["error"], got


def check_compression(s):
    head = json.dumps({"inputs": [tensor("image", x[:3], True)]}).encode()
    for name, pack in (("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)):
        status, got = s.infer("digits", pack(head + x[:3].tobytes()), headers={
            "Content-Encoding": name, "Inference-Header-Content-Length": str(len(head))})
        assert status == 200 and is_close(got["outputs"][0]["array"], want[:3]), (name, got)
    # A chunked body has no Content-Length.
    connection = s.connect()
    connection.request("POST", "/v2/models/digits/infer", iter([head, x[:3].tobytes()]),
                       {"Inference-Header-Content-Length": str(len(head))}, encode_chunked=True)
    assert connection.getresponse().status == 200




def check_types(s):
    if "add" in have:
        a, b = np.arange(60, dtype="f4").reshape(3, 4, 5), np.ones((3, 4, 5), "f4")
        meta = s.get("/v2/models/add")[1]
        assert [i["name"] for i in meta["inputs"]] == ["x", "y"] and meta["inputs"][0]["shape"] == [3, 4, 5]
        assert s.get("/v2/models/add/config")[1]["max_batch_size"] == 0
        # In any order, one binary and one not.
        status, got = s.infer("add", {"inputs": [tensor("y", b, True), tensor("x", a)]}, b.tobytes())
        assert status == 200 and (got["outputs"][0]["array"] == a + b).all(), got
        for request, why in (([tensor("x", a)], "missing"), ([tensor("x", a[:2]), tensor("y", b)], "x")):
            status, got = s.infer("add", {"inputs": request})
            assert status == 400 and why in got["error"], got
        status, got = s.infer("add", a.tobytes(), headers={"Inference-Header-Content-Length": "0"})
        assert status == 400, got
    if "split" in have:
        a = np.arange(6, dtype="f4")
        status, got = s.infer("split", {"inputs": [tensor("input", a)]})
        assert status == 200 and [o["array"].tolist() for o in got["outputs"]] == [[0, 1], [2, 3], [4, 5]]
        names = [o["name"] for o in got["outputs"]]
        # Outputs as asked for, in that order; some binary, some not.
        status, got = s.infer("split", {"inputs": [tensor("input", a)], "outputs": [
            {"name": names[2], "parameters": {"binary_data": True}}, {"name": names[0]}]})
        assert [o["name"] for o in got["outputs"]] == [names[2], names[0]], got
        assert [o["array"].tolist() for o in got["outputs"]] == [[4, 5], [0, 1]]
        # Raw: the only dimension is not the batch dimension.
        status, got = s.infer("split", a.tobytes(), headers={"Inference-Header-Content-Length": "0"})
        assert status == 200 and got["outputs"][1]["array"].tolist() == [2, 3], got
    if "not" in have:
        a = np.arange(12).reshape(3, 4) % 3 == 0
        for binary in (False, True):
            status, got = s.infer("not", {"inputs": [tensor("x", a, binary)]}, a.tobytes() if binary else b"")
            assert status == 200 and (got["outputs"][0]["array"] == ~a).all(), got
        t = tensor("x", a)
        t["data"] = [int(v) for v in t["data"]]
        assert s.infer("not", {"inputs": [t]})[0] == 200
        t["data"][0] = 2
        assert s.infer("not", {"inputs": [t]})[0] == 400
    if "half" in have:
        a = np.linspace(-1, 1, 12).astype("f2").reshape(3, 4)
        status, got = s.infer("half", {"inputs": [tensor("input", a)]})
        assert status == 400 and "binary" in got["error"], got
        status, got = s.infer("half", {"inputs": [tensor("input", a, True)]}, a.tobytes())
        assert status == 200 and (got["outputs"][0]["array"] == a.astype("f4")).all(), got
    if "gather" in have:
        data, at = np.arange(5 * 4 * 3 * 2, dtype="f4").reshape(5, 4, 3, 2), np.array([0, 1, 3])
        status, got = s.infer("gather", {"inputs": [tensor("data", data), tensor("indices", at)]})
        assert status == 200 and (got["outputs"][0]["array"] == data[at]).all(), got
        # An error that only a kernel detects is the client's as well, and affects no other request.
        for bad in (5, -6, 2**62):
            status, got = s.infer("gather", {"inputs": [
                tensor("data", data), tensor("indices", np.array([0, bad, 3]))]})
            assert status in (200, 400), (bad, status, got)
        assert s.infer("gather", {"inputs": [tensor("data", data), tensor("indices", at)]})[0] == 200


def check_stats(s):
    def one():
        return s.get("/v2/models/parity/stats")[1]["model_stats"][0]
    before = one()
    for n in (1, 3, 3):
        s.infer("parity", {"inputs": [tensor("image", x[:n])]})
    assert s.infer("parity", {"inputs": [tensor("image", x[:1].reshape(1, 1, 4, 16))]})[0] == 400
    after = one()
    assert after["name"] == "parity" and int(after["version"]) == 1 and after["last_inference"] > 0
    memory = after["memory_usage"]
    assert [m["type"] for m in memory] == ["CPU"] and memory[0]["byte_size"] > 7000, memory
    assert after["inference_count"] - before["inference_count"] == 7
    assert after["execution_count"] - before["execution_count"] == 3
    stats = after["inference_stats"]
    assert set(stats) == {"success", "fail", "queue", "compute_input", "compute_infer",
                          "compute_output", "cache_hit", "cache_miss"}
    for name, by in (("success", 3), ("fail", 1), ("queue", 3), ("compute_infer", 3)):
        assert stats[name]["count"] - before["inference_stats"][name]["count"] == by, (name, stats)
        assert stats[name]["ns"] >= before["inference_stats"][name]["ns"]
    assert {b["batch_size"] for b in after["batch_stats"]} >= {1, 3}
    everything = s.get("/v2/models/stats")[1]["model_stats"]
    assert len(everything) == 4 + len(have), everything


def check_histograms(text):
    """Counts rise with the boundary, the last is that of all, and the SLO (50 ms) is a boundary."""
    for name in ("weft_request_duration_seconds", "weft_queue_duration_seconds"):
        buckets = re.findall(name + r'_bucket\{model="digits",version="1",le="([^"]*)"\} (\d+)', text)
        counts = [int(n) for _, n in buckets]
        assert buckets[-1][0] == "+Inf" and counts == sorted(counts), buckets
        assert {"0.025", "0.05", "0.1"} <= {bound for bound, _ in buckets}, buckets
        number = lambda what: float(re.search(what + r'\{model="digits",version="1"\} (\S+)', text)[1])
        assert counts[-1] == number(name + "_count") == number("weft_requests_succeeded_total")
        assert counts[-1] > 0 and number(name + "_sum") >= 0


def check_settings(s):
    def post(path, **settings):
        status, _, body = s.request("POST", path, json.dumps(settings))
        return status, json.loads(body)
    log = {"log_file": "", "log_info": False, "log_warning": True, "log_error": True, "log_verbose_level": 0,
           "log_format": "default"}
    assert s.get("/v2/logging") == (200, log)
    assert post("/v2/logging", log_info=True, log_verbose_level=1, log_format="default")[1]["log_verbose_level"] == 1
    s.infer("parity", {"inputs": [tensor("image", x[:1])]})
    assert "access request" in s.text()
    assert post("/v2/logging", log_info=False, log_verbose_level=0) == (200, log)
    for wrong in ({"log_file": "/tmp/x"}, {"log_error": False}, {"log_info": "yes"}, {"other": 1},
                  {"log_verbose_level": -1}, {"log_format": ["default", "x"]}, {f"k{i}": None for i in range(9)}):
        status, got = post("/v2/logging", **wrong)
        assert status == 400 and s.get("/v2/logging")[1] == log, (wrong, got)
    assert s.get("/v2/trace/setting")[1]["trace_level"] == ["OFF"]
    assert post("/v2/trace/setting", trace_level=["OFF"], trace_rate="7")[1]["trace_rate"] == "7"
    assert "--trace-file" in post("/v2/trace/setting", trace_level=["TIMESTAMPS"])[1]["error"]
    assert post("/v2/models/digits/trace/setting", trace_rate="9")[0] == 501
    assert post("/v2/trace/setting", trace_rate=None)[1] == s.get("/v2/models/digits/trace/setting")[1]


def check_metrics(s):
    status, headers, body = s.request("GET", "/metrics", port=s.metrics)
    text = body.decode()
    assert status == 200 and headers["content-type"].startswith("text/plain"), headers
    assert re.search(r'^weft_requests_succeeded_total\{model="digits",version="1"\} [1-9]', text, re.M), text
    assert re.search(r'^nv_inference_request_success\{', text, re.M), text
    for line in text.splitlines():
        assert re.fullmatch(r"#.*|[a-z_]+(\{[^}]*\})? [-+0-9.e]+", line), line
    assert s.request("GET", "/metrics/", port=s.metrics)[0] == 200
    assert s.request("POST", "/metrics", port=s.metrics)[0] == 405
    assert s.request("GET", "/v2", port=s.metrics)[0] == 404
    check_histograms(text)
    promtool = shutil.which("promtool")
    if promtool:
        # Triton's counters do not end in _total: only Weft's names are linted.
        ours = "".join(line + "\n" for line in text.splitlines() if "nv_" not in line)
        got = subprocess.run([promtool, "check", "metrics"], input=ours, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert got.returncode == 0, got.stdout


with Server("--nv-metrics") as server:
    for check in (check_metadata, check_json, check_binary, check_raw, check_compression,
                  check_types, check_stats, check_settings, check_metrics):
        check(server)
        print(check.__name__, "ok")
