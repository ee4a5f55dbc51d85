# The server becomes ready, answers, and on SIGTERM drains and ends with 0; a port in use is a
# failure.
command -v curl >/dev/null || skip "no curl"
"$WEFT" compile "$examples/digits_cnn.onnx" -o digits.weft
"$WEFT" serve digits.weft --http 0 --grpc 0 --metrics 0 >log 2>&1 &
server=$!
await log READY
port_of() { sed -n "s/.*READY.* $1=\\([0-9]*\\).*/\\1/p" log; }
http=$(port_of http) grpc=$(port_of grpc) metrics=$(port_of metrics)
expect 0 curl -fsS "http://127.0.0.1:$http/v2/health/ready"
expect 0 curl -fsS "http://127.0.0.1:$http/v2/models/digits_cnn"
has out '"image"'
expect 0 curl -fsS "http://127.0.0.1:$metrics/metrics"
has out "# TYPE"
code=0
timeout 20 "$WEFT" serve digits.weft --http "$http" --grpc "$grpc" --metrics "$metrics" \
    >log2 2>&1 || code=$?
[ "$code" = 1 ] || die "a second server on the same port: exit code $code: $(shown log2)"
has log2 "$http"
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" = 0 ] || die "the server ended with $code: $(shown log)"
