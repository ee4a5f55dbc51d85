# The documents as a book: every page is there that a link leads to, with the place that it names; nothing is fetched.
command -v cmark-gfm >/dev/null || skip "no cmark-gfm"
find_python
export WEFT
expect 0 bash "$WEFT_SOURCE_DIR/scripts/book.sh" book
empty err
[ -f book/index.html ] && [ -f book/tutorial.html ] && [ -f book/passes_merge.html ] &&
    [ -f book/commands.html ] || die "$(ls book)"
cat >check.py <<'PY'
import glob, html.parser, os

figures = set()


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.ids, self.open = [], set(), []
        self.feed(open(path, encoding="utf-8").read())

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        assert tag not in ("script", "iframe", "object", "embed"), (tag, a)
        if "src" in a:
            assert tag == "img" and a["alt"] and os.path.isfile("book/" + a["src"]), a
            figures.add(a["src"])
        if "href" in a:
            self.links.append(a["href"])
        if "id" in a:
            self.ids.add(a["id"])


pages = {os.path.basename(p): Page(p) for p in glob.glob("book/*.html")}
links = 0
for name, page in pages.items():
    for link in page.links:
        if link.startswith("http") or link == "data:,":
            continue
        to, _, place = link.partition("#")
        assert (to or name) in pages, (name, link)
        assert not place or place in pages[to or name].ids, (name, link)
        links += 1
assert len(figures) == 3, figures
commands = open("book/commands.html", encoding="utf-8").read()
assert all(text in commands for text in ("--merge-tolerance", "weft reconcile", "gemm", "h100")), "commands.html"
assert len(pages) > 20 and links > 60, (len(pages), links)
PY
"$python" check.py || die "a link is wrong"
# The figures are what the commands beside them draw; graphviz has its own ways in every version.
expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet_gpu.yaml" --rate digits=200x --rate digits-attn=100x \
    --rate parity=80x --draw plan.svg
cmp plan.svg "$WEFT_SOURCE_DIR/docs/figures/plan.svg" || die "docs/figures/plan.svg is another plan"
expect 0 "$WEFT" estimate "$examples/digits.yaml" --gpu l4 --batch 1,64,4096 --draw estimate.svg
cmp estimate.svg "$WEFT_SOURCE_DIR/docs/figures/estimate.svg" || die "docs/figures/estimate.svg is another estimate"
