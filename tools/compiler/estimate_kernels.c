/* weft estimate --kernels: predicts a table of kernels without a model file.
 *
 * The first row names the columns, in any order and by their common names; other columns are copied
 * to the output. The sizes that a row needs depend on its kind:
 *
 *   gemm, matmul, fc       m, n, k; b (1): m x k by k x n
 *   batched_gemm           b, m, n, k: the same
 *   linear, bmm            as in NeuSight's published tables, m x n by n x k: n is summed over
 *   conv, depthwise        b, cin, cout, ksize, hw; stride, pad, groups
 *   attention, prefill     batch_size, isl, num_heads, head_dim; keys (isl), kv_heads (num_heads);
 *                          of prefill a query sees the keys up to its own
 *   decode                 the same: one query for each of batch_size sequences of isl keys
 *   all others             b (rows), h (columns)
 *
 * time_us is the time that a published table would have. Such tables measure single f32 operators
 * by calls of an eager framework, so time_us includes dispatch_us, the time until the kernel
 * starts;
 * --no-dispatch leaves it out.
 *
 * dtype `fp32` means f32 on the vector units, `tf32` f32 operands on the matrix units. The device
 * and slice of a row take precedence over those of the command line. Nothing is written unless
 * every row is valid. */
#include "tools/compiler/estimate_kernels.h"

#include "base/device_type.h"
#include "base/file.h"
#include "base/num.h"
#include "estimator/estimator.h"
#include "base/csv.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ROWS_MAX = 4000000, NAME_MAX_BYTES = 64 };
static const uint64_t stdin_bytes_max = (uint64_t)1 << 30;
static const double size_max = 1e9;

/* -- Columns ---------------------------------------------------------------------------------- */

typedef enum column {
    COL_KIND,
    COL_DTYPE,
    COL_GPU,
    COL_SLICE,
    COL_B,
    COL_M,
    COL_N,
    COL_K,
    COL_H,
    COL_CIN,
    COL_COUT,
    COL_KSIZE,
    COL_HW,
    COL_STRIDE,
    COL_PAD,
    COL_GROUPS,
    COL_SEQ,
    COL_HEADS,
    COL_HEAD,
    COL_KEYS,
    COL_KV_HEADS,
    COL_LAUNCHER,
    COL_MEASURED,
    COL_COUNT
} column;

/* Names of each column; messages use the first one. */
static const char *const column_names[COL_COUNT][7] = {
    [COL_KIND] = {"kind", "op", "operator"},
    [COL_DTYPE] = {"dtype", "data_type", "precision"},
    [COL_GPU] = {"gpu", "device"},
    [COL_SLICE] = {"slice"},
    [COL_B] = {"b", "batch", "batch_size", "rows"},
    [COL_M] = {"m"},
    [COL_N] = {"n"},
    [COL_K] = {"k"},
    [COL_H] = {"h", "cols", "hidden"},
    [COL_CIN] = {"cin", "in_channels"},
    [COL_COUT] = {"cout", "out_channels"},
    [COL_KSIZE] = {"ksize", "kernel_size", "kernel"},
    [COL_HW] = {"hw", "image_size"},
    [COL_STRIDE] = {"stride"},
    [COL_PAD] = {"pad", "padding"},
    [COL_GROUPS] = {"groups", "group"},
    [COL_SEQ] = {"isl", "seq", "seq_len"},
    [COL_HEADS] = {"num_heads", "heads"},
    [COL_HEAD] = {"head_dim", "head_size"},
    [COL_KEYS] = {"keys", "kv_len"},
    [COL_KV_HEADS] = {"kv_heads", "num_kv_heads", "num_key_value_heads"},
    [COL_LAUNCHER] = {"launcher", "library"},
    [COL_MEASURED] = {"measured_us"},
};

static const char *const result_names[] = {"time_us",    "dispatch_us", "creq",   "energy_j",
                                           "bound",      "model",       "source", "expected_error",
                                           "time_p5_us", "time_p95_us"};
enum { RESULT_COUNT = sizeof result_names / sizeof result_names[0] };

/* -- Kinds ------------------------------------------------------------------------------------ */

typedef struct kind_row {
    const char *name;
    weft_kernel_kind kind;
    const char *fn;
    double operands; /* number of tensors that are read */
    bool sums_n;     /* m x n by n x k instead of m x k by k x n */
} kind_row;

static const kind_row kind_table[] = {
    {"gemm", WEFT_KERNEL_GEMM, NULL, 1, false},
    {"linear", WEFT_KERNEL_GEMM, NULL, 1, true},
    {"matmul", WEFT_KERNEL_GEMM, NULL, 1, false},
    {"fc", WEFT_KERNEL_GEMM, NULL, 1, false},
    {"addmm", WEFT_KERNEL_GEMM, NULL, 1, false},
    {"bmm", WEFT_KERNEL_GEMM, NULL, 2, true},
    {"batched_gemm", WEFT_KERNEL_GEMM, NULL, 2, false},
    {"batch_matmul", WEFT_KERNEL_GEMM, NULL, 2, false},
    {"conv", WEFT_KERNEL_CONV, NULL, 1, false},
    {"conv2d", WEFT_KERNEL_CONV, NULL, 1, false},
    {"depthwise", WEFT_KERNEL_DEPTHWISE, NULL, 1, false},
    {"depthwise_conv", WEFT_KERNEL_DEPTHWISE, NULL, 1, false},
    {"attention", WEFT_KERNEL_ATTENTION, NULL, 1, false},
    {"encoder_attention", WEFT_KERNEL_ATTENTION, NULL, 1, false},
    {"prefill", WEFT_KERNEL_ATTENTION, "prefill", 1, false},
    {"context_attention", WEFT_KERNEL_ATTENTION, "prefill", 1, false},
    {"decode", WEFT_KERNEL_ATTENTION, "decode", 1, false},
    {"generation_attention", WEFT_KERNEL_ATTENTION, "decode", 1, false},
    {"ew", WEFT_KERNEL_EW, NULL, 1, false},
    {"add", WEFT_KERNEL_EW, "add", 2, false},
    {"sub", WEFT_KERNEL_EW, "sub", 2, false},
    {"mul", WEFT_KERNEL_EW, "mul", 2, false},
    {"div", WEFT_KERNEL_EW, "div", 2, false},
    {"pow", WEFT_KERNEL_EW, "pow", 2, false},
    {"addu", WEFT_KERNEL_EW, "add", 1, false},
    {"subu", WEFT_KERNEL_EW, "sub", 1, false},
    {"mulu", WEFT_KERNEL_EW, "mul", 1, false},
    {"divu", WEFT_KERNEL_EW, "div", 1, false},
    {"powu", WEFT_KERNEL_EW, "pow", 1, false},
    {"gelu", WEFT_KERNEL_EW, "gelu", 1, false},
    {"relu", WEFT_KERNEL_EW, "relu", 1, false},
    {"tanh", WEFT_KERNEL_EW, "tanh", 1, false},
    {"sigmoid", WEFT_KERNEL_EW, "sigmoid", 1, false},
    {"silu", WEFT_KERNEL_EW, "sigmoid", 1, false},
    {"exp", WEFT_KERNEL_EW, "exp", 1, false},
    {"sqrt", WEFT_KERNEL_EW, "sqrt", 1, false},
    {"norm", WEFT_KERNEL_NORM, NULL, 1, false},
    {"ln", WEFT_KERNEL_NORM, "layer_norm", 1, false},
    {"layer_norm", WEFT_KERNEL_NORM, "layer_norm", 1, false},
    {"layernorm", WEFT_KERNEL_NORM, "layer_norm", 1, false},
    {"rms_norm", WEFT_KERNEL_NORM, "rms_norm", 1, false},
    {"rmsnorm", WEFT_KERNEL_NORM, "rms_norm", 1, false},
    {"softmax", WEFT_KERNEL_SOFTMAX, "softmax", 1, false},
    {"reduce", WEFT_KERNEL_REDUCE, NULL, 1, false},
    {"move", WEFT_KERNEL_MOVE, NULL, 1, false},
    {"copy", WEFT_KERNEL_MOVE, NULL, 1, false},
    {"transpose", WEFT_KERNEL_MOVE, NULL, 1, false},
};

static const struct {
    const char *name;
    weft_dtype dtype;
    bool exact;
} dtype_table[] = {
    {"f32", WEFT_DTYPE_F32, true},
    {"fp32", WEFT_DTYPE_F32, true},
    {"float32", WEFT_DTYPE_F32, true},
    {"float", WEFT_DTYPE_F32, true},
    {"tf32", WEFT_DTYPE_F32, false},
    {"f16", WEFT_DTYPE_F16, false},
    {"fp16", WEFT_DTYPE_F16, false},
    {"float16", WEFT_DTYPE_F16, false},
    {"half", WEFT_DTYPE_F16, false},
    {"bf16", WEFT_DTYPE_BF16, false},
    {"bfloat16", WEFT_DTYPE_BF16, false},
    {"f64", WEFT_DTYPE_F64, false},
    {"fp64", WEFT_DTYPE_F64, false},
    {"float64", WEFT_DTYPE_F64, false},
    {"double", WEFT_DTYPE_F64, false},
    {"i8", WEFT_DTYPE_I8, false},
    {"int8", WEFT_DTYPE_I8, false},
    {"fp8", WEFT_DTYPE_F8E4M3FN, false},
    {"f8e4m3fn", WEFT_DTYPE_F8E4M3FN, false},
    {"f8e5m2", WEFT_DTYPE_F8E5M2, false},
    {"nvfp4", WEFT_DTYPE_F4E2M1, false},
};

/* -- One row ---------------------------------------------------------------------------------- */

typedef struct table {
    const weft_tool_kernels *options;
    weft_csv *rows;
    weft_diag *diag;
    int at[COL_COUNT]; /* index of the column; -1: absent */
    size_t n_column;
    char device[NAME_MAX_BYTES],
        part[NAME_MAX_BYTES]; /* name of `slice`, kept because rows often repeat it */
    weft_slice slice;
} table;

static weft_err refuse(const table *t, const char *name, const char *what, const char *text)
{
    return weft_diag_error(t->diag, WEFT_ERR_INPUT,
                           (weft_where){.file = t->rows->where.file, .line = t->rows->where.line},
                           "column '%s': %s%s%.100s%s", name, what, text ? " '" : "",
                           text ? text : "", text ? "'" : "");
}

/* Returns the field; NULL: the column is absent or the field is empty. */
static const char *get_text(const table *t, column c)
{
    const char *text = t->at[c] >= 0 ? t->rows->field[t->at[c]] : "";
    while (*text == ' ')
        text++;
    return *text ? text : NULL;
}

/* `missing`: value without the column; negative: the column is needed. */
static weft_err get_size(const table *t, column c, double missing, double least, double *out)
{
    const char *text = get_text(t, c), *name = column_names[c][0];
    double x = missing;
    if (!text && missing < 0)
        return t->at[c] < 0 ? refuse(t, name, "is missing; this kind of kernel needs it", NULL)
                            : refuse(t, name, "is empty; this kind of kernel needs it", NULL);
    if (text && (!weft_parse_f64(text, &x) || !isfinite(x) || x != floor(x)))
        return refuse(t, name, "not a whole number:", text);
    if (x < least || x > size_max)
        return refuse(t, name, least > 0 ? "not in 1 to 1e9:" : "not in 0 to 1e9:", text);
    *out = x;
    return WEFT_ERR_OK;
}

static weft_err get_gemm(const table *t, const kind_row *kind, weft_dtype dtype, weft_kernel *out)
{
    double b, m, n, k;
    WEFT_TRY(get_size(t, COL_B, kind->operands > 1 ? -1 : 1, 1, &b));
    WEFT_TRY(get_size(t, COL_M, -1, 1, &m));
    WEFT_TRY(get_size(t, COL_N, -1, 1, &n));
    WEFT_TRY(get_size(t, COL_K, -1, 1, &k));
    if (kind->sums_n) {
        double columns = k;
        k = n;
        n = columns;
    }
    *out = weft_kernel_make_gemm(dtype, b, m, n, k, kind->operands <= 1 && b <= 1);
    return WEFT_ERR_OK;
}

static weft_err get_conv(const table *t, const kind_row *kind, weft_dtype dtype, weft_kernel *out)
{
    bool depthwise = kind->kind == WEFT_KERNEL_DEPTHWISE;
    double ksize, hw, stride, pad;
    weft_conv_shape c = {0};
    WEFT_TRY(get_size(t, COL_B, -1, 1, &c.images));
    WEFT_TRY(get_size(t, COL_CIN, -1, 1, &c.in_channels));
    WEFT_TRY(get_size(t, COL_COUT, depthwise ? c.in_channels : -1, 1, &c.out_channels));
    WEFT_TRY(get_size(t, COL_KSIZE, -1, 1, &ksize));
    WEFT_TRY(get_size(t, COL_HW, -1, 1, &hw));
    WEFT_TRY(get_size(t, COL_STRIDE, 1, 1, &stride));
    WEFT_TRY(get_size(t, COL_PAD, 0, 0, &pad));
    WEFT_TRY(get_size(t, COL_GROUPS, depthwise ? c.in_channels : 1, 1, &c.groups));
    double out_hw = floor((hw + 2 * pad - ksize) / stride) + 1;
    if (out_hw < 1)
        return refuse(t, "ksize", "the filter is larger than the padded image", NULL);
    if (fmod(c.in_channels, c.groups) != 0 || fmod(c.out_channels, c.groups) != 0)
        return refuse(t, "groups", "does not divide cin and cout", NULL);
    c.in_h = c.in_w = hw;
    c.out_h = c.out_w = out_hw;
    c.kernel_h = c.kernel_w = ksize;
    c.stride_h = c.stride_w = stride;
    c.pad_h = c.pad_w = pad;
    *out = weft_kernel_make_conv(dtype, &c);
    return WEFT_ERR_OK;
}

static weft_err get_attention(const table *t, const kind_row *kind, weft_dtype dtype,
                              weft_kernel *out)
{
    double images, seq, keys, heads, kv_heads, head;
    const char *name = kind->fn ? kind->fn : "";
    weft_attention_form form = strcmp(name, "prefill") == 0  ? WEFT_ATTENTION_PREFILL
                               : strcmp(name, "decode") == 0 ? WEFT_ATTENTION_DECODE
                                                             : WEFT_ATTENTION_FULL;
    WEFT_TRY(get_size(t, COL_B, -1, 1, &images));
    WEFT_TRY(get_size(t, COL_SEQ, -1, 1, &seq));
    WEFT_TRY(get_size(t, COL_HEADS, -1, 1, &heads));
    WEFT_TRY(get_size(t, COL_HEAD, -1, 1, &head));
    WEFT_TRY(get_size(t, COL_KEYS, seq, 1, &keys));
    WEFT_TRY(get_size(t, COL_KV_HEADS, heads, 1, &kv_heads));
    if (fmod(heads, kv_heads) != 0)
        return refuse(t, "kv_heads", "does not divide num_heads", NULL);
    if (form == WEFT_ATTENTION_PREFILL && keys < seq)
        return refuse(t, "keys", "are fewer than the queries of a prefill", NULL);
    *out = weft_kernel_make_attention(dtype, images, heads, form == WEFT_ATTENTION_DECODE ? 1 : seq,
                                      keys, head);
    weft_kernel_form_attention(out, form, heads / kv_heads);
    return WEFT_ERR_OK;
}

static weft_err get_rows(const table *t, const kind_row *kind, weft_dtype dtype, weft_kernel *out)
{
    double rows, cols;
    WEFT_TRY(get_size(t, COL_B, 1, 1, &rows));
    WEFT_TRY(get_size(t, COL_H, -1, 1, &cols));
    *out = weft_kernel_make_rows(kind->kind, kind->fn, dtype, kind->operands, rows, cols);
    if (kind->kind == WEFT_KERNEL_REDUCE)
        out->work.bytes_written = rows * (double)weft_dtype_size(dtype);
    return WEFT_ERR_OK;
}

static weft_err get_problem(const table *t, weft_kernel *out, bool *out_exact)
{
    const char *name = get_text(t, COL_KIND), *type = get_text(t, COL_DTYPE);
    const kind_row *kind = NULL;
    weft_dtype dtype = WEFT_DTYPE_NONE;
    if (!name || !type)
        return refuse(t, name ? "dtype" : "kind", "is empty", NULL);
    for (size_t i = 0; i < sizeof kind_table / sizeof kind_table[0] && !kind; i++)
        if (strcasecmp(kind_table[i].name, name) == 0)
            kind = &kind_table[i];
    for (size_t i = 0; i < sizeof dtype_table / sizeof dtype_table[0] && !dtype; i++)
        if (strcasecmp(dtype_table[i].name, type) == 0) {
            dtype = dtype_table[i].dtype;
            *out_exact = dtype_table[i].exact;
        }
    if (!kind)
        return refuse(t, "kind", "unknown kind of kernel", name);
    if (!dtype)
        return refuse(t, "dtype", "unknown element type", type);
    switch (kind->kind) {
    case WEFT_KERNEL_GEMM:
        return get_gemm(t, kind, dtype, out);
    case WEFT_KERNEL_CONV:
    case WEFT_KERNEL_DEPTHWISE:
        return get_conv(t, kind, dtype, out);
    case WEFT_KERNEL_ATTENTION:
        return get_attention(t, kind, dtype, out);
    default:
        return get_rows(t, kind, dtype, out);
    }
}

static weft_err get_kernel(const table *t, weft_kernel *out, bool *out_exact)
{
    const char *name = get_text(t, COL_LAUNCHER);
    weft_launcher launcher = name ? weft_launcher_find(name) : WEFT_LAUNCHER_ANY;
    if (launcher == WEFT_LAUNCHER_COUNT)
        return refuse(t, "launcher", "unknown library:", name);
    WEFT_TRY(get_problem(t, out, out_exact));
    out->launcher = launcher;
    return WEFT_ERR_OK;
}

static weft_err get_slice(table *t)
{
    const char *gpu = get_text(t, COL_GPU), *part = get_text(t, COL_SLICE);
    gpu = gpu ? gpu : t->options->gpu;
    part = part ? part : t->options->slice ? t->options->slice : "";
    if (!gpu)
        return refuse(t, "gpu", "names no device, nor does --gpu", NULL);
    if (t->slice.gpu && strcmp(gpu, t->device) == 0 && strcmp(part, t->part) == 0)
        return WEFT_ERR_OK;
    if (strlen(gpu) >= sizeof t->device || strlen(part) >= sizeof t->part)
        return refuse(t, "gpu", "the name is too long:", gpu);
    weft_slice slice;
    const weft_device_type *type = weft_device_type_named(gpu);
    weft_err err = weft_slice_make(type ? type->name : gpu, part, t->diag, &slice);
    if (err != WEFT_ERR_OK) {
        weft_diag_note(t->diag,
                       (weft_where){.file = t->rows->where.file, .line = t->rows->where.line},
                       "column 'gpu' or 'slice': '%s' '%s'", gpu, part);
        return err;
    }
    memcpy(t->device, gpu, strlen(gpu) + 1);
    memcpy(t->part, part, strlen(part) + 1);
    t->slice = slice;
    return WEFT_ERR_OK;
}

static weft_err put_cost(const table *t, const weft_kernel *kernel, bool exact, weft_buf *to)
{
    weft_estimate_options options = {.exact_f32 = exact, .model = t->options->model};
    const weft_calibration *fit = t->options->calibration;
    if (fit && strcmp(fit->gpu, t->slice.gpu->name) == 0)
        options.calibration = fit;
    weft_cost cost;
    const char *model, *bound;
    weft_err err = weft_estimate_kernel(kernel, &t->slice, &options, t->diag, &cost, &model);
    if (err != WEFT_ERR_OK) {
        weft_diag_note(t->diag,
                       (weft_where){.file = t->rows->where.file, .line = t->rows->where.line},
                       "this row");
        return err;
    }
    bound = weft_peak_bound(kernel, &t->slice, &options);
    double dispatch_us = t->options->no_dispatch ? 0 : weft_trees_dispatch_us(kernel, &t->slice);
    weft_buf_printf(to, ",%.6g,%.4g,%.4g,%.4g,%s,%s,%s,%.3g,%.6g,%.6g", cost.time_us + dispatch_us,
                    dispatch_us, cost.creq, cost.energy_j, bound, model, cost.source,
                    cost.expected_error, cost.time_p5_us + dispatch_us,
                    cost.time_p95_us + dispatch_us);
    return WEFT_ERR_OK;
}

/* Writes family, base_us, floor_us, staging_us, then NAME=VALUE for every feature: the features
 * depend on the family. */
static void put_features(const table *t, const weft_kernel *kernel, bool exact, weft_buf *to)
{
    weft_estimate_options options = {.exact_f32 = exact};
    weft_features f;
    weft_features_find(kernel, &t->slice, &options, &f);
    weft_buf_printf(to, ",%s,%.9g,%.9g,%.9g,", f.family, f.base_us, f.floor_us, f.staging_us);
    for (size_t i = 0; i < f.n; i++)
        weft_buf_printf(to, "%s%s=%.9g", i > 0 ? " " : "", f.name[i], (double)f.value[i]);
}

/* -- The table -------------------------------------------------------------------------------- */

static weft_err read_header(table *t)
{
    bool more;
    for (size_t c = 0; c < COL_COUNT; c++)
        t->at[c] = -1;
    WEFT_TRY(weft_csv_next(t->rows, t->diag, &more));
    if (!more)
        return weft_diag_error(t->diag, WEFT_ERR_INPUT, (weft_where){.file = t->rows->where.file},
                               "no rows; the first one names the columns");
    t->n_column = t->rows->n_field;
    for (size_t i = 0; i < t->n_column; i++) {
        const char *name = t->rows->field[i];
        for (size_t r = 0; r < RESULT_COUNT && !t->options->features; r++)
            if (strcmp(name, result_names[r]) == 0)
                return refuse(t, name, "is what a prediction will be called; rename it", NULL);
        for (size_t c = 0; c < COL_COUNT; c++)
            for (size_t a = 0; column_names[c][a]; a++)
                if (strcasecmp(column_names[c][a], name) == 0) {
                    if (t->at[c] >= 0)
                        return refuse(t, name, "is the same as", t->rows->field[t->at[c]]);
                    t->at[c] = (int)i;
                }
    }
    static const column needed[] = {COL_KIND, COL_DTYPE};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (t->at[needed[i]] < 0)
            return refuse(t, column_names[needed[i]][0], "is missing", NULL);
    if (t->at[COL_GPU] < 0 && !t->options->gpu)
        return refuse(t, "gpu", "is missing, and there is no --gpu", NULL);
    return WEFT_ERR_OK;
}

/* Passes a row with its measurement to on_row(). */
static weft_err give_row(table *t, const weft_kernel *kernel, bool exact)
{
    const char *text = get_text(t, COL_MEASURED);
    double x = 0;
    if (!text)
        return refuse(t, "measured_us", "is missing", NULL);
    if (!weft_parse_f64(text, &x) || !isfinite(x) || !(x > 0) || x > size_max * 1e6)
        return refuse(t, "measured_us", "must be a time above 0, not", text);
    return t->options->on_row(t->options->user, kernel, &t->slice, exact, x, t->diag);
}

static weft_err put_rows(table *t, weft_buf *to)
{
    bool more;
    size_t n = 0;
    WEFT_TRY(read_header(t));
    weft_buf_add(to, t->rows->raw, t->rows->raw_len);
    if (t->options->features)
        weft_buf_puts(to, ",family,base_us,floor_us,staging_us,features");
    for (size_t i = 0; i < RESULT_COUNT && !t->options->features; i++)
        weft_buf_printf(to, ",%s", result_names[i]);
    for (;;) {
        weft_kernel kernel;
        bool exact = false;
        weft_buf_putc(to, '\n');
        WEFT_TRY(weft_csv_next(t->rows, t->diag, &more));
        if (!more)
            return WEFT_ERR_OK;
        weft_where where = {.file = t->rows->where.file, .line = t->rows->where.line};
        if (n++ == ROWS_MAX)
            return weft_diag_error(t->diag, WEFT_ERR_INPUT, where, "more than %d rows", ROWS_MAX);
        if (t->rows->n_field != t->n_column)
            return weft_diag_error(t->diag, WEFT_ERR_INPUT, where,
                                   "column %zu: the row has %zu fields, the header %zu",
                                   t->rows->n_field < t->n_column ? t->rows->n_field + 1
                                                                  : t->n_column + 1,
                                   t->rows->n_field, t->n_column);
        WEFT_TRY(get_slice(t));
        WEFT_TRY(get_kernel(t, &kernel, &exact));
        if (t->options->on_row) {
            WEFT_TRY(give_row(t, &kernel, exact));
            continue;
        }
        weft_buf_add(to, t->rows->raw, t->rows->raw_len);
        if (t->options->features)
            put_features(t, &kernel, exact, to);
        else
            WEFT_TRY(put_cost(t, &kernel, exact, to));
        if (to->failed)
            return WEFT_ERR_NOMEM;
    }
}

weft_err weft_tool_estimate_kernels(const weft_tool_kernels *options, weft_diag *diag)
{
    weft_file file = {0};
    char *text = NULL;
    size_t len = 0;
    bool is_stdin = strcmp(options->input, "-") == 0;
    WEFT_TRY(is_stdin ? weft_file_read("-", stdin_bytes_max, diag, &text, &len)
                      : weft_file_map(options->input, diag, &file));
    weft_where where = {.file = is_stdin ? "standard input" : options->input};
    weft_csv *rows =
        weft_csv_create(is_stdin ? text : (const char *)file.at, is_stdin ? len : (size_t)file.len,
                        where, (weft_csv_limits){0});
    weft_buf to = {0};
    table t = {.options = options, .rows = rows, .diag = diag};
    weft_err err = rows ? put_rows(&t, &to) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && to.failed)
        err = WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && !options->on_row)
        err = weft_file_write(options->output ? options->output : "-", to.at, to.len, diag);
    weft_buf_finish(&to);
    weft_file_unmap(&file);
    free(text);
    weft_csv_destroy(rows);
    return err;
}
