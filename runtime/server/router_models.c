/* The bundles that a router serves, and which version of a model answers.
 *
 * The models of a bundle get places of the router side by side, so that model k of a bundle is the
 * router's model first + k. A model is known by its name and the version under which its bundle
 * was loaded. A place is used again only when no request and no answer refers to its model. */
#include "runtime/server/router_int.h"

#include "base/file.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- Versions --------------------------------------------------------------------------------- */

bool weft_serve_is_version(const char *text)
{
    size_t len = strspn(text, "0123456789");
    return text[len] == '\0' && len > 0 && len < WEFT_VERSION_MAX - 1 && text[0] != '0';
}

/* < 0, 0, > 0: as strcmp. */
static int compare_versions(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    return n != m ? (n > m) - (n < m) : strcmp(a, b);
}

/* The same for a model and its adapters: names up to a mark. */
static uint32_t key_of(const char *name, size_t len)
{
    const char *mark = memchr(name, WEFT_ADAPTER_MARK, len);
    return (uint32_t)weft_hash64(name, mark ? (size_t)(mark - name) : len, 0);
}

void weft_router__set_key(weft_router *router, uint32_t model)
{
    const char *name = weft_bundle_served(router->model[model].program);
    router->key[model] = key_of(name, strlen(name));
}

static bool has_name(const router_model *m, const char *name, size_t len)
{
    const char *own = m->shown ? weft_bundle_served(m->program) : "";
    return m->shown && strlen(own) == len && memcmp(own, name, len) == 0;
}

/* Whether `a` answers what asks for no version rather than `b`. */
static bool is_preferred(const router_model *a, const router_model *b)
{
    return a->weight != b->weight ? a->weight > b->weight
                                  : compare_versions(a->version, b->version) > 0;
}

const char *weft_router__adapter_in(const weft_bundle_program *program, const char *name,
                                    size_t len, bool *out_named)
{
    const char *own = weft_bundle_served(program);
    size_t n = strlen(own);
    bool begins = n <= len && memcmp(name, own, n) == 0;
    const char *adapter = begins && n < len && name[n] == WEFT_ADAPTER_MARK ? name + n + 1 : NULL;
    *out_named = begins && (n == len || adapter);
    return adapter;
}

/* Whether the name is that of the model, or of an adapter that it has. */
static bool answers_name(const router_model *m, const char *name, size_t len)
{
    bool named = false;
    weft_live_adapter *live;
    const char *adapter = m->shown ? weft_router__adapter_in(m->program, name, len, &named) : NULL;
    return named && (!adapter ||
                     weft_batch__find_adapter(m, adapter, (size_t)(name + len - adapter), &live));
}

uint32_t weft_router__find(const weft_router *router, const char *name, size_t len,
                           const char *version, size_t version_len)
{
    uint32_t found = UINT32_MAX, key = key_of(name, len);
    for (uint32_t i = 0; i < router->n_model; i++) {
        const router_model *m = &router->model[i];
        if (router->key[i] != key || !answers_name(m, name, len) || !weft_router__serves(router, i))
            continue;
        if (version_len &&
            (strlen(m->version) != version_len || memcmp(m->version, version, version_len) != 0))
            continue;
        if (found == UINT32_MAX || is_preferred(m, &router->model[found]))
            found = i;
    }
    return found;
}

uint32_t weft_router__next_version(const weft_router *router, uint32_t model, uint32_t after)
{
    const char *name = weft_bundle_served(router->model[model].program);
    uint32_t next = UINT32_MAX;
    for (uint32_t i = 0; i < router->n_model; i++) {
        const router_model *m = &router->model[i];
        if (router->key[i] != router->key[model] || !has_name(m, name, strlen(name)) ||
            (after != UINT32_MAX &&
             compare_versions(m->version, router->model[after].version) <= 0))
            continue;
        if (next == UINT32_MAX || compare_versions(m->version, router->model[next].version) < 0)
            next = i;
    }
    return next;
}

bool weft_router__versions_ready(const weft_router *router, uint32_t model)
{
    bool any = false;
    for (uint32_t i = UINT32_MAX; (i = weft_router__next_version(router, model, i)) != UINT32_MAX;)
        if (router->model[i].weight > 0) {
            any = true;
            if (!weft_router__is_ready(router, i))
                return false;
        }
    return any || weft_router__is_ready(router, model);
}

/* Smooth weighted round robin: over any run of requests each version gets its part, spread evenly.
 * A version without a ready worker is passed over while another has one. */
uint32_t weft_router__choose(weft_router *router, uint32_t model)
{
    const char *name = weft_bundle_served(router->model[model].program);
    size_t len = strlen(name);
    double sum = 0;
    uint32_t best = UINT32_MAX;
    bool any_ready = false;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < router->n_model; i++) {
            router_model *m = &router->model[i];
            if (router->key[i] != router->key[model] || !has_name(m, name, len) ||
                !(m->weight > 0) || !weft_router__serves(router, i))
                continue;
            bool ready = weft_router__is_ready(router, i);
            if (pass == 0) {
                any_ready = any_ready || ready;
                continue;
            }
            if (any_ready && !ready)
                continue;
            m->credit += m->weight;
            sum += m->weight;
            if (best == UINT32_MAX || m->credit > router->model[best].credit)
                best = i;
        }
    if (best == UINT32_MAX)
        return model;
    router->model[best].credit -= sum;
    return best;
}

/* -- Use -------------------------------------------------------------------------------------- */

void weft_router__hold(weft_router *router, uint32_t model)
{
    router->model[model].n_held++;
}

void weft_router__release(weft_router *router, uint32_t model)
{
    router->model[model].n_held--;
}

void weft_router__begin_use(weft_router *router, uint32_t model)
{
    router->model[model].n_use++;
}

void weft_router__end_use(weft_router *router, uint32_t model)
{
    router->model[model].n_use--;
}

uint32_t weft_router__model_count(const weft_router *router)
{
    return router->n_model;
}

bool weft_router__is_shown(const weft_router *router, uint32_t model)
{
    return router->model[model].shown;
}

weft_model_ref weft_router__model(const weft_router *router, uint32_t model)
{
    const router_model *m = &router->model[model];
    return (weft_model_ref){.at = model, .program = m->program, .version = m->version};
}

double weft_router__weight(const weft_router *router, uint32_t model)
{
    return router->model[model].weight;
}

void weft_router__set_weight(weft_router *router, uint32_t model, double weight)
{
    router->model[model].weight = weight;
    for (uint32_t i = 0; i < router->n_model; i++)
        router->model[i].credit = 0;
}

uint64_t weft_router__memory_bytes(const weft_router *router, uint32_t model)
{
    const router_bundle *b = router->model[model].bundle;
    uint32_t i = b ? model - b->first : 0;
    return b && b->memory && i < b->bundle->n_program ? b->memory[i] : 0;
}

const char *weft_router__memory_kind(const weft_router *router, uint32_t model)
{
    return router->model[model].bundle->bundle->n_arch ? "GPU" : "CPU";
}

const char *weft_router__bundle_path(const weft_router *router, uint32_t model)
{
    return router->model[model].bundle->path;
}

const char *weft_router__bundle_file(const weft_router *router, uint32_t model)
{
    return router->model[model].bundle->file;
}

uint64_t weft_router__identity(const weft_router *router, uint32_t model)
{
    return router->model[model].bundle->bundle->identity;
}

bool weft_router__spreads(const weft_router *router, uint32_t model)
{
    return router->model[model].bundle->spreads;
}

/* -- Bundles ---------------------------------------------------------------------------------- */

static weft_err open_file(const weft_serve_bundle *from, bool trust, weft_diag *diag, int *out)
{
    if (!from->folder)
        return (trust ? weft_file_open : weft_file_freeze)(from->path, diag, out);
    size_t skip = strlen(from->folder);
    WEFT_TRY(weft_file_open_beneath(from->folder, from->path + skip + 1, diag, out));
    int fd = *out;
    *out = -1;
    return weft_file_freeze_fd(fd, from->path, diag, out);
}

static bool has_face(const weft_bundle *bundle, const char *name, bool by_request)
{
    for (uint32_t i = 0; i < weft_bundle_faces(bundle); i++) {
        const weft_bundle_program *p = weft_bundle_face(bundle, i);
        if (strcmp(by_request ? weft_bundle_served(p) : p->name, name) == 0)
            return true;
    }
    return false;
}

/* A bundle for CPUs on slices of GPUs is no error: a plan may be tried on CPUs. */
static void check_target(const weft_bundle *b, const weft_serve_options *options, const char *path)
{
    char why[128];
    if (!options->n_slice || !options->slice[0].gpu || strncmp(b->target, "sm_", 3) == 0)
        return;
    snprintf(why, sizeof why,
             "is compiled for %.40s: its models do not run on the GPUs of the plan",
             *b->target ? b->target : "cpu");
    WEFT_LOG(WEFT_LOG_WARN, "bundle_for_cpu", {.key = "path", .text = path},
             {.key = "why", .text = why});
}

static weft_err count_memory(router_bundle *b)
{
    uint32_t *marked = calloc(b->bundle->n_weight + 1, sizeof *marked);
    b->memory = calloc(b->bundle->n_program + 1, sizeof *b->memory);
    if (marked && b->memory)
        weft_bundle_count_memory(b->bundle, marked, b->memory);
    weft_err err = marked && b->memory ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    free(marked);
    return err;
}

weft_err weft_router__read_bundle(const weft_serve_bundle *from, const weft_serve_options *options,
                                  weft_diag *diag, router_bundle **out)
{
    const char *keys = options->require_signature;
    bool trust = options->trust_bundle && !keys;
    router_bundle *b = calloc(1, sizeof *b);
    if (!b)
        return WEFT_ERR_NOMEM;
    b->fd = -1;
    b->path = strdup(from->path);
    b->file = realpath(from->path, NULL);
    b->spreads = from->spreads;
    if (!b->file) /* opening tells why, unless it is there now */
        b->file = strdup(from->path);
    weft_err err = b->path && b->file ? open_file(from, trust, diag, &b->fd) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && keys)
        err = weft_signature_require(b->fd, from->folder, b->path, keys, diag);
    if (err == WEFT_ERR_OK)
        err = weft_bundle_open_fd(b->fd, b->path, diag, &b->bundle);
    if (err == WEFT_ERR_OK) {
        check_target(b->bundle, options, b->path);
        err = count_memory(b);
    }
    if (err == WEFT_ERR_OK && from->identity && from->identity != b->bundle->identity)
        err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = b->path},
                              "has other contents than the bundle that was loaded from there");
    for (uint32_t i = 0; i < from->n_model && err == WEFT_ERR_OK; i++)
        if (!has_face(b->bundle, from->model[i], !from->model_weight))
            err = weft_bundle_refuse_model(b->bundle, from->model[i], (weft_where){.file = b->path},
                                           diag);
    if (err != WEFT_ERR_OK) {
        weft_router__free_bundle(NULL, b);
        return err;
    }
    *out = b;
    return WEFT_ERR_OK;
}

static void close_bundle(router_bundle *b)
{
    weft_joint__destroy(&b->joints);
    weft_bundle_close(b->bundle);
    if (b->fd >= 0)
        close(b->fd);
    free(b->memory);
    free(b->path);
    free(b->file);
    free(b);
}

static void run_close(weft_job *job)
{
    close_bundle((router_bundle *)((char *)job - offsetof(router_bundle, job)));
}

void weft_router__free_bundle(const weft_router *router, router_bundle *b)
{
    if (!b)
        return;
    if (!router || !router->offload) {
        close_bundle(b);
        return;
    }
    b->job = (weft_job){.run = run_close};
    weft_offload__submit(router->offload, &b->job);
}

void weft_router__free_beside(weft_router *router, weft_offload *offload)
{
    router->offload = offload;
}

/* The first of n places side by side that are free; model_room: there are none. */
static uint32_t find_places(const weft_router *router, uint32_t n)
{
    uint32_t run = 0;
    for (uint32_t i = 0; i < router->model_room; i++) {
        run = router->model[i].program ? 0 : run + 1;
        if (run >= n)
            return i + 1 - run;
    }
    return router->model_room;
}

/* Whether the bundle has a later version of the same model. */
static bool has_later(const weft_bundle *bundle, const weft_bundle_program *p)
{
    for (uint32_t i = 0; i < bundle->n_program && p->version; i++) {
        const weft_bundle_program *other = &bundle->program[i];
        if (other->version && compare_versions(other->version, p->version) > 0 &&
            strcmp(weft_bundle_served(other), weft_bundle_served(p)) == 0)
            return true;
    }
    return false;
}

/* Whether the model is one of those to serve; *out_weight: its weight. Of several versions in one
 * bundle the latest answers requests that name none. A state that is restored (`model_weight`)
 * names each version by the name that it has in the bundle. */
static bool is_asked_for(const weft_serve_bundle *as, const weft_bundle *bundle,
                         const weft_bundle_program *p, double *out_weight)
{
    const char *name = as->model_weight ? p->name : weft_bundle_served(p);
    *out_weight = as->has_weight ? as->weight : !has_later(bundle, p);
    for (uint32_t i = 0; i < as->n_model; i++)
        if (strcmp(as->model[i], name) == 0) {
            *out_weight = as->model_weight ? as->model_weight[i] : *out_weight;
            return true;
        }
    return as->n_model == 0;
}

weft_err weft_router__add_bundle(weft_router *router, router_bundle *b, const weft_serve_bundle *as,
                                 weft_diag *diag)
{
    const weft_bundle *bundle = b->bundle;
    uint32_t n = weft_bundle_faces(bundle);
    b->first = find_places(router, n);
    if (n > router->model_room - b->first)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){.file = b->path},
                               "has %u models, there is no room for them beside the others", n);
    WEFT_TRY(weft_joint__create(bundle, b->first, router->worker_room, &b->joints));
    for (uint32_t k = 0; k < n; k++) {
        router_model *m = &router->model[b->first + k];
        const weft_bundle_program *program = weft_bundle_face(bundle, k);
        int64_t largest = weft_batch__largest(program);
        *m = (router_model){.program = program,
                            .packed = weft_batch__find_packed(bundle, k, false),
                            .family = weft_batch__find_packed(bundle, k, true),
                            .heads = weft_heads__find(bundle, k),
                            .bundle = b,
                            .live = router->live,
                            .shares_equal = !router->options->compute_each &&
                                            weft_equal__is_repeatable(bundle, program),
                            .largest_bucket = largest > 0 ? largest : 1};
        const char *version = as->version           ? as->version
                              : m->program->version ? m->program->version
                                                    : "1";
        m->wanted = is_asked_for(as, bundle, m->program, &m->weight);
        if (k >= bundle->n_program) {
            m->app = weft_served_app__create(bundle, &bundle->app[k - bundle->n_program]);
            m->wanted = m->wanted && m->app && weft_served_app__is_servable(m->app);
        }
        memcpy(m->version, version, strnlen(version, sizeof m->version - 1));
        weft_router__set_key(router, b->first + k);
        weft_histogram__init(&m->stats.duration, m->program->slo_us);
        weft_histogram__init(&m->stats.queued, m->program->slo_us);
    }
    if (b->first + n > router->n_model)
        router->n_model = b->first + n;
    b->next = router->bundles;
    router->bundles = b;
    return WEFT_ERR_OK;
}

/* The model shown under the same name and version; NULL: none. */
static router_model *find_equal(const weft_router *router, const router_model *m)
{
    uint32_t key = router->key[m - router->model];
    for (uint32_t i = 0; i < router->n_model; i++) {
        router_model *other = &router->model[i];
        if (router->key[i] == key && other != m && other->shown &&
            strcmp(other->version, m->version) == 0 &&
            strcmp(weft_bundle_served(other->program), weft_bundle_served(m->program)) == 0)
            return other;
    }
    return NULL;
}

weft_err weft_router__show(weft_router *router, router_bundle *b, weft_diag *diag)
{
    for (uint32_t k = 0; k < weft_bundle_faces(b->bundle); k++) {
        router_model *m = &router->model[b->first + k];
        const router_model *other = m->wanted ? find_equal(router, m) : NULL;
        if (other)
            return weft_diag_error(
                diag, WEFT_ERR_INPUT,
                (weft_where){.file = b->path, .item = weft_bundle_served(m->program)},
                "%s has version %s of this model as well; name another version",
                other->bundle->path, m->version);
        m->shown = m->wanted;
    }
    return WEFT_ERR_OK;
}

void weft_router__remove_bundle(weft_router *router, router_bundle *b)
{
    router_bundle **at = &router->bundles;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    for (uint32_t k = 0; k < weft_bundle_faces(b->bundle); k++)
        weft_served_app__destroy(router->model[b->first + k].app);
    memset(&router->model[b->first], 0, weft_bundle_faces(b->bundle) * sizeof *router->model);
    weft_router__free_bundle(router, b);
}

static bool is_unused(const weft_router *router, const router_bundle *b)
{
    for (uint32_t k = 0; k < weft_bundle_faces(b->bundle); k++) {
        const router_model *m = &router->model[b->first + k];
        if (m->wanted || m->shown || m->n_held || m->n_use || m->stats.pending)
            return false;
    }
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (router->worker[i].bundle == b)
            return false;
    return true;
}

static bool is_wanted(const weft_router *router, const router_bundle *b)
{
    for (uint32_t k = 0; k < weft_bundle_faces(b->bundle); k++)
        if (router->model[b->first + k].wanted)
            return true;
    return false;
}

bool weft_router__remove_unused(weft_router *router)
{
    bool left = false;
    for (router_bundle *b = router->bundles, *next; b; b = next) {
        next = b->next;
        if (is_unused(router, b))
            weft_router__remove_bundle(router, b);
        else
            left = left || !is_wanted(router, b);
    }
    return left;
}
