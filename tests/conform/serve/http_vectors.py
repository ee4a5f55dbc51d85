# needs: numpy
"""Requests whose framing programs disagree about (tests/support/http1_vectors.def), sent to Weft, to nginx, and to Weft
behind HAProxy and behind nginx. Weft answers as the table says; behind a proxy it never sees a request that the proxy
does not: such a request would be answered to another client.

WEFT_TABLE=FILE writes what each answered: http_vectors.csv is such a table. "+" joins the answers to one connection, "x"
is a closed one, "-" no answer. Behind the doubtful framing stands another request; nginx alone answers every path."""
import ast
import os
import re
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from serving import Server, compile_bundle

WAIT_S = 0.7


def read_vectors():
    with open(os.path.join(os.environ["WEFT_SOURCE_DIR"], "tests/support/http1_vectors.def")) as f:
        rows = re.findall(r'^VECTOR\("([^"]*)", "([^"]*)",\s*("(?:[^"\\]|\\.)*")\)', f.read(), re.M)
    return [(name, answers, ast.literal_eval("b" + data).replace(b"/a", b"/v2/repository/index", 1))
            for name, answers, data in rows]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, data):
    """Statuses of the answers, and whether the connection was closed."""
    got, closed = b"", False
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as s:
        s.sendall(data)
        end = time.monotonic() + WAIT_S
        try:
            while time.monotonic() < end and not closed:
                more = s.recv(65536)
                got += more
                closed = not more
        except TimeoutError:
            pass
        except ConnectionError:
            closed = True
    return re.findall(rb"HTTP/1\.[01] (\d\d\d) ", got), closed


def ask_all(port, vectors):
    with ThreadPoolExecutor(10) as pool:
        return list(pool.map(lambda v: ask(port, v[2]), vectors))


def show(answer):
    codes, closed = answer
    return "+".join(c.decode() for c in codes) + (" x" if closed else "") if codes else "x" if closed else "-"


class Program:
    def __init__(self, command, port):
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"{command[0]} does not listen")

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.process.terminate()
        self.process.wait(20)


def nginx(name, backend):
    """Answers by itself, or passes on to a server."""
    port, folder = free_port(), os.path.abspath(name)
    os.makedirs(folder)
    body = f"proxy_pass http://127.0.0.1:{backend}; proxy_http_version 1.1; proxy_set_header Connection '';" if backend \
        else "return 200 ok;"
    paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with open(f"{folder}/nginx.conf", "w") as f:
        f.write(f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
                f"http {{ access_log off; {paths}\n"
                f"  server {{ listen 127.0.0.1:{port}; location / {{ {body} }} }} }}\n")
    return Program(["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"], port)


def haproxy(backend):
    port = free_port()
    with open("haproxy.cfg", "w") as f:
        f.write("defaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\n"
                f"frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n"
                f"backend b\n  http-reuse always\n  server weft 127.0.0.1:{backend}\n")
    return Program(["haproxy", "-f", "haproxy.cfg", "-db"], port)


def version(command, pattern):
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    return re.search(pattern, out).group(1)


def count_requests(server):
    """That Weft has answered."""
    _, _, text = server.request("GET", "/metrics", port=server.metrics)
    return int(re.search(r"^weft_http_requests_total (\d+)", text.decode(), re.M).group(1))


def check_weft(server, vectors):
    got = ask_all(server.http, vectors)
    for (name, want, _), answer in zip(vectors, got):
        # Behind a body that ends "GET /hid" is a request of its own; a GET of the path is not allowed.
        want = "405" if name == "GET with CL body" else want.replace("200 200", "200 404")
        assert " ".join(c.decode() for c in answer[0]) == want, (name, answer, want)
        assert answer[1] == (want not in ("200", "200 404", "405")), (name, answer)
    return [show(a) for a in got]


def check_behind(server, proxy, vectors):
    """Every request that Weft answered was answered to the client."""
    before = count_requests(server)
    got = ask_all(proxy.port, vectors)
    seen = count_requests(server) - before - 1  # the metrics' own request
    answers = sum(len(codes) for codes, _ in got)
    assert seen <= answers, f"Weft answered {seen} requests, the clients got {answers} answers"
    return [show(a) for a in got]


def main():
    compile_bundle(more=False)
    vectors = read_vectors()
    assert len(vectors) >= 50
    columns, versions = {}, []
    with Server() as server:
        columns["weft"] = check_weft(server, vectors)
        versions.append("weft " + version([os.environ["WEFT"], "--version"], r"(\d+\.\S+)"))
        if shutil.which("nginx"):
            versions.append("nginx " + version(["nginx", "-v"], r"nginx/(\S+)"))
            with nginx("alone", None) as program:
                columns["nginx"] = [show(a) for a in ask_all(program.port, vectors)]
            with nginx("front", server.http) as program:
                columns["weft behind nginx"] = check_behind(server, program, vectors)
        if shutil.which("haproxy"):
            versions.append("haproxy " + version(["haproxy", "-v"], r"version (\d+\.\d+\.\d+)"))
            with haproxy(server.http) as program:
                columns["weft behind haproxy"] = check_behind(server, program, vectors)
    if os.environ.get("WEFT_TABLE"):
        with open(os.environ["WEFT_TABLE"], "w") as f:
            f.write("# " + ", ".join(versions) + "\n" + ",".join(["vector", *columns]) + "\n")
            for i, (name, _, _) in enumerate(vectors):
                f.write(",".join(['"' + name + '"', *(c[i] for c in columns.values())]) + "\n")
    print(f"{len(vectors)} vectors; " + ", ".join(versions))


main()
