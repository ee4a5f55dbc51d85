/* The pace of batches. Slices of one device that no MIG boundary separates share caches, memory
 * and often the units of a core, so that a batch takes longer while its neighbours compute.
 *
 * A profile may have both times of a batch: with the rest of the device idle, and with the rest
 * busy. In between the time is linear in the busy part of the rest, in which each process counts by
 * its part of the device. When a neighbour begins or ends a batch, what is left of the batch goes
 * on at the new pace: its time is the exact integral over the course of the neighbours' load.
 *
 * Cost of a batch: O(processes of the device) where some profile has both times. */
#include "scheduler/simulate/simulate_int.h"

#include <math.h>

/* Part of the device that computes for a slice. */
static double busy_share(const sim_world *w, const sim_slice *slice)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < slice->n_server; i++)
        n += w->server.at[slice->first_server + i].busy;
    return slice->share * n / slice->n_server;
}

static void go_on(sim_world *w, sim_server *server, uint32_t index, double load)
{
    const sim_size *size = server->size;
    double slower_ns = load * (double)(size->exec_ns - size->idle_ns);
    int64_t pace_ns = size->idle_ns + (int64_t)(slower_ns + 0.5);
    if (server->pace_ns == pace_ns)
        return;
    weft_sim__account_server(w, server);
    server->left -= (double)(w->now_ns - server->paced_ns) / (double)server->pace_ns;
    server->pace_ns = pace_ns;
    server->paced_ns = w->now_ns;
    server->end_ns = w->now_ns + (int64_t)ceil(fmax(server->left, 0) * (double)pace_ns);
    weft_sim__set_timer(w, server->end_ns, SIM_TIMER_DONE, index);
}

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
        for (uint32_t k = 0; k < slice->n_server; k++)
            if (w->server.at[slice->first_server + k].busy)
                go_on(w, &w->server.at[slice->first_server + k], slice->first_server + k, load);
    }
}
