# A front: addresses of nodes, options that are refused, and what HAProxy itself says of the file.
. "$WEFT_SOURCE_DIR/tests/support/export_plan.sh"
expect 0 "$WEFT" export plan.json --to haproxy -o front
has front/haproxy.cfg "backend h-Small_1.x"
has front/servers "weft-a100-80-0 8000"
nodes() { sed -n 's/.* \(weft-[a-z0-9-]*\) [0-9]* [0-9]* [0-9]* proto.*/\1/p' front/servers | sort -u; }
nodes | awk '{ print $1, "10.0.0." NR }' >nodes
expect 0 "$WEFT" export plan.json --to haproxy -o front --nodes nodes --balance least --bind '[::1]:9000' \
    --socket "$PWD/socket" --buffer 1MiB
has front/haproxy.cfg "bind [::1]:9001 proto h2"
has front/haproxy.cfg "balance leastconn"
has front/haproxy.cfg "tune.bufsize 1048576"
has front/servers " 10.0.0.1 8000 8000 "
refused() {
    expect 1 "$WEFT" export plan.json --to haproxy -o bad "${@:2}"
    has err "$1"
}
refused "must be ADDRESS:PORT" --bind 9000
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
expect 2 "$WEFT" export plan.json --to haproxy -o bad --buffer much
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
fi
