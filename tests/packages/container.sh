#!/usr/bin/env bash
# Builds the image of packaging/Containerfile (image.sh) and serves from it: as its user, from a read-only root, with its
# entry point.
#
# usage: container.sh FOLDER     with the packages (scripts/deb.sh FOLDER)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/image.sh"
server=
end_test() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    umount "$box/image/tmp" "$box/image/proc" "$box/image/models" "$box/image" 2>/dev/null || true
}

[ "$(image inspect --type image -f '{{.OCIv1.Config.User}}' localhost/weft)" = 65534:65534 ]
entry=$(image inspect --type image \
    -f '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}{{range .OCIv1.Config.Cmd}}{{.}} {{end}}' localhost/weft)
[ "$entry" = "/usr/bin/weft serve /models/models.weft --address 0.0.0.0 " ] || { echo "entry point: $entry"; exit 1; }

# The file system as `podman run --read-only --tmpfs /tmp -v MODELS:/models:ro` gives it. The bundle is made by a
# compiler that is unpacked from its package.
container=$(image from localhost/weft)
mounted=$(image mount "$container")
! find "$mounted/usr" -name 'libigraph*' -o -name 'weft-compiler' | grep . || { echo "the image has the compiler"; exit 1; }
mkdir -p "$mounted/models" "$mounted/proc" "$box/image" "$box/models"
"${WEFT:-weft}" compile "$root/examples/digits_cnn.onnx" -o "$box/models/models.weft"
chmod 755 "$box" "$box/models"
mount --bind "$mounted" "$box/image"
mount -o remount,bind,ro "$box/image"
mount -t proc proc "$box/image/proc"
mount -t tmpfs tmpfs "$box/image/tmp"
mount --bind "$box/models" "$box/image/models"
mount -o remount,bind,ro "$box/image/models"
# shellcheck disable=SC2086
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot --userspec=65534:65534 --groups= "$box/image" /usr/bin/env -C / $entry --http unix:/tmp/http --grpc off \
    --metrics off >"$box/out" 2>&1 &
server=$!
for _ in $(seq 300); do
    grep -q READY "$box/out" && break
    kill -0 "$server" 2>/dev/null || { cat "$box/out"; exit 1; }
    sleep 0.1
done
python3 - "$box/image/tmp/http" "$here" <<'PY'
import json, sys
sys.path.insert(0, sys.argv[2])
from ask import ask

status, answer = ask(sys.argv[1], "POST", "/v2/models/digits_cnn/infer", json.dumps(
    {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0] * 64}]}).encode())
assert status == 200 and len(json.loads(answer)["outputs"][0]["data"]) == 10, answer
PY
kill -TERM "$server"
wait "$server"
server=
printf 'the image serves; %s\n' "$(du -sh "$mounted" | cut -f1)"
