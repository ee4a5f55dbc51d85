/* Prints steps as C++: structures whose operator() applies the steps to one element (epilogues of
 * GEMMs) or to several consecutive elements (element-wise kernels).
 *
 * Operands are broadcast by index arithmetic. Neighbouring dims that are broadcast alike are
 * joined, so that the index of the bias of a convolution is `at / 3136ll % 64ll`, and of a GEMM's
 * bias `at % 768ll`. */
#include "codegen/cuda/gen_int.h"

#include <math.h>
#include <string.h>

typedef enum motion {
    STAYS,  /* the operand is broadcast */
    MOVES,  /* it advances with the result */
    DEPENDS /* one or the other: only the sizes of a run tell whether its dim is 1 */
} motion;

/* A run of dims [from, to) of the result along which an operand moves alike; of DEPENDS one dim. */
typedef struct segment {
    uint32_t from, to;
    motion motion;
    weft_dim own; /* DEPENDS: the operand's dim */
} segment;

typedef struct access {
    segment at[WEFT_RANK_MAX];
    uint32_t n;
    bool whole, single; /* the operand has the result's shape; the operand has one element */
} access;

/* -- Broadcasting ------------------------------------------------------------------------------ */

/* Determines how `t` is broadcast to result `o`. Dims that differ are equal in a run or the
 * operand's is 1, which the session checks. */
static void find_access(const weft_ttype *t, const weft_ttype *o, access *a)
{
    memset(a, 0, sizeof *a);
    a->whole = a->single = true;
    for (uint32_t k = 0; k < o->rank; k++) {
        uint32_t lead = o->rank - t->rank;
        weft_dim d = k < lead ? 1 : t->dim[k - lead];
        if (o->dim[k] == 1)
            continue;
        motion m = d == o->dim[k] ? MOVES : d == 1 ? STAYS : DEPENDS;
        a->whole = a->whole && m == MOVES;
        a->single = a->single && m == STAYS;
        if (a->n > 0 && a->at[a->n - 1].motion == m && m != DEPENDS)
            a->at[a->n - 1].to = k + 1;
        else
            a->at[a->n++] = (segment){k, k + 1, m, d};
    }
}

static const char *times(weft_arena *arena, const char *text, const char *factor)
{
    return strcmp(factor, "(size_t)1ll") == 0 ? text
                                              : weft_arena_printf(arena, "%s * %s", text, factor);
}

/* An expression for the index of the operand's element that belongs to element `at` of the result.
 */
static const char *index_text(weft_cuda_kernel *k, const weft_ttype *o, const access *a,
                              const char *at)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    const char *sum = NULL;
    if (a->whole)
        return at;
    weft_ttype own = *o; /* dims of the operand at the result's rank: 1 where it is broadcast */
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t d = a->at[i].from; a->at[i].motion != MOVES && d < a->at[i].to; d++)
            own.dim[d] = a->at[i].motion == STAYS ? 1 : a->at[i].own;
    for (uint32_t i = 0; i < a->n; i++) {
        const segment *s = &a->at[i];
        if (s->motion == STAYS)
            continue;
        const char *text = at;
        const char *below = weft_cuda__long(k, o, s->to, o->rank);
        if (strcmp(below, "(size_t)1ll") != 0)
            text = weft_arena_printf(arena, "%s / %s", text, below);
        if (i > 0)
            text =
                weft_arena_printf(arena, "%s %% %s", text, weft_cuda__long(k, o, s->from, s->to));
        text = times(arena, text, weft_cuda__long(k, &own, s->to, o->rank));
        if (s->motion == DEPENDS)
            text = weft_arena_printf(arena, "(%s > 1 ? %s : 0)", weft_cuda__int(k, s->own), text);
        sum = sum ? weft_arena_printf(arena, "%s + %s", sum, text) : text;
    }
    return sum ? sum : "0";
}

/* The number that divides the length of every run of consecutive elements of the result for which
 * the operand's index either advances by one (*advances) or stays the same. */
static int64_t run_length(const weft_ttype *o, const access *a, bool *advances)
{
    const segment *last = &a->at[a->n - 1];
    int64_t n = 1;
    *advances = last->motion == MOVES;
    if (last->motion == DEPENDS)
        return 1;
    for (uint32_t k = last->to; k-- > last->from;) {
        if (!weft_dim_is_const(o->dim[k]))
            break;
        n *= o->dim[k];
    }
    return n;
}

const char *weft_cuda__index(weft_cuda_kernel *k, uint32_t operand, const char *at)
{
    weft_cuda *cu = weft_cuda__of(k);
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    access a;
    find_access(weft_cuda__spread_type(cu, operand), o, &a);
    return a.single ? "0" : index_text(k, o, &a, at);
}

/* -- Expressions ------------------------------------------------------------------------------- */

enum { OPERANDS_MAX = 64 };

typedef struct chain {
    weft_cuda_kernel *k;
    weft_step step[WEFT_STEPS_MAX];
    uint32_t n_step;
    bool used[OPERANDS_MAX]; /* whether the steps read operand i */
} chain;

static weft_err parse_chain(weft_cuda_kernel *k, weft_attr_key key, chain *c)
{
    weft_cuda *cu = weft_cuda__of(k);
    const weft_attr *a = weft_attrs_find(weft_cuda__attrs(cu), key);
    uint32_t n_in = weft_node_in_count(weft_cuda__module(cu), weft_cuda__node(cu));
    *c = (chain){.k = k};
    if (!a)
        return WEFT_ERR_OK;
    if (n_in > OPERANDS_MAX)
        return weft_cuda__unsup(cu, "%u operands, at most %d", n_in, OPERANDS_MAX);
    WEFT_TRY(weft_steps_parse(a->u.strs, a->n, n_in, weft_cuda__diag(cu),
                              weft_node_where(weft_cuda__module(cu), weft_cuda__node(cu)),
                              c->step));
    c->n_step = a->n;
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t j = 0; j < c->step[i].n_args; j++)
            if (c->step[i].arg[j].kind == WEFT_ARG_INPUT)
                c->used[c->step[i].arg[j].idx] = true;
    return WEFT_ERR_OK;
}

/* A number of a step as text. Numbers that were learned or measured differ from layer to layer:
 * they become parameters of the kernel, unless the compiler simplifies a step by them. */
static const char *number_text(weft_cuda_kernel *k, const weft_step *s, float x)
{
    bool simplifies =
        s->op == WEFT_STEP_POW || s->op == WEFT_STEP_DIV || !isfinite(x) || x == 0 || x == 1;
    return simplifies || !weft_cuda__has_room(k) ? weft_cuda__f32_text(k->cu, x)
                                                 : weft_cuda__float(k, x);
}

/* Prints one line for each step; operand N is named `iN` followed by `suffix`. */
static void print_steps(const chain *c, const char *acc, const char *suffix, const char *indent,
                        weft_buf *out)
{
    for (uint32_t i = 0; i < c->n_step; i++) {
        const weft_step *s = &c->step[i];
        weft_buf_printf(out, "%sf32 s%u = step_%s(", indent, i, weft_step_name(s->op));
        for (uint32_t j = 0; j < s->n_args; j++) {
            weft_buf_puts(out, j ? ", " : "");
            switch (s->arg[j].kind) {
            case WEFT_ARG_INPUT:
                weft_buf_printf(out, "i%u%s", s->arg[j].idx, suffix);
                break;
            case WEFT_ARG_STEP:
                weft_buf_printf(out, "s%u", s->arg[j].idx);
                break;
            case WEFT_ARG_ACC:
                if (i > 0)
                    weft_buf_printf(out, "s%u", i - 1);
                else
                    weft_buf_puts(out, acc);
                break;
            default:
                weft_buf_puts(out, number_text(c->k, s, s->arg[j].number));
            }
        }
        weft_buf_puts(out, ");\n");
    }
}

/* Prints the members of the structure: pointers to operands, the sizes and numbers. Returns
 * the expression that constructs the structure. */
static const char *print_members(const chain *c, const char *name, const char *prefix,
                                 weft_buf *out)
{
    weft_cuda *cu = weft_cuda__of(c->k);
    weft_arena *arena = weft_cuda__arena(cu);
    const char *made = NULL;
    weft_buf_printf(out, "struct @_%s {\n", name);
    for (uint32_t i = 0; i < OPERANDS_MAX; i++) {
        if (!c->used[i])
            continue;
        const char *own = weft_arena_printf(arena, "%s%u", prefix, i);
        weft_buf_printf(out, "    const %s *__restrict__ %s;\n",
                        weft_dtype_name((weft_dtype)weft_cuda__in_type(cu, i)->dtype), own);
        weft_cuda__in(c->k, own, i);
        made = made ? weft_arena_printf(arena, "%s, %s", made, own) : own;
    }
    for (uint32_t i = 0; i < c->k->symbol.len; i++) {
        weft_buf_printf(out, "    int d%u;\n", i);
        made = made ? weft_arena_printf(arena, "%s, d%u", made, i)
                    : weft_arena_printf(arena, "d%u", i);
    }
    for (uint32_t i = 0; i < c->k->n_float; i++) {
        weft_buf_printf(out, "    float number%u;\n", i);
        made = made ? weft_arena_printf(arena, "%s, number%u", made, i)
                    : weft_arena_printf(arena, "number%u", i);
    }
    return weft_arena_printf(arena, "@_%s{%s}", name, made ? made : "");
}

/* -- Epilogues --------------------------------------------------------------------------------- */

/* Whether the operand has one element for each coordinate along `axis` and is broadcast elsewhere.
 */
static bool is_along(const access *a, uint32_t axis)
{
    uint32_t moving = 0;
    bool here = false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->at[i].motion != STAYS) {
            moving++;
            here = a->at[i].motion == MOVES && a->at[i].from == axis && a->at[i].to == axis + 1;
        }
    return moving == 1 && here;
}

weft_err weft_cuda__epilogue(weft_cuda_kernel *k, weft_attr_key key, int32_t axis, const char **out)
{
    return weft_cuda__sum_epilogue(k, key, axis, 1, 1, UINT32_MAX, out);
}

/* acc = acc * alpha + beta * addend */
static void print_sum(weft_cuda *cu, float alpha, float beta, uint32_t addend, weft_buf *out)
{
    if (alpha != 1)
        weft_buf_printf(out, "        acc = acc * %s;\n", weft_cuda__f32_text(cu, alpha));
    if (addend == UINT32_MAX)
        return;
    if (beta != 1)
        weft_buf_printf(out, "        acc += i%u * %s;\n", addend, weft_cuda__f32_text(cu, beta));
    else
        weft_buf_printf(out, "        acc += i%u;\n", addend);
}

weft_err weft_cuda__sum_epilogue(weft_cuda_kernel *k, weft_attr_key key, int32_t axis, float alpha,
                                 float beta, uint32_t addend, const char **out)
{
    weft_cuda *cu = weft_cuda__of(k);
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    chain c;
    WEFT_TRY(parse_chain(k, key, &c));
    if (addend != UINT32_MAX)
        c.used[addend] = true;
    weft_buf *top = weft_cuda__top(k), body = {0};
    uint32_t along = axis < 0 ? o->rank - (uint32_t)-axis : (uint32_t)axis;
    for (uint32_t i = 0; i < OPERANDS_MAX; i++) {
        access a;
        if (!c.used[i])
            continue;
        find_access(i == addend ? weft_cuda__in_type(cu, i) : weft_cuda__spread_type(cu, i), o, &a);
        const char *index = a.single ? "0" : is_along(&a, along) ? "c" : index_text(k, o, &a, "at");
        weft_buf_printf(&body, "        f32 i%u = convert<f32>(e%u[%s]);\n", i, i, index);
    }
    print_sum(cu, alpha, beta, addend, &body);
    print_steps(&c, "acc", "", "        ", &body);
    *out = print_members(&c, "epilogue", "e", top);
    weft_buf_puts(top, "    __device__ f32 operator()(f32 acc, size_t at, int c) const\n    {\n");
    weft_buf_puts(top, body.at ? body.at : "");
    if (c.n_step)
        weft_buf_printf(top, "        return s%u;\n    }\n};\n", c.n_step - 1);
    else
        weft_buf_puts(top, "        return acc;\n    }\n};\n");
    top->failed = top->failed || body.failed;
    weft_buf_finish(&body);
    return WEFT_ERR_OK;
}

/* -- Element-wise chains ----------------------------------------------------------------------- */

typedef enum load {
    LOADS_ONE,  /* one element for all of a pack */
    LOADS_PACK, /* consecutive elements */
    LOADS_EACH  /* an index for each element */
} load;

static load load_of(const weft_ttype *o, const access *a, int64_t pack)
{
    bool advances = true;
    if (a->single || a->n == 0)
        return LOADS_ONE;
    bool is_even = run_length(o, a, &advances) % pack == 0;
    if (!advances && is_even)
        return LOADS_ONE;
    return a->whole || is_even ? LOADS_PACK : LOADS_EACH;
}

/* Whether all operands are loaded by one index for a pack. */
static bool is_packed(const chain *c, const weft_ttype *o, int64_t pack)
{
    for (uint32_t i = 0; i < OPERANDS_MAX; i++) {
        access a;
        if (!c->used[i])
            continue;
        find_access(weft_cuda__spread_type(weft_cuda__of(c->k), i), o, &a);
        if (load_of(o, &a, pack) == LOADS_EACH)
            return false;
    }
    return true;
}

/* Prints the load of i<N>[]: the `pack` elements of operand `i` that start at `at`. */
static void print_load(const chain *c, uint32_t i, const weft_ttype *o, const access *a,
                       int64_t pack, weft_buf *out)
{
    weft_buf_printf(out, "        f32 i%u[N] = {};\n", i);
    load how = load_of(o, a, pack);
    if (how == LOADS_ONE) {
        const char *index = a->single || a->n == 0 ? "0" : index_text(c->k, o, a, "at");
        weft_buf_printf(out,
                        "        f32 x%u_ = convert<f32>(x%u[%s]);\n"
                        "        for (int n = 0; n < N; n++)\n"
                        "            i%u[n] = x%u_;\n",
                        i, i, index, i, i);
    } else if (how == LOADS_PACK) {
        weft_buf_printf(out, "        load_pack<N>(i%u, x%u, %s, left);\n", i, i,
                        index_text(c->k, o, a, "at"));
    } else {
        weft_buf_printf(out,
                        "        for (int n = 0; n < N; n++)\n"
                        "            if (n < left)\n"
                        "                i%u[n] = convert<f32>(x%u[%s]);\n",
                        i, i, index_text(c->k, o, a, "(at + n)"));
    }
}

weft_err weft_cuda__chain(weft_cuda_kernel *k, weft_attr_key key, int64_t pack, const char **out)
{
    weft_cuda *cu = weft_cuda__of(k);
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    chain c;
    WEFT_TRY(parse_chain(k, key, &c));
    weft_buf *top = weft_cuda__top(k), body = {0};
    if (is_packed(&c, o, pack))
        weft_cuda__share_sizes(k);
    for (uint32_t i = 0; i < OPERANDS_MAX; i++) {
        access a;
        if (!c.used[i])
            continue;
        find_access(weft_cuda__spread_type(cu, i), o, &a);
        print_load(&c, i, o, &a, pack, &body);
    }
    weft_buf_puts(&body, "#pragma unroll\n        for (int n = 0; n < N; n++) {\n");
    print_steps(&c, "0", "[n]", "            ", &body);
    weft_buf_printf(&body, "            y[n] = s%u;\n        }\n    }\n};\n", c.n_step - 1);
    *out = print_members(&c, "chain", "x", top);
    weft_buf_puts(top, "    template <int N>\n"
                       "    __device__ void operator()(f32 (&y)[N], size_t at, int left) const\n"
                       "    {\n");
    weft_buf_puts(top, body.at ? body.at : "");
    top->failed = top->failed || body.failed;
    weft_buf_finish(&body);
    return WEFT_ERR_OK;
}
