/* Runs a launch: blocks in a random order, the warps of a block in bursts of random length. Lanes
 * of a warp that parted go on at the least instruction first, so that they meet again where the
 * code does. Lanes at an instruction of several lanes wait there for the others that it names: code
 * where they meet can stand before code that some of them still execute. */
#include "tests/ptx/ptx_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BURST_MAX = 256, ALL = 0x7fffffff };

/* A launch that executes more is taken for an endless loop. */
static const uint64_t instructions_max = (uint64_t)4 << 30;

/* -- Blocks ----------------------------------------------------------------------------------- */

static uint64_t special(const ptx_state *s, const ptx_warp *w, uint64_t which, unsigned lane)
{
    const unsigned *grid = s->launch->grid;
    const uint64_t value[] = {w->first_thread + lane,
                              0,
                              0,
                              s->launch->threads,
                              1,
                              1,
                              s->block[0],
                              s->block[1],
                              s->block[2],
                              grid[0],
                              grid[1],
                              grid[2],
                              lane};
    return value[which];
}

/* Gives registers their first values: constants, addresses, and noise. */
static void fill_registers(const ptx_kernel *k, ptx_warp *w)
{
    for (unsigned i = 0; i < k->n_reg; i++) {
        const ptx_register *g = &k->reg[i];
        uint64_t first = g->kind != PTX_PLAIN ? g->value
                         : g->width == 1      ? 0
                                              : 0xa5a5a5a5a5a5a5a5u >> (64 - 8 * g->width);
        for (unsigned l = 0; l < PTX_LANES; l++)
            w->reg[(size_t)i * PTX_LANES + l] = first;
    }
    w->filled = true;
}

/* Registers keep what an earlier block left in them; that is noise, too. */
static void start_warp(ptx_state *s, ptx_warp *w)
{
    const ptx_kernel *k = s->k;
    unsigned left = s->launch->threads - w->first_thread;
    w->live = left >= PTX_LANES ? ~0u : (1u << left) - 1;
    w->at_barrier = w->waiting = 0;
    w->together = true;
    w->at = 0;
    if (!w->filled)
        fill_registers(k, w);
    for (unsigned i = 0; i < k->n_reg; i++)
        for (unsigned l = 0; k->reg[i].kind == PTX_SPECIAL && l < PTX_LANES; l++)
            w->reg[(size_t)i * PTX_LANES + l] = special(s, w, k->reg[i].value, l);
}

/* The lanes that execute the next instruction: those at the least one. 0: all wait or are done. */
static uint32_t choose_lanes(ptx_warp *w, int *pc)
{
    uint32_t ready = w->live & ~w->at_barrier, mask = 0;
    int least = ALL;
    *pc = w->at;
    if (w->together)
        return ready;
    uint32_t awake = ready & ~w->waiting;
    awake = awake ? awake : ready;
    for (unsigned l = 0; l < PTX_LANES; l++)
        if (awake >> l & 1 && w->pc[l] < least)
            least = w->pc[l];
    for (unsigned l = 0; l < PTX_LANES; l++)
        mask |= (uint32_t)(ready >> l & 1 && w->pc[l] == least) << l;
    *pc = w->at = least;
    w->together = mask == ready && !w->waiting;
    return mask;
}

static void set_pc(ptx_warp *w, uint32_t mask, int pc)
{
    if (w->together && mask == (w->live & ~w->at_barrier)) {
        w->at = pc;
        return;
    }
    for (unsigned l = 0; l < PTX_LANES && w->together; l++)
        w->pc[l] = w->at;
    if (mask)
        w->together = false;
    for (unsigned l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1)
            w->pc[l] = pc;
}

static uint32_t guarded(const ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    if (i->guard < 0)
        return mask;
    const uint64_t *p = w->reg + (size_t)i->guard * PTX_LANES;
    uint32_t on = 0;
    for (unsigned l = 0; l < PTX_LANES; l++)
        on |= (uint32_t)((p[l] & 1) != i->guard_not) << l;
    return mask & on;
}

/* The lanes that execute an instruction together; 0: each lane for itself. */
static uint32_t named_lanes(const ptx_warp *w, const ptx_insn *i, uint32_t on)
{
    uint32_t named = 0;
    switch (i->op) {
    case PTX_bar:
    case PTX_barrier:
    case PTX_mma:
    case PTX_ldmatrix:
        return w->live;
    case PTX_shfl:
    case PTX_vote:
        for (unsigned l = 0; l < PTX_LANES; l++)
            if (on >> l & 1)
                named |= (uint32_t)w->reg[(size_t)i->a[i->n - 1] * PTX_LANES + l];
        return named;
    default:
        return 0;
    }
}

/* Whether the lanes `mask` wait at instruction `pc` for others that can still come. */
static bool wait_for_others(ptx_warp *w, const ptx_insn *i, uint32_t mask, int pc)
{
    uint32_t named = named_lanes(w, i, mask);
    uint32_t awake = w->live & ~w->at_barrier & ~w->waiting & ~mask;
    if (!(named & awake & ~mask)) {
        w->waiting &= ~mask;
        return false;
    }
    for (unsigned l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1) {
            w->pc[l] = pc;
            w->named[l] = named;
        }
    w->waiting |= mask;
    return true;
}

/* Lanes end, which others may wait for. */
static void end_lanes(ptx_state *s, ptx_warp *w, uint32_t mask)
{
    for (unsigned l = 0; l < PTX_LANES; l++)
        if (w->waiting >> l & 1 && w->named[l] & mask) {
            ptx_fail(s, (int)(w->first_thread + l),
                     "lanes %08x of the warp end, for which it waits", mask & w->named[l]);
            return;
        }
    w->live &= ~mask;
}

static void call_function(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask);

static void step(ptx_state *s, ptx_warp *w)
{
    int pc;
    s->frame = w;
    uint32_t mask = choose_lanes(w, &pc);
    if (pc >= (int)s->k->n_insn) {
        end_lanes(s, w, mask);
        return;
    }
    const ptx_insn *i = &s->k->insn[pc];
    uint32_t on = guarded(w, i, mask);
    s->insn = i;
    if (on == mask && wait_for_others(w, i, mask, pc))
        return;
    s->m->count.instructions++;
    set_pc(w, mask, pc + 1);
    switch (i->op) {
    case PTX_bra:
        set_pc(w, on, i->target);
        break;
    case PTX_ret:
    case PTX_exit:
        end_lanes(s, w, on);
        break;
    case PTX_bar:
    case PTX_barrier:
        if (ptx_has(i, PTX_F_warp)) {
            if (on != w->live)
                ptx_fail(s, (int)w->first_thread, "a part of the warp (%08x of %08x)", on, w->live);
        } else if (on != w->live || !w->live) {
            ptx_fail(s, (int)w->first_thread, "a barrier for a part of the warp (%08x of %08x)", on,
                     w->live);
        } else {
            w->at_barrier = on;
        }
        break;
    case PTX_call:
        if (on)
            call_function(s, w, i, on);
        break;
    default:
        if (on)
            ptx_execute(s, w, i, on);
    }
}

/* Calls a function of the module for the lanes of `mask`. */
static void call_function(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    const ptx_kernel *caller = s->k, *k = &s->m->kernel[i->target];
    ptx_warp f = {.first_thread = w->first_thread};
    if (!k->is_function || i->n != k->n_formal) {
        ptx_fail(s, (int)w->first_thread, "a call of %.80s with %u of %u parameters", k->name, i->n,
                 k->n_formal);
        return;
    }
    f.reg = calloc((size_t)k->n_reg * PTX_LANES + 1, sizeof *f.reg);
    f.local = calloc((size_t)k->local_bytes * PTX_LANES + 1, 1);
    if (!f.reg || !f.local)
        abort();
    s->k = k;
    start_warp(s, &f);
    f.live = mask;
    /* Results are copied in as well as out. */
    for (int out = 0; out < 2; out++) {
        for (unsigned n = 0; n < k->n_formal; n++)
            for (unsigned l = 0; l < PTX_LANES; l++) {
                unsigned char *mine =
                    w->local + (size_t)l * caller->local_bytes + caller->reg[i->a[n]].value;
                unsigned char *its = f.local + (size_t)l * k->local_bytes + k->formal[n].at;
                if (mask >> l & 1)
                    memcpy(out ? mine : its, out ? its : mine, k->formal[n].bytes);
            }
        while (!out && f.live && !s->faulted) {
            step(s, &f);
            if (f.at_barrier)
                ptx_fail(s, (int)w->first_thread, "a barrier in a function");
        }
    }
    s->k = caller;
    s->frame = w;
    free(f.reg);
    free(f.local);
}

/* Whether every live thread waits; then they go on. */
static bool pass_barrier(ptx_state *s)
{
    bool any = false, ended = false;
    for (unsigned i = 0; i < s->n_warp; i++) {
        any = any || s->warp[i].live;
        ended = ended || !s->warp[i].live;
        if (s->warp[i].live != s->warp[i].at_barrier)
            return false;
    }
    if (!any)
        return false;
    if (ended)
        ptx_fail(s, -1, "a barrier that some warps never reach: they have ended");
    for (unsigned i = 0; i < s->n_warp; i++)
        s->warp[i].at_barrier = 0;
    s->epoch++;
    s->m->count.barriers++;
    return true;
}

static void run_block(ptx_state *s)
{
    s->block_epoch = ++s->epoch;
    memset(s->shared, 0xff, s->shared_bytes);
    for (unsigned t = 0; t < s->launch->threads; t++)
        s->copies[t].n = s->copies[t].n_group = 0;
    for (unsigned b = 0; b < s->shared_bytes; b++)
        s->shadow[b].pending = 0;
    for (unsigned i = 0; i < s->n_warp; i++)
        start_warp(s, &s->warp[i]);
    for (;;) {
        unsigned ready = 0, which;
        for (unsigned i = 0; i < s->n_warp; i++)
            ready += (s->warp[i].live & ~s->warp[i].at_barrier) != 0;
        if (s->faulted)
            return;
        if (!ready) {
            if (!pass_barrier(s))
                return;
            continue;
        }
        which = (unsigned)(ptx_random(s) % ready);
        ptx_warp *w = s->warp;
        while (!(w->live & ~w->at_barrier) || which-- > 0)
            w++;
        uint64_t burst = 1 + ptx_random(s) % BURST_MAX;
        for (uint64_t n = 0; n < burst && (w->live & ~w->at_barrier) && !s->faulted; n++)
            step(s, w);
        if (s->m->count.instructions > instructions_max)
            ptx_fail(s, -1, "an endless loop");
    }
}

/* -- Launches --------------------------------------------------------------------------------- */

static void *take(size_t n, size_t each)
{
    void *p = calloc(n ? n : 1, each);
    if (!p)
        abort();
    return p;
}

static void run_blocks(ptx_state *s)
{
    const unsigned *g = s->launch->grid;
    uint64_t n = (uint64_t)g[0] * g[1] * g[2];
    uint64_t *order = take((size_t)n, sizeof *order);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t k = ptx_random(s) % (i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (uint64_t i = 0; i < n && !s->faulted; i++) {
        s->block[0] = (unsigned)(order[i] % g[0]);
        s->block[1] = (unsigned)(order[i] / g[0] % g[1]);
        s->block[2] = (unsigned)(order[i] / g[0] / g[1]);
        run_block(s);
    }
    free(order);
}

const char *ptx_run(ptx_module *m, const ptx_launch *launch)
{
    const ptx_kernel *k = m->kernel;
    while (k < m->kernel + m->n_kernel && (k->is_function || strcmp(k->name, launch->kernel) != 0))
        k++;
    if (k == m->kernel + m->n_kernel) {
        snprintf(m->fault, sizeof m->fault, "no kernel %s", launch->kernel);
        return m->fault;
    }
    ptx_state s = {.m = m,
                   .k = k,
                   .launch = launch,
                   .shared_bytes = k->shared_bytes + launch->shared_bytes,
                   .n_warp = (launch->threads + PTX_LANES - 1) / PTX_LANES,
                   .random = launch->seed};
    s.shared = take(s.shared_bytes, 1);
    s.shadow = take(s.shared_bytes, sizeof *s.shadow);
    s.memory_shadow = take(launch->n_memory, sizeof *s.memory_shadow);
    s.copies = take(launch->threads, sizeof *s.copies);
    s.warp = take(s.n_warp, sizeof *s.warp);
    for (unsigned i = 0; i < s.n_warp; i++) {
        s.warp[i].first_thread = i * PTX_LANES;
        s.warp[i].reg = take((size_t)k->n_reg * PTX_LANES, sizeof *s.warp[i].reg);
        s.warp[i].local = take((size_t)k->local_bytes * PTX_LANES, 1);
    }
    run_blocks(&s);
    for (unsigned i = 0; i < s.n_warp; i++) {
        free(s.warp[i].reg);
        free(s.warp[i].local);
    }
    for (unsigned t = 0; t < launch->threads; t++) {
        free(s.copies[t].at);
        free(s.copies[t].group_end);
    }
    for (size_t i = 0; i < launch->n_memory; i++)
        free(s.memory_shadow[i]);
    free(s.memory_shadow);
    free(s.copies);
    free(s.warp);
    free(s.shadow);
    free(s.shared);
    return s.faulted ? m->fault : NULL;
}

ptx_count ptx_counted(const ptx_module *m)
{
    return m->count;
}
