/* The routes of regions of system shared memory over HTTP. */
#include "runtime/server/http_int.h"
#include "runtime/server/json_dump.h"
#include "runtime/server/regions.h"

#include <jansson.h>
#include <string.h>

void weft_http__list_regions(http_exchange *x)
{
    weft_region_info list[WEFT_REGIONS_MAX];
    size_t n = 0;
    weft_answer answer = weft_regions__list(x->http->front.regions, x->name, list, &n, x->error);
    if (answer != WEFT_ANSWER_OK) {
        x->status = weft_http__status_of(answer);
        return;
    }
    json_t *root = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(root, json_pack("{s:s, s:s, s:I, s:I}", "name", list[i].name, "key",
                                              list[i].key, "offset", (json_int_t)list[i].offset,
                                              "byte_size", (json_int_t)list[i].bytes));
    weft_http__reply(x, 200, weft_json__dump(root, JSON_COMPACT), "application/json");
}

/* An empty object answers a change. */
static void reply_change(http_exchange *x, weft_answer answer)
{
    if (answer == WEFT_ANSWER_OK)
        weft_http__reply(x, 200, strdup("{}"), "application/json");
    else
        x->status = weft_http__status_of(answer);
}

void weft_http__register_region(http_exchange *x)
{
    weft_region_info info = {.name = x->name ? x->name : ""};
    json_int_t offset = 0, bytes = 0;
    weft_answer on = weft_regions__check_on(x->http->front.regions, x->error);
    if (on != WEFT_ANSWER_OK) {
        x->status = weft_http__status_of(on);
        return;
    }
    json_t *root = x->len <= HTTP_PARAMETERS_BYTES
                       ? json_loadb(x->body, x->len, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    if (root &&
        json_unpack(root, "{s:s, s?I, s:I}", "key", &info.key, "offset", &offset, "byte_size",
                    &bytes) == 0 &&
        offset >= 0 && bytes >= 0) {
        info.offset = (uint64_t)offset;
        info.bytes = (uint64_t)bytes;
        reply_change(x, weft_regions__register(x->http->front.regions, &info, x->error));
    } else
        weft_http__fail(x, 400,
                        "the body is no JSON object with key, a string, byte_size, a number, and "
                        "perhaps offset, a number");
    json_decref(root);
}

void weft_http__unregister_regions(http_exchange *x)
{
    reply_change(x, weft_regions__unregister(x->http->front.regions, x->name, x->error));
}
