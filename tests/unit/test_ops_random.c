/* Every operator on random operands and attributes: inference and evaluation may refuse them, but
 * never crash or write outside the results (seen under the sanitizers). What inference accepts with
 * all data known has constant sizes and evaluates in exactly these; what it finds with a symbol for
 * some dimensions gives the same sizes when the symbol gets its value.
 *
 * An argument gives the rounds for each operator, for long runs. */
#include "base/random.h"
#include "base/num.h"
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 9, RESULTS = 5, NUMEL_MAX = 1 << 14 };

static int64_t rounds = 200;

static int64_t between(uint64_t *seed, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(weft_rand_split(seed) % (uint64_t)(hi - lo + 1));
}

static bool often(uint64_t *seed, int percent)
{
    return between(seed, 0, 99) < percent;
}

typedef struct trial {
    uint64_t seed;
    weft_arena *arena;
    const weft_op *op;
    bool tame;    /* operands of one type and nearly one shape: these get through more often */
    bool vectors; /* mostly of rank 1 from the second on */
    weft_attr attr[WEFT_OP_ATTR_MAX + WEFT_OP_PARAM_MAX];
    uint32_t n_attr, n_in, n_out;
    weft_tensor tensor[OPERANDS];
    bool present[OPERANDS];
} trial;

/* -- Making them up ------------------------------------------------------------------------- */

static const char *random_text(trial *t)
{
    static const char *const texts[] = {
        "",        "SAME_UPPER", "SAME_LOWER", "VALID",         "NOTSET",    "tanh",
        "none",    "LEFT",       "RIGHT",      "c16",           "nhwc",      "reflect",
        "edge",    "constant",   "wrap",       "add",           "mul",       "linear",
        "nearest", "cubic",      "bilinear",   "forward",       "reverse",   "mean",
        "sum",     "DCR",        "CRD",        "bidirectional", "ij,jk->ik", "...ij->...ji",
        "i,i",     "bij,bjk",    "floor",      "asymmetric",    "zeros"};
    return texts[weft_rand_split(&t->seed) % (sizeof texts / sizeof *texts)];
}

static const char *random_step(trial *t)
{
    static const char *const steps[] = {"relu i0",   "add i0 i1",    "relu acc",       "add acc i3",
                                        "mul s0 s0", "add i0 i1 i2", "clip acc #0 #6", "relu i9"};
    return steps[weft_rand_split(&t->seed) % (sizeof steps / sizeof *steps)];
}

static void *random_list(trial *t, uint16_t kind, uint32_t n)
{
    int64_t *ints = weft_arena_array(t->arena, n + 1, sizeof *ints);
    double *floats = weft_arena_array(t->arena, n + 1, sizeof *floats);
    const char **strs = weft_arena_array(t->arena, n + 1, sizeof *strs);
    bool steps = often(&t->seed, 50);
    for (uint32_t i = 0; i < n; i++) {
        ints[i] = t->tame              ? 1
                  : often(&t->seed, 3) ? (int64_t)weft_rand_split(&t->seed) >> 8
                                       : between(&t->seed, -2, 4);
        floats[i] = (double)between(&t->seed, -4, 8) / 2;
        strs[i] = steps ? random_step(t) : random_text(t);
    }
    return kind == WEFT_KIND_FLOATS ? (void *)floats
           : kind == WEFT_KIND_STRS ? (void *)strs
                                    : (void *)ints;
}

static void add_attr(trial *t, uint16_t key, uint16_t kind)
{
    weft_attr a = {.key = key, .kind = kind};
    uint32_t n = (uint32_t)(t->tame ? t->tensor[0].rank - 2 + between(&t->seed, 0, 1)
                                    : between(&t->seed, 0, 4));
    if (n > WEFT_RANK_MAX)
        n = 1;
    switch (kind) {
    case WEFT_KIND_INT:
        a.u.i = often(&t->seed, 3) ? (int64_t)weft_rand_split(&t->seed) : between(&t->seed, -2, 4);
        break;
    case WEFT_KIND_FLOAT:
        a.u.f = (double)between(&t->seed, -4, 8) / 2;
        break;
    case WEFT_KIND_STR:
        a.u.s = random_text(t);
        break;
    case WEFT_KIND_DTYPE:
        a.u.dtype = (weft_dtype)between(&t->seed, 0, WEFT_DTYPE_COUNT - 1);
        break;
    default:
        a.n = n;
        a.u.ints = random_list(t, kind, n);
        if (kind == WEFT_KIND_FLOATS)
            a.u.floats = random_list(t, kind, n);
        else if (kind == WEFT_KIND_STRS)
            a.u.strs = random_list(t, kind, n);
    }
    /* Sorted by key, as the attributes of nodes are. */
    uint32_t at = t->n_attr++;
    for (; at > 0 && t->attr[at - 1].key > key; at--)
        t->attr[at] = t->attr[at - 1];
    t->attr[at] = a;
}

static void random_attrs(trial *t)
{
    for (int i = 0; i < WEFT_OP_ATTR_MAX && t->op->attrs[i].key != WEFT_ATTR_NONE; i++)
        if (t->op->attrs[i].required || often(&t->seed, t->tame ? 15 : 35))
            add_attr(t, t->op->attrs[i].key, t->op->attrs[i].kind);
    for (int i = 0; i < WEFT_OP_PARAM_MAX && t->op->params[i].key != WEFT_ATTR_NONE; i++)
        if (often(&t->seed, 35))
            add_attr(t, t->op->params[i].key, often(&t->seed, 60) ? WEFT_KIND_DIMS : WEFT_KIND_INT);
}

static void random_tensor(trial *t, uint32_t i, weft_dtype usual, int32_t rank)
{
    weft_tensor *x = &t->tensor[i];
    *x = (weft_tensor){.dtype = usual, .rank = rank};
    if (t->tame)
        x->rank = i > 0 && often(&t->seed, t->vectors ? 90 : 10) ? 1 : rank;
    else if (often(&t->seed, 20))
        x->dtype = (weft_dtype)between(&t->seed, 1, WEFT_DTYPE_COUNT - 1);
    else if (often(&t->seed, 30))
        x->dtype = WEFT_DTYPE_I64;
    if (!t->tame && often(&t->seed, 40))
        x->rank = (int32_t)between(&t->seed, 0, often(&t->seed, 5) ? WEFT_RANK_MAX : 4);
    for (int32_t d = 0; d < x->rank; d++) {
        x->dim[d] = t->tame               ? 2 - (i > 0 && often(&t->seed, 5))
                    : often(&t->seed, 60) ? 2 + d % 2
                                          : between(&t->seed, 0, 4);
        if (i > 0 && d < t->tensor[0].rank && often(&t->seed, 40))
            x->dim[d] = t->tensor[0].dim[d];
    }
    int64_t n = weft_tensor_numel(x);
    x->data = weft_arena_alloc(t->arena, weft_tensor_bytes(x));
    for (int64_t k = 0; k < n; k++)
        weft_tensor_set_f64(x, k, often(&t->seed, 2) ? 1e30 : (double)between(&t->seed, -2, 4));
}

static void make_trial(trial *t, const weft_op *op)
{
    t->op = op;
    t->n_in =
        (uint32_t)between(&t->seed, op->in_min, op->in_max < OPERANDS ? op->in_max : OPERANDS);
    t->n_out =
        (uint32_t)between(&t->seed, op->out_min, op->out_max < RESULTS ? op->out_max : RESULTS);
    weft_dtype usual = often(&t->seed, 70) ? WEFT_DTYPE_F32 : WEFT_DTYPE_U8;
    int32_t rank = (int32_t)between(&t->seed, 1, 4);
    t->tame = often(&t->seed, 50);
    t->vectors = often(&t->seed, 30);
    if (t->tame && often(&t->seed, 30))
        usual = (weft_dtype)between(&t->seed, 1, WEFT_DTYPE_COUNT - 1);
    for (uint32_t i = 0; i < t->n_in; i++) {
        t->present[i] = i < op->in_min || often(&t->seed, 80);
        random_tensor(t, i, usual, rank);
    }
    random_attrs(t);
}

/* -- Running them --------------------------------------------------------------------------- */

/* With `symbolic`, some dims become symbols and no data is given. */
static weft_err infer(trial *t, bool symbolic, weft_diag *diag, weft_ttype *out,
                      weft_dimpool **out_pool)
{
    weft_operand in[OPERANDS] = {{0}};
    const weft_dim *content[RESULTS] = {NULL};
    weft_dimpool *pool = weft_dimpool_create(t->arena);
    weft_dim b = weft_dim_symbol(pool, "b", 0, 100);
    *out_pool = pool;
    for (uint32_t i = 0; i < t->n_in; i++) {
        in[i].present = t->present[i];
        in[i].type.dtype = (uint8_t)t->tensor[i].dtype;
        in[i].type.rank = (uint8_t)t->tensor[i].rank;
        for (int32_t d = 0; d < t->tensor[i].rank; d++)
            in[i].type.dim[d] = symbolic && t->tensor[i].dim[d] == 2 ? b : t->tensor[i].dim[d];
        if (!symbolic)
            in[i].data = t->tensor[i].data;
    }
    memset(out, 0, RESULTS * sizeof *out);
    weft_infer_ctx cx = {.op = t->op,
                         .attrs = {t->attr, t->n_attr},
                         .pool = pool,
                         .arena = t->arena,
                         .in = in,
                         .n_in = t->n_in,
                         .out = out,
                         .out_content = content,
                         .n_out = t->n_out,
                         .diag = diag};
    return weft_op_infer(&cx);
}

/* The symbol has the value 2. A dim that depends on data is not compared. */
static void compare_types(const trial *t, weft_dimpool *pool, const weft_ttype *symbolic,
                          const weft_ttype *concrete)
{
    const int64_t two = 2;
    for (uint32_t i = 0; i < t->n_out; i++) {
        if (symbolic[i].rank != concrete[i].rank || symbolic[i].dtype != concrete[i].dtype)
            fail_msg("%s: result %u has another type with symbols", t->op->name, i);
        for (uint32_t d = 0; d < symbolic[i].rank; d++) {
            int64_t x;
            if (weft_dim_eval(pool, symbolic[i].dim[d], &two, 1, &x) && x != concrete[i].dim[d])
                fail_msg("%s: dimension %u of result %u is %d with symbols, else %d", t->op->name,
                         d, i, (int)x, (int)concrete[i].dim[d]);
        }
    }
}

/* Results of the inferred sizes; false when one is too large for a test. */
static bool make_results(trial *t, const weft_ttype *type, weft_tensor *out)
{
    for (uint32_t i = 0; i < t->n_out; i++) {
        out[i] = (weft_tensor){.dtype = (weft_dtype)type[i].dtype, .rank = type[i].rank};
        if (weft_dtype_size(out[i].dtype) == 0)
            fail_msg("%s: result %u has no element type", t->op->name, i);
        for (int32_t d = 0; d < out[i].rank; d++) {
            if (!weft_dim_is_const(type[i].dim[d]))
                fail_msg("%s: result %u is open though all data is known", t->op->name, i);
            out[i].dim[d] = type[i].dim[d];
        }
        int64_t n = weft_tensor_numel(&out[i]);
        if (n < 0 || n > NUMEL_MAX)
            return false;
        /* A separate heap block, so that the sanitizer knows its ends. */
        out[i].data = malloc(weft_tensor_bytes(&out[i]) + (n == 0));
        assert_non_null(out[i].data);
    }
    return true;
}

static void work(const trial *t, const weft_tensor *out)
{
    weft_work_operand in[OPERANDS] = {{0}}, res[RESULTS] = {{0}};
    for (uint32_t i = 0; i < t->n_in + t->n_out; i++) {
        const weft_tensor *x = i < t->n_in ? &t->tensor[i] : &out[i - t->n_in];
        weft_work_operand *w = i < t->n_in ? &in[i] : &res[i - t->n_in];
        w->present = i >= t->n_in || t->present[i];
        w->dtype = (uint8_t)x->dtype;
        w->rank = (uint8_t)x->rank;
        memcpy(w->dim, x->dim, sizeof x->dim);
    }
    weft_work_ctx cx = {t->op, {t->attr, t->n_attr}, in, res, t->n_in, t->n_out};
    weft_work w = weft_op_work(&cx);
    if (!(w.flops >= 0) || !(w.bytes_read >= 0) || !(w.bytes_written >= 0))
        fail_msg("%s: negative work", t->op->name);
}

static weft_err eval(trial *t, weft_diag *diag, weft_tensor *out)
{
    const weft_tensor *in[OPERANDS] = {NULL};
    for (uint32_t i = 0; i < t->n_in; i++)
        in[i] = t->present[i] ? &t->tensor[i] : NULL;
    weft_eval_ctx cx = {.op = t->op,
                        .attrs = {t->attr, t->n_attr},
                        .in = in,
                        .n_in = t->n_in,
                        .out = out,
                        .n_out = t->n_out,
                        .scratch = t->arena,
                        .diag = diag};
    return weft_op_eval(&cx);
}

/* true when it came to an evaluation. */
static bool run_trial(const weft_op *op, uint64_t seed)
{
    trial t = {.seed = seed, .arena = weft_arena_create(0)};
    weft_diag *diag = weft_diag_create();
    weft_ttype type[RESULTS], symbolic[RESULTS];
    weft_dimpool *pool, *symbols;
    weft_tensor out[RESULTS] = {{0}};
    bool done = false;
    make_trial(&t, op);
    weft_err open = infer(&t, true, NULL, symbolic, &symbols);
    weft_err err = infer(&t, false, diag, type, &pool);
    /* A refusal says why. */
    assert_true(err == WEFT_ERR_OK || weft_diag_count(diag) > 0);
    if (err == WEFT_ERR_OK && open == WEFT_ERR_OK)
        compare_types(&t, symbols, symbolic, type);
    if (err == WEFT_ERR_OK && make_results(&t, type, out)) {
        work(&t, out);
        err = eval(&t, diag, out);
        assert_true(err == WEFT_ERR_OK || weft_diag_count(diag) > 0);
        done = true;
    }
    for (uint32_t i = 0; i < t.n_out; i++)
        free(out[i].data);
    weft_diag_destroy(diag);
    weft_arena_destroy(t.arena);
    return done;
}

static void test_ops_random__operands_never_crash_an_operator(void **state)
{
    (void)state;
    int64_t done = 0;
    for (int i = 1; i < WEFT_OP_COUNT; i++)
        for (int64_t k = 0; k < rounds; k++)
            done += run_trial(weft_op_get((weft_op_id)i), (uint64_t)i << 32 | (uint64_t)k);
    /* A minimum share of cases must be evaluated, or the test proves nothing. */
    assert_true(done > WEFT_OP_COUNT * rounds / 20);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_random__operands_never_crash_an_operator),
    };
    if (argc > 1 && !weft_parse_i64(argv[1], &rounds))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
