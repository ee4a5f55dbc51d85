/* Emits pooling over windows: by cuDNN where it can (16-bit images with channels innermost, of
 * which it reads eight at once), otherwise by a kernel. */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum { THREADS = 256, SPATIAL = 3, PACK_BYTES = 16 };

/* Element i of a list attribute; `otherwise` if the attribute is absent. */
static int64_t get_at(weft_attrs attrs, weft_attr_key key, uint32_t i, int64_t otherwise)
{
    uint32_t n;
    const int64_t *list = weft_attrs_ints(attrs, key, &n);
    return list && i < n ? list[i] : otherwise;
}

/* An expression that constructs the pool_dim of spatial dim i. */
static const char *dim_text(weft_cuda_kernel *k, uint32_t i)
{
    weft_cuda *cu = weft_cuda__of(k);
    weft_attrs attrs = weft_cuda__attrs(cu);
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    uint32_t at = weft_cuda__memory_axis(cu, 2 + i, x->rank);
    const char *pad = weft_attrs_str(attrs, WEFT_ATTR_AUTO_PAD, "NOTSET");
    bool is_set = strcmp(pad, "NOTSET") == 0;
    const char *in = weft_cuda__int(k, x->dim[at]), *out = weft_cuda__int(k, y->dim[at]);
    long long kernel = get_at(attrs, WEFT_ATTR_KERNEL_SHAPE, i, 1);
    long long stride = get_at(attrs, WEFT_ATTR_STRIDES, i, 1);
    long long dilation = get_at(attrs, WEFT_ATTR_DILATIONS, i, 1);
    if (strncmp(pad, "SAME", 4) == 0)
        return weft_arena_printf(weft_cuda__arena(cu), "pool_same(%s, %s, %lld, %lld, %lld, %s)",
                                 in, out, kernel, stride, dilation,
                                 strcmp(pad, "SAME_LOWER") == 0 ? "true" : "false");
    long long lo = is_set ? get_at(attrs, WEFT_ATTR_PADS, i, 0) : 0;
    long long hi = is_set ? get_at(attrs, WEFT_ATTR_PADS, x->rank - 2u + i, 0) : 0;
    return weft_arena_printf(weft_cuda__arena(cu), "pool_dim{%s, %s, %lld, %lld, %lld, %lld, %lld}",
                             in, out, kernel, stride, dilation, lo, hi);
}

/* Channels of a thread: a vector that divides them. */
static int64_t pack_of(const weft_ttype *y)
{
    weft_dim channels = y->dim[y->rank - 1];
    int64_t pack = PACK_BYTES / (int64_t)weft_dtype_size((weft_dtype)y->dtype);
    while (pack > 1 && (!weft_dim_is_const(channels) || channels % pack != 0))
        pack /= 2;
    return pack;
}

/* The padding in front of spatial dim i, which dim_text gives to the kernel. */
static weft_dim pad_before(weft_cuda *cu, uint32_t i, weft_dim in, weft_dim out, int64_t reach,
                           int64_t stride)
{
    weft_attrs attrs = weft_cuda__attrs(cu);
    weft_dimpool *pool = weft_cuda__dims(cu);
    const char *pad = weft_attrs_str(attrs, WEFT_ATTR_AUTO_PAD, "NOTSET");
    if (strcmp(pad, "NOTSET") == 0)
        return get_at(attrs, WEFT_ATTR_PADS, i, 0);
    if (strcmp(pad, "VALID") == 0)
        return 0;
    weft_dim total =
        weft_dim_sub(pool, weft_cuda__add(cu, weft_cuda__mul(cu, out, stride), reach - stride), in);
    total = weft_dim_max(pool, total, 0);
    return weft_dim_floordiv(pool, weft_cuda__add(cu, total, strcmp(pad, "SAME_LOWER") == 0), 2);
}

/* Emits cuDNN's pooling; false: it has none of this kind. Windows beyond the padding behind
 * (ceil_mode) divide by another number there. */
static bool emit_library(weft_cuda *cu, weft_op_id op)
{
    enum { TOGETHER = 8 };
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    uint32_t spatial = x->rank - 2u;
    weft_dim channels = x->dim[x->rank - 1];
    bool half = x->dtype == WEFT_DTYPE_F16 || x->dtype == WEFT_DTYPE_BF16;
    bool padded = weft_attrs_int(attrs, WEFT_ATTR_COUNT_INCLUDE_PAD, 0) != 0;
    if (!half || !weft_cuda__is_last(cu, 0) || weft_cuda__out_type(cu, 1) || spatial < 2 ||
        op == WEFT_OP_LP_POOL || weft_attrs_int(attrs, WEFT_ATTR_CEIL_MODE, 0) != 0 ||
        !weft_dim_is_const(channels) || channels % TOGETHER != 0)
        return false;
    weft_bundle_conv c = {.dtype = (weft_dtype)x->dtype,
                          .flags = WEFT_CONV_LAST | (op == WEFT_OP_MAX_POOL ? WEFT_CONV_MAX_POOL
                                                     : padded ? WEFT_CONV_MEAN_POOL_PADDED
                                                              : WEFT_CONV_MEAN_POOL),
                          .dim = {[WEFT_CONV_IMAGES] = x->dim[0],
                                  [WEFT_CONV_CHANNELS] = channels,
                                  [WEFT_CONV_FEATURES] = channels,
                                  [WEFT_CONV_GROUPS] = 1},
                          .x = weft_cuda__at_in(0, 0),
                          .y = weft_cuda__at_out(0, 0)};
    for (uint32_t i = 0; i < SPATIAL; i++) {
        bool is_there = i + spatial >= SPATIAL;
        uint32_t own = is_there ? i + spatial - SPATIAL : 0;
        int64_t kernel = is_there ? get_at(attrs, WEFT_ATTR_KERNEL_SHAPE, own, 1) : 1;
        int64_t stride = is_there ? get_at(attrs, WEFT_ATTR_STRIDES, own, 1) : 1;
        weft_dim in = is_there ? x->dim[own + 1] : 1, out = is_there ? y->dim[own + 1] : 1;
        if (is_there && get_at(attrs, WEFT_ATTR_DILATIONS, own, 1) != 1)
            return false;
        c.dim[WEFT_CONV_IN + i] = in;
        c.dim[WEFT_CONV_OUT + i] = out;
        c.dim[WEFT_CONV_PAD + i] = is_there ? pad_before(cu, own, in, out, kernel, stride) : 0;
        c.dim[WEFT_CONV_KERNEL + i] = kernel;
        c.dim[WEFT_CONV_STRIDE + i] = stride;
        c.dim[WEFT_CONV_DILATION + i] = 1;
    }
    weft_cuda__conv(cu, &c);
    return true;
}

weft_err weft_cuda_emit_pool(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    weft_op_id op = weft_node_op(weft_cuda__module(cu), n);
    weft_arena *arena = weft_cuda__arena(cu);
    uint32_t spatial = x->rank - 2u;
    bool last = weft_cuda__is_last(cu, 0);
    int64_t pack = last ? pack_of(y) : 1;
    if (last != weft_cuda__gives_last(cu) || (last && weft_cuda__out_type(cu, 1)))
        return weft_cuda__unsup(cu, "operand and results of different layouts");
    if (spatial > SPATIAL)
        return weft_cuda__unsup(cu, "%u spatial dims, at most %d", spatial, SPATIAL);
    const char *acc = x->dtype == WEFT_DTYPE_F64 ? "f64" : "f32", *window;
    if (op == WEFT_OP_MAX_POOL)
        window = weft_arena_printf(arena, "pool_max<%s>", acc);
    else if (op == WEFT_OP_AVERAGE_POOL)
        window = weft_arena_printf(arena, "pool_average<%s, %s>", acc,
                                   weft_attrs_int(attrs, WEFT_ATTR_COUNT_INCLUDE_PAD, 0) ? "true"
                                                                                         : "false");
    else
        window = weft_arena_printf(arena, "pool_lp<%s, %lld>", acc,
                                   (long long)weft_attrs_int(attrs, WEFT_ATTR_P, 2));
    bool library = emit_library(cu, op);
    uint32_t first = weft_cuda__command_count(cu);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "pool", THREADS);
    if (pack > 1)
        weft_cuda__share_sizes(k);
    weft_cuda__include(k, "pool.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    const char *where = "(i64 *)0";
    if (weft_cuda__out_type(cu, 1))
        weft_cuda__out(k, where = "where", 1);
    const char *dim[SPATIAL];
    for (uint32_t i = 0; i < SPATIAL; i++)
        dim[i] = i < SPATIAL - spatial ? "pool_dim{1, 1, 1, 1, 1, 0, 0}"
                                       : dim_text(k, i - (SPATIAL - spatial));
    const char *all = weft_cuda__long(k, y, 0, y->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    pool<%s, %s, %lld>(x, y, %s, %s, %s,\n         %s,\n         %s,\n"
                    "         %s, %s);\n",
                    window, acc, (long long)pack, where, all,
                    last ? weft_cuda__long(k, y, y->rank - 1u, y->rank) : "1", dim[0], dim[1],
                    dim[2], weft_attrs_int(attrs, WEFT_ATTR_STORAGE_ORDER, 0) ? "true" : "false");
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), pack, THREADS), 1, 1, 0);
    if (library)
        weft_cuda__depends(cu, first, WEFT_COMMAND_INSTEAD);
    return WEFT_ERR_OK;
}
