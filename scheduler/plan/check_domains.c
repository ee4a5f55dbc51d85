/* What a plan says of failure domains: that its devices are where the fleet has devices, that
 * models which ask for it are in two domains, and that no model has less capacity than its rate
 * without any one domain (`survive`). */
#include "scheduler/builder/builder.h"
#include "scheduler/plan/plan.h"

#include "base/hash.h"
#include "base/map.h"

#include <math.h>
#include <string.h>

weft_domain_use weft_plan__domain_use(const weft_plan *plan, const char *model, weft_domain level,
                                      weft_arena *arena)
{
    weft_domain_use use = {0};
    weft_map *seen = weft_map_create(arena);
    WEFT_VEC(double) sum = {0};
    double most = -1;
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        const char *name = weft_location__domain(&p->where, level);
        if (strcmp(p->model, model) != 0)
            continue;
        use.capacity_per_s += p->capacity_per_s;
        use.rate_per_s += p->rate_per_s;
        use.nowhere = use.nowhere || !name;
        if (!name)
            continue;
        uint64_t at = sum.len, key = weft_hash64(name, strlen(name), 0);
        if (!weft_map_get(seen, key, &at)) {
            weft_map_put(seen, key, at);
            WEFT_VEC_PUSH(arena, &sum, 0);
        }
        sum.at[at] += p->capacity_per_s;
        if (sum.at[at] > most) {
            most = sum.at[at];
            use.worst = name;
        }
    }
    use.n = sum.len;
    use.left_per_s = use.capacity_per_s - fmax(0, most);
    return use;
}

/* -- The checks -------------------------------------------------------------------------------- */

static uint32_t check_places(const weft_plan *plan, const weft_fleet *fleet, weft_arena *arena,
                             weft_diag *diag)
{
    weft_map *taken = weft_map_create(arena);
    uint32_t violations = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        const weft_fleet_device *row = weft_fleet__row(fleet, p->type);
        uint64_t device = p->device;
        weft_arena_mark mark = weft_arena_get_mark(arena);
        bool known = !p->where.node || !row || !row->per_domain[WEFT_DOMAIN_NODE] ||
                     weft_fleet__has_location(row, &p->where, arena);
        weft_arena_reset(arena, mark);
        if (!known) {
            violations++;
            (void)weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->model},
                                  "place: the fleet has no %s of index %u on node %s", p->type,
                                  p->where.gpu, p->where.node ? p->where.node : "(none)");
        }
        if (!p->where.node)
            continue;
        uint64_t key = weft_hash64(p->where.node, strlen(p->where.node), p->where.gpu);
        if (!weft_map_get(taken, key, &device))
            weft_map_put(taken, key, device);
        if (device != p->device) {
            violations++;
            (void)weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->model},
                                  "place: devices %llu and %u are both GPU %u of node %s",
                                  (unsigned long long)device, p->device, p->where.gpu,
                                  p->where.node);
        }
    }
    return violations;
}

/* Domains of a level count where the fleet has them: elsewhere the plan could say anything. */
static bool fleet_says(const weft_plan *plan, const weft_fleet *fleet, const char *model,
                       weft_domain level)
{
    for (size_t i = 0; i < plan->n; i++) {
        const weft_fleet_device *row = weft_fleet__row(fleet, plan->at[i].type);
        if (row && !row->per_domain[level] && strcmp(plan->at[i].model, model) == 0)
            return false;
    }
    return true;
}

static uint32_t check_model(const weft_plan *plan, const weft_fleet *fleet, const weft_demand *d,
                            weft_arena *arena, weft_diag *diag)
{
    const weft_where where = {.item = d->model};
    weft_domain survive = plan->rules.survive;
    weft_domain level = survive > d->spread ? survive : d->spread;
    uint32_t violations = 0;
    if (level != WEFT_DOMAIN_NONE && !fleet_says(plan, fleet, d->model, level)) {
        violations++;
        (void)weft_diag_error(diag, WEFT_ERR_INPUT, where,
                              "place: the fleet does not say how many devices a %s has (per_%s)",
                              weft_domain_name(level), weft_domain_name(level));
    }
    if (d->spread != WEFT_DOMAIN_NONE) {
        weft_domain_use use = weft_plan__domain_use(plan, d->model, d->spread, arena);
        if (use.n < 2 || use.nowhere) {
            violations++;
            (void)weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                  "spread: it is in %u %ss, not in two", use.n,
                                  weft_domain_name(d->spread));
        }
    }
    if (survive != WEFT_DOMAIN_NONE) {
        weft_domain_use use = weft_plan__domain_use(plan, d->model, survive, arena);
        if (use.n < 2 || use.nowhere || use.left_per_s < use.rate_per_s * (1 - 1e-6)) {
            violations++;
            (void)weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                  "survive: without %s %s it can serve %.9g/s of %.9g/s",
                                  weft_domain_name(survive), use.worst ? use.worst : "(any)",
                                  use.left_per_s, use.rate_per_s);
        }
    }
    return violations;
}

uint32_t weft_plan__check_domains(const weft_plan *plan, const weft_problem *problem,
                                  weft_arena *arena, weft_diag *diag)
{
    uint32_t violations = check_places(plan, problem->fleet, arena, diag);
    for (size_t i = 0; i < problem->demands->n; i++) {
        weft_arena_mark mark = weft_arena_get_mark(arena);
        violations += check_model(plan, problem->fleet, &problem->demands->at[i], arena, diag);
        weft_arena_reset(arena, mark);
    }
    return violations;
}

bool weft_plan__is_fixed(const weft_plan *plan, const weft_demands *demands)
{
    bool fixed = plan->rules.survive != WEFT_DOMAIN_NONE ||
                 weft_interference__any(&plan->rules.interference);
    for (size_t i = 0; i < plan->n && !fixed; i++)
        fixed = plan->at[i].where.node != NULL;
    for (size_t i = 0; demands && i < demands->n && !fixed; i++)
        fixed = demands->at[i].spread != WEFT_DOMAIN_NONE;
    return fixed;
}
