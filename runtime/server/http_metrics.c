/* Metrics of the HTTP transport in Prometheus text format; its counters are rows of
 * http_counts.def.
 */
#include "runtime/server/http_int.h"

static void put(weft_buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
    weft_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type, name,
                    (unsigned long long)value);
}

void weft_http__write_metrics(const weft_http *http, weft_buf *out)
{
#define COUNT(field, name, help) put(out, name, "counter", help, http->counts.field);
#include "runtime/server/http_counts.def"
#undef COUNT
    put(out, "weft_http_connections", "gauge", "Open HTTP connections of the API", http->api.n);
    weft_tls__write_metrics(http->api.tls, out);
    put(out, "weft_http_held_bytes", "gauge", "Bytes of request bodies and answers held",
        http->held_bytes);
}
