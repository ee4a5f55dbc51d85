/* Regression trees learned from measurements: they correct a bound of physics.
 *
 *   trees(whole device) = min(bound, most)^slope * max(bound / most, 1)
 *                         * 2^(sum of the trees of the family at the kernel's features)
 *   trees(slice)        = trees(whole device) * even(slice) / even(whole device)
 *   time                = trees^part * analytic^(1 - part)
 *
 * and at least the floor of the slice: a launch, its peak rate, its bandwidth. The bound is a
 * launch and the longer of the arithmetic (of GEMMs in whole tiles and waves) and the traffic
 * (features.c). `analytic` is the implicit-GEMM model for convolutions, the wave model for GEMMs,
 * the roofline for other kernels. All measurements are of whole devices: the trees predict only
 * these, and the analytic model says how a slice compares with its device, so that a larger share
 * is never slower. For this ratio (even) blocks divide evenly among the units: trees do not step
 * where the whole device starts a further wave, so a ratio that does would let times fall when a
 * batch grows. The analytic model also gives the units that a kernel needs.
 *
 * Gradient boosted regression trees (Friedman, "Greedy function approximation", 2001) on the
 * logarithm of time / bound^slope, with monotone constraints: a tree may only grow with a feature
 * that grows with rows and batch, and as the bound grows too, times never fall when a batch grows.
 * `most` is the bound of the largest kernels of the training: beyond it time grows as the bound
 * does. `part` depends on how far the device (bands.c) and the sizes are from the training: trees
 * do not extrapolate, the analytic model does. features.def lists their features, README.md their
 * errors on held-out shapes; scripts/train_estimator.py makes the tables. Each feature is quantised
 * once, into at most 255 bins; a node is one word, its left child is the next word:
 *
 *   leaf   1 << 31 | correction as 16 bits with a sign, in 1 / 4096 of a power of two
 *   inner  feature << 16 | cut << 8 | distance of the right child; left when x <= cut
 *
 * Libraries differ in their attention (flash attention 2 and 3, TensorRT-LLM's): the launcher is a
 * feature of that family. GEMMs of all launchers measured are cuBLAS or its like: as a feature the
 * launcher made errors on campaigns left out no smaller.
 *
 * `source` is "learned" for whole devices and element types that the family was measured on.
 * bands.c says how far off a prediction may be. O(trees * depth): a few microseconds. */
#include "estimator/models/trees_int.h"

#include "estimator/device/device.h"

#include <math.h>
#include <string.h>

/* A feature and the number of its cuts. */
typedef struct span {
    const char *name;
    size_t n;
} span;

typedef struct forest {
    const span *feature; /* in the order of features.def */
    const float *cut;
    const uint32_t *node;
    const uint16_t *tree; /* number of nodes of each tree */
    size_t n_feature, n_tree;
    double start; /* sum before the first tree, a power of two */
    double most;  /* bound of the largest kernels of the training, us */
    double slope; /* exponent of the bound */
} forest;

#define COUNT_OF(type, ...) (sizeof((type[]){__VA_ARGS__}) / sizeof(type))

/* The tables of each family. Cuts are included twice, as names with lengths and as numbers; trees
 * twice, as lengths and as nodes. */
#define CUTS(name, ...) {#name, COUNT_OF(float, __VA_ARGS__)},
static const span matrix_features[] = {
#include "estimator/models/trees/matrix_cuts.def"
};
static const span narrow_features[] = {
#include "estimator/models/trees/narrow_cuts.def"
};
static const span plain_features[] = {
#include "estimator/models/trees/plain_cuts.def"
};
static const span conv_features[] = {
#include "estimator/models/trees/conv_cuts.def"
};
static const span vector_features[] = {
#include "estimator/models/trees/vector_cuts.def"
};
static const span attention_features[] = {
#include "estimator/models/trees/attention_cuts.def"
};
#undef CUTS

#define CUTS(name, ...) __VA_ARGS__,
static const float matrix_cut[] = {
#include "estimator/models/trees/matrix_cuts.def"
};
static const float narrow_cut[] = {
#include "estimator/models/trees/narrow_cuts.def"
};
static const float plain_cut[] = {
#include "estimator/models/trees/plain_cuts.def"
};
static const float conv_cut[] = {
#include "estimator/models/trees/conv_cuts.def"
};
static const float vector_cut[] = {
#include "estimator/models/trees/vector_cuts.def"
};
static const float attention_cut[] = {
#include "estimator/models/trees/attention_cuts.def"
};
#undef CUTS

#define TREE(...) COUNT_OF(uint32_t, __VA_ARGS__),
static const uint16_t matrix_tree[] = {
#include "estimator/models/trees/matrix.def"
};
static const uint16_t narrow_tree[] = {
#include "estimator/models/trees/narrow.def"
};
static const uint16_t plain_tree[] = {
#include "estimator/models/trees/plain.def"
};
static const uint16_t conv_tree[] = {
#include "estimator/models/trees/conv.def"
};
static const uint16_t vector_tree[] = {
#include "estimator/models/trees/vector.def"
};
static const uint16_t attention_tree[] = {
#include "estimator/models/trees/attention.def"
};
#undef TREE

#define TREE(...) __VA_ARGS__,
static const uint32_t matrix_node[] = {
#include "estimator/models/trees/matrix.def"
};
static const uint32_t narrow_node[] = {
#include "estimator/models/trees/narrow.def"
};
static const uint32_t plain_node[] = {
#include "estimator/models/trees/plain.def"
};
static const uint32_t conv_node[] = {
#include "estimator/models/trees/conv.def"
};
static const uint32_t vector_node[] = {
#include "estimator/models/trees/vector.def"
};
static const uint32_t attention_node[] = {
#include "estimator/models/trees/attention.def"
};
#undef TREE

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])
#define FOREST(family, id, start_, most_, slope_)                 \
    [WEFT_FAMILY_##family] = {.feature = id##_features,           \
                              .cut = id##_cut,                    \
                              .node = id##_node,                  \
                              .tree = id##_tree,                  \
                              .n_feature = LENGTH(id##_features), \
                              .n_tree = LENGTH(id##_tree),        \
                              .start = (start_),                  \
                              .most = (most_),                    \
                              .slope = (slope_)},
static const forest forest_table[WEFT_FAMILY_COUNT] = {
#include "estimator/models/trees/learned.def"
};

/* -- Dispatch --------------------------------------------------------------------------------- */

#define DISPATCH(call_, device_, us_) {call_, device_, us_},
static const struct {
    const char *call, *device; /* device "": all devices without a row */
    double us;
} dispatch_table[] = {
#include "estimator/models/trees/learned.def"
};

static const char *call_name(const weft_kernel *kernel)
{
    switch (kernel->kind) {
    case WEFT_KERNEL_GEMM:
        return kernel->work.weight_bytes > 0 ? "linear" : "bmm";
    case WEFT_KERNEL_CONV:
    case WEFT_KERNEL_DEPTHWISE:
        return "conv";
    default:
        return "vector";
    }
}

double weft_trees_dispatch_us(const weft_kernel *kernel, const weft_slice *slice)
{
    double found = 0;
    if (kernel->dtype != WEFT_DTYPE_F32 || slice->gpu->is_cpu)
        return 0;
    for (size_t i = 0; i < LENGTH(dispatch_table); i++) {
        if (strcmp(dispatch_table[i].call, call_name(kernel)) != 0)
            continue;
        if (strcmp(dispatch_table[i].device, slice->gpu->name) == 0)
            return dispatch_table[i].us;
        if (!dispatch_table[i].device[0])
            found = dispatch_table[i].us;
    }
    return found;
}

/* -- Trees ------------------------------------------------------------------------------------ */

/* Number of cuts below x. */
static uint8_t find_bin(const float *cut, size_t n, float x)
{
    size_t lo = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (x > cut[lo + half]) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return (uint8_t)lo;
}

/* Sum of all trees: exponent of a power of two. */
static double sum_trees(const forest *f, const float *x)
{
    static const double unit = 1.0 / 4096;
    uint8_t bin[WEFT_FEATURES_MAX];
    const float *cut = f->cut;
    for (size_t i = 0; i < f->n_feature; i++) {
        bin[i] = find_bin(cut, f->feature[i].n, x[i]);
        cut += f->feature[i].n;
    }
    int64_t sum = 0;
    const uint32_t *root = f->node;
    for (size_t i = 0; i < f->n_tree; i++) {
        const uint32_t *node = root;
        while (!(*node >> 31))
            node += bin[*node >> 16] <= (*node >> 8 & 0xff) ? 1 : *node & 0xff;
        sum += (int16_t)(*node & 0xffff);
        root += f->tree[i];
    }
    return f->start + (double)sum * unit;
}

const char *weft_trees__feature(weft_tree_family family, size_t i)
{
    return i < forest_table[family].n_feature ? forest_table[family].feature[i].name : NULL;
}

/* Sizes of the training, in powers of two. */
#define RANGE(family_, feature_, lo_, hi_) {WEFT_FAMILY_##family_, #feature_, lo_, hi_},
static const struct {
    weft_tree_family family;
    const char *feature;
    double lo, hi;
} range_table[] = {
#include "estimator/models/trees/learned.def"
};

/* Powers of two by which the sizes are beyond the training; the first of each is not counted, nor
 * are fewer rows: times would fall where the trees begin to count. All attention that was measured
 * has as many queries as keys. */
static double find_distance(weft_tree_family family, const weft_kernel *kernel, const float *x)
{
    const forest *f = &forest_table[family];
    double sum = 0;
    if (family == WEFT_FAMILY_ATTENTION)
        sum = fmax(0, log2(kernel->n / kernel->m) - 1);
    for (size_t r = 0; r < LENGTH(range_table); r++) {
        if (range_table[r].family != family)
            continue;
        bool is_rows = strcmp(range_table[r].feature, "log_m") == 0;
        size_t i = 0;
        while (i < f->n_feature && strcmp(f->feature[i].name, range_table[r].feature) != 0)
            i++;
        if (i < f->n_feature)
            sum +=
                fmax(0, fmax(is_rows ? 0 : range_table[r].lo - x[i], x[i] - range_table[r].hi) - 1);
    }
    return sum;
}

#define LAUNCHED(family_, launcher_) {WEFT_FAMILY_##family_, WEFT_LAUNCHER_##launcher_},
static const struct {
    weft_tree_family family;
    weft_launcher launcher;
} launched_table[] = {
#include "estimator/models/trees/learned.def"
};

static bool is_launched(weft_tree_family family, weft_launcher launcher)
{
    for (size_t i = 0; i < LENGTH(launched_table); i++)
        if (launched_table[i].family == family && launched_table[i].launcher == launcher)
            return true;
    return false;
}

/* The sum of all trees; that of a launcher that was not measured is the mean of those that were. */
static double sum_launched(const weft_band_place *place, const weft_kernel *kernel,
                           const weft_slice *whole, bool exact_f32, float *x)
{
    weft_tree_family family = place->family;
    double sum = 0;
    size_t n = 0;
    weft_kernel as = *kernel;
    for (size_t i = 0; i < LENGTH(launched_table) && !place->launched; i++) {
        if (launched_table[i].family != family)
            continue;
        as.launcher = launched_table[i].launcher;
        weft_features__compute(family, &as, whole, exact_f32, x);
        sum += sum_trees(&forest_table[family], x);
        n++;
    }
    return n > 0 ? sum / (double)n : sum_trees(&forest_table[family], x);
}

/* -- The model -------------------------------------------------------------------------------- */

/* The model that compares a slice with its whole device and gives the units needed. */
static const weft_model *analytic_model(const weft_kernel *kernel, const weft_slice *slice,
                                        bool exact_f32)
{
    if (weft_model_implicit.supports(kernel, slice, exact_f32))
        return &weft_model_implicit;
    return weft_model_wave.supports(kernel, slice, exact_f32) ? &weft_model_wave
                                                              : &weft_model_roofline;
}

static bool supports(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    return weft_trees__family_of(kernel, slice->gpu, exact_f32) != WEFT_FAMILY_NONE &&
           weft_peak__flops_per_us(slice, kernel, exact_f32) > 0;
}

static double analytic_us(const weft_model *model, const weft_kernel *kernel,
                          const weft_slice *slice, bool exact_f32, bool even)
{
    if (model == &weft_model_wave)
        return weft_model__wave_us(kernel, slice, exact_f32, even);
    if (model == &weft_model_implicit && kernel->kind == WEFT_KERNEL_CONV)
        return weft_model__implicit_us(kernel, slice, exact_f32, even);
    return model->predict(kernel, slice, exact_f32).time_us;
}

/* Time of attention in which queries see a part of the keys, over that of all of them. */
static double seen_part(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    weft_kernel full = *kernel;
    if (kernel->kind != WEFT_KERNEL_ATTENTION || !(kernel->flop_saving > 1))
        return 1;
    full.flop_saving = 0;
    return weft_model_roofline.predict(kernel, slice, exact_f32).time_us /
           weft_model_roofline.predict(&full, slice, exact_f32).time_us;
}

static weft_timing predict(const weft_kernel *of, const weft_slice *slice, bool exact_f32)
{
    weft_kernel as = weft_features__as_measured(of), *kernel = &as;
    weft_tree_family family = weft_trees__family_of(kernel, slice->gpu, exact_f32);
    weft_slice whole = weft_slice__whole(slice);
    const weft_model *analytic = analytic_model(kernel, slice, exact_f32);
    weft_timing timing = analytic->predict(kernel, slice, exact_f32);
    float x[WEFT_FEATURES_MAX];
    weft_features__compute(family, kernel, &whole, exact_f32, x);
    const forest *f = &forest_table[family];
    weft_band_place place = {.family = family,
                             .launched = is_launched(family, kernel->launcher),
                             .is_form = kernel->kind == WEFT_KERNEL_ATTENTION &&
                                        (kernel->flop_saving > 1 || kernel->work.weight_bytes > 0),
                             .distance = find_distance(family, kernel, x)};
    weft_band__find(kernel, slice, exact_f32, &place, &timing);
    double base_us = weft_features__base_us(kernel, &whole, exact_f32);
    double time_us = pow(fmin(base_us, f->most), f->slope) * fmax(base_us / f->most, 1) *
                     exp2(sum_launched(&place, kernel, &whole, exact_f32, x));
    time_us *= seen_part(kernel, &whole, exact_f32);
    time_us = fmax(time_us, weft_peak__floor_us(kernel, &whole, exact_f32));
    if (slice->units < slice->all_units)
        time_us *= analytic_us(analytic, kernel, slice, exact_f32, true) /
                   analytic_us(analytic, kernel, &whole, exact_f32, true);
    if (place.part < 1)
        time_us = pow(time_us, place.part) *
                  pow(analytic_us(analytic, kernel, slice, exact_f32, false), 1 - place.part);
    timing.time_us = fmax(time_us, weft_peak__floor_us(kernel, slice, exact_f32));
    return timing;
}

const weft_model weft_model_trees = {
    .name = "trees",
    .brief = "bound of physics corrected by trees learned from measurements",
    .supports = supports,
    .predict = predict,
};
