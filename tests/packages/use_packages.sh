# In a clean Debian: installs the packages of a folder and uses each one, then removes them.
set -euo pipefail
debs=$1
cd "$(mktemp -d)"
die() {
    printf 'FAILED: %s\n' "$*"
    exit 1
}
say() { printf '== %s\n' "$*"; }
install() { apt-get install -q -y --no-install-recommends "$@" >log 2>&1 || { tail -n 20 log; die "install $*"; }; }
apt-get update -q >log 2>&1 || { tail log; die "apt-get update"; }

say "a machine that only serves: no compiler, no solver"
install "$debs"/weft-runtime_*.deb
weft --version
! dpkg-query -W -f '${Package}\n' | grep -E 'igraph|coinor|llvm|glpk' || die "libraries of the compiler"
code=0
weft list ops 2>err || code=$?
[ "$code" = 1 ] && grep -q 'weft-compiler is not installed' err || die "weft list without the compiler: $code"

say "everything"
install "$debs"/*.deb systemd python3 gcc g++ libc6-dev make cmake pkg-config
examples=/usr/share/doc/weft/examples
weft compile "$examples/digits.yaml" -o /var/lib/weft/models.weft
weft inspect /var/lib/weft/models.weft >inspect
grep -q digits-attn inspect || die "inspect"
weft plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" --bundle /var/lib/weft/models.weft -o plan.json
for page in man1/weft.1 man1/weft-serve.1 man1/weft-compile.1 man5/weft-set.5 man5/weft-plan.5 man7/weft.7; do
    [ -s "/usr/share/man/$page.gz" ] || die "no page $page"
done
(source /usr/share/bash-completion/completions/weft
 COMP_WORDS=(weft pl) COMP_CWORD=1
 _weft
 [ "${COMPREPLY[*]}" = plan ]) || die "completion of bash"

say "the service"
[ "$(systemctl is-enabled weft-server || true)" = disabled ] || die "the service is enabled"
systemd-analyze verify --man=no weft-server.service
systemctl --quiet enable weft-server 2>/dev/null || die "enable"
python3 /tmp/serve_unit.py weft-server

say "C by pkg-config and by find_package, C++"
cp /usr/share/doc/libweft-dev/examples/classify.* .
head -c 2560 /dev/zero >images.f32
cc -Wall -Werror classify.c $(pkg-config --cflags --libs weft) -o by_pkg
./by_pkg /var/lib/weft/models.weft digits <images.f32 >want
[ "$(wc -l <want)" = 10 ] || die "ten images gave $(wc -l <want) lines"
cc classify.c $(pkg-config --static --cflags weft) -Wl,-Bstatic -lweft -Wl,-Bdynamic \
    $(pkg-config --static --libs weft | sed 's/-lweft//') -o by_static
./by_static /var/lib/weft/models.weft digits <images.f32 | cmp - want
c++ -std=c++17 classify.cpp $(pkg-config --cflags --libs weft) -o by_cpp
./by_cpp /var/lib/weft/models.weft digits <images.f32 | cmp - want
mkdir project
cp classify.c "$examples/digits_cnn.onnx" project
cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(Weft 0.1 REQUIRED COMPONENTS runtime compiler)
add_executable(classify classify.c)
target_link_libraries(classify PRIVATE Weft::runtime)
weft_add_bundle(digits OUTPUT digits.weft MODELS digits_cnn.onnx)
CMAKE
cmake -S project -B built >log && cmake --build built >>log 2>&1 || { cat log; die "find_package"; }
built/classify built/digits.weft digits_cnn <images.f32 | cmp - want

say "Python"
examples_kept=$PWD/examples
cp -r "$examples" "$examples_kept"
cat >try_python.py <<'PY'
import sys
import numpy as np
import weft

examples = sys.argv[1]
x, y = np.load(f"{examples}/digits_test.x.npy"), np.load(f"{examples}/digits_test.y.npy")
bundle = weft.compile(f"{examples}/digits_cnn.onnx", "digits.weft", gpu="h100")
right = bundle.run("digits_cnn", {"image": x})["logits"].argmax(1) == y.reshape(len(x), -1)[:, 0]
print(f"weft {weft.__version__}: {right.mean():.3f} of {len(x)} digits are recognised")
assert right.mean() > 0.9
assert weft.plan(f"{examples}/digits.yaml", f"{examples}/fleet.yaml")["placements"]
print(weft.__file__)
PY
python3 try_python.py "$examples_kept"

apt-get purge -q -y weft-runtime weft-server libweft1 libweft-dev python3-weft weft >log 2>&1 || die "purge"
for wheel in "$debs"/weft-*.whl; do
    [ -e "$wheel" ] || continue
    say "the wheel in a virtual environment, beside the shared libraries that it names"
    install python3-venv
    python3 -m venv --system-site-packages venv
    venv/bin/python -m pip install --quiet --no-index --no-deps "$wheel"
    venv/bin/python try_python.py "$examples_kept"
done

say "nothing is left behind"
left=$(find / -xdev \( -path /proc -o -path /tmp -o -path "$debs" -o -path /var/log -o -path /var/cache -o \
    -path /var/lib/apt -o -path /var/lib/weft \) -prune -o -name '*weft*' -print)
[ -z "$left" ] || die "left: $left"
say "all packages work"
