/* Arrangements of the live values of all models during the beam search, and which operands must be
 * copied to be concatenated. The rules are those by which merge_emit.c builds the joint graph and
 * the memory planner places its values (ops/place.h):
 *
 *     part of a joint value    a run of adjacent models is a slice, which needs no copy
 *     concatenation            needs no copy if every operand has memory of its own: a value that a
 *                              node makes and that is in no other concatenation, or a whole joint
 *                              value; otherwise all operands are copied
 *
 * A concatenation is kept: a later node that needs the same one uses it. Inputs and views of other
 * values have no memory of their own. Each value has a slot in the arrangement while it is live;
 * slots are reused, as registers are by linear scan. O(operands) for each question. */
#include "passes/merge/beam_search.h"

#include "base/hash.h"

#include <string.h>

/* What an arrangement says of a value. */
enum {
    OWN,   /* a value of its own, with memory of its own */
    FIXED, /* a value of its own in memory of another: an input or a view */
    JOINED /* this and larger numbers: concatenated, JOINED + index in weft_arrangements.sets */
};

struct weft_arrangements {
    weft_merger *g;
    uint32_t *slot; /* by value: index + 1 in an arrangement while it is live; 0: never needed */
    uint32_t *last; /* by value: index + 1 of the last column that needs it; 0: none */
    uint32_t n_slot;
    weft_map *known;         /* hash of the concatenated values -> number */
    WEFT_VEC(uint32_t) sets; /* by number - JOINED: the models of the joint value */
};

/* -- Slots ------------------------------------------------------------------------------------ */

typedef struct free_slots {
    uint32_t *at, n; /* a stack of free slots */
} free_slots;

static void take_slot(weft_arrangements *a, free_slots *unused, weft_val v)
{
    if (v.i && a->last[v.i] > 0)
        a->slot[v.i] = unused->n > 0 ? unused->at[--unused->n] : ++a->n_slot;
}

static weft_val operand(const weft_arrangements *a, const weft_column *c, uint32_t i, uint32_t k)
{
    weft_val v = weft_node_in(a->g->m, c->node[i], k);
    return weft_merge__is_weight(a->g->m, v) ? (weft_val){0} : v;
}

/* Assigns slots to the results of a column, then frees the slots of operands that no later column
 * needs. */
static void pass_column(weft_arrangements *a, free_slots *unused, const weft_column *c,
                        uint32_t number)
{
    const weft_module *m = a->g->m;
    for (uint32_t i = 0; i < a->g->columns.n_model; i++)
        for (uint32_t k = 0; c->node[i].i && k < weft_node_out_count(m, c->node[i]); k++)
            take_slot(a, unused, weft_node_out(m, c->node[i], k));
    for (uint32_t i = 0; i < a->g->columns.n_model; i++)
        for (uint32_t k = 0; c->node[i].i && k < weft_node_in_count(m, c->node[i]); k++) {
            weft_val v = operand(a, c, i, k);
            bool again = false;
            for (uint32_t j = 0; j < k; j++)
                again = again || operand(a, c, i, j).i == v.i;
            if (v.i && !again && a->last[v.i] == number + 1)
                unused->at[unused->n++] = a->slot[v.i];
        }
}

weft_arrangements *weft_arrangement__open(weft_merger *g, const weft_column *column, uint32_t n)
{
    weft_arrangements *a = weft_arena_alloc(g->cx->scratch, sizeof *a);
    free_slots unused = {.at = weft_arena_array(g->cx->scratch, g->n_place, sizeof *unused.at)};
    a->g = g;
    a->known = weft_map_create(g->cx->scratch);
    a->slot = weft_arena_array(g->cx->scratch, g->n_place, sizeof *a->slot);
    a->last = weft_arena_array(g->cx->scratch, g->n_place, sizeof *a->last);
    for (uint32_t c = 0; c < n; c++)
        for (uint32_t i = 0; i < g->columns.n_model; i++) {
            weft_node node = column[c].node[i];
            for (uint32_t k = 0; node.i && k < weft_node_in_count(g->m, node); k++)
                a->last[operand(a, &column[c], i, k).i] = c + 1;
        }
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        for (uint32_t k = 0; k < weft_graph_input_count(g->columns.model[i]); k++)
            take_slot(a, &unused, weft_graph_input(g->columns.model[i], k));
    for (uint32_t c = 0; c < n; c++)
        pass_column(a, &unused, &column[c], c);
    return a;
}

uint32_t weft_arrangement__size(const weft_arrangements *a)
{
    return a->n_slot;
}

void weft_arrangement__start(const weft_arrangements *a, uint32_t *arrangement)
{
    memset(arrangement, 0, a->n_slot * sizeof *arrangement);
    for (uint32_t i = 0; i < a->g->columns.n_model; i++)
        for (uint32_t k = 0; k < weft_graph_input_count(a->g->columns.model[i]); k++) {
            weft_val v = weft_graph_input(a->g->columns.model[i], k);
            if (a->slot[v.i])
                arrangement[a->slot[v.i] - 1] = FIXED;
        }
}

void weft_arrangement__forget(const weft_arrangements *a, uint32_t *arrangement,
                              const weft_column *column, uint32_t c)
{
    for (uint32_t i = 0; i < a->g->columns.n_model; i++) {
        weft_node n = column->node[i];
        for (uint32_t k = 0; n.i && k < weft_node_in_count(a->g->m, n); k++) {
            weft_val v = operand(a, column, i, k);
            if (v.i && a->last[v.i] == c + 1)
                arrangement[a->slot[v.i] - 1] = OWN;
        }
    }
}

uint64_t weft_arrangement__hash(const weft_arrangements *a, const uint32_t *arrangement)
{
    return weft_hash64(arrangement, a->n_slot * sizeof *arrangement, 0);
}

/* -- Joint values ----------------------------------------------------------------------------- */

/* Operand k, or result k, of the node of model i. */
static weft_val value_of(const weft_arrangements *a, const weft_merge_group *p, uint32_t i,
                         uint32_t k, bool result)
{
    return result ? weft_node_out(a->g->m, p->column.node[i], k) : operand(a, &p->column, i, k);
}

static uint32_t place_of(const weft_arrangements *a, const uint32_t *arrangement, weft_val v)
{
    return v.i && a->slot[v.i] ? arrangement[a->slot[v.i] - 1] : OWN;
}

/* Enters the concatenation of operands, or results, k. The same values concatenated have the same
 * number in all arrangements. */
static void join(weft_arrangements *a, uint32_t *arrangement, const weft_merge_group *p, uint32_t k,
                 bool result)
{
    uint32_t set = weft_merge__models(a->g, &p->column);
    uint64_t hash = set, number = 0;
    for (uint32_t i = 0; i < a->g->columns.n_model; i++)
        if (set >> i & 1)
            hash = weft_hash_mix(hash, value_of(a, p, i, k, result).i);
    if (!weft_map_get(a->known, hash, &number)) {
        number = JOINED + a->sets.len;
        weft_map_put(a->known, hash, number);
        WEFT_VEC_PUSH(a->g->cx->scratch, &a->sets, set);
    }
    for (uint32_t i = 0; i < a->g->columns.n_model; i++) {
        weft_val v = set >> i & 1 ? value_of(a, p, i, k, result) : (weft_val){0};
        if (v.i && a->slot[v.i])
            arrangement[a->slot[v.i] - 1] = (uint32_t)number;
    }
}

/* The models of `set` whose operand k is in joint value `joined`. */
static uint32_t models_in(const weft_arrangements *a, const uint32_t *arrangement,
                          const weft_column *c, uint32_t set, uint32_t k, uint32_t joined)
{
    uint32_t in = 0;
    for (uint32_t i = 0; i < a->g->columns.n_model; i++)
        if (set >> i & 1 && place_of(a, arrangement, operand(a, c, i, k)) == joined)
            in |= 1u << i;
    return in;
}

/* Concatenates operand k. *together: it was concatenated already. Returns whether it must be
 * copied. */
static bool gather(weft_arrangements *a, uint32_t *arrangement, const weft_merge_group *p,
                   uint32_t k, bool *together)
{
    uint32_t set = weft_merge__models(a->g, &p->column), left = set, run = 0;
    bool copied = false;
    while (left) {
        uint32_t i = weft_merge__lowest(left);
        uint32_t at = place_of(a, arrangement, operand(a, &p->column, i, k));
        uint32_t whole = at >= JOINED ? a->sets.at[at - JOINED] : 1u << i;
        uint32_t same = at >= JOINED ? models_in(a, arrangement, &p->column, set, k, at) : 1u << i;
        run = weft_merge__run(set, same, whole, i);
        copied = copied || at == FIXED || run != whole;
        left &= ~run;
    }
    *together = run == set;
    if (*together)
        return false;
    join(a, arrangement, p, k, false);
    return copied;
}

uint64_t weft_arrangement__gather(weft_arrangements *a, uint32_t *arrangement,
                                  const weft_merge_group *p, uint32_t *out_together)
{
    weft_node first = weft_merge__first(a->g, &p->column);
    uint32_t n = p->gathers ? weft_node_in_count(a->g->m, first) : 1;
    uint64_t copied = 0;
    *out_together = 0;
    for (uint32_t k = 0; k < n && k < 63; k++) {
        weft_val v = weft_node_in(a->g->m, first, k);
        bool together = false;
        if (!v.i || weft_merge__is_weight(a->g->m, v))
            continue;
        copied |= (uint64_t)gather(a, arrangement, p, k, &together) << k;
        *out_together += together;
    }
    return copied;
}

void weft_arrangement__set_results(weft_arrangements *a, uint32_t *arrangement,
                                   const weft_merge_group *p)
{
    weft_node first = weft_merge__first(a->g, &p->column);
    bool view = weft_node_opdef(a->g->m, first)->traits & WEFT_T_VIEW;
    for (uint32_t k = 0; k < weft_node_out_count(a->g->m, first); k++) {
        if (p->together)
            join(a, arrangement, p, k, true);
        for (uint32_t i = 0; !p->together && i < a->g->columns.n_model; i++) {
            weft_node n = p->column.node[i];
            weft_val v = n.i ? weft_node_out(a->g->m, n, k) : (weft_val){0};
            if (v.i && a->slot[v.i])
                arrangement[a->slot[v.i] - 1] =
                    view && place_of(a, arrangement, weft_node_in(a->g->m, n, 0)) != OWN ? FIXED
                                                                                         : OWN;
        }
    }
}

uint32_t weft_arrangement__find_joined(const weft_arrangements *a, const uint32_t *arrangement,
                                       const weft_column *c, uint32_t set)
{
    uint32_t first = weft_merge__lowest(set);
    for (uint32_t k = 0; k < weft_node_in_count(a->g->m, c->node[first]); k++) {
        uint32_t at = place_of(a, arrangement, operand(a, c, first, k));
        if (at >= JOINED)
            return models_in(a, arrangement, c, set, k, at);
    }
    return 0;
}
