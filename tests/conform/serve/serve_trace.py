# needs: grpc numpy
"""Trace contexts over HTTP and gRPC, spans in OTLP/JSON, sampling, a file that is rotated or full, and the lines of the
access log."""
import json
import os
import re
import signal
import subprocess
import time

import grpc

from serving import WEFT, Server, compile_bundle, digits, tensor, wait_until

compile_bundle(more=False)
x, _ = digits()
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def parent(flags="01", trace=TRACE):
    return f"00-{trace}-{PARENT}-{flags}"


def infer(s, traceparent=None, rows=1, id=None, model="digits", headers=()):
    request = {"inputs": [tensor("image", x[:rows])]}
    if id is not None:
        request["id"] = id
    headers = list(headers) + ([("traceparent", traceparent)] if traceparent else [])
    c = s.connect()
    c.putrequest("POST", f"/v2/models/{model}/infer")
    body = json.dumps(request).encode()
    for name, value in headers + [("Content-Length", str(len(body)))]:
        c.putheader(name, value)
    c.endheaders(body)
    reply = c.getresponse()
    reply.read()
    c.close()
    return reply.status


def field(n, data):
    """A protobuf field of bytes."""
    size, out = len(data), bytes([n << 3 | 2])
    while size > 127:
        out += bytes([size & 127 | 128])
        size >>= 7
    return out + bytes([size]) + data


def infer_grpc(s, metadata, id):
    image = field(1, b"image") + field(2, b"FP32") + field(3, bytes([1, 1, 8, 8]))
    message = field(1, b"digits") + field(3, id) + field(5, image) + field(7, x[:1].tobytes())
    channel = grpc.insecure_channel(f"127.0.0.1:{s.grpc}")
    channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(message, metadata=metadata, timeout=20)
    channel.close()


def spans(path="spans"):
    """A list of the spans of each request."""
    with open(path) as f:
        text = f.read()
    assert not text or text.endswith("\n")
    found = []
    for line in text.splitlines():
        (resource,) = json.loads(line)["resourceSpans"]
        assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "weft"}}]
        (scope,) = resource["scopeSpans"]
        found.append(scope["spans"])
    return found


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def check_spans(found, trace=None, has_parent=True):
    request, queue, compute = found
    assert [s["name"] for s in found] == ["request", "queue", "compute"]
    assert [s["kind"] for s in found] == [2, 1, 1]
    assert len({s["traceId"] for s in found}) == 1 and re.fullmatch("[0-9a-f]{32}", request["traceId"])
    assert trace is None or request["traceId"] == trace
    assert len({s["spanId"] for s in found}) == 3 and all(re.fullmatch("[0-9a-f]{16}", s["spanId"]) for s in found)
    assert request.get("parentSpanId") == (PARENT if has_parent else None)
    assert queue["parentSpanId"] == compute["parentSpanId"] == request["spanId"]
    times = [int(s[k]) for s, k in ((request, "startTimeUnixNano"), (queue, "startTimeUnixNano"),
                                    (queue, "endTimeUnixNano"), (compute, "startTimeUnixNano"),
                                    (compute, "endTimeUnixNano"), (request, "endTimeUnixNano"))]
    assert times == sorted(times) and abs(times[-1] * 1e-9 - time.time()) < 60, times
    return attributes(request)


def check_parents():
    """Only what callers have sampled is written; all is logged with its trace."""
    with Server("--trace-file", "spans", "--trace-rate", "0", "--log-level", "access", "--log-format", "json") as s:
        assert infer(s, parent(), 3, id='a"b\\\n\u00e9') == 200
        infer_grpc(s, [("traceparent", parent(trace="1" * 32))], b"from grpc")
        for wrong in (parent("00"), parent().upper(), parent()[:-1], parent(trace="0" * 32), "ff" + parent()[2:]):
            assert infer(s, wrong) == 200
        assert infer(s) == 200
        assert infer(s, parent(), headers=[("traceparent", parent())]) == 200
        assert infer(s, parent(trace="2" * 32), rows=0, id="wrong") == 400
        wait_until(lambda: len(spans()) >= 2)
        time.sleep(0.3)
        first, second, *more = spans()
        assert len(more) == 0 or [m[0]["traceId"] for m in more] == ["2" * 32], more
        got = check_spans(first, TRACE)
        assert got["weft.model"] == "digits" and got["weft.rows"] == "3" and int(got["weft.batch_rows"]) >= 3, got
        assert got["weft.transport"] == "http" and got["network.peer.address"].startswith("127.0.0.1:"), got
        got = check_spans(second, "1" * 32)
        assert got["weft.transport"] == "grpc" and got["weft.request.id"] == "from grpc", got
        assert s.request("GET", "/v2/models/none", headers={"traceparent": parent(trace="3" * 32)})[0] == 404
        check_log(s)
        text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
        assert re.search(r"^weft_traces_written_total [23]$", text, re.M) and "weft_traces_dropped_total 0" in text
    assert os.stat("spans").st_mode & 0o077 == 0


def check_log(s):
    wait_until(lambda: "3" * 32 in s.text())
    lines = [json.loads(line) for line in s.text().splitlines()]
    requests = {line["id"]: line for line in lines if line["event"] == "request" and line["id"]}
    line = requests['a"b\\\n\u00c3\u00a9']  # byte by byte
    assert line["trace"] == TRACE and line["model"] == "digits" and line["rows"] == 3 <= line["batch_rows"], line
    assert line["peer"].startswith("127.0.0.1:") and line["over"] == "http" and line["answer"] == "ok"
    assert 0 < line["compute_us"] <= line["total_us"] and line["queue_us"] >= 0
    assert requests["from grpc"]["trace"] == "1" * 32 and requests["from grpc"]["over"] == "grpc"
    # A trace is made for a request without a valid one.
    traces = [line["trace"] for line in lines if line["event"] == "request"]
    assert all(re.fullmatch("[0-9a-f]{32}", t) and t != "0" * 32 for t in traces) and traces.count(TRACE) == 2, traces
    (missing,) = [line for line in lines if line.get("trace") == "3" * 32]
    assert missing["event"] == "http" and missing["status"] == 404 and "none" in missing["why"], missing


def check_rates():
    for rate, least, most in (("1", 40, 40), ("0.5", 8, 32), ("0", 0, 0)):
        with Server("--trace-file", "rate" + rate, "--trace-rate", rate) as s:
            for _ in range(40):
                assert infer(s) == 200
        found = spans("rate" + rate)  # written before the server ends
        assert least <= len(found) <= most, (rate, len(found))
        for one in found:
            check_spans(one, has_parent=False)
        assert len({one[0]["traceId"] for one in found}) == len(found)


def check_rotation():
    with Server("--trace-file", "live") as s:
        assert infer(s) == 200
        wait_until(lambda: len(spans("live")) == 1)
        os.rename("live", "rotated")
        assert infer(s) == 200
        wait_until(lambda: len(spans("rotated")) == 2)
        s.process.send_signal(signal.SIGHUP)
        wait_until(lambda: os.path.exists("live"))
        assert infer(s) == 200
        wait_until(lambda: len(spans("live")) == 1)
        assert len(spans("rotated")) == 2


def dropped(s):
    text = s.request("GET", "/metrics", port=s.metrics)[2].decode()
    return int(re.search(r"^weft_traces_dropped_total (\d+)$", text, re.M)[1])


def check_full():
    """A disk without room costs spans, no answers."""
    with Server("--trace-file", "/dev/full") as s:
        for _ in range(20):
            assert infer(s) == 200
        wait_until(lambda: dropped(s) == 20)


def check_pipe():
    """A pipe that nobody reads is an error at the start; one that nobody empties costs spans, and no server hangs."""
    os.mkfifo("pipe")
    got = subprocess.run([WEFT, "serve", "models.weft", "--http", "0", "--trace-file", "pipe"], capture_output=True, text=True,
                         timeout=30)
    assert got.returncode and "error: pipe: No such device or address" in got.stderr, (got.returncode, got.stderr)
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    with Server("--trace-file", "pipe") as s:
        for _ in range(200):  # more than the 64 KiB that a pipe holds
            assert infer(s) == 200
        wait_until(lambda: dropped(s) > 0)
    os.close(reader)


def check_text_log():
    """No text of a client makes a line of its own."""
    with Server("--log-level", "access") as s:
        assert infer(s, id="one\nevent two=\"three\"\x1b[31m") == 200
        wait_until(lambda: " request " in s.text())
        (line,) = [line for line in s.text().splitlines() if "two" in line]
        assert 'id="one\\u000aevent two=\\"three\\"\\u001b[31m"' in line and re.search(r' trace="[0-9a-f]{32}"', line)


for check in (check_parents, check_rates, check_rotation, check_full, check_pipe, check_text_log):
    check()
    print(check.__name__, "ok", flush=True)
