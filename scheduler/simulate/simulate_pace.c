/* The pace of batches. Slices of one device that no MIG boundary separates share caches, memory
 * and often the units of a core, so that a batch takes longer while its neighbours compute.
 *
 * MPS shares, if the rules have interference: the time of the profile is multiplied by the factor
 * of the batches that run beside it now (builder/interference.c, by which plans are made, too).
 *
 * All others: a profile may have both times of a batch, with the rest of the device idle and with
 * the rest busy. In between the time is linear in the busy part of the rest, in which each process
 * counts by its part of the device.
 *
 * When a neighbour begins or ends a batch, what is left of the batch goes on at the new pace: its
 * time is the exact integral over the course of the neighbours' load.
 *
 * Cost of a batch: O(processes of the device) where some profile has both times; with interference
 * O(slices^2) the first time that these batches run beside each other, then as without. */
#include "scheduler/simulate/simulate_int.h"

#include "base/hash.h"

#include <math.h>

/* Part of the device that computes for a slice. */
static double busy_share(const sim_world *w, const sim_slice *slice)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < slice->n_server; i++)
        n += w->server.at[slice->first_server + i].busy;
    return slice->share * n / slice->n_server;
}

static void go_on(sim_world *w, uint32_t index, int64_t pace_ns)
{
    sim_server *server = &w->server.at[index];
    if (server->pace_ns == pace_ns)
        return;
    weft_sim__account_server(w, server);
    server->left -= (double)(w->now_ns - server->paced_ns) / (double)server->pace_ns;
    server->pace_ns = pace_ns;
    server->paced_ns = w->now_ns;
    server->end_ns = w->now_ns + (int64_t)ceil(fmax(server->left, 0) * (double)pace_ns);
    weft_sim__set_timer(w, server->end_ns, SIM_TIMER_DONE, index);
}

/* -- Interference ----------------------------------------------------------------------------- */

/* The batch that a slice runs, of several the one that uses the most; NULL: none. */
static const sim_size *running(const sim_world *w, const sim_slice *slice)
{
    const sim_size *most = NULL;
    for (uint32_t i = 0; i < slice->n_server; i++) {
        const sim_server *server = &w->server.at[slice->first_server + i];
        if (server->busy && (!most || server->size->use.dram > most->use.dram))
            most = server->size;
    }
    return most;
}

/* The factor by which the neighbours of a slice slow its batch down now. */
static double factor_now(const sim_world *w, const sim_device *d, const sim_slice *slice,
                         const sim_size *own)
{
    const weft_interference *coeff = &w->o->problem->rules.interference;
    weft_pressure_sum others = {0};
    for (uint32_t i = 0; i < d->slice.len; i++) {
        const sim_slice *other = &w->slice.at[d->slice.at[i]];
        const sim_size *size = other == slice || !other->among ? NULL : running(w, other);
        if (size && other->mig_start == slice->mig_start)
            weft_interference__add(coeff, size->use, &others);
    }
    return weft_interference__factor(coeff, own->use, &others);
}

/* The same, from a memory of what has run beside each other before. */
static double factor_of(sim_world *w, const sim_device *d, const sim_slice *slice,
                        const sim_size *own)
{
    union {
        double x;
        uint64_t bits;
    } factor;
    uint64_t key = own->id;
    for (uint32_t i = 0; i < d->slice.len; i++) {
        const sim_slice *other = &w->slice.at[d->slice.at[i]];
        const sim_size *size = other == slice || !other->among ? NULL : running(w, other);
        if (size && other->mig_start == slice->mig_start)
            key = weft_hash_mix(key, size->id);
    }
    if (weft_map_get(w->factor, key, &factor.bits))
        return factor.x;
    factor.x = factor_now(w, d, slice, own);
    if (weft_map_len(w->factor) < SIM_FACTORS_MAX)
        weft_map_put(w->factor, key, factor.bits);
    return factor.x;
}

/* -- Pace ------------------------------------------------------------------------------------- */

void weft_sim__pace(sim_world *w, uint32_t device)
{
    const sim_device *d = &w->device.at[device];
    double busy = 0;
    if (!d->paced)
        return;
    for (uint32_t i = 0; i < d->slice.len; i++)
        busy += busy_share(w, &w->slice.at[d->slice.at[i]]);
    for (uint32_t i = 0; i < d->slice.len; i++) {
        const sim_slice *slice = &w->slice.at[d->slice.at[i]];
        double rest = 1 - slice->share, beside = busy - busy_share(w, slice);
        double load = rest > 1e-9 ? fmin(fmax(beside / rest, 0), 1) : 0;
        for (uint32_t k = slice->first_server; k < slice->first_server + slice->n_server; k++) {
            const sim_size *size = w->server.at[k].size;
            if (!w->server.at[k].busy)
                continue;
            double slower_ns = load * (double)(size->exec_ns - size->idle_ns);
            double pace_ns = slice->among ? (double)size->exec_ns * factor_of(w, d, slice, size)
                                          : (double)size->idle_ns + slower_ns;
            go_on(w, k, (int64_t)(pace_ns + 0.5));
        }
    }
}
