/* Kernels that several specialisations of a session use.
 *
 * Where only one size of a run changes, as the length of a decoder's past does with every token,
 * most launches have the operands that they had before: they keep their kernels. A kernel does not
 * hold addresses between runs, and a session runs one specialisation at a time. Not on devices with
 * memory of their own, whose kernels are recorded in graphs. */
#include "runtime/session/session_int.h"

#include <stdlib.h>

static bool same_value(const weft_specialisation_value *a, const weft_specialisation_value *b)
{
    const weft_tensor *x = &a->slot.tensor, *y = &b->slot.tensor;
    if (a->slot.weight != b->slot.weight || a->slot.layout != b->slot.layout ||
        x->dtype != y->dtype || x->rank != y->rank ||
        weft_specialisation__align(a) != weft_specialisation__align(b))
        return false;
    for (int32_t d = 0; d < x->rank; d++)
        if (x->dim[d] != y->dim[d])
            return false;
    return true;
}

/* Launch i of two specialisations. */
static bool same_launch(const weft_bundle_launch *l, const weft_specialisation *a,
                        const weft_specialisation *b, uint32_t i)
{
    for (uint32_t k = 0; k < l->n_in; k++)
        if (l->in[k] && !same_value(&a->value[l->in[k]], &b->value[l->in[k]]))
            return false;
    for (uint32_t k = 0; k < l->n_out; k++)
        if (l->out[k] && !same_value(&a->value[l->out[k]], &b->value[l->out[k]]))
            return false;
    return weft_attrs_equal(a->launch[i].attrs, b->launch[i].attrs);
}

weft_shared_kernel *weft_shared_kernel__find(weft_session *s, const weft_specialisation *spec,
                                             uint32_t i)
{
    const weft_bundle_launch *l = &s->program->launch[i];
    if (s->engine->driver->device_ops)
        return NULL;
    for (uint32_t k = 0; k < WEFT_SPECIALISATION_HOST_MAX; k++) {
        const weft_specialisation *other = s->spec[k];
        if (!other || other->keep_nan != spec->keep_nan || !other->launch[i].kernel ||
            !same_launch(l, spec, other, i))
            continue;
        other->launch[i].kernel->refs++;
        return other->launch[i].kernel;
    }
    return NULL;
}

weft_shared_kernel *weft_shared_kernel__make(const weft_prep *prep)
{
    weft_shared_kernel *kernel = malloc(sizeof *kernel);
    void (*destroy)(void *) = prep->destroy ? prep->destroy : free;
    if (!kernel) {
        destroy(prep->state);
        return NULL;
    }
    *kernel = (weft_shared_kernel){.refs = 1,
                                   .run = prep->run,
                                   .state = prep->state,
                                   .destroy = destroy,
                                   .variant = prep->variant,
                                   .scratch_bytes = prep->scratch_bytes};
    return kernel;
}

void weft_shared_kernel__drop(weft_shared_kernel *kernel)
{
    if (!kernel || --kernel->refs > 0)
        return;
    kernel->destroy(kernel->state);
    free(kernel);
}
