# Pictures of plans: on a terminal, and as SVG that an XML parser accepts.
cat >set.yaml <<'END'
models:
  - {name: a, profile: p.csv, slo: 40ms, rate: 300/s}
  - {name: b.c-d, profile: p.csv, slo: 40ms, rate: 700/s}
  - {name: c, profile: q.csv, slo: 40ms, rate: 10/s}
END
printf 'device,slice,batch,time_us\na100-80,3g.40gb,8,16000\na100-80,1g.10gb,1,5000\n' >p.csv
printf 'device,slice,batch,time_us\na100-80,1g.10gb,1,5000\n' >q.csv
printf 'devices:\n  - {type: a100-80, count: 3, mig: true}\n' >fleet.yaml
plan=("$WEFT" plan set.yaml --fleet fleet.yaml --policy bestfit)
expect 0 "${plan[@]}" --draw terminal
has out "a100-80 0"
has out "[b.c-d"
has out "devices, 3 models"
lacks out "$(printf '\033')"
expect 0 "${plan[@]}" --draw one.svg -o plan.json
expect 0 "${plan[@]}" --draw two.svg
cmp one.svg two.svg
has one.svg "<title>c: 1g.10gb, batch 1 x 1, 10 of 200/s"
if command -v python3 >/dev/null; then
    python3 - one.svg <<'END' || die "the picture is no XML"
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
svg = '{http://www.w3.org/2000/svg}'
assert root.tag == svg + 'svg', root.tag
titles = [t.text for t in root.iter(svg + 'title')]
assert any(t.startswith('a: ') for t in titles), titles
END
fi
# Long names are shortened, numbers never, and no text of the legend stands in another.
if command -v python3 >/dev/null; then
    echo models: >long.yaml
    for i in 0 1 2 3 4 5 6; do
        echo "- {name: customer-segmentation-production-variant-$i, profile: q.csv, slo: 40ms, rate: 190/s}" >>long.yaml
    done
    expect 0 "$WEFT" plan long.yaml --fleet fleet.yaml --policy bestfit --draw long.svg
    python3 - long.svg <<'END' || die "texts of the picture"
import sys, xml.etree.ElementTree as tree
svg = '{http://www.w3.org/2000/svg}'
texts = [(float(t.get("x")), float(t.get("y")), t.text) for t in tree.parse(sys.argv[1]).getroot().iter(svg + "text")]
assert sum("\u2026" in t for _, _, t in texts) == 7, texts
assert [t for _, _, t in texts if t.endswith("95%")] and not [t for _, _, t in texts if t[-1] == "9"], texts
for x, y, t in texts:
    assert not [o for o in texts if o[1] == y and x < o[0] < x + 6.6 * len(t)], (t, texts)
END
fi
# Untrusted plans are drawn too; their texts are escaped.
if command -v jq >/dev/null && command -v python3 >/dev/null; then
    jq '.placements[0].slice = "<b>&\"\u0001</b>" | .policy = "<script>"' plan.json >evil.json
    expect 4 "$WEFT" plan set.yaml --fleet fleet.yaml --check evil.json --draw evil.svg
    lacks evil.svg "<script>"
    python3 -c 'import xml.etree.ElementTree as t; t.parse("evil.svg")' || die "no XML"
fi
expect 2 "${plan[@]}" --draw picture.png
expect 1 "${plan[@]}" --draw nowhere/p.svg
