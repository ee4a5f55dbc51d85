/* Headers traceparent: any bytes are a trace context or none. Checked: what is read, written out,
 * is what stood there, and ids are not zero. */
#include "runtime/server/spans_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TRACE_AT = 3, PARENT_AT = 36, FLAGS_AT = 53 };

static void check_id(const uint8_t *id, size_t n, const char *text)
{
    char hex[2 * WEFT_TRACE_ID_BYTES + 1];
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= id[i];
    weft_spans__put_hex(id, n, hex);
    if (!any || memcmp(hex, text, 2 * n) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_span_context c;
    /* In a block of exactly its size, so that a sanitizer detects reads past it. */
    char *text = malloc(size ? size : 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    if (weft_spans__parse(text, size, &c)) {
        check_id(c.trace, sizeof c.trace, text + TRACE_AT);
        check_id(c.parent, sizeof c.parent, text + PARENT_AT);
        if (c.sampled != (strchr("13579bdf", text[FLAGS_AT + 1]) != NULL))
            abort();
    }
    free(text);
    return 0;
}
