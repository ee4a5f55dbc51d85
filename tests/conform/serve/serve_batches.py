# needs: numpy
"""Batches are those of the plan: none is larger, and a plan with batches that the bundle has no bucket for is refused with
the remedy, which works."""
import json
import subprocess
import threading

from serving import EXAMPLES, SLOW, WEFT, Server, check_images, compile_bundle, digits

SET, FLEET = f"{EXAMPLES}/digits.yaml", f"{EXAMPLES}/fleet.yaml"
N = 60 if SLOW == 1 else 10
x, want = digits()


def write_plan(path, batch):
    """A plan of the demo's models, with another batch; nothing else of it is read by the server."""
    subprocess.run([WEFT, "plan", SET, "--fleet", FLEET, "-o", path], check=True)
    with open(path) as f:
        plan = json.load(f)
    for p in plan["placements"]:
        p["batch"] = batch
    with open(path, "w") as f:
        json.dump(plan, f)


def load(server, n):
    """Twelve clients at once; the batches that ran, as {rows: executions}."""
    problems = []

    def ask(first):  # no two clients ask the same at once, which would be computed once
        try:
            connection = server.connect()
            for i in range(first, first + n):
                check_images(connection, "digits", x[i:i + 1], want[i:i + 1])
        except Exception as problem:
            problems.append(repr(problem))

    threads = [threading.Thread(target=ask, args=(7 * k,)) for k in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems, problems
    _, stats = server.get("/v2/models/digits/stats")
    return {b["batch_size"]: b["compute_infer"]["count"] for b in stats["model_stats"][0]["batch_stats"]}


compile_bundle(more=False)
for batch in (1, 2, 8):
    write_plan("plan.json", batch)
    with Server("plan.json") as server:
        ran = load(server, N)
        assert max(ran) <= batch, ran
        assert batch == 1 or max(ran) > 1, ran
        # One request of more rows is the client's own choice.
        check_images(server.connect(), "digits", x[:8], want[:8])

write_plan("plan.json", 6)
done = subprocess.run([WEFT, "serve", "models.weft", "plan.json", "--http", "0", "--grpc", "off", "--metrics", "off"],
                      stderr=subprocess.PIPE, text=True, timeout=60)
assert done.returncode == 1, done.returncode
assert "the plan has batches of 6, the bundle 1, 2, 4, 8" in done.stderr, done.stderr
assert "weft compile SET --plan PLAN" in done.stderr, done.stderr
subprocess.run([WEFT, "compile", SET, "--plan", "plan.json", "-o", "models.weft"], check=True)
with Server("plan.json") as server:
    assert max(load(server, N)) <= 6
print("ok")
