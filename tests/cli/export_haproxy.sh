# A front: addresses of nodes, options that are refused, and what HAProxy itself says of the file.
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
expect 0 "$WEFT" export plan.json --to haproxy -o front
has front/haproxy.cfg "backend h-Small_1.x"
has front/servers "weft-a100-80-0 8000"
has front/servers "inter 500ms fastinter 200ms downinter 1000ms rise 2 fall 2 observe layer4 error-limit 1 on-error mark-down"
nodes() { sed -n 's/.* \(weft-[a-z0-9-]*\) [0-9]* [0-9]* [0-9]* proto.*/\1/p' front/servers | sort -u; }
nodes | awk '{ print $1, "10.0.0." NR }' >nodes
expect 0 "$WEFT" export plan.json --to haproxy -o front --nodes nodes --balance least --bind '[::1]:9000' \
    --socket "$PWD/socket" --buffer 1MiB
has front/haproxy.cfg "bind [::1]:9001 proto h2"
has front/haproxy.cfg "balance leastconn"
has front/haproxy.cfg "tune.bufsize 1048576"
has front/servers " 10.0.0.1 8000 8000 "
# A worker of many models: over each transport fewer connections than it takes of one address.
python3 - <<'END'
import json
plan = json.load(open("plan.json"))
plan["placements"] = [dict(plan["placements"][0], model=f"m{i}") for i in range(12)]
json.dump(plan, open("many.json", "w"))
END
expect 0 "$WEFT" export many.json --to haproxy -o many
awk '/^h-/ { n += $(index_of("maxconn") + 1) } function index_of(word, i) { for (i = 1; $i != word; i++); return i }
    END { exit !(n > 500 && n <= 1024) }' many/servers || die "connections of one worker: $(shown many/servers)"
refused() {
    expect 1 "$WEFT" export plan.json --to haproxy -o bad "${@:2}"
    has err "$1"
}
refused "must be ADDRESS:PORT" --bind 9000
for option in "--queue research" "--image x" "--sbatch partition=gpu" "--rollout in-place" "--claim c"; do
    # shellcheck disable=SC2086
    expect 2 "$WEFT" export plan.json --to haproxy -o bad $option
    has err "${option%% *} is for "
    lacks err "is for haproxy"
done
expect 2 "$WEFT" export plan.json --to gateway -o bad --worker-tls /etc/tls
has err "--worker-tls is for systemd, slurm, haproxy and envoy, not for gateway"
refused "absolute path" --worker-tls tls
refused "must be ADDRESS:PORT" --bind '*:65534'
refused "must be from 16 KiB" --buffer 1KiB
refused "absolute path" --socket "a b"
sed 1d nodes >fewer
refused "has no address" --nodes fewer
{ cat nodes; echo "weft-none 10.0.0.9"; } >more
refused "the plan has no node 'weft-none'" --nodes more
{ cat nodes; head -1 nodes; } >twice
refused "has two addresses" --nodes twice
echo "weft-h100-0" >short
refused "short:1: a line has the name of a node and its address" --nodes short
echo "weft-h100-0 host:80" >ported
refused "ported:1: a line has the name of a node and its address" --nodes ported
awk '{ print $1, "10.0.0.1" }' nodes >equal
refused "have one address" --nodes equal
expect 1 "$WEFT" export plan.json --to systemd -o bad --nodes equal
has err "have one address"
expect 2 "$WEFT" export plan.json --to haproxy -o bad --buffer much
# update.sh, with a socat that answers as a HAProxy with the servers of the table: nothing to do, whatever the
# folder is called; published addresses that are none are left out; a HAProxy that does not answer is an error.
mkdir double 'a=b'
cat >double/socat <<'END'
#!/bin/sh
case $(cat) in *"show servers state"*) cat state ;; esac
END
chmod +x double/socat
cp front/* 'a=b'
awk '{ print 3, $1, 1, $2, $3, 2, 0, $6, $6, 0, 0, 0, 0, 0, 0, 0, 0, "-", $4, "-", 0 }' front/servers >rows
update() { expect "$1" env PATH="$PWD/double:$PATH" sh 'a=b/update.sh' socket "${@:2}"; }
{ echo "1"; echo "# be_id be_name srv_id srv_name"; cat rows; } >state
update 0
[ ! -s out ] || die "it has something to do: $(shown out)"
printf '%s\n' "weft-h100-0-s0 127.0.0.1;shutdown 7 8" "weft-cpu-0 127.0.0.99 7 8" "weft-h100-0-s0 127.0.0.9 7; 8" |
    sed "s/weft-h100-0-s0/$(sed -n '1s/[^ ]* \([^ ]*\).*/\1/p' front/servers)/; s/weft-cpu-0/$(sed -n '$s/[^ ]* \([^ ]*\).*/\1/p' front/servers)/" >published
update 0 published
has out " addr 127.0.0.99 port 7"
has out "set server grpc-workers/$(sed -n '$s/[^ ]* \([^ ]*\).*/\1/p' front/servers) addr 127.0.0.99 port 8"
lacks out ";"
: >state
update 1
has err "no servers' state"
# Models whose names are those of backends that belong to no model.
sed 's/"model": "tiny"/"model": "workers"/; s/"model": "share"/"model": "unknown"/' plan.json >names.json
grep -q '"workers"' names.json || die "there is no model to rename"
expect 0 "$WEFT" export names.json --to haproxy -o names --nodes nodes
for backend in $(sed -n 's/^backend //p' names/haproxy.cfg | sort | uniq -d); do
    die "two backends are called $backend"
done
# HAProxy reads the file, with TLS as well.
PATH=$PATH:/usr/sbin
command -v haproxy >/dev/null || skip "no haproxy"
expect 0 haproxy -c -f front/haproxy.cfg
lacks err WARNING
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=weft 2>/dev/null
    cat cert key >both.pem
    expect 0 "$WEFT" export plan.json --to haproxy -o tls --nodes nodes --front-tls "$PWD/both.pem"
    expect 0 haproxy -c -f tls/haproxy.cfg
    has tls/haproxy.cfg "ssl crt $PWD/both.pem alpn h2"
    # TLS towards the workers: verified, with time for handshakes, and checked when a connection breaks.
    cp cert ca.crt
    expect 0 "$WEFT" export plan.json --to haproxy -o workers --nodes nodes --worker-tls "$PWD"
    expect 0 haproxy -c -f workers/haproxy.cfg
    lacks err WARNING
    has workers/haproxy.cfg "timeout connect 5000ms"
    has workers/servers "proto h2 check-proto h1 ssl alpn h2 verify required ca-file $PWD/ca.crt verifyhost weft check-ssl"
    has workers/servers "inter 3000ms"
    has workers/servers "on-error fastinter"
    lacks workers/servers mark-down
    [ "$(grep -c . workers/servers)" = "$(grep -c 'verify required' workers/servers)" ] || die "a server is not verified"
fi
