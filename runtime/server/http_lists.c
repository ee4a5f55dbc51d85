/* Answers that grow with the number of models: statistics, metrics. They are written in parts, in
 * the order in which they were asked for, with a short time in each turn of the loop: a thousand
 * models take 20 ms and more. Most servers have few models, and answer at once. */
#include "runtime/server/http_int.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t turn_ns = 500000;

/* -- Parts ------------------------------------------------------------------------------------ */

/* What of the metrics does not grow with the models. */
static void end_metrics(http_exchange *x)
{
    weft_http *http = x->http;
    weft_buf *text = &x->list.text;
    weft_http__write_metrics(http, text);
    weft_reload__write_metrics(http->front.reload, text);
    weft_spans__write_metrics(http->front.spans, text);
    weft_metrics__write_gpus(http->meters, http->router, http->options->nv_metrics, text);
}

/* false: the list is whole. */
static bool write_part(http_exchange *x)
{
    const weft_http *http = x->http;
    if (x->list.is_metrics) {
        bool more = weft_metrics__write_part(http->router, http->options->nv_metrics, &x->list.at,
                                             &x->list.text);
        if (!more)
            end_metrics(x);
        return more;
    }
    const weft_oip_filter filter = {x->model, x->any_version,
                                    weft_access__models(http->front.access, &x->presented)};
    return weft_oip__write_stats(http->router, &filter, &x->list.at.model, &x->list.text);
}

/* For scrapers that ask too often. */
static void keep_metrics(http_scrapes *s, const weft_buf *text)
{
    free(s->last);
    s->last = s->spent_ns > HTTP_SCRAPES_BURST_NS && !text->failed ? strdup(text->at) : NULL;
}

static void answer(http_exchange *x)
{
    bool metrics = x->list.is_metrics;
    if (metrics)
        keep_metrics(&x->http->scrapes, &x->list.text);
    if (x->list.text.failed)
        weft_buf_finish(&x->list.text);
    char *text = x->list.text.at;
    x->list.text = (weft_buf){0};
    weft_http__reply(x, 200, text,
                     metrics ? "text/plain; version=0.0.4; charset=utf-8" : "application/json");
}

/* Writes until the list is whole (true) or the time is over, at least one part. */
static bool write_until(http_exchange *x, uint64_t until_ns)
{
    bool more;
    uint64_t start_ns = weft_clock__now_ns(), now_ns;
    do {
        more = write_part(x);
        now_ns = weft_clock__now_ns();
    } while (more && now_ns < until_ns);
    if (x->list.is_metrics)
        x->http->scrapes.spent_ns += now_ns - start_ns;
    return !more;
}

/* -- Lists under way -------------------------------------------------------------------------- */

void weft_http__begin_list(http_exchange *x, bool is_metrics)
{
    weft_http *http = x->http;
    x->list = (http_list){.is_metrics = is_metrics};
    /* In its turn behind those that are under way. */
    if (!http->lists && write_until(x, weft_clock__now_ns() + turn_ns)) {
        answer(x);
        return;
    }
    http_exchange **end = &http->lists;
    while (*end)
        end = &(*end)->list.next;
    *end = x;
    x->list.waits = x->waiting = true;
}

void weft_http__leave_list(http_exchange *x)
{
    http_exchange **at = &x->http->lists;
    while (*at && *at != x)
        at = &(*at)->list.next;
    if (*at)
        *at = x->list.next;
    x->list.waits = false;
}

void weft_http__write_lists(weft_http *http)
{
    uint64_t until_ns = weft_clock__now_ns() + turn_ns;
    while (http->lists && weft_clock__now_ns() < until_ns) {
        http_exchange *x = http->lists;
        if (!write_until(x, until_ns))
            return;
        weft_http__leave_list(x);
        answer(x);
        x->waiting = false;
        x->resume(x);
    }
}
