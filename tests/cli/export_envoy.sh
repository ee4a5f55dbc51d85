# A front for Envoy: files that YAML readers take, whose clusters, routes and endpoints belong together, weights of the
# plan's rates, and what is refused. conform/serve/serve_envoy runs it.
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
find_python yaml
# Envoy looks up no names of endpoints: addresses are a must.
expect 1 "$WEFT" export plan.json --to envoy -o bad --config /etc/envoy
has err "needs an IP address"
expect 0 "$WEFT" export plan.json --to systemd -o units
nodes() { (cd units && ls) | awk -v net="$1" '{ print $1, net NR }'; }
nodes fd00::1 >nodes
expect 1 "$WEFT" export plan.json --to envoy -o bad --nodes nodes --bind front.example:80
has err "must begin with an IP address"
expect 0 "$WEFT" export plan.json --to envoy -o front --config /etc/envoy --nodes nodes
has front/endpoints/workers.yaml 'address: "fd00::11"'
nodes 10.0.0. >nodes
expect 0 "$WEFT" export plan.json --to envoy -o front --config /etc/envoy --nodes nodes
check() {
    "$python" - front "$@" <<'PY' || die "the configuration is wrong"
import glob, json, os, sys, yaml

folder, tls = sys.argv[1], len(sys.argv) > 2
load = lambda name: yaml.safe_load(open(f"{folder}/{name}"))
listeners, clusters = load("listeners.yaml")["resources"], load("clusters.yaml")["resources"]
names = {c["name"] for c in clusters}
assert len(names) == len(clusters)
models = {p["model"] for p in json.load(open("plan.json"))["models"]}
assert {f"{k}-{m}" for m in models for k in "hg"} | {"workers", "grpc-workers"} == names, names
assert {os.path.basename(f)[:-5] for f in glob.glob(f"{folder}/endpoints/*.yaml")} == names
routed = set()
for l in listeners:
    manager = l["filter_chains"][0]["filters"][0]["typed_config"]
    for r in manager["route_config"]["virtual_hosts"][0]["routes"]:
        if "route" in r:
            routed.add(r["route"]["cluster"])
    assert ("transport_socket" in l["filter_chains"][0]) == tls
assert routed == names, (routed, names)
for c in clusters:
    [found] = load(f"endpoints/{c['name']}.yaml")["resources"]
    assert found["cluster_name"] == c["name"]
    assert c["eds_cluster_config"]["eds_config"]["path_config_source"]["path"] == f"/etc/envoy/endpoints/{c['name']}.yaml"
    at = found["endpoints"][0]["lb_endpoints"]
    assert at and all(1 <= e["load_balancing_weight"] <= 256 for e in at)
    assert ("transport_socket" in c) == tls and ("outlier_detection" in c) == (len(at) > 1)
    for e in at:
        port, checked = e["endpoint"]["address"]["socket_address"]["port_value"], e["endpoint"]["health_check_config"]["port_value"]
        assert port == checked + (c["name"][0] == "g"), (c["name"], port, checked)
print(len(clusters), "clusters")
PY
}
check
expect 0 "$WEFT" export plan.json --to envoy -o front --config /etc/envoy --nodes nodes --front-tls /etc/front.pem --worker-tls /etc/tls \
    --bind '[::1]:9000' --balance least --buffer 1MiB
check tls
has front/listeners.yaml 'address: "::1", port_value: 9001'
has front/clusters.yaml "lb_policy: LEAST_REQUEST"
has front/listeners.yaml "request_body_buffer_limit: 1048576"
sh -n front/update.sh
expect 2 "$WEFT" export plan.json --to envoy -o bad --published
has err "--published is for haproxy, not for envoy"
expect 2 "$WEFT" export plan.json --to envoy -o bad --socket /run/x
expect 1 "$WEFT" export plan.json --to envoy -o bad --bind 9000
# Another plan: what differs is moved in, what is gone is removed, and a second run has nothing to do.
cp -r front runs
sed -i 's/load_balancing_weight: [0-9]*/load_balancing_weight: 7/' "$(ls front/endpoints/h-*.yaml | head -1)"
: >runs/endpoints/h-gone.yaml
expect 0 env WEFT_WAIT_S=0 sh front/update.sh runs
[ "$(wc -l <out)" = 1 ] && has out endpoints/h- || die "$(shown out)"
[ ! -e runs/endpoints/h-gone.yaml ] || die "endpoints of no cluster are left"
expect 0 sh front/update.sh runs
empty out
expect 1 sh front/update.sh nowhere
