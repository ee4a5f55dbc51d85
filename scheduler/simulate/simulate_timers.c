/* Timers of the simulated world: a heap of times, each with what happens then. A timer that is no
 * longer right is not taken out; what it would end has another end by then. */
#include "scheduler/simulate/simulate_int.h"

void weft_sim__set_timer(sim_world *w, int64_t time_ns, int kind, uint32_t index)
{
    if (w->n_timer == w->timer_room) {
        size_t room = w->timer_room ? 2 * w->timer_room : 1024;
        w->timer = weft_arena_grow(w->arena, w->timer, w->timer_room * sizeof *w->timer,
                                   room * sizeof *w->timer);
        w->timer_room = room;
    }
    weft_timer__push(w->timer, w->n_timer++,
                     (weft_timer){time_ns, (uint32_t)kind << SIM_TIMER_SHIFT | index});
}
