# needs: numpy
"""The page at the root of the metrics port: well-formed, complete in itself, with names for all that is no text; it shows
models, workers and what has run in the last seconds, and how far p99 is from the SLO. A headless Chromium opens it where
there is one."""
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as tree

import numpy as np
from serving import SLOW, WEFT, Server, compile_bundle, digits, tensor, wait_until, write_small

compile_bundle(more=False)
x, _ = digits()


def page(s):
    status, fields, body = s.request("GET", "/", port=s.metrics)
    while status == 503 and SLOW > 1:  # asked for too often: it may take a small part of a CPU only
        time.sleep(0.2)
        status, fields, body = s.request("GET", "/", port=s.metrics)
    assert status == 200 and fields["content-type"] == "text/html; charset=utf-8", (status, fields)
    text = body.decode()
    root = tree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    assert root.get("lang") == "en" and root.find("head/title").text
    for e in root.iter():
        assert e.tag not in ("script", "iframe", "img", "object", "embed") and not e.get("src"), e.tag
        assert e.get("href") in (None, "data:,", "metrics"), e.attrib
        if e.tag == "table":
            assert e.find("caption").text and all(h.get("scope") for h in e.iter("th"))
            columns = len(e.findall("thead/tr/th"))
            assert all(len(row) == columns for row in e.findall("tbody/tr")), text
    assert not re.search(r"[^a-z](nan|inf)[^a-z]", text) and "url(" not in text
    return root


def rows(root, caption):
    table = next(t for t in root.iter("table") if t.find("caption").text.startswith(caption))
    names = [h.text for h in table.findall("thead/tr/th")]
    return [dict(zip(names, ["".join(td.itertext()) for td in tr])) for tr in table.findall("tbody/tr")]


with Server("--control", "socket") as s:
    models = {r["model"]: r for r in rows(page(s), "Models")}
    assert set(models) == {"digits", "digits-attn", "parity", "size"}, models
    assert models["digits"]["state"] == "ready" and models["digits"]["p99"] == "–", models["digits"]
    assert models["digits"]["p99 of the SLO"] == "50 ms", models["digits"]
    workers = rows(page(s), "Workers")
    assert len(workers) == 1 and workers[0]["restarts"] == "0" and int(workers[0]["process"]) in s.workers()
    time.sleep(2.1)
    page(s)
    for n in (1, 2, 3) * (10 if SLOW == 1 else 2):
        assert s.infer("digits", {"inputs": [tensor("image", x[:n])]})[0] == 200
    time.sleep(2.1)
    got = {r["model"]: r for r in rows(page(s), "Models")}
    rate = float(got["digits"]["answered"].removesuffix("/s"))
    assert 2 / SLOW < rate < 16 and got["parity"]["answered"] == "0.0/s", got
    assert float(got["digits"]["rows in a batch"]) >= 1
    assert 0 < float(got["digits"]["p99"].removesuffix(" ms")) < 1000 * SLOW
    assert re.fullmatch(r"\d+ % of 50 ms", got["digits"]["p99 of the SLO"]), got
    assert s.request("GET", "/")[0] == 404  # not on the port of the API
    # What has changed, the last change first: a bundle came, another was no bundle, the first one left.
    assert not any(t.find("caption").text.startswith("Changes") for t in page(s).iter("table"))
    write_small("small.onnx")
    subprocess.run([WEFT, "compile", "small.onnx", "-o", "small.weft"], check=True)
    for what in ("load", "unload"):
        subprocess.run([WEFT, "ctl", "socket", what, "small.weft"], check=True)
    changes = rows(page(s), "Changes")
    assert [c["result"] for c in changes] == ["came into force"] * 2 and [c["plan"] for c in changes] == ["3", "2"], changes
    assert [c["new workers"] for c in changes] == ["0", "1"], changes
    # Asking all the time gets a limited part of the loop.
    statuses = [s.request("GET", "/", port=s.metrics)[0] for _ in range(300)]
    assert set(statuses) <= {200, 503}, set(statuses)
    wait_until(lambda: s.request("GET", "/", port=s.metrics)[0] == 200)
    chromium = shutil.which("chromium")
    if chromium:
        done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                               "--user-data-dir=profile", "--window-size=1200,700", "--screenshot=page.png",
                               f"http://127.0.0.1:{s.metrics}/"], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0 and "CONSOLE" not in done.stderr, done.stderr
    else:
        print("(no chromium)")
