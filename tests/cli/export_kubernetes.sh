# Kubernetes manifests: kubectl builds them, and they match the published schemas of their objects
# (reduced to the kinds used).
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
expect 0 "$WEFT" export plan.json --to kubernetes -o k8s --bundle /data/all.weft --image reg.example/weft:1
cp -r k8s first
expect 0 "$WEFT" export plan.json --to kubernetes -o k8s --bundle /data/all.weft --image reg.example/weft:1
diff -r k8s first || die "two exports differ"
has k8s/device-plugin/deployments.yaml "nvidia.com/mig-1g.10gb: 1"
has k8s/device-plugin/deployments.yaml "nvidia.com/gpu.shared: 1"
has k8s/device-plugin/deployments.yaml "/data/all.weft"
has k8s/dra/claims.yaml "mig.nvidia.com"
has k8s/dra/claims.yaml "strategy: MPS"
has k8s/kserve/runtimes.yaml "/mnt/models/all.weft"
# Probes have a port of their own, which no Service shows; workers on CPUs have a limit of memory.
for kind in device-plugin/deployments dra/deployments kserve/runtimes; do
    has "k8s/$kind.yaml" "--health"
    has "k8s/$kind.yaml" "port: health"
    lacks "k8s/$kind.yaml" "port: http"
    has "k8s/$kind.yaml" "readOnlyRootFilesystem: true"
    has "k8s/$kind.yaml" "allowPrivilegeEscalation: false"
done
lacks k8s/services/services.yaml "health"
lacks k8s/services/network-policy.yaml "health"
"$WEFT" compile "$examples/digits.yaml" -o digits.weft 2>err || die "$(shown err)"
expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" -o cpu.json
expect 0 "$WEFT" export cpu.json --to kubernetes -o cpu
[ "$(grep -c 'memory: "5[0-9]*Mi"' cpu/device-plugin/deployments.yaml)" = 2 ] ||
    die "no limit of memory: $(grep -n memory cpu/device-plugin/deployments.yaml)"
lacks k8s/device-plugin/deployments.yaml "memory: 0Mi"
# The exported parts of the plan are valid plans.
for part in k8s/base/plans/*.json; do
    expect 0 "$WEFT" simulate "$part" --duration 1s
done
expect 1 "$WEFT" export plan.json --to kubernetes -o bad --bundle 'data/$(x).weft'
has err "absolute path"
expect 1 "$WEFT" export plan.json --to kubernetes -o bad --name 'Weft_1'
expect 1 "$WEFT" export plan.json --to kubernetes -o bad --queue 'a queue'
has err "is not the name of a queue"
digest=sha256:$(printf '%064d' 7)
for image in "reg.example/models:1" "reg.example/models@${digest%7}" "@$digest" "reg.example/models@$digest/x"; do
    expect 1 "$WEFT" export plan.json --to kubernetes -o bad --bundle-image "$image"
    has err "must be IMAGE@sha256:HEX"
done
[ ! -e bad ] || die "wrote something before it looked at its options"
# The other choices: the bundle in an image, updates in place, a queue of Kueue.
expect 0 "$WEFT" export plan.json --to kubernetes -o other --bundle /data/all.weft \
    --bundle-image "reg.example/models@$digest" --rollout in-place --queue research
# From a store: an init container gets the bundle into a folder of the pod or into the claim, and may ask for it.
stored() { expect "$1" "$WEFT" export plan.json --to kubernetes -o "$2" --store "$3" --digest "${@:4}"; }
stored 0 stored http://store.example:8080/weft "$digest"
[ ! -e stored/kserve ] || die "KServe does not know stores"
for kind in device-plugin dra; do
    yaml=stored/$kind/deployments.yaml
    has "$yaml" "emptyDir:"
    [ "$(grep -c "/srv/weft/${digest:7:16}.weft" "$yaml")" = "$(($(grep -c 'kind: Deployment' "$yaml") * 2))" ] ||
        die "another bundle is brought than is served: $(grep -n weft/ "$yaml")"
done
grep -A 12 egress: stored/services/network-policy.yaml | grep -q "port: 8080" || die "the store may not be asked"
lacks k8s/services/network-policy.yaml "egress:"
stored 0 claimed https://store.example/weft "$digest" --claim all-models
has claimed/device-plugin/deployments.yaml "claimName: all-models"
grep -q "port: 443" claimed/services/network-policy.yaml || die "the store may not be asked"
stored 1 bad /srv/store "$digest"
stored 1 bad 'https://a/$(x)' "$digest"
for url in http:// https:///weft https://a:0/weft https://a:65536 https://a:8x/weft https://user:secret@a/weft; do
    stored 1 bad "$url" "$digest"
done
stored 1 bad https://a "${digest%7}"
stored 1 bad https://a "$digest" --bundle-image "reg.example/models@$digest"
expect 1 "$WEFT" export plan.json --to kubernetes -o bad --digest "$digest"
[ ! -e bad ] || die "wrote something before it looked at its options"
# The ConfigMaps of workers with other work have other names, and so their pods are others; those of workers that only
# belong to another plan are the same.
sed 's/"batch": 8/"batch": 4/' plan.json >batch.json
cmp -s plan.json batch.json && die "the plan has no batch of 8"
sed -E 's/"(cost_per_hour|cost_bound|power_w)": .*/"\1": 9,/' batch.json >changed.json
cmp -s batch.json changed.json && die "the plan has no cost"
expect 0 "$WEFT" export changed.json --to kubernetes -o changed
# A model on slices of two sizes, for the anti-affinity of its groups.
sed -z 's/"Small_1.x",\( *\n *"device"\)/"big",\1/g' plan.json >mixed.json
cmp -s plan.json mixed.json && die "the plan has no Small_1.x"
expect 0 "$WEFT" export mixed.json --to kubernetes -o mixed
command -v kubectl >/dev/null || skip "no kubectl (package kubernetes-client)"
for kind in . device-plugin dra kserve monitor; do
    expect 0 kubectl kustomize "k8s/$kind"
    cp out "built-${kind#.}.yaml"
done
for folder in other changed mixed; do
    for kind in device-plugin dra kserve; do
        expect 0 kubectl kustomize "$folder/$kind"
        cp out "$folder-$kind.yaml"
    done
done
for kind in device-plugin dra; do
    expect 0 kubectl kustomize "stored/$kind"
    cp out "stored-$kind.yaml"
    expect 0 kubectl kustomize "claimed/$kind"
    cp out "claimed-$kind.yaml"
done
has built-dra.yaml "resourceClaimTemplateName"
has built-.yaml "plan.json: |"
for python in python3 /usr/bin/python3; do
    "$python" -c 'import yaml' 2>/dev/null && break
    python=
done
[ -n "$python" ] || skip "no Python with yaml (package python3-yaml)"
check=("$python" "$WEFT_SOURCE_DIR/tests/support/k8s_check.py" check
    "$WEFT_SOURCE_DIR/tests/support/k8s_schema.json")
expect 0 "${check[@]}" {built,other,mixed,stored,claimed}-{device-plugin,dra}.yaml {built,other,mixed,changed}-kserve.yaml \
    built-monitor.yaml
has out ", 0 faults"
cat >pods.py <<'END'
import yaml


def load(path):
    return [o for o in yaml.load_all(open(path), getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if o]


def of(objects, kind):
    found = [o for o in objects if o["kind"] == kind]
    assert found, kind
    return found


def selects(o, labels):
    selector = o["spec"]["selector"]["matchLabels"]
    return all(labels.get(key) == value for key, value in selector.items())


def configs(objects):
    return {o["metadata"]["name"] for o in of(objects, "ConfigMap")}


for path in "built-device-plugin", "built-dra", "other-device-plugin", "other-dra", "mixed-dra":
    objects, other = load(path + ".yaml"), path.startswith("other")
    for o in objects:
        assert o["metadata"]["labels"]["app.kubernetes.io/instance"] == "weft", o["metadata"]
    groups = {}
    for d in of(objects, "Deployment"):
        pod = d["spec"]["template"]
        labels, spec = pod["metadata"]["labels"], pod["spec"]
        container, = spec["containers"]
        # An update ends no worker before its successor is ready, unless there is no slice to spare. The shares of a
        # claim, a Deployment each, would all end at once.
        in_place = other and not any("resourceClaimName" in c for c in spec.get("resourceClaims", []))
        assert d["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1 - in_place, "maxUnavailable": int(in_place)}
        # Asleep, then 30 s of draining, then killed.
        assert spec["terminationGracePeriodSeconds"] >= container["lifecycle"]["preStop"]["sleep"]["seconds"] + 35
        requests = container["resources"]["requests"]
        assert requests["cpu"] > 0 and requests["memory"].endswith("Mi"), requests
        assert d["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == ("research" if other else None)
        volume = {v["name"]: v for v in spec["volumes"]}
        assert ("image" in volume["models"]) == other, volume
        assert volume["plan"]["configMap"]["name"] in configs(objects)
        # Exactly one budget: a pod with two is never evicted.
        assert len([b for b in of(objects, "PodDisruptionBudget") if selects(b, labels)]) == 1, labels
        assert len([m for m in load("built-monitor.yaml") if selects(m, labels)]) == 1
        group = groups.setdefault(labels["weft/group"], [0, spec, labels])
        group[0] += d["spec"]["replicas"]
    assert any(n > 1 for n, _, _ in groups.values())
    apart = 0
    for group, (n, spec, labels) in groups.items():
        keys = [c["topologyKey"] for c in spec.get("topologySpreadConstraints", [])]
        assert keys == (["kubernetes.io/hostname", "topology.kubernetes.io/zone"] if n > 1 else []), (group, keys)
        shared = {g for g, (_, _, other_labels) in groups.items()
                  if g != group and any(k in other_labels for k in labels if k.startswith("model.weft/"))}
        got = set()
        for term in spec.get("affinity", {}).get("podAntiAffinity", {}).values():
            got = set(term[0]["podAffinityTerm"]["labelSelector"]["matchExpressions"][0]["values"])
        assert got == shared, (group, got, shared)
        apart += len(shared)
    assert (apart > 0) == path.startswith("mixed"), path
before, after = configs(load("built-device-plugin.yaml")), configs(load("changed-device-plugin.yaml"))
assert before & after and before - after, "the plan of some groups changed, that of others did not"
for path in "built-kserve", "other-kserve":
    objects = load(path + ".yaml")
    for r in of(objects, "ServingRuntime"):
        assert {v["configMap"]["name"] for v in r["spec"]["volumes"] if "configMap" in v} <= configs(objects)
    for s in of(objects, "InferenceService"):
        uri = s["spec"]["predictor"]["model"]["storageUri"]
        assert uri.startswith("oci://" if path.startswith("other") else "pvc://"), uri
        assert len([b for b in of(objects, "PodDisruptionBudget") if selects(b, s["metadata"]["labels"])]) == 1
END
expect 0 "$python" pods.py
# The checker finds planted faults.
while read -r kind fault; do
    sed "$fault" built-$kind.yaml >fault.yaml
    cmp -s fault.yaml built-$kind.yaml && die "nothing to break: $fault"
    expect 1 "${check[@]}" fault.yaml
done <<'END'
dra s/replicas: 1$/replicas: one/
dra s/containerPort: 8000/containerprt: 8000/
dra s/maxSurge: 1/maxSurge: []/
dra s/maxUnavailable: 1/maxUnavailble: 1/
dra s/seconds: 5/seconds: soon/
dra s/whenUnsatisfiable:/whenUnsatisfied:/
dra s/deviceClassName:/deviceClass:/
dra s/kind: Service$/kind: Servise/
kserve s/supportedModelFormats:/supportedFormats:/
kserve s/minReplicas: .*/minReplicas: few/
kserve s/storageUri:/storageURI:/
kserve s/readinessProbe:/readyProbe:/
monitor s/podMetricsEndpoints:/endpoints:/
END
