/* Places of values; place.h.
 *
 * Concatenation without copying. If all dims before the axis are 1 (one image, concatenated along
 * channels), the operands of a concatenation are contiguous in its result and can be computed
 * there. Launches are visited from last to first: a result whose operands own their memory becomes
 * their host; a result whose operands are already contiguous in one host becomes a part of that
 * host:
 *
 *   %c2 = concat %x, %a           %c2 is the front of %c3
 *   %c3 = concat %x, %a, %b       %x, %a and %b are computed in %c3
 *
 * If an operand is a view of a whole value that owns its memory, that value moves into the host.
 *
 * Slices without copying. A slice along the outermost axis longer than 1 is contiguous in its
 * operand; if it starts at a multiple of the alignment it shares the operand's memory. */
#include "ops/place.h"

#include <string.h>

enum { ALIGN = 64 };
/* Bound on the work, for hostile programs. */
enum { BUDGET = 50000000 };

typedef struct joint {
    weft_place_value *value;
    uint32_t n_value;
} joint;

/* -- Launches ------------------------------------------------------------------------------- */

bool weft_place_is_one(const weft_dim *dim, int32_t n_dim, int32_t rank)
{
    bool one_channel = true, one_pixel = true;
    for (int32_t i = 0; i < n_dim; i++) {
        int32_t axis = rank - n_dim + i;
        one_channel = one_channel && (axis != 1 || dim[i] == 1);
        one_pixel = one_pixel && (axis < 2 || dim[i] == 1);
    }
    return one_channel || one_pixel;
}

bool weft_place_keeps_order(weft_layout from, weft_layout to, const weft_dim *dim, int32_t rank)
{
    return weft_layout_block(from) == 1 && weft_layout_block(to) == 1 && rank >= 3 &&
           weft_place_is_one(dim, rank, rank);
}

static bool is_view(const weft_place_value *value, const weft_place_launch *l)
{
    bool reorder = l->op == WEFT_OP_REORDER;
    if ((!reorder && !(weft_op_get(l->op)->traits & WEFT_T_VIEW)) || l->n_in == 0 ||
        l->n_out != 1 || !l->in[0] || !l->out[0])
        return false;
    const weft_place_value *in = &value[l->in[0]], *out = &value[l->out[0]];
    if (reorder)
        return in->bytes == out->bytes && in->rank == out->rank &&
               memcmp(in->dim, out->dim, sizeof in->dim) == 0 &&
               weft_place_keeps_order(in->layout, out->layout, in->dim, in->rank);
    return in->layout == out->layout && in->bytes == out->bytes && in->dtype == out->dtype &&
           (in->layout == WEFT_LAYOUT_PLAIN ||
            (in->rank == out->rank && memcmp(in->dim, out->dim, sizeof in->dim) == 0));
}

bool weft_place_is_cut(weft_op_id op, weft_attrs attrs, uint32_t n_in, int64_t *out_axis,
                       weft_dim *out_start)
{
    uint32_t n_axis = 0, n_step = 0;
    const int64_t *axis = weft_attrs_ints(attrs, WEFT_ATTR_AXES, &n_axis);
    const int64_t *step = weft_attrs_ints(attrs, WEFT_ATTR_STEPS, &n_step);
    const weft_attr *starts = weft_attrs_find(attrs, WEFT_ATTR_STARTS);
    if (op != WEFT_OP_SLICE || n_in != 1 || n_axis != 1 || !starts ||
        starts->kind != WEFT_KIND_DIMS || starts->n != 1 || (step && (n_step != 1 || *step != 1)))
        return false;
    *out_axis = *axis;
    *out_start = starts->u.dims[0];
    return true;
}

/* Whether the result is contiguous in the operand; *shift: its offset in bytes. */
static bool find_run(const weft_place_value *value, const weft_place_launch *l, uint64_t *shift)
{
    if (!l->cut || l->n_in != 1 || l->n_out != 1 || !l->in[0] || !l->out[0])
        return false;
    const weft_place_value *in = &value[l->in[0]], *out = &value[l->out[0]];
    int64_t axis = l->axis < 0 ? l->axis + in->rank : l->axis;
    /* Inputs and weights are not in the arena: their slices are copied. */
    if (value[in->root].place != WEFT_PLACE_ARENA || in->layout != out->layout ||
        in->dtype != out->dtype || in->rank != out->rank || axis < 0 || axis >= in->rank ||
        (axis > 0 && in->layout != WEFT_LAYOUT_PLAIN))
        return false;
    for (int32_t d = 0; d < in->rank; d++)
        if ((d < axis && in->dim[d] != 1) || (d != axis && in->dim[d] != out->dim[d]))
            return false;
    int64_t length = in->dim[axis];
    if (length <= 0 || l->start < 0 || l->start > length || out->dim[axis] > length - l->start)
        return false;
    *shift = in->bytes / (uint64_t)length * (uint64_t)l->start;
    return *shift % ALIGN == 0;
}

/* Places the results of launch i and extends the lifetimes of its operands. */
static void place_launch(weft_place_value *value, weft_place_launch *l, uint32_t i)
{
    for (uint32_t k = 0; k < l->n_in; k++) {
        if (!l->in[k])
            continue;
        l->dynamic = l->dynamic || value[l->in[k]].place == WEFT_PLACE_DYNAMIC;
        value[value[l->in[k]].root].last = i;
    }
    for (uint32_t k = 0; k < l->n_out; k++)
        l->dynamic = l->dynamic || (l->out[k] && value[l->out[k]].place == WEFT_PLACE_DYNAMIC);
    uint64_t shift = 0;
    l->view = !l->dynamic && (is_view(value, l) || find_run(value, l, &shift));
    for (uint32_t k = 0; k < l->n_out; k++) {
        weft_place_value *out = &value[l->out[k]];
        if (!l->out[k])
            continue;
        out->place = l->dynamic ? WEFT_PLACE_DYNAMIC
                     : l->view  ? WEFT_PLACE_ALIAS
                                : WEFT_PLACE_ARENA;
        if (l->view) {
            out->root = value[l->in[0]].root;
            out->shift = value[l->in[0]].shift + shift;
        }
        out->first = out->last = i;
    }
}

/* -- Concatenations ------------------------------------------------------------------------- */

/* The operands, in order, are contiguous parts of the result that fill it, in its layout. */
static bool follows(const joint *j, const weft_place_launch *l)
{
    const weft_place_value *out = &j->value[l->out[0]];
    int64_t axis = l->axis, block = weft_layout_block(out->layout);
    uint64_t bytes = 0;

    if (axis < 0)
        axis += out->rank;
    if (axis < 0 || axis >= out->rank)
        return false;
    if (axis == 0)
        block = 1; /* images follow each other in every layout */
    else if (out->layout == WEFT_LAYOUT_NHWC || (block > 1 && axis != 1))
        return false;
    for (int64_t d = 0; d < axis; d++)
        if (out->dim[d] != 1)
            return false;
    for (uint32_t i = 0; i < l->n_in; i++) {
        const weft_place_value *in = &j->value[l->in[i]];
        if (!l->in[i] || in->layout != out->layout || in->rank != out->rank ||
            in->dtype != out->dtype || bytes % ALIGN != 0 ||
            (in->dim[axis] % block != 0 && i + 1 < l->n_in))
            return false;
        bytes += in->bytes;
    }
    return bytes == out->bytes;
}

/* Each operand owns its memory, or is a view of a whole value that does; no two share memory. */
static bool are_free(const joint *j, const weft_place_launch *l)
{
    uint32_t host = j->value[l->out[0]].root;
    for (uint32_t i = 0; i < l->n_in; i++) {
        const weft_place_value *in = &j->value[l->in[i]], *root = &j->value[in->root];
        if (root->place != WEFT_PLACE_ARENA || root->hosts || in->shift != 0 ||
            in->bytes != root->bytes || in->root == host)
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (j->value[l->in[k]].root == in->root)
                return false;
    }
    return true;
}

/* The operands are already contiguous in one host, in order. */
static bool are_joined(const joint *j, const weft_place_launch *l)
{
    const weft_place_value *front = &j->value[l->in[0]];
    uint64_t at = front->shift;
    for (uint32_t i = 0; i < l->n_in; i++) {
        const weft_place_value *in = &j->value[l->in[i]];
        if (in->place != WEFT_PLACE_ALIAS || in->root != front->root || in->shift != at ||
            !j->value[in->root].hosts)
            return false;
        at += in->bytes;
    }
    return true;
}

/* Moves value v and its aliases to offset `shift` of `host`, whose lifetime grows accordingly. */
static void move(joint *j, uint32_t v, uint32_t host, uint64_t shift)
{
    for (uint32_t u = 1; u <= j->n_value; u++) {
        weft_place_value *x = &j->value[u];
        if (x->root != v || u == host)
            continue;
        x->place = WEFT_PLACE_ALIAS;
        x->root = host;
        x->shift += shift;
    }
    if (j->value[v].first < j->value[host].first)
        j->value[host].first = j->value[v].first;
    if (j->value[v].last > j->value[host].last)
        j->value[host].last = j->value[v].last;
}

static void join(joint *j, weft_place_launch *l)
{
    weft_place_value *out = &j->value[l->out[0]];
    bool own = out->place == WEFT_PLACE_ARENA;
    if (are_free(j, l) && (own || j->value[out->root].hosts)) {
        uint64_t at = out->shift;
        j->value[out->root].hosts = true;
        for (uint32_t k = 0; k < l->n_in; k++) {
            uint64_t bytes = j->value[l->in[k]].bytes;
            move(j, j->value[l->in[k]].root, out->root, at);
            at += bytes;
        }
    } else if (own && !out->hosts && are_joined(j, l)) {
        const weft_place_value *front = &j->value[l->in[0]];
        move(j, l->out[0], front->root, front->shift);
    } else {
        return;
    }
    l->joined = true;
}

static void join_all(joint *j, weft_place_launch *launch, uint32_t n_launch)
{
    uint64_t work = 0;
    for (uint32_t i = n_launch; i-- > 0;) {
        weft_place_launch *l = &launch[i];
        if (l->op != WEFT_OP_CONCAT || l->n_in == 0 || l->n_out != 1 || !l->out[0] || l->dynamic)
            continue;
        work += (uint64_t)l->n_in * ((uint64_t)j->n_value + l->n_in);
        if (work > BUDGET)
            return;
        if (follows(j, l))
            join(j, l);
    }
}

/* -- All ------------------------------------------------------------------------------------ */

void weft_place_values(weft_place_value *value, uint32_t n_value, weft_place_launch *launch,
                       uint32_t n_launch, const uint32_t *output, uint32_t n_output)
{
    joint j = {.value = value, .n_value = n_value};
    for (uint32_t v = 0; v <= n_value; v++) {
        value[v].root = v;
        value[v].shift = 0;
        value[v].hosts = false;
        value[v].first = value[v].last = 0;
    }
    for (uint32_t i = 0; i < n_launch; i++) {
        launch[i].joined = false;
        place_launch(value, &launch[i], i);
    }
    for (uint32_t i = 0; i < n_output; i++)
        value[value[output[i]].root].last = n_launch;
    join_all(&j, launch, n_launch);
}

/* -- Levels ------------------------------------------------------------------------------------ */

void weft_place_levels(const weft_place_launch *launch, uint32_t n_launch, uint32_t *maker,
                       weft_place_level *out)
{
    uint32_t begin = 0;
    for (uint32_t i = 0; i < n_launch; i++) {
        const weft_place_launch *l = &launch[i];
        bool looks = l->view || l->joined;
        uint32_t newest = 0; /* 1 + the last launch that makes an operand */
        for (uint32_t k = 0; k < l->n_in; k++)
            if (l->in[k] && maker[l->in[k]] > newest)
                newest = maker[l->in[k]];
        if (!looks && newest > begin)
            begin = i;
        out[i].first = begin;
        for (uint32_t k = 0; k < l->n_out; k++)
            if (l->out[k])
                maker[l->out[k]] = looks ? newest : i + 1;
    }
    for (uint32_t i = n_launch; i-- > 0;)
        out[i].last = i + 1 < n_launch && out[i + 1].first == out[i].first ? out[i + 1].last : i;
    out[n_launch] = (weft_place_level){n_launch, n_launch};
}
