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
# Untrusted plans are drawn too; their texts are escaped.
if command -v jq >/dev/null && command -v python3 >/dev/null; then
    jq '.placements[0].slice = "<b>&\"\u0001</b>" | .policy = "<script>"' plan.json >evil.json
    expect 4 "$WEFT" plan set.yaml --fleet fleet.yaml --check evil.json --draw evil.svg
    lacks evil.svg "<script>"
    python3 -c 'import xml.etree.ElementTree as t; t.parse("evil.svg")' || die "no XML"
fi
expect 2 "${plan[@]}" --draw picture.png
expect 1 "${plan[@]}" --draw nowhere/p.svg
