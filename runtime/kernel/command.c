/* Evaluates the commands of a launch for GPUs at concrete dims. The bundle is untrusted: every
 * address range must be inside its operand, and every launch within what a device supports. */
#include "runtime/kernel/kernel.h"

#include "base/num.h"
#include "base/pack.h"
#include "base/sm_limits.h"

#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 1024, GRID_YZ_MAX = 65535 };

typedef struct maker {
    const weft_prep *p;
    weft_command_list *to;
    uint32_t command;
    weft_command_arg *value; /* next free argument */
    weft_command_gemm *gemm; /* next free GEMM */
    weft_command_conv *conv; /* next free convolution */
} maker;

static weft_err refuse(const maker *m, const char *what)
{
    return weft_diag_error(m->p->diag, WEFT_ERR_INPUT, m->p->where, "%s: command %u: %s",
                           weft_op_get(m->p->op)->name, m->command + 1, what);
}

static weft_err eval(const maker *m, weft_dim d, const char *what, int64_t *out)
{
    *out = d;
    if (weft_dim_is_const(d) ||
        weft_dim_eval(m->p->program->dims, d, m->p->symbol, m->p->n_symbol, out))
        return WEFT_ERR_OK;
    return refuse(m, what);
}

/* -- Arguments ------------------------------------------------------------------------------ */

static bool is_ref(uint8_t kind)
{
    return kind == WEFT_COMMAND_ARG_IN || kind == WEFT_COMMAND_ARG_OUT ||
           kind == WEFT_COMMAND_ARG_SCRATCH;
}

/* Evaluates the address of an argument and checks that it is inside its operand. */
static weft_err find_ref(const maker *m, const weft_bundle_arg *arg, weft_command_ref *out)
{
    const weft_prep *p = m->p;
    int64_t offset;
    WEFT_TRY(eval(m, arg->dim, "an offset has no value for these inputs", &offset));
    if (offset < 0)
        return refuse(m, "an offset is negative");
    if (arg->kind == WEFT_COMMAND_ARG_SCRATCH) {
        *out = (weft_command_ref){m->to->n_operand, (uint64_t)offset};
    } else {
        bool in = arg->kind == WEFT_COMMAND_ARG_IN;
        const weft_slot *slot = in ? p->in : p->out;
        if (arg->index >= (in ? p->n_in : p->n_out) || !slot[arg->index].present)
            return refuse(m, "an argument refers to an operand that is not present");
        if ((uint64_t)offset % weft_dtype_size(slot[arg->index].tensor.dtype) != 0)
            return refuse(m, "an offset does not start at an element");
        *out = (weft_command_ref){arg->index + (in ? 0 : p->n_in), (uint64_t)offset};
    }
    if (out->offset > m->to->bytes[out->at])
        return refuse(m, "an offset is past the end of its operand");
    if (arg->kind != WEFT_COMMAND_ARG_IN)
        m->to->access[out->at] |= WEFT_ACCESS_WRITE;
    else if (!p->in[arg->index].weight) /* weights are never written */
        m->to->access[out->at] |= WEFT_ACCESS_READ;
    return WEFT_ERR_OK;
}

/* As find_ref for memory that is written: a result or scratch memory. */
static weft_err find_target(const maker *m, const weft_bundle_arg *arg, weft_command_ref *out)
{
    if (arg->kind != WEFT_COMMAND_ARG_OUT && arg->kind != WEFT_COMMAND_ARG_SCRATCH)
        return refuse(m, "the target is neither a result nor scratch memory");
    return find_ref(m, arg, out);
}

static weft_err check_run(const maker *m, weft_command_ref at, uint64_t bytes)
{
    if (bytes > m->to->bytes[at.at] - at.offset)
        return refuse(m, "it accesses memory past the end of an operand");
    return WEFT_ERR_OK;
}

/* The ranges of a copy must not overlap. */
static weft_err check_apart(const maker *m, weft_command_ref a, weft_command_ref b, uint64_t bytes)
{
    uint64_t distance = a.offset < b.offset ? b.offset - a.offset : a.offset - b.offset;
    if (a.at == b.at && distance < bytes)
        return refuse(m, "the source and the target of a copy overlap");
    return WEFT_ERR_OK;
}

static weft_err make_value(const maker *m, const weft_bundle_arg *arg, weft_command_arg *out)
{
    int64_t x;
    out->kind = arg->kind;
    if (is_ref(arg->kind))
        return find_ref(m, arg, &out->ref);
    out->ref.at = WEFT_COMMAND_NO_REF;
    if (arg->kind == WEFT_COMMAND_ARG_FLOAT) {
        out->f = arg->f;
        return WEFT_ERR_OK;
    }
    if (arg->kind != WEFT_COMMAND_ARG_INT)
        return refuse(m, "an argument has an unknown kind");
    WEFT_TRY(eval(m, arg->dim, "an argument has no value for these inputs", &x));
    if (x < INT32_MIN || x > INT32_MAX)
        return refuse(m, "an argument does not fit in 32 bits");
    out->i = (int32_t)x;
    return WEFT_ERR_OK;
}

/* -- Kinds of commands ------------------------------------------------------------------------- */

static weft_err make_kernel(maker *m, const weft_bundle_command *from, weft_command *to,
                            bool *empty)
{
    const weft_bundle *b = m->p->engine->bundle;
    if (from->kernel >= b->n_kernel)
        return refuse(m, "its kernel is not in the bundle");
    to->kernel = from->kernel;
    for (int d = 0; d < 3; d++) {
        int64_t n;
        WEFT_TRY(eval(m, from->grid[d], "the grid has no size for these inputs", &n));
        if (n < 0 || n > (d ? (int64_t)GRID_YZ_MAX : (int64_t)INT32_MAX))
            return refuse(m, "the grid is larger than a device supports");
        to->grid[d] = (uint32_t)n;
        *empty = *empty || n == 0;
    }
    to->arg = m->value;
    to->n_arg = from->n_arg;
    for (uint32_t i = 0; i < from->n_arg; i++)
        WEFT_TRY(make_value(m, &from->arg[i], m->value++));
    return WEFT_ERR_OK;
}

static weft_err make_move(maker *m, const weft_bundle_command *from, weft_command *to, bool *empty)
{
    int64_t bytes;
    uint32_t n = from->kind == WEFT_COMMAND_COPY ? 2 : 1;
    if (from->n_arg != n)
        return refuse(m, "a copy needs two addresses, a fill one");
    WEFT_TRY(eval(m, from->bytes, "its length has no value for these inputs", &bytes));
    if (bytes < 0)
        return refuse(m, "its length is negative");
    to->bytes = (uint64_t)bytes;
    *empty = bytes == 0;
    to->arg = m->value;
    to->n_arg = n;
    m->value += n;
    to->arg[0].kind = from->arg[0].kind;
    WEFT_TRY(find_target(m, &from->arg[0], &to->arg[0].ref));
    WEFT_TRY(check_run(m, to->arg[0].ref, to->bytes));
    if (n == 1)
        return WEFT_ERR_OK;
    if (!is_ref(from->arg[1].kind))
        return refuse(m, "the source is not an operand");
    to->arg[1].kind = from->arg[1].kind;
    WEFT_TRY(find_ref(m, &from->arg[1], &to->arg[1].ref));
    WEFT_TRY(check_run(m, to->arg[1].ref, to->bytes));
    return check_apart(m, to->arg[0].ref, to->arg[1].ref, to->bytes);
}

/* Alignment of the operand that an address is in. */
static uint32_t alignment_of(const maker *m, weft_command_ref at)
{
    return m->to->align[at.at];
}

/* Evaluates the address of a batch of `rows` x `cols` matrices and checks that all of them are
 * inside their operand. */
static weft_err make_matrix(const maker *m, const weft_command_gemm *g, const weft_bundle_arg *arg,
                            bool written, int64_t rows, int64_t cols, int64_t ld, int64_t stride,
                            weft_command_ref *out)
{
    uint64_t last, batch, bytes;
    uint64_t size = weft_dtype_size(written ? weft_gemm_result(g->dtype) : g->dtype);
    if (!is_ref(arg->kind))
        return refuse(m, "a matrix is not an operand");
    if (written)
        WEFT_TRY(find_target(m, arg, out));
    else
        WEFT_TRY(find_ref(m, arg, out));
    if (ld < cols || stride < 0 || ld > INT32_MAX)
        return refuse(m, "rows of a matrix overlap, or are too long");
    if (g->dtype == WEFT_DTYPE_I8 && ((rows | ld | stride) % WEFT_GEMM_BYTES_STEP != 0 ||
                                      out->offset % WEFT_GEMM_BYTES_STEP != 0 ||
                                      alignment_of(m, *out) % WEFT_GEMM_BYTES_STEP != 0))
        return refuse(m, "a matrix of bytes is not made of whole words");
    if (!weft_size_mul((uint64_t)(rows - 1), (uint64_t)ld, &last) ||
        !weft_size_mul((uint64_t)(g->batch - 1), (uint64_t)stride, &batch) ||
        !weft_size_add(last, batch, &last) || !weft_size_add(last, (uint64_t)cols, &last) ||
        !weft_size_mul(last, size, &bytes) || out->offset % size != 0)
        return refuse(m, "a matrix is too large, or does not start at an element");
    return check_run(m, *out, bytes);
}

static weft_err eval_gemm(maker *m, const weft_bundle_gemm *g, weft_command_gemm *to)
{
    const struct {
        weft_dim from;
        int64_t *to;
    } dim[] = {{g->m, &to->m},
               {g->n, &to->n},
               {g->k, &to->k},
               {g->batch, &to->batch},
               {g->lda, &to->lda},
               {g->ldb, &to->ldb},
               {g->ldc, &to->ldc},
               {g->ldd, &to->ldd},
               {g->stride_a, &to->stride_a},
               {g->stride_b, &to->stride_b},
               {g->stride_c, &to->stride_c},
               {g->stride_d, &to->stride_d}};
    for (size_t i = 0; i < sizeof dim / sizeof *dim; i++)
        WEFT_TRY(eval(m, dim[i].from, "a matrix has no size for these inputs", dim[i].to));
    for (size_t i = 0; i < 4; i++)
        if (*dim[i].to < 0 || *dim[i].to > INT32_MAX)
            return refuse(m, "a matrix is too large");
    to->dtype = g->dtype;
    to->act = g->act;
    to->trans_a = g->trans_a;
    to->trans_b = g->trans_b;
    to->tf32 = g->tf32;
    to->alpha = g->alpha;
    to->beta = g->beta;
    return WEFT_ERR_OK;
}

static weft_err make_gemm(maker *m, const weft_bundle_command *from, weft_command *to, bool *empty)
{
    const weft_bundle_gemm *g = from->gemm;
    weft_command_gemm *p = m->gemm++;
    if (!g || g->act >= WEFT_GEMM_ACTS ||
        (g->dtype != WEFT_DTYPE_F32 && g->dtype != WEFT_DTYPE_F16 && g->dtype != WEFT_DTYPE_BF16 &&
         !weft_gemm_is_bytes(g)))
        return refuse(m, "a GEMM has an unsupported type");
    to->gemm = p;
    p->c.at = p->bias.at = WEFT_COMMAND_NO_REF;
    WEFT_TRY(eval_gemm(m, g, p));
    *empty = p->m == 0 || p->n == 0 || p->batch == 0;
    if (*empty)
        return WEFT_ERR_OK;
    if (p->k == 0)
        return refuse(m, "a GEMM has a k of 0");
    if (p->dtype == WEFT_DTYPE_I8 && p->k % WEFT_GEMM_BYTES_STEP != 0)
        return refuse(m, "rows of bytes are not made of whole words");
    WEFT_TRY(make_matrix(m, p, &g->a, false, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k,
                         p->lda, p->stride_a, &p->a));
    WEFT_TRY(make_matrix(m, p, &g->b, false, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n,
                         p->ldb, p->stride_b, &p->b));
    WEFT_TRY(make_matrix(m, p, &g->d, true, p->m, p->n, p->ldd, p->stride_d, &p->d));
    if (g->c.kind != WEFT_COMMAND_ARG_NONE)
        WEFT_TRY(make_matrix(m, p, &g->c, false, p->m, p->n, p->ldc, p->stride_c, &p->c));
    else if (p->beta != 0)
        return refuse(m, "beta is not 0, but there is no matrix c");
    if (g->bias.kind == WEFT_COMMAND_ARG_NONE)
        return WEFT_ERR_OK;
    if (!is_ref(g->bias.kind))
        return refuse(m, "a bias is not an operand");
    WEFT_TRY(find_ref(m, &g->bias, &p->bias));
    if (p->bias.offset % weft_dtype_size(p->dtype) != 0)
        return refuse(m, "a bias does not start at an element");
    return check_run(m, p->bias, (uint64_t)p->n * weft_dtype_size(p->dtype));
}

/* *empty: the convolution has no results. Sizes of 0 besides are left to the kernels that run
 * instead of cuDNN's. */
static weft_err check_conv(const maker *m, const weft_conv_key *key, bool *empty)
{
    const int64_t *d = key->dim;
    *empty = d[WEFT_CONV_IMAGES] == 0 || d[WEFT_CONV_FEATURES] == 0;
    for (int i = 0; i < WEFT_CONV_DIMS; i++)
        if (d[i] < 0 || d[i] > INT32_MAX)
            return refuse(m, "a convolution has a wrong size");
    for (int i = 0; i < 3; i++)
        *empty = *empty || d[WEFT_CONV_OUT + i] == 0;
    if (d[WEFT_CONV_GROUPS] == 0 || d[WEFT_CONV_CHANNELS] % d[WEFT_CONV_GROUPS] != 0 ||
        d[WEFT_CONV_FEATURES] % d[WEFT_CONV_GROUPS] != 0)
        return refuse(m, "channels are not divided by the groups");
    return WEFT_ERR_OK;
}

static weft_err make_tensor(const maker *m, const weft_bundle_arg *arg, bool written,
                            weft_dtype dtype, int64_t outer, int64_t inner, const int64_t *dim,
                            weft_command_ref *out)
{
    uint64_t bytes = weft_dtype_size(dtype), size = bytes;
    bool ok = weft_size_mul(bytes, (uint64_t)outer, &bytes) &&
              weft_size_mul(bytes, (uint64_t)inner, &bytes);
    for (int i = 0; ok && i < 3; i++)
        ok = weft_size_mul(bytes, (uint64_t)dim[i], &bytes);
    if (!is_ref(arg->kind))
        return refuse(m, "a tensor of a convolution is not an operand");
    WEFT_TRY(written ? find_target(m, arg, out) : find_ref(m, arg, out));
    if (!ok || out->offset % size != 0)
        return refuse(m, "a tensor is too large, or does not start at an element");
    return check_run(m, *out, bytes);
}

/* As make_tensor, of `outer` rows of which each begins `step` elements behind the one before. */
static weft_err make_rows(const maker *m, const weft_bundle_arg *arg, bool written,
                          weft_dtype dtype, int64_t outer, int64_t step, int64_t width,
                          weft_command_ref *out)
{
    const int64_t last[3] = {1, 1, 1};
    uint64_t before, size = weft_dtype_size(dtype);
    if (step < width || !weft_size_mul((uint64_t)(outer - 1), (uint64_t)step, &before) ||
        !weft_size_add(before, (uint64_t)width, &before) || before > INT64_MAX / size)
        return refuse(m, "rows of attention overlap, or are too long");
    return make_tensor(m, arg, written, dtype, (int64_t)before, 1, last, out);
}

static weft_err make_attention(maker *m, const weft_bundle_conv *c, weft_command_conv *p,
                               bool *empty)
{
    const int64_t *d = p->key.dim, *step = d + WEFT_ATTENTION_STEP;
    int64_t batch = d[WEFT_ATTENTION_BATCH], rows = d[WEFT_ATTENTION_ROWS];
    int64_t heads = d[WEFT_ATTENTION_HEADS], keys = d[WEFT_ATTENTION_KEYS];
    for (int i = 0; i < WEFT_ATTENTION_SCALE; i++)
        if (d[i] < 0 || d[i] > INT32_MAX)
            return refuse(m, "attention has a wrong size");
    int64_t width = heads * d[WEFT_ATTENTION_HEAD], one[3] = {1, 1, 1};
    *empty = batch == 0 || rows == 0 || width == 0;
    if (*empty || keys == 0)
        return WEFT_ERR_OK;
    if (batch * rows > INT32_MAX || batch * keys > INT32_MAX)
        return refuse(m, "attention has a wrong size");
    WEFT_TRY(make_rows(m, &c->x, false, c->dtype, batch * rows, step[0], width, &p->x));
    WEFT_TRY(make_rows(m, &c->w, false, c->dtype, batch * keys, step[1], width, &p->w));
    WEFT_TRY(make_rows(m, &c->z, false, c->dtype, batch * keys, step[2], width, &p->z));
    WEFT_TRY(make_rows(m, &c->y, true, c->dtype, batch * rows, step[3], width, &p->y));
    if (!(c->flags & WEFT_CONV_BIAS))
        return WEFT_ERR_OK;
    const int64_t size[3] = {batch, heads, rows}, *mask = d + WEFT_ATTENTION_MASK;
    for (int i = 0; i < 3; i++)
        if (mask[i] != 1 && mask[i] != size[i])
            return refuse(m, "a mask of attention has other sizes");
    one[0] = mask[2];
    one[1] = keys;
    return make_tensor(m, &c->bias, false, c->dtype, mask[0], mask[1], one, &p->bias);
}

static weft_err make_images(maker *m, const weft_bundle_conv *c, weft_command_conv *p, bool *empty)
{
    static const int64_t one[3] = {1, 1, 1};
    const int64_t *d = p->key.dim;
    WEFT_TRY(check_conv(m, &p->key, empty));
    if (*empty)
        return WEFT_ERR_OK;
    int64_t images = d[WEFT_CONV_IMAGES], features = d[WEFT_CONV_FEATURES];
    int64_t depth = d[WEFT_CONV_CHANNELS] / d[WEFT_CONV_GROUPS];
    const int64_t *in = d + WEFT_CONV_IN, *out = d + WEFT_CONV_OUT;
    bool pool = (c->flags & WEFT_CONV_POOLS) != 0;
    if (pool && features != d[WEFT_CONV_CHANNELS])
        return refuse(m, "pooling has other channels than its result");
    for (int i = 0; i < 3 && pool; i++) /* cuDNN knows none */
        if (d[WEFT_CONV_DILATION + i] != 1)
            return refuse(m, "pooling has dilations");
    WEFT_TRY(make_tensor(m, &c->x, false, c->dtype, images, d[WEFT_CONV_CHANNELS], in, &p->x));
    if (!pool)
        WEFT_TRY(
            make_tensor(m, &c->w, false, c->dtype, features, depth, d + WEFT_CONV_KERNEL, &p->w));
    WEFT_TRY(make_tensor(m, &c->y, true, c->dtype, images, features, out, &p->y));
    if (c->flags & WEFT_CONV_Z)
        WEFT_TRY(make_tensor(m, &c->z, false, c->dtype, images, features, out, &p->z));
    if (c->flags & WEFT_CONV_BIAS)
        WEFT_TRY(make_tensor(m, &c->bias, false, c->dtype, features, 1, one, &p->bias));
    return WEFT_ERR_OK;
}

static weft_err make_conv(maker *m, const weft_bundle_command *from, weft_command *to, bool *empty)
{
    const weft_bundle_conv *c = from->conv;
    weft_command_conv *p = m->conv++;
    if (!c || !weft_conv_is_sound(c->dtype, c->flags))
        return refuse(m, "a convolution has an unsupported type");
    to->conv = p;
    p->key = (weft_conv_key){.dtype = c->dtype, .flags = c->flags};
    p->w.at = p->z.at = p->bias.at = WEFT_COMMAND_NO_REF;
    for (int i = 0; i < WEFT_CONV_DIMS; i++)
        WEFT_TRY(eval(m, c->dim[i], "a convolution has no size for these inputs", &p->key.dim[i]));
    return c->flags & WEFT_CONV_ATTENTION ? make_attention(m, c, p, empty)
                                          : make_images(m, c, p, empty);
}

/* -- A whole launch ------------------------------------------------------------------------- */

static weft_err make_commands(maker *m)
{
    const weft_bundle_launch *l = m->p->launch;
    bool after_gemm = false; /* the previous command is a GEMM that is not empty */
    bool has_conv = false;   /* the last convolution is not empty */
    for (m->command = 0; m->command < l->n_command; m->command++) {
        const weft_bundle_command *from = &l->command[m->command];
        weft_command *to = &m->to->at[m->to->n];
        bool empty = false;
        to->kind = from->kind;
        switch (from->kind) {
        case WEFT_COMMAND_KERNEL:
        case WEFT_COMMAND_FINISH:
        case WEFT_COMMAND_AFTER:
        case WEFT_COMMAND_INSTEAD:
            WEFT_TRY(make_kernel(m, from, to, &empty));
            break;
        case WEFT_COMMAND_CONV:
            WEFT_TRY(make_conv(m, from, to, &empty));
            has_conv = !empty;
            break;
        case WEFT_COMMAND_GEMM:
            WEFT_TRY(make_gemm(m, from, to, &empty));
            break;
        case WEFT_COMMAND_COPY:
        case WEFT_COMMAND_FILL:
            WEFT_TRY(make_move(m, from, to, &empty));
            break;
        default:
            return refuse(m, "unknown kind");
        }
        /* After an empty GEMM there is nothing to finish. */
        if (from->kind == WEFT_COMMAND_FINISH && !after_gemm)
            empty = true;
        if ((from->kind == WEFT_COMMAND_AFTER || from->kind == WEFT_COMMAND_INSTEAD) && !has_conv)
            empty = true;
        after_gemm = from->kind == WEFT_COMMAND_GEMM && !empty;
        if (empty)
            memset(to, 0, sizeof *to);
        else
            m->to->n++;
    }
    return WEFT_ERR_OK;
}

static void note_operands(const weft_prep *p, weft_command_list *to)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++) {
        const weft_slot *slot = i < p->n_in ? &p->in[i] : &p->out[i - p->n_in];
        to->align[i] = slot->align ? slot->align : 1;
        /* Only CPUs use layouts with padding, so these are the sizes of plain tensors. */
        to->bytes[i] = slot->present ? weft_tensor_bytes(&slot->tensor) : 0;
    }
    to->bytes[to->n_operand] = to->scratch_bytes;
    to->align[to->n_operand] = WEFT_ARENA_ALIGN;
}

weft_err weft_command__make_list(const weft_prep *prep, weft_command_list **out)
{
    const weft_bundle_launch *l = prep->launch;
    maker m = {.p = prep};
    size_t n_value = 0, n_gemm = 0, n_conv = 0, n_arg = (size_t)prep->n_in + prep->n_out + 1;
    int64_t scratch;
    if (!l || !l->n_command)
        return weft_diag_error(prep->diag, WEFT_ERR_UNSUP, prep->where,
                               "%s: the bundle has no commands to run it on a GPU",
                               weft_op_get(prep->op)->name);
    WEFT_TRY(eval(&m, l->scratch_bytes, "its scratch memory has no size", &scratch));
    if (scratch < 0 || scratch > INT64_MAX / 2)
        return refuse(&m, "its scratch memory has no size");
    for (uint32_t i = 0; i < l->n_command; i++) {
        n_value += l->command[i].n_arg;
        n_gemm += l->command[i].gemm != NULL;
        n_conv += l->command[i].conv != NULL;
    }
    weft_command_list *s =
        calloc(1, sizeof *s + l->n_command * sizeof *s->at + n_value * sizeof *m.value +
                      (n_gemm + 1) * sizeof *m.gemm + n_conv * sizeof *m.conv +
                      n_arg * (sizeof *s->bytes + sizeof *s->align + 1));
    if (!s)
        return WEFT_ERR_NOMEM;
    s->at = (weft_command *)(s + 1);
    m.gemm = (weft_command_gemm *)(s->at + l->n_command);
    m.conv = (weft_command_conv *)(m.gemm + n_gemm + 1);
    m.value = (weft_command_arg *)(m.conv + n_conv);
    s->bytes = (uint64_t *)(m.value + n_value);
    s->align = (uint32_t *)(s->bytes + n_arg);
    s->access = (uint8_t *)(s->align + n_arg);
    s->n_operand = prep->n_in + prep->n_out;
    s->scratch_bytes = (uint64_t)scratch;
    m.to = s;
    note_operands(prep, s);
    weft_err err = make_commands(&m);
    if (err != WEFT_ERR_OK) {
        free(s);
        return err;
    }
    *out = s;
    return WEFT_ERR_OK;
}

/* -- Limits of a device --------------------------------------------------------------------- */

weft_err weft_command__check_limits(const weft_prep *prep, const weft_command_list *commands,
                                    const weft_command_limits *limits)
{
    const weft_bundle *b = prep->engine->bundle;
    for (uint32_t i = 0; i < commands->n; i++) {
        if (!weft_command_is_kernel(commands->at[i].kind))
            continue;
        const weft_bundle_kernel *k = &b->kernel[commands->at[i].kernel];
        bool known = k->resource && limits->arch < b->n_arch;
        uint64_t shared =
            (uint64_t)k->shared_bytes + (known ? k->resource[limits->arch].shared_bytes : 0);
        uint64_t registers = known ? (uint64_t)k->resource[limits->arch].registers * k->threads : 0;
        if (k->threads == 0 || k->threads > THREADS_MAX)
            return weft_diag_error(prep->diag, WEFT_ERR_INPUT, prep->where,
                                   "kernel %s: a block has %u threads, allowed are 1 to %d",
                                   k->name, k->threads, THREADS_MAX);
        if (shared > limits->shared_bytes)
            return weft_diag_error(prep->diag, WEFT_ERR_UNSUP, prep->where,
                                   "kernel %s: a block needs %llu bytes of shared memory, %s "
                                   "has %u",
                                   k->name, (unsigned long long)shared, limits->device,
                                   limits->shared_bytes);
        if (registers > limits->register_count)
            return weft_diag_error(prep->diag, WEFT_ERR_UNSUP, prep->where,
                                   "kernel %s: a block needs %llu registers, %s has %u", k->name,
                                   (unsigned long long)registers, limits->device,
                                   limits->register_count);
    }
    return WEFT_ERR_OK;
}

weft_command_limits weft_command__limits(const char *arch)
{
    const weft_sm_limits *sm = weft_sm_limits_named(arch, strlen(arch));
    return (weft_command_limits){
        .device = arch, .shared_bytes = sm ? sm->opt_in_bytes : 48 << 10, .register_count = 65536};
}
