/* Which models run together: how many rows of each part of a joint program are sent at once.
 *
 * Every set of models with requests has its entry: a part without any is left empty, which costs a
 * joint program nothing (its launches have no elements), and parts may have different numbers of
 * rows. So no request waits for another model. What does cost, 0.5 to 5 ms, is a combination of
 * sizes that the worker has not prepared; it keeps as many as JOINT_KEPT_MAX. There are more
 * combinations than that from three models on, and with other symbols (lengths of sequences) any
 * number. The frequent ones are found as they come (Misra and Gries, "Finding repeated elements",
 * 1982): each has a counter; one that is not kept lowers the counters of all, and those that reach
 * 0 go. Instead of it the kept combination is sent that serves most of what waits, if it serves
 * more than the model by itself would. */
#include "runtime/router_int.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

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

static void forget_rare(router_joint *j)
{
    uint32_t n = j->program->n_part, left = 0;
    for (uint32_t i = 0; i < j->n_kept; i++) {
        if (--j->uses[i] == 0)
            continue;
        memmove(j->kept + (size_t)left * n, j->kept + (size_t)i * n, n * sizeof *j->kept);
        j->uses[left++] = j->uses[i];
    }
    j->n_kept = left;
}

bool weft_joint__choose(router_joint *j, const joint_part *waiting, uint32_t must, joint_part *out)
{
    uint32_t n = j->program->n_part, ready = 0;
    int64_t most = waiting[must].rows;
    const joint_part *best = NULL;
    for (uint32_t k = 0; k < n; k++)
        ready += waiting[k].rows > 0;
    if (ready < 2 || most == 0)
        return false;
    for (uint32_t i = 0; i < j->n_kept && !best; i++)
        if (is_same(j->kept + (size_t)i * n, waiting, n)) {
            best = j->kept + (size_t)i * n;
            j->uses[i]++;
        }
    if (!best && j->n_kept < JOINT_KEPT_MAX) {
        best = memcpy(j->kept + (size_t)j->n_kept * n, waiting, n * sizeof *waiting);
        j->uses[j->n_kept++] = 1;
    }
    if (best) {
        memcpy(out, best, n * sizeof *out);
        return true;
    }
    for (uint32_t i = 0; i < j->n_kept; i++) {
        const joint_part *kept = j->kept + (size_t)i * n;
        int64_t rows = kept[must].rows > 0 ? serves(kept, waiting, n) : 0;
        if (rows > most) {
            most = rows;
            best = kept;
        }
    }
    if (best)
        memcpy(out, best, n * sizeof *out);
    forget_rare(j);
    return best != NULL;
}

/* -- What waits ------------------------------------------------------------------------------- */

static uint64_t hash_shape(const weft_bundle_program *p, const weft_request *r)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < p->n_input; i++)
        h = weft_hash64(r->in[i].dim + 1, sizeof r->in[i].dim - sizeof r->in[i].dim[0], h);
    return h;
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
        bool served = j->empty != NULL && n <= JOINT_PARTS_MAX;
        for (uint32_t k = 0; k < n && served; k++) {
            uint32_t at = j->program->part[k].program;
            const router_model *m = &router->model[at];
            must = at == model ? k : must;
            served = worker->serves[at];
            waiting[k] = (joint_part){0};
            if (!m->head || !weft_router__is_due(router, m, now_ns) ||
                is_free_elsewhere(router, worker, at))
                continue;
            waiting[k] = (joint_part){weft_batch__waiting(m), hash_shape(m->program, m->head)};
        }
        if (served && must < n && pays(router, j, waiting) &&
            weft_joint__choose(j, waiting, must, out))
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

static weft_err prepare(const weft_bundle *b, router_joint *j)
{
    uint32_t at = 0, n_symbol = 0;
    for (uint32_t k = 0; k < j->program->n_part; k++) {
        uint32_t n = b->program[j->program->part[k].program].n_symbol;
        n_symbol = n > n_symbol ? n : n_symbol;
    }
    int64_t *symbol = calloc((size_t)n_symbol + 1, sizeof *symbol);
    j->empty = calloc((size_t)j->program->n_input + 1, sizeof *j->empty);
    j->kept = calloc((size_t)JOINT_KEPT_MAX * (j->program->n_part + 1), sizeof *j->kept);
    weft_err err = symbol && j->empty && j->kept ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    bool possible = true;
    for (uint32_t k = 0; k < j->program->n_part && err == WEFT_ERR_OK; k++) {
        const weft_bundle_program *p = &b->program[j->program->part[k].program];
        possible = possible && at + p->n_input <= j->program->n_input &&
                   make_empty(p, symbol, j->empty + at);
        at += p->n_input;
    }
    if (!possible) { /* never chosen then */
        free(j->empty);
        j->empty = NULL;
    }
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
        WEFT_TRY(prepare(b, &router->joint[i]));
    }
    return WEFT_ERR_OK;
}

void weft_joint__destroy(weft_router *router)
{
    for (uint32_t i = 0; router->joint && i < router->bundle->n_joint; i++) {
        free(router->joint[i].empty);
        free(router->joint[i].kept);
    }
    free(router->joint);
}
