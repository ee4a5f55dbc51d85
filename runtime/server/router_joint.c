/* Which models run together: how many rows of each part of a joint program are sent at once.
 *
 * Every set of models with requests has its entry: a part without any is left empty, which costs a
 * joint program nothing (its launches have no elements), and parts may have different numbers of
 * rows. So no request waits for another model. What does cost, 0.5 to 5 ms, is a combination of
 * sizes that the worker has not prepared; it keeps as many as JOINT_KEPT_MAX. There are more
 * combinations than that from three models on, and with other symbols (lengths of sequences) any
 * number. The frequent ones are found as they come (Misra and Gries, "Finding repeated elements",
 * 1982): each has a counter; one that is not kept lowers the counters of all, and those that reach
 * 0 go.
 *
 * No request has its own sizes prepared first, but for the frequent of a worker that is never idle.
 * A worker prepares the program's buckets before it is ready, and other combinations that are kept
 * when it has nothing to do (what comes meanwhile waits for one of them at most); one that is never
 * idle prepares what has come HASTE times with the request at hand. Until then that combination is
 * sent, of those that the worker has prepared, that serves most of what waits, if it serves more
 * than the model by itself would. So it is with what a worker could not prepare: each model by
 * itself may fit where all together do not. */
#include "runtime/server/router_int.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum { HASTE = 4 };

/* -- Choice ----------------------------------------------------------------------------------- */

static bool is_same(const joint_part *a, const joint_part *b, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (a[k].rows != b[k].rows || (a[k].rows > 0 && a[k].shape != b[k].shape))
            return false;
    return true;
}

/* Rows that it serves; 0: it wants what is not there. */
static int64_t serves(const joint_part *kept, const joint_part *waiting, uint32_t n)
{
    int64_t rows = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (kept[k].rows > waiting[k].rows ||
            (kept[k].rows > 0 && kept[k].shape != waiting[k].shape))
            return 0;
        rows += kept[k].rows;
    }
    return rows;
}

static void forget(router_joint *j, uint32_t i)
{
    joint_size gone = j->kept[i];
    memmove(&j->kept[i], &j->kept[i + 1], (--j->n_kept - i) * sizeof gone);
    j->kept[j->n_kept] = gone; /* its room is used again */
}

static void forget_rare(router_joint *j)
{
    for (uint32_t i = j->n_kept; i-- > 0;)
        if (--j->kept[i].uses == 0)
            forget(j, i);
}

bool weft_joint__choose(router_joint *j, const joint_part *waiting, uint32_t must, uint32_t worker,
                        joint_part *out)
{
    uint32_t n = j->program->n_part, ready = 0, at = 0;
    int64_t most = waiting[must].rows;
    const joint_part *best = NULL;
    for (uint32_t k = 0; k < n; k++)
        ready += waiting[k].rows > 0;
    if (ready < 2 || most == 0)
        return false;
    while (at < j->n_kept && !is_same(j->kept[at].part, waiting, n))
        at++;
    bool known = at < j->n_kept || at < JOINT_KEPT_MAX;
    if (at == j->n_kept && known) {
        joint_size *s = &j->kept[j->n_kept++];
        memcpy(s->part, waiting, n * sizeof *waiting);
        memset(s->ready, 0, j->n_worker * sizeof *s->ready);
        s->uses = 0;
        s->warm = s->refused = false;
    }
    if (known && (++j->kept[at].uses >= HASTE || j->kept[at].ready[worker]) &&
        !j->kept[at].refused) {
        j->kept[at].ready[worker] = true;
        memcpy(out, waiting, n * sizeof *out);
        return true;
    }
    for (uint32_t i = 0; i < j->n_kept; i++) {
        const joint_size *s = &j->kept[i];
        bool can = s->ready[worker] && !s->refused && s->part[must].rows > 0;
        int64_t rows = can ? serves(s->part, waiting, n) : 0;
        if (rows > most) {
            most = rows;
            best = s->part;
        }
    }
    if (best)
        memcpy(out, best, n * sizeof *out);
    if (!known)
        forget_rare(j);
    return best != NULL;
}

/* -- Preparing -------------------------------------------------------------------------------- */

static bool serves_all(const router_worker *w, const router_joint *j)
{
    for (uint32_t k = 0; k < j->program->n_part; k++)
        if (!w->serves[j->program->part[k].program])
            return false;
    return j->empty != NULL;
}

const joint_size *weft_joint__unready(weft_router *router, const router_worker *worker,
                                      router_joint **out_joint)
{
    const joint_size *best = NULL;
    uint32_t number = (uint32_t)(worker - router->worker);
    for (uint32_t i = 0; i < router->bundle->n_joint; i++) {
        router_joint *j = &router->joint[i];
        for (uint32_t k = 0; k < j->n_kept && serves_all(worker, j); k++) {
            const joint_size *s = &j->kept[k];
            if (s->ready[number] || s->refused || (best && s->uses <= best->uses))
                continue;
            best = s;
            *out_joint = j;
        }
    }
    return best;
}

void weft_joint__prepared(router_joint *j, uint32_t worker, const weft_wire_tensor *in, bool done)
{
    for (uint32_t i = 0; i < j->n_kept; i++) {
        if (memcmp(j->kept[i].in, in, j->program->n_input * sizeof *in) != 0)
            continue;
        j->kept[i].ready[worker] = done;
        j->kept[i].refused = !done;
        return;
    }
}

void weft_joint__restarted(weft_router *router, uint32_t worker)
{
    for (uint32_t i = 0; i < router->bundle->n_joint; i++)
        for (uint32_t k = 0; k < router->joint[i].n_kept; k++)
            router->joint[i].kept[k].ready[worker] = router->joint[i].kept[k].warm;
}

/* -- What waits ------------------------------------------------------------------------------- */

static uint64_t hash_dims(const int64_t *dim, uint64_t seed)
{
    return weft_hash64(dim + 1, (WEFT_RANK_MAX - 1) * sizeof *dim, seed);
}

static uint64_t hash_shape(const weft_bundle_program *p, const weft_request *r)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < p->n_input; i++)
        h = hash_dims(r->in[i].dim, h);
    return h;
}

/* Inputs of what waits, as they will be sent. */
static void note_inputs(const weft_router *router, const router_joint *j, joint_size *s)
{
    uint32_t at = 0;
    memcpy(s->in, j->empty, j->program->n_input * sizeof *s->in);
    for (uint32_t k = 0; k < j->program->n_part; at += j->program->part[k++].n_in) {
        const weft_request *r = router->model[j->program->part[k].program].head;
        for (uint32_t i = 0; s->part[k].rows > 0 && i < j->program->part[k].n_in; i++) {
            memcpy(s->in[at + i].dim, r->in[i].dim, sizeof s->in[at + i].dim);
            s->in[at + i].dim[0] = s->part[k].rows;
        }
    }
}

/* Another worker that has nothing to do serves the model. */
static bool is_free_elsewhere(const weft_router *router, const router_worker *worker,
                              uint32_t model)
{
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (&router->worker[i] != worker && router->worker[i].state == WORKER_IDLE &&
            router->worker[i].serves[model])
            return true;
    return false;
}

/* Whether it pays for so much. */
static bool pays(const weft_router *router, const router_joint *j, const joint_part *part)
{
    double elements = 0;
    for (uint32_t k = 0; k < j->program->n_part; k++) {
        const weft_request *r = router->model[j->program->part[k].program].head;
        for (uint32_t i = 0; part[k].rows > 0 && r->rows > 0 && i < j->program->part[k].n_in; i++)
            elements +=
                (double)weft_tensor_numel(&r->in[i]) / (double)r->rows * (double)part[k].rows;
    }
    return j->program->limit == 0 || elements <= (double)j->program->limit;
}

router_joint *weft_joint__find(weft_router *router, const router_worker *worker, uint32_t model,
                               uint64_t now_ns, joint_part *out)
{
    joint_part waiting[JOINT_PARTS_MAX];
    for (uint32_t i = 0; i < router->bundle->n_joint; i++) {
        router_joint *j = &router->joint[i];
        uint32_t n = j->program->n_part, must = n;
        bool served = n <= JOINT_PARTS_MAX && serves_all(worker, j);
        for (uint32_t k = 0; k < n && served; k++) {
            uint32_t at = j->program->part[k].program;
            const router_model *m = &router->model[at];
            must = at == model ? k : must;
            waiting[k] = (joint_part){0};
            if (!m->head || !weft_router__is_due(router, m, now_ns) ||
                is_free_elsewhere(router, worker, at))
                continue;
            waiting[k] = (joint_part){weft_batch__waiting(m), hash_shape(m->program, m->head)};
        }
        if (!served || must == n || !pays(router, j, waiting))
            continue;
        uint32_t n_kept = j->n_kept;
        bool chosen =
            weft_joint__choose(j, waiting, must, (uint32_t)(worker - router->worker), out);
        if (j->n_kept > n_kept)
            note_inputs(router, j, &j->kept[n_kept]);
        if (chosen)
            return j;
    }
    return NULL;
}

/* -- Life ------------------------------------------------------------------------------------- */

/* Inputs of a part without rows: batch 0, other symbols at their least. false: not possible. */
static bool make_empty(const weft_bundle_program *p, int64_t *symbol, weft_wire_tensor *out)
{
    for (uint32_t i = 0; i < p->n_symbol; i++)
        symbol[i] = p->symbol[i].lo > 1 ? p->symbol[i].lo : 1;
    if (p->batch_symbol >= p->n_symbol)
        return false;
    symbol[p->batch_symbol] = 0;
    for (uint32_t i = 0; i < p->n_input; i++) {
        const weft_ttype *t = &p->value[p->input[i].value - 1].type;
        out[i] = (weft_wire_tensor){.dtype = t->dtype, .rank = t->rank};
        for (uint32_t d = 0; d < t->rank; d++)
            if (!weft_dim_eval(p->dims, t->dim[d], symbol, p->n_symbol, &out[i].dim[d]))
                return false;
        if (weft_numel(out[i].dim, t->rank) != 0)
            return false;
    }
    return true;
}

static weft_err make_room(router_joint *j, uint32_t n_worker)
{
    j->n_worker = n_worker;
    j->empty = calloc((size_t)j->program->n_input + 1, sizeof *j->empty);
    bool ok = j->empty != NULL;
    for (uint32_t i = 0; i < JOINT_KEPT_MAX; i++) {
        joint_size *s = &j->kept[i];
        s->part = calloc((size_t)j->program->n_part + 1, sizeof *s->part);
        s->in = calloc((size_t)j->program->n_input + 1, sizeof *s->in);
        s->ready = calloc((size_t)n_worker + 1, sizeof *s->ready);
        ok = ok && s->part && s->in && s->ready;
    }
    return ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

/* The program's buckets are kept from the start. */
static void keep_buckets(router_joint *j)
{
    const weft_bundle_program *p = j->program;
    for (uint32_t b = 0; b < p->n_bucket && j->n_kept < JOINT_KEPT_MAX; b++) {
        joint_size *s = &j->kept[j->n_kept];
        uint32_t at = 0;
        bool known = true;
        memcpy(s->in, j->empty, p->n_input * sizeof *s->in);
        for (uint32_t k = 0; k < p->n_part; k++) {
            s->part[k] = (joint_part){0};
            for (uint32_t i = 0; i < p->part[k].n_in && known; i++, at++) {
                const weft_ttype *t = &p->value[p->input[at].value - 1].type;
                for (uint32_t d = 0; d < t->rank && known; d++)
                    known = weft_dim_eval(p->dims, t->dim[d], p->bucket[b].symbol, p->n_symbol,
                                          &s->in[at].dim[d]);
                s->part[k].rows = s->in[at].dim[0];
                s->part[k].shape = hash_dims(s->in[at].dim, s->part[k].shape);
            }
        }
        s->warm = true;
        s->uses = 1;
        j->n_kept += known;
    }
}

static weft_err open_joint(const weft_bundle *b, router_joint *j, uint32_t n_worker)
{
    uint32_t at = 0, n_symbol = 0;
    for (uint32_t k = 0; k < j->program->n_part; k++) {
        uint32_t n = b->program[j->program->part[k].program].n_symbol;
        n_symbol = n > n_symbol ? n : n_symbol;
    }
    WEFT_TRY(make_room(j, n_worker));
    int64_t *symbol = calloc((size_t)n_symbol + 1, sizeof *symbol);
    bool possible = true;
    for (uint32_t k = 0; k < j->program->n_part && symbol; k++) {
        const weft_bundle_program *p = &b->program[j->program->part[k].program];
        possible = possible && at + p->n_input <= j->program->n_input &&
                   make_empty(p, symbol, j->empty + at);
        at += p->n_input;
    }
    if (!possible) { /* never chosen then */
        free(j->empty);
        j->empty = NULL;
    } else if (symbol) {
        keep_buckets(j);
    }
    weft_err err = symbol ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    free(symbol);
    return err;
}

weft_err weft_joint__create(weft_router *router)
{
    const weft_bundle *b = router->bundle;
    router->joint = calloc((size_t)b->n_joint + 1, sizeof *router->joint);
    if (!router->joint)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < b->n_joint; i++) {
        router->joint[i].program = &b->program[b->n_program + i];
        WEFT_TRY(open_joint(b, &router->joint[i], router->n_worker));
    }
    return WEFT_ERR_OK;
}

void weft_joint__destroy(weft_router *router)
{
    for (uint32_t i = 0; router->joint && i < router->bundle->n_joint; i++) {
        router_joint *j = &router->joint[i];
        for (uint32_t k = 0; k < JOINT_KEPT_MAX; k++) {
            free(j->kept[k].part);
            free(j->kept[k].in);
            free(j->kept[k].ready);
        }
        free(j->empty);
    }
    free(router->joint);
}
