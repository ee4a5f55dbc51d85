#!/usr/bin/env bash
# Installs the Debian 12 packages that Weft is built and tested with. Asks dpkg first: when nothing
# is missing it takes no time, needs no network and no root.
set -euo pipefail

packages=(
    # build
    build-essential cmake ninja-build pkg-config git
    # libraries: ONNX and bundle messages, CPU kernels, matching, exact placement
    libprotobuf-c-dev protobuf-c-compiler libonnx-dev libdnnl-dev libigraph-dev coinor-libcbc-dev
    # libraries: server, set files, hashes, compression
    libnghttp2-dev libssl-dev libjansson-dev libcyaml-dev libyaml-dev libxxhash-dev zlib1g-dev
    # libraries: transfer of bundles
    libcurl4-openssl-dev libzstd-dev
    # tests: unit tests, conformance data, second compiler, fuzzing, lint
    libcmocka-dev libonnx-testdata clang clang-format libclang-rt-14-dev valgrind
    # checkers of what `weft export` writes (kubectl, where there is one, is used too)
    slurmd systemd python3-yaml
    # fronts and clusters that the tests start from exported plans
    haproxy socat slurmctld slurm-client munge
    # schemas of JSON output
    python3-jsonschema
    # interface of libweft against the recorded one
    abigail-tools
    # oracles of the tests, from the Python package index (scripts/oracles.sh)
    python3-pip
    # pictures of merged graphs; the documents as a book
    graphviz cmark-gfm
    # clients of the demo and of the tests
    curl jq wrk python3 python3-numpy python3-grpcio python3-protobuf procps
)

say() { printf 'setup: %s\n' "$*" >&2; }

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    say "all ${#packages[@]} packages are installed"
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    say "this system has no apt-get; install what corresponds to: ${missing[*]}"
    exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        say "neither root nor sudo; as root: apt-get install ${missing[*]}"
        exit 1
    fi
    root=(sudo)
fi

say "installing ${#missing[@]} packages: ${missing[*]}"
"${root[@]}" apt-get update -q
"${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"
say "done"
