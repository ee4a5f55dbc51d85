# mig-parted: the rules of its file format (version, labels, devices once each, profiles that fit).
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
expect 0 "$WEFT" export plan.json --to mig-parted -o mig
for python in python3 /usr/bin/python3; do
    "$python" -c 'import yaml' 2>/dev/null && break
    python=
done
[ -n "$python" ] || skip "no Python with yaml (package python3-yaml)"
cat >check.py <<'END'
import json, re, sys, yaml
config = yaml.safe_load(open(sys.argv[1]))
plan = json.load(open(sys.argv[2]))
assert set(config) == {"version", "mig-configs"} and config["version"] == "v1"
slices = {(p["device"], p["slice_id"]): p["slice"] for p in plan["placements"] if p["mig_start"] is not None}
want, got = {}, {}
for s in slices.values():
    want[s] = want.get(s, 0) + 1
for label, entries in config["mig-configs"].items():
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", label) and len(label) <= 63
    seen = []
    for e in entries:
        assert set(e) == {"devices", "mig-enabled", "mig-devices"}
        assert isinstance(e["mig-enabled"], bool) and all(isinstance(d, int) for d in e["devices"])
        seen += e["devices"]
        if not e["mig-enabled"]:
            assert e["mig-devices"] == {}
        gpcs = slots = 0
        for profile, n in e["mig-devices"].items():
            m = re.fullmatch(r"([12347])g\.([0-9]+)gb(\+me)?", profile)
            assert m and isinstance(n, int) and n > 0
            gpcs += int(m[1]) * n
            slots += {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}[int(m[1])] * n
            got[profile] = got.get(profile, 0) + n * len(e["devices"])
        assert gpcs <= 7 and slots <= 8
    assert sorted(seen) == list(range(len(seen))), seen
assert got == want, (got, want)
END
expect 0 "$python" check.py mig/mig-parted.yaml plan.json
sed 's/"1g.10gb": [0-9]/"1g.10gb": 9/' mig/mig-parted.yaml >fault.yaml
"$python" check.py fault.yaml plan.json 2>err && die "a fault went unseen"
# A plan without GPUs cannot be exported to mig-parted.
grep -v -e big -e Small -e share set.yaml >cpu.yaml
expect 0 "$WEFT" plan cpu.yaml --fleet fleet.yaml -o cpu.json
expect 1 "$WEFT" export cpu.json --to mig-parted -o none
expect 2 "$WEFT" export plan.json -o none
expect 2 "$WEFT" export plan.json --to helm -o none
expect 2 "$WEFT" export plan.json --to slurm
