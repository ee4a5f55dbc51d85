/* Slices of the board that several models use in turn, one batch each (slo.c): who can join whom
 * with which batches, and undoing that. */
#include "scheduler/scheduler_int.h"

#include <string.h>

static const double slack = 1e-9; /* relative, below the tolerance of the checker */

/* The next larger batch of a demand on a shape that serves more requests per time of the slice;
 * `from` NULL: the smallest batch. NULL: none. */
static const weft_option *next_batch(const weft_board *board, uint32_t demand, uint32_t shape,
                                     const weft_option *from)
{
    weft_choice choice = weft_menu__choice(&board->menu, demand, shape);
    const weft_option *option = board->option[demand] + choice.first;
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

/* Starts with the smallest batches and enlarges, one at a time, those that cannot keep up with the
 * round; the round only grows, so what was enlarged once never becomes too large. */
static bool choose_batches(const weft_board *board, const weft_board_slice *slice,
                           weft_member *member, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        member[i].option = next_batch(board, member[i].demand, slice->shape, NULL);
        if (!member[i].option)
            return false;
    }
    for (uint32_t i = 0; i < n;) {
        double cycle_us = sum_exec(member, n);
        if (member[i].rate_per_s * cycle_us <= member[i].option->point->batch * 1e6) {
            i++;
            continue;
        }
        member[i].option = next_batch(board, member[i].demand, slice->shape, member[i].option);
        if (!member[i].option)
            return false;
        i = 0;
    }
    return true;
}

static uint64_t sum_mem(const weft_member *member, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = member[i].option->mem_bytes;
        sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
    }
    return sum;
}

/* Bytes of the other slices that share the slice's memory. */
static uint64_t mem_of_others(const weft_board *board, const weft_board_slice *slice)
{
    const weft_board_device *device = &board->devices.at[slice->device];
    uint64_t own = sum_mem(slice->members.at, slice->members.len);
    if (weft_slice__is_nested(&slice->spec))
        return device->instance[slice->mig_start].mem_bytes - own;
    if (slice->spec.kind == WEFT_SLICE_MPS || slice->spec.kind == WEFT_SLICE_CORES)
        return device->mem_bytes - own;
    return 0;
}

/* Members take turns: each next one starts when the one before has ended. */
static bool can_share(const weft_board *board, const weft_board_slice *slice,
                      const weft_member *member, uint32_t n)
{
    const weft_rules *rules = &board->problem->rules;
    double cycle_us = sum_exec(member, n);
    for (uint32_t i = 0; i < n; i++) {
        const weft_demand *demand = &board->demands->at[member[i].demand];
        if (demand->slo_us > 0 &&
            cycle_us + member[i].option->exec_us > weft_rules__slo_us(rules, demand))
            return false;
        if (member[i].rate_per_s * cycle_us > member[i].option->point->batch * 1e6 * (1 + slack))
            return false;
    }
    if (slice->spec.mem_bytes == 0)
        return true;
    uint64_t others = mem_of_others(board, slice), own = sum_mem(member, n);
    return others <= slice->spec.mem_bytes && own <= slice->spec.mem_bytes - others;
}

static double occupancy_of(const weft_member *member, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += member[i].rate_per_s * member[i].option->exec_us /
               (member[i].option->point->batch * 1e6);
    return sum;
}

/* The bytes of a slice become others. */
static void recount_mem(weft_board *board, const weft_board_slice *slice, uint64_t old_bytes,
                        uint64_t new_bytes)
{
    weft_board_device *device = &board->devices.at[slice->device];
    if (weft_slice__is_nested(&slice->spec)) {
        weft_pool__remove_instance(board, slice->device, (uint32_t)slice->mig_start);
        device->instance[slice->mig_start].mem_bytes += new_bytes - old_bytes;
        weft_pool__insert_instance(board, slice->device, (uint32_t)slice->mig_start);
    } else if (slice->spec.kind == WEFT_SLICE_MPS || slice->spec.kind == WEFT_SLICE_CORES) {
        weft_pool__remove(board, slice->device);
        device->mem_bytes += new_bytes - old_bytes;
        weft_pool__insert(board, slice->device);
    }
}

static void set_members(weft_board *board, weft_board_slice *slice, const weft_member *member,
                        uint32_t n)
{
    uint64_t old_bytes = sum_mem(slice->members.at, slice->members.len);
    if (n > slice->members.cap) {
        slice->members.at = weft_arena_array(board->arena, n, sizeof *slice->members.at);
        slice->members.cap = n;
    }
    if (n > 0)
        memmove(slice->members.at, member, n * sizeof *member);
    slice->members.len = n;
    recount_mem(board, slice, old_bytes, sum_mem(member, n));
}

void weft_board__undo_join(weft_board *board, const weft_board_step *step)
{
    board->saved.len -= step->n_saved;
    set_members(board, &board->slices.at[step->slice], board->saved.at + board->saved.len,
                step->n_saved);
}

/* The newcomer is the last of `member`. */
static bool join(weft_board *board, uint32_t index, const weft_member *member, uint32_t n)
{
    weft_board_slice *slice = &board->slices.at[index];
    uint32_t mark = weft_board__mark(board);
    for (uint32_t i = 0; i < slice->members.len; i++)
        WEFT_VEC_PUSH(board->arena, &board->saved, slice->members.at[i]);
    weft_board_step step = {.kind = WEFT_STEP_JOIN, .slice = index, .n_saved = slice->members.len};
    WEFT_VEC_PUSH(board->arena, &board->log, step);
    set_members(board, slice, member, n);
    if (weft_board__keeps_slos(board, index))
        return true;
    weft_board__undo(board, mark);
    return false;
}

enum { TURNS_MAX = 64 }; /* models on one slice */

/* The members with the newcomer last; 0: it cannot join. */
static uint32_t list_members(const weft_board *board, const weft_board_slice *slice,
                             uint32_t demand, double rate_per_s, weft_member *member)
{
    uint32_t n = slice->members.len;
    if (board->problem->rules.isolated || n >= TURNS_MAX)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        member[i] = slice->members.at[i];
        if (member[i].demand == demand || member[i].option->point->procs != 1)
            return 0;
    }
    member[n] = (weft_member){.demand = demand, .rate_per_s = rate_per_s};
    return n + 1;
}

bool weft_board__join(weft_board *board, uint32_t index, uint32_t demand, double rate_per_s,
                      const weft_option *const *option)
{
    weft_member member[TURNS_MAX];
    if (index >= board->slices.len)
        return false;
    const weft_board_slice *slice = &board->slices.at[index];
    uint32_t n = list_members(board, slice, demand, rate_per_s, member);
    for (uint32_t i = 0; i < n; i++) {
        if (option[i]->shape != slice->shape || option[i]->point->procs != 1)
            return false;
        member[i].option = option[i];
    }
    return n > 0 && can_share(board, slice, member, n) && join(board, index, member, n);
}

bool weft_board__share(weft_board *board, uint32_t index, uint32_t demand, double rate_per_s,
                       bool commit, double *occupancy)
{
    weft_member member[TURNS_MAX];
    const weft_board_slice *slice = &board->slices.at[index];
    uint32_t n = list_members(board, slice, demand, rate_per_s, member);
    if (n == 0 || !choose_batches(board, slice, member, n) || !can_share(board, slice, member, n))
        return false;
    uint32_t mark = weft_board__mark(board);
    if ((commit || weft_slice__has_neighbours(&slice->spec)) && !join(board, index, member, n))
        return false;
    if (!commit)
        weft_board__undo(board, mark);
    *occupancy = occupancy_of(member, n);
    return true;
}
