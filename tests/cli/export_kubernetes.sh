# Kubernetes manifests: kubectl builds them, and they match the published schemas of their objects
# (reduced to the kinds used; KServe's kinds are only built).
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
[ ! -e bad ] || die "wrote something before it looked at its options"
command -v kubectl >/dev/null || skip "no kubectl (package kubernetes-client)"
for kind in . device-plugin dra kserve; do
    expect 0 kubectl kustomize "k8s/$kind"
    cp out "built-${kind#.}.yaml"
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
expect 0 "${check[@]}" built-device-plugin.yaml built-dra.yaml
has out ", 0 faults"
# The checker finds planted faults.
for fault in 's/replicas: 1$/replicas: one/' 's/containerPort: 8000/containerprt: 8000/' \
    's/deviceClassName:/deviceClass:/' 's/kind: Service$/kind: Servise/'; do
    sed "$fault" built-dra.yaml >fault.yaml
    cmp -s fault.yaml built-dra.yaml && die "nothing to break: $fault"
    expect 1 "${check[@]}" fault.yaml
done
