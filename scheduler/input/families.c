/* Families: models that can run as one joint program, and how a problem looks when some do.
 *
 * In a grouped problem the models of a chosen family are one demand: its rate is the sum of
 * theirs, its SLO the tightest, its profile that of the joint program. So every policy, the
 * checker and the reports treat a family as they treat a model, and only its name (set_name.c)
 * tells them apart. */
#include "scheduler/input/input.h"

#include <math.h>
#include <string.h>

/* -- Grouped problems ------------------------------------------------------------------------- */

/* The chosen family that a model belongs to; NULL: none. */
static const weft_family *family_of(const weft_family *const *chosen, size_t n, const char *model)
{
    for (size_t i = 0; i < n; i++)
        if (weft_family_has(chosen[i]->name, model))
            return chosen[i];
    return NULL;
}

/* Adds a model to the demand of its family. */
static void add_model(weft_demand *to, const weft_demand *d)
{
    to->admit_by_slo = d->admit_by_slo && (to->admit_by_slo || !(to->rate_per_s > 0));
    if (d->slo_us > 0 && (!(to->slo_us > 0) || d->slo_us < to->slo_us))
        to->slo_us = d->slo_us;
    to->rate_per_s += d->rate_per_s;
    to->profile.host_us = fmax(to->profile.host_us, d->profile.host_us);
}

void weft_families__group(const weft_problem *p, const weft_family *const *chosen, size_t n_chosen,
                          weft_arena *arena, weft_problem *out)
{
    const weft_demands *from = p->demands;
    weft_demand *at = weft_arena_array(arena, from->n + 1, sizeof *at);
    weft_demands *demands = weft_arena_alloc(arena, sizeof *demands);
    size_t n = 0;
    for (size_t i = 0; i < from->n; i++) {
        const weft_demand *d = &from->at[i];
        const weft_family *f = family_of(chosen, n_chosen, d->model);
        size_t k = f ? 0 : n;
        while (k < n && strcmp(at[k].model, f->name) != 0)
            k++;
        if (k == n)
            at[n++] = f ? (weft_demand){.model = f->name, .profile = f->profile} : *d;
        if (f)
            add_model(&at[k], d);
    }
    *demands = (weft_demands){at, n};
    *out = *p;
    out->demands = demands;
    out->n_family = 0;
}

/* The family of a name: one of the problem, or one without a profile. */
static const weft_family *named_family(const weft_problem *p, const char *name, weft_arena *arena)
{
    for (size_t f = 0; f < p->n_family; f++)
        if (strcmp(p->family[f].name, name) == 0)
            return &p->family[f];
    weft_family *made = weft_arena_array(arena, 1, sizeof *made);
    made->name = name;
    made->n = weft_family_models(name, arena, &made->model);
    return made;
}

void weft_families_of_plan(const weft_plan *plan, const weft_problem *p, weft_arena *arena,
                           weft_problem *out)
{
    WEFT_VEC(const weft_family *) chosen = {0};
    for (size_t i = 0; i < plan->n; i++) {
        const char *name = plan->at[i].model;
        if (!weft_family_is_name(name))
            continue;
        uint32_t k = 0;
        while (k < chosen.len && strcmp(chosen.at[k]->name, name) != 0)
            k++;
        if (k == chosen.len)
            WEFT_VEC_PUSH(arena, &chosen, named_family(p, name, arena));
    }
    *out = *p;
    if (chosen.len > 0)
        weft_families__group(p, chosen.at, chosen.len, arena, out);
}

/* -- Families that a problem can use ---------------------------------------------------------- */

static bool is_variant(const weft_problem *p, const char *model)
{
    for (size_t a = 0; a < p->n_app; a++)
        for (size_t i = 0; i < p->app[a].n_variant; i++)
            if (strcmp(p->app[a].variant[i].model, model) == 0)
                return true;
    return false;
}

bool weft_family__is_usable(const weft_problem *p, const weft_family *f, weft_arena *arena)
{
    weft_demand_index index = weft_demands__index(p->demands, arena);
    if (named_family(p, f->name, arena) != f)
        return false;
    for (size_t i = 0; i < f->n; i++)
        if (weft_demands__find(&index, f->model[i]) == UINT32_MAX || is_variant(p, f->model[i]))
            return false;
    return f->n > 1 && f->profile.n > 0;
}

bool weft_families__overlap(const weft_family *a, const weft_family *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (weft_family_has(b->name, a->model[i]))
            return true;
    return false;
}
