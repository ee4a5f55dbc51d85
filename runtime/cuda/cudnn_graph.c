/* Graphs of operations for cuDNN's backend API.
 *
 *     convolution   conv(x, w) -> add z -> add bias -> ReLU
 *     pooling       resample(x)
 *     attention     sdpa(q, k, v, scale), or with a mask
 *                   matmul(q, k^T) -> times scale -> add mask -> softmax -> matmul(., v)
 *
 * A convolution has its operations in this order, because cuDNN has compiled kernels for it and
 * none for the bias before z, nor for z or ReLU without a bias. The softmax is spelt out as exp(s -
 * max s) / sum; cuDNN finds its fused kernels by that pattern, of which it takes a scale in
 * memory of the device only. The one operation `sdpa` takes no mask; it has kernels for Hopper and
 * Blackwell. Values between operations are virtual and f32. */
#include "runtime/cuda/cudnn_graph.h"

#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 5, OPS_MAX = 9, SDPA_VERSION = 91300 };

/* -- Descriptors ---------------------------------------------------------------------------- */

weft_cudnn_plan *weft_cudnn__open(const weft_cudnn_api *dnn)
{
    weft_cudnn_plan *p = calloc(1, sizeof *p);
    if (p)
        p->dnn = dnn;
    return p;
}

void weft_cudnn__drop(weft_cudnn_plan *plan)
{
    if (!plan)
        return;
    while (plan->n_made > 0)
        (void)plan->dnn->cudnnBackendDestroyDescriptor(plan->made[--plan->n_made]);
    free(plan);
}

bool weft_cudnn__note(weft_cudnn_plan *p, weft_cudnn_status status)
{
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        p->status = status;
    return status == WEFT_CUDNN_STATUS_SUCCESS;
}

weft_cudnn_desc weft_cudnn__make(weft_cudnn_plan *p, unsigned type)
{
    weft_cudnn_desc desc = NULL;
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS &&
        weft_cudnn__note(p, p->n_made < WEFT_CUDNN_MADE_MAX
                                ? p->dnn->cudnnBackendCreateDescriptor(type, &desc)
                                : WEFT_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED))
        p->made[p->n_made++] = desc;
    return desc;
}

void weft_cudnn__set(weft_cudnn_plan *p, weft_cudnn_desc desc, unsigned name, unsigned type,
                     int64_t n, const void *value)
{
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        weft_cudnn__note(p, p->dnn->cudnnBackendSetAttribute(desc, name, type, n, value));
}

void weft_cudnn__set_desc(weft_cudnn_plan *p, weft_cudnn_desc desc, unsigned name,
                          weft_cudnn_desc value)
{
    weft_cudnn__set(p, desc, name, WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void weft_cudnn__finalise(weft_cudnn_plan *p, weft_cudnn_desc desc)
{
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        weft_cudnn__note(p, p->dnn->cudnnBackendFinalize(desc));
}

void weft_cudnn__back_to(weft_cudnn_plan *p, uint32_t n)
{
    while (p->n_made > n)
        (void)p->dnn->cudnnBackendDestroyDescriptor(p->made[--p->n_made]);
    p->status = WEFT_CUDNN_STATUS_SUCCESS;
}

/* -- Tensors -------------------------------------------------------------------------------- */

/* Unique ids of the tensors in memory are their numbers + 1; of the virtual ones, from VIRTUAL on.
 */
enum { VIRTUAL = 100 };

typedef struct builder {
    weft_cudnn_plan *p;
    const weft_conv_key *conv;
    unsigned type;     /* of data in memory */
    int rank, spatial; /* of images: 4 and 2, or 5 and 3 */
    int64_t result[RANK_MAX];
    uint32_t n_virtual;
    weft_cudnn_desc op[OPS_MAX];
    int64_t n_op;
} builder;

static unsigned data_type(uint32_t dtype)
{
    return dtype == WEFT_DTYPE_F32   ? WEFT_CUDNN_DATA_FLOAT
           : dtype == WEFT_DTYPE_F16 ? WEFT_CUDNN_DATA_HALF
                                     : WEFT_CUDNN_DATA_BFLOAT16;
}

static weft_cudnn_desc describe_tensor(builder *g, int64_t id, unsigned type, const int64_t *dim,
                                       const int64_t *stride, int64_t align, bool by_value)
{
    bool is_virtual = id >= VIRTUAL;
    weft_cudnn_desc t = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    weft_cudnn__set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_UNIQUE_ID, WEFT_CUDNN_TYPE_INT64, 1, &id);
    weft_cudnn__set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_DATA_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type);
    weft_cudnn__set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_DIMENSIONS, WEFT_CUDNN_TYPE_INT64, g->rank,
                    dim);
    weft_cudnn__set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_STRIDES, WEFT_CUDNN_TYPE_INT64, g->rank,
                    stride);
    weft_cudnn__set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, WEFT_CUDNN_TYPE_INT64, 1,
                    &align);
    weft_cudnn__set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_IS_VIRTUAL, WEFT_CUDNN_TYPE_BOOLEAN, 1,
                    &is_virtual);
    if (by_value)
        weft_cudnn__set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_IS_BY_VALUE, WEFT_CUDNN_TYPE_BOOLEAN, 1,
                        &by_value);
    weft_cudnn__finalise(g->p, t);
    return t;
}

/* Dims are in the order n, c, d, h, w; strides say where the channels are in memory. */
static void find_strides(const builder *g, const int64_t *dim, int64_t *stride)
{
    bool last = (g->conv->flags & WEFT_CONV_LAST) != 0;
    int64_t below = last ? dim[1] : 1;
    for (int i = g->rank - 1; i > 1; i--) {
        stride[i] = below;
        below *= dim[i];
    }
    stride[1] = last ? 1 : below;
    stride[0] = last ? below : below * dim[1];
}

static weft_cudnn_desc make_tensor(builder *g, int64_t id, unsigned type, const int64_t *dim)
{
    int64_t stride[RANK_MAX];
    find_strides(g, dim, stride);
    return describe_tensor(g, id, type, dim, stride, WEFT_CUDNN_ALIGN, false);
}

/* The tensor `which` of [outer, inner, spatial...]. */
static weft_cudnn_desc make_operand(builder *g, int which, int64_t outer, int64_t inner,
                                    const int64_t *three)
{
    int64_t dim[RANK_MAX] = {outer, inner};
    for (int i = 0; i < g->spatial; i++)
        dim[2 + i] = three ? three[3 - g->spatial + i] : 1;
    return make_tensor(g, which + 1, g->type, dim);
}

/* The result of an operation on images: y of the last, otherwise a virtual value. */
static weft_cudnn_desc make_result(builder *g, bool last)
{
    return last ? make_tensor(g, WEFT_CUDNN_Y + 1, g->type, g->result)
                : make_tensor(g, VIRTUAL + g->n_virtual++, WEFT_CUDNN_DATA_FLOAT, g->result);
}

/* b: NULL for a function of x alone. Returns y. */
static weft_cudnn_desc add_pointwise(builder *g, unsigned mode, weft_cudnn_desc x,
                                     weft_cudnn_desc b, weft_cudnn_desc y)
{
    unsigned type = WEFT_CUDNN_DATA_FLOAT;
    weft_cudnn_desc f = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    weft_cudnn__set(g->p, f, WEFT_CUDNN_ATTR_POINTWISE_MODE, WEFT_CUDNN_TYPE_POINTWISE_MODE, 1,
                    &mode);
    weft_cudnn__set(g->p, f, WEFT_CUDNN_ATTR_POINTWISE_MATH_PREC, WEFT_CUDNN_TYPE_DATA_TYPE, 1,
                    &type);
    weft_cudnn__finalise(g->p, f);
    weft_cudnn_desc o = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, f);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    weft_cudnn__finalise(g->p, o);
    g->op[g->n_op++] = o;
    return y;
}

/* -- Windows of images ---------------------------------------------------------------------- */

/* Padding behind, as the sizes ask. */
static void find_behind(const builder *g, int64_t behind[3])
{
    const int64_t *d = g->conv->dim;
    int skip = 3 - g->spatial;
    for (int i = skip; i < 3; i++) {
        int64_t reach = (d[WEFT_CONV_KERNEL + i] - 1) * d[WEFT_CONV_DILATION + i] + 1;
        int64_t last = (d[WEFT_CONV_OUT + i] - 1) * d[WEFT_CONV_STRIDE + i] + reach;
        int64_t room = last - d[WEFT_CONV_PAD + i] - d[WEFT_CONV_IN + i];
        behind[i - skip] = room > 0 ? room : 0;
    }
}

static weft_cudnn_desc make_geometry(builder *g)
{
    const int64_t *d = g->conv->dim;
    int64_t n = g->spatial, behind[3];
    int skip = 3 - g->spatial;
    unsigned type = WEFT_CUDNN_DATA_FLOAT, mode = WEFT_CUDNN_CROSS_CORRELATION;
    find_behind(g, behind);
    weft_cudnn_desc c = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    weft_cudnn__set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_COMP_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1,
                    &type);
    weft_cudnn__set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                    WEFT_CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    weft_cudnn__set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, WEFT_CUDNN_TYPE_INT64, 1,
                    &n);
    weft_cudnn__set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_DILATIONS, WEFT_CUDNN_TYPE_INT64, n,
                    d + WEFT_CONV_DILATION + skip);
    weft_cudnn__set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, WEFT_CUDNN_TYPE_INT64, n,
                    d + WEFT_CONV_STRIDE + skip);
    weft_cudnn__set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, WEFT_CUDNN_TYPE_INT64, n,
                    d + WEFT_CONV_PAD + skip);
    weft_cudnn__set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, WEFT_CUDNN_TYPE_INT64, n,
                    behind);
    weft_cudnn__finalise(g->p, c);
    return c;
}

static weft_cudnn_desc make_images(builder *g)
{
    const int64_t *d = g->conv->dim;
    return make_operand(g, WEFT_CUDNN_X, d[WEFT_CONV_IMAGES], d[WEFT_CONV_CHANNELS],
                        d + WEFT_CONV_IN);
}

static weft_cudnn_desc add_convolution(builder *g, weft_cudnn_desc y)
{
    const int64_t *d = g->conv->dim;
    double one = 1, zero = 0;
    weft_cudnn_desc x = make_images(g);
    weft_cudnn_desc w =
        make_operand(g, WEFT_CUDNN_W, d[WEFT_CONV_FEATURES],
                     d[WEFT_CONV_CHANNELS] / d[WEFT_CONV_GROUPS], d + WEFT_CONV_KERNEL);
    weft_cudnn_desc c = make_geometry(g);
    weft_cudnn_desc o =
        weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    weft_cudnn__set(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    WEFT_CUDNN_TYPE_DOUBLE, 1, &one);
    weft_cudnn__set(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                    WEFT_CUDNN_TYPE_DOUBLE, 1, &zero);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    weft_cudnn__finalise(g->p, o);
    g->op[g->n_op++] = o;
    return y;
}

static void add_convolution_and_rest(builder *g)
{
    uint32_t flags = g->conv->flags;
    const int64_t *d = g->conv->dim;
    bool last = !(flags & (WEFT_CONV_Z | WEFT_CONV_BIAS | WEFT_CONV_RELU));
    weft_cudnn_desc value = add_convolution(g, make_result(g, last));
    if (flags & WEFT_CONV_Z) {
        weft_cudnn_desc z =
            make_operand(g, WEFT_CUDNN_Z, g->result[0], g->result[1], d + WEFT_CONV_OUT);
        value = add_pointwise(g, WEFT_CUDNN_POINTWISE_ADD, value, z, make_result(g, false));
    }
    if (flags & WEFT_CONV_BIAS) {
        weft_cudnn_desc bias = make_operand(g, WEFT_CUDNN_BIAS, 1, g->result[1], NULL);
        value = add_pointwise(g, WEFT_CUDNN_POINTWISE_ADD, value, bias,
                              make_result(g, !(flags & WEFT_CONV_RELU)));
    }
    if (flags & WEFT_CONV_RELU)
        (void)add_pointwise(g, WEFT_CUDNN_POINTWISE_RELU_FWD, value, NULL, make_result(g, true));
}

/* Sizes of windows and paddings are fractions: numerators and denominators. */
static void set_fractions(builder *g, weft_cudnn_desc desc, unsigned name, const int64_t *number)
{
    int64_t pair[3][2];
    for (int i = 0; i < g->spatial; i++) {
        pair[i][0] = number[i];
        pair[i][1] = 1;
    }
    weft_cudnn__set(g->p, desc, name, WEFT_CUDNN_TYPE_FRACTION, g->spatial, pair);
}

static void add_pooling(builder *g)
{
    const int64_t *d = g->conv->dim;
    int64_t n = g->spatial, behind[3];
    int skip = 3 - g->spatial;
    bool max = (g->conv->flags & WEFT_CONV_MAX_POOL) != 0;
    unsigned type = WEFT_CUDNN_DATA_FLOAT;
    unsigned mode = max ? WEFT_CUDNN_RESAMPLE_MAXPOOL
                    : g->conv->flags & WEFT_CONV_MEAN_POOL_PADDED
                        ? WEFT_CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING
                        : WEFT_CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING;
    unsigned padding = max ? WEFT_CUDNN_NEG_INF_PAD : WEFT_CUDNN_ZERO_PAD;
    unsigned nan = WEFT_CUDNN_PROPAGATE_NAN; /* if not set, a maximum skips NaN */
    find_behind(g, behind);
    weft_cudnn_desc x = make_images(g), y = make_result(g, true);
    weft_cudnn_desc r = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    weft_cudnn__set(g->p, r, WEFT_CUDNN_ATTR_RESAMPLE_MODE, WEFT_CUDNN_TYPE_RESAMPLE_MODE, 1,
                    &mode);
    weft_cudnn__set(g->p, r, WEFT_CUDNN_ATTR_RESAMPLE_COMP_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1,
                    &type);
    weft_cudnn__set(g->p, r, WEFT_CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION,
                    WEFT_CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    weft_cudnn__set(g->p, r, WEFT_CUDNN_ATTR_RESAMPLE_PADDING_MODE, WEFT_CUDNN_TYPE_PADDING_MODE, 1,
                    &padding);
    weft_cudnn__set(g->p, r, WEFT_CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, WEFT_CUDNN_TYPE_INT64, 1, &n);
    set_fractions(g, r, WEFT_CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, d + WEFT_CONV_KERNEL + skip);
    set_fractions(g, r, WEFT_CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, d + WEFT_CONV_PAD + skip);
    set_fractions(g, r, WEFT_CUDNN_ATTR_RESAMPLE_POST_PADDINGS, behind);
    set_fractions(g, r, WEFT_CUDNN_ATTR_RESAMPLE_STRIDES, d + WEFT_CONV_STRIDE + skip);
    weft_cudnn__finalise(g->p, r);
    weft_cudnn_desc o =
        weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, r);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y);
    weft_cudnn__finalise(g->p, o);
    g->op[g->n_op++] = o;
}

/* -- Attention ------------------------------------------------------------------------------ */

/* Queries, keys, values or the result: [batch, heads, rows, head] in memory of rows, heads side by
 * side; the keys transposed. */
static weft_cudnn_desc make_heads(builder *g, int which, bool is_key)
{
    static const int step_of[] = {
        [WEFT_CUDNN_X] = 0, [WEFT_CUDNN_W] = 1, [WEFT_CUDNN_Z] = 2, [WEFT_CUDNN_Y] = 3};
    const int64_t *d = g->conv->dim;
    bool by_row = which == WEFT_CUDNN_X || which == WEFT_CUDNN_Y;
    int64_t rows = d[by_row ? WEFT_ATTENTION_ROWS : WEFT_ATTENTION_KEYS];
    int64_t head = d[WEFT_ATTENTION_HEAD], step = d[WEFT_ATTENTION_STEP + step_of[which]];
    int64_t dim[RANK_MAX] = {d[WEFT_ATTENTION_BATCH], d[WEFT_ATTENTION_HEADS], rows, head};
    int64_t stride[RANK_MAX] = {rows * step, head, step, 1};
    if (is_key) {
        dim[2] = head;
        dim[3] = rows;
        stride[2] = 1;
        stride[3] = step;
    }
    return describe_tensor(g, which + 1, g->type, dim, stride, WEFT_CUDNN_ALIGN, false);
}

/* A virtual value [batch, heads, rows, columns]. */
static weft_cudnn_desc make_scores(builder *g, int64_t columns, unsigned type)
{
    const int64_t *d = g->conv->dim;
    const int64_t dim[RANK_MAX] = {d[WEFT_ATTENTION_BATCH], d[WEFT_ATTENTION_HEADS],
                                   d[WEFT_ATTENTION_ROWS], columns};
    return make_tensor(g, VIRTUAL + g->n_virtual++, type, dim);
}

static weft_cudnn_desc add_product(builder *g, weft_cudnn_desc a, weft_cudnn_desc b,
                                   weft_cudnn_desc c)
{
    unsigned type = WEFT_CUDNN_DATA_FLOAT;
    weft_cudnn_desc m = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    weft_cudnn__set(g->p, m, WEFT_CUDNN_ATTR_MATMUL_COMP_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type);
    weft_cudnn__finalise(g->p, m);
    weft_cudnn_desc o = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    weft_cudnn__finalise(g->p, o);
    g->op[g->n_op++] = o;
    return c;
}

/* Over the keys. */
static weft_cudnn_desc add_reduction(builder *g, unsigned with, weft_cudnn_desc x)
{
    unsigned type = WEFT_CUDNN_DATA_FLOAT;
    weft_cudnn_desc y = make_scores(g, 1, type);
    weft_cudnn_desc r = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    weft_cudnn__set(g->p, r, WEFT_CUDNN_ATTR_REDUCTION_OPERATOR,
                    WEFT_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &with);
    weft_cudnn__set(g->p, r, WEFT_CUDNN_ATTR_REDUCTION_COMP_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1,
                    &type);
    weft_cudnn__finalise(g->p, r);
    weft_cudnn_desc o = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    weft_cudnn__set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    weft_cudnn__finalise(g->p, o);
    g->op[g->n_op++] = o;
    return y;
}

bool weft_cudnn__takes_scale(size_t version, uint32_t flags)
{
    return version >= SDPA_VERSION && !(flags & WEFT_CONV_BIAS);
}

static void add_sdpa(builder *g)
{
    static const int64_t one[RANK_MAX] = {1, 1, 1, 1};
    const weft_cudnn_desc tensor[] = {
        make_heads(g, WEFT_CUDNN_X, false), make_heads(g, WEFT_CUDNN_W, false),
        make_heads(g, WEFT_CUDNN_Z, false), make_heads(g, WEFT_CUDNN_Y, false),
        describe_tensor(g, WEFT_CUDNN_SCALE + 1, WEFT_CUDNN_DATA_FLOAT, one, one, sizeof(float),
                        true)};
    static const unsigned name[] = {
        WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
        WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC,
        WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC};
    weft_cudnn_desc o = weft_cudnn__make(g->p, WEFT_CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        weft_cudnn__set_desc(g->p, o, name[i], tensor[i]);
    weft_cudnn__finalise(g->p, o);
    g->op[g->n_op++] = o;
}

static void add_attention(builder *g)
{
    static const int64_t one[RANK_MAX] = {1, 1, 1, 1};
    const int64_t *d = g->conv->dim;
    const unsigned f32 = WEFT_CUDNN_DATA_FLOAT;
    int64_t keys = d[WEFT_ATTENTION_KEYS];
    weft_cudnn_desc q = make_heads(g, WEFT_CUDNN_X, false), k = make_heads(g, WEFT_CUDNN_W, true);
    weft_cudnn_desc scale =
        describe_tensor(g, WEFT_CUDNN_SCALE + 1, f32, one, one, sizeof(float), false);
    weft_cudnn_desc s = add_product(g, q, k, make_scores(g, keys, f32));
    s = add_pointwise(g, WEFT_CUDNN_POINTWISE_MUL, s, scale, make_scores(g, keys, f32));
    if (g->conv->flags & WEFT_CONV_BIAS) {
        const int64_t dim[RANK_MAX] = {d[WEFT_ATTENTION_MASK], d[WEFT_ATTENTION_MASK + 1],
                                       d[WEFT_ATTENTION_MASK + 2], keys};
        weft_cudnn_desc mask = make_tensor(g, WEFT_CUDNN_BIAS + 1, g->type, dim);
        s = add_pointwise(g, WEFT_CUDNN_POINTWISE_ADD, s, mask, make_scores(g, keys, f32));
    }
    weft_cudnn_desc most = add_reduction(g, WEFT_CUDNN_REDUCE_TENSOR_MAX, s);
    s = add_pointwise(g, WEFT_CUDNN_POINTWISE_SUB, s, most, make_scores(g, keys, f32));
    s = add_pointwise(g, WEFT_CUDNN_POINTWISE_EXP, s, NULL, make_scores(g, keys, f32));
    weft_cudnn_desc sum = add_reduction(g, WEFT_CUDNN_REDUCE_TENSOR_ADD, s);
    s = add_pointwise(g, WEFT_CUDNN_POINTWISE_DIV, s, sum, make_scores(g, keys, g->type));
    weft_cudnn_desc v = make_heads(g, WEFT_CUDNN_Z, false), y = make_heads(g, WEFT_CUDNN_Y, false);
    (void)add_product(g, s, v, y);
}

/* -- The graph ------------------------------------------------------------------------------ */

static void add_operations(builder *g)
{
    const int64_t *d = g->conv->dim;
    if (g->conv->flags & WEFT_CONV_ATTENTION) {
        g->rank = 4;
        if (weft_cudnn__takes_scale(g->p->dnn->cudnnGetVersion(), g->conv->flags))
            add_sdpa(g);
        else
            add_attention(g);
        return;
    }
    bool deep = d[WEFT_CONV_IN] != 1 || d[WEFT_CONV_KERNEL] != 1 || d[WEFT_CONV_OUT] != 1;
    g->rank = deep ? 5 : 4;
    g->spatial = g->rank - 2;
    g->result[0] = d[WEFT_CONV_IMAGES];
    g->result[1] = d[WEFT_CONV_FEATURES];
    memcpy(g->result + 2, d + WEFT_CONV_OUT + 3 - g->spatial, (size_t)g->spatial * sizeof *d);
    if (g->conv->flags & WEFT_CONV_POOLS)
        add_pooling(g);
    else
        add_convolution_and_rest(g);
}

weft_cudnn_desc weft_cudnn__graph(weft_cudnn_plan *p, const weft_conv_key *conv)
{
    builder g = {.p = p, .conv = conv, .type = data_type(conv->dtype)};
    add_operations(&g);
    weft_cudnn_desc out = weft_cudnn__make(p, WEFT_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    weft_cudnn__set(p, out, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    g.n_op, g.op);
    weft_cudnn__finalise(p, out);
    return out;
}
