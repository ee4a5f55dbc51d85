/* Einstein summation by index loops: any number of operands, repeated labels, an ellipsis. */
#include "ops/einsum.h"
#include "ops/op_int.h"

#include <string.h>

bool weft_einsum_has(const weft_einsum_term *t, uint32_t label)
{
    for (uint32_t k = 0; k < t->rank; k++)
        if (t->label[k] == label)
            return true;
    return false;
}

static int label_of(char c)
{
    if (c >= 'a' && c <= 'z')
        return c - 'a';
    return c >= 'A' && c <= 'Z' ? c - 'A' + 26 : -1;
}

/* Reads labels up to `end`; `dots` is the number of dims that "..." stands for. */
static bool parse_term(const char *s, const char *end, uint32_t dots, weft_einsum_term *out)
{
    bool seen = false;
    out->rank = 0;
    while (s < end) {
        if (*s == ' ') {
            s++;
            continue;
        }
        if (end - s >= 3 && memcmp(s, "...", 3) == 0 && !seen) {
            for (uint32_t i = 0; i < dots; i++) {
                if (out->rank == WEFT_RANK_MAX)
                    return false;
                out->label[out->rank++] = (uint8_t)(52 + dots - 1 - i);
            }
            seen = true;
            s += 3;
            continue;
        }
        int label = label_of(*s++);
        if (label < 0 || out->rank == WEFT_RANK_MAX)
            return false;
        out->label[out->rank++] = (uint8_t)label;
    }
    return true;
}

/* Labels of a term without its ellipsis, and whether it has one. */
static uint32_t count_labels(const char *s, const char *end, bool *dots)
{
    uint32_t n = 0;
    *dots = false;
    for (; s < end; s++) {
        if (*s == '.')
            *dots = true;
        else if (*s != ' ')
            n++;
    }
    return n;
}

/* Without "->": ellipsis first, then the labels that occur once, by alphabet (capitals first). */
static bool implicit_output(weft_einsum *eq)
{
    uint32_t count[WEFT_EINSUM_LABELS] = {0};
    for (uint32_t i = 0; i < eq->n_in; i++)
        for (uint32_t k = 0; k < eq->in[i].rank; k++)
            count[eq->in[i].label[k]]++;
    eq->out.rank = 0;
    for (uint32_t i = 0; i < eq->ellipsis; i++)
        eq->out.label[eq->out.rank++] = (uint8_t)(52 + eq->ellipsis - 1 - i);
    for (uint32_t i = 0; i < 52; i++) {
        uint32_t label = i < 26 ? 26 + i : i - 26;
        if (count[label] != 1)
            continue;
        if (eq->out.rank == WEFT_RANK_MAX)
            return false;
        eq->out.label[eq->out.rank++] = (uint8_t)label;
    }
    return true;
}

bool weft_einsum_read(const char *text, const uint8_t *rank, uint32_t n_in, weft_einsum *eq)
{
    memset(eq, 0, sizeof *eq);
    if (n_in > WEFT_EINSUM_TERMS_MAX)
        return false;
    const char *arrow = strstr(text, "->");
    const char *end = arrow != NULL ? arrow : text + strlen(text);
    const char *s = text;
    for (uint32_t i = 0; i < n_in; i++) {
        const char *comma = memchr(s, ',', (size_t)(end - s));
        if ((comma == NULL) != (i + 1 == n_in))
            return false;
        const char *stop = comma != NULL ? comma : end;
        bool has_dots;
        uint32_t n = count_labels(s, stop, &has_dots);
        uint32_t dots = has_dots && rank[i] >= n ? rank[i] - n : 0;
        if (!parse_term(s, stop, dots, &eq->in[i]) || eq->in[i].rank != rank[i])
            return false;
        if (dots > eq->ellipsis)
            eq->ellipsis = dots;
        s = stop + 1;
    }
    eq->n_in = n_in;
    if (arrow == NULL)
        return implicit_output(eq);
    if (!parse_term(arrow + 2, text + strlen(text), eq->ellipsis, &eq->out))
        return false;
    for (uint32_t i = 0; i < eq->out.rank; i++)
        for (uint32_t k = i + 1; k < eq->out.rank; k++)
            if (eq->out.label[i] == eq->out.label[k])
                return false;
    return true;
}

/* -- Inference and work --------------------------------------------------------------------- */

weft_err weft_infer_einsum(weft_infer_ctx *cx)
{
    weft_einsum eq;
    uint8_t rank[WEFT_EINSUM_TERMS_MAX] = {0};
    weft_dim dim[WEFT_EINSUM_LABELS];
    bool known[WEFT_EINSUM_LABELS] = {false};
    const char *text = weft_attrs_str(cx->attrs, WEFT_ATTR_EQUATION, "");
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_NUM));
    for (uint32_t i = 0; i < cx->n_in && i < WEFT_EINSUM_TERMS_MAX; i++) {
        if (!weft_infer__has(cx, i))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", i);
        WEFT_TRY(weft_infer__same_dtype(cx, 0, i));
        rank[i] = cx->in[i].type.rank;
    }
    if (!weft_einsum_read(text, rank, cx->n_in, &eq))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "equation \"%s\" does not fit the operands", text);
    for (uint32_t i = 0; i < eq.n_in; i++) {
        for (uint32_t k = 0; k < eq.in[i].rank; k++) {
            uint8_t label = eq.in[i].label[k];
            weft_dim d = cx->in[i].type.dim[k];
            if (known[label])
                WEFT_TRY(weft_infer__broadcast_dim(cx, dim[label], d, &dim[label]));
            else
                dim[label] = d;
            known[label] = true;
        }
    }
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, eq.out.rank);
    for (uint32_t i = 0; i < eq.out.rank; i++) {
        if (!known[eq.out.label[i]])
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "equation \"%s\": a result label is new", text);
        out->dim[i] = dim[eq.out.label[i]];
    }
    return WEFT_ERR_OK;
}

/* Sizes of the labels, 0 where one does not occur. */
static bool size_labels(const weft_work_ctx *cx, weft_einsum *eq, double size[WEFT_EINSUM_LABELS])
{
    uint8_t rank[WEFT_EINSUM_TERMS_MAX] = {0};
    for (uint32_t i = 0; i < WEFT_EINSUM_LABELS; i++)
        size[i] = 0;
    for (uint32_t i = 0; i < cx->n_in && i < WEFT_EINSUM_TERMS_MAX; i++)
        rank[i] = cx->in[i].rank;
    if (!weft_einsum_read(weft_attrs_str(cx->attrs, WEFT_ATTR_EQUATION, ""), rank, cx->n_in, eq))
        return false;
    for (uint32_t i = 0; i < eq->n_in; i++)
        for (uint32_t k = 0; k < eq->in[i].rank; k++)
            if ((double)cx->in[i].dim[k] > size[eq->in[i].label[k]])
                size[eq->in[i].label[k]] = (double)cx->in[i].dim[k];
    return true;
}

weft_work weft_work_einsum(const weft_work_ctx *cx)
{
    weft_einsum eq;
    double size[WEFT_EINSUM_LABELS], flops = cx->n_in > 2 ? cx->n_in : 2;
    if (!size_labels(cx, &eq, size))
        return weft_work__bytes(cx, 0);
    for (uint32_t i = 0; i < WEFT_EINSUM_LABELS; i++)
        if (size[i] > 0)
            flops *= size[i];
    return weft_work__bytes(cx, flops);
}

/* The GEMM that corresponds to an einsum: labels of both factors and the result are batch dims,
 * labels of one factor and the result are rows or columns, labels absent from the result are the
 * inner dim. Of more than two factors, all but the first count as one. */
void weft_einsum__nest(const weft_work_ctx *cx, weft_nest *out)
{
    weft_einsum eq;
    double size[WEFT_EINSUM_LABELS];
    out->batch = out->m = out->n = out->k = 1;
    if (!size_labels(cx, &eq, size))
        return;
    for (uint32_t i = 0; i < WEFT_EINSUM_LABELS; i++) {
        bool first = weft_einsum_has(&eq.in[0], i), rest = false;
        for (uint32_t k = 1; k < eq.n_in; k++)
            rest = rest || weft_einsum_has(&eq.in[k], i);
        if (!(size[i] > 0))
            continue;
        if (!weft_einsum_has(&eq.out, i))
            out->k *= size[i];
        else if (first && rest)
            out->batch *= size[i];
        else if (first)
            out->m *= size[i];
        else
            out->n *= size[i];
    }
}

/* -- Evaluation ----------------------------------------------------------------------------- */

/* Loops over the labels; those of the result are the outer ones. The stride of an operand along a
 * label is the sum of the strides of the dims with that label: repeated labels walk the diagonal.
 */
typedef struct loops {
    uint32_t n_in, n_out, n; /* loops of the result, all loops */
    int64_t dim[WEFT_EINSUM_LABELS];
    int64_t stride[WEFT_EINSUM_TERMS_MAX][WEFT_EINSUM_LABELS];
} loops;

#define DEFINE_EINSUM(name, T)                                                             \
    static void name(const loops *lp, const T *const *in, T *out)                          \
    {                                                                                      \
        int64_t idx[WEFT_EINSUM_LABELS] = {0}, at[WEFT_EINSUM_TERMS_MAX] = {0}, n_out = 0; \
        T sum = 0;                                                                         \
        for (;;) {                                                                         \
            T x = in[0][at[0]];                                                            \
            for (uint32_t j = 1; j < lp->n_in; j++)                                        \
                x *= in[j][at[j]];                                                         \
            sum += x;                                                                      \
            uint32_t i = lp->n;                                                            \
            for (; i > 0; i--) {                                                           \
                uint32_t k = i - 1;                                                        \
                for (uint32_t j = 0; j < lp->n_in; j++)                                    \
                    at[j] += lp->stride[j][k];                                             \
                if (++idx[k] < lp->dim[k])                                                 \
                    break;                                                                 \
                for (uint32_t j = 0; j < lp->n_in; j++)                                    \
                    at[j] -= lp->stride[j][k] * lp->dim[k];                                \
                idx[k] = 0;                                                                \
            }                                                                              \
            /* The sum is complete when a loop of the result advances. */                  \
            if (i <= lp->n_out) {                                                          \
                out[n_out++] = sum;                                                        \
                sum = 0;                                                                   \
            }                                                                              \
            if (i == 0)                                                                    \
                return;                                                                    \
        }                                                                                  \
    }

DEFINE_EINSUM(sum_products_f64, double)
DEFINE_EINSUM(sum_products_u64, uint64_t)

static bool plan_loops(const weft_einsum *eq, weft_eval_ctx *cx, loops *lp)
{
    uint8_t place[WEFT_EINSUM_LABELS];
    memset(place, 0xff, sizeof place);
    memset(lp, 0, sizeof *lp);
    lp->n_in = eq->n_in;
    for (uint32_t i = 0; i < eq->out.rank; i++) {
        place[eq->out.label[i]] = (uint8_t)lp->n;
        lp->dim[lp->n++] = cx->out[0].dim[i];
    }
    lp->n_out = lp->n;
    for (uint32_t i = 0; i < eq->n_in; i++) {
        int64_t s = 1;
        for (uint32_t k = eq->in[i].rank; k-- > 0;) {
            uint8_t label = eq->in[i].label[k];
            int64_t d = cx->in[i]->dim[k];
            if (place[label] == 0xff) {
                place[label] = (uint8_t)lp->n;
                lp->dim[lp->n++] = 1;
            }
            int64_t *size = &lp->dim[place[label]];
            if (d != 1 && *size != d && (*size != 1 || place[label] < lp->n_out))
                return false;
            if (d != 1) {
                *size = d;
                lp->stride[i][place[label]] += s;
            }
            s *= d;
        }
    }
    return true;
}

weft_err weft_eval_einsum(weft_eval_ctx *cx)
{
    weft_einsum eq;
    loops lp;
    uint8_t rank[WEFT_EINSUM_TERMS_MAX] = {0};
    const weft_tensor *out = &cx->out[0];
    int64_t n = weft_tensor_numel(out);
    for (uint32_t i = 0; i < cx->n_in && i < WEFT_EINSUM_TERMS_MAX; i++) {
        if (cx->in[i] == NULL)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", i);
        rank[i] = (uint8_t)cx->in[i]->rank;
    }
    if (!weft_einsum_read(weft_attrs_str(cx->attrs, WEFT_ATTR_EQUATION, ""), rank, cx->n_in, &eq) ||
        eq.out.rank != (uint32_t)out->rank || !plan_loops(&eq, cx, &lp))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the equation does not fit the operands");
    void *acc = weft_arena_array(cx->scratch, (size_t)n + 1, 8);
    bool empty = false;
    for (uint32_t i = 0; i < lp.n; i++)
        empty = empty || lp.dim[i] == 0;
    const void *in[WEFT_EINSUM_TERMS_MAX] = {NULL};
    bool whole = !weft_dtype_is_float(out->dtype);
    for (uint32_t i = 0; i < cx->n_in; i++) {
        if (whole)
            in[i] = weft_eval__i64(cx, cx->in[i]);
        else
            in[i] = weft_eval__f64(cx, cx->in[i]);
    }
    if (whole) {
        if (!empty)
            sum_products_u64(&lp, (const uint64_t *const *)in, acc);
        weft_eval__store_i64(out, 0, 1, n, acc);
    } else {
        if (!empty)
            sum_products_f64(&lp, (const double *const *)in, acc);
        weft_eval__store_f64(out, 0, 1, n, acc);
    }
    return WEFT_ERR_OK;
}
