/* Dimensions: a constant, or a polynomial over named symbols.
 *
 * A weft_dim holds a constant directly; other values are handles of expressions interned in a
 * weft_dimpool, in a canonical form: a sum of terms, each a coefficient times sorted atoms; an atom
 * is a symbol or an opaque floor division, maximum or minimum of two dims. Equal expressions
 * therefore have equal handles, and `a == b` is equality that holds for all values of the symbols.
 *
 *   ?b * 768, ?s + 1, floordiv(?h + 1, 2)        (the last was given as floordiv(?h - 1, 2) + 1)
 *
 * Text: symbols are `?name`; operators + - *; functions floordiv(a, b), max(a, b), min(a, b).
 * Single-thread. */
#ifndef WEFT_BASE_DIM_H
#define WEFT_BASE_DIM_H

#include "base/arena.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef int64_t weft_dim;
/* Constants are strictly between these bounds; handles of expressions are <= WEFT_DIM_CONST_MIN. */
#define WEFT_DIM_CONST_MIN (INT64_MIN + ((int64_t)1 << 32))

typedef struct weft_dimpool weft_dimpool;

static inline bool weft_dim_is_const(weft_dim d)
{
    return d > WEFT_DIM_CONST_MIN;
}

/* The dim of a number that data or attributes give. Exporters write numbers beyond the range of
 * dims for "to the start": those become WEFT_DIM_LOWEST, which stands for itself and all below. */
#define WEFT_DIM_LOWEST (WEFT_DIM_CONST_MIN + 1)
static inline weft_dim weft_dim_of_number(int64_t x)
{
    return x < WEFT_DIM_LOWEST ? WEFT_DIM_LOWEST : x;
}
/* A constant that is known exactly. */
static inline bool weft_dim_is_number(weft_dim d)
{
    return d > WEFT_DIM_LOWEST;
}

/* true when `d` is a constant or a handle of an expression of this pool; for numbers read from
 * outside. */
bool weft_dim_is_valid(const weft_dimpool *pool, weft_dim d);

/* Lives in `arena`. */
weft_dimpool *weft_dimpool_create(weft_arena *arena);
/* A copy with the same handles, for analyses that must not change `pool`, which has to outlive the
 * copy. */
weft_dimpool *weft_dimpool_clone(const weft_dimpool *pool, weft_arena *arena);

/* The symbol of that name (made if absent), value in [lo, hi]; a second call with other bounds
 * intersects them (and changes nothing when nothing is left). Characters that text cannot hold
 * become '_'. Bounds: 0 <= lo <= hi. `hi` INT64_MAX / 4 at most: unbounded. */
weft_dim weft_dim_symbol(weft_dimpool *pool, const char *name, int64_t lo, int64_t hi);
/* A new symbol whose value depends on data and is known only at run time: named "d0", "d1", ...
 * (first free). */
weft_dim weft_dim_fresh(weft_dimpool *pool);
uint32_t weft_dim_symbol_count(const weft_dimpool *pool);
/* Symbols are numbered from 0 in order of creation. */
const char *weft_dim_symbol_name(const weft_dimpool *pool, uint32_t i);
bool weft_dim_symbol_is_data(const weft_dimpool *pool, uint32_t i); /* made by weft_dim_fresh */
void weft_dim_symbol_range(const weft_dimpool *pool, uint32_t i, int64_t *out_lo, int64_t *out_hi);
/* Index of the symbol that `d` is, or UINT32_MAX. */
uint32_t weft_dim_as_symbol(const weft_dimpool *pool, weft_dim d);

/* Arithmetic. A result that overflows or grows over a limit becomes a fresh symbol: 64 terms, 13
 * factors in one of them, 24 functions inside each other, 2048 symbols in all. */
weft_dim weft_dim_add(weft_dimpool *pool, weft_dim a, weft_dim b);
weft_dim weft_dim_sub(weft_dimpool *pool, weft_dim a, weft_dim b);
weft_dim weft_dim_mul(weft_dimpool *pool, weft_dim a, weft_dim b);
/* Rounds towards minus infinity; exact division of polynomials by monomials is simplified.
 * Division by constant 0 gives a fresh symbol. */
weft_dim weft_dim_floordiv(weft_dimpool *pool, weft_dim a, weft_dim b);
weft_dim weft_dim_max(weft_dimpool *pool, weft_dim a, weft_dim b);
weft_dim weft_dim_min(weft_dimpool *pool, weft_dim a, weft_dim b);
/* true and *out when b divides a for all values of the symbols. */
bool weft_dim_div_exact(weft_dimpool *pool, weft_dim a, weft_dim b, weft_dim *out);

/* Interval of the value from the bounds of its symbols (saturating). */
void weft_dim_bounds(const weft_dimpool *pool, weft_dim d, int64_t *out_lo, int64_t *out_hi);
/* true when `d` depends on a symbol made by weft_dim_fresh. */
bool weft_dim_is_data(const weft_dimpool *pool, weft_dim d);

bool weft_dim_uses(const weft_dimpool *pool, weft_dim d, uint32_t symbol);

/* Value of `d` where symbol i has value[i]; n values are given. false: a symbol is missing
 * (value < 0 counts as missing), or overflow. */
bool weft_dim_eval(const weft_dimpool *pool, weft_dim d, const int64_t *value, uint32_t n,
                   int64_t *out);

void weft_dim_print(const weft_dimpool *pool, weft_dim d, weft_buf *out);
/* Reads an expression from s (nesting at most 32); returns the bytes used, 0 when wrong. Unknown
 * symbols are made with bounds [0, unbounded]; names "dN" become data symbols only when `data` of
 * weft_dim_declare_data was called for them. */
size_t weft_dim_parse(weft_dimpool *pool, const char *s, weft_dim *out);
/* Makes (or marks) a symbol as known only at run time. */
weft_dim weft_dim_declare_data(weft_dimpool *pool, const char *name);

#endif
