/* Adapters of a session: the factors of those that the bundle has, found and checked when they are
 * first used, and which rows of the next runs use which. The operating system reads the pages of
 * the bundle that hold them when a run needs them. */
#include "runtime/session/session_int.h"

#include <stdlib.h>
#include <string.h>

struct weft_session_adapters {
    const weft_bundle_site *site;
    uint32_t n_site;
    const weft_adapter **known; /* by index in the bundle; NULL: not used yet */
    const weft_adapter **rows;  /* of the next runs */
    uint32_t n_rows, room;
    weft_arena *arena; /* owns sites and factors */
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
    a->known = weft_arena_array(a->arena, s->engine->bundle->n_adapter, sizeof(weft_adapter *));
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
    if (!s->adapters)
        return;
    if (s->adapters->arena)
        weft_arena_destroy(s->adapters->arena);
    free(s->adapters->rows);
    free(s->adapters);
}

uint32_t weft_session_site_count(const weft_session *session)
{
    return session->adapters->n_site;
}

/* The factors of an adapter of the bundle; NULL: out of memory. */
static const weft_adapter *make_adapter(weft_session *s, const weft_bundle_adapter *from)
{
    const weft_bundle *b = s->engine->bundle;
    struct weft_session_adapters *a = s->adapters;
    jmp_buf env;
    weft_arena_guard(a->arena, &env);
    if (setjmp(env)) {
        weft_arena_guard(a->arena, NULL);
        return NULL;
    }
    weft_adapter_factors *factors = weft_arena_array(a->arena, a->n_site, sizeof *factors);
    for (uint32_t i = 0; i < from->n_factor; i++) {
        const weft_bundle_factor *f = &from->factor[i];
        uint32_t site = weft_adapter_site(&s->adapter_rows, f->site);
        const weft_bundle_weight *wa = &b->weight[f->a - 1], *wb = &b->weight[f->b - 1];
        if (site != UINT32_MAX)
            factors[site] = (weft_adapter_factors){.rank = wa->dim[0],
                                                   .k = wa->dim[1],
                                                   .n = wb->dim[1],
                                                   .a = (const float *)(const void *)wa->data,
                                                   .b = (const float *)(const void *)wb->data};
    }
    weft_adapter *to = weft_arena_alloc(a->arena, sizeof *to);
    *to = (weft_adapter){.factors = factors, .n_site = a->n_site};
    weft_arena_guard(a->arena, NULL);
    return to;
}

static weft_err find_adapter(weft_session *s, uint32_t number, weft_diag *diag,
                             const weft_adapter **out)
{
    uint32_t i = number - 1;
    const weft_bundle *b = s->engine->bundle;
    const weft_bundle_adapter *from = i < b->n_adapter ? &b->adapter[i] : NULL;
    if (!from || &b->program[from->program] != s->program)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->program->name},
                               "adapter %u of the bundle is none of this model", number);
    for (uint32_t k = 0; !s->adapters->known[i] && k < from->n_factor; k++) {
        WEFT_TRY(weft_engine__check_weight(s->engine, from->factor[k].a, diag));
        WEFT_TRY(weft_engine__check_weight(s->engine, from->factor[k].b, diag));
    }
    if (!s->adapters->known[i])
        s->adapters->known[i] = make_adapter(s, from);
    *out = s->adapters->known[i];
    return *out ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

weft_err weft_session_adapt(weft_session *session, const uint32_t *adapter, uint32_t n,
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
        a->rows[i] = NULL;
        if (adapter[i])
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
