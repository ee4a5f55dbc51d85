/* Time sharing: slices that several models use round robin, one batch each (slo.c). Decides whether
 * a model can join a slice, and with which batches. */
#include "scheduler/builder/builder_int.h"

#include <string.h>

static const double slack = 1e-9; /* relative, below the tolerance of the checker */

/* The next larger batch of a demand on a shape that also has a higher throughput, batch / exec;
 * `from` NULL: the smallest batch. Returns NULL: none. */
static const weft_option *next_batch(const weft_builder *builder, uint32_t demand, uint32_t shape,
                                     const weft_option *from)
{
    weft_choice choice = weft_option_table__choice(&builder->table, demand, shape);
    const weft_option *option = builder->option[demand] + choice.first;
    for (uint32_t i = 0; i < choice.n; i++) {
        const weft_option *o = &option[i];
        if (o->point->procs != 1 || (from && o->point->batch <= from->point->batch))
            continue;
        if (!from || o->point->batch * from->exec_us > from->point->batch * o->exec_us)
            return o;
    }
    return NULL;
}

static double sum_exec(const weft_member *member, uint32_t n)
{
    double cycle_us = 0;
    for (uint32_t i = 0; i < n; i++)
        cycle_us += member[i].option->exec_us;
    return cycle_us;
}

/* Requests per second that a member serves in a round of cycle_us. */
static double turn_per_s(const weft_builder *builder, const weft_member *member, double cycle_us)
{
    return weft_slo__turn_per_s(&builder->problem->rules, &builder->demands->at[member->demand],
                                member->option->point, member->option->exec_us, cycle_us);
}

/* The least batches with which every member keeps up with its rate. Starts with the smallest
 * batches, and enlarges one batch at a time that is too small for the requests of a cycle. Larger
 * batches only lengthen the cycle, so this finds the least fixed point. */
static bool choose_batches(const weft_builder *builder, const weft_builder_slice *slice,
                           weft_member *member, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        member[i].option = next_batch(builder, member[i].demand, slice->shape, NULL);
        if (!member[i].option)
            return false;
    }
    for (uint32_t i = 0; i < n;) {
        double cycle_us = sum_exec(member, n);
        if (member[i].rate_per_s <= turn_per_s(builder, &member[i], cycle_us)) {
            i++;
            continue;
        }
        member[i].option = next_batch(builder, member[i].demand, slice->shape, member[i].option);
        if (!member[i].option)
            return false;
        i = 0;
    }
    return true;
}

/* Memory that other slices take of the same memory. */
static uint64_t mem_of_others(const weft_builder *builder, const weft_builder_slice *slice)
{
    const weft_builder_device *device = &builder->devices.at[slice->device];
    uint64_t own = weft_builder__sum_mem(slice->members.at, slice->members.len);
    if (weft_fleet_slice__is_nested(&slice->spec))
        return device->instance[slice->mig_start].mem_bytes - own;
    if (slice->spec.kind == WEFT_SLICE_MPS || slice->spec.kind == WEFT_SLICE_CORES)
        return device->mem_bytes - own;
    return 0;
}

/* Whether SLOs, rates and memory allow these members to share the slice, interference ignored. */
static bool can_share(const weft_builder *builder, const weft_builder_slice *slice,
                      const weft_member *member, uint32_t n)
{
    const weft_rules *rules = &builder->problem->rules;
    double cycle_us = sum_exec(member, n);
    for (uint32_t i = 0; i < n; i++) {
        const weft_demand *demand = &builder->demands->at[member[i].demand];
        if (demand->slo_us > 0 &&
            cycle_us + member[i].option->exec_us > weft_rules__slo_us(rules, demand))
            return false;
        if (member[i].rate_per_s > turn_per_s(builder, &member[i], cycle_us) * (1 + slack))
            return false;
    }
    if (slice->spec.mem_bytes == 0)
        return true;
    uint64_t others = mem_of_others(builder, slice), own = weft_builder__sum_mem(member, n);
    return others <= slice->spec.mem_bytes && own <= slice->spec.mem_bytes - others;
}

/* Part of the time in which the slice executes. */
static double occupancy_of(const weft_member *member, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += member[i].rate_per_s * member[i].option->exec_us /
               (member[i].option->point->batch * 1e6);
    return sum;
}

/* Replaces the members of a slice by `member`, the last of which is new; false, and nothing
 * changed: some SLO or rate is then violated. */
static bool join(weft_builder *builder, uint32_t index, const weft_member *member, uint32_t n)
{
    weft_builder_slice *slice = &builder->slices.at[index];
    uint32_t mark = weft_builder__mark(builder);
    for (uint32_t i = 0; i < slice->members.len; i++)
        WEFT_VEC_PUSH(builder->arena, &builder->saved, slice->members.at[i]);
    weft_undo_record record = {
        .kind = WEFT_UNDO_JOIN, .slice = index, .n_saved = slice->members.len};
    WEFT_VEC_PUSH(builder->arena, &builder->log, record);
    weft_builder__set_members(builder, slice, member, n);
    if (weft_builder__keeps_slos(builder, index))
        return true;
    weft_builder__undo(builder, mark);
    return false;
}

enum { TURNS_MAX = 64 }; /* models on one slice */

/* Writes the members of the slice, the new one last, and returns their number; 0: the new model may
 * not join. */
static uint32_t list_members(const weft_builder *builder, const weft_builder_slice *slice,
                             uint32_t demand, double rate_per_s, weft_member *member)
{
    uint32_t n = slice->members.len;
    if (builder->problem->rules.isolated || n >= TURNS_MAX)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        member[i] = slice->members.at[i];
        if (member[i].demand == demand || member[i].option->point->procs != 1)
            return 0;
    }
    member[n] = (weft_member){.demand = demand, .rate_per_s = rate_per_s};
    return n + 1;
}

bool weft_builder__join(weft_builder *builder, uint32_t index, uint32_t demand, double rate_per_s,
                        const weft_option *const *option)
{
    weft_member member[TURNS_MAX];
    if (index >= builder->slices.len)
        return false;
    const weft_builder_slice *slice = &builder->slices.at[index];
    uint32_t n = list_members(builder, slice, demand, rate_per_s, member);
    for (uint32_t i = 0; i < n; i++) {
        if (option[i]->shape != slice->shape || option[i]->point->procs != 1)
            return false;
        member[i].option = option[i];
    }
    return n > 0 && can_share(builder, slice, member, n) && join(builder, index, member, n);
}

bool weft_builder__share(weft_builder *builder, uint32_t index, uint32_t demand, double rate_per_s,
                         bool commit, double *occupancy)
{
    weft_member member[TURNS_MAX];
    const weft_builder_slice *slice = &builder->slices.at[index];
    uint32_t n = list_members(builder, slice, demand, rate_per_s, member);
    if (n == 0 || !choose_batches(builder, slice, member, n) ||
        !can_share(builder, slice, member, n))
        return false;
    uint32_t mark = weft_builder__mark(builder);
    if ((commit || weft_builder__has_neighbours(&slice->spec)) && !join(builder, index, member, n))
        return false;
    if (!commit)
        weft_builder__undo(builder, mark);
    *occupancy = occupancy_of(member, n);
    return true;
}
