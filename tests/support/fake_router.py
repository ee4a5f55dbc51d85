"""A router as the controller sees it: a control socket with scripted counts and answers.

fake_router.py SOCKET LOG SCRIPT.json; the script:
  phases   list of {"steps": N, "rates": {MODEL: PER_SECOND}}; each `status` is one step of step_s
  step_s   0.5
  apply    what becomes of each plan in turn, the last for all later ones: "ok", "refuse", "fail"
  takes    steps that a change takes (4)
  plan     file of the plan in force, for `plan`; without it the request is refused
  end      after the last phase: "close" (default), "hang", "garbage", "error"
  replan   step at which somebody asks for a call of the policy
The log gets a line of JSON for each `apply` and `note`, and for the end."""

import json
import os
import socket
import sys
import time


class Router:
    def __init__(self, script, log):
        self.script = script
        self.log = log
        self.step_s = script.get("step_s", 0.5)
        self.takes = script.get("takes", 4)
        self.fates = list(script.get("apply", ["ok"]))
        self.steps = [p["rates"] for p in script["phases"] for _ in range(p["steps"])]
        self.now = 5000.0
        self.step = 0
        self.generation = 1
        self.change = None  # [steps left, fate]
        self.last = None
        self.replans = 0
        self.counts = {m: 0.0 for rates in self.steps for m in rates}

    def write(self, **entry):
        self.log.write(json.dumps(dict(entry, step=self.step)) + "\n")
        self.log.flush()

    def status(self):
        self.now += self.step_s
        for model, rate in self.steps[self.step].items():
            self.counts[model] += rate * self.step_s
        self.step += 1
        self.replans += self.step == self.script.get("replan")
        if self.change:
            self.change[0] -= 1
            if self.change[0] == 0:
                ok = self.change[1] == "ok"
                self.last = {
                    "generation": self.generation,
                    "ok": ok,
                    "error": "" if ok else "a worker does not become ready",
                    "took_s": self.takes * self.step_s,
                }
                self.generation += not ok  # back to the plan before
                self.change = None
        answer = {
            "ok": True,
            "now_s": self.now,
            "generation": self.generation,
            "state": "changing" if self.change else "serving",
            "replans": self.replans,
            "models": [
                {
                    "model": m,
                    "bundle": "b",
                    "version": "1",
                    "weight": 1,
                    "ready": True,
                    "why": "",
                    "queue": 0,
                    "arrivals": int(n),
                    "answered": int(n),
                    "late": 0,
                    "refused": 0,
                    "failed": 0,
                }
                for m, n in self.counts.items()
            ],
            "workers": [],
        }
        if self.last:
            answer["last_change"] = self.last
        return answer

    def apply(self, plan):
        fate = self.fates.pop(0) if len(self.fates) > 1 else self.fates[0]
        self.write(
            apply=fate, placements=len(plan["placements"]), gpus=plan["gpus"], format=plan["format"]
        )
        if fate == "refuse":
            return {"ok": False, "error": "the bundle has no bucket for batch 3"}
        self.generation += 1
        self.change = [self.takes, fate]
        return {"ok": True, "generation": self.generation}

    def answer(self, request):
        what = request["do"]
        if what == "status":
            return self.status()
        if what == "apply":
            return self.apply(request["plan"])
        if what == "note":
            self.write(note=request["text"])
            return {"ok": True}
        if what == "plan" and "plan" in self.script:
            with open(self.script["plan"], encoding="utf-8") as f:
                return {"ok": True, "plan": json.load(f)}
        return {"ok": False, "error": f"unknown request {what}"}


def serve(router, connection, end):
    lines = connection.makefile("rb")
    for line in lines:
        if router.step == len(router.steps):
            router.write(end=end)
            if end == "hang":
                time.sleep(60)
            if end == "garbage":
                connection.sendall(b"{\n[1]\n")
            if end == "error":
                connection.sendall(b'{"ok": false, "error": "no more"}\n')
            return
        connection.sendall(json.dumps(router.answer(json.loads(line))).encode() + b"\n")
    router.write(end="the controller has gone")


def main():
    path, log_path, script_path = sys.argv[1:]
    with open(script_path, encoding="utf-8") as f:
        script = json.load(f)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    os.chmod(path, 0o600)
    connection, _ = listener.accept()
    with open(log_path, "a", encoding="utf-8") as log:
        serve(Router(script, log), connection, script.get("end", "close"))


main()
