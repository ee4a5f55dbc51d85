/* Where values lie while it is decided how columns are run, and what it takes to bring them
 * together. The rules are those by which merge_emit.c puts the joint graph together and the planner
 * places its values (ops/place.h):
 *
 *     a part of a joined value    a run of models in it is a slice, which takes no copy
 *     a concatenation             takes none when all that is put together has memory of its own:
 *                                 values that nodes make, each for one concatenation, and joined
 *                                 values as a whole; else all of it is copied
 *
 * What was put together once stays so: the next that needs it finds it there. Inputs, and views of
 * what lies elsewhere, have no memory of their own. O(operands) for each question. */
#include "passes/merge/choose.h"

#include "base/hash.h"

#include <string.h>

/* Where a value is: by itself; by itself, in memory of something else; from here on, numbers of
 * joined values. */
enum { OWN, STUCK, JOINED };

struct weft_lies {
    weft_merger *g;
    uint32_t *slot, *last; /* by value: 1 + its place in a lie, 1 + the last column that needs it */
    uint32_t n_slot;
    weft_map *known;         /* what lies together, as a hash, to its number */
    WEFT_VEC(uint32_t) sets; /* by number - JOINED: its models */
};

/* -- Slots ------------------------------------------------------------------------------------ */

typedef struct weft_slots {
    uint32_t *at, n; /* free ones, a stack */
} weft_slots;

static void take_slot(weft_lies *l, weft_slots *idle, weft_val v)
{
    if (v.i && l->last[v.i] > 0)
        l->slot[v.i] = idle->n > 0 ? idle->at[--idle->n] : ++l->n_slot;
}

static weft_val operand(const weft_lies *l, const weft_column *c, uint32_t i, uint32_t k)
{
    weft_val v = weft_node_in(l->g->m, c->node[i], k);
    return weft_merge__is_weight(l->g, v) ? (weft_val){0} : v;
}

/* Slots of the results, then those of operands that are needed no more are free. */
static void pass_column(weft_lies *l, weft_slots *idle, const weft_column *c, uint32_t number)
{
    const weft_module *m = l->g->m;
    for (uint32_t i = 0; i < l->g->columns.n_model; i++)
        for (uint32_t k = 0; c->node[i].i && k < weft_node_out_count(m, c->node[i]); k++)
            take_slot(l, idle, weft_node_out(m, c->node[i], k));
    for (uint32_t i = 0; i < l->g->columns.n_model; i++)
        for (uint32_t k = 0; c->node[i].i && k < weft_node_in_count(m, c->node[i]); k++) {
            weft_val v = operand(l, c, i, k);
            bool again = false;
            for (uint32_t j = 0; j < k; j++)
                again = again || operand(l, c, i, j).i == v.i;
            if (v.i && !again && l->last[v.i] == number + 1)
                idle->at[idle->n++] = l->slot[v.i];
        }
}

weft_lies *weft_lie__open(weft_merger *g, const weft_column *column, uint32_t n)
{
    weft_lies *l = weft_arena_alloc(g->cx->scratch, sizeof *l);
    weft_slots idle = {.at = weft_arena_array(g->cx->scratch, g->n_place, sizeof *idle.at)};
    l->g = g;
    l->known = weft_map_create(g->cx->scratch);
    l->slot = weft_arena_array(g->cx->scratch, g->n_place, sizeof *l->slot);
    l->last = weft_arena_array(g->cx->scratch, g->n_place, sizeof *l->last);
    for (uint32_t c = 0; c < n; c++)
        for (uint32_t i = 0; i < g->columns.n_model; i++) {
            weft_node node = column[c].node[i];
            for (uint32_t k = 0; node.i && k < weft_node_in_count(g->m, node); k++)
                l->last[operand(l, &column[c], i, k).i] = c + 1;
        }
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        for (uint32_t k = 0; k < weft_graph_input_count(g->columns.model[i]); k++)
            take_slot(l, &idle, weft_graph_input(g->columns.model[i], k));
    for (uint32_t c = 0; c < n; c++)
        pass_column(l, &idle, &column[c], c);
    return l;
}

uint32_t weft_lie__size(const weft_lies *l)
{
    return l->n_slot;
}

void weft_lie__start(const weft_lies *l, uint32_t *lie)
{
    memset(lie, 0, l->n_slot * sizeof *lie);
    for (uint32_t i = 0; i < l->g->columns.n_model; i++)
        for (uint32_t k = 0; k < weft_graph_input_count(l->g->columns.model[i]); k++) {
            weft_val v = weft_graph_input(l->g->columns.model[i], k);
            if (l->slot[v.i])
                lie[l->slot[v.i] - 1] = STUCK;
        }
}

void weft_lie__leave(const weft_lies *l, uint32_t *lie, const weft_column *column, uint32_t c)
{
    for (uint32_t i = 0; i < l->g->columns.n_model; i++) {
        weft_node n = column->node[i];
        for (uint32_t k = 0; n.i && k < weft_node_in_count(l->g->m, n); k++) {
            weft_val v = operand(l, column, i, k);
            if (v.i && l->last[v.i] == c + 1)
                lie[l->slot[v.i] - 1] = OWN;
        }
    }
}

uint64_t weft_lie__hash(const weft_lies *l, const uint32_t *lie)
{
    return weft_hash64(lie, l->n_slot * sizeof *lie, 0);
}

/* -- Together --------------------------------------------------------------------------------- */

/* Operand or result k of model i. */
static weft_val value_of(const weft_lies *l, const weft_piece *p, uint32_t i, uint32_t k,
                         bool result)
{
    return result ? weft_node_out(l->g->m, p->column.node[i], k) : operand(l, &p->column, i, k);
}

static uint32_t where(const weft_lies *l, const uint32_t *lie, weft_val v)
{
    return v.i && l->slot[v.i] ? lie[l->slot[v.i] - 1] : OWN;
}

/* From now on these values lie together: the same values have the same number in every lie. */
static void lay(weft_lies *l, uint32_t *lie, const weft_piece *p, uint32_t k, bool result)
{
    uint32_t set = weft_merge__models(l->g, &p->column);
    uint64_t hash = set, number = 0;
    for (uint32_t i = 0; i < l->g->columns.n_model; i++)
        if (set >> i & 1)
            hash = weft_hash_mix(hash, value_of(l, p, i, k, result).i);
    if (!weft_map_get(l->known, hash, &number)) {
        number = JOINED + l->sets.len;
        weft_map_put(l->known, hash, number);
        WEFT_VEC_PUSH(l->g->cx->scratch, &l->sets, set);
    }
    for (uint32_t i = 0; i < l->g->columns.n_model; i++) {
        weft_val v = set >> i & 1 ? value_of(l, p, i, k, result) : (weft_val){0};
        if (v.i && l->slot[v.i])
            lie[l->slot[v.i] - 1] = (uint32_t)number;
    }
}

/* Models of `set` whose operand k is in that joined value. */
static uint32_t lying_in(const weft_lies *l, const uint32_t *lie, const weft_column *c,
                         uint32_t set, uint32_t k, uint32_t joined)
{
    uint32_t in = 0;
    for (uint32_t i = 0; i < l->g->columns.n_model; i++)
        if (set >> i & 1 && where(l, lie, operand(l, c, i, k)) == joined)
            in |= 1u << i;
    return in;
}

/* Brings operand k together; *together: it was. Returns whether it is copied. */
static bool bring(weft_lies *l, uint32_t *lie, const weft_piece *p, uint32_t k, bool *together)
{
    uint32_t set = weft_merge__models(l->g, &p->column), left = set, run = 0;
    bool copied = false;
    while (left) {
        uint32_t i = weft_merge__lowest(left);
        uint32_t at = where(l, lie, operand(l, &p->column, i, k));
        uint32_t whole = at >= JOINED ? l->sets.at[at - JOINED] : 1u << i;
        uint32_t same = at >= JOINED ? lying_in(l, lie, &p->column, set, k, at) : 1u << i;
        run = weft_merge__run(set, same, whole, i);
        copied = copied || at == STUCK || run != whole;
        left &= ~run;
    }
    *together = run == set;
    if (*together)
        return false;
    lay(l, lie, p, k, false);
    return copied;
}

uint64_t weft_lie__bring(weft_lies *l, uint32_t *lie, const weft_piece *p, uint32_t *out_together)
{
    weft_node first = weft_merge__first(l->g, &p->column);
    uint32_t n = p->gathers ? weft_node_in_count(l->g->m, first) : 1;
    uint64_t copied = 0;
    *out_together = 0;
    for (uint32_t k = 0; k < n && k < 63; k++) {
        weft_val v = weft_node_in(l->g->m, first, k);
        bool together = false;
        if (!v.i || weft_merge__is_weight(l->g, v))
            continue;
        copied |= (uint64_t)bring(l, lie, p, k, &together) << k;
        *out_together += together;
    }
    return copied;
}

void weft_lie__put(weft_lies *l, uint32_t *lie, const weft_piece *p)
{
    weft_node first = weft_merge__first(l->g, &p->column);
    bool view = weft_node_opdef(l->g->m, first)->traits & WEFT_T_VIEW;
    for (uint32_t k = 0; k < weft_node_out_count(l->g->m, first); k++) {
        if (p->together)
            lay(l, lie, p, k, true);
        for (uint32_t i = 0; !p->together && i < l->g->columns.n_model; i++) {
            weft_node n = p->column.node[i];
            weft_val v = n.i ? weft_node_out(l->g->m, n, k) : (weft_val){0};
            if (v.i && l->slot[v.i])
                lie[l->slot[v.i] - 1] =
                    view && where(l, lie, weft_node_in(l->g->m, n, 0)) != OWN ? STUCK : OWN;
        }
    }
}

uint32_t weft_lie__beside(const weft_lies *l, const uint32_t *lie, const weft_column *c,
                          uint32_t set)
{
    uint32_t first = weft_merge__lowest(set);
    for (uint32_t k = 0; k < weft_node_in_count(l->g->m, c->node[first]); k++) {
        uint32_t at = where(l, lie, operand(l, c, first, k));
        if (at >= JOINED)
            return lying_in(l, lie, c, set, k, at);
    }
    return 0;
}
