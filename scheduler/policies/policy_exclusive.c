/* Exclusive devices: each model gets whole GPUs of its own. The plan of an operator without a
 * planner, and the baseline that every other policy has to beat.
 *
 * Source: the exclusive baseline of ParvaGPU (M. Lee et al., SC'24): ceil(rate / capacity) whole
 * GPUs for each service.
 *
 * Decided here, where the paper is silent.
 * - World: a unit is a whole GPU (or the MIG instance that covers all of it, if only that was
 *   measured), or one CPU slice of the fleet file. Models come in the order of their names,
 *   units in the order of the fleet.
 * - Choice: a model takes the first free unit, with the smallest batch that carries the rest of
 *   its rate within the SLO; if no batch does, with the batch of the highest capacity, and the
 *   next unit takes the rest.
 * - Time sharing: if no unit is free, the model joins the models of the first unit where all of
 *   them keep rate, SLO and memory. The paper has no such step; a machine with two CPU slices
 *   and three models needs it.
 *
 * Parameters: none. Complexity: O(models * (options + slices)). */
#include "scheduler/policies/policies_int.h"

static bool is_unit(const weft_option *o)
{
    return o->spec.kind == WEFT_SLICE_WHOLE || o->spec.kind == WEFT_SLICE_CORES ||
           (o->spec.kind == WEFT_SLICE_MIG && o->spec.mig->gpcs == o->spec.mig->of_gpcs &&
            o->spec.percent == 0);
}

/* Whether `b` is better than `a` for a rest of the rate; of equal ones, the first is kept. */
static bool is_better(const weft_option *a, const weft_option *b, double rest)
{
    bool a_carries = a->peak_per_s >= rest, b_carries = b->peak_per_s >= rest;
    if (a_carries != b_carries)
        return b_carries;
    return a_carries ? b->exec_us < a->exec_us : b->peak_per_s > a->peak_per_s;
}

/* Takes a free unit of the first fleet row that has one, and lowers *rest; false: no unit is
 * free. */
static bool take_unit(weft_builder *builder, uint32_t demand, double *rest)
{
    const weft_option *pick = NULL;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i]; /* in the order of fleet rows */
        if (pick && pick->row != o->row)
            break;
        if (is_unit(o) && weft_builder__has_place(builder, o) &&
            (!pick || is_better(pick, o, *rest)))
            pick = o;
    }
    if (!pick)
        return false;
    double part = pick->peak_per_s < *rest ? pick->peak_per_s : *rest;
    *rest -= part;
    return weft_builder__add(builder, demand, pick, part, false);
}

static bool share_unit(weft_builder *builder, uint32_t demand, double rest)
{
    double occupancy;
    for (uint32_t i = 0; i < builder->slices.len; i++)
        if (weft_builder__share(builder, i, demand, rest, true, &occupancy))
            return true;
    return false;
}

static bool has_unit(const weft_builder *builder, uint32_t demand)
{
    for (uint32_t i = 0; i < builder->n_option[demand]; i++)
        if (is_unit(&builder->option[demand][i]))
            return true;
    return false;
}

static weft_err place_model(weft_builder *builder, uint32_t demand)
{
    if (!has_unit(builder, demand) && builder->problem->goal == WEFT_GOAL_GOODPUT)
        return WEFT_ERR_OK;
    if (!has_unit(builder, demand))
        return weft_diag_error(
            builder->diag, WEFT_ERR_INFEASIBLE,
            (weft_where){.item = builder->demands->at[demand].model},
            "policy exclusive places on whole devices and CPU slices only, and the model "
            "meets its SLO on none that it was profiled on");
    double rate = builder->demands->at[demand].rate_per_s;
    double rest = rate;
    do {
        if (take_unit(builder, demand, &rest))
            continue;
        if (!share_unit(builder, demand, rest)) {
            if (builder->problem->goal == WEFT_GOAL_GOODPUT)
                return WEFT_ERR_OK;
            return weft_builder__full(builder, demand, rest);
        }
        rest = 0;
    } while (rest > rate * 1e-9);
    return WEFT_ERR_OK;
}

static weft_err place_exclusive(void *state, const weft_problem *problem, weft_arena *arena,
                                weft_diag *diag, weft_plan *out)
{
    weft_builder builder;
    (void)state;
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    for (size_t i = 0; i < problem->demands->n; i++)
        WEFT_TRY(place_model(&builder, builder.order[i]));
    weft_builder__finish(&builder, "exclusive", out);
    return WEFT_ERR_OK;
}

const weft_policy weft_policy_exclusive = {
    .name = "exclusive",
    .alias = "fifo",
    .brief = "whole devices, first come first served",
    .cite = "exclusive baseline of ParvaGPU, SC'24",
    .splits = WEFT_SPLIT_WHOLE | WEFT_SPLIT_CORES | WEFT_SPLIT_TIME,
    .many_models = true,
    .place = place_exclusive,
};
