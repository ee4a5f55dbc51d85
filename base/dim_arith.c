/* Arithmetic on dims. Sums and products are exact; divisions are brought to this form:
 *
 *   floordiv(q * b + r, b)                   ==>  q + floordiv(r, b)
 *   floordiv(a * g, b * g)                   ==>  floordiv(a, b)
 *   floordiv(g * x + c, g * n)               ==>  floordiv(x + floor(c / g), n)   n, g, c constant
 *   floordiv(floordiv(x, m) + c, n)          ==>  floordiv(x + c * m, m * n)      m, n, c constant
 *   floordiv(a, -b)                          ==>  floordiv(-a, b)
 *
 * Chains of maxima or minima are flattened and sorted; operands that can never be the result, by
 * the bounds of the symbols, are dropped. Bounds may be narrowed between two calls, so an existing
 * atom is returned before any bound is looked at: text then reads back as the same dim. */
#include "base/dim_int.h"

#include "base/num.h"

#include <string.h>

enum { OPERANDS_MAX = 16 };

/* -- Sums and products ------------------------------------------------------------------------ */

/* a + b * scale. */
bool weft_dim__add(weft_dimpool *pool, weft_dim a, weft_dim b, int64_t scale, weft_dim *out)
{
    weft_dimpoly sum, other;
    weft_dim__to_poly(pool, a, &sum);
    weft_dim__to_poly(pool, b, &other);
    for (uint32_t i = 0; i < other.n; i++) {
        weft_dimterm *t = &other.term[i];
        if (!weft_i64_mul(t->coef, scale, &t->coef) || !weft_dim__poly_add(pool, &sum, t))
            return false;
    }
    return weft_dim__from_poly(pool, &sum, out);
}

static bool multiply_terms(const weft_dimterm *a, const weft_dimterm *b, weft_dimterm *out)
{
    weft_dimterm t = *a;
    if (a->n + b->n > DIM_DEGREE_MAX || !weft_i64_mul(a->coef, b->coef, &t.coef))
        return false;
    memcpy(t.atom + t.n, b->atom, b->n * sizeof b->atom[0]);
    t.n += b->n;
    *out = t;
    return true;
}

bool weft_dim__mul(weft_dimpool *pool, weft_dim a, weft_dim b, weft_dim *out)
{
    weft_dimpoly x, y, product = {.n = 0};
    weft_dim__to_poly(pool, a, &x);
    weft_dim__to_poly(pool, b, &y);
    for (uint32_t i = 0; i < x.n; i++) {
        for (uint32_t j = 0; j < y.n; j++) {
            weft_dimterm t;
            if (!multiply_terms(&x.term[i], &y.term[j], &t) ||
                !weft_dim__poly_add(pool, &product, &t))
                return false;
        }
    }
    return weft_dim__from_poly(pool, &product, out);
}

/* -- Division of polynomials ------------------------------------------------------------------ */

/* Divides the monomial `a` by `b`, atoms only; false when `b` does not divide it. */
static bool remove_atoms(const weft_dimterm *a, const weft_dimterm *b, weft_dimterm *out)
{
    weft_dimterm t = *a;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t j = 0;
        while (j < t.n && t.atom[j] != b->atom[i])
            j++;
        if (j == t.n)
            return false;
        t.n--;
        memmove(&t.atom[j], &t.atom[j + 1], (t.n - j) * sizeof t.atom[0]);
        t.atom[t.n] = 0;
    }
    *out = t;
    return true;
}

/* poly += b * factor * sign. */
static bool add_product(const weft_dimpool *pool, weft_dimpoly *poly, const weft_dimpoly *b,
                        const weft_dimterm *factor, int64_t sign)
{
    for (uint32_t i = 0; i < b->n; i++) {
        weft_dimterm t;
        if (!multiply_terms(&b->term[i], factor, &t) || !weft_i64_mul(t.coef, sign, &t.coef) ||
            !weft_dim__poly_add(pool, poly, &t))
            return false;
    }
    return true;
}

/* Long division; true and the quotient when nothing remains. The order of terms is a monomial
 * order (by degree, then lexicographic), so each step removes the leading term for good. */
static bool divide_exact(weft_dimpool *pool, weft_dim a, weft_dim b, weft_dim *out)
{
    weft_dimpoly rest, divisor, quotient = {.n = 0};
    weft_dim__to_poly(pool, a, &rest);
    weft_dim__to_poly(pool, b, &divisor);
    while (rest.n > 0) {
        weft_dimterm t;
        if (quotient.n == DIM_TERMS_MAX || rest.term[0].coef % divisor.term[0].coef != 0 ||
            !remove_atoms(&rest.term[0], &divisor.term[0], &t))
            return false;
        t.coef = rest.term[0].coef / divisor.term[0].coef;
        if (!add_product(pool, &rest, &divisor, &t, -1) || !weft_dim__poly_add(pool, &quotient, &t))
            return false;
    }
    return weft_dim__from_poly(pool, &quotient, out);
}

static int64_t find_gcd(int64_t a, int64_t b)
{
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* `g` becomes the greatest common divisor of `g` and all terms of the polynomial. */
static void share_factor(const weft_dimpoly *poly, weft_dimterm *g)
{
    for (uint32_t i = 0; i < poly->n; i++) {
        weft_dimterm left = poly->term[i], shared = {.coef = find_gcd(g->coef, left.coef)};
        for (uint32_t j = 0; j < g->n; j++) {
            weft_dimterm one = {.coef = 1, .n = 1, .atom = {g->atom[j]}};
            if (remove_atoms(&left, &one, &left))
                shared.atom[shared.n++] = g->atom[j];
        }
        *g = shared;
    }
}

/* Divides both by the largest monomial that divides every term of both. */
static void cancel_common(weft_dimpoly *a, weft_dimpoly *b)
{
    weft_dimterm g = b->term[0];
    share_factor(a, &g);
    share_factor(b, &g);
    for (uint32_t i = 0; i < a->n + b->n; i++) {
        weft_dimterm *t = i < a->n ? &a->term[i] : &b->term[i - a->n];
        int64_t coef = t->coef / g.coef;
        remove_atoms(t, &g, t); /* the order of the terms stays: it is a monomial order */
        t->coef = coef;
    }
}

/* Moves the multiples of the monomial `b` from `a` to `quotient`. Coefficients are rounded towards
 * zero, so that the sign of a term does not change; the constant over a constant is rounded down,
 * so that the remainder decides nothing. */
static bool split_multiples(const weft_dimpool *pool, weft_dimpoly *a, const weft_dimterm *b,
                            weft_dimpoly *quotient)
{
    weft_dimpoly rest = {.n = 0};
    for (uint32_t i = 0; i < a->n; i++) {
        weft_dimterm t = a->term[i], q;
        if (remove_atoms(&t, b, &q)) {
            q.coef = t.n == 0 ? weft_dim__floor_i64(t.coef, b->coef) : t.coef / b->coef;
            t.coef -= q.coef * b->coef;
            if (!weft_dim__poly_add(pool, quotient, &q))
                return false;
        }
        if (t.coef != 0)
            rest.term[rest.n++] = t;
    }
    *a = rest;
    return true;
}

static bool is_constant(const weft_dimpoly *p)
{
    return p->n == 0 || (p->n == 1 && p->term[0].n == 0);
}

/* floordiv(g * x + c, g * n) ==> floordiv(x + floor(c / g), n); `a` has a term with a symbol. */
static void reduce_constant(weft_dimpoly *a, int64_t *divisor)
{
    int64_t g = *divisor;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->term[i].n > 0)
            g = find_gcd(g, a->term[i].coef);
    *divisor /= g;
    for (uint32_t i = 0; i < a->n; i++)
        a->term[i].coef = weft_dim__floor_i64(a->term[i].coef, g);
    /* The constant is the last term; it is now 0 if it was below g. */
    if (a->term[a->n - 1].coef == 0)
        a->n--;
}

/* Where `a` is floordiv(x, m) + c: x + c * m and m * n. */
static bool merge_nested(weft_dimpool *pool, const weft_dimpoly *a, int64_t n, weft_dim *out_a,
                         weft_dim *out_b)
{
    const weft_dimterm *t = &a->term[0];
    if (t->n != 1 || t->coef != 1 || a->n > 2 || (a->n == 2 && a->term[1].n != 0))
        return false;
    const weft_dimatom *atom = &pool->atoms.at[t->atom[0]];
    if (atom->kind != DIM_FLOORDIV || !weft_dim_is_const(atom->b))
        return false;
    weft_dim m = atom->b, x = atom->a; /* the table of atoms may move below */
    int64_t shift = 0;
    if (a->n == 2 && !weft_i64_mul(a->term[1].coef, m, &shift))
        return false;
    return weft_i64_mul(m, n, out_b) && weft_dim_is_const(shift) &&
           weft_dim__add(pool, x, shift, 1, out_a);
}

/* floordiv(a, b) in reduced form: an existing atom, a constant if the bounds determine it, or a new
 * atom. */
static bool make_floordiv(weft_dimpool *pool, weft_dim a, weft_dim b, weft_dim *out)
{
    if (weft_dim__find_opaque(pool, DIM_FLOORDIV, a, b, out))
        return true;
    int64_t a_lo, a_hi, b_lo, b_hi;
    weft_dim_bounds(pool, a, &a_lo, &a_hi);
    weft_dim_bounds(pool, b, &b_lo, &b_hi);
    if (a_lo >= 0 && a_hi < b_lo && a_hi < DIM_INF) {
        *out = 0;
        return true;
    }
    return weft_dim__make_opaque(pool, DIM_FLOORDIV, a, b, out);
}

/* floordiv(a, constant), where `a` has no term that is a multiple of the constant. */
static bool divide_by_constant(weft_dimpool *pool, weft_dimpoly *a, int64_t divisor, weft_dim *out)
{
    if (is_constant(a)) {
        *out = 0; /* the dividend is in [0, divisor) */
        return true;
    }
    weft_dim x, y;
    reduce_constant(a, &divisor);
    if (merge_nested(pool, a, divisor, &x, &y))
        return weft_dim__floordiv(pool, x, y, out);
    return weft_dim__from_poly(pool, a, &x) && make_floordiv(pool, x, divisor, out);
}

bool weft_dim__floordiv(weft_dimpool *pool, weft_dim a, weft_dim b, weft_dim *out)
{
    if (b == 0)
        return false;
    if (weft_dim_is_const(a) && weft_dim_is_const(b)) {
        *out = weft_dim__floor_i64(a, b);
        return weft_dim_is_const(*out);
    }
    if (divide_exact(pool, a, b, out))
        return true;
    weft_dimpoly x, y, quotient = {.n = 0};
    weft_dim__to_poly(pool, a, &x);
    weft_dim__to_poly(pool, b, &y);
    if (y.term[0].coef < 0) {
        for (uint32_t i = 0; i < x.n; i++)
            x.term[i].coef = -x.term[i].coef;
        for (uint32_t i = 0; i < y.n; i++)
            y.term[i].coef = -y.term[i].coef;
    }
    cancel_common(&x, &y);
    weft_dim q = 0, r, divisor;
    if (y.n == 1) {
        if (!split_multiples(pool, &x, &y.term[0], &quotient) ||
            !weft_dim__from_poly(pool, &quotient, &q))
            return false;
        if (y.term[0].n == 0) {
            if (!divide_by_constant(pool, &x, y.term[0].coef, &r))
                return false;
            return weft_dim__add(pool, q, r, 1, out);
        }
    }
    if (!weft_dim__from_poly(pool, &x, &a) || !weft_dim__from_poly(pool, &y, &divisor) ||
        !make_floordiv(pool, a, divisor, &r))
        return false;
    return weft_dim__add(pool, q, r, 1, out);
}

bool weft_dim_div_exact(weft_dimpool *pool, weft_dim a, weft_dim b, weft_dim *out)
{
    return b != 0 && divide_exact(pool, a, b, out);
}

/* -- Maxima and minima ------------------------------------------------------------------------ */

typedef struct operands {
    weft_dim at[OPERANDS_MAX];
    uint32_t n;
} operands;

/* Adds the operands of a nested maximum (or minimum) to the sorted list, without duplicates. */
static bool add_operands(const weft_dimpool *pool, weft_dimkind kind, weft_dim d, operands *ops)
{
    const weft_dimatom *atom = weft_dim__as_atom(pool, d);
    if (atom && atom->kind == kind)
        return add_operands(pool, kind, atom->a, ops) && add_operands(pool, kind, atom->b, ops);
    uint32_t i = 0;
    while (i < ops->n && weft_dim__compare(pool, ops->at[i], d) < 0)
        i++;
    if (i < ops->n && ops->at[i] == d)
        return true;
    if (ops->n == OPERANDS_MAX)
        return false;
    memmove(&ops->at[i + 1], &ops->at[i], (ops->n - i) * sizeof d);
    ops->at[i] = d;
    ops->n++;
    return true;
}

/* true when max(a, b) (or min) is always `b`, by the bounds of the symbols. */
static bool is_beaten(weft_dimpool *pool, weft_dimkind kind, weft_dim a, weft_dim b)
{
    weft_dim difference;
    int64_t a_lo, a_hi, b_lo, b_hi, lo, hi;
    weft_dim_bounds(pool, a, &a_lo, &a_hi);
    weft_dim_bounds(pool, b, &b_lo, &b_hi);
    if (kind == DIM_MAX ? a_hi <= b_lo && a_hi < DIM_INF : a_lo >= b_hi && b_hi < DIM_INF)
        return true;
    if (!weft_dim__add(pool, b, a, -1, &difference))
        return false;
    weft_dim_bounds(pool, difference, &lo, &hi);
    return kind == DIM_MAX ? lo >= 0 : hi <= 0;
}

static void drop_beaten(weft_dimpool *pool, weft_dimkind kind, operands *ops)
{
    for (uint32_t i = 0; i < ops->n;) {
        bool beaten = false;
        for (uint32_t j = 0; j < ops->n && !beaten; j++)
            beaten = j != i && is_beaten(pool, kind, ops->at[i], ops->at[j]);
        if (!beaten) {
            i++;
            continue;
        }
        ops->n--;
        memmove(&ops->at[i], &ops->at[i + 1], (ops->n - i) * sizeof ops->at[0]);
    }
}

bool weft_dim__extremum(weft_dimpool *pool, weft_dimkind kind, weft_dim a, weft_dim b,
                        weft_dim *out)
{
    operands ops = {.n = 0};
    if (!add_operands(pool, kind, a, &ops) || !add_operands(pool, kind, b, &ops))
        return false;
    drop_beaten(pool, kind, &ops);
    weft_dim chain = ops.at[0];
    for (uint32_t i = 1; i < ops.n; i++)
        if (!weft_dim__make_opaque(pool, kind, chain, ops.at[i], &chain))
            return false;
    *out = chain;
    return true;
}

/* -- The operations that cannot fail ---------------------------------------------------------- */

weft_dim weft_dim_add(weft_dimpool *pool, weft_dim a, weft_dim b)
{
    weft_dim d;
    return weft_dim__add(pool, a, b, 1, &d) ? d : weft_dim_fresh(pool);
}

weft_dim weft_dim_sub(weft_dimpool *pool, weft_dim a, weft_dim b)
{
    weft_dim d;
    return weft_dim__add(pool, a, b, -1, &d) ? d : weft_dim_fresh(pool);
}

weft_dim weft_dim_mul(weft_dimpool *pool, weft_dim a, weft_dim b)
{
    weft_dim d;
    return weft_dim__mul(pool, a, b, &d) ? d : weft_dim_fresh(pool);
}

weft_dim weft_dim_floordiv(weft_dimpool *pool, weft_dim a, weft_dim b)
{
    weft_dim d;
    return weft_dim__floordiv(pool, a, b, &d) ? d : weft_dim_fresh(pool);
}

weft_dim weft_dim_max(weft_dimpool *pool, weft_dim a, weft_dim b)
{
    weft_dim d;
    return weft_dim__extremum(pool, DIM_MAX, a, b, &d) ? d : weft_dim_fresh(pool);
}

weft_dim weft_dim_min(weft_dimpool *pool, weft_dim a, weft_dim b)
{
    weft_dim d;
    return weft_dim__extremum(pool, DIM_MIN, a, b, &d) ? d : weft_dim_fresh(pool);
}
