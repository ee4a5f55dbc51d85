#!/usr/bin/env python3
"""Rings: object files of one static library that use each other's symbols, directly or in a circle.

    rings.py LIBRARY.a...        prints each ring with the symbols that make it; exit code 1 if any

A file that takes part in a ring cannot be understood, tested or replaced without the others. The
use of symbols is read with nm; rings are the strongly connected components of the graph "file uses
file" (R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1, 1972).
"""
import collections
import os
import re
import subprocess
import sys

LINE = re.compile(r"^.*?:([^:]+):\s*[0-9a-f]*\s+(\w) (\S+)$")


def read_uses(library):
    """{object file: {object file it uses: symbols}}"""
    listing = subprocess.run(["nm", "-A", "-g", library], capture_output=True, text=True, check=True)
    owner, wanted = {}, collections.defaultdict(set)
    for line in listing.stdout.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        member, kind, symbol = match.groups()
        if kind in "Uwv":
            wanted[member].add(symbol)
        else:
            owner[symbol] = member
    uses = {member: {} for member in set(owner.values()) | set(wanted)}
    for member, symbols in wanted.items():
        for symbol in sorted(symbols):
            other = owner.get(symbol)
            if other and other != member:
                uses[member].setdefault(other, []).append(symbol)
    return uses


def find_rings(uses):
    """Strongly connected components of more than one file."""
    index, low, stack, rings = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in uses[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                rings.append(sorted(stack[at:]))
            del stack[at:]

    for v in sorted(uses):
        if v not in index:
            visit(v)
    return rings


def main():
    sys.setrecursionlimit(10000)
    found = 0
    for library in sys.argv[1:]:
        uses = read_uses(library)
        for ring in find_rings(uses):
            found += 1
            print(f"{os.path.basename(library)}: ring of {len(ring)} files: {' '.join(ring)}")
            for a in ring:
                for b in sorted(set(uses[a]) & set(ring)):
                    print(f"    {a} uses of {b}: {' '.join(uses[a][b])}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
