/* Collects what emitters write: kernels as text and the commands of the current launch. Each
 * distinct kernel text is stored once, as a module of its own; kernels are numbered in order of
 * first use, so that equal graphs give equal bundles. */
#include "codegen/cuda/gen_int.h"

#include "base/num.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SCRATCH_ALIGN = 256 };

/* -- The launch at hand ------------------------------------------------------------------------ */

weft_module *weft_cuda__module(const weft_cuda *cu)
{
    return cu->code->m;
}

weft_dimpool *weft_cuda__dims(const weft_cuda *cu)
{
    return weft_module_dims(cu->code->m);
}

weft_arena *weft_cuda__arena(const weft_cuda *cu)
{
    return cu->code->arena;
}

weft_diag *weft_cuda__diag(const weft_cuda *cu)
{
    return cu->code->diag;
}

weft_node weft_cuda__node(const weft_cuda *cu)
{
    return cu->node;
}

weft_attrs weft_cuda__attrs(const weft_cuda *cu)
{
    return weft_node_attrs(cu->code->m, cu->node);
}

bool weft_cuda__tf32(const weft_cuda *cu)
{
    return cu->code->options->tf32;
}

/* `t` with dim 1 behind all others. */
static const weft_ttype *put_channels_last(const weft_cuda *cu, const weft_ttype *t)
{
    weft_ttype *to = weft_arena_alloc(cu->code->arena, sizeof *to);
    *to = *t;
    to->layout = WEFT_LAYOUT_PLAIN;
    memcpy(to->dim + 1, t->dim + 2, (t->rank - 2u) * sizeof t->dim[0]);
    to->dim[t->rank - 1] = t->dim[1];
    return to;
}

const weft_ttype *weft_cuda__in_type(const weft_cuda *cu, uint32_t i)
{
    weft_val v = weft_node_in(cu->code->m, cu->node, i);
    const weft_ttype *t = v.i ? weft_val_ttype(cu->code->m, v) : NULL;
    return t && t->layout == WEFT_LAYOUT_NHWC ? put_channels_last(cu, t) : t;
}

const weft_ttype *weft_cuda__out_type(const weft_cuda *cu, uint32_t i)
{
    if (i >= weft_node_out_count(cu->code->m, cu->node))
        return NULL;
    const weft_ttype *t = weft_val_ttype(cu->code->m, weft_node_out(cu->code->m, cu->node, i));
    if (t->dtype == WEFT_DTYPE_NONE)
        return NULL;
    return t->layout == WEFT_LAYOUT_NHWC ? put_channels_last(cu, t) : t;
}

bool weft_cuda__is_last(const weft_cuda *cu, uint32_t in)
{
    weft_val v = weft_node_in(cu->code->m, cu->node, in);
    return v.i && weft_val_ttype(cu->code->m, v)->layout == WEFT_LAYOUT_NHWC;
}

bool weft_cuda__gives_last(const weft_cuda *cu)
{
    return weft_val_ttype(cu->code->m, weft_node_out(cu->code->m, cu->node, 0))->layout ==
           WEFT_LAYOUT_NHWC;
}

const weft_ttype *weft_cuda__spread_type(const weft_cuda *cu, uint32_t i)
{
    const weft_ttype *t = weft_cuda__in_type(cu, i);
    if (!t || !weft_cuda__gives_last(cu) || weft_cuda__is_last(cu, i))
        return t;
    uint32_t rank = weft_cuda__out_type(cu, 0)->rank;
    weft_ttype full = *t;
    full.rank = (uint8_t)rank;
    for (uint32_t k = 0; k < rank; k++)
        full.dim[k] = k + t->rank < rank ? 1 : t->dim[k + t->rank - rank];
    return put_channels_last(cu, &full);
}

uint32_t weft_cuda__memory_axis(const weft_cuda *cu, int64_t axis, uint32_t rank)
{
    axis += axis < 0 ? rank : 0;
    if (!weft_cuda__is_last(cu, 0) || axis == 0)
        return (uint32_t)axis;
    return axis == 1 ? rank - 1 : (uint32_t)axis - 1;
}

static weft_weight weight_of(const weft_cuda *cu, uint32_t i)
{
    weft_val v = weft_node_in(cu->code->m, cu->node, i);
    return v.i ? weft_val_weight(cu->code->m, v) : (weft_weight){0};
}

bool weft_cuda__in_is_weight(const weft_cuda *cu, uint32_t i)
{
    return weight_of(cu, i).i != 0;
}

bool weft_cuda__in_tensor(const weft_cuda *cu, uint32_t i, weft_tensor *out)
{
    weft_weight w = weight_of(cu, i);
    if (w.i)
        *out = weft_weight_tensor(cu->code->m, w);
    return w.i != 0;
}

weft_err weft_cuda__unsup(weft_cuda *cu, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    weft_module *m = cu->code->m;
    return weft_diag_error(cu->code->diag, WEFT_ERR_UNSUP, weft_node_where(m, cu->node), "%s: %s",
                           weft_node_opdef(m, cu->node)->name, text);
}

/* Reads operand `in` if it is a weight of i32 or i64. */
static bool weight_ints(weft_cuda *cu, uint32_t in, const weft_dim **out, uint32_t *out_n)
{
    weft_tensor t;
    if (!weft_cuda__in_tensor(cu, in, &t))
        return false;
    uint64_t n = 1;
    for (int32_t k = 0; k < t.rank; k++)
        n *= (uint64_t)t.dim[k];
    if ((t.dtype != WEFT_DTYPE_I64 && t.dtype != WEFT_DTYPE_I32) || n > UINT32_MAX)
        return false;
    weft_dim *dim = weft_arena_array(cu->code->arena, (size_t)n, sizeof *dim);
    const uint8_t *at = t.data;
    for (uint64_t i = 0; i < n; i++) {
        int32_t narrow;
        if (t.dtype == WEFT_DTYPE_I64) {
            memcpy(&dim[i], at + i * sizeof dim[i], sizeof dim[i]);
        } else {
            memcpy(&narrow, at + i * sizeof narrow, sizeof narrow);
            dim[i] = narrow;
        }
    }
    *out = dim;
    *out_n = (uint32_t)n;
    return true;
}

bool weft_cuda__param(weft_cuda *cu, uint32_t in, weft_attr_key key, const weft_dim **out,
                      uint32_t *out_n)
{
    const weft_attr *a = weft_attrs_find(weft_cuda__attrs(cu), key);
    *out = NULL;
    *out_n = 0;
    if (a && (a->kind == WEFT_KIND_DIMS || a->kind == WEFT_KIND_INTS)) {
        *out = a->kind == WEFT_KIND_DIMS ? a->u.dims : a->u.ints;
        *out_n = a->n;
        return true;
    }
    if (a && a->kind == WEFT_KIND_INT) {
        weft_dim *dim = weft_arena_alloc(cu->code->arena, sizeof *dim);
        *dim = a->u.i;
        *out = dim;
        *out_n = 1;
        return true;
    }
    if (a || !weft_node_in(cu->code->m, cu->node, in).i)
        return !a;
    return weight_ints(cu, in, out, out_n);
}

/* -- Dims -------------------------------------------------------------------------------------- */

weft_dim weft_cuda__mul(weft_cuda *cu, weft_dim a, weft_dim b)
{
    return weft_dim_mul(weft_cuda__dims(cu), a, b);
}

weft_dim weft_cuda__add(weft_cuda *cu, weft_dim a, weft_dim b)
{
    return weft_dim_add(weft_cuda__dims(cu), a, b);
}

weft_dim weft_cuda__ceil_div(weft_cuda *cu, weft_dim a, int64_t b)
{
    return weft_dim_floordiv(weft_cuda__dims(cu), weft_cuda__add(cu, a, b - 1), b);
}

weft_dim weft_cuda__product(weft_cuda *cu, const weft_ttype *t, uint32_t from, uint32_t to)
{
    weft_dim d = 1;
    for (uint32_t k = from; k < to; k++)
        d = weft_cuda__mul(cu, d, t->dim[k]);
    return d;
}

weft_dim weft_cuda__numel(weft_cuda *cu, const weft_ttype *t)
{
    return weft_cuda__product(cu, t, 0, t->rank);
}

weft_dim weft_cuda__packs(weft_cuda *cu, weft_dim n, int64_t pack, uint32_t threads)
{
    return weft_cuda__ceil_div(cu, n, pack * threads);
}

/* -- Kernels ----------------------------------------------------------------------------------- */

weft_cuda_kernel *weft_cuda__kernel(weft_cuda *cu, const char *stem, uint32_t threads)
{
    weft_cuda_kernel *k = weft_arena_alloc(cu->code->arena, sizeof *k);
    k->cu = cu;
    k->stem = weft_arena_strdup(cu->code->arena, stem);
    k->threads = threads;
    k->next_open = cu->open;
    cu->open = k;
    return k;
}

weft_cuda *weft_cuda__of(const weft_cuda_kernel *k)
{
    return k->cu;
}

void weft_cuda__min_blocks(weft_cuda_kernel *k, uint32_t blocks)
{
    k->min_blocks = blocks;
}

void weft_cuda__include(weft_cuda_kernel *k, const char *name)
{
    for (uint32_t i = 0; i < k->include.len; i++)
        if (strcmp(k->include.at[i], name) == 0)
            return;
    WEFT_VEC_PUSH(k->cu->code->arena, &k->include, weft_arena_strdup(k->cu->code->arena, name));
}

static void add_param(weft_cuda_kernel *k, const char *text, weft_bundle_arg arg)
{
    weft_cuda__kernel_param p = {text, arg};
    WEFT_VEC_PUSH(k->cu->code->arena, &k->param, p);
}

void weft_cuda__pointer(weft_cuda_kernel *k, const char *name, weft_dtype dtype, bool constant,
                        weft_bundle_arg arg)
{
    add_param(k,
              weft_arena_printf(k->cu->code->arena, "%s%s *__restrict__ %s",
                                constant ? "const " : "", weft_dtype_name(dtype), name),
              arg);
}

void weft_cuda__in(weft_cuda_kernel *k, const char *name, uint32_t operand)
{
    const weft_ttype *t = weft_cuda__in_type(k->cu, operand);
    weft_cuda__pointer(k, name, (weft_dtype)t->dtype, true, weft_cuda__at_in(operand, 0));
}

void weft_cuda__out(weft_cuda_kernel *k, const char *name, uint32_t result)
{
    const weft_ttype *t = weft_cuda__out_type(k->cu, result);
    weft_cuda__pointer(k, name, (weft_dtype)t->dtype, false, weft_cuda__at_out(result, 0));
}

void weft_cuda__scratch(weft_cuda_kernel *k, const char *name, weft_dtype dtype, weft_dim at,
                        bool constant)
{
    weft_cuda__pointer(k, name, dtype, constant, weft_cuda__at_scratch(at));
}

void weft_cuda__share_sizes(weft_cuda_kernel *k)
{
    k->shares_sizes = true;
}

bool weft_cuda__has_room(const weft_cuda_kernel *k)
{
    return k->symbol.len + k->n_float < WEFT_CUDA_SHARED_MAX;
}

/* Not representable as `int`. */
static bool is_long(weft_dim d)
{
    return weft_dim_is_const(d) && (d > INT_MAX || d < INT_MIN);
}

/* Whether the constant is written into the text. */
static bool is_fixed(const weft_cuda_kernel *k, weft_dim d)
{
    return weft_dim_is_const(d) &&
           (!k->shares_sizes || d == 0 || d == 1 || !weft_cuda__has_room(k));
}

const char *weft_cuda__int(weft_cuda_kernel *k, weft_dim d)
{
    return is_fixed(k, d)
               ? weft_arena_printf(k->cu->code->arena, is_long(d) ? "%lldll" : "%lld", (long long)d)
               : weft_cuda__number(k, d);
}

static const char *add_number(weft_cuda_kernel *k, weft_dim d)
{
    weft_arena *arena = k->cu->code->arena;
    const char *name = weft_arena_printf(arena, "d%u", k->symbol.len);
    WEFT_VEC_PUSH(arena, &k->symbol, d);
    add_param(k, weft_arena_printf(arena, "int %s", name),
              (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_INT, .dim = d});
    return name;
}

const char *weft_cuda__number(weft_cuda_kernel *k, weft_dim d)
{
    if (is_long(d))
        return weft_arena_printf(k->cu->code->arena, "%lldll", (long long)d);
    for (uint32_t i = 0; i < k->symbol.len; i++)
        if (k->symbol.at[i] == d)
            return weft_arena_printf(k->cu->code->arena, "d%u", i);
    return add_number(k, d);
}

const char *weft_cuda__own_number(weft_cuda_kernel *k, weft_dim d)
{
    return weft_dim_is_const(d) && !is_long(d) ? add_number(k, d) : weft_cuda__number(k, d);
}

uint32_t weft_cuda__int_count(const weft_cuda_kernel *k)
{
    return k->symbol.len;
}

const char *weft_cuda__float(weft_cuda_kernel *k, float f)
{
    weft_arena *arena = k->cu->code->arena;
    /* Not "f%u": f16 and f32 are types. */
    const char *name = weft_arena_printf(arena, "number%u", k->n_float++);
    add_param(k, weft_arena_printf(arena, "float %s", name),
              (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_FLOAT, .f = f});
    return name;
}

const char *weft_cuda__long_of(weft_cuda_kernel *k, const weft_dim *dim, uint32_t n)
{
    weft_arena *arena = k->cu->code->arena;
    weft_dim known = 1; /* multiplied by the pool, which detects overflow */
    const char *text = "";
    for (uint32_t i = 0; i < n; i++) {
        if (weft_dim_is_const(dim[i]))
            known = weft_cuda__mul(k->cu, known, dim[i]);
        else
            text = weft_arena_printf(arena, "%s * %s", text, weft_cuda__int(k, dim[i]));
    }
    const char *size = is_fixed(k, known) || is_long(known)
                           ? weft_arena_printf(arena, "%lldll", (long long)known)
                           : weft_cuda__number(k, known);
    if (!*text)
        return weft_arena_printf(arena, "(size_t)%s", size);
    return known == 1 ? weft_arena_printf(arena, "((size_t)%s)", text + 3)
                      : weft_arena_printf(arena, "((size_t)%s%s)", size, text);
}

const char *weft_cuda__long(weft_cuda_kernel *k, const weft_ttype *t, uint32_t from, uint32_t to)
{
    return weft_cuda__long_of(k, t->dim + from, to - from);
}

weft_buf *weft_cuda__top(weft_cuda_kernel *k)
{
    return &k->top;
}

weft_buf *weft_cuda__body(weft_cuda_kernel *k)
{
    return &k->body;
}

const char *weft_cuda__f32_text(weft_cuda *cu, float x)
{
    if (!isfinite(x)) {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return weft_arena_printf(cu->code->arena, "__int_as_float((int)0x%08xu)", bits);
    }
    weft_buf text = {0};
    weft_buf_put_f32(&text, x);
    bool is_float = text.at && strpbrk(text.at, ".e");
    /* A negative number is put in parentheses: its sign may follow another operator. */
    const char *copy = weft_arena_printf(cu->code->arena, x < 0 || signbit(x) ? "(%s%sf)" : "%s%sf",
                                         text.at ? text.at : "", is_float ? "" : ".0");
    weft_buf_finish(&text);
    return copy;
}

/* -- Ending a kernel --------------------------------------------------------------------------- */

static void print_kernel(const weft_cuda_kernel *k, weft_buf *out)
{
    if (k->top.at)
        weft_buf_puts(out, k->top.at);
    weft_buf_printf(out, "extern \"C\" __global__ void __launch_bounds__(%u", k->threads);
    if (k->min_blocks)
        weft_buf_printf(out, ", %u", k->min_blocks);
    weft_buf_puts(out, ")\n@(");
    for (uint32_t i = 0; i < k->param.len; i++)
        weft_buf_printf(out, "%s%s", i ? ", " : "", k->param.at[i].text);
    weft_buf_printf(out, ")\n{\n%s}\n", k->body.at ? k->body.at : "");
}

/* Returns `text` with each '@' replaced by `name`. */
static const char *name_kernel(weft_arena *arena, const char *text, const char *name)
{
    weft_buf out = {0};
    for (; *text; text++) {
        if (*text == '@')
            weft_buf_puts(&out, name);
        else
            weft_buf_putc(&out, *text);
    }
    return weft_buf_keep(&out, arena);
}

static bool same_includes(const weft_cuda_kernel *a, const weft_cuda__made *b)
{
    if (a->include.len != b->n_include)
        return false;
    for (uint32_t i = 0; i < b->n_include; i++)
        if (strcmp(a->include.at[i], b->include[i]) != 0)
            return false;
    return true;
}

/* Stem and hash; another hash if another kernel has this name. */
static const char *choose_name(weft_cuda *cu, const char *stem, uint64_t hash)
{
    const char *name;
    do {
        name = weft_arena_printf(cu->code->arena, "%s_%08x", stem, (uint32_t)hash);
        hash = weft_hash_mix(hash, 1);
    } while (weft_names_find(cu->names, name, strlen(name)));
    weft_names_add(cu->names, name, strlen(name));
    return name;
}

/* Returns the number of the kernel with this text, which is added if it is new. */
static uint32_t add_kernel(weft_cuda_kernel *k, const char *text, uint32_t shared_bytes)
{
    weft_cuda *cu = k->cu;
    weft_arena *arena = cu->code->arena;
    uint64_t hash = weft_hash64(text, strlen(text), shared_bytes), chain = 0;
    weft_map_get(cu->made_by_hash, hash, &chain);
    for (uint64_t i = chain; i; i = cu->made.at[i - 1].next) {
        const weft_cuda__made *e = &cu->made.at[i - 1];
        if (e->shared_bytes == shared_bytes && strcmp(e->stem, k->stem) == 0 &&
            strcmp(e->key, text) == 0 && same_includes(k, e))
            return (uint32_t)i - 1;
    }
    weft_cuda__made e = {.stem = k->stem,
                         .key = text,
                         .threads = k->threads,
                         .shared_bytes = shared_bytes,
                         .include = k->include.at,
                         .n_include = k->include.len,
                         .next = (uint32_t)chain};
    weft_module *m = cu->code->m;
    const char *item = weft_node_loc(m, cu->node).item;
    e.name = choose_name(cu, k->stem, hash);
    e.text = name_kernel(arena, text, e.name);
    e.origin = weft_arena_printf(arena, "%s%s%s", weft_node_opdef(m, cu->node)->name,
                                 item && *item ? " " : "", item ? item : "");
    WEFT_VEC_PUSH(arena, &cu->made, e);
    weft_map_put(cu->made_by_hash, hash, cu->made.len);
    return cu->made.len - 1;
}

static weft_dim carry(weft_cuda *cu, weft_dim d)
{
    return cu->code->carry(cu->code->user, d);
}

static weft_bundle_arg carry_arg(weft_cuda *cu, weft_bundle_arg arg)
{
    arg.dim = carry(cu, arg.dim);
    return arg;
}

static void close_kernel(weft_cuda_kernel *k)
{
    weft_cuda_kernel **link = &k->cu->open;
    while (*link && *link != k)
        link = &(*link)->next_open;
    if (*link)
        *link = k->next_open;
    weft_buf_finish(&k->top);
    weft_buf_finish(&k->body);
}

void weft_cuda__launch(weft_cuda_kernel *k, weft_dim gx, weft_dim gy, weft_dim gz,
                       uint32_t dynamic_shared_bytes)
{
    weft_cuda *cu = k->cu;
    weft_arena *arena = cu->code->arena;
    weft_buf text = {0};
    print_kernel(k, &text);
    bool failed = k->top.failed || k->body.failed;
    const char *copy = weft_buf_keep(&text, arena);
    if (failed)
        cu->out_of_memory = true;
    weft_bundle_arg *arg = weft_arena_array(arena, k->param.len, sizeof *arg);
    for (uint32_t i = 0; i < k->param.len; i++)
        arg[i] = carry_arg(cu, k->param.at[i].arg);
    weft_bundle_command command = {.kind = WEFT_COMMAND_KERNEL,
                                   .kernel = add_kernel(k, copy, dynamic_shared_bytes),
                                   .grid = {carry(cu, gx), carry(cu, gy), carry(cu, gz)},
                                   .arg = arg,
                                   .n_arg = k->param.len};
    WEFT_VEC_PUSH(arena, &cu->command, command);
    close_kernel(k);
}

/* -- Other commands ---------------------------------------------------------------------------- */

weft_dim weft_cuda__scratch_bytes(weft_cuda *cu, weft_dim bytes)
{
    weft_dim at = cu->scratch;
    weft_dim room =
        weft_cuda__mul(cu, weft_cuda__ceil_div(cu, bytes, SCRATCH_ALIGN), SCRATCH_ALIGN);
    cu->scratch = weft_cuda__add(cu, at, room);
    return at;
}

void weft_cuda__gemm(weft_cuda *cu, const weft_bundle_gemm *gemm)
{
    weft_bundle_gemm *g = weft_arena_alloc(cu->code->arena, sizeof *g);
    *g = *gemm;
    weft_dim *const dim[] = {&g->m,        &g->n,        &g->k,        &g->batch,
                             &g->lda,      &g->ldb,      &g->ldc,      &g->ldd,
                             &g->stride_a, &g->stride_b, &g->stride_c, &g->stride_d};
    weft_bundle_arg *const arg[] = {&g->a, &g->b, &g->c, &g->d, &g->bias};
    for (size_t i = 0; i < sizeof dim / sizeof dim[0]; i++)
        *dim[i] = carry(cu, *dim[i]);
    for (size_t i = 0; i < sizeof arg / sizeof arg[0]; i++)
        *arg[i] = carry_arg(cu, *arg[i]);
    g->tf32 = g->dtype == WEFT_DTYPE_F32 && weft_cuda__tf32(cu);
    weft_bundle_command command = {.kind = WEFT_COMMAND_GEMM, .gemm = g};
    WEFT_VEC_PUSH(cu->code->arena, &cu->command, command);
}

void weft_cuda__conv(weft_cuda *cu, const weft_bundle_conv *conv)
{
    weft_bundle_conv *c = weft_arena_alloc(cu->code->arena, sizeof *c);
    *c = *conv;
    weft_bundle_arg *const arg[] = {&c->x, &c->w, &c->y, &c->z, &c->bias};
    for (size_t i = 0; i < WEFT_CONV_DIMS; i++)
        c->dim[i] = carry(cu, c->dim[i]);
    for (size_t i = 0; i < sizeof arg / sizeof arg[0]; i++)
        *arg[i] = carry_arg(cu, *arg[i]);
    if (c->dtype == WEFT_DTYPE_F32 && !(c->flags & WEFT_CONV_POOLS) && weft_cuda__tf32(cu))
        c->flags |= WEFT_CONV_TF32;
    weft_bundle_command command = {.kind = WEFT_COMMAND_CONV, .conv = c};
    WEFT_VEC_PUSH(cu->code->arena, &cu->command, command);
}

uint32_t weft_cuda__command_count(const weft_cuda *cu)
{
    return cu->command.len;
}

void weft_cuda__depends(weft_cuda *cu, uint32_t first, weft_command_kind kind)
{
    for (uint32_t i = first; i < cu->command.len; i++)
        cu->command.at[i].kind = (uint8_t)kind;
}

uint32_t weft_cuda__axis(const weft_cuda *cu, int64_t otherwise, uint32_t rank)
{
    return weft_cuda__memory_axis(
        cu, weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_AXIS, otherwise), rank);
}

void weft_cuda__each(weft_cuda_kernel *k, const weft_dim *dim, uint32_t n)
{
    weft_buf_printf(weft_cuda__body(k),
                    "    const size_t at = (size_t)blockIdx.x * %u + threadIdx.x;\n"
                    "    if (at >= %s)\n        return;\n",
                    k->threads, weft_cuda__long_of(k, dim, n));
}

void weft_cuda__finishes(weft_cuda *cu)
{
    cu->command.at[cu->command.len - 1].kind = WEFT_COMMAND_FINISH;
}

static void add_bytes(weft_cuda *cu, weft_command_kind kind, const weft_bundle_arg *from,
                      uint32_t n, weft_dim bytes)
{
    weft_bundle_arg *arg = weft_arena_array(cu->code->arena, n, sizeof *arg);
    for (uint32_t i = 0; i < n; i++)
        arg[i] = carry_arg(cu, from[i]);
    weft_bundle_command command = {
        .kind = (uint8_t)kind, .arg = arg, .n_arg = n, .bytes = carry(cu, bytes)};
    WEFT_VEC_PUSH(cu->code->arena, &cu->command, command);
}

void weft_cuda__copy(weft_cuda *cu, weft_bundle_arg to, weft_bundle_arg from, weft_dim bytes)
{
    add_bytes(cu, WEFT_COMMAND_COPY, (weft_bundle_arg[]){to, from}, 2, bytes);
}

void weft_cuda__fill(weft_cuda *cu, weft_bundle_arg to, weft_dim bytes)
{
    add_bytes(cu, WEFT_COMMAND_FILL, &to, 1, bytes);
}

/* -- One node ---------------------------------------------------------------------------------- */

weft_err weft_cuda__emit_node(weft_cuda *cu, weft_node n, weft_cuda_emit_fn emit,
                              weft_bundle_launch *launch)
{
    weft_arena *arena = cu->code->arena;
    cu->node = n;
    cu->scratch = 0;
    memset(&cu->command, 0, sizeof cu->command);
    WEFT_TRY(emit(cu, n));
    if (cu->open)
        return weft_diag_error(cu->code->diag, WEFT_ERR_BUG, weft_node_where(cu->code->m, n),
                               "%s: kernel %s was not launched",
                               weft_node_opdef(cu->code->m, n)->name, cu->open->stem);
    if (cu->out_of_memory)
        return weft_diag_error(cu->code->diag, WEFT_ERR_NOMEM, (weft_where){0},
                               "out of memory while writing kernels");
    weft_bundle_command *command = weft_arena_array(arena, cu->command.len, sizeof *command);
    if (cu->command.len)
        memcpy(command, cu->command.at, cu->command.len * sizeof *command);
    launch->command = command;
    launch->n_command = cu->command.len;
    launch->scratch_bytes = carry(cu, cu->scratch);
    return WEFT_ERR_OK;
}

/* -- Modules ----------------------------------------------------------------------------------- */

/* The files that the kernel includes, then the kernel. The #line directive makes errors of the
 * compiler name it. */
static const char *print_module(weft_arena *arena, const weft_cuda__made *made)
{
    weft_buf text = {0};
    for (uint32_t i = 0; i < made->n_include; i++)
        weft_buf_printf(&text, "#include \"%s\"\n", made->include[i]);
    weft_buf_printf(&text, "\n#line 1 \"%s\"\n%s", made->name, made->text);
    return weft_buf_keep(&text, arena);
}

weft_cuda_source *weft_cuda__sources(weft_cuda *cu)
{
    weft_arena *arena = cu->code->arena;
    weft_cuda_source *source = weft_arena_array(arena, cu->made.len, sizeof *source);
    for (uint32_t i = 0; i < cu->made.len; i++) {
        const weft_cuda__made *made = &cu->made.at[i];
        source[i] = (weft_cuda_source){print_module(arena, made), made->name, made->origin};
    }
    return source;
}

weft_cuda *weft_cuda__start(weft_device_code *code)
{
    weft_cuda *cu = weft_arena_alloc(code->arena, sizeof *cu);
    cu->code = code;
    cu->made_by_hash = weft_map_create(code->arena);
    cu->names = weft_names_create(code->arena);
    return cu;
}

void weft_cuda__stop(weft_cuda *cu)
{
    while (cu->open)
        close_kernel(cu->open);
}
