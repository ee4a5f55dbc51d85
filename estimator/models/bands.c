/* How far off a prediction may be: the edges of its 90 % band.
 *
 * Edges of kernels that trees predict come from campaigns that were left out of their training
 * (scripts/leave_out.py has the method, trees/bands.def the numbers): by family, by whether the
 * library that launches the kernel is known, by the nearest device that was measured, and by
 * whether launches count. Further from the training the band is that of the next farther class of
 * devices: for slices, and for element types with the rate of the measured ones. Sizes beyond the
 * training widen it by a part of each power of two.
 *
 * Analytic models state a mean error; their errors are taken as normal in the logarithm, and the
 * edges are its 5 % and 95 %. No campaign has verified these. CPUs are different from the one that
 * the constants were fitted on until they are calibrated: another one of the same maker was
 * 40 to 60 % slower than predicted. */
#include "estimator/models/trees_int.h"

#include "estimator/device/device.h"

#include <math.h>
#include <string.h>

typedef enum nearness { SEEN, ARCH, NEW, NEARNESS_COUNT } nearness;

enum { ANY, KNOWN, LAUNCHERS };

#define BAND(family, launcher_, near_, part_, error_, lo_, hi_, short_lo_, short_hi_) \
    [WEFT_FAMILY_##family][launcher_][near_] = {                                      \
        .part = (part_), .error = (error_), .edge = {{lo_, hi_}, {short_lo_, short_hi_}}},
static const struct {
    double part, error;
    double edge[2][2]; /* of kernels bound by work, and by launches */
} band_table[WEFT_FAMILY_COUNT][LAUNCHERS][NEARNESS_COUNT] = {
#include "estimator/models/trees/bands.def"
};
#undef BAND

#define LEARNED(family_, dtype_, device_) {WEFT_FAMILY_##family_, WEFT_DTYPE_##dtype_, device_},
static const struct {
    weft_tree_family family;
    weft_dtype dtype;
    const char *device;
} learned_table[] = {
#include "estimator/models/trees/learned.def"
};

/* A bound of fewer launches counts as short; as in scripts/leave_out.py. */
static const double short_launches = 3;
/* What a power of two beyond the measured sizes adds to either edge, and its limit. */
static const double per_distance = 0.15, distance_max = 6;
/* 95 % quantile of a normal distribution whose mean absolute value is 1, in powers of two. */
static const double normal_edge = 1.6449 * 1.2533 * 1.4427;
/* Least error of models whose constants come from GPUs of another maker. */
static const double foreign_error = 0.5;
/* Another CPU than that of the row: log2 of measured over predicted. */
static const double cpu_lo = -0.7, cpu_hi = 1.4;

/* The nearest device that the family was measured on in that type; NONE: in any. */
static nearness find_nearness(weft_tree_family family, const weft_gpu *gpu, weft_dtype dtype)
{
    nearness found = NEW;
    for (size_t i = 0; i < sizeof learned_table / sizeof learned_table[0]; i++) {
        if (learned_table[i].family != family || (dtype && learned_table[i].dtype != dtype))
            continue;
        if (strcmp(learned_table[i].device, gpu->name) == 0)
            return SEEN;
        if (weft_gpu_find(learned_table[i].device)->capability == gpu->capability)
            found = ARCH;
    }
    return found;
}

/* The measured type that has the rate of this one, or the type itself. */
static weft_dtype measured_type(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F16      ? WEFT_DTYPE_BF16
           : dtype == WEFT_DTYPE_F8E5M2 ? WEFT_DTYPE_F8E4M3FN
                                        : dtype;
}

static bool is_measured_type(weft_tree_family family, weft_dtype dtype)
{
    for (size_t i = 0; i < sizeof learned_table / sizeof learned_table[0]; i++)
        if (learned_table[i].family == family && learned_table[i].dtype == dtype)
            return true;
    return false;
}

void weft_band__analytic(const weft_gpu *gpu, weft_timing *t)
{
    if (gpu->capability == 0 && !gpu->is_cpu) {
        t->expected_error = fmax(t->expected_error, foreign_error);
        t->widened = "no GPU like it was measured";
    }
    t->edge[1] = normal_edge * t->expected_error;
    t->edge[0] = -t->edge[1];
    t->widened = t->widened ? t->widened : "analytic model";
}

void weft_band__cpu(const weft_gpu *cpu, weft_timing *t)
{
    weft_band__analytic(cpu, t);
    t->edge[0] = fmin(t->edge[0], cpu_lo);
    t->edge[1] = fmax(t->edge[1], cpu_hi);
    t->widened = "CPU not calibrated (weft calibrate)";
}

void weft_band__find(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                     weft_band_place *place, weft_timing *t)
{
    weft_tree_family family = place->family;
    weft_dtype as = family == WEFT_FAMILY_PLAIN ? kernel->dtype : measured_type(kernel->dtype);
    bool measured = is_measured_type(family, as), whole = slice->units == slice->all_units;
    bool sibling = measured && as != kernel->dtype;
    nearness near = find_nearness(family, slice->gpu, WEFT_DTYPE_NONE), wide = near;
    nearness typed = measured ? find_nearness(family, slice->gpu, as) : NEW;
    weft_slice all = weft_slice__whole(slice);
    double base_us = weft_features__base_us(kernel, &all, exact_f32);
    bool is_short = base_us < short_launches * slice->gpu->launch_us;
    bool launched = place->launched && band_table[family][KNOWN][near].error > 0;
    bool own = kernel->launcher == WEFT_LAUNCHER_WEFT && band_table[family][KNOWN][near].error > 0;
    double far = fmin(place->distance, distance_max), own_error = t->expected_error;

    t->learned = typed == SEEN && whole && !own && !place->is_form;
    place->part = band_table[family][launched][near].part / (1 + far);
    if (near != NEW && (!whole || sibling))
        wide++;
    wide = own || place->is_form || typed == NEW ? NEW : typed > wide ? typed : wide;
    t->expected_error = band_table[family][launched][wide].error;
    memcpy(t->edge, band_table[family][launched][wide].edge[is_short], sizeof t->edge);
    t->widened = near == NEW      ? "device not measured"
                 : own            ? "kernels of Weft's own were not measured"
                 : place->is_form ? "this form of attention was not measured"
                 : !measured      ? "element type not measured"
                 : typed > near   ? "element type not measured on this device"
                 : near == ARCH   ? "only another device of its architecture was measured"
                 : !whole         ? "part of a device"
                 : sibling        ? "element type not measured"
                                  : NULL;
    if (!measured) {
        t->expected_error = fmax(t->expected_error, own_error);
        t->edge[0] = fmin(t->edge[0], -normal_edge * own_error);
        t->edge[1] = fmax(t->edge[1], normal_edge * own_error);
    }
    if (far > 0) {
        t->widened = "sizes beyond those measured";
        t->expected_error = fmin(1, t->expected_error * (1 + far));
        t->edge[0] -= per_distance * far;
        t->edge[1] += per_distance * far;
    }
}
