# needs: numpy
"""Where the server listens: IPv6, names, UNIX sockets; and how it refuses what cannot be listened on."""
import http.client
import json
import os
import re
import socket
import subprocess

from serving import WEFT, Server, compile_bundle, digits, is_close, read_answer, tensor

compile_bundle(more=False)
x, want = digits()
BODY = json.dumps({"inputs": [tensor("image", x[:1])]})


def ask(connection):
    connection.request("POST", "/v2/models/digits/infer", BODY)
    reply = connection.getresponse()
    got = read_answer({k.lower(): v for k, v in reply.getheaders()}, reply.read())
    assert reply.status == 200 and is_close(got["outputs"][0]["array"], want[:1]), got


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def check_addresses():
    cases = [("127.0.0.1", ["127.0.0.1"]), ("localhost", ["127.0.0.1"]), ("0.0.0.0", ["127.0.0.1"])]
    if has_ipv6():
        cases += [("::1", ["::1"]), ("[::1]", ["::1"]), ("::", ["::1", "127.0.0.1"])]
    for address, hosts in cases:
        with Server("--address", address) as s:
            for host in hosts:
                for port in (s.http, s.grpc, s.metrics):
                    socket.create_connection((host, port), timeout=5).close()
                ask(http.client.HTTPConnection(host, s.http, timeout=30))
        print("address", address)


def start(*options):
    process = subprocess.Popen([WEFT, "serve", "models.weft", *options], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline()


def check_unix():
    for _ in range(2):  # the second time beside a socket that was left
        process, line = start("--http", "unix:http.sock", "--grpc", "unix:grpc.sock", "--metrics", "off")
        assert re.fullmatch(r"READY http=unix:http.sock grpc=unix:grpc.sock metrics=-1 pid=\d+\n", line), line
        ask(UnixConnection("http.sock"))
        socket.socket(socket.AF_UNIX).connect("grpc.sock")
        # A socket that is in use is not taken away.
        refuse(["--http", "unix:http.sock", "--grpc", "off", "--metrics", "off"], "in use")
        ask(UnixConnection("http.sock"))
        process.kill()
        process.wait()
        assert os.path.exists("http.sock")
    process, _ = start("--http", "unix:http.sock", "--grpc", "off", "--metrics", "off")
    process.terminate()
    assert process.wait(30) == 0 and not os.path.exists("http.sock")
    open("file", "w").close()
    refuse(["--http", "unix:file", "--grpc", "off", "--metrics", "off"], "in use")
    assert os.path.exists("file")


def refuse(options, word, code=1):
    got = subprocess.run([WEFT, "serve", "models.weft", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, timeout=60)
    assert got.returncode == code and word in got.stderr, (options, got)


def check_refused():
    off = ["--grpc", "off", "--metrics", "off"]
    refuse(["--http", "unix:" + "a" * 200, *off], "longer than")
    refuse(["--http", "unix:none/a", *off], "No such file")
    refuse(["--http", "unix:", *off], "wrong port", 2)
    refuse(["--http", "0", "--address", "no.such.name.invalid", *off], "not an address")
    refuse(["--http", "0", "--address", "1.2.3.4.5", *off], "not an address")
    refuse(["--max-connections", "0", *off], "connections", 2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refuse(["--http", str(taken.getsockname()[1]), *off], "in use")
    got = subprocess.run(["bash", "-c", 'ulimit -n 32; exec "$0" serve models.weft --http 0 --grpc off --metrics off',
                          WEFT], stderr=subprocess.PIPE, text=True, timeout=60)
    assert got.returncode == 1 and "ulimit -n" in got.stderr, got


for check in (check_addresses, check_unix, check_refused):
    check()
    print(check.__name__, "ok", flush=True)
