/* The pool of dims: symbols, hash-consed atoms and expressions, their order, bounds and values.
 * Arithmetic is in dim_arith.c, text in dim_text.c. */
#include "base/dim.h"

#include "base/dim_int.h"
#include "base/hash.h"
#include "base/num.h"

#include <string.h>

weft_dimpool *weft_dimpool_create(weft_arena *arena)
{
    weft_dimpool *pool = weft_arena_alloc(arena, sizeof *pool);
    pool->arena = arena;
    pool->names = weft_names_create(arena);
    pool->symbol_of_name = weft_map_create(arena);
    pool->newest_atom = weft_map_create(arena);
    pool->newest_expr = weft_map_create(arena);
    return pool;
}

static void copy_map(const weft_map *from, weft_map *to)
{
    for (uint32_t i = 0; i < weft_map_len(from); i++) {
        uint64_t key, value;
        weft_map_entry(from, i, &key, &value);
        weft_map_put(to, key, value);
    }
}

weft_dimpool *weft_dimpool_clone(const weft_dimpool *pool, weft_arena *arena)
{
    weft_dimpool *copy = weft_dimpool_create(arena);
    copy->next_fresh = pool->next_fresh;
    copy_map(pool->newest_atom, copy->newest_atom);
    copy_map(pool->newest_expr, copy->newest_expr);
    for (uint32_t i = 0; i < pool->atoms.len; i++)
        WEFT_VEC_PUSH(arena, &copy->atoms, pool->atoms.at[i]);
    for (uint32_t i = 0; i < pool->exprs.len; i++)
        WEFT_VEC_PUSH(arena, &copy->exprs, pool->exprs.at[i]);
    /* Names hold symbols only. */
    for (uint32_t i = 0; i < pool->symbols.len; i++) {
        const weft_dimsym *s = &pool->symbols.at[i];
        weft_map_put(copy->symbol_of_name, weft_names_add(copy->names, s->name, strlen(s->name)),
                     i);
        WEFT_VEC_PUSH(arena, &copy->symbols, *s);
    }
    return copy;
}

/* -- Order ------------------------------------------------------------------------------------ */

static int compare_atoms(const weft_dimpool *pool, uint32_t i, uint32_t j)
{
    if (i == j)
        return 0;
    const weft_dimatom *a = &pool->atoms.at[i], *b = &pool->atoms.at[j];
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->kind == DIM_SYMBOL)
        return strcmp(pool->symbols.at[a->symbol].name, pool->symbols.at[b->symbol].name);
    int order = weft_dim__compare(pool, a->a, b->a);
    return order ? order : weft_dim__compare(pool, a->b, b->b);
}

int weft_dim__compare_terms(const weft_dimpool *pool, const weft_dimterm *a, const weft_dimterm *b)
{
    if (a->n != b->n)
        return a->n > b->n ? -1 : 1;
    for (uint32_t i = 0; i < a->n; i++) {
        int order = compare_atoms(pool, a->atom[i], b->atom[i]);
        if (order)
            return order;
    }
    return 0;
}

int weft_dim__compare(const weft_dimpool *pool, weft_dim a, weft_dim b)
{
    if (a == b)
        return 0;
    if (weft_dim_is_const(a) || weft_dim_is_const(b)) {
        if (weft_dim_is_const(a) && weft_dim_is_const(b))
            return a < b ? -1 : 1;
        return weft_dim_is_const(a) ? 1 : -1;
    }
    const weft_dimexpr *x = weft_dim__expr(pool, a), *y = weft_dim__expr(pool, b);
    for (uint32_t i = 0; i < x->n && i < y->n; i++) {
        int order = weft_dim__compare_terms(pool, &x->term[i], &y->term[i]);
        if (order)
            return order;
        if (x->term[i].coef != y->term[i].coef)
            return x->term[i].coef < y->term[i].coef ? -1 : 1;
    }
    return x->n < y->n ? -1 : 1;
}

/* -- Polynomials and their interning ---------------------------------------------------------- */

static void sort_atoms(const weft_dimpool *pool, weft_dimterm *t)
{
    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t x = t->atom[i], j = i;
        for (; j > 0 && compare_atoms(pool, t->atom[j - 1], x) > 0; j--)
            t->atom[j] = t->atom[j - 1];
        t->atom[j] = x;
    }
}

bool weft_dim__poly_add(const weft_dimpool *pool, weft_dimpoly *poly, const weft_dimterm *term)
{
    if (term->coef == 0)
        return true;
    weft_dimterm t = *term;
    sort_atoms(pool, &t);
    uint32_t lo = 0, hi = poly->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        int order = weft_dim__compare_terms(pool, &poly->term[mid], &t);
        if (order == 0) {
            weft_dimterm *at = &poly->term[mid];
            if (!weft_i64_add(at->coef, t.coef, &at->coef) || !weft_dim_is_const(at->coef))
                return false;
            if (at->coef == 0) {
                poly->n--;
                memmove(at, at + 1, (poly->n - mid) * sizeof *at);
            }
            return true;
        }
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (poly->n == DIM_WORK_TERMS || !weft_dim_is_const(t.coef))
        return false;
    memmove(&poly->term[lo + 1], &poly->term[lo], (poly->n - lo) * sizeof t);
    poly->term[lo] = t;
    poly->n++;
    return true;
}

void weft_dim__to_poly(const weft_dimpool *pool, weft_dim d, weft_dimpoly *out)
{
    if (weft_dim_is_const(d)) {
        weft_dimterm t = {.coef = d};
        out->n = d != 0;
        out->term[0] = t;
        return;
    }
    const weft_dimexpr *e = weft_dim__expr(pool, d);
    out->n = e->n;
    memcpy(out->term, e->term, e->n * sizeof out->term[0]);
}

static bool measure_poly(const weft_dimpool *pool, const weft_dimpoly *poly, weft_dimexpr *e)
{
    uint64_t weight = 0;
    e->depth = 0;
    for (uint32_t i = 0; i < poly->n; i++) {
        if (!weft_dim_is_const(poly->term[i].coef))
            return false; /* coefficients stay in the range of constants, so that they can be
                             negated */
        for (uint32_t j = 0; j < poly->term[i].n; j++) {
            const weft_dimatom *a = &pool->atoms.at[poly->term[i].atom[j]];
            weight += a->weight;
            e->depth = a->depth > e->depth ? a->depth : e->depth;
        }
    }
    e->weight = (uint32_t)weight;
    return poly->n <= DIM_TERMS_MAX && weight <= DIM_WEIGHT_MAX;
}

static bool same_terms(const weft_dimexpr *e, const weft_dimterm *term, uint32_t n)
{
    return e->n == n && memcmp(e->term, term, n * sizeof *term) == 0;
}

bool weft_dim__from_poly(weft_dimpool *pool, const weft_dimpoly *poly, weft_dim *out)
{
    if (poly->n == 0) {
        *out = 0;
        return true;
    }
    if (poly->n == 1 && poly->term[0].n == 0) {
        *out = poly->term[0].coef;
        return weft_dim_is_const(*out);
    }
    weft_dimexpr e;
    if (!measure_poly(pool, poly, &e))
        return false;
    uint64_t hash = weft_hash64(poly->term, poly->n * sizeof poly->term[0], 0), newest = 0;
    weft_map_get(pool->newest_expr, hash, &newest);
    for (uint32_t i = (uint32_t)newest; i; i = pool->exprs.at[i - 1].same_hash)
        if (same_terms(&pool->exprs.at[i - 1], poly->term, poly->n)) {
            *out = WEFT_DIM_CONST_MIN - (weft_dim)(i - 1);
            return true;
        }
    weft_dimterm *copy = weft_arena_array(pool->arena, poly->n, sizeof *copy);
    memcpy(copy, poly->term, poly->n * sizeof *copy);
    e.term = copy;
    e.n = poly->n;
    e.same_hash = (uint32_t)newest;
    WEFT_VEC_PUSH(pool->arena, &pool->exprs, e);
    weft_map_put(pool->newest_expr, hash, pool->exprs.len);
    *out = WEFT_DIM_CONST_MIN - (weft_dim)(pool->exprs.len - 1);
    return true;
}

/* -- Atoms ------------------------------------------------------------------------------------ */

/* Adds the atom and the expression that consists of it. */
static uint32_t push_atom(weft_dimpool *pool, weft_dimatom atom)
{
    uint32_t i = pool->atoms.len;
    WEFT_VEC_PUSH(pool->arena, &pool->atoms, atom);
    weft_dimpoly poly;
    weft_dimterm t = {.coef = 1, .n = 1, .atom = {i}};
    poly.n = 1;
    poly.term[0] = t;
    weft_dim self = 0;
    /* One atom within the limits of weight: this cannot fail. */
    if (weft_dim__from_poly(pool, &poly, &self))
        pool->atoms.at[i].self = self;
    return i;
}

static uint64_t hash_opaque(weft_dimkind kind, weft_dim a, weft_dim b)
{
    return weft_hash_mix(weft_hash_mix((uint64_t)kind, (uint64_t)a), (uint64_t)b);
}

bool weft_dim__find_opaque(const weft_dimpool *pool, weft_dimkind kind, weft_dim a, weft_dim b,
                           weft_dim *out)
{
    uint64_t newest = 0;
    weft_map_get(pool->newest_atom, hash_opaque(kind, a, b), &newest);
    for (uint32_t i = (uint32_t)newest; i; i = pool->atoms.at[i - 1].same_hash) {
        const weft_dimatom *at = &pool->atoms.at[i - 1];
        if (at->kind == kind && at->a == a && at->b == b) {
            *out = at->self;
            return true;
        }
    }
    return false;
}

static void measure_argument(const weft_dimpool *pool, weft_dim d, weft_dimatom *atom)
{
    if (weft_dim_is_const(d))
        return;
    const weft_dimexpr *e = weft_dim__expr(pool, d);
    atom->weight += e->weight;
    if (e->depth + 1 > atom->depth)
        atom->depth = e->depth + 1;
}

bool weft_dim__make_opaque(weft_dimpool *pool, weft_dimkind kind, weft_dim a, weft_dim b,
                           weft_dim *out)
{
    if (weft_dim__find_opaque(pool, kind, a, b, out))
        return true;
    weft_dimatom atom = {.kind = kind, .depth = 1, .weight = 1, .a = a, .b = b};
    measure_argument(pool, a, &atom);
    measure_argument(pool, b, &atom);
    if (atom.depth > DIM_DEPTH_MAX || atom.weight > DIM_WEIGHT_MAX)
        return false;
    uint64_t hash = hash_opaque(kind, a, b), newest = 0;
    weft_map_get(pool->newest_atom, hash, &newest);
    atom.same_hash = (uint32_t)newest;
    uint32_t i = push_atom(pool, atom);
    weft_map_put(pool->newest_atom, hash, i + 1);
    *out = pool->atoms.at[i].self;
    return true;
}

const weft_dimatom *weft_dim__as_atom(const weft_dimpool *pool, weft_dim d)
{
    if (weft_dim_is_const(d))
        return NULL;
    const weft_dimexpr *e = weft_dim__expr(pool, d);
    bool one = e->n == 1 && e->term[0].n == 1 && e->term[0].coef == 1;
    return one ? &pool->atoms.at[e->term[0].atom[0]] : NULL;
}

/* -- Symbols ---------------------------------------------------------------------------------- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

weft_dim weft_dim__name_symbol(weft_dimpool *pool, const char *name, size_t len)
{
    bool prefix = len == 0 || (name[0] >= '0' && name[0] <= '9');
    char *clean = weft_arena_alloc(pool->arena, len + prefix + 1);
    clean[0] = '_';
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool tail = (i > 0 || prefix) && ((c >= '0' && c <= '9') || c == '.');
        clean[i + prefix] = is_letter(c) || tail ? c : '_';
    }
    uint32_t id = weft_names_add(pool->names, clean, len + prefix);
    uint64_t found;
    if (weft_map_get(pool->symbol_of_name, id, &found))
        return pool->atoms.at[pool->symbols.at[found].atom].self;
    weft_dimsym symbol = {.name = weft_names_text(pool->names, id), .hi = DIM_INF};
    weft_dimatom atom = {.kind = DIM_SYMBOL, .symbol = pool->symbols.len, .weight = 1};
    weft_map_put(pool->symbol_of_name, id, pool->symbols.len);
    WEFT_VEC_PUSH(pool->arena, &pool->symbols, symbol);
    uint32_t i = push_atom(pool, atom);
    pool->symbols.at[pool->symbols.len - 1].atom = i;
    return pool->atoms.at[i].self;
}

weft_dim weft_dim_symbol(weft_dimpool *pool, const char *name, int64_t lo, int64_t hi)
{
    weft_dim d = weft_dim__name_symbol(pool, name, strlen(name));
    weft_dimsym *s = &pool->symbols.at[weft_dim_as_symbol(pool, d)];
    lo = lo > s->lo ? lo : s->lo;
    hi = hi < s->hi ? hi : s->hi;
    if (lo <= hi) {
        s->lo = lo;
        s->hi = hi;
    }
    return d;
}

bool weft_dim_is_valid(const weft_dimpool *pool, weft_dim d)
{
    return weft_dim_is_const(d) || (uint64_t)(WEFT_DIM_CONST_MIN - d) < pool->exprs.len;
}

weft_dim weft_dim_declare_data(weft_dimpool *pool, const char *name)
{
    weft_dim d = weft_dim__name_symbol(pool, name, strlen(name));
    pool->symbols.at[weft_dim_as_symbol(pool, d)].data = true;
    return d;
}

weft_dim weft_dim_fresh(weft_dimpool *pool)
{
    for (;;) {
        char *name = weft_arena_printf(pool->arena, "d%u", (unsigned)pool->next_fresh++);
        if (!weft_names_find(pool->names, name, strlen(name)))
            return weft_dim_declare_data(pool, name);
    }
}

uint32_t weft_dim_symbol_count(const weft_dimpool *pool)
{
    return pool->symbols.len;
}

const char *weft_dim_symbol_name(const weft_dimpool *pool, uint32_t i)
{
    return pool->symbols.at[i].name;
}

bool weft_dim_symbol_is_data(const weft_dimpool *pool, uint32_t i)
{
    return pool->symbols.at[i].data;
}

void weft_dim_symbol_range(const weft_dimpool *pool, uint32_t i, int64_t *out_lo, int64_t *out_hi)
{
    *out_lo = pool->symbols.at[i].lo;
    *out_hi = pool->symbols.at[i].hi;
}

uint32_t weft_dim_as_symbol(const weft_dimpool *pool, weft_dim d)
{
    const weft_dimatom *atom = weft_dim__as_atom(pool, d);
    return atom && atom->kind == DIM_SYMBOL ? atom->symbol : UINT32_MAX;
}

/* -- Bounds and values ------------------------------------------------------------------------ */

static int64_t clamp_inf(int64_t x)
{
    return x > DIM_INF ? DIM_INF : x < -DIM_INF ? -DIM_INF : x;
}

static int64_t mul_sat(int64_t a, int64_t b)
{
    int64_t x;
    if (!weft_i64_mul(a, b, &x))
        return (a < 0) == (b < 0) ? DIM_INF : -DIM_INF;
    return clamp_inf(x);
}

/* a + b; an infinite operand (`inf`) makes the sum infinite. */
static int64_t add_sat(int64_t a, int64_t b, int64_t inf)
{
    return a == inf || b == inf ? inf : clamp_inf(a + b);
}

static weft_dimrange range_of(int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t v[4] = {a, b, c, d};
    weft_dimrange r = {v[0], v[0]};
    for (int i = 1; i < 4; i++) {
        r.lo = v[i] < r.lo ? v[i] : r.lo;
        r.hi = v[i] > r.hi ? v[i] : r.hi;
    }
    return r;
}

static weft_dimrange mul_range(weft_dimrange a, weft_dimrange b)
{
    return range_of(mul_sat(a.lo, b.lo), mul_sat(a.lo, b.hi), mul_sat(a.hi, b.lo),
                    mul_sat(a.hi, b.hi));
}

int64_t weft_dim__floor_i64(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

/* floor(a / b), b > 0; an infinite dividend makes the quotient infinite. */
static int64_t div_sat(int64_t a, int64_t b)
{
    if (a == DIM_INF || a == -DIM_INF)
        return a;
    return weft_dim__floor_i64(a, b);
}

static weft_dimrange div_range(weft_dimrange a, weft_dimrange b)
{
    if (b.lo == 0)
        b.lo = 1; /* a divisor of 0 has no value */
    if (b.hi < b.lo)
        b.hi = b.lo;
    if (b.lo < 0) {
        int64_t most = -a.lo > a.hi ? -a.lo : a.hi;
        weft_dimrange r = {-most, most};
        return r;
    }
    return range_of(div_sat(a.lo, b.lo), div_sat(a.lo, b.hi), div_sat(a.hi, b.lo),
                    div_sat(a.hi, b.hi));
}

static weft_dimrange get_range(const weft_dimpool *pool, weft_dim d);

static weft_dimrange atom_range(const weft_dimpool *pool, const weft_dimatom *atom)
{
    if (atom->kind == DIM_SYMBOL) {
        weft_dimrange r = {pool->symbols.at[atom->symbol].lo, pool->symbols.at[atom->symbol].hi};
        return r;
    }
    weft_dimrange a = get_range(pool, atom->a), b = get_range(pool, atom->b);
    if (atom->kind == DIM_FLOORDIV)
        return div_range(a, b);
    if (atom->kind == DIM_MAX) {
        weft_dimrange r = {a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
        return r;
    }
    weft_dimrange r = {a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
    return r;
}

static weft_dimrange get_range(const weft_dimpool *pool, weft_dim d)
{
    if (weft_dim_is_const(d)) {
        weft_dimrange r = {clamp_inf(d), clamp_inf(d)};
        return r;
    }
    const weft_dimexpr *e = weft_dim__expr(pool, d);
    weft_dimrange sum = {0, 0};
    for (uint32_t i = 0; i < e->n; i++) {
        weft_dimrange r = {clamp_inf(e->term[i].coef), clamp_inf(e->term[i].coef)};
        for (uint32_t j = 0; j < e->term[i].n; j++)
            r = mul_range(r, atom_range(pool, &pool->atoms.at[e->term[i].atom[j]]));
        sum.lo = add_sat(sum.lo, r.lo, -DIM_INF);
        sum.hi = add_sat(sum.hi, r.hi, DIM_INF);
    }
    return sum;
}

void weft_dim_bounds(const weft_dimpool *pool, weft_dim d, int64_t *out_lo, int64_t *out_hi)
{
    if (weft_dim_is_const(d)) {
        *out_lo = *out_hi = d;
        return;
    }
    weft_dimrange r = get_range(pool, d);
    *out_lo = r.lo;
    *out_hi = r.hi;
}

bool weft_dim_is_data(const weft_dimpool *pool, weft_dim d)
{
    if (weft_dim_is_const(d))
        return false;
    const weft_dimexpr *e = weft_dim__expr(pool, d);
    for (uint32_t i = 0; i < e->n; i++) {
        for (uint32_t j = 0; j < e->term[i].n; j++) {
            const weft_dimatom *atom = &pool->atoms.at[e->term[i].atom[j]];
            if (atom->kind == DIM_SYMBOL
                    ? pool->symbols.at[atom->symbol].data
                    : weft_dim_is_data(pool, atom->a) || weft_dim_is_data(pool, atom->b))
                return true;
        }
    }
    return false;
}

bool weft_dim_uses(const weft_dimpool *pool, weft_dim d, uint32_t symbol)
{
    if (weft_dim_is_const(d))
        return false;
    const weft_dimexpr *e = weft_dim__expr(pool, d);
    for (uint32_t i = 0; i < e->n; i++) {
        for (uint32_t j = 0; j < e->term[i].n; j++) {
            const weft_dimatom *atom = &pool->atoms.at[e->term[i].atom[j]];
            if (atom->kind == DIM_SYMBOL
                    ? atom->symbol == symbol
                    : weft_dim_uses(pool, atom->a, symbol) || weft_dim_uses(pool, atom->b, symbol))
                return true;
        }
    }
    return false;
}

static bool eval_atom(const weft_dimpool *pool, const weft_dimatom *atom, const int64_t *value,
                      uint32_t n, int64_t *out)
{
    if (atom->kind == DIM_SYMBOL) {
        if (atom->symbol >= n || value[atom->symbol] < 0)
            return false;
        *out = value[atom->symbol];
        return true;
    }
    int64_t a, b;
    if (!weft_dim_eval(pool, atom->a, value, n, &a) || !weft_dim_eval(pool, atom->b, value, n, &b))
        return false;
    if (atom->kind == DIM_MAX)
        *out = a > b ? a : b;
    else if (atom->kind == DIM_MIN)
        *out = a < b ? a : b;
    else if (b == 0 || (a == INT64_MIN && b == -1))
        return false;
    else
        *out = weft_dim__floor_i64(a, b);
    return true;
}

bool weft_dim_eval(const weft_dimpool *pool, weft_dim d, const int64_t *value, uint32_t n,
                   int64_t *out)
{
    if (weft_dim_is_const(d)) {
        *out = d;
        return true;
    }
    const weft_dimexpr *e = weft_dim__expr(pool, d);
    int64_t sum = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        int64_t product = e->term[i].coef;
        for (uint32_t j = 0; j < e->term[i].n; j++) {
            int64_t x;
            if (!eval_atom(pool, &pool->atoms.at[e->term[i].atom[j]], value, n, &x) ||
                !weft_i64_mul(product, x, &product))
                return false;
        }
        if (!weft_i64_add(sum, product, &sum))
            return false;
    }
    *out = sum;
    return true;
}
