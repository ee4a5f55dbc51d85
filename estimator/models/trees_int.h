/* Shared by features.c, model_trees.c and the tables of trees. */
#ifndef WEFT_ESTIMATOR_MODELS_TREES_INT_H
#define WEFT_ESTIMATOR_MODELS_TREES_INT_H

#include "estimator/models/models.h"

/* Families of kernels that share their trees. */
typedef enum weft_tree_family {
#define FAMILY(name, text, brief) WEFT_FAMILY_##name,
#include "estimator/models/families.def"
#undef FAMILY
    WEFT_FAMILY_COUNT,
    WEFT_FAMILY_NONE = WEFT_FAMILY_COUNT
} weft_tree_family;

const char *weft_trees__family_name(weft_tree_family family);
weft_tree_family weft_trees__family_of(const weft_kernel *kernel, const weft_gpu *gpu,
                                       bool exact_f32);
/* True for kernels on plain units: exact f32, or a type without a matrix unit. */
bool weft_features__is_plain(const weft_kernel *kernel, const weft_gpu *gpu, bool exact_f32);
/* The kernel as it was measured: at inference a batch norm is an element-wise function (one
 * multiplication and one addition), with a channel of an image as row. */
weft_kernel weft_features__as_measured(const weft_kernel *kernel);
/* Number and names of a family's features, in the order of weft_features__compute. */
size_t weft_features__count(weft_tree_family family);
const char *weft_features__name(weft_tree_family family, size_t i);
/* Name of feature i in the family's table of trees; NULL behind the last. */
const char *weft_trees__feature(weft_tree_family family, size_t i);
/* The bound that the trees correct: launch + max(arithmetic, traffic), of the whole device. */
double weft_features__base_us(const weft_kernel *kernel, const weft_slice *whole, bool exact_f32);
void weft_features__compute(weft_tree_family family, const weft_kernel *kernel,
                            const weft_slice *whole, bool exact_f32, float *out);

/* -- How far off: bands.c --------------------------------------------------------------------- */

/* Where a kernel is, seen from the measurements of its family. */
typedef struct weft_band_place {
    weft_tree_family family;
    bool launched;   /* its launcher was measured */
    bool is_form;    /* a form of attention that was not measured */
    double distance; /* powers of two by which its sizes are beyond those measured */
    double part;     /* result: part of the trees in the logarithm of time, 0..1 */
} weft_band_place;

/* Sets learned, expected_error, edge and widened of *t, which has the analytic prediction. */
void weft_band__find(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                     weft_band_place *place, weft_timing *t);

#endif
