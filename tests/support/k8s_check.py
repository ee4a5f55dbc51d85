#!/usr/bin/env python3
"""Holds Kubernetes objects against the published schemas, with nothing but python3-yaml.

usage: k8s_check.py check SCHEMA.json[,SCHEMA.json] FILE.yaml...    exit code 1 and a line a fault
       k8s_check.py make SCHEMA.json FILE.yaml...     needs the packages kubernetes-validate, kserve (its files only) and
                                                      cloudcoil-models-prometheus-operator

`make` cuts the schemas (strict: no unknown keys) down to what the objects in the files use: below keys that they
do not use, anything goes; `check` says so by refusing kinds that it has no schema for.
gateway_schema.json is written by hand from the reference of the Gateway API.
"""
import ast
import json
import re
import sys

import yaml


def objects(paths):
    for path in paths:
        with open(path) as f:
            for o in yaml.load_all(f, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                if o:
                    yield path, o


def kind_of(o):
    return f"{o.get('apiVersion')} {o.get('kind')}"


def faults(schema, value, where):
    """Yields what is wrong with value; True stands for anything."""
    if schema is True:
        return
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    python = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
              "null": type(None)}
    if kinds and not any(isinstance(value, python[k]) and not (k in ("integer", "number") and isinstance(value, bool))
                         for k in kinds):
        yield f"{where}: is {type(value).__name__}, must be {' or '.join(kinds)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    size = value if isinstance(value, (int, float)) else len(value) if isinstance(value, (str, list, dict)) else 0
    if not schema.get("min", size) <= size <= schema.get("max", size):
        yield f"{where}: {size} is not from {schema.get('min', 0)} to {schema.get('max', 'any')}"
    if isinstance(value, str) and not re.fullmatch(schema.get("pattern", ".*"), value, re.DOTALL):
        yield f"{where}: {value!r} is not like {schema['pattern']}"
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for key in schema.get("required", []):
            if key not in value:
                yield f"{where}: {key} is missing"
        for key, item in value.items():
            if key in properties:
                yield from faults(properties[key], item, f"{where}.{key}")
            elif schema.get("additionalProperties", True) is False:
                yield f"{where}: unknown key {key}"
            elif isinstance(schema.get("additionalProperties"), dict):
                yield from faults(schema["additionalProperties"], item, f"{where}.{key}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from faults(schema.get("items", True), item, f"{where}[{i}]")


def check(schema_path, paths):
    schemas = {"kinds": {}, "version": []}
    for one in schema_path.split(","):
        with open(one) as f:
            read = json.load(f)
        schemas["kinds"].update(read["kinds"])
        schemas["version"].append(read["version"])
    wrong = seen = 0
    for path, o in objects(paths):
        seen += 1
        name = f"{path}: {o.get('kind')}/{o.get('metadata', {}).get('name')}"
        schema = schemas["kinds"].get(kind_of(o))
        for text in faults(schema, o, name) if schema else [f"{name}: no schema for {kind_of(o)}"]:
            wrong += 1
            print(text)
    print(f"{seen} objects, {wrong} faults, by the schemas of {', '.join(schemas['version'])}")
    return 1 if wrong or not seen else 0


def kserve_schema(folder, name):
    """The schema of a class of KServe's client, from its table of types."""
    path = folder / (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() + ".py")
    if not path.exists():
        return {"$ref": f"#/$defs/io.k8s.api.core.v1.{name.removeprefix('V1')}"}
    text = path.read_text()
    table = {t.targets[0].id: ast.literal_eval(t.value) for c in ast.parse(text).body if isinstance(c, ast.ClassDef)
             for t in c.body if isinstance(t, ast.Assign) and t.targets[0].id in ("openapi_types", "attribute_map")}
    keys = table["attribute_map"]
    given = re.findall(r"^        self\.(\w+) = \1$", text, re.MULTILINE)  # without `if ... is not None`
    return {"type": "object", "additionalProperties": False, "required": [keys[k] for k in given if k in keys],
            "properties": {keys[k]: {"kserve": t} for k, t in table["openapi_types"].items()}}


def kserve_type(folder, text):
    plain = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}
    if text in plain:
        return {"type": plain[text]}
    inner = re.fullmatch(r"(list|dict)(?:\[|\()(?:str, )?(.*)(?:\]|\))", text)
    if inner and inner[1] == "list":
        return {"type": "array", "items": {"kserve": inner[2]}}
    if inner:
        return {"type": "object", "additionalProperties": {"kserve": inner[2]}}
    if text == "V1ObjectMeta":
        return {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    if text in ("ResourceQuantity", "IntstrIntOrString"):
        return {"type": ["string", "integer"]}
    return kserve_schema(folder, text)


def make(schema_path, paths):
    import importlib.resources
    import importlib.util
    import pathlib
    from cloudcoil.models.prometheus_operator import v1 as prometheus
    kserve = pathlib.Path(importlib.util.find_spec("kserve").submodule_search_locations[0]) / "models"
    root = importlib.resources.files("kubernetes_validate").joinpath("kubernetes-json-schema")
    versions = [re.fullmatch(r"v([0-9.]+)-local-strict", p.name) for p in root.iterdir()]
    version = max((m[1] for m in versions if m), key=lambda v: [int(x) for x in v.split(".")])
    folder = root.joinpath(f"v{version}-local-strict")
    definitions = json.loads(folder.joinpath("_definitions.json").read_text())["$defs"]
    monitor = prometheus.PodMonitor.model_json_schema()
    definitions.update(monitor.pop("$defs"))
    monitor["properties"]["metadata"] = {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}

    def cut(schema, values):
        while "$ref" in schema or "kserve" in schema:
            schema = kserve_type(kserve, schema["kserve"]) if "kserve" in schema else definitions[schema["$ref"].split("/")[-1]]
        if "anyOf" in schema:  # of pydantic, with null
            return cut(next(s for s in schema["anyOf"] if s.get("type") != "null"), values)
        if "title" in schema and "properties" in schema:
            schema = {**schema, "additionalProperties": False}
        if "oneOf" in schema:
            types = [s["type"] if isinstance(s["type"], list) else [s["type"]] for s in schema["oneOf"]]
            return {"type": sorted({t for some in types for t in some})}
        out = {k: schema[k] for k in ("type", "required", "enum") if k in schema}
        if "enum" in out and None in out["enum"] and len(out["enum"]) == 1:
            del out["enum"]
        dicts = [v for v in values if isinstance(v, dict)]
        if "properties" in schema:
            out["properties"] = {}
            for key, sub in schema["properties"].items():
                below = [v[key] for v in dicts if key in v]
                out["properties"][key] = cut(sub, below) if below else True
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            out["additionalProperties"] = cut(extra, [x for v in dicts for x in v.values()])
        elif extra is not None:
            out["additionalProperties"] = extra
        if "items" in schema:
            out["items"] = cut(schema["items"], [x for v in values if isinstance(v, list) for x in v])
        return out

    by_kind = {}
    for _, o in objects(paths):
        by_kind.setdefault(kind_of(o), []).append(o)
    kinds = {}
    for kind, values in sorted(by_kind.items()):
        api, name = kind.split()
        group, _, release = api.rpartition("/")
        if group == "serving.kserve.io":
            kinds[kind] = cut({"kserve": f"V1{release[2:]}{name}"}, values)
            continue
        if name == "PodMonitor":
            kinds[kind] = cut(monitor, values)
            continue
        file = "-".join(x for x in (name.lower(), group.split(".")[0], release) if x) + ".json"
        kinds[kind] = cut(json.loads(folder.joinpath(file).read_text()), values)
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in kinds.items())
    about = "from the OpenAPI of Kubernetes, KServe's client and the Prometheus operator (Apache-2.0), cut by k8s_check.py make"
    with open(schema_path, "w") as f:
        f.write(f'{{"about": "{about}", "version": "Kubernetes {version}", "kinds": {{\n{rows}\n}}}}\n')
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("check", "make"):
        sys.exit(__doc__)
    sys.exit((check if sys.argv[1] == "check" else make)(sys.argv[2], sys.argv[3:]))
