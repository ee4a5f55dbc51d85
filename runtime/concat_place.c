/* Concatenation without copying.
 *
 * Where nothing lies outside the axis (one image, joined along channels), the operands of a
 * concatenation follow each other in its result, so that they can be computed there in the first
 * place. Going from the last launch to the first, a result whose operands are free becomes their
 * host; a result whose operands already follow each other in one host is a part of it:
 *
 *   %c2 = concat %x, %a           %c2 is the front of %c3
 *   %c3 = concat %x, %a, %b       %x, %a and %b are computed in %c3
 */
#include "runtime/session_int.h"

enum { ALIGN = 64 };
/* Steps of work: a hostile program is not searched for long. */
enum { BUDGET = 50000000 };

typedef struct joint {
    const weft_bundle_program *p;
    weft_spec *spec;
    uint32_t *first, *last;
} joint;

/* Operands are whole, in the result's layout, and fill it one behind the other. */
static bool follows(const joint *j, const weft_bundle_launch *l)
{
    const weft_spec_value *out = &j->spec->value[l->out[0]];
    const weft_tensor *t = &out->slot.tensor;
    int64_t axis = weft_attrs_int(l->attrs, WEFT_ATTR_AXIS, 0), block;
    uint64_t bytes = 0;

    if (axis < 0)
        axis += t->rank;
    block = weft_layout_block(out->slot.layout);
    if (axis < 0 || axis >= t->rank || out->slot.layout == WEFT_LAYOUT_NHWC ||
        (block > 1 && axis != 1))
        return false;
    for (int64_t d = 0; d < axis; d++)
        if (t->dim[d] != 1)
            return false;
    for (uint32_t i = 0; i < l->n_in; i++) {
        const weft_spec_value *in = &j->spec->value[l->in[i]];
        if (!l->in[i] || in->slot.layout != out->slot.layout || in->slot.tensor.rank != t->rank ||
            in->slot.tensor.dtype != t->dtype || bytes % ALIGN != 0 ||
            (in->slot.tensor.dim[axis] % block != 0 && i + 1 < l->n_in))
            return false;
        bytes += in->bytes;
    }
    return bytes == out->bytes;
}

/* Operands that have memory of their own, each once. */
static bool are_free(const joint *j, const weft_bundle_launch *l)
{
    for (uint32_t i = 0; i < l->n_in; i++) {
        const weft_spec_value *in = &j->spec->value[l->in[i]];
        if (in->place != WEFT_PLACE_ARENA || in->hosts || l->in[i] == l->out[0])
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (l->in[k] == l->in[i])
                return false;
    }
    return true;
}

/* Operands that lie one behind the other in one host already. */
static bool are_joined(const joint *j, const weft_bundle_launch *l)
{
    const weft_spec_value *front = &j->spec->value[l->in[0]];
    uint64_t at = front->shift;
    for (uint32_t i = 0; i < l->n_in; i++) {
        const weft_spec_value *in = &j->spec->value[l->in[i]];
        if (in->place != WEFT_PLACE_ALIAS || in->root != front->root || in->shift != at ||
            !j->spec->value[in->root].hosts)
            return false;
        at += in->bytes;
    }
    return true;
}

/* Moves value v, and all that alias it, to `shift` bytes behind the start of `host`. */
static void move(joint *j, uint32_t v, uint32_t host, uint64_t shift)
{
    for (uint32_t u = 1; u <= j->p->n_value; u++) {
        weft_spec_value *x = &j->spec->value[u];
        if (x->root != v || u == host)
            continue;
        x->place = WEFT_PLACE_ALIAS;
        x->root = host;
        x->shift += shift;
    }
    if (j->first[v] < j->first[host])
        j->first[host] = j->first[v];
    if (j->last[v] > j->last[host])
        j->last[host] = j->last[v];
}

void weft_spec__join(const weft_bundle_program *program, weft_spec *spec, uint32_t *first,
                     uint32_t *last)
{
    joint j = {.p = program, .spec = spec, .first = first, .last = last};
    uint64_t work = 0;
    for (uint32_t i = program->n_launch; i-- > 0;) {
        const weft_bundle_launch *l = &program->launch[i];
        if (l->op != WEFT_OP_CONCAT || l->n_in == 0 || l->n_out != 1 || !l->out[0] ||
            spec->launch[i].late)
            continue;
        work += (uint64_t)l->n_in * ((uint64_t)program->n_value + l->n_in);
        if (work > BUDGET)
            break;
        if (!follows(&j, l))
            continue;
        weft_spec_value *out = &spec->value[l->out[0]];
        bool own = out->place == WEFT_PLACE_ARENA;
        if (are_free(&j, l) && (own || spec->value[out->root].hosts)) {
            uint64_t at = out->shift;
            spec->value[out->root].hosts = true;
            for (uint32_t k = 0; k < l->n_in; k++) {
                move(&j, l->in[k], out->root, at);
                at += spec->value[l->in[k]].bytes;
            }
        } else if (own && !out->hosts && are_joined(&j, l)) {
            const weft_spec_value *front = &spec->value[l->in[0]];
            move(&j, l->out[0], front->root, front->shift);
        } else {
            continue;
        }
        spec->launch[i].joined = true;
    }
}
