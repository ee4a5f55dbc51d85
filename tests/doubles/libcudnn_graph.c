/* The graphs of operations that the double of cuDNN knows: what their parts must be, and what they
 * compute together. */
#include "libcudnn_double.h"

#include <string.h>

/* -- Attributes ----------------------------------------------------------------------------- */

const attr *weft_dnn_attr(const object *o, unsigned name)
{
    for (int i = 0; i < o->n_attr; i++)
        if (o->attr[i].name == name)
            return &o->attr[i];
    return NULL;
}

int64_t weft_dnn_count(const object *o, unsigned name)
{
    const attr *a = weft_dnn_attr(o, name);
    return a ? a->n : 0;
}

int64_t weft_dnn_int64(const object *o, unsigned name, int64_t i)
{
    int64_t x = 0;
    const attr *a = weft_dnn_attr(o, name);
    if (a && i < a->n)
        memcpy(&x, a->value + 8 * i, 8);
    return x;
}

unsigned weft_dnn_enum(const object *o, unsigned name)
{
    unsigned x = ~0u;
    const attr *a = weft_dnn_attr(o, name);
    if (a)
        memcpy(&x, a->value, 4);
    return x;
}

double weft_dnn_double(const object *o, unsigned name)
{
    double x = 0;
    const attr *a = weft_dnn_attr(o, name);
    if (a)
        memcpy(&x, a->value, 8);
    return x;
}

object *weft_dnn_desc(const object *o, unsigned name, int64_t i)
{
    void *p = NULL;
    const attr *a = weft_dnn_attr(o, name);
    if (a && i < a->n)
        memcpy(&p, a->value + 8 * i, 8);
    return p;
}

/* -- Finalising ----------------------------------------------------------------------------- */

bool weft_dnn_refuse(const char *what)
{
    weft_double_mistake("cudnnBackendFinalize: %s", what);
    return false;
}

static bool check_tensor(const object *o)
{
    int64_t n = weft_dnn_count(o, WEFT_CUDNN_ATTR_TENSOR_DIMENSIONS);
    if (n != weft_dnn_count(o, WEFT_CUDNN_ATTR_TENSOR_STRIDES))
        return weft_dnn_refuse("a tensor has as many strides as dims");
    for (int64_t i = 0; i < n; i++)
        if (weft_dnn_int64(o, WEFT_CUDNN_ATTR_TENSOR_DIMENSIONS, i) < 1 ||
            weft_dnn_int64(o, WEFT_CUDNN_ATTR_TENSOR_STRIDES, i) < 1)
            return weft_dnn_refuse("dims and strides of a tensor are at least 1");
    int64_t align = weft_dnn_int64(o, WEFT_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    if (align < 1 || (align & (align - 1)) ||
        !weft_conv_bytes(weft_dnn_enum(o, WEFT_CUDNN_ATTR_TENSOR_DATA_TYPE)))
        return weft_dnn_refuse("a tensor has another type or alignment");
    return true;
}

static bool check_geometry(const object *o)
{
    static const unsigned lists[] = {
        WEFT_CUDNN_ATTR_CONVOLUTION_DILATIONS, WEFT_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
        WEFT_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, WEFT_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS};
    int64_t n = weft_dnn_int64(o, WEFT_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    for (int i = 0; i < 4; i++) {
        if (weft_dnn_count(o, lists[i]) != n)
            return weft_dnn_refuse("strides, dilations and paddings are as many as spatial dims");
        for (int64_t k = 0; k < n; k++)
            if (weft_dnn_int64(o, lists[i], k) < (i < 2 ? 1 : 0))
                return weft_dnn_refuse("a stride or dilation below 1, or a negative padding");
    }
    if (weft_dnn_enum(o, WEFT_CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != WEFT_CUDNN_DATA_FLOAT ||
        weft_dnn_enum(o, WEFT_CUDNN_ATTR_CONVOLUTION_CONV_MODE) != WEFT_CUDNN_CROSS_CORRELATION)
        return weft_dnn_refuse("a convolution is a cross correlation in f32");
    return true;
}

static bool is_virtual(const object *tensor)
{
    const attr *a = weft_dnn_attr(tensor, WEFT_CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    return a && a->value[0];
}

static bool is_by_value(const object *tensor)
{
    const attr *a = weft_dnn_attr(tensor, WEFT_CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    return a && a->value[0];
}

static weft_conv_tensor tensor_of(const object *o)
{
    weft_conv_tensor t = {.id = weft_dnn_int64(o, WEFT_CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
                          .type = weft_dnn_enum(o, WEFT_CUDNN_ATTR_TENSOR_DATA_TYPE),
                          .rank = (int)weft_dnn_count(o, WEFT_CUDNN_ATTR_TENSOR_DIMENSIONS),
                          .align = weft_dnn_int64(o, WEFT_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0)};
    for (int i = 0; i < t.rank; i++) {
        t.dim[i] = weft_dnn_int64(o, WEFT_CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        t.stride[i] = weft_dnn_int64(o, WEFT_CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    return t;
}

static bool check_convolution(object *o)
{
    const object *g = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 0);
    weft_conv *c = &o->conv;
    c->x = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 0));
    c->w = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 0));
    c->y = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 0));
    c->spatial = (int)weft_dnn_int64(g, WEFT_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    int rank = c->spatial + 2;
    if (c->x.rank != rank || c->w.rank != rank || c->y.rank != rank)
        return weft_dnn_refuse("tensors of a convolution have two dims more than spatial ones");
    if (c->x.dim[1] % c->w.dim[1] || c->w.dim[0] % (c->x.dim[1] / c->w.dim[1]) ||
        c->y.dim[0] != c->x.dim[0] || c->y.dim[1] != c->w.dim[0])
        return weft_dnn_refuse("channels or images of a convolution differ");
    for (int i = 0; i < c->spatial; i++) {
        c->pad[i] = weft_dnn_int64(g, WEFT_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        c->behind[i] = weft_dnn_int64(g, WEFT_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i);
        c->stride[i] = weft_dnn_int64(g, WEFT_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        c->dilation[i] = weft_dnn_int64(g, WEFT_CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
        int64_t reach = (c->w.dim[2 + i] - 1) * c->dilation[i] + 1;
        int64_t room = c->x.dim[2 + i] + c->pad[i] + c->behind[i] - reach;
        if (room < 0 || c->y.dim[2 + i] != room / c->stride[i] + 1)
            return weft_dnn_refuse("the result of a convolution has another size");
    }
    if (weft_dnn_double(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA) != 1 ||
        weft_dnn_double(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA) != 0)
        return weft_dnn_refuse("factors of a convolution other than 1 and 0");
    return true;
}

static bool check_pointwise(const object *o)
{
    const object *f = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
    const object *b = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 0);
    unsigned mode = weft_dnn_enum(f, WEFT_CUDNN_ATTR_POINTWISE_MODE);
    bool alone = mode == WEFT_CUDNN_POINTWISE_RELU_FWD || mode == WEFT_CUDNN_POINTWISE_EXP;
    weft_conv_tensor x = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 0));
    weft_conv_tensor y = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 0));
    if (alone == (b != NULL))
        return weft_dnn_refuse("a sum has a second operand, a function has none");
    weft_conv_tensor second = b ? tensor_of(b) : x;
    if (x.rank != y.rank || second.rank != y.rank)
        return weft_dnn_refuse("operands of an operation have another rank than the result");
    for (int i = 0; i < y.rank; i++)
        if (x.dim[i] != y.dim[i] || (second.dim[i] != y.dim[i] && second.dim[i] != 1))
            return weft_dnn_refuse("operands of an operation have other dims than the result");
    return true;
}

static bool check_product(const object *o)
{
    const object *m = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_MATMUL_DESC, 0);
    weft_conv_tensor a = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_MATMUL_ADESC, 0));
    weft_conv_tensor b = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_MATMUL_BDESC, 0));
    weft_conv_tensor c = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_MATMUL_CDESC, 0));
    int n = a.rank;
    bool same = b.rank == n && c.rank == n;
    for (int i = 0; same && i < n - 2; i++)
        same = a.dim[i] == c.dim[i] && b.dim[i] == c.dim[i];
    if (!same || a.dim[n - 2] != c.dim[n - 2] || a.dim[n - 1] != b.dim[n - 2] ||
        b.dim[n - 1] != c.dim[n - 1])
        return weft_dnn_refuse("the dims of a product do not fit");
    return weft_dnn_enum(m, WEFT_CUDNN_ATTR_MATMUL_COMP_TYPE) == WEFT_CUDNN_DATA_FLOAT ||
           weft_dnn_refuse("a product is summed in f32");
}

static bool check_reduction(const object *o)
{
    weft_conv_tensor x = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 0));
    weft_conv_tensor y = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 0));
    bool same = x.rank == y.rank;
    for (int i = 0; same && i < x.rank; i++)
        same = y.dim[i] == x.dim[i] || y.dim[i] == 1;
    return same || weft_dnn_refuse("the dims of a reduction do not fit");
}

/* A fraction that is whole; -1: it is not. */
static int64_t whole_of(const object *o, unsigned name, int64_t i)
{
    int64_t part[2] = {0, 0};
    const attr *a = weft_dnn_attr(o, name);
    if (a && i < a->n)
        memcpy(part, a->value + (int64_t)sizeof part * i, sizeof part);
    return part[1] == 1 ? part[0] : -1;
}

static bool check_resample(const object *o)
{
    static const unsigned lists[] = {
        WEFT_CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, WEFT_CUDNN_ATTR_RESAMPLE_STRIDES,
        WEFT_CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, WEFT_CUDNN_ATTR_RESAMPLE_POST_PADDINGS};
    int64_t n = weft_dnn_int64(o, WEFT_CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 0);
    for (int i = 0; i < 4; i++) {
        if (weft_dnn_count(o, lists[i]) != n)
            return weft_dnn_refuse("windows, strides and paddings are as many as spatial dims");
        for (int64_t k = 0; k < n; k++)
            if (whole_of(o, lists[i], k) < (i < 2 ? 1 : 0))
                return weft_dnn_refuse("a window or stride below 1, or a negative padding");
    }
    bool max = weft_dnn_enum(o, WEFT_CUDNN_ATTR_RESAMPLE_MODE) == WEFT_CUDNN_RESAMPLE_MAXPOOL;
    if (weft_dnn_enum(o, WEFT_CUDNN_ATTR_RESAMPLE_PADDING_MODE) !=
        (max ? WEFT_CUDNN_NEG_INF_PAD : WEFT_CUDNN_ZERO_PAD))
        return weft_dnn_refuse("a maximum is padded by -infinity, a mean by zeros");
    return true;
}

static bool check_pooling(object *o)
{
    const object *r = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, 0);
    weft_conv *c = &o->conv;
    unsigned mode = weft_dnn_enum(r, WEFT_CUDNN_ATTR_RESAMPLE_MODE);
    c->kind = mode == WEFT_CUDNN_RESAMPLE_MAXPOOL                   ? WEFT_CONV_KIND_MAX
              : mode == WEFT_CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING ? WEFT_CONV_KIND_MEAN
                                                                    : WEFT_CONV_KIND_MEAN_PADDED;
    c->keeps_nan =
        weft_dnn_enum(r, WEFT_CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION) == WEFT_CUDNN_PROPAGATE_NAN;
    c->x = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, 0));
    c->y = tensor_of(weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, 0));
    c->spatial = (int)weft_dnn_int64(r, WEFT_CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 0);
    if (c->x.rank != c->spatial + 2 || c->y.rank != c->x.rank || c->x.dim[0] != c->y.dim[0] ||
        c->x.dim[1] != c->y.dim[1])
        return weft_dnn_refuse("images or channels of pooling differ");
    for (int i = 0; i < c->spatial; i++) {
        c->window[i] = whole_of(r, WEFT_CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, i);
        c->pad[i] = whole_of(r, WEFT_CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, i);
        c->behind[i] = whole_of(r, WEFT_CUDNN_ATTR_RESAMPLE_POST_PADDINGS, i);
        c->stride[i] = whole_of(r, WEFT_CUDNN_ATTR_RESAMPLE_STRIDES, i);
        c->dilation[i] = 1;
        int64_t room = c->x.dim[2 + i] + c->pad[i] + c->behind[i] - c->window[i];
        if (room < 0 || c->y.dim[2 + i] != room / c->stride[i] + 1)
            return weft_dnn_refuse("the result of pooling has another size");
    }
    return true;
}

bool weft_dnn_check(object *o)
{
    switch (o->type) {
    case D(TENSOR):
        return check_tensor(o);
    case D(CONVOLUTION):
        return check_geometry(o);
    case D(OPERATION_CONVOLUTION_FORWARD):
        return check_convolution(o);
    case D(OPERATION_POINTWISE):
        return check_pointwise(o);
    case D(OPERATION_MATMUL):
        return check_product(o);
    case D(OPERATION_REDUCTION):
        return check_reduction(o);
    case D(RESAMPLE):
        return check_resample(o);
    case D(OPERATION_RESAMPLE_FWD):
        return check_pooling(o);
    default:
        return true;
    }
}

bool weft_dnn_is_operation(unsigned type)
{
    return type == D(OPERATION_CONVOLUTION_FORWARD) || type == D(OPERATION_POINTWISE) ||
           type == D(OPERATION_MATMUL) || type == D(OPERATION_REDUCTION) ||
           type == D(OPERATION_RESAMPLE_FWD) || type == D(OPERATION_SDPA_FWD);
}

/* -- Graphs --------------------------------------------------------------------------------- */

static bool has_own_ids(const weft_conv *c)
{
    const int64_t id[] = {c->x.id, c->w.id, c->y.id, c->z.id, c->bias.id, c->scale_id};
    for (int i = 0; i < 6; i++)
        for (int k = 0; id[i] && k < i; k++)
            if (id[k] == id[i])
                return weft_dnn_refuse("an id is used twice");
    return true;
}

/* Only conv [-> add z] -> add bias [-> ReLU] and conv alone, between virtual values of f32. */
static weft_cudnn_status read_convolution(object *o)
{
    int64_t n = weft_dnn_count(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const object *first = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, 0);
    bool biased = false;
    o->conv = first->conv;
    const object *last = weft_dnn_desc(first, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 0);
    for (int64_t i = 1; i < n; i++) {
        const object *op = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
        if (op->type != D(OPERATION_POINTWISE) || !is_virtual(last) ||
            weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 0) != last ||
            weft_dnn_enum(last, WEFT_CUDNN_ATTR_TENSOR_DATA_TYPE) != WEFT_CUDNN_DATA_FLOAT)
            return WEFT_CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
        const object *b = weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 0);
        last = weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 0);
        weft_conv_tensor second = b ? tensor_of(b) : (weft_conv_tensor){0};
        bool per_channel = b && second.dim[0] == 1 && second.dim[2] == 1 && second.dim[3] == 1;
        if (b && per_channel && !biased) {
            o->conv.bias = second;
            biased = true;
        } else if (b && !biased && !o->conv.z.id) {
            o->conv.z = second;
        } else if (!b && biased && !o->conv.relu) {
            o->conv.relu = true;
        } else {
            return WEFT_CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
        }
    }
    o->conv.y = tensor_of(last);
    if (!has_own_ids(&o->conv))
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    if (is_virtual(last) || (n > 1 && !biased))
        return WEFT_CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    return WEFT_CUDNN_STATUS_SUCCESS;
}

/* The operations of a graph one after the other. */
typedef struct chain {
    const object *graph;
    int64_t at;
    const object *value; /* the result of the last one */
} chain;

/* The next operation is one of `type` whose operand `x` is the value; NULL: it is not. */
static const object *next_of(chain *c, unsigned type, unsigned x, unsigned y)
{
    if (c->at >= weft_dnn_count(c->graph, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS))
        return NULL;
    const object *op = weft_dnn_desc(c->graph, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, c->at);
    if (op->type != type || weft_dnn_desc(op, x, 0) != c->value || !is_virtual(c->value))
        return NULL;
    c->at++;
    c->value = weft_dnn_desc(op, y, 0);
    return op;
}

/* Its second operand; NULL: the next operation is another one. */
static const object *next_pointwise(chain *c, unsigned mode)
{
    chain before = *c;
    const object *op = next_of(c, D(OPERATION_POINTWISE), WEFT_CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                               WEFT_CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const object *f =
        op ? weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0) : NULL;
    if (f && weft_dnn_enum(f, WEFT_CUDNN_ATTR_POINTWISE_MODE) == mode)
        return mode == WEFT_CUDNN_POINTWISE_EXP
                   ? op
                   : weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 0);
    *c = before;
    return NULL;
}

/* The reduction of the value over its last dim, which stays the value; NULL: there is none. */
static const object *next_reduction(chain *c, unsigned with)
{
    const object *value = c->value;
    const object *op = next_of(c, D(OPERATION_REDUCTION), WEFT_CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
                               WEFT_CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const object *y = c->value;
    c->value = value;
    if (!op || weft_dnn_enum(weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_REDUCTION_DESC, 0),
                             WEFT_CUDNN_ATTR_REDUCTION_OPERATOR) != with)
        return NULL;
    weft_conv_tensor from = tensor_of(value), to = tensor_of(y);
    for (int i = 0; i < from.rank; i++)
        if (to.dim[i] != (i + 1 < from.rank ? from.dim[i] : 1))
            return NULL;
    return is_virtual(y) ? y : NULL;
}

/* cuDNN's fused kernels have 16 bits, and heads of a multiple of eight columns, at most 256. */
static weft_cudnn_status judge_attention(const weft_conv *c)
{
    const weft_conv_tensor *const tensor[] = {&c->x, &c->w, &c->z, &c->y};
    int64_t head = c->x.dim[3];
    if (!has_own_ids(c))
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    if (c->x.type == WEFT_CUDNN_DATA_FLOAT || head % 8 != 0 || head > 256)
        return WEFT_CUDNN_STATUS_NOT_SUPPORTED;
    /* cuDNN takes them, and reads 16 bytes at once. */
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            if (tensor[i]->stride[k] > 1 && tensor[i]->stride[k] % 8 != 0) {
                weft_dnn_refuse("rows of attention are not aligned");
                return WEFT_CUDNN_STATUS_BAD_PARAM;
            }
    return WEFT_CUDNN_STATUS_SUCCESS;
}

/* One operation, with a scale of the host; the keys are not transposed. */
static weft_cudnn_status read_sdpa(object *o)
{
    const object *op = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, 0);
    const object *scale = weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, 0);
    weft_conv *to = &o->conv;
    to->kind = WEFT_CONV_KIND_ATTENTION;
    to->x = tensor_of(weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, 0));
    to->w = tensor_of(weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, 0));
    to->z = tensor_of(weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, 0));
    to->y = tensor_of(weft_dnn_desc(op, WEFT_CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, 0));
    to->scale_id = weft_dnn_int64(scale, WEFT_CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    to->scale_on_host = true;
    const weft_conv_tensor *q = &to->x, *k = &to->w, *v = &to->z, *y = &to->y;
    bool fits = is_by_value(scale) && k->dim[2] == v->dim[2] && q->dim[3] == k->dim[3] &&
                q->dim[2] == y->dim[2] && v->dim[3] == y->dim[3];
    for (int i = 0; fits && i < 2; i++)
        fits = q->dim[i] == k->dim[i] && k->dim[i] == v->dim[i] && v->dim[i] == y->dim[i];
    if (!fits) {
        weft_dnn_refuse("the tensors of attention do not fit");
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    }
    for (int i = 0; i < 2; i++) {
        int64_t *pair = i ? to->w.stride : to->w.dim, t = pair[2];
        pair[2] = pair[3];
        pair[3] = t;
    }
    return judge_attention(to);
}

/* Only q k^T -> times a value of the device [-> add a mask] -> exp(s - max) / sum -> times v. */
static weft_cudnn_status read_attention(object *o)
{
    const object *first = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, 0);
    chain c = {o, 1, weft_dnn_desc(first, WEFT_CUDNN_ATTR_OPERATION_MATMUL_CDESC, 0)};
    weft_conv *to = &o->conv;
    to->kind = WEFT_CONV_KIND_ATTENTION;
    to->x = tensor_of(weft_dnn_desc(first, WEFT_CUDNN_ATTR_OPERATION_MATMUL_ADESC, 0));
    to->w = tensor_of(weft_dnn_desc(first, WEFT_CUDNN_ATTR_OPERATION_MATMUL_BDESC, 0));
    const object *scale = next_pointwise(&c, WEFT_CUDNN_POINTWISE_MUL);
    const object *mask = next_pointwise(&c, WEFT_CUDNN_POINTWISE_ADD);
    const object *most = next_reduction(&c, WEFT_CUDNN_REDUCE_TENSOR_MAX);
    bool ok = scale && !is_by_value(scale) && !is_virtual(scale) && most &&
              next_pointwise(&c, WEFT_CUDNN_POINTWISE_SUB) == most &&
              next_pointwise(&c, WEFT_CUDNN_POINTWISE_EXP);
    const object *sum = ok ? next_reduction(&c, WEFT_CUDNN_REDUCE_TENSOR_ADD) : NULL;
    ok = sum && next_pointwise(&c, WEFT_CUDNN_POINTWISE_DIV) == sum;
    const object *last =
        ok ? next_of(&c, D(OPERATION_MATMUL), WEFT_CUDNN_ATTR_OPERATION_MATMUL_ADESC,
                     WEFT_CUDNN_ATTR_OPERATION_MATMUL_CDESC)
           : NULL;
    if (!last || c.at != weft_dnn_count(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS) ||
        is_virtual(c.value))
        return WEFT_CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    to->z = tensor_of(weft_dnn_desc(last, WEFT_CUDNN_ATTR_OPERATION_MATMUL_BDESC, 0));
    to->y = tensor_of(c.value);
    to->scale_id = weft_dnn_int64(scale, WEFT_CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    if (mask)
        to->bias = tensor_of(mask);
    return judge_attention(to);
}

weft_cudnn_status weft_dnn_read_graph(object *o)
{
    const object *first = weft_dnn_desc(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, 0);
    if (first->type == D(OPERATION_CONVOLUTION_FORWARD))
        return read_convolution(o);
    if (first->type == D(OPERATION_MATMUL))
        return read_attention(o);
    if (first->type == D(OPERATION_SDPA_FWD) &&
        weft_dnn_count(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS) == 1)
        return read_sdpa(o);
    if (first->type != D(OPERATION_RESAMPLE_FWD) ||
        weft_dnn_count(o, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS) != 1)
        return WEFT_CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    o->conv = first->conv;
    return has_own_ids(&o->conv) ? WEFT_CUDNN_STATUS_SUCCESS : WEFT_CUDNN_STATUS_BAD_PARAM;
}
