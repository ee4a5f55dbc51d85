# Kubernetes manifests, built by kubectl and held against the published schemas where there are any:
# PYTHON_K8S names a Python that has the package kubernetes-validate.
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
# Parts of the plan are plans.
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
python=${PYTHON_K8S:-python3}
"$python" -c 'import kubernetes_validate' 2>/dev/null ||
    skip "kustomize built all; schemas are not looked at: no Python package kubernetes-validate"
for kind in device-plugin dra; do
    expect 0 "$python" -m kubernetes_validate --strict "built-$kind.yaml"
    lacks err "FAIL"
done
# The checker does see faults.
sed 's/replicas: 1$/replicas: one/' built-dra.yaml >fault.yaml
"$python" -m kubernetes_validate --strict fault.yaml >out 2>err && die "a fault went unseen"
true
