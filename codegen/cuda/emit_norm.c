/* Emits normalisations and softmax. norm.cuh computes them; this file decides how many threads
 * share a row. */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum {
    THREADS = 256,
    WARP_THREADS = 128, /* per block if each warp has a row */
    WARP_LEN = 1024,    /* longest row for one warp */
    BLOCK_LEN = 8192    /* longest row that a block keeps in registers */
};

/* The division of rows of `len` elements among threads. */
typedef struct row_plan {
    uint32_t group; /* threads per row */
    uint32_t block; /* threads per block */
    int64_t pack;   /* elements per vector */
    int64_t
        items; /* vectors that a thread keeps in registers; 0: rows are read again from memory */
    weft_dim blocks; /* number of blocks for all rows */
} row_plan;

static row_plan plan_rows(weft_cuda *cu, weft_dim rows, weft_dim len, weft_dtype dtype)
{
    row_plan p = {.group = THREADS, .block = THREADS, .pack = 1, .blocks = rows};
    if (!weft_dim_is_const(len))
        return p;
    p.pack = 16 / (int64_t)weft_dtype_size(dtype);
    while (len % p.pack != 0)
        p.pack /= 2;
    if (len > BLOCK_LEN)
        return p;
    if (len <= WARP_LEN) {
        p.group = 32;
        p.block = WARP_THREADS;
        p.blocks = weft_cuda__ceil_div(cu, rows, WARP_THREADS / 32);
    }
    p.items = (len + p.pack * p.group - 1) / (p.pack * p.group);
    p.items = p.items > 0 ? p.items : 1;
    return p;
}

/* -- Normalised rows --------------------------------------------------------------------------- */

/* Emits the kernel for rows [rows, len] of operand 0; `affine` constructs the structure that scales
 * them. */
static weft_err emit_rows(weft_cuda *cu, weft_cuda_kernel *k, const row_plan *p, const char *rows,
                          const char *len, const char *affine)
{
    double eps = weft_attrs_float(weft_cuda__attrs(cu), WEFT_ATTR_EPSILON, 1e-5);
    const char *mean = "(f32 *)0", *inv = "(f32 *)0";
    weft_buf *body = weft_cuda__body(k);
    if (weft_cuda__out_type(cu, 1))
        weft_cuda__out(k, mean = "mean", 1);
    if (weft_cuda__out_type(cu, 2))
        weft_cuda__out(k, inv = "inv", 2);
    const char *eps_text = weft_cuda__f32_text(cu, (float)eps);
    if (p->items)
        weft_buf_printf(body, "    norm_rows<%u, %lld, %lld>(x, y, %s, %s, %s, %s, %s, %s);\n",
                        p->group, (long long)p->pack, (long long)p->items, rows, len, eps_text,
                        affine, mean, inv);
    else
        weft_buf_printf(body, "    norm_long<%u, %lld>(x, y, %s, %s, %s, %s, %s);\n", p->group,
                        (long long)p->pack, len, eps_text, affine, mean, inv);
    weft_cuda__launch(k, p->blocks, 1, 1, 0);
    return WEFT_ERR_OK;
}

/* Prints the load of a vector of scale or bias, which has `n` elements or one. */
static weft_err print_param(weft_cuda *cu, weft_cuda_kernel *k, uint32_t operand, const char *name,
                            weft_dim len, weft_buf *members, weft_buf *body)
{
    const weft_ttype *t = weft_cuda__in_type(cu, operand);
    weft_dim n = weft_cuda__numel(cu, t);
    weft_buf_printf(members, "    const %s *__restrict__ %s;\n",
                    weft_dtype_name((weft_dtype)t->dtype), name);
    weft_cuda__in(k, name, operand);
    weft_buf_printf(body, "        f32 %s_[N] = {};\n", name);
    if (n == len)
        weft_buf_printf(body, "        load_pack<N>(%s_, %s, at, left);\n", name, name);
    else if (n == 1)
        weft_buf_printf(body,
                        "        for (int n = 0; n < N; n++)\n"
                        "            %s_[n] = convert<f32>(%s[0]);\n",
                        name, name);
    else
        return weft_cuda__unsup(cu, "operand %u is neither one element nor one for each of a row",
                                operand);
    return WEFT_ERR_OK;
}

static const char affine_head[] =
    "    template <int N>\n"
    "    __device__ void operator()(f32 (&v)[N], size_t row, int at, int left) const\n    {\n";

weft_err weft_cuda_emit_layer_norm(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    uint32_t axis = weft_cuda__axis(cu, -1, x->rank);
    weft_dim rows = weft_cuda__product(cu, x, 0, axis);
    weft_dim len = weft_cuda__product(cu, x, axis, x->rank);
    row_plan p = plan_rows(cu, rows, len, (weft_dtype)x->dtype);
    bool has_bias = weft_cuda__in_type(cu, 2) != NULL;
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "layer_norm", p.block);
    weft_cuda__include(k, "norm.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    weft_buf members = {0}, body = {0};
    weft_err err = print_param(cu, k, 1, "scale", len, &members, &body);
    if (err == WEFT_ERR_OK && has_bias)
        err = print_param(cu, k, 2, "bias", len, &members, &body);
    weft_buf_printf(weft_cuda__top(k), "struct @_affine {\n%s%s%s", members.at, affine_head,
                    body.at);
    weft_buf_printf(weft_cuda__top(k),
                    "        for (int n = 0; n < N; n++)\n"
                    "            v[n] = v[n] * scale_[n]%s;\n    }\n};\n",
                    has_bias ? " + bias_[n]" : "");
    weft_buf_finish(&members);
    weft_buf_finish(&body);
    WEFT_TRY(err);
    const char *n_rows = weft_cuda__long(k, x, 0, axis), *length = weft_cuda__int(k, len);
    return emit_rows(cu, k, &p, n_rows, length,
                     has_bias ? "@_affine{scale, bias}" : "@_affine{scale}");
}

/* Normalises each sample's channels in groups; scale and bias are per channel or per group. */
static weft_err emit_groups(weft_cuda *cu, weft_dim groups)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_arena *arena = weft_cuda__arena(cu);
    weft_dim per, channels = x->dim[1], plane = weft_cuda__product(cu, x, 2, x->rank);
    if (!weft_dim_div_exact(weft_cuda__dims(cu), channels, groups, &per))
        return weft_cuda__unsup(cu, "only running tells how many channels a group has");
    weft_dim rows = weft_cuda__mul(cu, x->dim[0], groups), len = weft_cuda__mul(cu, per, plane);
    bool by_channel = weft_cuda__in_type(cu, 1)->dim[0] == channels;
    row_plan p = plan_rows(cu, rows, len, (weft_dtype)x->dtype);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "group_norm", p.block);
    weft_cuda__include(k, "norm.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "scale", 1);
    weft_cuda__in(k, "bias", 2);
    weft_cuda__out(k, "y", 0);
    const char *groups_text = weft_cuda__int(k, groups), *per_text = weft_cuda__int(k, per);
    const char *plane_text = weft_cuda__int(k, plane);
    const char *c = by_channel ? weft_arena_printf(arena, "row %% groups * per + (at + n) / plane")
                               : "row % groups";
    weft_buf_printf(
        weft_cuda__top(k),
        "struct @_affine {\n    const %s *__restrict__ scale;\n    const %s *__restrict__ bias;\n"
        "    int groups, per, plane;\n%s"
        "        for (int n = 0; n < N; n++)\n            if (n < left) {\n"
        "                size_t c = %s;\n"
        "                v[n] = v[n] * convert<f32>(scale[c]) + convert<f32>(bias[c]);\n"
        "            }\n    }\n};\n",
        weft_dtype_name((weft_dtype)weft_cuda__in_type(cu, 1)->dtype),
        weft_dtype_name((weft_dtype)weft_cuda__in_type(cu, 2)->dtype), affine_head, c);
    const weft_dim factor[] = {x->dim[0], groups};
    const char *n_rows = weft_cuda__long_of(k, factor, 2), *length = weft_cuda__int(k, len);
    return emit_rows(cu, k, &p, n_rows, length,
                     weft_arena_printf(arena, "@_affine{scale, bias, %s, %s, %s}", groups_text,
                                       per_text, plane_text));
}

weft_err weft_cuda_emit_instance_norm(weft_cuda *cu, weft_node n)
{
    (void)n;
    return emit_groups(cu, weft_cuda__in_type(cu, 0)->dim[1]);
}

weft_err weft_cuda_emit_group_norm(weft_cuda *cu, weft_node n)
{
    (void)n;
    return emit_groups(cu, weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_NUM_GROUPS, 1));
}

weft_err weft_cuda_emit_batch_norm(weft_cuda *cu, weft_node n)
{
    (void)n;
    static const char *const name[] = {"x", "scale", "bias", "mean", "var"};
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    double eps = weft_attrs_float(weft_cuda__attrs(cu), WEFT_ATTR_EPSILON, 1e-5);
    if (weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_TRAINING_MODE, 0))
        return weft_cuda__unsup(cu, "`training_mode` has no CUDA kernel");
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "batch_norm", THREADS);
    weft_cuda__include(k, "norm.cuh");
    for (uint32_t i = 0; i < 5; i++)
        weft_cuda__in(k, name[i], i);
    weft_cuda__out(k, "y", 0);
    uint32_t first = x->rank > 1 ? weft_cuda__memory_axis(cu, 1, x->rank) : x->rank;
    const char *size = weft_cuda__long(k, x, 0, x->rank);
    const char *channels = weft_cuda__long(k, x, first, first + (x->rank > 1));
    const char *plane = weft_cuda__long(k, x, x->rank > 2 ? first + 1 : x->rank, x->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    batch_norm(x, scale, bias, mean, var, y, %s, %s, %s, %s);\n", size,
                    channels, plane, weft_cuda__f32_text(cu, (float)eps));
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, x), 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_lrn(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    int64_t size = weft_attrs_int(attrs, WEFT_ATTR_SIZE, 1);
    double alpha = weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1e-4);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "lrn", THREADS);
    weft_cuda__include(k, "norm.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    const char *count = weft_cuda__long(k, x, 0, x->rank);
    const char *channels = weft_cuda__int(k, x->dim[1]);
    const char *plane = weft_cuda__long(k, x, 2, x->rank);
    weft_buf_printf(weft_cuda__body(k), "    lrn(x, y, %s, %s, %s, %lld, %s, %s, %s);\n", count,
                    channels, plane, (long long)size,
                    weft_cuda__f32_text(cu, (float)(alpha / (double)size)),
                    weft_cuda__f32_text(cu, (float)weft_attrs_float(attrs, WEFT_ATTR_BETA, 0.75)),
                    weft_cuda__f32_text(cu, (float)weft_attrs_float(attrs, WEFT_ATTR_BIAS, 1)));
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, x), 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* -- Along one axis ---------------------------------------------------------------------------- */

/* Emits a kernel with one thread per lane; `call` is the function with its template arguments. */
static weft_err emit_lanes(weft_cuda *cu, const char *call, uint32_t axis)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    weft_dim outer = weft_cuda__product(cu, x, 0, axis);
    weft_dim lanes = weft_cuda__mul(cu, outer, weft_cuda__product(cu, x, axis + 1, x->rank));
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "lanes", THREADS);
    weft_cuda__include(k, "norm.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    const char *before = weft_cuda__long(k, x, 0, axis);
    const char *stride = weft_cuda__long(k, x, axis + 1, x->rank);
    const char *len = weft_cuda__long(k, x, axis, axis + 1);
    weft_buf_printf(weft_cuda__body(k), "    %s(x, y, %s * %s, %s, %s);\n", call, before, stride,
                    len, stride);
    weft_cuda__launch(k, weft_cuda__packs(cu, lanes, 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

static bool find_axis(weft_cuda *cu, uint32_t *out)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    *out = weft_cuda__axis(cu, -1, x->rank);
    return x->rank > 0;
}

weft_err weft_cuda_emit_softmax(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    bool is_log = weft_node_op(weft_cuda__module(cu), n) == WEFT_OP_LOG_SOFTMAX;
    const char *log_text = is_log ? "true" : "false";
    uint32_t axis;
    if (!find_axis(cu, &axis))
        return weft_cuda__unsup(cu, "a single number has no CUDA kernel");
    if (weft_cuda__product(cu, x, axis + 1, x->rank) != 1)
        return emit_lanes(cu, is_log ? "softmax_lanes<true>" : "softmax_lanes<false>", axis);
    weft_dim rows = weft_cuda__product(cu, x, 0, axis);
    row_plan p = plan_rows(cu, rows, x->dim[axis], (weft_dtype)x->dtype);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "softmax", p.block);
    weft_cuda__include(k, "norm.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    const char *len = weft_cuda__int(k, x->dim[axis]);
    if (p.items)
        weft_buf_printf(weft_cuda__body(k), "    softmax_rows<%s, %u, %lld, %lld>(x, y, %s, %s);\n",
                        log_text, p.group, (long long)p.pack, (long long)p.items,
                        weft_cuda__long(k, x, 0, axis), len);
    else
        weft_buf_printf(weft_cuda__body(k), "    softmax_long<%s, %u>(x, y, %s);\n", log_text,
                        p.group, len);
    weft_cuda__launch(k, p.blocks, 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_hardmax(weft_cuda *cu, weft_node n)
{
    (void)n;
    uint32_t axis;
    if (!find_axis(cu, &axis))
        return weft_cuda__unsup(cu, "a single number has no CUDA kernel");
    return emit_lanes(cu, "hardmax_lanes", axis);
}

weft_err weft_cuda_emit_lp_norm(weft_cuda *cu, weft_node n)
{
    (void)n;
    uint32_t axis;
    int64_t p = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_P, 2);
    if (!find_axis(cu, &axis))
        return weft_cuda__unsup(cu, "a single number has no CUDA kernel");
    return emit_lanes(cu, p == 1 ? "lp_norm_lanes<1>" : "lp_norm_lanes<2>", axis);
}
