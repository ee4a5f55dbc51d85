/* pad: an operand as part of a larger tensor, or less of it where a pad is negative. Each thread
 * finds where its element comes from, dim by dim; dims behind the last padded one count as one. */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum { THREADS = 256 };

static weft_dtype bits_of(const weft_ttype *t)
{
    switch (weft_dtype_size((weft_dtype)t->dtype)) {
    case 1:
        return WEFT_DTYPE_U8;
    case 2:
        return WEFT_DTYPE_U16;
    case 4:
        return WEFT_DTYPE_U32;
    default:
        return WEFT_DTYPE_U64;
    }
}

/* Elements in front of each dim; UNSUP when only running tells. */
static weft_err find_before(weft_cuda *cu, const weft_ttype *x, weft_dim before[WEFT_RANK_MAX])
{
    const weft_dim *pads, *axes;
    uint32_t n, n_axes;
    memset(before, 0, WEFT_RANK_MAX * sizeof *before);
    if (!weft_cuda__param(cu, 1, WEFT_ATTR_PADS, &pads, &n) ||
        !weft_cuda__param(cu, 3, WEFT_ATTR_AXES, &axes, &n_axes))
        return weft_cuda__unsup(cu, "only running tells the pads");
    n_axes = axes ? n_axes : x->rank;
    if (n != 2 * n_axes)
        return weft_cuda__unsup(cu, "%u pads for %u axes", n, n_axes);
    for (uint32_t i = 0; i < n_axes; i++) {
        int64_t axis = axes ? axes[i] : (int64_t)i;
        before[axis + (axis < 0 ? x->rank : 0)] = pads[i];
    }
    return WEFT_ERR_OK;
}

/* `c`, a coordinate outside [0, d), as the one inside that it shows. */
static const char *inside_text(const char *mode)
{
    if (strcmp(mode, "edge") == 0)
        return "        c = c < 0 ? 0 : c >= d ? d - 1 : c;\n";
    if (strcmp(mode, "wrap") == 0)
        return "        c = d > 0 ? (c % d + d) % d : -1;\n";
    if (strcmp(mode, "reflect") == 0)
        return "        const i64 period = d > 1 ? 2 * (d - 1) : 1;\n"
               "        c = (c % period + period) % period;\n"
               "        c = c < d ? c : period - c;\n";
    return "";
}

static void put_dim(weft_cuda_kernel *k, weft_dim y, weft_dim x, weft_dim before, const char *mode)
{
    weft_buf_printf(weft_cuda__body(k),
                    "    {\n"
                    "        const i64 d = %s;\n"
                    "        i64 c = (i64)(rest %% %s) - %s;\n"
                    "%s"
                    "        rest /= %s;\n"
                    "        there = there && c >= 0 && c < d;\n"
                    "        from += c * stride;\n"
                    "        stride *= d;\n"
                    "    }\n",
                    weft_cuda__int(k, x), weft_cuda__int(k, y), weft_cuda__int(k, before),
                    inside_text(mode), weft_cuda__int(k, y));
}

weft_err weft_cuda_emit_pad(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    const weft_ttype *fill = weft_cuda__in_type(cu, 2);
    const char *mode = weft_attrs_str(weft_cuda__attrs(cu), WEFT_ATTR_MODE, "constant");
    bool is_filled = fill && strcmp(mode, "constant") == 0 && weft_cuda__numel(cu, fill) == 1;
    weft_dim before[WEFT_RANK_MAX];
    weft_dtype bits = bits_of(x);
    uint32_t n_dim = x->rank;
    WEFT_TRY(find_before(cu, x, before));
    while (n_dim > 0 && before[n_dim - 1] == 0 && x->dim[n_dim - 1] == y->dim[n_dim - 1])
        n_dim--;
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "pad", THREADS);
    weft_cuda__include(k, "prelude.cuh");
    weft_cuda__pointer(k, "x", bits, true, weft_cuda__at_in(0, 0));
    if (is_filled)
        weft_cuda__pointer(k, "fill", bits, true, weft_cuda__at_in(2, 0));
    weft_cuda__pointer(k, "y", bits, false, weft_cuda__at_out(0, 0));
    const char *inner = weft_cuda__long(k, y, n_dim, y->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
                    "    if (at >= %s)\n"
                    "        return;\n"
                    "    size_t rest = at / %s;\n"
                    "    i64 from = (i64)(at %% %s), stride = (i64)%s;\n"
                    "    bool there = true;\n",
                    weft_cuda__long(k, y, 0, y->rank), inner, inner, inner);
    for (uint32_t i = n_dim; i-- > 0;)
        put_dim(k, y->dim[i], x->dim[i], before[i], mode);
    weft_buf_printf(weft_cuda__body(k), "    y[at] = there ? x[from] : (%s)%s;\n",
                    weft_dtype_name(bits), is_filled ? "fill[0]" : "0");
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}
