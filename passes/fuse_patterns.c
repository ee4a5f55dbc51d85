/* fuse-patterns: sub-graphs that exporters write for an operator become that operator.
 *
 *     add(matmul(a, b), $bias)                                   ==>  matmul a b $bias
 *     x * sigmoid(x)                                             ==>  silu x
 *     x * hard_sigmoid(x, 1/6, 1/2)                              ==>  hard_swish x
 *     0.5 * x * (1 + erf(x / sqrt 2))       in any order         ==>  gelu x
 *     0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))    ==>  gelu x {approximate = "tanh"}
 *     (x - mean) / sqrt(var + eps) * gamma + beta  over last dim ==>  layer_norm x gamma beta
 *
 * fuse_attention.c does the same for attention. A pattern is matched from its last node towards the
 * operands; its other nodes become dead if nothing else uses them. Results differ by rounding only.
 * O(nodes). */
#include "passes/match.h"

#include <math.h>
#include <string.h>

typedef struct found {
    weft_op_id op;
    weft_val in[4];
    uint32_t n_in;
    weft_attr attr[4];
    uint32_t n_attr;
} found;

typedef bool pattern_fn(const weft_graph *g, weft_node n, found *out);

/* -- Bias ----------------------------------------------------------------------------------- */

static bool match_bias(const weft_graph *g, weft_node n, found *out)
{
    const weft_module *m = weft_graph_module(g);
    for (uint32_t i = 0; i < 2; i++) {
        weft_val y = weft_node_in(m, n, i), b = weft_node_in(m, n, 1 - i);
        weft_node mm = weft_match__maker(m, y, WEFT_OP_MATMUL);
        if (!mm.i || weft_node_in(m, mm, 2).i || weft_rewrite__sole_user(g, y).i != n.i ||
            weft_val_get_kind(m, b) != WEFT_VAL_WEIGHT ||
            weft_attrs_find(weft_node_attrs(m, mm), WEFT_ATTR_EPILOGUE))
            continue;
        const weft_ttype *type = weft_val_ttype(m, y), *bias = weft_val_ttype(m, b);
        if (bias->rank != 1 || type->rank < 2 || bias->dim[0] != type->dim[type->rank - 1] ||
            type->dtype != bias->dtype)
            continue;
        *out = (found){.op = WEFT_OP_MATMUL,
                       .in = {weft_node_in(m, mm, 0), weft_node_in(m, mm, 1), b},
                       .n_in = 3};
        weft_attrs attrs = weft_node_attrs(m, mm);
        if (attrs.n > 4)
            continue;
        for (uint32_t k = 0; k < attrs.n; k++)
            out->attr[out->n_attr++] = attrs.at[k];
        return true;
    }
    return false;
}

/* -- Activations ---------------------------------------------------------------------------- */

static bool match_silu(const weft_graph *g, weft_node n, found *out)
{
    const weft_module *m = weft_graph_module(g);
    for (uint32_t i = 0; i < 2; i++) {
        weft_val x = weft_node_in(m, n, i);
        weft_node s = weft_match__maker(m, weft_node_in(m, n, 1 - i), WEFT_OP_SIGMOID);
        if (!s.i || weft_node_in(m, s, 0).i != x.i)
            continue;
        *out = (found){.op = WEFT_OP_SILU, .in = {x}, .n_in = 1};
        return true;
    }
    return false;
}

static bool match_hard_swish(const weft_graph *g, weft_node n, found *out)
{
    const weft_module *m = weft_graph_module(g);
    for (uint32_t i = 0; i < 2; i++) {
        weft_val x = weft_node_in(m, n, i);
        weft_node s = weft_match__maker(m, weft_node_in(m, n, 1 - i), WEFT_OP_HARD_SIGMOID);
        if (!s.i || weft_node_in(m, s, 0).i != x.i)
            continue;
        weft_attrs attrs = weft_node_attrs(m, s);
        if (!weft_match__near(weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 0.2), 1.0 / 6) ||
            weft_attrs_float(attrs, WEFT_ATTR_BETA, 0.5) != 0.5)
            continue;
        *out = (found){.op = WEFT_OP_HARD_SWISH, .in = {x}, .n_in = 1};
        return true;
    }
    return false;
}

/* Factors of nested multiplications: at most 4 values; constants are multiplied together. */
typedef struct product {
    weft_val factor[4];
    uint32_t n;
    double scale;
} product;

static bool collect(const weft_module *m, weft_val v, uint32_t depth, product *p)
{
    double c = 0;
    if (weft_rewrite__scalar(m, v, &c)) {
        p->scale *= c;
        return true;
    }
    weft_node n = weft_match__maker(m, v, WEFT_OP_MUL);
    if (n.i && depth > 0)
        return collect(m, weft_node_in(m, n, 0), depth - 1, p) &&
               collect(m, weft_node_in(m, n, 1), depth - 1, p);
    if (p->n == 4)
        return false;
    p->factor[p->n++] = v;
    return true;
}

/* x / sqrt 2, or x * (1 / sqrt 2) */
static bool is_over_sqrt2(const weft_module *m, weft_val v, weft_val x)
{
    weft_val of;
    double c = 0;
    if (weft_match__with_scalar(m, v, WEFT_OP_DIV, false, &of, &c))
        return of.i == x.i && weft_match__near(c, sqrt(2));
    return weft_match__with_scalar(m, v, WEFT_OP_MUL, true, &of, &c) && of.i == x.i &&
           weft_match__near(c, sqrt(0.5));
}

static bool is_cube(const weft_module *m, weft_val v, weft_val x)
{
    weft_val of;
    double c = 0;
    if (weft_match__with_scalar(m, v, WEFT_OP_POW, false, &of, &c))
        return of.i == x.i && c == 3;
    product p = {.scale = 1};
    if (!collect(m, v, 2, &p) || p.scale != 1)
        return false;
    weft_node square = {0};
    uint32_t plain = 0;
    for (uint32_t i = 0; i < p.n; i++) {
        weft_node s = weft_match__maker(m, p.factor[i], WEFT_OP_SQUARE);
        if (s.i && weft_node_in(m, s, 0).i == x.i)
            square = s;
        else if (p.factor[i].i == x.i)
            plain++;
        else
            return false;
    }
    return (square.i && plain == 1 && p.n == 2) || (!square.i && plain == 3);
}

/* sqrt(2/pi) * (x + 0.044715 * x^3) */
static bool is_tanh_argument(const weft_module *m, weft_val v, weft_val x)
{
    weft_val sum, cubic, cube;
    double c = 0;
    const double pi = 3.14159265358979323846;
    if (!weft_match__with_scalar(m, v, WEFT_OP_MUL, true, &sum, &c) ||
        !weft_match__near(c, sqrt(2 / pi)))
        return false;
    if (!weft_match__with_value(m, sum, WEFT_OP_ADD, x, &cubic))
        return false;
    return weft_match__with_scalar(m, cubic, WEFT_OP_MUL, true, &cube, &c) &&
           weft_match__near(c, 0.044715) && is_cube(m, cube, x);
}

static bool match_gelu(const weft_graph *g, weft_node n, found *out)
{
    const weft_module *m = weft_graph_module(g);
    product p = {.scale = 1};
    if (!weft_match__is_f32(m, weft_node_out(m, n, 0)) ||
        !collect(m, weft_node_out(m, n, 0), 3, &p) || p.n != 2 || p.scale != 0.5)
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        weft_val x = p.factor[i], inner;
        double one = 0;
        if (!weft_match__with_scalar(m, p.factor[1 - i], WEFT_OP_ADD, true, &inner, &one) ||
            one != 1)
            continue;
        weft_node erf = weft_match__maker(m, inner, WEFT_OP_ERF);
        weft_node th = weft_match__maker(m, inner, WEFT_OP_TANH);
        *out = (found){.op = WEFT_OP_GELU, .in = {x}, .n_in = 1};
        if (erf.i && is_over_sqrt2(m, weft_node_in(m, erf, 0), x))
            return true;
        if (th.i && is_tanh_argument(m, weft_node_in(m, th, 0), x)) {
            out->attr[out->n_attr++] = WEFT_ATTR_OF_STR(APPROXIMATE, "tanh");
            return true;
        }
    }
    return false;
}

/* -- Layer norm ----------------------------------------------------------------------------- */

/* `v` is the mean of `x` over its last axis, dims kept. */
static bool is_last_mean(const weft_module *m, weft_val v, weft_val *out_x)
{
    weft_node n = weft_match__maker(m, v, WEFT_OP_REDUCE_MEAN);
    if (!n.i || weft_node_in(m, n, 1).i ||
        weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_KEEPDIMS, 1) != 1)
        return false;
    uint32_t count = 0;
    const int64_t *axes = weft_attrs_ints(weft_node_attrs(m, n), WEFT_ATTR_AXES, &count);
    *out_x = weft_node_in(m, n, 0);
    int64_t rank = weft_val_ttype(m, *out_x)->rank;
    return axes && count == 1 && (axes[0] == -1 || axes[0] == rank - 1);
}

/* d = x - mean(x) */
static bool is_centred(const weft_module *m, weft_val d, weft_val *out_x)
{
    weft_node n = weft_match__maker(m, d, WEFT_OP_SUB);
    weft_val of;
    if (!n.i || !is_last_mean(m, weft_node_in(m, n, 1), &of))
        return false;
    *out_x = weft_node_in(m, n, 0);
    return of.i == out_x->i;
}

/* std = sqrt(mean(d^2) + eps) */
static bool is_deviation(const weft_module *m, weft_val std, weft_val d, double *out_eps)
{
    weft_node root = weft_match__maker(m, std, WEFT_OP_SQRT);
    weft_val var, square;
    if (!root.i ||
        !weft_match__with_scalar(m, weft_node_in(m, root, 0), WEFT_OP_ADD, true, &var, out_eps))
        return false;
    if (!is_last_mean(m, var, &square))
        return false;
    weft_node n = weft_match__maker(m, square, WEFT_OP_SQUARE);
    if (n.i)
        return weft_node_in(m, n, 0).i == d.i;
    n = weft_match__maker(m, square, WEFT_OP_MUL);
    return n.i && weft_node_in(m, n, 0).i == d.i && weft_node_in(m, n, 1).i == d.i;
}

static bool is_last_vector(const weft_module *m, weft_val v, weft_val x)
{
    const weft_ttype *t = weft_val_ttype(m, v), *of = weft_val_ttype(m, x);
    return weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT && t->rank == 1 &&
           t->dim[0] == of->dim[of->rank - 1];
}

static bool match_layer_norm(const weft_graph *g, weft_node n, found *out)
{
    const weft_module *m = weft_graph_module(g);
    for (uint32_t i = 0; i < 2; i++) {
        weft_val beta = weft_node_in(m, n, i);
        weft_node mul = weft_match__maker(m, weft_node_in(m, n, 1 - i), WEFT_OP_MUL);
        if (!mul.i)
            continue;
        for (uint32_t k = 0; k < 2; k++) {
            weft_val gamma = weft_node_in(m, mul, k), x;
            weft_node div = weft_match__maker(m, weft_node_in(m, mul, 1 - k), WEFT_OP_DIV);
            double eps = 0;
            if (!div.i || !is_centred(m, weft_node_in(m, div, 0), &x) ||
                !is_deviation(m, weft_node_in(m, div, 1), weft_node_in(m, div, 0), &eps) ||
                !is_last_vector(m, gamma, x) || !is_last_vector(m, beta, x) ||
                !weft_match__is_f32(m, x))
                continue;
            *out = (found){.op = WEFT_OP_LAYER_NORM,
                           .in = {x, gamma, beta},
                           .n_in = 3,
                           .attr = {WEFT_ATTR_OF_INT(AXIS, -1), WEFT_ATTR_OF_FLOAT(EPSILON, eps)},
                           .n_attr = 2};
            return true;
        }
    }
    return false;
}

/* -- The table and the sweep ---------------------------------------------------------------- */

static const struct {
    weft_op_id last; /* operator of the node where the pattern ends */
    pattern_fn *match;
} patterns[] = {
    {WEFT_OP_ADD, match_layer_norm}, {WEFT_OP_ADD, match_bias},       {WEFT_OP_MUL, match_gelu},
    {WEFT_OP_MUL, match_silu},       {WEFT_OP_MUL, match_hard_swish},
};

static weft_err try_patterns(weft_passctx *cx, weft_graph *g, weft_node n, bool *changed)
{
    weft_module *m = weft_graph_module(g);
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        found f = {0};
        if (patterns[i].last != weft_node_op(m, n) || !patterns[i].match(g, n, &f) ||
            !weft_rewrite__allow(cx))
            continue;
        weft_val with;
        WEFT_TRY(weft_rewrite__emit(cx, g, n, f.op, f.in, f.n_in, f.attr, f.n_attr,
                                    weft_node_loc(m, n), &with));
        /* A constant of higher rank than x broadcasts the pattern's result to more dims. */
        if (weft_val_type(m, with).i != weft_val_type(m, weft_node_out(m, n, 0)).i) {
            weft_node_remove(g, weft_val_node(m, with));
            continue;
        }
        weft_rewrite__replace_result(g, n, 0, with);
        weft_rewrite__remove_dead(g, n);
        *changed = true;
        return WEFT_ERR_OK;
    }
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            if (weft_rewrite__is_live(g, n))
                WEFT_TRY(try_patterns(cx, g, n, changed));
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fuse_patterns = {
    .name = "fuse-patterns",
    .brief = "layer norm, GELU, SiLU and biases become single operators",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
