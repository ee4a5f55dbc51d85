# systemd: systemd-analyze accepts the units, devices are found on a node, and a worker serves.
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
expect 0 "$WEFT" export plan.json --to systemd -o units --weft "$(realpath "$WEFT")" --config "$PWD/etc"
has units/weft-a100-80-0/weft-d0-s0.service "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40"
[ -f units/weft-a100-80-0/weft-mps-gpu0.service ] || die "no MPS daemon: $(ls units/*)"
has units/weft-a100-80-0/weft-mps-gpu0.service "NoNewPrivileges=yes"
# Its pipes are for other users.
lacks units/weft-a100-80-0/weft-mps-gpu0.service "UMask"
# devices.sh finds each worker's instance by GPU, profile and number.
mkdir bin
cat >bin/nvidia-smi <<'END'
#!/bin/sh
echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)'
for i in 0 1 2; do echo "  MIG 3g.40gb     Device  $i: (UUID: MIG-big-$i)"; done
for i in 0 1 2 3 4 5 6; do echo "  MIG 1g.10gb     Device  $i: (UUID: MIG-0-$i)"; done
echo 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'
for i in 0 1; do echo "  MIG 3g.40gb     Device  $i: (UUID: MIG-BIG-$i)"; done
for i in 0 1 2 3 4 5 6; do echo "  MIG 1g.10gb     Device  $i: (UUID: MIG-1-$i)"; done
END
chmod +x bin/nvidia-smi
expect 0 env PATH="$PWD/bin:$PATH" sh units/weft-h100-0/devices.sh "$PWD/etc/devices"
count=$(cat etc/devices/*.env | sort -u | wc -l)
[ "$count" -eq "$(find etc/devices -name '*.env' | wc -l)" ] || die "two workers have one device"
grep -qh 'MIG-0-0' etc/devices/*.env || die "$(cat etc/devices/*.env)"
# Of named workers only: an instance that nobody has, and no file if there is none.
first=$(basename "$(ls etc/devices/*.env | head -n 1)" .env) before=$(cat etc/devices/*.env | sort)
cp etc/devices/"$first".env kept
expect 0 env PATH="$PWD/bin:$PATH" sh units/weft-h100-0/devices.sh "$PWD/etc/devices" "$first"
[ "$(cat etc/devices/*.env | sort)" = "$before" ] || die "$first has another device: $(cat etc/devices/*.env)"
cp kept etc/devices/other.env
expect 0 env PATH="$PWD/bin:$PATH" sh units/weft-h100-0/devices.sh "$PWD/etc/devices" "$first"
[ "$(cat etc/devices/*.env | sort | uniq -d)" = "" ] || die "two workers have one device: $(cat etc/devices/*.env)"
for i in 0 1 2 3 4 5 6; do
    for g in 0 1; do printf 'CUDA_VISIBLE_DEVICES=MIG-%s-%s\n' $g $i; done
    printf 'CUDA_VISIBLE_DEVICES=MIG-big-%s\nCUDA_VISIBLE_DEVICES=MIG-BIG-%s\n' $i $i
done >etc/devices/other.env
expect 1 env PATH="$PWD/bin:$PATH" sh units/weft-h100-0/devices.sh "$PWD/etc/devices" "$first"
has err "no instance of"
[ ! -e etc/devices/"$first".env ] || die "a device file is left: $(cat etc/devices/"$first".env)"
rm etc/devices/other.env
# From a store: each node has a service that gets the bundle, named by it, which its workers wait for.
mkdir srv
expect 0 "$WEFT" export plan.json --to systemd -o stored --weft "$(realpath "$WEFT")" --config "$PWD/etc" \
    --store https://store.example/weft --digest "sha256:$(printf 'a%.0s' $(seq 64))" --bundle "$PWD/srv/a.weft" \
    --worker-tls /etc/weft/tls
for node in stored/*/; do
    has "$node/weft-bundle-aaaaaaaaaaaaaaaa.service" "pull https://store.example/weft sha256:aaaa"
    has "$node/weft-bundle-aaaaaaaaaaaaaaaa.service" "ExecStartPre=+/bin/mkdir -p $PWD/srv"
    for unit in "$node"weft-d*-s[0-9].service; do has "$unit" "Requires=weft-bundle-aaaaaaaaaaaaaaaa.service"; done
    # Certificate and key are read as root, for users that may not.
    for unit in "$node"weft-d*-s[0-9].service; do
        has "$unit" "--tls-cert %d/tls.crt --tls-key %d/tls.key"
        has "$unit" "LoadCredential=tls.key:/etc/weft/tls/tls.key"
    done
done
if command -v systemd-analyze >/dev/null; then
    expect 0 env SYSTEMD_UNIT_PATH="$PWD/stored/weft-cpu-0:" timeout 60 systemd-analyze verify --man=no stored/weft-cpu-0/*.service
    lacks err stored
    for node in units/*/; do
        # Links between units are looked for where they are.
        expect 0 env SYSTEMD_UNIT_PATH="$PWD/$node:" timeout 60 systemd-analyze verify --man=no \
            "$node"*.service "$node"*.target
        lacks err "$node"
    done
    # The exposure that systemd computes (0 to 10): below 2.5 for workers.
    for unit in units/weft-cpu-0/weft-d*-s0.service units/weft-h100-0/weft-d*-s0.service; do
        expect 0 timeout 60 systemd-analyze security --offline=true --threshold=25 "$unit"
    done
    expect 1 timeout 60 systemd-analyze security --offline=true --threshold=5 "$unit"
    sed 's/^ExecStart=.*/ExecStart=relative/' units/weft-cpu-0/weft-d*-s0.service >fault.service
    timeout 60 systemd-analyze verify --man=no ./fault.service >out 2>err && [ ! -s err ] &&
        die "a fault went unseen"
else
    printf 'systemd-analyze is not here: units are not verified\n'
fi
# The command of an exported CPU worker serves its part of the plan.
command -v curl >/dev/null || skip "no curl"
[ "$(nproc)" -ge 2 ] || skip "one core: the fleet of the example has two"
"$WEFT" compile "$examples/digits.yaml" -o digits.weft 2>err || die "$(shown err)"
expect 0 "$WEFT" plan "$examples/digits.yaml" --fleet "$examples/fleet.yaml" -o cpu.json
echo "weft-cpu-0 127.0.0.1 # its address" >nodes
expect 0 "$WEFT" export cpu.json --to systemd -o cpu --weft "$(realpath "$WEFT")" \
    --bundle "$PWD/digits.weft" --config "$PWD/cpu/weft-cpu-0" --nodes nodes
# Its memory is limited by the plan's figure, which is known for CPUs only.
memory=$(sed -n 's/^MemoryMax=\([0-9]*\)M$/\1/p' cpu/weft-cpu-0/weft-d0-s0.service)
[ "${memory:-0}" -gt 5120 ] && [ "$memory" -lt 6144 ] || die "MemoryMax=$memory"
! grep -q MemoryMax units/weft-h100-0/*.service || die "a memory limit for a GPU's worker"
has cpu/weft-cpu-0/weft-d0-s0.service "Type=notify"
read -r http grpc metrics < <(python3 -c '
import socket
s = [socket.socket() for _ in range(3)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])')
command=$(sed -n 's/^ExecStart=//p' cpu/weft-cpu-0/weft-d0-s0.service |
    sed "s/--http 8000 --grpc 8001 --metrics 8002/--http $http --grpc $grpc --metrics $metrics/")
$command >log 2>&1 &
server=$!
for _ in $(seq 300); do
    curl -fs -o /dev/null "http://127.0.0.1:$http/v2/health/ready" && break
    kill -0 "$server" 2>/dev/null || die "the worker ended: $(shown log)"
    sleep 0.1
done
expect 0 curl -fsS "http://127.0.0.1:$http/v2/models/digits/ready"
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" = 0 ] || die "the worker ended with $code: $(shown log)"
