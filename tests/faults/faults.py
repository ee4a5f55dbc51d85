"""Every call that can fail does, in turn: `faults.py FOLDER` drives the programs of FOLDER
(build-*/faults), which contain the injector (inject.c).

A command first runs with its calls counted. Then of each different stack of a call that could fail
the first, the last and others between them (--calls N, 3) are tried, or every call (--every): it fails,
or it and all later ones do (mode `on`), or it is interrupted or moves half of the bytes. The command
must end by itself, with the outputs of the first run or with exit code 1, a message, and no output; no
temporary file is left, an older output stays whole, and no sanitizer complains. A short or interrupted
call changes nothing.

With --every a command of one thread runs once for each of --jobs and forks at each call
(inject_fork.h): a try costs what comes after the call. Others start anew for each try.

  --seconds S   points are drawn with --seed until this time is over; without: all points
  --only NAMES  of the scenarios below, with commas
  --failures D  folder that keeps what failed"""
import argparse
import collections
import concurrent.futures
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import serve_faults

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples")
LIBRARIES = "libc.so,libjansson,libprotobuf-c,libyaml,libnghttp2,libz.so"
KINDS = "all alloc read write open file map process socket wait".split()
MODES = ("once", "on", "short", "intr")
# inject_state of inject.h
HEAD_BYTES, CALLS, FRAMES = 256, 12, 12
STATE_BYTES = 32 << 20
LIMIT_S = 60
# inject_ask and inject_order of inject_fork.h
ASK, ORDER = struct.Struct("<IIi"), struct.Struct("<i252s")

Point = collections.namedtuple("Point", "kind stack nth")


class State:
    """The file that the programs of one run share."""

    def __init__(self, folder, points=False, new=True):
        self.path = os.path.join(folder, "state")
        if new:
            with open(self.path, "wb") as f:
                f.truncate(STATE_BYTES if points else HEAD_BYTES + 8)

    def read(self):
        with open(self.path, "rb") as f:
            return f.read()

    def points(self):
        data = self.read()
        n = min(struct.unpack_from("<Q", data)[0], (len(data) - HEAD_BYTES) // 8)
        return [struct.unpack_from("<II", data, HEAD_BYTES + 8 * i) for i in range(n)]

    def failure(self):
        """How many calls failed; the name and the stack of the first."""
        data = self.read()
        call = data[24:48].split(b"\0")[0].decode()
        return (struct.unpack_from("<Q", data, 8)[0], call,
                [a for a in struct.unpack_from(f"<{FRAMES}Q", data, 48) if a])


def environment(fault, state):
    return dict(os.environ, WEFT_FAULT=fault, WEFT_FAULT_STATE=state.path, WEFT_FAULT_IN=LIBRARIES,
                TMPDIR=".", ASAN_OPTIONS="exitcode=99:allocator_may_return_null=1",
                LSAN_OPTIONS=f"exitcode=99:print_suppressions=0:suppressions={HERE}/../support/lsan.supp",
                UBSAN_OPTIONS="print_stacktrace=1")


class Command:
    """A command line that writes files (`outputs`) and standard output."""

    def __init__(self, name, program, arguments, outputs=(), folder=None, exact=True, threads=False):
        self.folder = folder  # gets files; after an error some, each of them whole
        self.can_fork = not threads
        self.name, self.program, self.arguments = name, program, arguments
        self.outputs, self.exact, self.reference = outputs, exact, None

    def start(self, programs, folder, env, **more):
        """In a folder without files; with older outputs, if it is known what new ones are."""
        for output in self.outputs:
            if self.reference:
                with open(os.path.join(folder, output), "wb") as f:
                    f.write(b"an older output")
        with open(os.path.join(folder, "printed"), "wb") as out, open(os.path.join(folder, "err"), "wb") as err:
            return subprocess.Popen([os.path.join(programs, self.program), *self.arguments], cwd=folder,
                                    env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, **more)

    def attempt(self, programs, folder, env, mode):
        """Runs in an empty folder; what is wrong, or None."""
        process = self.start(programs, folder, env)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return "hang"
        if self.reference:
            return self.judge(code, folder, mode)
        with open(os.path.join(folder, "err"), errors="replace") as f:
            assert code == 0, f.read()
        self.reference = self.collect(folder)
        return None

    def collect(self, folder):
        got = {}
        for output in ("printed", *self.outputs):
            path = os.path.join(folder, output)
            if os.path.exists(path):
                with open(path, "rb") as f:
                    got[output] = self.normal(f.read())
        for parent, _, files in os.walk(os.path.join(folder, self.folder)) if self.folder else ():
            for path in (os.path.join(parent, name) for name in files):
                with open(path, "rb") as f:
                    got[os.path.relpath(path, folder)] = f.read()
        return got

    def normal(self, data):
        """Without measured times."""
        return data if self.exact else re.sub(rb'(decision_ms|_ms|wall[a-z_]*)"?[:=] *[0-9.e+-]+', rb"\1",
                                              data)

    def judge(self, code, folder, mode):
        """What is wrong with a run that ended with this code, or None."""
        with open(os.path.join(folder, "err"), errors="replace") as f:
            message = f.read()
        got = self.collect(folder)
        more = set(os.listdir(folder)) - {"printed", "err", "state", self.folder, *self.outputs}
        if more:
            return f"left files: {sorted(more)}"
        if "Sanitizer" in message or "runtime error" in message or code in (99, 120):
            return "sanitizer"
        if code < 0 or code > 120:
            return f"crash: {code}"
        if code == 0:
            return None if got == self.reference else "wrong answer"
        if mode in ("short", "intr"):
            return f"a call that was {mode} is an error"
        if code != 1:
            return f"wrong exit code {code}"
        if not message.strip():
            return "no message"
        if self.folder and any(self.reference.get(k) != v for k, v in got.items() if k != "printed"):
            return "a file that is not whole"
        for output in self.outputs:
            if got.get(output) != self.normal(b"an older output"):
                return "an output in spite of an error"
        return None


def scenarios(box):
    """`box` has models.weft, x.npy and plan.json."""
    digits, fleet = f"{EXAMPLES}/digits.yaml", f"{EXAMPLES}/fleet.yaml"
    bundle, plan = f"{box}/models.weft", f"{box}/plan.json"
    return [
        Command("compile", "weft-compiler", ["compile", digits, "--quiet", "-o", "out.weft"], ["out.weft"]),
        Command("inspect", "weft-compiler", ["inspect", bundle, "--quiet", "--format", "json"]),
        Command("estimate", "weft-compiler", ["estimate", digits, "--quiet", "--gpu", "h200", "--format", "json"], exact=False),
        Command("run", "weft-server", ["run", bundle, "--quiet", "--model", "digits", "--input",
                                       f"image=@{box}/x.npy", "--output", "logits=@y.npy"], ["y.npy"], threads=True),
        Command("attend", "weft-server", ["run", bundle, "--quiet", "--model", "digits-attn", "--threads", "1", "--input",
                                          f"image=@{box}/x.npy", "--output", "logits=@y.npy"], ["y.npy"]),
        Command("plan", "weft-planner", ["plan", digits, "--fleet", fleet, "--quiet", "-o", "out.json"],
                ["out.json"], exact=False),
        Command("simulate", "weft-planner", ["simulate", plan, "--quiet", "--duration", "1s", "--seed", "1"],
                exact=False),
        Command("export", "weft-planner", ["export", plan, "--to", "kubernetes", "-o", "out"],
                folder="out"),
        serve_faults.Serve(bundle, EXAMPLES),
    ]


def prepare(programs, box):
    def weft(program, *arguments):
        subprocess.run([os.path.join(programs, program), *arguments], check=True,
                       stdout=subprocess.DEVNULL)
    weft("weft-compiler", "compile", f"{EXAMPLES}/digits.yaml", "-o", f"{box}/models.weft")
    weft("weft-planner", "plan", f"{EXAMPLES}/digits.yaml", "--fleet", f"{EXAMPLES}/fleet.yaml", "-o",
         f"{box}/plan.json")
    with open(f"{EXAMPLES}/digits_test.x.npy", "rb") as f:
        data = f.read()
    head = 10 + struct.unpack_from("<H", data, 8)[0]
    text = data[10:head].decode()
    rows = int(re.search(r"\((\d+),", text).group(1))
    size = (len(data) - head) // rows
    # The first three images, as the models want them.
    values = struct.unpack_from(f"<{3 * 64}{'d' if size == 512 else 'f'}", data, head)
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 8, 8), }"
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    with open(f"{box}/x.npy", "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() +
                struct.pack(f"<{3 * 64}f", *values))


def choose_points(recorded, calls):
    """Of each stack so many calls, from the first to the last."""
    points = []
    for (kind, stack), n in collections.Counter(recorded).items():
        most = min(n, calls)
        for nth in sorted({1 + (n - 1) * i // max(most - 1, 1) for i in range(most)}):
            points.append(Point(KINDS[kind], stack, nth))
    return points


def modes_of(point):
    if point.kind == "wait":
        return ("intr",)
    more = ("short", "intr") if point.kind in ("read", "write") else ()
    return ("once",) + (("on",) if point.nth == 1 else ()) + more


def describe(programs, scenario, state):
    n, call, stack = state.failure()
    if not n:
        return "the call was not reached"
    names = subprocess.run(["addr2line", "-f", "-s", "-e", os.path.join(programs, scenario.program),
                            *[hex(a - 1) for a in stack]], stdout=subprocess.PIPE, text=True).stdout.split("\n")
    pairs = [f"{names[i]} {names[i + 1]}" for i in range(0, len(names) - 1, 2)]
    return f"{call} in " + " < ".join(pairs[:6])


def name_of(point, mode):
    return f"{point.kind}@{point.stack:x}:{point.nth}:{mode}"


class Loop:
    def __init__(self, programs, options):
        self.programs, self.options = programs, options
        self.modes = options.modes.split(",")
        self.lock, self.count, self.findings = threading.Lock(), collections.Counter(), []

    def attempt(self, scenario, point, mode):
        folder = tempfile.mkdtemp(prefix="weft-fault.")
        try:
            state, fault = State(folder), name_of(point, mode)
            wrong = scenario.attempt(self.programs, folder, environment(fault, state), mode)
            self.finish(scenario, fault, wrong, state, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def finish(self, scenario, fault, wrong, state, folder):
        with self.lock:
            self.count[scenario.name, "tried"] += 1
            self.count[scenario.name, "reached"] += state.failure()[0] > 0
        if wrong:
            self.report(scenario, fault, wrong, state, folder)

    def report(self, scenario, fault, wrong, state, folder):
        where = describe(self.programs, scenario, state)
        with self.lock:
            self.findings.append((scenario.name, wrong, where))
            print(f"{scenario.name} {fault}: {wrong}\n  {where}", flush=True)
            if self.options.failures:
                target = os.path.join(self.options.failures, f"{scenario.name}-{len(self.findings)}")
                shutil.copytree(folder, target, dirs_exist_ok=True)
                with open(os.path.join(target, "fault"), "w") as f:
                    f.write(f"{fault}\n{wrong}\n{where}\n")

    def record(self, scenario):
        folder = tempfile.mkdtemp(prefix="weft-fault.")
        state = State(folder, points=True)
        wrong = scenario.attempt(self.programs, folder, environment("count", state), "count")
        assert not wrong, (scenario.name, wrong)
        recorded = state.points()
        shutil.rmtree(folder)
        return recorded

    def fork_all(self, scenario, share):
        """All calls whose number, modulo --jobs, is `share`, from one run of the command."""
        home, (ours, theirs) = tempfile.mkdtemp(prefix="weft-fault."), socket.socketpair(type=socket.SOCK_SEQPACKET)
        env = dict(environment("fork", State(home)), WEFT_FAULT_DRIVER=str(theirs.fileno()))
        with ours:
            with theirs:
                process = scenario.start(self.programs, home, env, pass_fds=[theirs.fileno()])
            self.answer(scenario, ours, home, share)
        code = process.wait()
        wrong = scenario.judge(code, home, "count")
        assert code == 0 and not wrong, (scenario.name, code, wrong)
        shutil.rmtree(home)

    def answer(self, scenario, driver, home, share):
        """Orders the tries of each call that the process of `fork_all` asks about."""
        seen, modes, point, folder = collections.Counter(), [], None, None
        while asked := driver.recv(ASK.size):
            kind, stack, status = ASK.unpack(asked)
            if kind:
                number = seen.total()
                seen[kind, stack] += 1
                point = Point(KINDS[kind], stack, seen[kind, stack])
                modes = [m for m in modes_of(point) if m in self.modes and number % self.options.jobs == share]
            else:
                mode, code = modes.pop(), os.waitstatus_to_exitcode(status)
                wrong = "hang" if code == -signal.SIGALRM else scenario.judge(code, folder, mode)
                self.finish(scenario, name_of(point, mode), wrong, State(folder, new=False), folder)
                shutil.rmtree(folder)
            folder = shutil.copytree(home, f"{home}.try") if modes else ""
            driver.send(ORDER.pack(MODES.index(modes[-1]) if modes else -1, folder.encode()))

    def run(self, scenario, until, draw):
        recorded, every = self.record(scenario), self.options.every
        forks = every and scenario.can_fork
        points = choose_points(recorded, len(recorded) if every else self.options.calls)
        tries = [(p, m) for p in points for m in modes_of(p) if m in self.modes]
        draw.shuffle(tries)

        def attempt(at):
            if time.monotonic() < until:
                self.attempt(scenario, *at)

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            work = (pool.map(lambda share: self.fork_all(scenario, share), range(self.options.jobs)) if forks
                    else pool.map(attempt, tries))
            for _ in work:
                pass
        stacks = len(set(recorded))
        tried, reached = self.count[scenario.name, "tried"], self.count[scenario.name, "reached"]
        bad = sum(f[0] == scenario.name for f in self.findings)
        print(f"{scenario.name}: {len(recorded)} calls of {stacks} stacks; {tried} of {len(tries)} runs, "
              f"{reached} with a failure; {bad} findings", flush=True)
        assert reached > 0 or until < time.monotonic()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--only", default="")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--failures")
    options = parser.parse_args()
    programs = os.path.abspath(options.programs)
    if not os.path.exists(os.path.join(programs, "weft-server")):
        print("skipped: the compiler is not gcc, so there are no programs with faults")
        return 77
    with tempfile.TemporaryDirectory(prefix="weft-faults.") as box:
        prepare(programs, box)
        only = options.only.split(",") if options.only else []
        todo = [s for s in scenarios(box) if not only or s.name in only]
        loop, begin = Loop(programs, options), time.monotonic()
        for i, scenario in enumerate(todo):
            until = begin + options.seconds * (i + 1) / len(todo) if options.seconds else float("inf")
            loop.run(scenario, until, random.Random(options.seed))
    groups = collections.Counter((name, wrong) for name, wrong, _ in loop.findings)
    for (name, wrong), n in groups.items():
        print(f"{n} times: {name}: {wrong}")
    return 1 if loop.findings else 0


if __name__ == "__main__":
    sys.exit(main())
