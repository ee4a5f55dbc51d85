/* What features.c, model_trees.c and the tables of trees share. */
#ifndef WEFT_ESTIMATOR_MODELS_TREES_INT_H
#define WEFT_ESTIMATOR_MODELS_TREES_INT_H

#include "estimator/models/models.h"

/* Which trees correct a kernel. MATRIX: GEMMs on matrix units (16 bit, TF32, 8 bit); PLAIN:
 * GEMMs of f32 on plain units. */
typedef enum weft_family {
#define FAMILY(name, text, brief) WEFT_FAMILY_##name,
#include "estimator/models/families.def"
#undef FAMILY
    WEFT_FAMILY_COUNT,
    WEFT_FAMILY_NONE = WEFT_FAMILY_COUNT
} weft_family;

const char *weft_family__name(weft_family family);
weft_family weft_family__of(const weft_kernel *kernel, const weft_gpu *gpu, bool exact_f32);
/* True when it runs on plain units: f32 as itself, or a type without a matrix unit. */
bool weft_features__is_plain(const weft_kernel *kernel, const weft_gpu *gpu, bool exact_f32);
/* At inference a batch norm is an element-wise function: a product and a sum, a channel a row. */
weft_kernel weft_features__as_measured(const weft_kernel *kernel);
/* Number and names of a family's features, in the order of weft_features__compute. */
size_t weft_features__count(weft_family family);
const char *weft_features__name(weft_family family, size_t i);
/* The name a table of trees has for its feature i; NULL behind the last. */
const char *weft_trees__feature(weft_family family, size_t i);
/* What the trees correct: launch + max(flops / P, bytes / B), of the whole device. */
double weft_features__base_us(const weft_kernel *kernel, const weft_slice *whole, bool exact_f32);
void weft_features__compute(weft_family family, const weft_kernel *kernel, const weft_slice *whole,
                            bool exact_f32, float *out);

#endif
