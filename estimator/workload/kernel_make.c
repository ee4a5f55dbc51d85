/* Kinds of kernels, and kernels made from their sizes: work and operands of a problem. Every
 * operand counts once, as in ops/work.h. */
#include "estimator/workload/workload.h"

#include <math.h>
#include <string.h>

/* -- Kinds ------------------------------------------------------------------------------------ */

static const struct {
    const char *text;
    bool uses_matrix_units;
} kind_table[WEFT_KERNEL_COUNT] = {
    [WEFT_KERNEL_OTHER] = {"other", false},
#define KIND(name, text, brief, uses_matrix_units) [WEFT_KERNEL_##name] = {text, uses_matrix_units},
#include "estimator/workload/kinds.def"
#undef KIND
};

const char *weft_kernel_kind_name(weft_kernel_kind kind)
{
    return kind_table[kind].text;
}

bool weft_kernel_uses_matrix_units(weft_kernel_kind kind)
{
    return kind_table[kind].uses_matrix_units;
}

static const char *const launcher_names[WEFT_LAUNCHER_COUNT] = {
#define LAUNCHER(name, text, brief) text,
#include "estimator/workload/launchers.def"
#undef LAUNCHER
};

const char *weft_launcher_name(weft_launcher launcher)
{
    return launcher_names[launcher];
}

weft_launcher weft_launcher_find(const char *name)
{
    size_t i = 0;
    while (i < WEFT_LAUNCHER_COUNT && strcmp(launcher_names[i], name) != 0)
        i++;
    return (weft_launcher)i;
}

/* -- Problems --------------------------------------------------------------------------------- */

bool weft_kernel__is_fast_conv(const weft_kernel *k)
{
    const weft_conv_shape *c = &k->conv;
    return c->kernel_h == 3 && c->kernel_w == 3 && c->stride_h == 1 && c->stride_w == 1 &&
           c->groups == 1;
}

/* Flops of one element, as ops/ counts them. */
static double flops_each(weft_kernel_kind kind, const char *fn)
{
    static const char *const costly[] = {"gelu", "tanh", "pow", "exp", "log", "sigmoid", "erf"};
    if (kind == WEFT_KERNEL_NORM)
        return 8;
    if (kind == WEFT_KERNEL_SOFTMAX)
        return 5;
    for (size_t i = 0; fn && i < sizeof costly / sizeof costly[0]; i++)
        if (strncmp(fn, costly[i], strlen(costly[i])) == 0)
            return 8;
    return 1;
}

double weft_kernel_value_bytes(weft_dtype dtype)
{
    static const double block = 16; /* values that share a scale of one byte */
    double size = (double)weft_dtype_size(dtype);
    return dtype == WEFT_DTYPE_F4E2M1 ? weft_dtype_bits(dtype) / 8.0 + 1 / block : size;
}

weft_kernel weft_kernel_make_gemm(weft_dtype dtype, double batch, double m, double n, double k,
                                  bool is_weight)
{
    bool narrow = weft_dtype_is_float(dtype) && weft_dtype_bits(dtype) <= 8;
    double size = weft_kernel_value_bytes(dtype), wide = fmax(2, size);
    double second_bytes = batch * k * n * size;
    return (weft_kernel){
        .kind = WEFT_KERNEL_GEMM,
        .dtype = dtype,
        .work = {.flops = 2 * batch * m * n * k,
                 .bytes_read = batch * m * k * size + (is_weight ? 0 : second_bytes),
                 .bytes_written = batch * m * n * (narrow ? wide : size),
                 .weight_bytes = is_weight ? second_bytes : 0},
        .batch = batch,
        .m = m,
        .n = n,
        .k = k,
        .is_alone = true,
        .staging = {.launches = narrow,
                    .packed_bytes = narrow ? batch * m * k * (wide + size) / 2 : 0}};
}

void weft_kernel_add_delta(weft_kernel *gemm, const weft_delta *delta)
{
    double taps = gemm->k + gemm->n;
    gemm->delta = *delta;
    double size = (double)weft_dtype_size(gemm->dtype);
    gemm->work.flops += 2 * gemm->m * (delta->rank * taps + delta->element);
    gemm->work.weight_bytes +=
        delta->ranks * taps * size + delta->elements * (size + (double)sizeof(int32_t));
}

weft_kernel weft_kernel_make_conv(weft_dtype dtype, const weft_conv_shape *shape)
{
    const weft_conv_shape *c = shape;
    double size = (double)weft_dtype_size(dtype);
    double inputs = c->in_channels / c->groups, filters = c->out_channels / c->groups;
    double taps = inputs * c->kernel_h * c->kernel_w;
    double positions = c->images * c->out_h * c->out_w;
    bool depthwise = filters <= 1 && c->groups > 1;
    weft_kernel kernel = {
        .kind = depthwise ? WEFT_KERNEL_DEPTHWISE : WEFT_KERNEL_CONV,
        .dtype = dtype,
        .work = {.flops = 2 * positions * c->out_channels * taps,
                 .bytes_read = c->images * c->in_channels * c->in_h * c->in_w * size,
                 .bytes_written = positions * c->out_channels * size,
                 .weight_bytes = c->out_channels * taps * size},
        .batch = c->groups,
        .m = positions,
        .n = filters,
        .k = taps,
        .conv = *c};
    if (depthwise) {
        kernel.rows = c->images * c->out_channels;
        kernel.cols = c->out_h * c->out_w;
    }
    return kernel;
}

weft_kernel weft_kernel_make_rows(weft_kernel_kind kind, const char *fn, weft_dtype dtype,
                                  double operands, double rows, double cols)
{
    double bytes = rows * cols * (double)weft_dtype_size(dtype);
    return (weft_kernel){.kind = kind,
                         .dtype = dtype,
                         .fn = fn,
                         .work = {.flops = rows * cols * flops_each(kind, fn),
                                  .bytes_read = operands * bytes,
                                  .bytes_written = bytes},
                         .rows = rows,
                         .cols = cols};
}

weft_kernel weft_kernel_make_attention(weft_dtype dtype, double images, double heads,
                                       double queries, double keys, double head)
{
    double size = (double)weft_dtype_size(dtype), batch = images * heads;
    return (weft_kernel){.kind = WEFT_KERNEL_ATTENTION,
                         .dtype = dtype,
                         .work = {.flops = 4 * batch * queries * keys * head,
                                  .bytes_read = batch * (queries + 2 * keys) * head * size,
                                  .bytes_written = batch * queries * head * size},
                         .batch = batch,
                         .m = queries,
                         .n = keys,
                         .k = head};
}

void weft_kernel_form_attention(weft_kernel *k, weft_attention_form form, double shared)
{
    double past = k->n - k->m, seen = k->m * past + k->m * (k->m + 1) / 2;
    double size = (double)weft_dtype_size(k->dtype), keys = 2 * k->batch * k->n * k->k * size;
    k->work.bytes_read -= keys - keys / shared;
    if (form == WEFT_ATTENTION_PREFILL)
        k->flop_saving = k->m * k->n / seen;
    if (form != WEFT_ATTENTION_DECODE)
        return;
    k->work.bytes_read -= keys / shared;
    k->work.weight_bytes = keys / shared;
}
