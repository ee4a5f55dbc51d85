/* Answers that grow with the number of models: statistics, the index, metrics. They are written in
 * parts, in the order in which they were asked for, with a short time for all of them in each turn
 * of the loop: a thousand models take 20 ms and more. Most servers have few models, and answer at
 * once. */
#include "runtime/server/serve_int.h"

#include <stdlib.h>

static const uint64_t turn_ns = 500000;

struct weft_listings {
    weft_listing *first; /* the oldest */
    uint64_t spent_ns;   /* in this turn */
};

/* Writes until the list is whole (true) or the time of this turn is over. */
static bool write_on(weft_listings *all, weft_listing *l)
{
    uint64_t last_ns = weft_clock__now_ns();
    while (all->spent_ns < turn_ns) {
        bool more = l->write(l);
        uint64_t now_ns = weft_clock__now_ns();
        all->spent_ns += now_ns - last_ns;
        l->spent_ns += now_ns - last_ns;
        last_ns = now_ns;
        if (!more)
            return true;
    }
    return false;
}

static uint64_t on_idle(void *user)
{
    weft_listings *all = user;
    all->spent_ns = 0;
    while (all->first && write_on(all, all->first)) {
        weft_listing *l = all->first;
        weft_listing__leave(all, l);
        l->done(l);
    }
    return all->first ? 0 : UINT64_MAX;
}

weft_listings *weft_listing__open(weft_loop *loop)
{
    weft_listings *all = calloc(1, sizeof *all);
    if (all && weft_loop__idle(loop, on_idle, all))
        return all;
    free(all);
    return NULL;
}

void weft_listing__close(weft_listings *all)
{
    free(all);
}

bool weft_listing__begin(weft_listings *all, weft_listing *l)
{
    weft_listings alone = {0};
    if (!all) {
        while (!write_on(&alone, l))
            alone.spent_ns = 0;
        return true;
    }
    /* In its turn behind those that are under way. */
    if (!all->first && write_on(all, l))
        return true;
    weft_listing **end = &all->first;
    while (*end)
        end = &(*end)->next;
    *end = l;
    l->waits = true;
    return false;
}

void weft_listing__leave(weft_listings *all, weft_listing *l)
{
    if (!l->waits)
        return;
    weft_listing **at = &all->first;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->next = NULL;
    l->waits = false;
}
