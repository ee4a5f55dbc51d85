"""Starts the command of a unit as systemd does for a service of type notify - the words of its environment file, no
rights, a socket for the notification - asks the server over HTTP, and ends it. Sockets in place of ports, so that
nothing on the machine is in the way.

usage: serve_unit.py UNIT
"""
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile

from ask import ask

NOBODY = 65534


def main():
    unit = open(f"/lib/systemd/system/{sys.argv[1]}.service", encoding="utf-8").read()
    value = lambda key: re.search(rf"^{key}=(.*)$", unit, re.M).group(1)
    assert value("Type") == "notify" and value("NotifyAccess") == "main"
    variables = dict(line.split("=", 1) for line in open(value("EnvironmentFile"), encoding="utf-8")
                     if line.strip() and not line.startswith("#"))
    words = []
    for word in shlex.split(value("ExecStart")):
        words += shlex.split(shlex.split(variables[word[1:]])[0]) if word.startswith("$") else [word]
    folder = tempfile.mkdtemp()
    os.chown(folder, NOBODY, NOBODY)
    for name in ("http", "grpc", "metrics"):
        words += [f"--{name}", f"unix:{folder}/{name}"]
    notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notes.bind(f"{folder}/notify")
    os.chmod(f"{folder}/notify", 0o777)
    notes.settimeout(60)
    server = subprocess.Popen(words, env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": f"{folder}/notify"},
                              user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    try:
        while b"READY=1" not in (note := notes.recv(4096)):
            print(f"notified: {note!r}")
        status, _ = ask(f"{folder}/http", "GET", "/v2/health/ready")
        assert status == 200, status
        image = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0] * 64}
        status, answer = ask(f"{folder}/http", "POST", "/v2/models/digits/infer",
                             json.dumps({"inputs": [image]}).encode())
        assert status == 200, answer
        assert len(json.loads(answer)["outputs"][0]["data"]) == 10, answer
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0, server.returncode
    finally:
        server.kill()
    print(f"{' '.join(words)}: served")


main()
