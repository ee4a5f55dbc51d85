/* Orders in which policies place demands. */
#include "scheduler/builder/builder.h"

#include <stdlib.h>

typedef struct turn {
    uint32_t demand, rank; /* rank: position by name */
    double key;
} turn;

static int compare_turns(const void *a, const void *b)
{
    const turn *p = a, *q = b;
    if (p->key != q->key)
        return p->key < q->key ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

uint32_t *weft_builder__sort(const weft_builder *builder,
                             double (*key)(const weft_builder *builder, uint32_t demand))
{
    uint32_t n = (uint32_t)builder->demands->n;
    turn *turns = weft_arena_array(builder->arena, n + 1u, sizeof *turns);
    uint32_t *out = weft_arena_array(builder->arena, n + 1u, sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        turns[i] = (turn){builder->order[i], i, key(builder, builder->order[i])};
    if (n > 0)
        qsort(turns, n, sizeof *turns, compare_turns);
    for (uint32_t i = 0; i < n; i++)
        out[i] = turns[i].demand;
    return out;
}

double weft_builder__need(const weft_builder *builder, uint32_t demand)
{
    double least = 0;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        double each = o->spec.weight / o->peak_per_s;
        least = i == 0 || each < least ? each : least;
    }
    return least;
}
