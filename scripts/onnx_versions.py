#!/usr/bin/env python3
"""Rewrites frontend/onnx_versions.def from the schemas of the installed `onnx` package.

For each operator of the default domain: all versions of its schema, and the newest one whose
meaning a person has compared with the implementation. The first come from the schemas; the second
is kept for operators that the file has, so that a newer package adds versions that are refused
until somebody has read them, raised the number, and implemented what changed. Operators that the
file does not have begin at 0: not read.

usage: onnx_versions.py [FILE]
"""

import os
import re
import sys

HEAD = """/* Versions of the operators of ONNX's default domain. Written by scripts/onnx_versions.py with onnx
 * {version}; only the first number of a row is edited by hand.
 *
 * V(operator, newest version that a person has compared with our operator, all versions): a model of
 * opset N means the largest version <= N, which is accepted if it has been read. */
"""


def read_versions(path):
    """{operator: newest version read} of an existing file."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return {m[1]: int(m[2]) for m in re.finditer(r"^V\((\w+), (\d+)", f.read(), re.M)}


def main():
    import onnx
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "frontend",
                           "onnx_versions.def")
    path = sys.argv[1] if len(sys.argv) > 1 else default
    read = read_versions(path)
    versions = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, set()).add(schema.since_version)
    newest = onnx.defs.onnx_opset_version()
    with open(path, "w", encoding="utf-8") as f:
        f.write(HEAD.format(version=onnx.__version__))
        for name in sorted(versions):
            numbers = ", ".join(str(v) for v in sorted(versions[name]))
            f.write(f"V({name}, {read.get(name, 0)}, {numbers})\n")
    print(f"{len(versions)} operators; WEFT_ONNX_OPSET_LAST is {newest} once all are read")


if __name__ == "__main__":
    main()
