"""Runs the commands of documents as they are printed: each fenced block `sh`, in order, in a folder of the document with
`examples`. Comments of HTML before a block tell what else there is to know of it:

    <!-- not run: REASON -->     it cannot run here
    <!-- prepare: COMMANDS -->   makes what its reader has: files of his own

`weft serve` is waited for until it is ready, and ended (exit code 0) before the next one or at the end.

    docs_commands.py ROOT DOCUMENT...     in the current folder; exit codes: 0 done, 1 a command failed, 77 no ports"""
import os
import re
import shutil
import socket
import subprocess
import sys

PRELUDE = r"""
set -euo pipefail
server=
stop_server() {
    [ -n "$server" ] || return 0
    kill "$server"
    wait "$server" || { echo "the server ended with $?"; cat server.log; exit 1; }
    server=
}
start_server() {
    stop_server
    : >server.log  # what the one before has said is not READY
    weft serve "$@" >>server.log 2>&1 &
    server=$!
    for _ in $(seq 300); do
        if grep -q ^READY server.log; then return 0; fi
        kill -0 "$server" || break
        sleep 0.1
    done
    cat server.log
    exit 1
}
trap '[ -z "$server" ] || kill "$server"' EXIT
"""


def blocks(path):
    """(line, commands, preparation, reason) of each block; `reason`: why it is not run, or None."""
    out, comments, inside = [], [], None
    with open(path) as f:
        lines = f.read().split("\n")
    for at, line in enumerate(lines, 1):
        if inside is not None:
            if line.startswith("```"):
                language, start, text = inside
                found = dict(re.match(r"<!-- (not run|prepare): (.*) -->", c).groups() for c in comments)
                if language == "sh":
                    out.append((start, text, found.get("prepare"), found.get("not run")))
                elif any(t.startswith("$ ") for t in text):
                    sys.exit(f"{path}:{start}: commands belong into a block of sh, without a prompt")
                inside, comments = None, []
            else:
                inside[2].append(line)
        elif line.startswith("```"):
            inside = (line[3:].strip(), at, [])
        elif re.match(r"<!-- (not run|prepare): .* -->", line):
            comments.append(line)
        elif line.strip():
            comments = []
    return out


def script_of(path):
    script, n = PRELUDE, 0
    for line, commands, prepare, reason in blocks(path):
        if reason is not None:
            print(f"{path}:{line}: not run: {reason}")
            continue
        n += 1
        script += f"echo '== line {line}'\n{prepare or ':'}\n"
        for command in commands:
            serve = re.match(r"weft serve (.*?)( &)?(\s+#.*)?$", command)
            script += f"start_server {serve.group(1)}\n" if serve else command + "\n"
    return script + "stop_server\n", n


def run(root, name):
    script, n = script_of(os.path.join(root, name))
    if n == 0:
        return True
    folder = name.replace("/", "_")
    os.makedirs(folder)
    shutil.copytree(os.path.join(root, "examples"), os.path.join(folder, "examples"))
    done = subprocess.run(["bash", "-c", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=250, errors="replace")
    print(f"{name}: {n} blocks, {'done' if done.returncode == 0 else 'failed'}", flush=True)
    if done.returncode:
        print(done.stdout[-6000:])
    return done.returncode == 0


def in_namespace():
    """Runs this again where all ports are free; returns if that cannot be had."""
    for options in (["-n"], ["-rn"]):
        if subprocess.run(["unshare", *options, "true"], stderr=subprocess.DEVNULL).returncode == 0:
            os.execvp("unshare", ["unshare", *options, sys.executable, __file__, "--inside", *sys.argv[1:]])


def raise_loopback():
    import fcntl
    import struct
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 0x49, b""))  # SIOCSIFFLAGS: up, loopback, running


def ports_are_free():
    for port in (8000, 8001, 8002):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return False
    return True


def main(arguments):
    if arguments[0] == "--inside":
        arguments = arguments[1:]
        raise_loopback()
    else:
        if shutil.which("unshare"):
            in_namespace()
        if not ports_are_free():
            print("skipped: ports 8000 to 8002 are in use")
            return 77
    root, *documents = arguments
    return 0 if all([run(root, name) for name in documents]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
