# Routes of the Gateway API: two for each model, weights with the shares of the rates, Services that exist; the rules of
# the API's reference hold.
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
find_python yaml
# A model on instances of two sizes.
cat >merge.py <<'END'
import json
plan = json.load(open("plan.json"))
for p in plan["placements"]:
    p["model"] = {"Small_1.x": "big"}.get(p["model"], p["model"])
json.dump(plan, open("plan.json", "w"))
END
expect 0 "$python" merge.py
expect 0 "$WEFT" export plan.json --to gateway -o gateway
expect 0 "$WEFT" export plan.json --to kubernetes -o k8s
cat >check.py <<'END'
import json, yaml
plan = json.load(open("plan.json"))
routes = list(yaml.safe_load_all(open("gateway/routes.yaml")))
services = {o["metadata"]["name"]: {p["port"] for p in o["spec"]["ports"]}
            for o in yaml.safe_load_all(open("k8s/services/services.yaml"))}
models = sorted({p["model"] for p in plan["placements"]})
assert len(routes) == 2 * len(models), len(routes)
for i, route in enumerate(routes):
    grpc, model = i % 2, models[i // 2]
    assert route["kind"] == ("GRPCRoute" if grpc else "HTTPRoute")
    # A listener accepts either HTTPRoutes or GRPCRoutes for its hosts.
    assert route["spec"]["parentRefs"] == [{"name": "weft", "sectionName": ("http", "grpc")[grpc]}], route["spec"]
    rule, = route["spec"]["rules"]
    match, = rule["matches"]
    if grpc:
        assert match == {"headers": [{"name": "x-model", "value": model}]}, match
    else:
        assert match == {"path": {"type": "PathPrefix", "value": f"/v2/models/{model}"}}, match
    for b in rule["backendRefs"]:
        assert b["port"] == 8000 + grpc and b["port"] in services[b["name"]], b
    # The placements of a model with equal slice and batch are a group.
    rate = {}
    for p in plan["placements"]:
        if p["model"] == model:
            rate[p["slice"], p["batch"]] = rate.get((p["slice"], p["batch"]), 0) + p["rate_per_s"]
    total, weights = sum(rate.values()), sorted(b["weight"] for b in rule["backendRefs"])
    assert len(weights) == len(rate), (weights, rate)
    for got, want in zip(weights, sorted(rate.values())):
        assert abs(got / sum(weights) - want / total) < 1e-5, (model, weights, rate)
assert any(len(r["spec"]["rules"][0]["backendRefs"]) > 1 for r in routes), "no model on two groups"
END
expect 0 "$python" check.py
check=("$python" "$WEFT_SOURCE_DIR/tests/support/k8s_check.py" check "$WEFT_SOURCE_DIR/tests/support/gateway_schema.json")
expect 0 "${check[@]}" gateway/routes.yaml
has out ", 0 faults"
for fault in 's/weight: .*/weight: 1000001/' 's/type: PathPrefix/type: Prefix/' 's/x-model/x model/' 's/port: 8000/port: http/' \
    's/backendRefs:/backends:/' 's,value: /v2,value: v2,' 's/kind: GRPCRoute/kind: GrpcRoute/'; do
    sed "$fault" gateway/routes.yaml >fault.yaml
    cmp -s fault.yaml gateway/routes.yaml && die "nothing to break: $fault"
    expect 1 "${check[@]}" fault.yaml
done
