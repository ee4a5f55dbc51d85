"""Applies two plans in turn to a server under load, and kills the new workers of every third change.

change_plans.py WEFT BUNDLE PLAN_A PLAN_B SECONDS LOAD...
LOAD: arguments of shifting_load.py, one phase. Prints JSON: changes, those undone, models seen that
were not ready, the server's exit code, and the report of the load."""

import json
import os
import signal
import socket
import subprocess
import sys
import time


def main():
    weft, bundle, plan_a, plan_b, seconds, *load = sys.argv[1:]
    plans = []
    for path in (plan_a, plan_b):
        with open(path, encoding="utf-8") as f:
            plans.append(json.load(f))
    command = [weft, "serve", bundle, plan_a, "--control", "change.sock", "--http", "0"]
    command += ["--grpc", "off", "--metrics", "off"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().split("http=")[1].split()[0]
    link = socket.socket(socket.AF_UNIX)
    link.connect("change.sock")
    lines = link.makefile("rwb")

    def ask(**request):
        lines.write(json.dumps(request).encode() + b"\n")
        lines.flush()
        return json.loads(lines.readline())

    def settle():
        for _ in range(2000):
            s = ask(do="status")
            if s["state"] == "serving":
                return s
            time.sleep(0.005)
        raise SystemExit("the change does not end")

    client = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shifting_load.py")
    command = [sys.executable, client, port, *load, str(float(seconds) + 1)]
    sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    changes = undone = unready = at = 0
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        old = {w["pid"] for w in ask(do="status")["workers"]}
        answer = ask(do="apply", plan=plans[1 - at])
        if not answer["ok"]:
            raise SystemExit(answer["error"])
        changes += 1
        if changes % 3 == 0:
            for w in ask(do="status")["workers"]:
                if w["pid"] and w["pid"] not in old:
                    os.kill(w["pid"], signal.SIGKILL)
        s = settle()
        at = 1 - at if s["last_change"]["ok"] else at
        undone += not s["last_change"]["ok"]
        unready += sum(not m["ready"] for m in s["models"])
    report = json.loads(sender.communicate()[0])
    server.send_signal(signal.SIGTERM)
    print(
        json.dumps(
            {
                "changes": changes,
                "undone": undone,
                "unready": unready,
                "exit": server.wait(30),
                "load": report,
            }
        )
    )


main()
