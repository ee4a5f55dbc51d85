#!/usr/bin/env python3
"""Counts the machine code of the kernels of unit/test_cuda_targets.c and compares it with machine_code.csv.

usage: machine_code.py TEST_CUDA_TARGETS [--bless]

A row is a kernel for an architecture: threads of a block, registers, shared bytes, spills (instructions LDL and STL, in all and in the main
loop), instructions, and of the main loop (the innermost one with the most tensor or FMA instructions) its
length in the code and as it runs: through branches that copy with the fewest narrow loads and the most copies,
so without the paths for operands that are not aligned. Of the loop as it runs: tensor instructions and FMAs, instructions for each of
them, what it moves (LDSM, LDS, STS, LDGSTS, LDG by width, barriers), and the ceiling that follows (see
ceiling()). Spills in a main loop and a row that is not in the table are failures; a change of the code is committed with the table, --bless. The counts depend on NVRTC's version, which the
table's first line names: another one is skipped (77), as is a machine without NVRTC or the disassembler
(machine_code.txt, fetched by scripts/fetch_wheels.sh).
"""
import collections
import csv
import io
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TABLE = os.path.join(HERE, "machine_code.csv")
TARGETS = "sm_80,sm_90,sm_100"
MOVES = ["LDSM", "LDS", "STS", "LDGSTS", "LDG.128", "LDG.64", "LDG.32", "LDG.16", "BAR"]
FIELDS = ["arch", "kernel", "threads", "registers", "shared", "spills", "loop_spills", "instructions", "loop", "run", "tensor", "fma",
          "per_unit", "ceiling", "bound"] + MOVES
SKIP = 77

# A multiprocessor in one clock: multiplications of f16, of TF32 and of f32 that the data sheets count, and the share of the first
# two that mma.sync reaches (H100: measured by others; taken for B200 as half of that, as its peak has doubled).
RATES = {"sm_80": (1024, 512, 64, 1), "sm_90": (2048, 1024, 128, 0.63), "sm_100": (4096, 2048, 128, 0.31)}
SHARED_BYTES, L2_BYTES, SCHEDULERS = 128, 64, 4


def skip(why):
    print("skipped:", why)
    sys.exit(SKIP)


def tool(name):
    """The path of a tool of machine_code.txt."""
    wheels = subprocess.run(["bash", os.path.join(ROOT, "scripts/fetch_wheels.sh"),
                             os.path.join(HERE, "machine_code.txt")], stdout=subprocess.PIPE, text=True)
    if wheels.returncode:
        skip("no disassembler")
    for folder, _, files in os.walk(wheels.stdout.strip()):
        if name in files:
            path = os.path.join(folder, name)
            os.chmod(path, 0o755)
            return path
    sys.exit("no %s in the packages" % name)


def functions(disassembler, image):
    """The lines of each function of an image: pairs of a label and an instruction, one of them None."""
    text = subprocess.run([disassembler, "-c", image], stdout=subprocess.PIPE, text=True, check=True).stdout
    name, found = None, {}
    for line in text.split("\n"):
        section = re.match(r"\s*\.section\s+\.text\.(\w+)", line)
        if section:
            name = section[1]
            found[name] = []
        elif line.strip().startswith(".section "):
            name = None
        if name is None:
            continue
        label = re.match(r"(\.L_\w+):", line)
        code = re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)
        if label:
            found[name].append((label[1], None))
        elif code:
            found[name].append((None, code[1]))
    return found


def opcode(code):
    """The name of an instruction, without its guard."""
    return re.sub(r"^@!?U?P[0-9T]+\s+", "", code).split()[0]


def move_of(name):
    """The column of a move; None: no move."""
    base = name.split(".")[0]
    if base == "LDG":
        width = "128" if ".128" in name else "64" if ".64" in name else "16" if re.search(r"\.[US](8|16)", name) else "32"
        return "LDG." + width
    return base if base in MOVES else None


def is_tensor(name):
    return name.split(".")[0] in ("HMMA", "IMMA", "HGMMA", "UTCHMMA", "QMMA")


def width(name):
    """Bytes that an instruction moves for each thread."""
    if name.startswith("LDSM"):
        return 4 * int(name.rsplit(".", 1)[1])
    for bits in (128, 64):
        if ".%d" % bits in name:
            return bits // 8
    return 2 if re.search(r"\.[US](8|16)", name) else 4


def as_it_runs(names, codes, labels, loop):
    """The instructions of a loop that run, of all ways from its first to its last: those with the fewest narrow loads, then the most
    copies, then the fewest instructions. Loops inside are passed once."""
    best, before = {loop[0]: (0, 0, 0)}, {}
    for i in loop:
        if i not in best:
            continue
        name, jump = names[i], re.search(r"`\((\.L_\w+)\)", codes[i])
        narrow, copies, length = best[i]
        cost = (narrow + (move_of(name) in ("LDG.16", "LDG.32")), copies - (move_of(name) in ("LDGSTS", "LDG.128", "LDG.64")), length + 1)
        to = labels.get(jump[1], -1) if jump and name.startswith("BRA") else -1
        always = name.startswith("BRA") and not codes[i].lstrip().startswith("@")
        for j in ([] if always and to > i else [i + 1]) + ([to] if to > i else []):
            if j <= loop[-1] and (j not in best or cost < best[j]):
                best[j], before[j] = cost, i
    path, i = [loop[-1]], loop[-1]
    while i != loop[0]:
        i = before[i]
        path.append(i)
    return path[::-1]


def ceiling(arch, names, threads):
    """The most of the device's peak that a loop can reach, in percent, and what bounds it: instructions that the schedulers issue,
    shared memory, L2 cache, or the units that multiply. Latency and everything outside of the loop come on top."""
    half, tf32, single, reached = RATES[arch]
    warps = threads / 32
    ideal = mma = 0
    for name in names:
        if is_tensor(name):
            clocks = (1024 / tf32 if "TF32" in name else 2048 / half) * warps
            ideal += clocks
            mma += clocks / reached
    if not mma:
        mma = ideal = sum(n.startswith("FFMA") for n in names) * warps * 32 / single
    if not ideal:
        return "", ""
    shared = sum(width(n) * 32 / SHARED_BYTES for n in names if n.startswith(("LDSM", "LDS", "STS", "LDGSTS"))) * warps
    l2 = sum(width(n) * 32 / L2_BYTES for n in names if n.startswith(("LDG.", "LDGSTS"))) * warps
    limits = {"issue": len(names) * warps / SCHEDULERS, "shared": shared, "l2": l2, "units": mma}
    bound = max(limits, key=limits.get)
    return "%.0f" % (100 * ideal / limits[bound]), bound


def count(arch, threads, lines):
    labels, codes = {}, []
    for label, code in lines:
        if label:
            labels[label] = len(codes)
        else:
            codes.append(code)
    names = [opcode(c) for c in codes]
    loops = []
    for i, code in enumerate(codes):
        jump = re.search(r"\bBRA\b.*`\((\.L_\w+)\)", code)
        if jump and labels.get(jump[1], i + 1) <= i:
            loops.append(range(labels[jump[1]], i + 1))

    def work(loop):
        # Tensor instructions before FMAs; of two loops with equal work the inner one.
        return (sum(is_tensor(names[i]) for i in loop),
                sum(names[i].startswith(("FFMA", "IDP")) for i in loop), -len(loop))
    loop = max(loops, key=work, default=range(0))
    spilled = [i for i, n in enumerate(names) if n.startswith(("LDL", "STL"))]
    path = as_it_runs(names, codes, labels, loop) if loop else []
    tensor, fma, _ = work(path)
    moves = collections.Counter(move_of(names[i]) for i in path)
    units = tensor or fma
    most, bound = ceiling(arch, [names[i] for i in path], threads)
    row = {"spills": len(spilled), "loop_spills": sum(i in loop for i in spilled), "instructions": len(names), "loop": len(loop),
           "run": len(path), "tensor": tensor, "fma": fma, "per_unit": "%.1f" % (len(path) / units) if units else "", "ceiling": most,
           "bound": bound}
    return dict(row, **{m: moves[m] for m in MOVES})


def nvrtc_version(targets_test):
    """The version that the test's library has, from the PTX that it wrote."""
    for name in sorted(os.listdir(targets_test)):
        if ".compute_" in name:
            with open(os.path.join(targets_test, name), encoding="utf-8") as ptx:
                return re.search(r"release ([0-9.]+), V([0-9.]+)", ptx.read())[2]
    sys.exit("no PTX")


def main():
    bless = "--bless" in sys.argv
    disassembler = tool("nvdisasm")
    with tempfile.TemporaryDirectory() as box:
        done = subprocess.run([sys.argv[1]], env=dict(os.environ, WEFT_CUBINS=box, WEFT_TARGETS=TARGETS),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(done.stdout)
            sys.exit(done.returncode)
        version = nvrtc_version(box)
        rows, resources = [], {}
        with open(os.path.join(box, "resources"), encoding="utf-8") as lines:
            for arch, kernel, registers, _, shared, threads in map(str.split, lines):
                resources[arch, kernel] = {"registers": registers, "shared": shared, "threads": threads}
        for image in os.listdir(box):
            if ".sm_" in image:
                module, arch = image.split(".")
                for name, lines in functions(disassembler, os.path.join(box, image)).items():
                    # The number of the kernel in place of the hash of its text.
                    kernel = name[:name.rindex("_") + 1] + module
                    what = resources[arch, name]
                    rows.append(dict(count(arch, int(what["threads"]), lines), arch=arch, kernel=kernel, **what))
    rows.sort(key=lambda r: (int(r["arch"][3:]), int(r["kernel"].rsplit("_", 1)[1])))
    out = io.StringIO()
    out.write("# NVRTC %s\n" % version)
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with open(TABLE, encoding="utf-8") as table:
        want = table.read()
    if bless:
        with open(TABLE, "w", encoding="utf-8") as table:
            table.write(out.getvalue())
    elif want.split("\n")[0] != "# NVRTC " + version:
        skip("the table is of %s, here is NVRTC %s" % (want.split("\n")[0], version))
    elif out.getvalue() != want:
        have, table = out.getvalue().split("\n"), want.split("\n")
        print("\n".join(["is not in the table: " + line for line in have if line not in table] +
                        ["is no more:          " + line for line in table if line not in have]))
        print("if the change is meant: machine_code.py %s --bless" % sys.argv[1])
        sys.exit(1)
    spilled = [r for r in rows if r["loop_spills"]]
    for r in spilled:
        print("%s %s: %d spills in its main loop" % (r["arch"], r["kernel"], r["loop_spills"]))
    print("%d kernels of NVRTC %s are as the table says" % (len(rows), version))
    sys.exit(1 if spilled else 0)


main()
