/* Answers of gRPC that grow with the number of models: statistics and the index. A message whose
 * only field is repeated is the concatenation of its parts. */
#include "runtime/server/grpc_int.h"
#include "runtime/server/oip_int.h"

#include "grpc_service.pb-c.h"

#include <stdlib.h>

enum { AT_ONCE = 16, PART_MAX_BYTES = 8 << 20 };

struct weft_grpc_list {
    weft_listing listing; /* first: it is the list */
    weft_grpc_call *call;
    ProtobufCMessage *(*build)(weft_grpc_list *list, weft_arena *arena, bool *out_more);
    weft_oip_filter filter;
    weft_list_place at;
    weft_buf message; /* with its prefix */
};

/* -- Statistics ----------------------------------------------------------------------------- */

static Inference__StatisticDuration *put_duration(weft_arena *arena, weft_duration duration)
{
    Inference__StatisticDuration *d = weft_arena_alloc(arena, sizeof *d);
    inference__statistic_duration__init(d);
    d->count = duration.count;
    d->ns = duration.ns;
    return d;
}

static Inference__InferBatchStatistics **list_batches(weft_arena *arena, const weft_model_stats *s)
{
    Inference__InferBatchStatistics **list = weft_arena_array(arena, s->n_batch + 1, sizeof *list);
    for (uint32_t i = 0; i < s->n_batch; i++) {
        list[i] = weft_arena_alloc(arena, sizeof *list[i]);
        inference__infer_batch_statistics__init(list[i]);
        list[i]->batch_size = s->batch[i].batch;
        list[i]->compute_input = put_duration(arena, s->batch[i].compute_input);
        list[i]->compute_infer = put_duration(arena, s->batch[i].compute_infer);
        list[i]->compute_output = put_duration(arena, s->batch[i].compute_output);
    }
    return list;
}

static void put_memory(weft_arena *arena, const weft_router *router, uint32_t at,
                       Inference__ModelStatistics *m)
{
    uint64_t bytes = weft_router__memory_bytes(router, at);
    if (!bytes)
        return;
    Inference__MemoryUsage *usage = weft_arena_alloc(arena, sizeof *usage);
    inference__memory_usage__init(usage);
    usage->type = (char *)weft_router__memory_kind(router, at);
    usage->byte_size = bytes;
    m->n_memory_usage = 1;
    m->memory_usage = weft_arena_alloc(arena, sizeof *m->memory_usage);
    m->memory_usage[0] = usage;
}

static Inference__ModelStatistics *put_stats(weft_arena *arena, const weft_router *router,
                                             uint32_t at)
{
    const weft_model_stats *s = weft_router__stats(router, at);
    const weft_duration none = {0};
    Inference__ModelStatistics *m = weft_arena_alloc(arena, sizeof *m);
    Inference__InferStatistics *inference = weft_arena_alloc(arena, sizeof *inference);
    inference__model_statistics__init(m);
    inference__infer_statistics__init(inference);
    const weft_model_ref ref = weft_router__model(router, at);
    m->name = (char *)weft_bundle_served(ref.program);
    m->version = (char *)ref.version;
    m->last_inference = s->last_inference_ms;
    m->inference_count = s->inference_count;
    m->execution_count = s->execution_count;
    m->inference_stats = inference;
    inference->success = put_duration(arena, s->success);
    inference->fail = put_duration(arena, s->fail);
    inference->queue = put_duration(arena, s->queue);
    inference->compute_input = put_duration(arena, s->compute_input);
    inference->compute_infer = put_duration(arena, s->compute_infer);
    inference->compute_output = put_duration(arena, s->compute_output);
    inference->cache_hit = put_duration(arena, none);
    inference->cache_miss = put_duration(arena, none);
    m->n_batch_stats = s->n_batch;
    m->batch_stats = list_batches(arena, s);
    put_memory(arena, router, at, m);
    return m;
}

static ProtobufCMessage *build_statistics(weft_grpc_list *list, weft_arena *arena, bool *out_more)
{
    const weft_router *router = list->call->router;
    Inference__ModelStatisticsResponse *r = weft_arena_alloc(arena, sizeof *r);
    inference__model_statistics_response__init(r);
    r->model_stats = weft_arena_array(arena, AT_ONCE, sizeof *r->model_stats);
    uint32_t n = weft_router__model_count(router), *at = &list->at.model;
    for (; *at < n && r->n_model_stats < AT_ONCE; ++*at)
        if (weft_oip__is_listed(router, &list->filter, *at))
            r->model_stats[r->n_model_stats++] = put_stats(arena, router, *at);
    *out_more = *at < n;
    return &r->base;
}

/* -- Index ---------------------------------------------------------------------------------- */

static Inference__RepositoryIndexResponse__ModelIndex *put_entry(weft_arena *arena,
                                                                 const weft_index_entry *e)
{
    Inference__RepositoryIndexResponse__ModelIndex *m = weft_arena_alloc(arena, sizeof *m);
    inference__repository_index_response__model_index__init(m);
    m->name = weft_arena_strdup(arena, e->model);
    m->version = weft_arena_strdup(arena, e->version);
    m->state = weft_arena_strdup(arena, e->state);
    m->reason = weft_arena_strdup(arena, e->reason);
    return m;
}

static ProtobufCMessage *build_index(weft_grpc_list *list, weft_arena *arena, bool *out_more)
{
    const weft_grpc_call *call = list->call;
    Inference__RepositoryIndexResponse *r = weft_arena_alloc(arena, sizeof *r);
    inference__repository_index_response__init(r);
    r->models = weft_arena_array(arena, AT_ONCE, sizeof *r->models);
    weft_index_entry entry;
    weft_index_step step = WEFT_INDEX_NOTHING;
    for (int n = 0; n < AT_ONCE && step < WEFT_INDEX_END; n++) {
        step =
            weft_oip__next_entry(call->router, &list->filter, call->repository, &list->at, &entry);
        if (step == WEFT_INDEX_ENTRY)
            r->models[r->n_models++] = put_entry(arena, &entry);
    }
    *out_more = step < WEFT_INDEX_END;
    return step == WEFT_INDEX_NOMEM ? NULL : &r->base;
}

/* -- Parts ---------------------------------------------------------------------------------- */

/* Appends a part. A function of its own, so that no local variable changes between setjmp and
 * longjmp. */
static void append_part(weft_grpc_list *list, weft_arena *arena, bool *out_more)
{
    jmp_buf env;
    if (setjmp(env) != 0) {
        list->message.failed = true;
        return;
    }
    weft_arena_guard(arena, &env);
    const ProtobufCMessage *part = list->build(list, arena, out_more);
    size_t len = part ? protobuf_c_message_get_packed_size(part) : 0;
    uint8_t *bytes = weft_arena_alloc(arena, len + 1);
    if (part)
        protobuf_c_message_pack(part, bytes);
    weft_buf_add(&list->message, bytes, len);
    list->message.failed = list->message.failed || !part;
}

static bool write_part(weft_listing *listing)
{
    weft_grpc_list *list = (weft_grpc_list *)listing;
    const char none[WEFT_GRPC_PREFIX_BYTES] = {0};
    bool more = false;
    /* The keys may be read again while the list is under way. */
    list->filter.patterns = weft_access__models(list->call->access, &list->call->presented);
    if (list->message.len == 0)
        weft_buf_add(&list->message, none, sizeof none);
    weft_arena *arena = weft_arena_create(PART_MAX_BYTES);
    if (arena)
        append_part(list, arena, &more);
    else
        list->message.failed = true;
    weft_arena_destroy(arena);
    return more && !list->message.failed;
}

/* Gives the call its answer and frees the list. */
static void end_list(weft_grpc_list *list)
{
    weft_grpc_call *call = list->call;
    weft_buf *message = &list->message;
    if (message->failed || !weft_grpc__put_prefix((uint8_t *)message->at, message->len))
        weft_grpc__fail_call(call, WEFT_GRPC_INTERNAL, "out of memory");
    else {
        call->message = (uint8_t *)message->at;
        call->len = message->len;
        *message = (weft_buf){0};
    }
    weft_grpc__drop_list(call);
}

static void on_whole(weft_listing *listing)
{
    weft_grpc_call *call = ((weft_grpc_list *)listing)->call;
    end_list(call->list);
    call->reply(call);
}

/* true: it is answered later. */
static bool begin(weft_grpc_call *call, const weft_grpc_list *as)
{
    weft_grpc_list *list = calloc(1, sizeof *list);
    if (!list) {
        weft_grpc__fail_call(call, WEFT_GRPC_INTERNAL, "out of memory");
        return false;
    }
    *list = *as;
    list->listing = (weft_listing){.write = write_part, .done = on_whole};
    list->call = call;
    call->list = list;
    /* The place of a model may be another's in a later turn: few versions, so all at once. */
    bool all_at_once = list->filter.model != UINT32_MAX;
    if (!weft_listing__begin(all_at_once ? NULL : call->listings, &list->listing))
        return true;
    end_list(list);
    return false;
}

bool weft_grpc__list_statistics(weft_grpc_call *call, uint32_t model, bool any_version)
{
    const weft_grpc_list list = {.build = build_statistics,
                                 .filter = {.model = model, .any_version = any_version}};
    return begin(call, &list);
}

bool weft_grpc__list_index(weft_grpc_call *call, bool only_ready)
{
    const weft_grpc_list list = {.build = build_index,
                                 .filter = {.model = UINT32_MAX, .only_ready = only_ready}};
    return begin(call, &list);
}

void weft_grpc__drop_list(weft_grpc_call *call)
{
    weft_grpc_list *list = call->list;
    if (!list)
        return;
    weft_listing__leave(call->listings, &list->listing);
    weft_repository__close_scan(list->at.files);
    weft_buf_finish(&list->message);
    free(list);
    call->list = NULL;
}
