# Exports of odd plans, read by those for whom they are: names at their longest or that YAML takes for something else, one
# model on one slice, a thousand models, no rates, GPUs with gaps between them, nodes with IPv6.
find_python yaml
PATH=$PATH:/usr/sbin:/sbin
cat >plans.py <<'PY'
import json


def place(model, device, slice, slice_id, start=None, type="h100", rate=10.0, where=None):
    p = dict(model=model, device=device, type=type, slice=slice, slice_id=slice_id, mig_start=start, share=0.1, batch=1, procs=1,
             rate_per_s=rate, capacity_per_s=20.0, latency_us=100.0, mem_bytes=1 << 20, expected_error=0.1, source="analytic")
    return {**p, "where": where} if where else p


def write(name, places):
    rates = {}
    for p in places:
        rates[p["model"]] = rates.get(p["model"], 0) + p["rate_per_s"]
    with open(f"{name}.json", "w") as f:
        json.dump(dict(format="weft-plan", version=3, policy="test", goal="cost", gpus=1 + max(p["device"] for p in places),
                       rules=dict(latency="exact", whole_ms=False, procs_max=0, isolated=False, oversubscribe=False, mem_reserve=0),
                       cost_per_hour=1.0, goodput_per_s=1.0, power_w=0.0, lower_bound=1, proven=False, decision_ms=0.0,
                       models=[dict(model=m, slo_us=0.0, rate_per_s=r) for m, r in rates.items()], placements=places), f)


names = ["m" * 128, "M" + "_.-" * 42 + "x", "0", "a.b.c", "true", "NULL", "1e5", "yes", "workers", "x-model", "v2-", "z..."]
mixed = [place(m, i // 7, "1g.10gb", i % 7, i % 7) for i, m in enumerate(names)]
mixed += [place(m, 9, "10%", i, type="a100-80") for i, m in enumerate(names[:10])]
mixed += [place(m, 10, "1core", i, type="cpu") for i, m in enumerate(names)]
mixed += [place(names[0], 11, "", 0, type="v100")]
for p in mixed:
    p["device"] = {0: 0, 1: 1, 9: 2, 10: 3, 11: 4}[p["device"]]
write("names", mixed)
write("one", [place("m", 0, "7g.80gb", 0, 0)])
write("none", [place(m, i, "", 0, type="a100-80", rate=0.0) for i in range(3) for m in "ab"])
write("many", [place(f"m{i:03}", i % 5, "", 0, type="a100-80", rate=1 + i % 9) for i in range(1000)])
# On node n1 GPUs 1 and 5 with instances, on n2 GPU 3 with shares; names of workers that are none in YAML.
at = lambda node, gpu, worker, port: dict(node=node, gpu=gpu, worker=worker, port=port)
write("gaps", [place("a", 0, "3g.40gb", 0, 4, where=at("n1", 1, "true", 9000)), place("a", 1, "1g.10gb", 0, 0, where=at("n1", 5, "null", 9010)),
               place("b", 1, "1g.10gb", 1, 1, where=at("n1", 5, "no", 9020)),
               place("b", 2, "40%", 0, type="a100-80", where=at("n2.x", 3, "y", 9000))])
PY
expect 0 "$python" plans.py
plans="names one none many gaps"
export_to() { # SYSTEM PLAN FOLDER OPTION...
    expect 0 "$WEFT" export "$2.json" --to "$1" -o "$3" "${@:4}"
}
for plan in $plans; do
    export_to systemd $plan $plan.systemd --name "$([ $plan = gaps ] && echo true || echo weft)"
    # Addresses of IPv6, the first of them of the loopback.
    (cd $plan.systemd && ls) | awk '{ print $1, NR == 1 ? "::1" : "fd00::" NR }' >$plan.nodes
    export_to envoy $plan $plan.envoy --nodes $plan.nodes --bind '[::1]:8080'
    export_to haproxy $plan $plan.haproxy --nodes $plan.nodes --bind '[::1]:8080' --socket "/run/$(printf 'a%.0s' $(seq 92))"
    export_to slurm $plan $plan.slurm
    export_to kubernetes $plan $plan.k8s
    export_to gateway $plan $plan.gateway
    case $plan in names | one | gaps) export_to mig-parted $plan $plan.mig ;; esac
done
# YAML of every kind: readable, by whom takes `true` and `no` for other than text, too.
cat >read.py <<'PY'
import glob, sys, yaml

loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check(o, path):
    if isinstance(o, dict):
        for k, v in o.items():
            assert isinstance(k, str), (path, k)
            if k in ("name", "hostname", "id", "cluster", "cluster_name", "path") and not isinstance(v, dict):
                assert isinstance(v, str), (path, k, v)
            check(v, path)
    for v in o if isinstance(o, list) else ():
        check(v, path)


files = [f for folder in sys.argv[1:] for f in glob.glob(f"{folder}/**/*.yaml", recursive=True)]
for path in files:
    text = open(path).read()
    for o in yaml.load_all(text, loader):
        check(o, path)
print(len(files), "files")
PY
expect 0 "$python" read.py {names,one,gaps,none}.{envoy,k8s,gateway} names.mig gaps.mig
# GPUs 1 and 5 of n1, not 0 and 1; MPS on GPU 3 of n2.
cat >gaps.py <<'PY'
import yaml
mig = yaml.safe_load(open("gaps.mig/mig-parted.yaml"))["mig-configs"]
assert {d: e["mig-devices"] for e in mig["n1"] for d in e["devices"]} == {1: {"3g.40gb": 1}, 5: {"1g.10gb": 2}}, mig
assert [e["devices"] for e in mig["n2.x"]] == [[3]] and not mig["n2.x"][0]["mig-enabled"], mig
PY
expect 0 "$python" gaps.py
has gaps.slurm/gres.conf "NodeName=n2.x Name=gpu Type=a100-80 File=/dev/nvidia3"
# Schemas of all objects: lengths and letters of names and labels, weights, ports.
check=("$python" "$WEFT_SOURCE_DIR/tests/support/k8s_check.py" check)
expect 0 "${check[@]}" "$WEFT_SOURCE_DIR/tests/support/k8s_schema.json" \
    {names,one,gaps,none}.k8s/{device-plugin,dra}/deployments.yaml {names,one,gaps,none}.k8s/services/services.yaml
has out ", 0 faults"
expect 0 "${check[@]}" "$WEFT_SOURCE_DIR/tests/support/gateway_schema.json" {names,one,gaps,none}.gateway/routes.yaml
has out ", 0 faults"
# No two models have one label, which would be one Service for both.
[ "$(grep -c '^  name: weft-model-' names.k8s/services/services.yaml)" = 12 ] || die "$(grep name: names.k8s/services/services.yaml)"
label=$(sed -n 's/.*model.weft.\(a-b-c-[0-9a-f]*\)"*:.*/\1/p' names.k8s/services/services.yaml)
sed "s/\"yes\"/\"$label\"/g" names.json >clash.json
expect 1 "$WEFT" export clash.json --to kubernetes -o bad
has err "has the label"
for script in */jobs/*.sh */addresses.sh */update.sh */*-devices.sh */*/devices.sh; do
    [ ! -e "$script" ] || sh -n "$script" || die "$script is no shell script"
done
# Slurm's nodes have the names that jobs ask for; two plan nodes with GPUs are not one; addresses are no names.
printf 'n1 gpu-7\nn2.x gpu-8\n' >names.nodes
export_to slurm gaps gaps.site --nodes names.nodes
has gaps.site/slurm-nodes.conf "NodeName=gpu-7 CPUs=6 "
has gaps.site/jobs/true.sh "#SBATCH --nodelist=gpu-7"
printf 'n1 gpu-7\nn2.x gpu-7\n' >names.nodes
expect 1 "$WEFT" export gaps.json --to slurm -o bad --nodes names.nodes
has err "both with GPUs, have one name"
expect 1 "$WEFT" export gaps.json --to slurm -o bad --nodes gaps.nodes
has err "is no name of a node of Slurm"
# systemctl takes what follows a colon for a port.
mkdir double
printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>"%s/asked"\nexit 1\n' "$PWD" >double/ssh
chmod +x double/ssh
sed 's/"a"/"c"/g' gaps.json >other.json
expect 0 "$WEFT" reconcile --from gaps.json --plan other.json --engine systemd --nodes gaps.nodes --allow-dip -o change
grep '^systemctl' change/apply.sh | grep -v '@\[[0-9a-f:]*\] ' && die "an address without brackets"
if command -v systemctl >/dev/null; then
    PATH=$PWD/double:$PATH systemctl --host='root@[fd00::2]' daemon-reload >out 2>&1 || true
    [ ! -e asked ] || grep -q 'fd00::2' asked || die "systemctl asks: $(shown asked)"
fi
# Paths that a system would hide or refuse.
expect 0 "$WEFT" export one.json --to systemd -o temporary --bundle /tmp/x/m.weft
has err "services do not see it"
for bundle in /usr/bin/m.weft /usr/m.weft /var/tmp/m.weft /etc/weft/plan/m.weft /data/a:b/m.weft /data/; do
    expect 1 "$WEFT" export one.json --to kubernetes -o bad --bundle $bundle
done
for socket in "/run/$(printf 'a%.0s' $(seq 93))" /run/a:b; do
    expect 1 "$WEFT" export one.json --to haproxy -o bad --socket "$socket"
    has err "at most 97 bytes without a colon"
done
for address in 1.2.3 1.2.3.4.5 ::: fd00::1::2 -x a/b a@b; do
    echo "weft-h100-0 $address" >bad.nodes
    expect 1 "$WEFT" export one.json --to haproxy -o bad --nodes bad.nodes
done
for bind in '[::1:80' '[a]:80' '[::1]x:80' 1.2.3:80 ':80' 'a b:80' '[::1]:0'; do
    expect 1 "$WEFT" export one.json --to haproxy -o bad --bind "$bind"
done
[ ! -e bad ] || die "wrote something before it looked at its options"
# Slurm and systemd themselves.
if command -v slurmd >/dev/null; then
    { printf 'ClusterName=test\nSlurmctldHost=localhost\nSlurmdSpoolDir=%s\n' "$PWD"
        printf 'SelectType=select/cons_tres\nGresTypes=gpu,mps,mig\n'
        cat names.slurm/slurm-nodes.conf; } >slurm.conf
    sed 's#/dev/nvidia[0-9]*#/dev/null#' names.slurm/gres.conf >gres.conf
    expect 0 timeout 60 slurmd -G -f "$PWD/slurm.conf" -N weft-h100-0
    lacks err error
fi
if command -v systemd-analyze >/dev/null; then
    for node in names.systemd/weft-cpu-0 gaps.systemd/n1 many.systemd/weft-a100-80-0; do
        sed -i 's#/usr/bin/weft#/bin/true#' $node/*.service
        expect 0 env SYSTEMD_UNIT_PATH="$PWD/$node:" timeout 60 systemd-analyze verify --man=no $node/*.service $node/*.target
        lacks err "$node"
    done
fi
command -v haproxy >/dev/null || skip "no haproxy"
for plan in $plans; do
    expect 0 haproxy -c -f $plan.haproxy/haproxy.cfg
    lacks err WARNING
done
# A node whose name is not known yet keeps the front from nothing.
expect 0 "$WEFT" export one.json --to haproxy -o unknown
expect 0 haproxy -c -f unknown/haproxy.cfg
