# needs: numpy
# ctest label: both (users' programs against the build that users run)
"""Programs that others wrote, as their users call them: curl, hey, wrk, h2load, HAProxy in front of HTTP and gRPC, the
clients of Triton and KServe, plain and over TLS. Each is left out, with a message, where it is not installed; KServe's
and Triton's from PyPI may lie in a folder of their own (WEFT_CLIENTS)."""
import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
from serving import Server, compile_bundle, digits, is_close, skip, tensor

sys.path[:0] = [p for p in os.environ.get("WEFT_CLIENTS", "").split(":") if p]
x, want = digits()
SECONDS = os.environ.get("WEFT_LOAD_SECONDS", "1")  # of each program that makes load
done = []


def has(program):
    if shutil.which(program):
        done.append(program)
        return True
    print(f"{program} is not installed: left out")
    return False


def run(*command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150, **options)
    assert result.returncode == 0, (command, result.stdout)
    return result.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def image(n):
    return json.dumps({"inputs": [tensor("image", x[:n])]})


def check(answer, n):
    assert is_close(np.array(answer["outputs"][0]["data"], "f4").reshape(n, -1), want[:n]), answer


def varint(n):
    return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def grpc_message(n):
    """A ModelInferRequest with its prefix."""
    t = field(1, b"image") + field(2, b"FP32") + field(3, b"".join(varint(d) for d in x[:n].shape))
    body = field(1, b"digits") + field(5, t) + field(7, x[:n].tobytes())
    return b"\0" + len(body).to_bytes(4, "big") + body


# -- Command-line programs --------------------------------------------------------------------


def check_curl(base, *options):
    with open("infer.json", "w") as f:
        f.write(image(3))
    big = json.loads(image(8))
    big["id"] = "x" * 200000  # large enough for "Expect: 100-continue"
    with open("big.json", "w") as f:
        json.dump(big, f)
    url, data = base + "/v2/models/digits/infer", ["--data-binary", "@infer.json"]
    for more in ([], ["--http1.0"], ["-H", "Transfer-Encoding: chunked"], ["-H", "Connection: close"]):
        check(json.loads(run("curl", "-sS", "--fail", *options, *data, *more, url)), 3)
    for expect in ("Expect: 100-continue", "Expect:"):
        check(json.loads(run("curl", "-sS", "--fail", *options, "-H", expect, "--data-binary", "@big.json", url)), 8)
    assert "405" in run("curl", "-sS", *options, "-o", "/dev/null", "-w", "%{http_code}", "-X", "DELETE", url)
    assert run("curl", "-sS", "--fail", *options, "-I", base + "/v2/health/live").startswith("HTTP/1.1 200")
    # One connection for several requests.
    assert run("curl", "-sS", *options, "-w", "%{num_connects}\n", "-o", "/dev/null", "-o", "/dev/null",
               base + "/v2/health/live", base + "/v2/health/ready").split() == ["1", "0"]


def check_hey(base):
    out = run("hey", "-z", SECONDS + "s", "-c", "20", "-m", "POST", "-T", "application/json", "-d", image(1),
              base + "/v2/models/digits/infer")
    codes = re.findall(r"\[(\d+)\]\s+(\d+) responses", out)
    assert len(codes) == 1 and codes[0][0] == "200" and int(codes[0][1]) > 20, out
    assert "Error distribution" not in out, out


def check_wrk(base):
    with open("infer.lua", "w") as f:
        f.write(f"wrk.method = 'POST'\nwrk.body = '{image(1)}'\n")
    out = run("wrk", "-t1", "-c64", f"-d{SECONDS}s", "-s", "infer.lua", base + "/v2/models/digits/infer")
    assert "Non-2xx" not in out and "Socket errors" not in out, out
    return re.search(r"Requests/sec:\s*(\S+)", out).group(1)


def check_h2load(port):
    with open("message", "wb") as f:
        f.write(grpc_message(1))
    out = run("h2load", "-D", SECONDS, "-c", "8", "-m", "8", "-d", "message", "-H", "content-type: application/grpc", "-H",
              "te: trailers", f"http://127.0.0.1:{port}/inference.GRPCInferenceService/ModelInfer")
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", out)
    failed = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", out)
    assert int(codes.group(1)) > 20 and set(codes.groups()[1:]) == {"0"}, out
    assert set(failed.groups()) == {"0"}, out


# -- Clients of Triton and KServe -------------------------------------------------------------


def check_triton(http, grpc, tls):
    try:
        import tritonclient.grpc as tg
        import tritonclient.http as th
    except ImportError as missing:
        print(f"left out: {missing}")
        return
    done.append("tritonclient")
    import ssl
    secure = {"ssl": True, "ssl_context_factory": lambda: ssl.create_default_context(cafile="ca.pem")} if tls else {}
    for module, client in ((th, th.InferenceServerClient(f"localhost:{http}", **secure)),
                           (tg, tg.InferenceServerClient(f"localhost:{grpc}", **(
                               {"ssl": True, "root_certificates": "ca.pem"} if tls else {})))):
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("digits")
        for n in (1, 5, 8):
            t = module.InferInput("image", x[:n].shape, "FP32")
            t.set_data_from_numpy(x[:n])
            got = client.infer("digits", [t], outputs=[module.InferRequestedOutput("logits")], request_id="7")
            assert is_close(got.as_numpy("logits"), want[:n]), (module, n)
        client.close()


async def ask_kserve(rest, grpc, http_port, types):
    for client in (rest, grpc):
        where = {"base_url": f"http://127.0.0.1:{http_port}"} if client is rest else {}
        t = types.InferInput("image", list(x[:3].shape), "FP32")
        t.set_data_from_numpy(x[:3], binary_data=client is rest)
        request = types.InferRequest(model_name="digits", infer_inputs=[t])
        if client is rest:
            assert await client.is_server_ready(**where) and await client.is_server_live(**where)
            assert await client.is_model_ready(model_name="digits", **where)
            got = await client.infer(data=request, model_name="digits", **where)
        else:
            assert await client.is_server_ready() and await client.is_model_ready(model_name="digits")
            got = await client.infer(infer_request=request)
        out = next(o for o in got.outputs if o.name == "logits")
        assert is_close(np.asarray(out.as_numpy(), "f4").reshape(3, -1), want[:3])


def run_kserve(http_port, grpc_port):
    """In a process of its own: KServe and Triton register messages of the same names."""
    try:
        import kserve
        from kserve import InferenceGRPCClient, InferenceRESTClient, RESTConfig
    except ImportError as missing:
        skip(missing)

    async def ask():
        rest = InferenceRESTClient(config=RESTConfig(protocol="v2", timeout=60))
        grpc = InferenceGRPCClient(url=f"127.0.0.1:{grpc_port}")
        await ask_kserve(rest, grpc, http_port, kserve)
        await rest.close()
        await grpc.close()

    asyncio.run(ask())


def check_kserve(http_port, grpc_port):
    result = subprocess.run([sys.executable, os.path.abspath(__file__), "kserve", str(http_port), str(grpc_port)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert result.returncode in (0, 77), result.stdout
    if result.returncode:
        print("kserve is left out:", result.stdout.strip())
    else:
        done.append("kserve")


# -- Proxies ----------------------------------------------------------------------------------


class HAProxy:
    """In front of both ports: HTTP in http mode, gRPC by HTTP/2 on both sides."""

    def __init__(self, server):
        self.http, self.grpc = free_port(), free_port()
        with open("haproxy.cfg", "w") as f:
            f.write(f"""global
  maxconn 500
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  option http-keep-alive
frontend http
  bind 127.0.0.1:{self.http}
  default_backend weft_http
backend weft_http
  http-reuse always
  option httpchk GET /v2/health/ready
  server weft 127.0.0.1:{server.http} check inter 200ms
frontend grpc
  bind 127.0.0.1:{self.grpc} proto h2
  default_backend weft_grpc
backend weft_grpc
  server weft 127.0.0.1:{server.grpc} proto h2
""")
        self.process = subprocess.Popen(["haproxy", "-f", "haproxy.cfg", "-db"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.http)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("haproxy does not listen")

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.process.terminate()
        self.process.wait(20)


def check_plain(http, grpc):
    base = f"http://127.0.0.1:{http}"
    if has("curl"):
        check_curl(base)
    if has("hey"):
        check_hey(base)
    if has("wrk"):
        check_wrk(base)
    if has("h2load"):
        check_h2load(grpc)
    check_triton(http, grpc, False)
    check_kserve(http, grpc)


def make_certificate():
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout",
        "ca.key", "-out", "ca.pem", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")


if sys.argv[1:2] == ["kserve"]:
    run_kserve(*sys.argv[2:])
    sys.exit(0)
compile_bundle(more=False)
with Server() as server:
    check_plain(server.http, server.grpc)
    print("plain:", ", ".join(done))
    if has("haproxy"):
        with HAProxy(server) as proxy:
            check_plain(proxy.http, proxy.grpc)
        print("behind HAProxy ok")
if has("openssl"):
    make_certificate()
    with Server("--tls-cert", "ca.pem", "--tls-key", "ca.key") as server:
        if has("curl"):
            check_curl(f"https://localhost:{server.http}", "--cacert", "ca.pem")
        check_triton(server.http, server.grpc, True)
    print("TLS ok")
if not done:
    skip("none of the programs is installed")
