# The documents as a book: every page is there that a link leads to, with the place that it names; nothing is fetched.
command -v cmark-gfm >/dev/null || skip "no cmark-gfm"
find_python
expect 0 bash "$WEFT_SOURCE_DIR/scripts/book.sh" book
empty err
[ -f book/index.html ] && [ -f book/tutorial.html ] && [ -f book/passes_merge.html ] || die "$(ls book)"
cat >check.py <<'PY'
import glob, html.parser, os


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.ids, self.open = [], set(), []
        self.feed(open(path, encoding="utf-8").read())

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        assert tag not in ("script", "iframe", "object", "embed") and "src" not in a, (tag, a)
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
assert len(pages) > 20 and links > 60, (len(pages), links)
PY
"$python" check.py || die "a link is wrong"
