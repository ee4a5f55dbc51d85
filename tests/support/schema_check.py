"""Checks JSON files against docs/schema: KIND.ANYTHING.json against KIND.schema.json. Also: an output with a key more is
refused, and the document that a schema names has all of its keys.

usage: schema_check.py ROOT FILE...
"""
import copy
import json
import os
import sys

import jsonschema


def keys(schema):
    """All names of properties in a schema."""
    if isinstance(schema, list):
        return set().union(*map(keys, schema))
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("properties", {})).union(*(keys(v) for v in schema.values()))


def objects(value):
    """All objects in a value."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(one)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def embed(root, schema):
    """The schema with those of other files in place of references to them."""
    if isinstance(schema, list):
        return [embed(root, one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "#")
    if name[0] != "#":
        return {**load(f"{root}/docs/schema/{name}"), "$id": name}
    return {key: embed(root, value) for key, value in schema.items()}


def check(root, kind, files):
    schema = load(f"{root}/docs/schema/{kind}.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(embed(root, schema))
    with open(f"{root}/{schema['description'].split()[0]}", encoding="utf-8") as file:
        document = file.read()
    missing = [k for k in keys(schema) if f"`{k}" not in document]
    assert not missing, f"{schema['description']} {missing}"
    met = set()
    for path in files:
        value = load(path)
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        assert error is None, f"{path}: {error.json_path}: {error.message}"
        found = list(objects(value))
        met.update(*found)
        for i in range(0, len(found), 1 + len(found) // 8):
            wrong = copy.deepcopy(value)
            list(objects(wrong))[i]["no such key"] = 1
            assert not validator.is_valid(wrong), f"{path}: a key more in {sorted(found[i])}"
    print(f"{kind}: {len(files)} outputs; without {sorted(keys(schema) - met)}")


def main():
    root, *files = sys.argv[1:]
    kinds = {}
    for path in files:
        kinds.setdefault(os.path.basename(path).split(".")[0], []).append(path)
    for kind, paths in kinds.items():
        check(root, kind, paths)


main()
