/* Private to runtime/cpu: a launch over a batch of images as runs of a kernel for fewer of them. */
#ifndef WEFT_RUNTIME_CPU_CPU_IMAGES_H
#define WEFT_RUNTIME_CPU_CPU_IMAGES_H

#include "runtime/cpu/cpu_int.h"

enum { WEFT_IMAGES_SLOTS = 16 };

typedef struct weft_cpu_images {
    int64_t images;                        /* of one part; divides the batch */
    weft_slot slot[WEFT_IMAGES_SLOTS + 1]; /* operands, then the result */
    uint64_t step[WEFT_IMAGES_SLOTS + 1];  /* bytes from one part to the next; 0: the same */
} weft_cpu_images;

/* Divides the operands of p that have the batch of its result as outermost dim. Operands from
 * `first_weight` to `last_weight` stay whole. false: not possible. `part` gets the launch of one
 * part, which borrows from p and `out`. */
bool weft_cpu__images(const weft_prep *p, int64_t images, uint32_t first_weight,
                      uint32_t last_weight, weft_cpu_images *out, weft_prep *part);
/* Sets the kernel of p to runs of the kernel of `part`, which it takes. */
weft_err weft_cpu__set_images(weft_prep *p, const weft_cpu_images *images, weft_prep *part);

#endif
