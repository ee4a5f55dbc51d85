/* Converts a plan into nodes, workers and groups, the units that other systems run.
 *
 * A node is up to gpus_per_node devices of one type that are split in one way (device plugins and
 * Slurm configure MIG, MPS and whole GPUs by node), or one CPU. A worker is one process `weft
 * serve` with its part of the plan as a separate plan file: all slices of a CPU, or one slice of a
 * GPU, since a process can use one MIG instance only. Workers with the same models, batches and
 * processes on the same kind of slice form a group; systems with replicas start a group as
 * replicas.
 *
 * Every text that an exporter writes, except model names, is checked here to contain only letters,
 * digits and -_./:@, so that no quoting is needed in any format. */
#include "scheduler/export/export_int.h"
#include "scheduler/plan/plan.h"

#include "base/hash.h"
#include "base/map.h"
#include "base/slice_name.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Options ---------------------------------------------------------------------------------- */

static bool is_label(const char *text, size_t max)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (!islower((unsigned char)text[i]) && !isdigit((unsigned char)text[i]) && text[i] != '-')
            return false;
    return len > 0 && len <= max && islower((unsigned char)text[0]) && text[len - 1] != '-';
}

/* sha256: and 64 digits. */
static bool is_digest(const char *s)
{
    static const char mark[] = "sha256:";
    size_t skip = sizeof mark - 1;
    return strncmp(s, mark, skip) == 0 && strspn(s + skip, "0123456789abcdef") == 64 &&
           strlen(s) == skip + 64;
}

/* IMAGE@sha256:HEX: a digest names one content, a tag does not. */
static bool is_pinned(const char *image)
{
    const char *at = strchr(image, '@');
    return weft_export__is_plain(image, 512) && image[0] != '/' && at && at != image &&
           is_digest(at + 1);
}

uint32_t weft_export__store_port(const char *url)
{
    bool https = strncmp(url, "https://", 8) == 0;
    if (!https && strncmp(url, "http://", 7) != 0)
        return 0;
    const char *host = url + (https ? 8 : 7), *path = host + strcspn(host, "/");
    const char *at = host + strcspn(host, ":/@"), *digits = at + 1;
    if (at == host || at == path)
        return at == host ? 0 : https ? 443 : 80;
    long port = *at == ':' ? strtol(digits, NULL, 10) : 0; /* without names and passwords */
    bool all = digits + strspn(digits, "0123456789") == path && path - digits <= 5;
    return all && port <= 65535 ? (uint32_t)port : 0;
}

static weft_err check_store(export_ctx *ctx)
{
    weft_export_options *o = &ctx->o;
    if (!o->store && !o->digest)
        return WEFT_ERR_OK;
    if (!o->store || !weft_export__is_plain(o->store, 1024) ||
        (o->store[0] != '/' && weft_export__store_port(o->store) == 0))
        return weft_export__fail(ctx, "store",
                                 "must be https://HOST[:PORT][/PATH], likewise http://, or an "
                                 "absolute path, of letters, digits and -_./:@, not",
                                 o->store ? o->store : "");
    if (!o->digest || !is_digest(o->digest))
        return weft_export__fail(ctx, "digest", "must be sha256:HEX, not",
                                 o->digest ? o->digest : "");
    if (o->bundle_image)
        return weft_export__fail(ctx, "bundle-image",
                                 "and a store exclude each other:", o->bundle_image);
    if (!o->bundle)
        o->bundle = weft_arena_printf(ctx->arena, "/srv/weft/%.16s.weft", o->digest + 7);
    return WEFT_ERR_OK;
}

static weft_err check_options(export_ctx *ctx)
{
    weft_export_options *o = &ctx->o;
    WEFT_TRY(check_store(ctx));
    o->bundle = o->bundle ? o->bundle : "/srv/weft/models.weft";
    o->weft = o->weft ? o->weft : "/usr/bin/weft";
    o->config = o->config ? o->config : "/etc/weft";
    o->image = o->image ? o->image : "weft:latest";
    o->claim = o->claim || o->store ? o->claim : "weft-models";
    o->name = o->name ? o->name : "weft";
    o->port = o->port ? o->port : 8000;
    o->gpus_per_node = o->gpus_per_node ? o->gpus_per_node : 8;
    o->bind = o->bind ? o->bind : "*:8080";
    o->socket = o->socket ? o->socket : "/run/haproxy/admin.sock";
    o->buffer_bytes = o->buffer_bytes ? o->buffer_bytes : 128 << 10;
    const char *paths[][2] = {{"bundle", o->bundle},         {"weft", o->weft},
                              {"config", o->config},         {"socket", o->socket},
                              {"worker-tls", o->worker_tls}, {"front-tls", o->front_tls}};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i][1] && (!weft_export__is_plain(paths[i][1], 1024) || paths[i][1][0] != '/'))
            return weft_export__fail(ctx, paths[i][0],
                                     "must be an absolute path of letters, digits and -_./:@, not",
                                     paths[i][1]);
    if (strrchr(o->bundle, '/') == o->bundle || o->bundle[strlen(o->bundle) - 1] == '/')
        return weft_export__fail(ctx, "bundle", "must be a file in a folder, not", o->bundle);
    if (!weft_export__is_plain(o->image, 256) || o->image[0] == '/')
        return weft_export__fail(ctx, "image", "is not the name of an image:", o->image);
    if ((o->claim && !is_label(o->claim, WEFT_EXPORT_LABEL_MAX)) ||
        !is_label(o->name, WEFT_EXPORT_NAME_MAX))
        return weft_export__fail(ctx, "name",
                                 "must be at most 32 lower-case letters, digits and -, not",
                                 is_label(o->name, WEFT_EXPORT_NAME_MAX) ? o->claim : o->name);
    if (o->bundle_image && !is_pinned(o->bundle_image))
        return weft_export__fail(ctx, "bundle-image", "must be IMAGE@sha256:HEX, not",
                                 o->bundle_image);
    if (o->queue && !is_label(o->queue, WEFT_EXPORT_LABEL_MAX))
        return weft_export__fail(ctx, "queue", "is not the name of a queue:", o->queue);
    if (o->gpus_per_node > 64 || o->port > 65000)
        return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "port %u must be at most 65000, %u GPUs per node at most 64",
                               o->port, o->gpus_per_node);
    WEFT_TRY(weft_export__check_sbatch(ctx));
    return weft_export__check_front(ctx);
}

/* -- Slices of the plan ----------------------------------------------------------------------- */

static weft_err read_slice(export_ctx *ctx, const weft_placement *p, export_worker *w)
{
    weft_slice_name name;
    w->type = p->type;
    w->slice = p->slice;
    w->mig_start = p->mig_start;
    w->kind = WEFT_SLICE_WHOLE;
    if (!weft_export__is_plain(p->type, WEFT_EXPORT_LABEL_MAX) || strpbrk(p->type, "/:@") ||
        !isalnum((unsigned char)p->type[strlen(p->type) - 1]) ||
        strlen(p->slice) >= WEFT_SLICE_NAME_MAX)
        return weft_export__fail(ctx, p->model,
                                 "its device type or slice cannot be exported:", p->type);
    if (p->mig_start >= 0) {
        w->kind = WEFT_SLICE_MIG;
        if (weft_device_type_mig(weft_device_type_find(p->type), p->slice))
            return WEFT_ERR_OK;
        return weft_export__fail(ctx, p->model, "the device has no MIG profile", p->slice);
    }
    if (weft_slicename_cores(p->slice, WEFT_FLEET_CORES_MAX, &w->cores)) {
        w->kind = WEFT_SLICE_CORES;
    } else if (p->slice[0]) {
        w->kind = WEFT_SLICE_MPS;
        if (!weft_slicename_parse(p->slice, &name) || name.profile[0] || name.share == 0)
            return weft_export__fail(ctx, p->model, "its slice cannot be exported:", p->slice);
        w->percent = (uint32_t)(name.share * 100 + 0.5);
    } else if (weft_device_type_is_cpu(p->type)) {
        w->kind = WEFT_SLICE_CORES;
    }
    return WEFT_ERR_OK;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Whether two placements are on one device. */
static bool same_place(const weft_location *a, const weft_location *b)
{
    return same_text(a->node, b->node) && a->gpu == b->gpu;
}

/* A plan says of all its placements where they are, or of none. */
static bool is_located(const export_ctx *ctx, const weft_placement *p)
{
    return !p->where.node == !ctx->plan->at[0].where.node;
}

/* Notes that a device is where its placements say. false: another one is. */
static bool take_place(const weft_placement *p, weft_map *taken)
{
    uint64_t device = p->device, key;
    if (!p->where.node)
        return true;
    key = weft_hash64(p->where.node, strlen(p->where.node), p->where.gpu);
    if (!weft_map_get(taken, key, &device))
        weft_map_put(taken, key, device);
    return device == p->device;
}

/* Makes the workers in the order of the devices of the plan, without nodes. */
static weft_err make_workers(export_ctx *ctx)
{
    const weft_plan *plan = ctx->plan;
    const weft_placement **at = weft_arena_array(ctx->arena, plan->n + 1, sizeof *at);
    ctx->worker = weft_arena_array(ctx->arena, plan->n + 1, sizeof *ctx->worker);
    const uint32_t *order = weft_plan__order(plan, ctx->arena);
    weft_map *taken = weft_map_create(ctx->arena);
    for (size_t i = 0; i < plan->n; i++)
        at[i] = &plan->at[order[i]];
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = at[i];
        export_worker one = {.device = p->device};
        if (!weft_family_name_valid(p->model))
            return weft_export__fail(ctx, NULL, "is not a name of a model or a family:", p->model);
        WEFT_TRY(read_slice(ctx, p, &one));
        export_worker *last = ctx->n_worker ? &ctx->worker[ctx->n_worker - 1] : NULL;
        bool same_device = last && last->device == p->device;
        bool same = same_device && last->at[last->n - 1]->slice_id == p->slice_id;
        if (!is_located(ctx, p) || !take_place(p, taken) ||
            (same_device && !same_place(&last->where, &p->where)))
            return weft_export__fail(ctx, p->model, "its place is not one of its device alone:",
                                     p->where.node ? p->where.node : "nowhere");
        if (same_device && (strcmp(last->type, p->type) != 0 ||
                            (last->kind == WEFT_SLICE_MIG) != (one.kind == WEFT_SLICE_MIG)))
            return weft_export__fail(ctx, p->model,
                                     "its device has two types or is split in two ways:", p->type);
        if (same && strcmp(last->at[last->n - 1]->slice, p->slice) != 0)
            return weft_export__fail(ctx, p->model,
                                     "its slice id is used for two slices:", p->slice);
        bool joins = same || (same_device && one.kind == WEFT_SLICE_CORES &&
                              same_text(last->where.worker, p->where.worker));
        if (!joins) {
            one.at = &at[i];
            one.where = p->where;
            ctx->worker[ctx->n_worker++] = one;
            last = &ctx->worker[ctx->n_worker - 1];
        } else if (!same) {
            last->cores += one.cores;
        }
        last->n++;
        last->clients += p->procs;
    }
    return WEFT_ERR_OK;
}

/* -- Nodes ------------------------------------------------------------------------------------ */

/* Workers that can be on one node are adjacent: by type, kind of slice, device, then position. */
static int order_workers(const void *a, const void *b)
{
    const export_worker *p = a, *q = b;
    int c = p->where.node && q->where.node ? strcmp(p->where.node, q->where.node) : 0;
    if (!c)
        c = strcmp(p->type, q->type);
    if (c)
        return c;
    if (p->kind != q->kind)
        return p->kind < q->kind ? -1 : 1;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    if (p->mig_start != q->mig_start)
        return p->mig_start < q->mig_start ? -1 : 1;
    return p->at[0]->slice_id < q->at[0]->slice_id ? -1 : p->at[0]->slice_id > q->at[0]->slice_id;
}

/* Opens a node for a worker: the one that the plan names, else the next of the type. */
static export_node *open_node(export_ctx *ctx, const export_worker *w, uint32_t first,
                              uint32_t of_type)
{
    export_node *node = &ctx->node[ctx->n_node++];
    const char *name = w->where.node;
    if (!name) {
        name = weft_arena_printf(ctx->arena, "%s-%s-%u", ctx->o.name, w->type, of_type);
        name = weft_export__label(ctx->arena, name, WEFT_EXPORT_LABEL_MAX);
    }
    *node = (export_node){.name = name, .type = w->type, .kind = w->kind, .first = first};
    return node;
}

/* Whether a worker's device is one more of the node. */
static bool has_room(const export_ctx *ctx, const export_node *node, const export_worker *w)
{
    if (w->where.node)
        return strcmp(node->name, w->where.node) == 0;
    return strcmp(node->type, w->type) == 0 && node->kind == w->kind &&
           w->kind != WEFT_SLICE_CORES && node->n_gpu < ctx->o.gpus_per_node;
}

static void name_worker(const export_ctx *ctx, export_worker *w, uint32_t gpu, uint32_t nth)
{
    w->gpu = w->where.node ? w->where.gpu : gpu;
    w->port = ctx->o.port + 10 * nth;
    w->name =
        weft_arena_printf(ctx->arena, "%s-d%u-s%u", ctx->o.name, w->device, w->at[0]->slice_id);
    if (w->where.worker) {
        w->name = w->where.worker;
        w->port = w->where.port;
    }
}

/* Whether a worker is the first with its name and, on its node, with its port. */
static bool is_only(const export_ctx *ctx, const export_worker *w, weft_map *taken)
{
    const char *node = ctx->node[w->node].name;
    uint64_t keys[] = {weft_hash64(w->name, strlen(w->name), 0),
                       weft_hash64(node, strlen(node), 1 + (uint64_t)w->port)};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (weft_map_get(taken, keys[i], &(uint64_t){0}))
            return false;
        weft_map_put(taken, keys[i], 1);
    }
    return true;
}

static weft_err make_nodes(export_ctx *ctx)
{
    uint32_t of_type = 0;
    weft_map *taken = weft_map_create(ctx->arena);
    qsort(ctx->worker, ctx->n_worker, sizeof *ctx->worker, order_workers);
    ctx->node = weft_arena_array(ctx->arena, ctx->n_worker + 1, sizeof *ctx->node);
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        export_worker *w = &ctx->worker[i];
        const export_worker *last = i ? &ctx->worker[i - 1] : NULL;
        export_node *node = ctx->n_node ? &ctx->node[ctx->n_node - 1] : NULL;
        bool same_type = last && strcmp(last->type, w->type) == 0;
        bool same_device = same_type && last->device == w->device;
        of_type = same_type ? of_type : 0;
        if (!same_device && !(last && has_room(ctx, node, w)))
            node = open_node(ctx, w, i, of_type++);
        if (node->kind != w->kind || strcmp(node->type, w->type) != 0)
            return weft_export__fail(
                ctx, NULL, "devices of two types, or split in two ways, on node", node->name);
        node->n_gpu += !same_device;
        w->node = (uint32_t)(node - ctx->node);
        name_worker(ctx, w, node->n_gpu - 1, node->n++);
        if (!is_only(ctx, w, taken))
            return weft_export__fail(ctx, node->name,
                                     "two workers have the same name, or the same port:", w->name);
        for (uint32_t k = i; k > 0 && ctx->worker[k - 1].device == w->device; k--)
            w->nth += w->kind == WEFT_SLICE_MIG && strcmp(ctx->worker[k - 1].slice, w->slice) == 0;
    }
    return WEFT_ERR_OK;
}

uint32_t weft_export__next_gpu(const export_ctx *ctx, const export_node *node, uint32_t from)
{
    uint32_t next = UINT32_MAX;
    for (uint32_t i = node->first; i < node->first + node->n; i++)
        if (ctx->worker[i].gpu >= from && ctx->worker[i].gpu < next)
            next = ctx->worker[i].gpu;
    return next;
}

/* -- Groups ----------------------------------------------------------------------------------- */

bool weft_export__same_work(const export_worker *a, const export_worker *b)
{
    if (a->kind != b->kind || a->n != b->n || a->cores != b->cores ||
        strcmp(a->type, b->type) != 0 || strcmp(a->slice, b->slice) != 0)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (strcmp(a->at[i]->model, b->at[i]->model) != 0 || a->at[i]->batch != b->at[i]->batch ||
            a->at[i]->procs != b->at[i]->procs ||
            a->at[i]->slice_id - a->at[0]->slice_id != b->at[i]->slice_id - b->at[0]->slice_id)
            return false;
    return true;
}

/* A hash of what a worker does, in which no rate is. */
static uint64_t hash_work(const export_worker *w)
{
    uint64_t h = weft_hash64(w->type, strlen(w->type), w->kind);
    h = weft_hash_mix(weft_hash64(w->slice, strlen(w->slice), h), w->cores);
    for (uint32_t i = 0; i < w->n; i++) {
        const weft_placement *p = w->at[i];
        h = weft_hash64(p->model, strlen(p->model), h);
        h = weft_hash_mix(weft_hash_mix(h, p->batch), p->procs);
        h = weft_hash_mix(h, p->slice_id - w->at[0]->slice_id);
    }
    return h;
}

/* Groups with equal work have equal names in all plans, so that another plan changes only those
 * that differ. */
static weft_err make_groups(export_ctx *ctx)
{
    weft_map *known = weft_map_create(ctx->arena);
    ctx->group = weft_arena_array(ctx->arena, ctx->n_worker + 1, sizeof *ctx->group);
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        export_worker *w = &ctx->worker[i];
        uint64_t hash = hash_work(w) & 0xffffffffff, at = ctx->n_group;
        if (!weft_map_get(known, hash, &at)) {
            weft_map_put(known, hash, at);
            ctx->group[ctx->n_group++] =
                (export_group){.first = i,
                               .name = weft_arena_printf(ctx->arena, "%s-g%010llx", ctx->o.name,
                                                         (unsigned long long)hash)};
        }
        if (!weft_export__same_work(&ctx->worker[ctx->group[at].first], w))
            return weft_export__fail(ctx, NULL, "two groups have the name", ctx->group[at].name);
        w->group = (uint32_t)at;
        ctx->group[at].n++;
    }
    return WEFT_ERR_OK;
}

static int order_names(const void *a, const void *b)
{
    const char *const *p = a, *const *q = b;
    return strcmp(*p, *q);
}

/* Lists the models of placements, sorted, each once; a family stands for its models. */
static size_t list_models(const weft_placement *const *at, size_t n, weft_arena *arena,
                          const char ***out)
{
    const char **name = NULL;
    size_t n_name = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        const char *const *model;
        size_t more = weft_family_models(at[i]->model, arena, &model);
        name = weft_arena_grow(arena, name, n_name * sizeof *name, (n_name + more) * sizeof *name);
        memcpy(name + n_name, model, more * sizeof *name);
        n_name += more;
    }
    qsort(name, n_name, sizeof *name, order_names);
    for (size_t i = 0; i < n_name; i++)
        if (kept == 0 || strcmp(name[kept - 1], name[i]) != 0)
            name[kept++] = name[i];
    *out = name;
    return kept;
}

/* Names that differ in letters which labels do not have get a hash, which another name may have. */
static weft_err check_labels(const export_ctx *ctx)
{
    weft_map *taken = weft_map_create(ctx->arena);
    for (uint32_t i = 0; i < ctx->n_model; i++) {
        const char *label =
            weft_export__label(ctx->arena, ctx->model[i], WEFT_EXPORT_MODEL_LABEL_MAX);
        uint64_t key = weft_hash64(label, strlen(label), 0), other;
        if (weft_map_get(taken, key, &other))
            return weft_diag_error(ctx->diag, WEFT_ERR_INPUT,
                                   (weft_where){.item = ctx->model[other]},
                                   "has the label '%s', as has model '%s'", label, ctx->model[i]);
        weft_map_put(taken, key, i);
    }
    return WEFT_ERR_OK;
}

static void list_all_models(export_ctx *ctx)
{
    const weft_placement **at = weft_arena_array(ctx->arena, ctx->plan->n + 1, sizeof *at);
    for (size_t i = 0; i < ctx->plan->n; i++)
        at[i] = &ctx->plan->at[i];
    ctx->n_model = (uint32_t)list_models(at, ctx->plan->n, ctx->arena, &ctx->model);
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        export_worker *w = &ctx->worker[i];
        w->n_model = list_models(w->at, w->n, ctx->arena, &w->model);
    }
}

/* -- Parts of the plan ------------------------------------------------------------------------ */

/* Adds the rate of a placement to the demands of its models. */
static size_t add_demands(const export_ctx *ctx, const weft_placement *p, weft_demand *demand,
                          size_t n)
{
    export_part *part;
    size_t n_part = weft_export__parts(ctx, p, &part);
    for (size_t i = 0; i < n_part; i++) {
        const weft_demand *d = weft_export__demand(ctx, part[i].model);
        size_t k = 0;
        while (k < n && strcmp(demand[k].model, part[i].model) != 0)
            k++;
        if (k == n)
            demand[n++] = (weft_demand){.model = part[i].model, .slo_us = d ? d->slo_us : 0};
        demand[k].rate_per_s += part[i].rate_per_s;
    }
    return n;
}

/* Writes the plan of one worker, with device 0 as its only device. Figures of the whole plan are
 * left out: the part, by whose hash Kubernetes knows it, is the same wherever its placements are.
 */
static weft_err write_part(export_ctx *ctx, export_worker *w)
{
    weft_demand *demand = weft_arena_array(ctx->arena, w->n_model + 1, sizeof *demand);
    weft_plan part = *ctx->plan;
    size_t n = 0;
    char *text = NULL;
    part.n = w->n;
    part.at = weft_arena_array(ctx->arena, w->n + 1, sizeof *part.at);
    part.gpus = 1;
    part.lower_bound = 1;
    part.proven = false;
    part.decision_ms = 0;
    part.cost_per_hour = 0;
    part.cost_bound = 0;
    part.power_w = 0;
    part.goodput_per_s = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        weft_placement *p = &part.at[i];
        *p = *w->at[i];
        p->device = 0;
        p->where = (weft_location){0};
        part.goodput_per_s += p->rate_per_s;
        n = add_demands(ctx, p, demand, n);
    }
    weft_demands demands = {demand, n};
    WEFT_TRY(weft_plan_to_json(&part, &demands, &text));
    w->plan = weft_arena_printf(ctx->arena, "%s\n", text);
    free(text);
    return WEFT_ERR_OK;
}

/* -- Preparation ------------------------------------------------------------------------------ */

/* Devices of others are planned and simulated, and no worker runs on them. */
static weft_err check_devices(const export_ctx *ctx)
{
    for (size_t i = 0; i < ctx->plan->n; i++) {
        const weft_device_type *type = weft_device_type_find(ctx->plan->at[i].type);
        if (type && type->is_foreign)
            return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, (weft_where){.item = type->name},
                                   "workers run on CPUs and on GPUs of NVIDIA");
    }
    return WEFT_ERR_OK;
}

weft_err weft_export__prepare(export_ctx *ctx)
{
    WEFT_TRY(check_options(ctx));
    if (ctx->plan->n == 0)
        return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "the plan places nothing");
    WEFT_TRY(check_devices(ctx));
    WEFT_TRY(make_workers(ctx));
    WEFT_TRY(make_nodes(ctx));
    WEFT_TRY(weft_export__find_addresses(ctx));
    for (uint32_t i = 0; i < ctx->n_node; i++)
        if (ctx->o.port + 10 * ctx->node[i].n > 65530)
            return weft_export__fail(
                ctx, NULL, "there are not enough ports for the workers of node", ctx->node[i].name);
    WEFT_TRY(make_groups(ctx));
    list_all_models(ctx);
    WEFT_TRY(check_labels(ctx));
    for (uint32_t i = 0; i < ctx->n_worker; i++)
        WEFT_TRY(write_part(ctx, &ctx->worker[i]));
    return WEFT_ERR_OK;
}
