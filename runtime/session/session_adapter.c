/* Adapters of a session: their factors for each site of the program, and which rows of the next
 * runs use which. Those of the bundle are found and checked when they are first used, others are
 * added and forgotten. The operating system reads the pages that hold the factors when a run needs
 * them.
 */
#include "runtime/session/session_int.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

/* An adapter that is in use, with its factors by site behind it. */
typedef struct known_adapter {
    uint64_t number;
    weft_adapter adapter;
    weft_adapter_factors factors[];
} known_adapter;

struct weft_session_adapters {
    const weft_bundle_site *site;
    uint32_t n_site;
    known_adapter **known; /* by number, ascending */
    uint32_t n_known, known_room;
    const weft_adapter **rows; /* of the next runs */
    uint32_t n_rows, room;
    weft_arena *arena; /* owns the sites */
};

static weft_err open_guarded(weft_session *s, struct weft_session_adapters *a)
{
    jmp_buf env;
    weft_arena_guard(a->arena, &env);
    if (setjmp(env)) {
        weft_arena_guard(a->arena, NULL);
        return WEFT_ERR_NOMEM;
    }
    a->n_site = weft_bundle_sites(s->program, a->arena, &a->site);
    const char **name = weft_arena_array(a->arena, a->n_site, sizeof *name);
    for (uint32_t i = 0; i < a->n_site; i++)
        name[i] = a->site[i].name;
    weft_arena_guard(a->arena, NULL);
    s->adapter_rows = (weft_adapter_rows){.site = name, .n_site = a->n_site};
    return WEFT_ERR_OK;
}

weft_err weft_session__open_adapters(weft_session *s)
{
    struct weft_session_adapters *a = calloc(1, sizeof *a);
    if (!a)
        return WEFT_ERR_NOMEM;
    s->adapters = a;
    a->arena = weft_arena_create(0);
    return a->arena ? open_guarded(s, a) : WEFT_ERR_NOMEM;
}

void weft_session__close_adapters(weft_session *s)
{
    struct weft_session_adapters *a = s->adapters;
    if (!a)
        return;
    if (a->arena)
        weft_arena_destroy(a->arena);
    for (uint32_t i = 0; i < a->n_known; i++)
        free(a->known[i]);
    free(a->known);
    free(a->rows);
    free(a);
}

uint32_t weft_session_site_count(const weft_session *session)
{
    return session->adapters->n_site;
}

/* -- Those in use ----------------------------------------------------------------------------- */

/* The place of the number in the list, or where it belongs. */
static uint32_t find_place(const struct weft_session_adapters *a, uint64_t number)
{
    uint32_t from = 0, to = a->n_known;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (a->known[middle]->number < number)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static known_adapter *find_known(const struct weft_session_adapters *a, uint64_t number)
{
    uint32_t at = find_place(a, number);
    return at < a->n_known && a->known[at]->number == number ? a->known[at] : NULL;
}

static known_adapter *make_adapter(const struct weft_session_adapters *a, uint64_t number)
{
    known_adapter *to = calloc(1, sizeof *to + a->n_site * sizeof to->factors[0]);
    if (!to)
        return NULL;
    to->number = number;
    to->adapter = (weft_adapter){.factors = to->factors, .n_site = a->n_site};
    return to;
}

/* Takes an adapter whose number is not in the list. */
static weft_err keep(struct weft_session_adapters *a, known_adapter *adapter)
{
    if (a->n_known == a->known_room) {
        uint32_t room = a->known_room ? 2 * a->known_room : 16;
        known_adapter **known = realloc(a->known, room * sizeof *known);
        if (!known) {
            free(adapter);
            return WEFT_ERR_NOMEM;
        }
        a->known = known;
        a->known_room = room;
    }
    uint32_t at = find_place(a, adapter->number);
    memmove(&a->known[at + 1], &a->known[at], (a->n_known - at) * sizeof *a->known);
    a->known[at] = adapter;
    a->n_known++;
    return WEFT_ERR_OK;
}

weft_err weft_session_add_adapter(weft_session *session, uint64_t number,
                                  const weft_adapter_part *part, uint32_t n, weft_diag *diag)
{
    struct weft_session_adapters *a = session->adapters;
    if (number <= UINT32_MAX || find_known(a, number))
        return WEFT_ERR_BUG;
    known_adapter *to = make_adapter(a, number);
    if (!to)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t site = weft_adapter_site(&session->adapter_rows, part[i].site);
        const weft_adapter_factors *f = &part[i].factors;
        if (site == UINT32_MAX || a->site[site].k != f->k || a->site[site].n != f->n ||
            to->factors[site].rank) {
            free(to);
            return weft_diag_error(diag, WEFT_ERR_INPUT,
                                   (weft_where){.item = session->program->name},
                                   "the adapter does not fit module %s", part[i].site);
        }
        to->factors[site] = *f;
    }
    return keep(a, to);
}

/* -- Those of the bundle ---------------------------------------------------------------------- */

static const weft_bundle_adapter *find_in_bundle(const weft_session *s, uint64_t number)
{
    const weft_bundle *b = s->engine->bundle;
    const weft_bundle_adapter *from =
        number > 0 && number <= b->n_adapter ? &b->adapter[number - 1] : NULL;
    return from && &b->program[from->program] == s->program ? from : NULL;
}

static weft_err add_from_bundle(weft_session *s, uint64_t number, const weft_bundle_adapter *from,
                                weft_diag *diag)
{
    const weft_bundle *b = s->engine->bundle;
    for (uint32_t k = 0; k < from->n_factor; k++) {
        WEFT_TRY(weft_engine__check_weight(s->engine, from->factor[k].a, diag));
        WEFT_TRY(weft_engine__check_weight(s->engine, from->factor[k].b, diag));
    }
    known_adapter *to = make_adapter(s->adapters, number);
    if (!to)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < from->n_factor; i++) {
        const weft_bundle_factor *f = &from->factor[i];
        uint32_t site = weft_adapter_site(&s->adapter_rows, f->site);
        const weft_bundle_weight *wa = &b->weight[f->a - 1], *wb = &b->weight[f->b - 1];
        if (site != UINT32_MAX)
            to->factors[site] = (weft_adapter_factors){.rank = wa->dim[0],
                                                       .k = wa->dim[1],
                                                       .n = wb->dim[1],
                                                       .a = (const float *)(const void *)wa->data,
                                                       .b = (const float *)(const void *)wb->data};
    }
    return keep(s->adapters, to);
}

static void drop_weight(const weft_bundle *b, uint32_t weight)
{
    weft_file_drop(&b->file, b->weight[weight - 1].data, b->weight[weight - 1].bytes);
}

void weft_session_forget_adapter(weft_session *session, uint64_t number)
{
    struct weft_session_adapters *a = session->adapters;
    const weft_bundle_adapter *from = find_in_bundle(session, number);
    uint32_t at = find_place(a, number);
    if (at == a->n_known || a->known[at]->number != number)
        return;
    for (uint32_t i = 0; from && i < from->n_factor; i++) {
        drop_weight(session->engine->bundle, from->factor[i].a);
        drop_weight(session->engine->bundle, from->factor[i].b);
    }
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (a->rows[i] == &a->known[at]->adapter)
            a->rows[i] = NULL;
    free(a->known[at]);
    a->n_known--;
    memmove(&a->known[at], &a->known[at + 1], (a->n_known - at) * sizeof *a->known);
}

/* -- Rows ------------------------------------------------------------------------------------- */

static weft_err find_adapter(weft_session *s, uint64_t number, weft_diag *diag,
                             const weft_adapter **out)
{
    const weft_bundle_adapter *from = find_in_bundle(s, number);
    if (from && !find_known(s->adapters, number))
        WEFT_TRY(add_from_bundle(s, number, from, diag));
    const known_adapter *known = find_known(s->adapters, number);
    if (!known)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->program->name},
                               "adapter %llu is none of this model", (unsigned long long)number);
    *out = &known->adapter;
    return WEFT_ERR_OK;
}

weft_err weft_session_adapt(weft_session *session, const uint64_t *adapter, uint32_t n,
                            weft_diag *diag)
{
    weft_session *s = session;
    struct weft_session_adapters *a = s->adapters;
    s->adapter_rows.n = 0;
    a->n_rows = 0;
    if (n > a->room) {
        const weft_adapter **rows = realloc(a->rows, n * sizeof *rows);
        if (!rows)
            return WEFT_ERR_NOMEM;
        a->rows = rows;
        a->room = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        a->rows[i] = i > 0 && adapter[i] == adapter[i - 1] ? a->rows[i - 1] : NULL;
        if (adapter[i] && !a->rows[i])
            WEFT_TRY(find_adapter(s, adapter[i], diag, &a->rows[i]));
    }
    s->adapter_rows.of = a->rows;
    s->adapter_rows.n = a->n_rows = n;
    return WEFT_ERR_OK;
}

weft_err weft_session__check_adapters(const weft_session *s, weft_diag *diag)
{
    int64_t n = s->adapter_rows.n;
    uint32_t batch = s->program->batch_symbol;
    if (n <= 1 || (batch != UINT32_MAX && s->symbol[batch] == n))
        return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->program->name},
                           "adapters are given for %lld rows, the batch has %lld", (long long)n,
                           batch == UINT32_MAX ? 1LL : (long long)s->symbol[batch]);
}

void weft_session__cut_adapters(weft_session *s, int64_t begin, int64_t rows)
{
    if (s->adapters->n_rows <= 1) /* all rows have the same */
        return;
    s->adapter_rows.of = s->adapters->rows + begin;
    s->adapter_rows.n = rows;
}
