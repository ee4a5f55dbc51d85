/* Answers of HTTP that grow with the number of models: statistics, the index, metrics. */
#include "runtime/server/http_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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

static http_exchange *exchange_of(weft_listing *l)
{
    return (http_exchange *)((char *)l - offsetof(http_exchange, list.listing));
}

static bool write_part(weft_listing *l)
{
    http_exchange *x = exchange_of(l);
    const weft_http *http = x->http;
    http_list *list = &x->list;
    const weft_oip_filter filter = {x->model, x->any_version, list->only_ready,
                                    weft_access__models(http->front.access, &x->presented)};
    switch (list->kind) {
    case HTTP_LIST_STATS:
        return weft_oip__write_stats(http->router, &filter, &list->at.model, &list->text);
    case HTTP_LIST_INDEX:
        return weft_oip__write_index(http->router, &filter, http->options->repository, &list->at,
                                     &list->text);
    case HTTP_LIST_PAGE:
        return weft_http__write_page(http->page, http->router, &list->at, &list->text);
    case HTTP_LIST_METRICS:
        break;
    }
    if (weft_metrics__write_part(http->router, http->options->nv_metrics, &list->at, &list->text))
        return true;
    end_metrics(x);
    return false;
}

static const char *type_of(http_list_kind kind)
{
    static const char *const types[] = {[HTTP_LIST_STATS] = "application/json",
                                        [HTTP_LIST_INDEX] = "application/json",
                                        [HTTP_LIST_METRICS] =
                                            "text/plain; version=0.0.4; charset=utf-8",
                                        [HTTP_LIST_PAGE] = "text/html; charset=utf-8"};
    return types[kind];
}

/* For scrapers that ask too often. */
static void keep_metrics(http_scrapes *s, const http_list *list)
{
    s->spent_ns += list->listing.spent_ns;
    free(s->last);
    s->last =
        s->spent_ns > HTTP_SCRAPES_BURST_NS && !list->text.failed ? strdup(list->text.at) : NULL;
}

static void answer(http_exchange *x)
{
    http_list *list = &x->list;
    if (list->kind == HTTP_LIST_PAGE)
        x->http->scrapes.spent_ns += list->listing.spent_ns;
    if (list->kind == HTTP_LIST_METRICS)
        keep_metrics(&x->http->scrapes, list);
    if (list->text.failed)
        weft_buf_finish(&list->text);
    char *text = list->text.at;
    list->text = (weft_buf){0};
    weft_http__reply(x, 200, text, type_of(list->kind));
}

static void on_whole(weft_listing *l)
{
    http_exchange *x = exchange_of(l);
    answer(x);
    x->waiting = false;
    x->resume(x);
}

void weft_http__begin_list(http_exchange *x, http_list_kind kind, bool only_ready)
{
    x->list = (http_list){
        .listing = {.write = write_part, .done = on_whole}, .kind = kind, .only_ready = only_ready};
    if (weft_listing__begin(x->http->front.listings, &x->list.listing))
        answer(x);
    else
        x->waiting = true;
}
