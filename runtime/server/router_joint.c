/* Which models of a joint program run together, and how many rows each has.
 *
 * A joint program has an entry for every subset of its models: a part without requests is left
 * empty, and its launches then have no elements and cost nothing. Parts may differ in their numbers
 * of rows. So no request waits for requests of another model.
 *
 * A combination of sizes that a worker has not prepared costs 0.5 to 5 ms on first use, and a
 * session keeps JOINT_KEPT_MAX prepared. From three models on there are more combinations than
 * that, and any number when sizes include other symbols, such as sequence lengths. The frequent
 * ones are found online by the algorithm of Misra and Gries ("Finding repeated elements", 1982):
 * each tracked combination has a counter; a combination that is not tracked, when all places are
 * taken, decrements every counter, and combinations whose counter reaches 0 are dropped.
 *
 * Requests should not wait for preparations. A worker prepares the program's buckets before it is
 * ready and other tracked combinations when it is idle, so that a request waits for at most one
 * preparation. A worker that is never idle prepares a combination together with its requests once
 * that combination has come PREPARE_USES times. Until then the selection takes, of the combinations
 * that the worker has prepared, the one that serves most of the waiting rows, if it serves more
 * rows than the model that must run has by itself. The same holds for a combination that a worker
 * failed to prepare, which is never sent: the models may fit the device's memory only one at a
 * time.
 */
#include "runtime/server/router_int.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum { PREPARE_USES = 4, LEAST_MAX = 4096 /* tried for sizes of empty inputs */ };

/* -- Selection -------------------------------------------------------------------------------- */

static bool is_same(const joint_part *a, const joint_part *b, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (a[k].rows != b[k].rows || (a[k].rows > 0 && a[k].shape != b[k].shape))
            return false;
    return true;
}

/* Waiting rows that the combination `kept` serves; 0: some part of `kept` has no such rows waiting.
 */
static int64_t count_served(const joint_part *kept, const joint_part *waiting, uint32_t n)
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

static void stop_tracking(router_joint *j, uint32_t i)
{
    joint_size gone = j->kept[i];
    memmove(&j->kept[i], &j->kept[i + 1], (--j->n_kept - i) * sizeof gone);
    j->kept[j->n_kept] = gone; /* keeps its arrays for the next combination */
}

static void decrement_all(router_joint *j)
{
    for (uint32_t i = j->n_kept; i-- > 0;)
        if (--j->kept[i].uses == 0)
            stop_tracking(j, i);
}

/* The tracked combination that equals `waiting`; it is added if a place is free. NULL: none. */
static joint_size *track(router_joint *j, const joint_part *waiting)
{
    uint32_t n = j->program->n_part, at = 0;
    while (at < j->n_kept && !is_same(j->kept[at].part, waiting, n))
        at++;
    if (at == JOINT_KEPT_MAX)
        return NULL;
    joint_size *s = &j->kept[at];
    if (at == j->n_kept) {
        j->n_kept++;
        memcpy(s->part, waiting, n * sizeof *waiting);
        memset(s->ready, 0, j->n_worker * sizeof *s->ready);
        s->uses = 0;
        s->is_bucket = s->failed = false;
    }
    return s;
}

bool weft_joint__select(router_joint *j, const joint_part *waiting, uint32_t must, uint32_t worker,
                        joint_part *out)
{
    uint32_t n = j->program->n_part, n_waiting = 0;
    int64_t most = waiting[must].rows;
    const joint_part *best = NULL;
    for (uint32_t k = 0; k < n; k++)
        n_waiting += waiting[k].rows > 0;
    if (n_waiting < 2 || most == 0)
        return false;
    joint_size *exact = track(j, waiting);
    if (exact && (++exact->uses >= PREPARE_USES || exact->ready[worker]) && !exact->failed) {
        exact->ready[worker] = true;
        memcpy(out, waiting, n * sizeof *out);
        return true;
    }
    for (uint32_t i = 0; i < j->n_kept; i++) {
        const joint_size *s = &j->kept[i];
        bool usable = s->ready[worker] && !s->failed && s->part[must].rows > 0;
        int64_t rows = usable ? count_served(s->part, waiting, n) : 0;
        if (rows > most) {
            most = rows;
            best = s->part;
        }
    }
    if (best)
        memcpy(out, best, n * sizeof *out);
    if (!exact)
        decrement_all(j);
    return best != NULL;
}

/* -- Preparation ------------------------------------------------------------------------------ */

/* Whether the worker can run the joint program: it serves two of its models or more, and leaves the
 * parts of the others empty. */
static bool can_run(const router_worker *w, const router_joint *j)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < j->program->n_part; k++)
        n += w->serves[j->first + j->program->part[k].program];
    return j->empty != NULL && n >= 2;
}

/* Whether the worker serves all models that have rows in the combination. */
static bool covers(const router_worker *w, const router_joint *j, const joint_size *s)
{
    for (uint32_t k = 0; k < j->program->n_part; k++)
        if (s->part[k].rows > 0 && !w->serves[j->first + j->program->part[k].program])
            return false;
    return true;
}

const joint_size *weft_joint__unprepared(joint_set *set, const router_worker *worker, uint32_t at,
                                         router_joint **out_joint)
{
    const joint_size *best = NULL;
    for (uint32_t i = 0; i < set->n; i++) {
        router_joint *j = &set->at[i];
        for (uint32_t k = 0; k < j->n_kept && can_run(worker, j); k++) {
            const joint_size *s = &j->kept[k];
            if (s->ready[at] || s->failed || (best && s->uses <= best->uses) ||
                !covers(worker, j, s))
                continue;
            best = s;
            *out_joint = j;
        }
    }
    return best;
}

void weft_joint__set_prepared(router_joint *j, uint32_t worker, const weft_wire_tensor *in,
                              bool done)
{
    for (uint32_t i = 0; i < j->n_kept; i++) {
        if (memcmp(j->kept[i].in, in, j->program->n_input * sizeof *in) != 0)
            continue;
        j->kept[i].ready[worker] = done;
        j->kept[i].failed = !done;
        return;
    }
}

void weft_joint__reset_worker(joint_set *set, const router_worker *worker, uint32_t at)
{
    for (uint32_t i = 0; i < set->n; i++)
        for (uint32_t k = 0; k < set->at[i].n_kept; k++) {
            joint_size *s = &set->at[i].kept[k];
            s->ready[at] = s->is_bucket && covers(worker, &set->at[i], s);
        }
}

/* -- Waiting requests ------------------------------------------------------------------------- */

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

/* Sets the inputs of a combination to those of the requests at the heads of the queues, with its
 * numbers of rows. */
static void set_inputs(const router_model *model, const router_joint *j, joint_size *s)
{
    uint32_t at = 0;
    memcpy(s->in, j->empty, j->program->n_input * sizeof *s->in);
    for (uint32_t k = 0; k < j->program->n_part; at += j->program->part[k++].n_in) {
        const weft_request *r = model[j->first + j->program->part[k].program].head;
        for (uint32_t i = 0; s->part[k].rows > 0 && i < j->program->part[k].n_in; i++) {
            memcpy(s->in[at + i].dim, r->in[i].dim, sizeof s->in[at + i].dim);
            s->in[at + i].dim[0] = s->part[k].rows;
        }
    }
}

/* Whether another idle worker serves the model. */
static bool is_free_elsewhere(const joint_query *q, uint32_t model)
{
    for (uint32_t i = 0; i < q->n_worker; i++)
        if (i != q->at && q->worker[i].process.state == WORKER_IDLE && q->worker[i].serves[model])
            return true;
    return false;
}

bool weft_joint__can_join(const joint_query *q, uint32_t model)
{
    const router_model *m = &q->model[model];
    return m->head && q->worker[q->at].serves[model] &&
           weft_batch__is_due(m, q->delay_us, q->now_ns) && !is_free_elsewhere(q, model);
}

/* Whether the joint program is faster at these sizes: its inputs have at most `limit` elements. */
static bool is_within_limit(const joint_query *q, const router_joint *j, const joint_part *part)
{
    double elements = 0;
    for (uint32_t k = 0; k < j->program->n_part; k++) {
        const weft_request *r = q->model[j->first + j->program->part[k].program].head;
        for (uint32_t i = 0; part[k].rows > 0 && r->rows > 0 && i < j->program->part[k].n_in; i++)
            elements +=
                (double)weft_tensor_numel(&r->in[i]) / (double)r->rows * (double)part[k].rows;
    }
    return j->program->limit == 0 || elements <= (double)j->program->limit;
}

/* The sizes that wait for the parts of the joint program. Returns the part of the model that must
 * run; n_part: the model is no part of it, or the worker cannot run it. */
static uint32_t find_waiting(const joint_query *q, const router_joint *j, size_t *compared,
                             joint_part *out)
{
    uint32_t n = j->program->n_part, must = n;
    if (n > JOINT_PARTS_MAX || !can_run(&q->worker[q->at], j))
        return n;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t at = j->first + j->program->part[k].program;
        const router_model *m = &q->model[at];
        must = at == q->must ? k : must;
        out[k] = (joint_part){0};
        if (weft_joint__can_join(q, at))
            out[k] =
                (joint_part){weft_batch__waiting(m, compared), hash_shape(m->program, m->head)};
    }
    return must;
}

router_joint *weft_joint__find(joint_set *set, const joint_query *q, joint_part *out)
{
    joint_part waiting[JOINT_PARTS_MAX];
    size_t compared = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        router_joint *j = &set->at[i];
        uint32_t must = find_waiting(q, j, &compared, waiting), n_kept = j->n_kept;
        if (must == j->program->n_part || !is_within_limit(q, j, waiting))
            continue;
        bool selected = weft_joint__select(j, waiting, must, q->at, out);
        if (j->n_kept > n_kept)
            set_inputs(q->model, j, &j->kept[n_kept]);
        if (selected)
            return j;
    }
    return NULL;
}

/* -- Life ------------------------------------------------------------------------------------- */

/* Whether each value has a size, but for what only data tells. */
static bool has_sizes(const weft_bundle_program *p, const int64_t *symbol)
{
    for (uint32_t v = 0; v < p->n_value; v++) {
        const weft_ttype *t = &p->value[v].type;
        for (uint32_t d = 0; d < t->rank; d++) {
            int64_t size;
            if (!weft_dim_is_data(p->dims, t->dim[d]) &&
                (!weft_dim_eval(p->dims, t->dim[d], symbol, p->n_symbol, &size) || size < 0))
                return false;
        }
    }
    return true;
}

/* Batch 0, and each other symbol the least number that is allowed and at least `least`. */
static void set_symbols(const weft_bundle_program *p, int64_t least, int64_t *symbol)
{
    for (uint32_t i = 0; i < p->n_symbol; i++) {
        symbol[i] = p->symbol[i].hi < least ? p->symbol[i].hi : least;
        symbol[i] = p->symbol[i].lo > symbol[i] ? p->symbol[i].lo : symbol[i];
    }
    symbol[p->batch_symbol] = 0;
}

/* Inputs of a part without rows: batch 0, other symbols at their minima, or so large that windows
 * fit into images. false: they would have elements. */
static bool make_empty(const weft_bundle_program *p, int64_t *symbol, weft_wire_tensor *out)
{
    int64_t least = 1;
    if (p->batch_symbol >= p->n_symbol)
        return false;
    for (; least <= LEAST_MAX; least *= 2) {
        set_symbols(p, least, symbol);
        if (has_sizes(p, symbol))
            break;
    }
    if (least > LEAST_MAX)
        set_symbols(p, 1, symbol);
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

/* Tracks the program's buckets from the start. */
static void track_buckets(router_joint *j)
{
    const weft_bundle_program *p = j->program;
    for (uint32_t b = 0; b < p->n_bucket && j->n_kept < JOINT_KEPT_MAX; b++) {
        joint_size *s = &j->kept[j->n_kept];
        uint32_t at = 0;
        bool ok = true;
        memcpy(s->in, j->empty, p->n_input * sizeof *s->in);
        for (uint32_t k = 0; k < p->n_part; k++) {
            s->part[k] = (joint_part){0};
            for (uint32_t i = 0; i < p->part[k].n_in && ok; i++, at++) {
                const weft_ttype *t = &p->value[p->input[at].value - 1].type;
                for (uint32_t d = 0; d < t->rank && ok; d++)
                    ok = weft_dim_eval(p->dims, t->dim[d], p->bucket[b].symbol, p->n_symbol,
                                       &s->in[at].dim[d]);
                s->part[k].rows = s->in[at].dim[0];
                s->part[k].shape = hash_dims(s->in[at].dim, s->part[k].shape);
            }
        }
        s->is_bucket = true;
        s->uses = 1;
        j->n_kept += ok;
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
    if (!possible) { /* without empty inputs the program is never selected */
        free(j->empty);
        j->empty = NULL;
    } else if (symbol) {
        track_buckets(j);
    }
    weft_err err = symbol ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    free(symbol);
    return err;
}

weft_err weft_joint__create(const weft_bundle *b, uint32_t first, uint32_t n_worker, joint_set *out)
{
    *out = (joint_set){.at = calloc((size_t)b->n_joint + 1, sizeof *out->at)};
    if (!out->at)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < b->n_joint; i++) {
        if (b->program[b->n_program + i].is_packed)
            continue;
        router_joint *j = &out->at[out->n++];
        j->program = &b->program[b->n_program + i];
        j->first = first;
        WEFT_TRY(open_joint(b, j, n_worker));
    }
    return WEFT_ERR_OK;
}

void weft_joint__destroy(joint_set *set)
{
    for (uint32_t i = 0; i < set->n; i++) {
        router_joint *j = &set->at[i];
        for (uint32_t k = 0; k < JOINT_KEPT_MAX; k++) {
            free(j->kept[k].part);
            free(j->kept[k].in);
            free(j->kept[k].ready);
        }
        free(j->empty);
    }
    free(set->at);
    *set = (joint_set){0};
}
