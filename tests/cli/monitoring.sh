# The rules for Prometheus and the dashboard for Grafana: promtool checks and tests the rules; what they ask
# for are metrics that a server has, by name and label.
find_python
cp "$WEFT_SOURCE_DIR"/docs/monitoring/* .
"$python" -c 'import yaml' 2>/dev/null || skip "no python3-yaml"
"$python" - "$WEFT_SOURCE_DIR" <<'PY'
import glob, json, re, sys, yaml
root = sys.argv[1]
source = "".join(open(f).read() for f in glob.glob(f"{root}/runtime/server/*.c") + glob.glob(f"{root}/runtime/server/*.def"))
known = set(re.findall(r"weft_[a-z_0-9]+", source))
rules = [r for g in yaml.safe_load(open("weft.rules.yaml"))["groups"] for r in g["rules"]]
board = json.load(open("weft-dashboard.json"))
records = {r["record"] for r in rules if "record" in r} | {"weft:slo_seconds"}
asked = [r["expr"] for r in rules] + [t["expr"] for p in board["panels"] for t in p["targets"]]
asked += [v["definition"] for v in board["templating"]["list"] if "definition" in v]
names = set()
for text in asked:
    for name in re.findall(r"\bweft[_:][a-z_0-9:]+", text):
        names.add(name)
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        assert name in records or base in known, f"no metric {name}"
assert len(names) > 20, names
boxes = [(p["gridPos"]["x"], p["gridPos"]["y"], p["gridPos"]["w"], p["gridPos"]["h"]) for p in board["panels"]]
for i, (x, y, w, h) in enumerate(boxes):
    assert x + w <= 24, board["panels"][i]["title"]
    for a, b, c, d in boxes[:i]:
        assert x >= a + c or a >= x + w or y >= b + d or b >= y + h, f"panel {i} overlaps another"
assert len({p["id"] for p in board["panels"]}) == len({p["title"] for p in board["panels"]}) == len(boxes)
text = open(f"{root}/docs/monitoring.md").read()
for rule in rules:
    assert "alert" not in rule or f"`{rule['alert']}`" in text, f"{rule['alert']} is not in docs/monitoring.md"
# Expressions of the dashboard as rules, for promtool.
plain = lambda t: t.replace("$__rate_interval", "5m").replace("$__range", "1h")
groups = [{"name": "board", "rules": [{"record": f"board:{i}", "expr": plain(t["expr"])} for i, t in enumerate(
    t for p in board["panels"] for t in p["targets"])]}]
yaml.safe_dump({"groups": groups}, open("board.rules.yaml", "w"))
PY
command -v promtool >/dev/null || skip "no promtool (Debian: prometheus); names and labels are right"
expect 0 promtool check rules weft.rules.yaml board.rules.yaml
expect 0 promtool test rules weft.rules.test.yaml
# The tests see a rule that is wrong.
sed -i 's/weft_workers == 0/weft_workers == 1/' weft.rules.yaml
expect 1 promtool test rules weft.rules.test.yaml
