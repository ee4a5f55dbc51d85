#!/usr/bin/env bash
# Runs what `weft export --to kubernetes` writes on `podman kube play`, from the image of packaging/Containerfile (image.sh):
# the rendered Deployment and ConfigMap of a CPU plan, unchanged but for the network of the host, as there is no cluster's; the
# claim is a volume with the bundle. The pod answers, and drains at its end.
#
# usage: kube_play.sh FOLDER     with the packages (scripts/deb.sh FOLDER)
set -euo pipefail
for tool in podman kubectl runc conmon; do
    command -v $tool >/dev/null || { printf 'skipped: no %s\n' $tool; exit 77; }
done
. "$(dirname "${BASH_SOURCE[0]}")/image.sh"
cat >"$box/containers.conf" <<'END'
[containers]
default_ulimits = ["nofile=16384:16384","nproc=8192:8192"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
END
pod() { CONTAINERS_CONF=$box/containers.conf podman --root "$box/store" --runroot "$box/run" --storage-driver vfs "$@"; }
end_test() {
    pod pod rm --all --force >/dev/null 2>&1 || true
    pod volume rm --all --force >/dev/null 2>&1 || true
}

cd "$box"
weft=${WEFT:-weft}
port=$(python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1] // 10 * 10)')
"$weft" compile -q "$root/examples/digits.yaml" -o models.weft
"$weft" plan -q "$root/examples/digits.yaml" --fleet "$root/examples/fleet.yaml" --bundle models.weft -o plan.json
"$weft" export plan.json --to kubernetes -o k8s --image localhost/weft --bundle /srv/weft/models.weft --port "$port" >files
kubectl kustomize k8s/device-plugin >all.yaml
python3 - "$port" <<'PY'
import sys, yaml

kept, claims = [], set()
for one in yaml.safe_load_all(open("all.yaml")):
    if one["kind"] == "ConfigMap":
        kept.append(one)
    if one["kind"] == "Deployment":
        spec = one["spec"]["template"]["spec"]
        spec["hostNetwork"] = True
        for container in spec["containers"]:
            container.pop("ports", None)  # the host's: none is published
        claims |= {v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v}
        one["spec"]["replicas"] = 1
        kept.append(one)
assert sum(k["kind"] == "Deployment" for k in kept) == 1 and len(claims) == 1, (kept, claims)
yaml.safe_dump_all(kept, open("play.yaml", "w"))
open("claim", "w").write(claims.pop())
PY
pod volume create "$(cat claim)" >/dev/null
cp models.weft "$(pod volume inspect "$(cat claim)" --format '{{.Mountpoint}}')"
pod kube play --build=false play.yaml >played 2>&1 || { cat played; exit 1; }
name=$(pod ps --filter status=running --format '{{.Names}} {{.Image}}' | awk '/localhost\/weft/ { print $1 }')
[ -n "$name" ] || { pod ps --all; exit 1; }
answer() { curl -sf "http://127.0.0.1:$port/v2/$1" "${@:2}"; }
for _ in $(seq 600); do
    answer health/ready >/dev/null && break
    sleep 0.1
done
zeros=$(printf '0,%.0s' $(seq 63))0
answer models/digits/infer -d "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"FP32\", \"shape\": [1, 1, 8, 8], \"data\": [$zeros]}]}" \
    | grep -q '"logits"' || { pod logs "$name"; exit 1; }
pod inspect "$name" --format 'user {{.Config.User}}, read-only {{.HostConfig.ReadonlyRootfs}}' | tee of_pod
grep -q 'user 65534.*read-only true' of_pod || { echo "the pod has other rights than the manifest's"; exit 1; }
pod stop --time 40 "$name" >/dev/null
[ "$(pod inspect "$name" --format '{{.State.ExitCode}}')" = 0 ] || { pod logs "$name"; exit 1; }
echo "the exported pod of $(ls k8s/device-plugin | wc -l) files answered and drained"
