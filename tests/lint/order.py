"""Calls whose arguments call, in two or more of them, functions that append to a list, number a name or a key, or draw a
random number: C leaves the order of arguments open, so compilers would number values, parameters of kernels and dims differently
and bundles and plans would have other bytes on another architecture. usage: order.py ROOT FILE...

A function appends if it is one of ROOTS or calls, in its text, one that does (static functions by file)."""
import re
import sys

ROOTS = re.compile(r"(WEFT_VEC_PUSH|weft_(map_put|names_add|rand_\w+))$")
CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
NOT_CALLS = {"if", "for", "while", "switch", "return", "sizeof"}
NO_CODE = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|^#(?:[^\n]*\\\n)*[^\n]*", re.M | re.S)
FUNCTION = re.compile(r"^([a-z][\w \*]*?)\b(\w+)\([^;{}]*\)\s*\n\{(.*?)^\}", re.M | re.S)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def arguments(text, at):
    """The texts between the parenthesis at `at` and its counterpart, by commas."""
    depth, start, out = 0, at + 1, []
    for i in range(at, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
            if depth == 0:
                return out + [text[start:i]]
        elif text[i] == "," and depth == 1:
            out.append(text[start:i])
            start = i + 1
    return out


root, files = sys.argv[1], sys.argv[2:]
text, calls = {}, {}
for file in files:
    with open(f"{root}/{file}", encoding="utf-8") as f:
        text[file] = t = NO_CODE.sub(blank, f.read())
    for kind, name, body in FUNCTION.findall(t):
        calls[file if "static" in kind else "", name] = (file, set(CALL.findall(body)))


def appends(file, name):
    return bool(ROOTS.match(name)) or ("", name) in appending or (file, name) in appending


appending = set()
while more := {key for key, (file, names) in calls.items() if key not in appending and any(appends(file, n) for n in names)}:
    appending |= more
for file, t in text.items():
    for m in re.finditer(r"(\w+)\s*\(", t):
        if m.group(1) not in NOT_CALLS:
            parts = arguments(t, m.end() - 1)
            if sum(any(appends(file, c) for c in CALL.findall(part)) for part in parts) > 1 and ";" not in "".join(parts):
                line = t.count("\n", 0, m.start()) + 1
                print(f"{file}:{line}: the order of the arguments of {m.group(1)} is open: name their values first")
