#!/usr/bin/env bash
# Runs what `weft export --to kubernetes` writes on `podman kube play`, from the image of packaging/Containerfile (image.sh):
# the rendered Deployment and ConfigMaps of a plan on two CPUs behind HAProxy, each replica a pod; the claim is a volume with
# the bundles. Of the manifests name and ports of the second replica differ, as both use the network of the host; there is no
# cluster's. Under load one replica after the other goes to another bundle, as a Deployment does it in place.
#
# usage: kube_play.sh FOLDER     with the packages (scripts/deb.sh FOLDER)
set -euo pipefail
export PATH=$PATH:/usr/sbin
for tool in podman kubectl runc conmon catatonit haproxy socat; do
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
front=
end_test() {
    [ -z "$front" ] || kill "$front" 2>/dev/null || true
    pod pod rm --all --force >/dev/null 2>&1 || true
    pod volume rm --all --force >/dev/null 2>&1 || true
}
weft=$(realpath "${WEFT:-$(command -v weft)}")
cd "$box"

# A plan with half of the rate on each of two CPUs, and two bundles whose models answer differently.
for model in cnn attn; do
    printf 'models:\n  - {name: digits, file: %s/examples/digits_%s.onnx, slo: 100ms, rate: 100/s}\n' "$root" $model >$model.yaml
    "$weft" compile -q $model.yaml -o $model.weft
done
"$weft" plan -q cnn.yaml --fleet "$root/examples/fleet.yaml" --bundle cnn.weft -o plan.json
port=$(python3 - <<'PY'
import copy, json, socket

plan = json.load(open("plan.json"))
one, = plan["placements"]
one["rate_per_s"] /= 2
plan["placements"].append({**copy.deepcopy(one), "device": one["device"] + 1})
json.dump(plan, open("plan.json", "w"))
free = [socket.socket() for _ in range(40)]
for s in free:
    s.bind(("127.0.0.1", 0))
print(min(s.getsockname()[1] for s in free) // 10 * 10)
PY
)
for model in cnn attn; do
    "$weft" export plan.json --to kubernetes -o $model --image localhost/weft --bundle /srv/weft/$model.weft --port "$port" >files
    kubectl kustomize $model/device-plugin >all.yaml
    python3 - "$port" $model <<'PY'
import copy, sys, yaml

port, model = int(sys.argv[1]), sys.argv[2]
objects = list(yaml.safe_load_all(open("all.yaml")))
deployment, = (o for o in objects if o["kind"] == "Deployment")
assert deployment["spec"]["replicas"] == 2, deployment
for nth in range(2):
    one = copy.deepcopy(deployment)
    one["spec"]["replicas"] = 1
    one["metadata"]["name"] = f"replica{nth}"
    pod = one["spec"]["template"]["spec"]
    pod["hostNetwork"] = True
    container, = pod["containers"]
    container.pop("ports", None)  # the host's: none is published
    for part in "args", "command":
        container[part] = [str(int(a) + 10 * nth) if a.isdigit() and 0 <= int(a) - port < 10 else a for a in container.get(part, [])]
    yaml.safe_dump_all([o for o in objects if o["kind"] == "ConfigMap"] + [one], open(f"{model}-{nth}.yaml", "w"))
claim, = (v["persistentVolumeClaim"]["claimName"] for v in deployment["spec"]["template"]["spec"]["volumes"]
          if "persistentVolumeClaim" in v)
open("claim", "w").write(claim)
PY
done
pod volume create "$(cat claim)" >/dev/null
cp cnn.weft attn.weft "$(pod volume inspect "$(cat claim)" --format '{{.Mountpoint}}')"

answer() { curl -sf "http://127.0.0.1:$1/v2/$2" "${@:3}"; }
wait_until() {
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "never: $*" >&2
    return 1
}
zeros=$(printf '0,%.0s' $(seq 63))0
logits() {
    answer "$1" models/digits/infer -d "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"FP32\", \"shape\": [1, 1, 8, 8], \"data\": [$zeros]}]}" |
        python3 -c 'import json, sys; print([round(x, 2) for x in json.load(sys.stdin)["outputs"][0]["data"]])'
}
play() { # MODEL NTH
    pod kube play --build=false --replace "$1-$2.yaml" >played 2>&1 || { cat played; return 1; }
    wait_until answer $((port + 10 * $2)) health/ready || { pod logs "replica$2-pod-0-weft"; return 1; }
}
for nth in 0 1; do
    play cnn $nth
    pod inspect replica$nth-pod-0-weft --format 'user {{.Config.User}}, read-only {{.HostConfig.ReadonlyRootfs}}' | tee of_pod
    grep -q 'user 1000.*read-only true' of_pod || { echo "the pod has other rights than the manifest's"; exit 1; }
done
old=$(logits "$port")
at=$((port + 20))
"$weft" export plan.json --to haproxy -o front --published --bind "127.0.0.1:$at" --socket "$box/socket" >files
haproxy -f front/haproxy.cfg 2>haproxy.log &
front=$!
wait_until answer $at health/live
awk -v port="$port" '{ at[$2] } END { for (w in at) print w, "127.0.0.1", port + 10 * n, port + 10 * n++ + 1 }' front/servers >workers
[ "$(wc -l <workers)" = 2 ] || { cat front/servers workers; exit 1; }
sh front/update.sh "$box/socket" workers
wait_until answer $at health/ready
"$weft" replay --to "127.0.0.1:$at" --plan plan.json --arrivals constant --duration 60s --format json >load 2>load.err &
load=$!
sleep 1
for nth in 0 1; do
    play attn $nth
    sleep 2 # the front checks twice
done
kill -0 $load 2>/dev/null || { echo "the load ended before both pods were replaced"; exit 1; }
wait $load || { cat load.err; exit 1; }
for nth in 0 1; do
    now=$(logits $((port + 10 * nth)))
    [ "$now" != "$old" ] || { echo "replica $nth has the old bundle"; exit 1; }
done
python3 - <<'PY'
import json

got = json.load(open("load"))["total"]
print(f"{got['answered']} of {got['requests']} answered while both pods went to another bundle")
assert got["dropped"] == 0 and got["answered"] == got["requests"] > 2000, got
PY
pod stop --time 40 replica0-pod-0-weft >/dev/null
[ "$(pod inspect replica0-pod-0-weft --format '{{.State.ExitCode}}')" = 0 ] || { pod logs replica0-pod-0-weft; exit 1; }
echo "the exported pods served, rolled and drained"
