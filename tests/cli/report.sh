# weft report: a page of every kind of file, complete in itself and with names for those who do not see it; equal files
# give equal pages; damaged files give an error or a page, and what they hold is never markup.
find_python
expect 0 "$WEFT" compile "$examples/digits.yaml" --gpu cpu -o d.weft --report compile.json
expect 0 "$WEFT" bench d.weft --time 0.001 --report compile.json
expect 0 "$WEFT" estimate "$examples/digits.yaml" --gpu h100 --batch 1,8 --per-kernel --explain --format json -o estimate.json
expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet_gpu.yaml" -o plan.json
expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" -o cpus.json
expect 0 "$WEFT" simulate cpus.json --set "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --policy weft \
    --period 500ms --bucket 500ms --duration 2s --format json
mv out simulation.json
expect 0 "$WEFT" bench d.weft --time 0.001 --batch 1,8 --per-kernel --format json
mv out bench.json
all="d.weft compile.json estimate.json bench.json plan.json simulation.json"
# shellcheck disable=SC2086
expect 0 "$WEFT" report $all -o page.html --title 'Digits & <more>'
# shellcheck disable=SC2086
"$WEFT" report $all -o - --title 'Digits & <more>' | cmp - page.html || die "two pages differ"
for text in "What bounds it" "set 1: 3 models" "<td>concatenated</td>" "Roofline of the kernels on h100 (whole)" \
    "memory: 3350 GB/s" "SLO headroom" "99 % of the answers within" "measured against their models" \
    "Kernels that take longest" "Measured / estimate" "Digits &amp; &lt;more&gt;"; do
    has page.html "$text"
done
cat >check.py <<'PY'
import json, random, re, subprocess, sys
import xml.etree.ElementTree as tree

weft = sys.argv[1]


def check(page):
    """The page is well-formed, refers to nothing, and names everything that is no text."""
    root = tree.fromstring(page.removeprefix("<!DOCTYPE html>"))
    assert root.tag == "html" and root.get("lang") == "en" and root.find("head/title").text
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids)), ids
    for e in root.iter():
        assert e.tag not in ("script", "iframe", "img", "object", "embed") and not e.get("src"), e.tag
        assert not any(name.startswith("on") for name in e.attrib), e.attrib
        if e.get("href"):
            assert e.get("href") == "data:," or e.get("href")[1:] in ids, e.attrib
        for name in (e.get("aria-labelledby") or "").split():
            assert name in ids, name
        if e.tag == "svg":
            assert e.get("role") == "img" and (e.get("aria-labelledby") or e.get("aria-label")), e.attrib
        if e.tag == "table":
            assert e.find("caption").text and all(h.get("scope") for h in e.iter("th"))
            columns = len(e.findall("thead/tr/th"))
            assert all(len(row) == columns for row in e.findall("tbody/tr")), e.find("caption").text
        if e.tag in ("rect", "circle"):
            x = float(e.get("x", e.get("cx")))
            assert -1 <= x and x + float(e.get("width", 0)) <= 961, e.attrib
    wrong = re.search(r".{60}[^a-z](nan|inf)[^a-z]", page)
    assert not wrong, wrong
    assert "url(" not in page and "@import" not in page and "http" not in page
    return root


root = check(open("page.html", encoding="utf-8").read())
sections = [h.text for h in root.iter("h2")]
assert sections == ["What bounds it, and what to do next", "Models and shared weights", "Merges", "Estimates", "Measurements",
                    "Plan", "Simulation"], sections

# Members removed, of other kinds, huge, negative, markup.
rand = random.Random(17)
values = ["<script>alert(1)</script>", "\u00e9" * 300, -1, 0, 1e308, -1e308, 2**62, 1e-308, None, True, [], {}, "", [[1]]]


def spots(value):
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(one, (dict, list)):
            yield from spots(one)


refused = 0
for name in ["compile.json", "estimate.json", "bench.json", "plan.json", "simulation.json"]:
    text = open(name, encoding="utf-8").read()
    for i in range(int(sys.argv[2])):
        value = json.loads(text)
        for _ in range(rand.choice((1, 1, 5))):
            at, key = rand.choice(list(spots(value)))
            if rand.random() < 0.2:
                del at[key]
            else:
                at[key] = rand.choice(values)
        with open("wrong.json", "w", encoding="utf-8") as file:
            json.dump(value, file)
        run = subprocess.run([weft, "report", "wrong.json", "-o", "-"], capture_output=True, text=True)
        assert run.returncode in (0, 1), (name, run.returncode, run.stderr)
        if run.returncode:
            assert run.stderr.startswith("error: wrong.json:"), run.stderr
            refused += 1
        else:
            check(run.stdout)
print(f"{refused} refused")
assert refused > 0
PY
"$python" check.py "$WEFT" 25 || die "check.py"
# Bands that have no end, and axes without length.
for wrong in 's/"expected_error": [^,]*/"expected_error": -1/; s/"time_p95_us": [^,]*/"time_p95_us": null/' \
    's/_us": [^,]*/_us": 1e-320/' 's/_us": [^,]*/_us": -1e90/'; do
    sed "$wrong" estimate.json >wrong.json
    expect 0 timeout 20 "$WEFT" report wrong.json -o wrong.html
    sed "$wrong" simulation.json >wrong.json
    expect 0 timeout 20 "$WEFT" report wrong.json -o wrong.html
done
# Wrong files and usage.
printf '{"models": []}' >other.json
expect 1 "$WEFT" report other.json -o page.html
has err "is no plan"
expect 1 "$WEFT" report "$examples/digits_cnn.onnx" -o page.html
has err "is a model"
expect 1 "$WEFT" report nothing.json -o page.html
has err nothing.json
printf '{"format": "weft-plan"' >broken.json
expect 1 "$WEFT" report broken.json -o page.html
has err broken.json
expect 2 "$WEFT" report d.weft
expect 2 "$WEFT" report -o page.html
# A browser, where there is one, has nothing to say and shows all of it.
command -v chromium >/dev/null || exit 0
# shellcheck disable=SC2086
expect 0 "$WEFT" report $all -o page.html
HOME=$PWD timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/browser" --enable-logging=stderr \
    --window-size=1100,900 --screenshot="$PWD/page.png" "file://$PWD/page.html" >out 2>err || die "chromium: $(shown err)"
filled page.png
lacks err "CONSOLE"
