# needs: numpy tritonclient.http
"""Triton's HTTP client as its users call it, and the requests of its C++ clients."""
import json

import numpy as np
import tritonclient.http as triton
from serving import Server, compile_bundle, digits, is_close
from tritonclient.utils import InferenceServerException

have = compile_bundle()
x, want = digits()


def image(n, binary=True, array=None):
    array = x[:n] if array is None else array
    t = triton.InferInput("image", array.shape, "FP32")
    t.set_data_from_numpy(array, binary_data=binary)
    return t


def refused(status, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except InferenceServerException as error:
        assert error.status() == str(status), (error.status(), error)
        assert error.message()
        return
    raise AssertionError("it was accepted")


def check_metadata(c):
    assert c.is_server_live() and c.is_server_ready()
    assert c.is_model_ready("digits") and c.is_model_ready("digits", "1")
    assert not c.is_model_ready("none") and not c.is_model_ready("digits", "2")
    assert "statistics" in c.get_server_metadata()["extensions"]
    assert c.get_model_metadata("digits", "1")["inputs"][0]["name"] == "image"
    assert c.get_model_config("digits")["max_batch_size"] == 8
    assert {"digits", "parity"} <= {m["name"] for m in c.get_model_repository_index()}
    refused(404, c.get_model_metadata, "none")
    refused(404, c.get_model_config, "digits", "7")
    refused(400, c.load_model, "digits")
    refused(400, c.unload_model, "digits")
    refused(501, c.get_system_shared_memory_status)
    refused(501, c.register_system_shared_memory, "a", "/b", 64)
    assert c.get_trace_settings() == c.get_trace_settings("digits") and c.get_trace_settings()["trace_level"] == ["OFF"]
    refused(400, c.update_trace_settings, settings={"trace_level": ["TIMESTAMPS"]})  # the server has no file for them
    refused(501, c.update_trace_settings, "digits", {"trace_rate": "5"})
    assert c.update_trace_settings(settings={"trace_rate": "5"})["trace_rate"] == "5"
    assert c.update_log_settings({"log_verbose_level": 1})["log_info"] is True
    assert c.update_log_settings({"log_verbose_level": 0, "log_info": False})["log_verbose_level"] == 0
    refused(400, c.update_log_settings, {"log_file": "/tmp/x"})


def check_infer(c):
    for n in (1, 2, 5, 7, 8):
        for binary in (True, False):
            got = c.infer("digits", [image(n, binary)])
            assert is_close(got.as_numpy("logits"), want[:n]), (n, binary)
            out = triton.InferRequestedOutput("logits", binary_data=binary)
            got = c.infer("digits", [image(n)], outputs=[out], request_id="7", model_version="1")
            assert is_close(got.as_numpy("logits"), want[:n]) and got.get_response()["id"] == "7"
    for how in ("gzip", "deflate"):
        got = c.infer("digits", [image(3)], request_compression_algorithm=how,
                      response_compression_algorithm=how)
        assert is_close(got.as_numpy("logits"), want[:3]), how
    got = c.infer("digits", [image(1)], priority=1, timeout=10000000, sequence_id=3,
                  sequence_start=True, sequence_end=True, parameters={"own": "x", "n": 1, "b": True})
    assert is_close(got.as_numpy("logits"), want[:1])
    calls = [c.async_infer("digits", [image(1, array=x[i:i + 1])]) for i in range(40)]
    for i, call in enumerate(calls):
        assert is_close(call.get_result().as_numpy("logits"), want[i:i + 1]), i
    if "half" in have:
        a = np.linspace(-1, 1, 12).astype("f2").reshape(3, 4)
        t = triton.InferInput("input", a.shape, "FP16")
        t.set_data_from_numpy(a)
        got = c.infer("half", [t])
        name = got.get_response()["outputs"][0]["name"]
        assert (got.as_numpy(name) == a.astype("f4")).all()
    refused(404, c.infer, "none", [image(1)])
    refused(404, c.infer, "digits", [image(1)], model_version="2")
    refused(400, c.infer, "digits", [image(1, array=x[:1].reshape(1, 1, 4, 16))])
    refused(400, c.infer, "digits", [image(1)], outputs=[triton.InferRequestedOutput("none")])
    refused(501, c.infer, "digits", [image(1)],
            outputs=[triton.InferRequestedOutput("logits", class_count=3)])


def check_statistics(c):
    before = c.get_inference_statistics("size")["model_stats"][0]
    for _ in range(5):
        c.infer("size", [image(2)])
    after = c.get_inference_statistics("size", "1")["model_stats"][0]
    assert after["inference_count"] - before["inference_count"] == 10
    assert after["inference_stats"]["queue"]["count"] - before["inference_stats"]["queue"]["count"] == 5
    assert len(c.get_inference_statistics()["model_stats"]) == 4 + len(have)


def check_cpp_client(s):
    """Requests as libcurl sends them: its content types; header names are case-insensitive."""
    head = json.dumps({"id": "", "inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
                                             "parameters": {"binary_data_size": 256}}],
                       "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]}).encode()
    for kind in ("application/octet-stream", "application/json"):
        status, headers, body = s.request("POST", "/v2/models/digits/infer", head + x[:1].tobytes(), {
            "Content-Type": kind, "Inference-Header-Content-Length": str(len(head))})
        assert status == 200 and int(headers["content-length"]) == len(body), headers
        assert "transfer-encoding" not in headers
        length = int(headers["inference-header-content-length"])
        for output in json.loads(body[:length])["outputs"]:
            assert output["parameters"]["binary_data_size"] == len(body) - length


with Server() as server:
    client = triton.InferenceServerClient(f"127.0.0.1:{server.http}", concurrency=8)
    for check in (check_metadata, check_infer, check_statistics):
        check(client)
        print(check.__name__, "ok")
    check_cpp_client(server)
    client.close()
