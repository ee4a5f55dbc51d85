/* The loop's source of answers that come through shared memory. */
#include "runtime/server/router_int.h"

bool weft_router__take_shared(void *user)
{
    weft_router *router = user;
    bool any = false;
    for (uint32_t i = 0; i < router->n_worker; i++)
        any = weft_worker__take(&router->worker[i].process) || any;
    return any;
}

static bool sleep_shared(void *user)
{
    weft_router *router = user;
    bool ok = true;
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (weft_worker__awaits(&router->worker[i].process))
            ok = weft_channel__sleep(router->worker[i].process.channel) && ok;
    return ok;
}

static void wake_shared(void *user)
{
    weft_router *router = user;
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (weft_worker__awaits(&router->worker[i].process))
            weft_channel__wake(router->worker[i].process.channel);
}

/* The worker whose answer is worth looking for. */
static uint64_t look_shared(void *user)
{
    weft_router *router = user;
    uint64_t most_ns = 0;
    for (uint32_t i = 0; i < router->n_worker; i++) {
        worker_process *w = &router->worker[i].process;
        uint64_t look_ns = weft_worker__awaits(w) ? weft_look__limit(&w->look) : 0;
        most_ns = look_ns > most_ns ? look_ns : most_ns;
    }
    return most_ns;
}

static void missed_shared(void *user)
{
    weft_router *router = user;
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (weft_worker__awaits(&router->worker[i].process))
            weft_look__missed(&router->worker[i].process.look);
}

void weft_router__watch_channels(weft_router *router)
{
    router->source = (weft_loop_source){.take = weft_router__take_shared,
                                        .sleep = sleep_shared,
                                        .wake = wake_shared,
                                        .look = look_shared,
                                        .missed = missed_shared,
                                        .user = router};
    weft_loop__source(router->loop, &router->source);
}
