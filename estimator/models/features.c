/* Features of a kernel on a device: the inputs of the trees. The same code computes them for
 * training (`weft estimate --kernels --features`) and for prediction.
 *
 * Features describe the whole device: no slice was measured for training. Rates are peaks, so that
 * a device without measurements is described by the same numbers as the measured ones. */
#include "estimator/models/trees_int.h"

#include "estimator/device/device.h"
#include "estimator/workload/workload.h"

#include <math.h>
#include <string.h>

/* -- Families --------------------------------------------------------------------------------- */

static const char *const family_names[] = {
#define FAMILY(name, text, brief) text,
#include "estimator/models/families.def"
#undef FAMILY
};

const char *weft_trees__family_name(weft_tree_family family)
{
    return family < WEFT_FAMILY_COUNT ? family_names[family] : "none";
}

/* True for kernels on plain units: exact f32, or a type without a matrix unit. */
bool weft_features__is_plain(const weft_kernel *kernel, const weft_gpu *gpu, bool exact_f32)
{
    switch (kernel->dtype) {
    case WEFT_DTYPE_F32:
        return exact_f32 || gpu->tf32_gflops <= 0;
    case WEFT_DTYPE_F16:
        return gpu->f16_gflops <= 0;
    case WEFT_DTYPE_BF16:
        return gpu->bf16_gflops <= 0;
    case WEFT_DTYPE_I8:
    case WEFT_DTYPE_U8:
        return gpu->i8_gflops <= 0;
    case WEFT_DTYPE_F8E4M3FN:
    case WEFT_DTYPE_F8E5M2:
        return gpu->f8_gflops <= 0;
    case WEFT_DTYPE_F4E2M1:
        return gpu->f4_gflops <= 0;
    default:
        return true;
    }
}

static bool has_gemm(const weft_kernel *k)
{
    return k->m >= 1 && k->n >= 1 && k->k >= 1 && k->batch >= 1;
}

weft_tree_family weft_trees__family_of(const weft_kernel *kernel, const weft_gpu *gpu,
                                       bool exact_f32)
{
    if (gpu->capability == 0) /* a CPU, or no GPU of NVIDIA's: nothing like it was measured */
        return WEFT_FAMILY_NONE;
    bool plain = weft_features__is_plain(kernel, gpu, exact_f32);
    switch (kernel->kind) {
    case WEFT_KERNEL_GEMM:
        if (!has_gemm(kernel))
            return WEFT_FAMILY_NONE;
        return plain                                 ? WEFT_FAMILY_PLAIN
               : weft_dtype_bits(kernel->dtype) <= 8 ? WEFT_FAMILY_NARROW
                                                     : WEFT_FAMILY_MATRIX;
    case WEFT_KERNEL_CONV:
        /* Convolutions on matrix units, and those with other filters, were not measured. */
        return plain && has_gemm(kernel) && weft_kernel__is_fast_conv(kernel) ? WEFT_FAMILY_CONV
                                                                              : WEFT_FAMILY_NONE;
    case WEFT_KERNEL_ATTENTION:
        return has_gemm(kernel) ? WEFT_FAMILY_ATTENTION : WEFT_FAMILY_NONE;
    case WEFT_KERNEL_NORM:
        return kernel->rows >= 1 && kernel->cols >= 1 ? WEFT_FAMILY_VECTOR : WEFT_FAMILY_NONE;
    case WEFT_KERNEL_EW:
    case WEFT_KERNEL_SOFTMAX:
        return kernel->rows >= 1 && kernel->cols >= 1 ? WEFT_FAMILY_VECTOR : WEFT_FAMILY_NONE;
    default:
        return WEFT_FAMILY_NONE;
    }
}

weft_kernel weft_features__as_measured(const weft_kernel *kernel)
{
    weft_kernel k = *kernel;
    if (k.kind != WEFT_KERNEL_NORM || !k.fn || strcmp(k.fn, "batch_norm") != 0 || !(k.batch >= 1))
        return k;
    k.kind = WEFT_KERNEL_EW;
    k.fn = "mul";
    k.rows = kernel->rows * kernel->batch;
    k.cols = kernel->cols / kernel->batch;
    k.work.flops = 2 * kernel->rows * kernel->cols;
    return k;
}

/* -- Names ------------------------------------------------------------------------------------ */

/* Sets of families, for the rows of features.def. */
enum {
    P = 1u << WEFT_FAMILY_MATRIX | 1u << WEFT_FAMILY_NARROW | 1u << WEFT_FAMILY_PLAIN,
    N = 1u << WEFT_FAMILY_NARROW,
    C = 1u << WEFT_FAMILY_CONV,
    V = 1u << WEFT_FAMILY_VECTOR,
    A = 1u << WEFT_FAMILY_ATTENTION
};

static const struct {
    unsigned families;
    const char *name;
} feature_table[] = {
#define FEATURE(families, rises, name, expression) {families, #name},
#include "estimator/models/features.def"
#undef FEATURE
};

enum { FEATURE_COUNT = sizeof feature_table / sizeof feature_table[0] };
_Static_assert((int)FEATURE_COUNT <= (int)WEFT_FEATURES_MAX, "room for every feature");

size_t weft_features__count(weft_tree_family family)
{
    size_t n = 0;
    for (size_t i = 0; i < FEATURE_COUNT; i++)
        n += feature_table[i].families >> family & 1;
    return n;
}

const char *weft_features__name(weft_tree_family family, size_t i)
{
    for (size_t j = 0; j < FEATURE_COUNT; j++)
        if (feature_table[j].families >> family & 1 && i-- == 0)
            return feature_table[j].name;
    return NULL;
}

/* -- GEMMs --------------------------------------------------------------------------------- */

static double all_bytes(const weft_kernel *kernel)
{
    return kernel->work.bytes_read + kernel->work.bytes_written + kernel->work.weight_bytes;
}

/* Time of a GEMM's arithmetic in whole tiles and whole waves (one tile for each unit at once), by
 * the tile that suits it best, us. A tile costs 16 additional steps of k, for its prologue and
 * epilogue. */
static double tiles_us(const weft_kernel *k, const weft_slice *whole, double rate)
{
    static const struct {
        double m, n, eff;
    } tile[] = {{128, 128, 1},   {128, 64, 0.95}, {64, 128, 0.95}, {64, 64, 0.9},
                {128, 32, 0.85}, {32, 128, 0.85}, {32, 32, 0.6}};
    static const double extra_k = 16;
    double best = INFINITY;
    for (size_t i = 0; i < sizeof tile / sizeof tile[0]; i++) {
        double count = k->batch * ceil(k->m / tile[i].m) * ceil(k->n / tile[i].n);
        double tile_us = 2 * tile[i].m * tile[i].n * (k->k + extra_k) * whole->units / rate;
        best = fmin(best, ceil(count / whole->units) * tile_us / tile[i].eff);
    }
    return best;
}

/* -- Convolutions on plain units ---------------------------------------------------------------
 *
 * A library has several algorithms for a convolution of 3 x 3 filters at stride 1; tiles and
 * padding are those of the grids of cuDNN's kernels on V100 and A100 (neusight/conv.csv):
 *
 *   implicit   a GEMM of (images x positions) x (channels x taps)
 *
 *   winograd2  F(2x2,3x3) in one kernel: blocks of 32 filters x 8 x 16 results, or x 4 images x
 *              8 x 4; 16 multiplications for 4 results
 *
 *   winograd4  F(4x4,3x3) in four kernels: 36 GEMMs of (images to a multiple of 16 x tiles) x
 *              channels by filters; all operands are written to memory and read again
 *
 *   fft        17 x 32 complex GEMMs over tiles of 30 x 30 results; operands as for winograd4
 *
 * Winograd: Lavin, Gray, "Fast algorithms for convolutional neural networks" (2016). */

static double winograd2_us(const weft_kernel *k, const weft_slice *whole, double rate)
{
    const weft_conv_shape *c = &k->conv;
    double wide = c->images * ceil(c->out_h / 8) * ceil(c->out_w / 16);
    double deep = ceil(c->images / 4) * ceil(c->out_h / 8) * ceil(c->out_w / 4);
    double blocks = fmin(wide, deep) * ceil(c->out_channels / 32);
    double block_us = 2 * 32 * 32 * 16 * (c->in_channels + 16) * whole->units / rate;
    return ceil(blocks / whole->units) * block_us;
}

/* `count` GEMMs of m x in_channels by in_channels x out_channels, each at the cost of `cost` real
 * ones. Their matrices are transforms of the operands that are written to memory and read. */
static double transformed_us(const weft_kernel *k, const weft_slice *whole, double rate,
                             double count, double m, double cost)
{
    const weft_conv_shape *c = &k->conv;
    weft_kernel gemm = {.batch = count, .m = m, .n = c->out_channels, .k = c->in_channels};
    double values = count *
                    (m * (c->in_channels + c->out_channels) + c->in_channels * c->out_channels) *
                    2 * (cost > 1 ? 2 : 1);
    return cost * tiles_us(&gemm, whole, rate) + 3 * whole->gpu->launch_us +
           (values * 4 + all_bytes(k)) / (whole->bandwidth_gbps * 1e3);
}

static double winograd4_us(const weft_kernel *k, const weft_slice *whole, double rate)
{
    const weft_conv_shape *c = &k->conv;
    double tiles = ceil(c->images / 16) * 16 * ceil(c->out_h / 4) * ceil(c->out_w / 4);
    return transformed_us(k, whole, rate, 36, tiles, 1);
}

static double fft_us(const weft_kernel *k, const weft_slice *whole, double rate)
{
    const weft_conv_shape *c = &k->conv;
    double tiles = c->images * ceil(c->out_h / 30) * ceil(c->out_w / 30);
    return transformed_us(k, whole, rate, 17 * 32, tiles, 4);
}

typedef struct conv_ways {
    double implicit_us, winograd2_us, winograd4_us, fft_us;
} conv_ways;

/* Algorithms that do not apply get eight times the time of the implicit GEMM. */
static conv_ways find_ways(const weft_kernel *k, const weft_slice *whole, double rate)
{
    conv_ways w = {.implicit_us = tiles_us(k, whole, rate)};
    w.winograd2_us = w.winograd4_us = w.fft_us = 8 * w.implicit_us;
    if (weft_kernel__is_fast_conv(k)) {
        w.winograd2_us = winograd2_us(k, whole, rate);
        w.winograd4_us = winograd4_us(k, whole, rate);
        w.fft_us = fft_us(k, whole, rate);
    }
    return w;
}

/* -- Bounds ----------------------------------------------------------------------------------- */

static double compute_us(const weft_kernel *k, const weft_slice *whole, double rate)
{
    if (k->kind == WEFT_KERNEL_CONV && has_gemm(k)) {
        conv_ways w = find_ways(k, whole, rate);
        return fmin(fmin(w.implicit_us, w.winograd2_us), fmin(w.winograd4_us, w.fft_us));
    }
    if (k->kind == WEFT_KERNEL_GEMM && has_gemm(k))
        return tiles_us(k, whole, rate);
    return k->work.flops / rate;
}

double weft_features__base_us(const weft_kernel *kernel, const weft_slice *whole, bool exact_f32)
{
    double rate = weft_peak__flops_per_us(whole, kernel, exact_f32);
    return whole->gpu->launch_us +
           fmax(compute_us(kernel, whole, rate), all_bytes(kernel) / (whole->bandwidth_gbps * 1e3));
}

/* -- Values ----------------------------------------------------------------------------------- */

/* Sizes and times that the expressions of features.def use. */
typedef struct facts {
    double b, m, n, k;
    double size; /* bytes of an element */
    double rows, cols, row_bytes, reads;
    double flops, bytes, n_bytes, out_bytes, cache_bytes;
    double compute_us, memory_us, launch_us, base_us;
    double chain_us;                  /* one tile of 128 x 128 on one unit at its peak */
    double rate_unit, bandwidth_unit; /* flops and bytes of one unit in one clock */
    double units;
    double images, in_channels, out_h, taps, stride, groups;
    conv_ways way;
    double is_norm, is_softmax, is_costly;
    double launcher;
} facts;

static double lg(double x)
{
    return log2(fmax(x, 0x1p-30));
}

/* Tiles for each unit. */
static double waves(const facts *f, double tile_m, double tile_n)
{
    return f->b * ceil(f->m / tile_m) * ceil(f->n / tile_n) / f->units;
}

/* Part of a size that is not padding to a multiple of `step`. */
static double fill(double size, double step)
{
    return size / (ceil(size / step) * step);
}

/* Exponent of the largest power of two that divides a size, up to what loads of 16 bytes can
 * use. */
static double even(const facts *f, double size)
{
    double power = 0;
    for (double bytes = f->size; bytes < 16 && fmod(size, 2) == 0; bytes *= 2) {
        size /= 2;
        power++;
    }
    return power;
}

static bool is_costly(const weft_kernel *kernel)
{
    return kernel->kind == WEFT_KERNEL_EW &&
           kernel->work.flops > 4 * fmax(1, kernel->rows * kernel->cols);
}

static void find_facts(const weft_kernel *k, const weft_slice *whole, bool exact_f32, facts *f)
{
    double rate = weft_peak__flops_per_us(whole, k, exact_f32);
    double clocks = fmax(1, whole->gpu->clock_mhz) * whole->units;
    double elements = fmax(1, k->rows * k->cols);
    double size = weft_kernel_value_bytes(k->dtype);
    *f = (facts){.b = k->batch,
                 .m = k->m,
                 .n = k->n,
                 .k = k->k,
                 .size = size,
                 .rows = k->rows,
                 .cols = k->cols,
                 .row_bytes = k->cols * size,
                 .reads = (k->work.bytes_read + k->work.weight_bytes) / (elements * size),
                 .flops = k->work.flops,
                 .bytes = all_bytes(k),
                 .n_bytes = k->batch * k->n * k->k * size,
                 .out_bytes = k->work.bytes_written,
                 .cache_bytes = (double)whole->cache_bytes,
                 .compute_us = k->work.flops / rate,
                 .memory_us = all_bytes(k) / (whole->bandwidth_gbps * 1e3),
                 .launch_us = whole->gpu->launch_us,
                 .base_us = weft_features__base_us(k, whole, exact_f32),
                 .chain_us = 2 * 128 * 128 * k->k / (rate / whole->units),
                 .rate_unit = rate / clocks,
                 .bandwidth_unit = whole->bandwidth_gbps * 1e3 / clocks,
                 .units = whole->units,
                 .images = k->conv.images,
                 .in_channels = k->conv.in_channels,
                 .out_h = k->conv.out_h,
                 .taps = k->conv.kernel_h * k->conv.kernel_w,
                 .stride = k->conv.stride_h,
                 .groups = k->conv.groups,
                 .is_norm = k->kind == WEFT_KERNEL_NORM,
                 .is_softmax = k->kind == WEFT_KERNEL_SOFTMAX,
                 .is_costly = is_costly(k),
                 .launcher = k->launcher};
    if (k->kind == WEFT_KERNEL_CONV)
        f->way = find_ways(k, whole, rate);
}

void weft_features__compute(weft_tree_family family, const weft_kernel *kernel,
                            const weft_slice *whole, bool exact_f32, float *out)
{
    facts found;
    const facts *f = &found;
    size_t n = 0;
    find_facts(kernel, whole, exact_f32, &found);
#define FEATURE(families, rises, name, expression) \
    if ((unsigned)(families) >> family & 1)        \
        out[n++] = (float)(expression);
#include "estimator/models/features.def"
#undef FEATURE
}

void weft_features_find(const weft_kernel *kernel, const weft_slice *slice,
                        const weft_estimate_options *options, weft_features *out)
{
    bool exact_f32 = options && options->exact_f32;
    weft_slice whole = weft_slice__whole(slice);
    weft_tree_family family = weft_trees__family_of(kernel, slice->gpu, exact_f32);
    *out = (weft_features){.family = weft_trees__family_name(family),
                           .base_us = weft_features__base_us(kernel, &whole, exact_f32),
                           .floor_us = weft_peak__floor_us(kernel, slice, exact_f32),
                           .staging_us = weft_traffic__staging_us(kernel, slice)};
    if (family == WEFT_FAMILY_NONE)
        return;
    out->n = weft_features__count(family);
    for (size_t i = 0; i < out->n; i++)
        out->name[i] = weft_features__name(family, i);
    weft_features__compute(family, kernel, &whole, exact_f32, out->value);
}
