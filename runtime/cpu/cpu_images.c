/* A launch over a batch of images as runs of a kernel for fewer of them. */
#include "runtime/cpu/cpu_images.h"
#include "runtime/cpu/cpu_memory.h"

#include <stdio.h>

typedef struct part_kernel {
    weft_kernel_fn run;
    void *state;
    void (*destroy)(void *state);
    int64_t parts;
    uint32_t n_arg;                       /* operands, result, scratch memory */
    uint64_t step[WEFT_IMAGES_SLOTS + 2]; /* bytes from one part's argument to the next one's */
    char variant[64];
} part_kernel;

static weft_err run_parts(void *state, void *const *arg)
{
    part_kernel *k = state;
    void *at[WEFT_IMAGES_SLOTS + 2];
    for (int64_t i = 0; i < k->parts; i++) {
        for (uint32_t a = 0; a < k->n_arg; a++)
            at[a] = arg[a] ? (char *)arg[a] + (uint64_t)i * k->step[a] : NULL;
        WEFT_TRY(k->run(k->state, at));
    }
    return WEFT_ERR_OK;
}

static void destroy_part(void (*destroy)(void *state), void *state)
{
    if (destroy)
        destroy(state);
    else
        free(state);
}

static void destroy_parts(void *state)
{
    part_kernel *k = state;
    destroy_part(k->destroy, k->state);
    free(k);
}

/* Slots without the outermost dim of the batch are the same for all parts. */
static bool divide(const weft_slot *y, int64_t images, weft_slot *slot, uint64_t *out_step)
{
    if (!slot->present || slot->tensor.rank < y->tensor.rank || slot->tensor.dim[0] == 1)
        return true;
    if (slot->tensor.rank != y->tensor.rank || slot->tensor.dim[0] != y->tensor.dim[0] ||
        slot->weight || slot->tensor.data)
        return false;
    slot->tensor.dim[0] = images;
    *out_step = (uint64_t)weft_cpu__slot_stored(slot) * weft_dtype_size(slot->tensor.dtype);
    return true;
}

bool weft_cpu__images(const weft_prep *p, int64_t images, uint32_t first_weight,
                      uint32_t last_weight, weft_cpu_images *out, weft_prep *part)
{
    if (p->n_in > WEFT_IMAGES_SLOTS || p->n_out != 1 || images < 1 ||
        p->out[0].tensor.dim[0] % images != 0)
        return false;
    *out = (weft_cpu_images){.images = images};
    for (uint32_t i = 0; i <= p->n_in; i++) {
        bool whole = i >= first_weight && i <= last_weight && i < p->n_in;
        out->slot[i] = i < p->n_in ? p->in[i] : p->out[0];
        if (!whole && !divide(&p->out[0], images, &out->slot[i], &out->step[i]))
            return false;
    }
    *part = *p;
    part->in = out->slot;
    part->out = &out->slot[p->n_in];
    return true;
}

weft_err weft_cpu__set_images(weft_prep *p, const weft_cpu_images *images, weft_prep *part)
{
    part_kernel *k = weft_cpu__calloc(1, sizeof *k);
    if (!k) {
        destroy_part(part->destroy, part->state);
        return WEFT_ERR_NOMEM;
    }
    k->run = part->run;
    k->state = part->state;
    k->destroy = part->destroy;
    k->parts = p->out[0].tensor.dim[0] / images->images;
    k->n_arg = p->n_in + 2;
    memcpy(k->step, images->step, sizeof images->step);
    snprintf(k->variant, sizeof k->variant, "%s by images", part->variant);
    p->run = run_parts;
    p->state = k;
    p->destroy = destroy_parts;
    p->variant = k->variant;
    p->scratch_bytes = part->scratch_bytes;
    return WEFT_ERR_OK;
}
