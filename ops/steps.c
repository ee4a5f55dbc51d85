/* The steps of `ew` kernels and epilogues: reading, checking, and running them in blocks. */
#include "ops/op_int.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t n_args;
} rows[WEFT_STEP_COUNT] = {
#define S(id, text, n_args) [WEFT_STEP_##id] = {text, n_args},
#include "ops/steps.def"
#undef S
};

const char *weft_step_name(weft_step_op op)
{
    return (unsigned)op < WEFT_STEP_COUNT ? rows[op].name : "?";
}

uint32_t weft_step_n_args(weft_step_op op)
{
    return (unsigned)op < WEFT_STEP_COUNT ? rows[op].n_args : 0;
}

/* -- Parsing -------------------------------------------------------------------------------- */

enum { WORD_MAX = 40 };

/* The next word of *s, blanks skipped; false at the end or when it is too long. */
static bool next_word(const char **s, char *word)
{
    const char *p = *s;
    while (*p == ' ')
        p++;
    size_t len = strcspn(p, " ");
    if (len == 0 || len >= WORD_MAX)
        return false;
    memcpy(word, p, len);
    word[len] = 0;
    *s = p + len;
    return true;
}

static bool parse_index(const char *s, uint32_t limit, uint32_t *out)
{
    int64_t i;
    if (s[0] < '0' || s[0] > '9' || !weft_parse_i64(s, &i) || i >= (int64_t)limit)
        return false;
    *out = (uint32_t)i;
    return true;
}

/* -inf and inf are numbers too. */
static bool parse_number(const char *s, float *out)
{
    double x;
    if (strcmp(s, "inf") == 0 || strcmp(s, "-inf") == 0) {
        *out = s[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (!weft_parse_f64(s, &x))
        return false;
    *out = (float)x;
    return true;
}

static bool parse_arg(const char *word, uint32_t n_in, uint32_t step, weft_step *out, uint32_t i)
{
    switch (word[0]) {
    case 'i':
        out->arg[i].kind = WEFT_ARG_INPUT;
        return parse_index(word + 1, n_in, &out->arg[i].idx);
    case 's':
        out->arg[i].kind = WEFT_ARG_STEP;
        return parse_index(word + 1, step, &out->arg[i].idx);
    case 'a':
        out->arg[i].kind = WEFT_ARG_ACC;
        return strcmp(word, "acc") == 0;
    case '#':
        out->arg[i].kind = WEFT_ARG_NUMBER;
        return parse_number(word + 1, &out->arg[i].number);
    default:
        return false;
    }
}

static bool parse_step(const char *text, uint32_t n_in, uint32_t step, weft_step *out)
{
    char word[WORD_MAX];
    memset(out, 0, sizeof *out);
    if (!next_word(&text, word))
        return false;
    uint32_t op = 0;
    while (op < WEFT_STEP_COUNT && strcmp(rows[op].name, word) != 0)
        op++;
    if (op == WEFT_STEP_COUNT)
        return false;
    out->op = (weft_step_op)op;
    out->n_args = rows[op].n_args;
    for (uint32_t i = 0; i < out->n_args; i++)
        if (!next_word(&text, word) || !parse_arg(word, n_in, step, out, i))
            return false;
    return text[strspn(text, " ")] == 0;
}

weft_err weft_steps_parse(const char *const *text, uint32_t n, uint32_t n_in, weft_diag *diag,
                          weft_where where, weft_step *out)
{
    if (n > WEFT_STEPS_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "steps: %u of them, at most %d", n,
                               WEFT_STEPS_MAX);
    for (uint32_t i = 0; i < n; i++)
        if (!parse_step(text[i], n_in, i, &out[i]))
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "steps: cannot read \"%s\"",
                                   text[i]);
    return WEFT_ERR_OK;
}

/* -- Meaning -------------------------------------------------------------------------------- */

/* x within 0 .. 1; NaN stays. */
static float clamp01(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* log(1 + e^x) without overflow. */
static float softplus(float x)
{
    return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

/* x / scale, rounded half to even, plus the zero point, saturated; NaN gives `lo`. */
static float quantize(const float *arg, float lo, float hi)
{
    float y = rintf(arg[0] / arg[1]) + arg[2];
    return y > lo ? (y < hi ? y : hi) : lo;
}

float weft_step_apply(weft_step_op op, const float *arg)
{
    float x = arg[0];
    switch (op) {
    case WEFT_STEP_ADD:
        return x + arg[1];
    case WEFT_STEP_SUB:
        return x - arg[1];
    case WEFT_STEP_MUL:
        return x * arg[1];
    case WEFT_STEP_DIV:
        return x / arg[1];
    case WEFT_STEP_POW:
        return arg[1] == 2 ? x * x : powf(x, arg[1]);
    case WEFT_STEP_MIN:
        return x < arg[1] || x != x ? x : arg[1];
    case WEFT_STEP_MAX:
        return x > arg[1] || x != x ? x : arg[1];
    case WEFT_STEP_RELU:
        return x < 0 ? 0 : x;
    case WEFT_STEP_CLIP:
        x = x < arg[1] ? arg[1] : x;
        return x > arg[2] ? arg[2] : x;
    case WEFT_STEP_SIGMOID:
        return 1 / (1 + expf(-x));
    case WEFT_STEP_TANH:
        return tanhf(x);
    case WEFT_STEP_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case WEFT_STEP_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case WEFT_STEP_SILU:
        return x / (1 + expf(-x));
    case WEFT_STEP_ERF:
        return erff(x);
    case WEFT_STEP_EXP:
        return expf(x);
    case WEFT_STEP_LOG:
        return logf(x);
    case WEFT_STEP_SQRT:
        return sqrtf(x);
    case WEFT_STEP_RSQRT:
        return 1 / sqrtf(x);
    case WEFT_STEP_RECIPROCAL:
        return 1 / x;
    case WEFT_STEP_ABS:
        return fabsf(x);
    case WEFT_STEP_NEG:
        return -x;
    case WEFT_STEP_SQUARE:
        return x * x;
    case WEFT_STEP_LEAKY_RELU:
        return x < 0 ? arg[1] * x : x;
    case WEFT_STEP_ELU:
        return x < 0 ? arg[1] * expm1f(x) : x;
    case WEFT_STEP_HARD_SIGMOID:
        return clamp01(arg[1] * x + arg[2]);
    case WEFT_STEP_HARD_SWISH:
        return x * clamp01(x / 6 + 0.5f);
    case WEFT_STEP_SOFTPLUS:
        return softplus(x);
    case WEFT_STEP_WHERE:
        return x != 0 ? arg[1] : arg[2];
    case WEFT_STEP_QUANTIZE_U8:
        return quantize(arg, 0, 255);
    case WEFT_STEP_QUANTIZE_I8:
        return quantize(arg, -128, 127);
    case WEFT_STEP_DEQUANTIZE:
        return (x - arg[2]) * arg[1];
    case WEFT_STEP_IDENTITY:
    case WEFT_STEP_COUNT:
        break;
    }
    return x;
}

/* One step over a block. The cheap and frequent ones have loops of their own. */
static void apply_block(weft_step_op op, const float *const *arg, uint32_t n_args, float *out,
                        int64_t n)
{
    const float *a = arg[0], *b = arg[1];
    switch (op) {
    case WEFT_STEP_ADD:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] + b[i];
        return;
    case WEFT_STEP_SUB:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] - b[i];
        return;
    case WEFT_STEP_MUL:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] * b[i];
        return;
    case WEFT_STEP_DIV:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] / b[i];
        return;
    case WEFT_STEP_RELU:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] < 0 ? 0 : a[i];
        return;
    default:
        for (int64_t i = 0; i < n; i++) {
            float x[WEFT_STEP_ARGS_MAX] = {0};
            for (uint32_t j = 0; j < n_args; j++)
                x[j] = arg[j][i];
            out[i] = weft_step_apply(op, x);
        }
    }
}

/* -- Evaluation ----------------------------------------------------------------------------- */

enum { NOT_USED = WEFT_ITER_MAX };

/* Operands of a node with steps, used by them or not. */
enum { OPERANDS_MAX = WEFT_ITER_MAX + WEFT_STEPS_MAX };

typedef struct program {
    uint32_t n;
    bool has_acc;
    weft_step step[WEFT_STEPS_MAX];
    uint8_t slot[OPERANDS_MAX]; /* operand number to operand of the map */
    float *reg;                 /* [n][WEFT_MAP_BLOCK] results of steps */
    float *number;              /* [WEFT_STEP_ARGS_MAX][WEFT_MAP_BLOCK] */
} program;

static void run_program(const void *state, const float *const *in, float *out, int64_t n)
{
    const program *p = state;
    for (uint32_t k = 0; k < p->n; k++) {
        const weft_step *step = &p->step[k];
        const float *arg[WEFT_STEP_ARGS_MAX] = {0};
        for (uint32_t j = 0; j < step->n_args; j++) {
            switch (step->arg[j].kind) {
            case WEFT_ARG_INPUT:
                arg[j] = in[p->slot[step->arg[j].idx]];
                break;
            case WEFT_ARG_STEP:
                arg[j] = p->reg + (size_t)step->arg[j].idx * WEFT_MAP_BLOCK;
                break;
            case WEFT_ARG_ACC:
                arg[j] = k == 0 ? in[0] : p->reg + (size_t)(k - 1) * WEFT_MAP_BLOCK;
                break;
            case WEFT_ARG_NUMBER: {
                float *fill = p->number + (size_t)j * WEFT_MAP_BLOCK;
                for (int64_t i = 0; i < n; i++)
                    fill[i] = step->arg[j].number;
                arg[j] = fill;
                break;
            }
            }
        }
        apply_block(step->op, arg, step->n_args, p->reg + (size_t)k * WEFT_MAP_BLOCK, n);
    }
    if (p->n > 0)
        memcpy(out, p->reg + (size_t)(p->n - 1) * WEFT_MAP_BLOCK, (size_t)n * sizeof *out);
}

weft_err weft_steps__eval(weft_eval_ctx *cx, weft_attr_key key, const weft_tensor *acc,
                          const weft_tensor *out)
{
    const weft_attr *a = weft_attrs_find(cx->attrs, key);
    const weft_tensor *in[WEFT_ITER_MAX + 1];
    int32_t n = 0;
    if (a == NULL)
        return WEFT_ERR_OK;
    if (cx->n_in > OPERANDS_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "%u operands, at most %d", cx->n_in, OPERANDS_MAX);
    program *p = weft_arena_alloc(cx->scratch, sizeof *p);
    WEFT_TRY(weft_steps_parse(a->u.strs, a->n, cx->n_in, cx->diag, cx->where, p->step));
    p->n = a->n;
    if (acc != NULL)
        in[n++] = acc;
    memset(p->slot, NOT_USED, sizeof p->slot);
    for (uint32_t k = 0; k < p->n; k++) {
        for (uint32_t j = 0; j < p->step[k].n_args; j++) {
            uint32_t idx = p->step[k].arg[j].idx;
            if (p->step[k].arg[j].kind == WEFT_ARG_ACC && k == 0 && acc == NULL)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the first step has no `acc`");
            if (p->step[k].arg[j].kind != WEFT_ARG_INPUT || p->slot[idx] != NOT_USED)
                continue;
            if (cx->in[idx] == NULL)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", idx);
            if (n == WEFT_ITER_MAX)
                return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "over %d operands", WEFT_ITER_MAX);
            p->slot[idx] = (uint8_t)n;
            in[n++] = cx->in[idx];
        }
    }
    p->reg = weft_arena_array(cx->scratch, (size_t)(p->n + 1) * WEFT_MAP_BLOCK, sizeof(float));
    p->number =
        weft_arena_array(cx->scratch, (size_t)WEFT_STEP_ARGS_MAX * WEFT_MAP_BLOCK, sizeof(float));
    return weft_eval__map_f32(cx, out, in, n, run_program, p);
}

weft_err weft_eval_ew(weft_eval_ctx *cx)
{
    return weft_steps__eval(cx, WEFT_ATTR_STEPS, NULL, &cx->out[0]);
}

/* -- Inference and work --------------------------------------------------------------------- */

weft_err weft_steps__infer(weft_infer_ctx *cx, weft_attr_key key, bool has_acc, weft_ttype *out)
{
    const weft_attr *a = weft_attrs_find(cx->attrs, key);
    weft_step step[WEFT_STEPS_MAX];
    if (a == NULL)
        return WEFT_ERR_OK;
    if (cx->n_in > OPERANDS_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "%u operands, at most %d", cx->n_in, OPERANDS_MAX);
    WEFT_TRY(weft_steps_parse(a->u.strs, a->n, cx->n_in, cx->diag, cx->where, step));
    if (a->n == 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no steps");
    bool first = !has_acc;
    for (uint32_t k = 0; k < a->n; k++) {
        for (uint32_t nth = 0; nth < step[k].n_args; nth++) {
            /* The condition comes last, as in weft_infer_where: where dims have different names,
             * the result gets that of the first. */
            uint32_t j = step[k].op == WEFT_STEP_WHERE ? (nth + 1) % step[k].n_args : nth;
            if (step[k].arg[j].kind == WEFT_ARG_ACC && k == 0 && !has_acc)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the first step has no `acc`");
            if (step[k].arg[j].kind != WEFT_ARG_INPUT)
                continue;
            uint32_t idx = step[k].arg[j].idx;
            if (!weft_infer__has(cx, idx))
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", idx);
            bool is_cond = step[k].op == WEFT_STEP_WHERE && j == 0;
            WEFT_TRY(weft_infer__dtype(cx, idx,
                                       WEFT_M_FLOAT | (has_acc ? 0u : WEFT_M_BYTE) |
                                           (is_cond ? WEFT_M_BOOL : 0u)));
            const weft_ttype *t = &cx->in[idx].type;
            weft_ttype wide = *t;
            if (!first)
                WEFT_TRY(weft_infer__broadcast(cx, out, t, &wide));
            for (uint32_t i = 0; has_acc && i < wide.rank; i++) {
                if (wide.rank != out->rank)
                    return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u has rank %u, the result %u",
                                     idx, t->rank, out->rank);
                WEFT_TRY(weft_infer__agree(cx, wide.dim[i], out->dim[i], "epilogue operand"));
            }
            if (!has_acc) {
                out->rank = wide.rank;
                memcpy(out->dim, wide.dim, sizeof wide.dim);
            }
            first = false;
        }
    }
    return WEFT_ERR_OK;
}

/* Bytes hold only what a last step that quantises gives. */
static weft_err check_quantized(weft_infer_ctx *cx, weft_dtype dtype)
{
    const weft_attr *a = weft_attrs_find(cx->attrs, WEFT_ATTR_STEPS);
    const char *want = dtype == WEFT_DTYPE_U8   ? rows[WEFT_STEP_QUANTIZE_U8].name
                       : dtype == WEFT_DTYPE_I8 ? rows[WEFT_STEP_QUANTIZE_I8].name
                                                : NULL;
    if (want == NULL)
        return WEFT_ERR_OK;
    const char *last = a != NULL && a->n > 0 ? a->u.strs[a->n - 1] : "";
    char word[WORD_MAX];
    if (!next_word(&last, word) || strcmp(word, want) != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "a result of %s needs \"%s\" as its last step",
                         weft_dtype_name(dtype), want);
    return WEFT_ERR_OK;
}

weft_err weft_infer_ew(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_NONE, 0);
    /* The element type of attribute `dtype`, or of the first operand of floats. */
    weft_dtype to = weft_attrs_dtype(cx->attrs, WEFT_ATTR_DTYPE, WEFT_DTYPE_NONE);
    for (uint32_t i = 0; i < cx->n_in; i++) {
        if (!weft_infer__has(cx, i))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", i);
        if (to == WEFT_DTYPE_NONE && weft_dtype_is_float((weft_dtype)cx->in[i].type.dtype))
            to = (weft_dtype)cx->in[i].type.dtype;
    }
    if (!(1u << to & (WEFT_M_FLOAT | WEFT_M_BYTE)))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "needs operands of floats");
    out->dtype = (uint8_t)to;
    WEFT_TRY(check_quantized(cx, to));
    return weft_steps__infer(cx, WEFT_ATTR_STEPS, false, out);
}

double weft_steps__flops(weft_attrs attrs, weft_attr_key key)
{
    const weft_attr *a = weft_attrs_find(attrs, key);
    return a != NULL ? a->n : 0;
}
