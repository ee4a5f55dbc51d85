/* Operators that move elements and compute none, as strided copies.
 *
 * An operator becomes a list of boxes (weft_copy_box). A box is simplified: loops of one iteration
 * are dropped, and loops that are contiguous on both sides are merged. Its inner loops become a
 * memcpy, a tiled transposition, or a plain loop. */
#include "base/num.h"
#include "runtime/cpu/cpu_dnnl.h"
#include "runtime/cpu/cpu_memory.h"
#include "runtime/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

struct weft_moves {
    uint32_t threads, n, n_arg;
    size_t size;
    const weft_cpu_vec *vec;
    weft_copy_box *box;
    void *const *arg;
    uint32_t now;      /* index of the box being copied */
    size_t zero_bytes; /* bytes of the result to clear first */
};

/* -- One box -------------------------------------------------------------------------------- */

static void simplify(weft_copy_box *p)
{
    int32_t n = 0;
    for (int32_t l = 0; l < p->rank; l++) {
        if (p->dim[l] == 1)
            continue;
        bool merge = n > 0 && p->src_stride[n - 1] == p->src_stride[l] * p->dim[l] &&
                     p->dst_stride[n - 1] == p->dst_stride[l] * p->dim[l];
        n -= merge;
        p->dim[n] = merge ? p->dim[n] * p->dim[l] : p->dim[l];
        p->src_stride[n] = p->src_stride[l];
        p->dst_stride[n] = p->dst_stride[l];
        n++;
    }
    if (n == 0) {
        p->dim[0] = 1;
        p->src_stride[0] = p->dst_stride[0] = 1;
        n = 1;
    }
    p->rank = n;
}

static bool is_transposition(const weft_copy_box *p, int32_t l, size_t size)
{
    return size == 4 && p->rank - l == 2 && p->dst_stride[l + 1] == 1 && p->src_stride[l] == 1 &&
           p->dim[l] >= 4 && p->dim[l + 1] >= 4 && p->src_stride[l + 1] > 0 && p->dst_stride[l] > 0;
}

/* Rows of 8 or 16 elements of 4 bytes: blocks of channels. */
static bool is_blocks(const weft_copy_box *p, int32_t l, size_t size)
{
    return size == 4 && p->rank - l == 2 && p->dst_stride[l + 1] == 1 &&
           p->src_stride[l + 1] == 1 && (p->dim[l + 1] == 8 || p->dim[l + 1] == 16);
}

static void copy_blocks(char *dst, int64_t dst_bytes, const char *src, int64_t src_bytes, int64_t n,
                        bool wide)
{
    for (int64_t i = 0; i < n; i++, dst += dst_bytes, src += src_bytes)
        if (wide)
            memcpy(dst, src, 64);
        else
            memcpy(dst, src, 32);
}

static void copy_loops(const weft_cpu_vec *vec, const weft_copy_box *p, int32_t l, char *dst,
                       const char *src, int64_t begin, int64_t end, size_t size)
{
    int64_t ds = p->dst_stride[l], ss = p->src_stride[l], elem = (int64_t)size;
    dst += begin * ds * elem;
    src += begin * ss * elem;
    if (l == p->rank - 1) {
        weft_relayout__line(dst, ds, src, ss, end - begin, size);
        return;
    }
    if (is_transposition(p, l, size)) {
        vec->transpose((float *)(void *)dst, (size_t)ds, (const float *)(const void *)src,
                       (size_t)p->src_stride[l + 1], (size_t)p->dim[l + 1], (size_t)(end - begin));
        return;
    }
    if (is_blocks(p, l, size)) {
        copy_blocks(dst, ds * elem, src, ss * elem, end - begin, p->dim[l + 1] == 16);
        return;
    }
    for (int64_t i = begin; i < end; i++, dst += ds * elem, src += ss * elem)
        copy_loops(vec, p, l + 1, dst, src, 0, p->dim[l + 1], size);
}

/* -- Kernels of boxes ----------------------------------------------------------------------- */

static void run_rows(void *cx, int64_t begin, int64_t end)
{
    const weft_moves *m = cx;
    const weft_copy_box *p = &m->box[m->now];
    copy_loops(m->vec, p, 0, (char *)m->arg[p->dst] + p->dst_at * (int64_t)m->size,
               (const char *)m->arg[p->src] + p->src_at * (int64_t)m->size, begin, end, m->size);
}

static weft_err run_moves(void *state, void *const *arg)
{
    static const double byte_ns = 0.15;
    weft_moves *m = state;
    m->arg = arg;
    if (m->zero_bytes)
        memset(arg[m->box[0].dst], 0, m->zero_bytes);
    for (m->now = 0; m->now < m->n; m->now++) {
        const weft_copy_box *p = &m->box[m->now];
        int64_t row = 1;
        for (int32_t l = 1; l < p->rank; l++)
            row *= p->dim[l];
        weft_par_for(m->threads, p->dim[0], (double)row * (double)m->size * byte_ns, run_rows, m);
    }
    return WEFT_ERR_OK;
}

static void destroy_moves(void *state)
{
    weft_moves *m = state;
    free(m->box);
    free(m);
}

weft_err weft_cpu__set_moves(weft_prep *p, const weft_copy_box *box, uint32_t n, size_t size,
                             const char *variant)
{
    weft_moves *m = weft_cpu__calloc(1, sizeof *m);
    if (!m)
        return WEFT_ERR_NOMEM;
    m->box = weft_cpu__calloc(n ? n : 1, sizeof *m->box);
    if (!m->box) {
        free(m);
        return WEFT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        int64_t count = 1;
        for (int32_t l = 0; l < box[i].rank; l++)
            count *= box[i].dim[l];
        if (count == 0)
            continue;
        m->box[m->n] = box[i];
        simplify(&m->box[m->n++]);
    }
    m->threads = weft_cpu__of(p)->threads;
    m->vec = weft_cpu__of(p)->vec;
    m->size = size;
    p->run = run_moves;
    p->state = m;
    p->destroy = destroy_moves;
    p->variant = variant;
    return WEFT_ERR_OK;
}

/* -- Operators ------------------------------------------------------------------------------ */

static bool all_plain(const weft_prep *p)
{
    for (uint32_t i = 0; i < p->n_in; i++)
        if (p->in[i].present && p->in[i].layout != WEFT_LAYOUT_PLAIN)
            return false;
    for (uint32_t i = 0; i < p->n_out; i++)
        if (p->out[i].present && p->out[i].layout != WEFT_LAYOUT_PLAIN)
            return false;
    return true;
}

static void plain_strides(const weft_tensor *t, int64_t *stride)
{
    int64_t at = 1;
    for (int32_t d = t->rank - 1; d >= 0; at *= t->dim[d], d--)
        stride[d] = at;
}

/* Between blocks of channels and channels at the end: dims [image][pixel][block][lane], or
 * [image][block][pixel][lane] where the result is in blocks. */
static weft_err prepare_from_blocks(weft_prep *p, const int64_t *perm, int32_t rank)
{
    const weft_slot *in = &p->in[0], *out = &p->out[0];
    bool to = out->layout != WEFT_LAYOUT_PLAIN;
    const weft_slot *blocks = to ? out : in, *plain = to ? in : out;
    int64_t lanes = weft_layout_block(blocks->layout), channels = blocks->tensor.dim[1];
    int64_t pixels = weft_slot_count(blocks, 2, rank), image = pixels * channels;
    if (plain->layout != WEFT_LAYOUT_PLAIN || in->tensor.dtype != WEFT_DTYPE_F32 || lanes < 2 ||
        rank < 3 || channels % lanes != 0 || perm[0] != 0)
        return WEFT_ERR_OK;
    for (int32_t d = 1; d < rank; d++)
        if (perm[d] != (to              ? d == 1 ? rank - 1 : d - 1
                        : d == rank - 1 ? 1
                                        : d + 1) ||
            out->tensor.dim[d] != in->tensor.dim[perm[d]])
            return WEFT_ERR_OK;
    const int32_t at = to ? 1 : 2; /* of the blocks */
    weft_copy_box box = {.src = 0, .dst = p->n_in, .rank = 4};
    int64_t *in_blocks = to ? box.dst_stride : box.src_stride;
    int64_t *in_plain = to ? box.src_stride : box.dst_stride;
    box.dim[0] = blocks->tensor.dim[0];
    box.dim[at] = channels / lanes;
    box.dim[3 - at] = pixels;
    box.dim[3] = lanes;
    in_blocks[0] = in_plain[0] = image;
    in_blocks[at] = pixels * lanes;
    in_blocks[3 - at] = in_plain[at] = lanes;
    in_plain[3 - at] = channels;
    in_blocks[3] = in_plain[3] = 1;
    return weft_cpu__set_moves(p, &box, 1, sizeof(float), "move");
}

weft_err weft_cpu__prepare_transpose(weft_prep *p)
{
    const weft_tensor *in = &p->in[0].tensor, *out = &p->out[0].tensor;
    int64_t stride[WEFT_RANK_MAX];
    uint32_t n;
    const int64_t *perm = weft_attrs_ints(p->attrs, WEFT_ATTR_PERM, &n);
    weft_copy_box box = {.src = 0, .dst = p->n_in, .rank = in->rank};

    if (in->dtype != out->dtype || in->rank == 0 || (perm && n != (uint32_t)in->rank) ||
        out->rank != in->rank)
        return WEFT_ERR_OK;
    if (!all_plain(p))
        return perm ? prepare_from_blocks(p, perm, in->rank) : WEFT_ERR_OK;
    plain_strides(in, stride);
    plain_strides(out, box.dst_stride);
    for (int32_t d = 0; d < in->rank; d++) {
        int64_t from = perm ? perm[d] : in->rank - 1 - d;
        if (from < 0 || from >= in->rank || out->dim[d] != in->dim[from])
            return WEFT_ERR_OK;
        box.dim[d] = out->dim[d];
        box.src_stride[d] = stride[from];
    }
    return weft_cpu__set_moves(p, &box, 1, weft_dtype_size(in->dtype), "move");
}

/* Elements of one image (an index of dim 0), padding included; images are contiguous in every
 * layout. */
static int64_t count_image(const weft_slot *s)
{
    weft_slot one = *s;
    one.tensor.dim[0] = 1;
    return weft_cpu__slot_stored(&one);
}

/* Splits the dims of a tensor at `axis`: rows before it, length along it, elements after it.
 * `block` > 1, for axis 1 only: the layout stores blocks of that many channels. With channels
 * innermost, nothing is after axis 1. */
static void split_at(const weft_slot *s, int32_t axis, int64_t block, int64_t *out_rows,
                     int64_t *out_len, int64_t *out_inner)
{
    const weft_tensor *t = &s->tensor;
    bool innermost = s->layout == WEFT_LAYOUT_NHWC && axis == 1;
    *out_rows = weft_slot_count(s, 0, axis) * (innermost ? weft_slot_count(s, 2, t->rank) : 1);
    *out_len = (t->dim[axis] + block - 1) / block;
    *out_inner = axis == 0   ? count_image(s)
                 : innermost ? 1
                             : weft_slot_count(s, axis + 1, t->rank) * block;
}

static int32_t axis_of(const weft_prep *p, int32_t rank, int64_t otherwise)
{
    int64_t axis = weft_attrs_int(p->attrs, WEFT_ATTR_AXIS, otherwise);
    if (axis < 0)
        axis += rank;
    return axis >= 0 && axis < rank ? (int32_t)axis : -1;
}

weft_err weft_cpu__prepare_concat(weft_prep *p)
{
    const weft_slot *out = &p->out[0];
    int32_t axis = axis_of(p, out->tensor.rank, 0);
    int64_t block = axis == 0 ? 1 : weft_layout_block(out->layout), rows, len, inner, at = 0;
    bool blocked = out->layout != WEFT_LAYOUT_PLAIN;
    if (axis < 0 || p->n_in > 1024 || (blocked && axis > 1))
        return WEFT_ERR_OK;
    weft_copy_box *box = weft_cpu__calloc(p->n_in + 1, sizeof *box);
    if (!box)
        return WEFT_ERR_NOMEM;
    split_at(out, axis, block, &rows, &len, &inner);
    bool fits = true;
    for (uint32_t i = 0; i < p->n_in && fits; i++) {
        const weft_slot *in = &p->in[i];
        int64_t in_rows, in_len, in_inner;
        fits = in->present && in->layout == out->layout && in->tensor.rank == out->tensor.rank &&
               in->tensor.dtype == out->tensor.dtype &&
               (in->tensor.dim[axis] % block == 0 || i + 1 == p->n_in);
        if (!fits)
            break;
        split_at(in, axis, block, &in_rows, &in_len, &in_inner);
        fits = in_rows == rows && in_inner == inner && at + in_len <= len;
        box[i] = (weft_copy_box){.src = i,
                                 .dst = p->n_in,
                                 .rank = 2,
                                 .dim = {rows, in_len * inner},
                                 .src_stride = {in_len * inner, 1},
                                 .dst_stride = {len * inner, 1},
                                 .dst_at = at * inner};
        at += in_len;
    }
    weft_err err = WEFT_ERR_OK;
    if (fits && at == len)
        err = weft_cpu__set_moves(p, box, p->n_in, weft_dtype_size(out->tensor.dtype), "move");
    free(box);
    return err;
}

weft_err weft_cpu__prepare_split(weft_prep *p)
{
    const weft_slot *in = &p->in[0];
    int32_t axis = axis_of(p, in->tensor.rank, 0);
    int64_t rows, len, inner, at = 0;
    if (axis < 0 || !all_plain(p) || p->n_out > 1024)
        return WEFT_ERR_OK;
    weft_copy_box *box = weft_cpu__calloc(p->n_out + 1, sizeof *box);
    if (!box)
        return WEFT_ERR_NOMEM;
    split_at(in, axis, 1, &rows, &len, &inner);
    bool fits = true;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_out && fits; i++) {
        const weft_slot *out = &p->out[i];
        int64_t out_rows, out_len, out_inner;
        fits = out->present && out->tensor.rank == in->tensor.rank &&
               out->tensor.dtype == in->tensor.dtype;
        if (!fits)
            break;
        split_at(out, axis, 1, &out_rows, &out_len, &out_inner);
        fits = out_rows == rows && out_inner == inner && at + out_len <= len;
        box[n++] = (weft_copy_box){.src = 0,
                                   .dst = p->n_in + i,
                                   .rank = 2,
                                   .dim = {rows, out_len * inner},
                                   .src_stride = {len * inner, 1},
                                   .dst_stride = {out_len * inner, 1},
                                   .src_at = at * inner};
        at += out_len;
    }
    weft_err err = WEFT_ERR_OK;
    if (fits && at == len)
        err = weft_cpu__set_moves(p, box, n, weft_dtype_size(in->tensor.dtype), "move");
    free(box);
    return err;
}

/* Reads a list parameter from the attribute or a constant operand; false when it is not known. */
static bool read_param(const weft_prep *p, uint32_t in, weft_attr_key key, int64_t *out,
                       uint32_t *out_n)
{
    uint32_t n;
    const int64_t *list = weft_attrs_ints(p->attrs, key, &n);
    *out_n = 0;
    if (list) {
        if (n > WEFT_RANK_MAX)
            return false;
        memcpy(out, list, n * sizeof *out);
        *out_n = n;
        return true;
    }
    if (in >= p->n_in || !p->in[in].present)
        return true;
    const weft_tensor *t = &p->in[in].tensor;
    if (!p->in[in].weight || !t->data || weft_tensor_numel(t) > WEFT_RANK_MAX)
        return false;
    *out_n = (uint32_t)weft_tensor_numel(t);
    for (uint32_t i = 0; i < *out_n; i++)
        out[i] = weft_tensor_get_i64(t, i);
    return true;
}

/* Copies the images from `first` on of a value in a blocked layout. */
static weft_err prepare_images(weft_prep *p, int64_t first)
{
    const weft_slot *in = &p->in[0], *out = &p->out[0];
    int64_t image = count_image(in), n = in->tensor.dim[0], wanted = out->tensor.dim[0];
    first = first < 0 ? first + n : first;
    if (in->layout != out->layout || image != count_image(out) || first < 0 || first > n ||
        wanted > n - first)
        return WEFT_ERR_OK;
    weft_copy_box box = {.src = 0,
                         .dst = p->n_in,
                         .rank = 1,
                         .dim = {wanted * image},
                         .src_stride = {1},
                         .dst_stride = {1},
                         .src_at = first * image};
    return weft_cpu__set_moves(p, &box, 1, weft_dtype_size(in->tensor.dtype), "move");
}

weft_err weft_cpu__prepare_slice(weft_prep *p)
{
    const weft_tensor *in = &p->in[0].tensor, *out = &p->out[0].tensor;
    int64_t starts[WEFT_RANK_MAX], ends[WEFT_RANK_MAX], axes[WEFT_RANK_MAX], steps[WEFT_RANK_MAX];
    int64_t stride[WEFT_RANK_MAX];
    uint32_t n, n_ends, n_axes, n_steps;
    weft_copy_box box = {.src = 0, .dst = p->n_in, .rank = in->rank};

    if (in->dtype != out->dtype || in->rank == 0 || in->rank != out->rank ||
        !read_param(p, 1, WEFT_ATTR_STARTS, starts, &n) ||
        !read_param(p, 2, WEFT_ATTR_ENDS, ends, &n_ends) || n_ends != n ||
        !read_param(p, 3, WEFT_ATTR_AXES, axes, &n_axes) ||
        !read_param(p, 4, WEFT_ATTR_STEPS, steps, &n_steps) || n > (uint32_t)in->rank ||
        (n_axes && n_axes != n) || (n_steps && n_steps != n))
        return WEFT_ERR_OK;
    plain_strides(in, stride);
    plain_strides(out, box.dst_stride);
    memcpy(box.dim, out->dim, sizeof out->dim);
    memcpy(box.src_stride, stride, sizeof stride);
    int64_t first = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t a = n_axes ? axes[i] : i, step = n_steps ? steps[i] : 1, count;
        if (a < 0)
            a += in->rank;
        if (a < 0 || a >= in->rank || step == 0 || step > INT32_MAX || step < INT32_MIN)
            return WEFT_ERR_OK;
        weft_op_slice_range(in->dim[a], starts[i], ends[i], step, &first, &count);
        if (count != out->dim[a]) /* the evaluation says so */
            return WEFT_ERR_OK;
        box.src_at += first * stride[a];
        box.src_stride[a] = stride[a] * step;
    }
    if (!all_plain(p)) {
        bool run = n == 1 && (!n_axes || axes[0] == 0) && (!n_steps || steps[0] == 1);
        return run ? prepare_images(p, first) : WEFT_ERR_OK;
    }
    for (int32_t d = 0; d < in->rank; d++)
        if (box.src_stride[d] == stride[d] && out->dim[d] > in->dim[d])
            return WEFT_ERR_OK;
    return weft_cpu__set_moves(p, &box, 1, weft_dtype_size(in->dtype), "move");
}

weft_err weft_cpu__prepare_expand(weft_prep *p)
{
    const weft_tensor *in = &p->in[0].tensor, *out = &p->out[0].tensor;
    weft_copy_box box = {.src = 0, .dst = p->n_in, .rank = out->rank};
    int64_t stride[WEFT_RANK_MAX];
    int32_t shift = out->rank - in->rank;

    if (!all_plain(p) || in->dtype != out->dtype || shift < 0)
        return WEFT_ERR_OK;
    plain_strides(in, stride);
    plain_strides(out, box.dst_stride);
    memcpy(box.dim, out->dim, sizeof out->dim);
    for (int32_t d = 0; d < in->rank; d++) {
        if (in->dim[d] != 1 && in->dim[d] != out->dim[d + shift])
            return WEFT_ERR_OK;
        box.src_stride[d + shift] = in->dim[d] == 1 ? 0 : stride[d];
    }
    return weft_cpu__set_moves(p, &box, 1, weft_dtype_size(in->dtype), "move");
}

/* Each dim becomes two: the number of repeats, and the operand's dim. */
weft_err weft_cpu__prepare_tile(weft_prep *p)
{
    const weft_tensor *in = &p->in[0].tensor, *out = &p->out[0].tensor;
    int64_t src[WEFT_RANK_MAX], dst[WEFT_RANK_MAX];
    weft_copy_box box = {.src = 0, .dst = p->n_in, .rank = 2 * in->rank};

    if (!all_plain(p) || in->dtype != out->dtype || in->rank != out->rank || in->rank == 0)
        return WEFT_ERR_OK;
    plain_strides(in, src);
    plain_strides(out, dst);
    for (int32_t d = 0; d < in->rank; d++) {
        if (in->dim[d] == 0 || out->dim[d] % in->dim[d] != 0)
            return WEFT_ERR_OK;
        box.dim[2 * d] = out->dim[d] / in->dim[d];
        box.dim[2 * d + 1] = in->dim[d];
        box.src_stride[2 * d] = 0;
        box.src_stride[2 * d + 1] = src[d];
        box.dst_stride[2 * d] = dst[d] * in->dim[d];
        box.dst_stride[2 * d + 1] = dst[d];
    }
    return weft_cpu__set_moves(p, &box, 1, weft_dtype_size(in->dtype), "move");
}

/* Pads with zeros: clears the result, then copies the operand into it. */
weft_err weft_cpu__prepare_pad(weft_prep *p)
{
    const weft_tensor *in = &p->in[0].tensor, *out = &p->out[0].tensor;
    int64_t pads[2 * WEFT_RANK_MAX], src[WEFT_RANK_MAX];
    uint32_t n;
    const int64_t *list = weft_attrs_ints(p->attrs, WEFT_ATTR_PADS, &n);
    const char *mode = weft_attrs_str(p->attrs, WEFT_ATTR_MODE, "constant");
    weft_copy_box box = {.src = 0, .dst = p->n_in, .rank = in->rank};

    if (!all_plain(p) || in->dtype != out->dtype || in->rank != out->rank || in->rank == 0 ||
        !list || n != 2 * (uint32_t)in->rank || strcmp(mode, "constant") != 0 ||
        weft_attrs_find(p->attrs, WEFT_ATTR_AXES) || (p->n_in > 2 && p->in[2].present) ||
        (p->n_in > 3 && p->in[3].present) || weft_attrs_find(p->attrs, WEFT_ATTR_VALUE))
        return WEFT_ERR_OK;
    memcpy(pads, list, n * sizeof *list);
    plain_strides(in, src);
    plain_strides(out, box.dst_stride);
    for (int32_t d = 0; d < in->rank; d++) {
        if (pads[d] < 0 || pads[in->rank + d] < 0 || pads[d] > out->dim[d] ||
            out->dim[d] - pads[d] - pads[in->rank + d] != in->dim[d])
            return WEFT_ERR_OK;
        box.dim[d] = in->dim[d];
        box.src_stride[d] = src[d];
        box.dst_at += pads[d] * box.dst_stride[d];
    }
    WEFT_TRY(weft_cpu__set_moves(p, &box, 1, weft_dtype_size(in->dtype), "move"));
    ((weft_moves *)p->state)->zero_bytes = weft_tensor_bytes(out);
    return WEFT_ERR_OK;
}

/* -- Layouts -------------------------------------------------------------------------------- */

typedef struct reorder_kernel {
    weft_slot in, out;
} reorder_kernel;

static weft_err run_reorder(void *state, void *const *arg)
{
    const reorder_kernel *k = state;
    weft_relayout__tensor(arg[1], k->out.layout, arg[0], k->in.layout, k->in.tensor.dim,
                          k->in.tensor.rank, weft_dtype_size(k->in.tensor.dtype));
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_reorder(weft_prep *p)
{
    if (p->n_in != 1 || !weft_slot_same_dims(&p->in[0], &p->out[0]) || p->in[0].tensor.rank < 2 ||
        p->in[0].tensor.dtype != p->out[0].tensor.dtype)
        return weft_diag_error(p->diag, WEFT_ERR_INPUT, p->where,
                               "reorder: the result must have the operand's dimensions");
    WEFT_TRY(weft_cpu__prepare_dnnl_reorder(p));
    if (p->run)
        return WEFT_ERR_OK;
    const reorder_kernel k = {.in = p->in[0], .out = p->out[0]};
    return weft_cpu__set_kernel(p, run_reorder, &k, sizeof k, "relayout");
}
