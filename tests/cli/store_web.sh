# Stores behind a web server: what passes is tried again, an answer that is too long, too short or leads elsewhere is
# refused; TLS with a certificate and a token; a pull that is killed goes on; a full disk is an error that loses nothing.
command -v openssl >/dev/null || skip "no openssl"
command -v jq >/dev/null || skip "no jq"
find_python json
expect 0 "$WEFT" compile "$examples/digits.yaml" -o a.weft
expect 0 "$WEFT" push a.weft store --tag prod --zstd 0
size=$(bytes a.weft)
listen() { # CERTIFICATE KEY...: sets $port, and $server, which is killed at the end
    "$python" "$WEFT_SOURCE_DIR/tests/support/store_server.py" store log "$@" >port 2>server.err &
    server=$!
    for _ in $(seq 100); do [ -s port ] && break; sleep 0.05; done
    port=$(cat port)
}
listen
url=http://127.0.0.1:$port
got() { # MODE ARGUMENT...
    rm -f x.weft
    expect 0 "$WEFT" pull "$url/$1" prod -o x.weft --format json "${@:2}"
    cmp x.weft a.weft || die "$1: other bytes"
}
fails() { # MODE TEXT
    expect 1 "$WEFT" pull "$url/$1" prod -o bad.weft
    has err "$2"
    [ ! -e bad.weft ] || die "$1: a bundle in spite of an error"
}
got plain
[ "$(jq .fetched_bytes out)" = "$size" ] || die "$(shown out)"
# All bytes of all answers are counted: chunks, index, tag.
[ "$(jq .transferred_bytes out)" = $((size + $(cat store/bundles/* store/tags/* | wc -c))) ] || die "$(shown out)"
got plain/ --jobs 1
got busy
got cut --jobs 3
got moved
fails never "has no chunks/"
fails long "is longer than"
fails endless "is longer than"
fails short "in place of"
fails forbidden "answers 403"
fails around "redirect"
fails local "tags/prod"
expect 1 "$WEFT" pull "$url/plain?x=" prod -o bad.weft
# Killed while chunks come: the next pull asks for the others only.
rm x.weft
"$WEFT" pull "$url/slow" prod -o x.weft --jobs 1 >out 2>err &
for _ in $(seq 100); do [ "$(grep -c '^slow chunks' log)" -ge 3 ] && break; sleep 0.05; done
kill -KILL $!
wait $! || true
rm -f x.weft
filled x.weft.part
expect 0 "$WEFT" pull "$url/plain" prod -o x.weft --format json
cmp x.weft a.weft || die "other bytes"
at_most 1 "$(jq .kept_bytes out)"
# A disk without room: said before, or while chunks are written; what is there is kept.
if mkdir small && mount -t tmpfs -o size=32k none small 2>err; then
    expect 1 "$WEFT" pull "$url/plain" prod -o small/x.weft
    umount small
    has err "the disk has room for"
fi
(ulimit -f 24 && "$WEFT" pull "$url/plain" prod -o full.weft) >out 2>err && die "a file beyond the limit"
has err "full.weft.part: cannot"
[ ! -e full.weft ] || die "a bundle in spite of an error"
# TLS: the certificate is checked; the token goes to the server and to no other.
kill -KILL "$server"
wait "$server" || true
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2 \
    -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>err || die "$(shown err)"
listen cert.pem key.pem
url=https://127.0.0.1:$port
expect 1 "$WEFT" pull "$url/plain" prod -o bad.weft
has err "certificate"
printf 'secret-1\n' >token
: >log
got plain --ca cert.pem --token token
! grep -v 'Bearer secret-1$' log || die "a request without the token"
expect 1 "$WEFT" pull "https://localhost:$port/plain" prod -o bad.weft --ca cert.pem
printf 'a b\n' >token
expect 1 "$WEFT" pull "$url/plain" prod -o bad.weft --ca cert.pem --token token
has err "has no token"
