/* Private layout of dims: what dim.c, dim_arith.c and dim_text.c share. */
#ifndef WEFT_BASE_DIM_INT_H
#define WEFT_BASE_DIM_INT_H

#include "base/dim.h"
#include "base/map.h"

enum {
    DIM_TERMS_MAX = 64,   /* of an interned expression */
    DIM_WORK_TERMS = 256, /* of an intermediate result: terms may cancel later */
    DIM_DEGREE_MAX = 13,  /* atoms of one term */
    DIM_DEPTH_MAX = 24,   /* of opaque atoms inside each other; below the nesting of the parser */
    DIM_WEIGHT_MAX = 2048 /* symbols of an expression written out; bounds every recursion */
};

/* Infinity of intervals: bounds are clamped to [-DIM_INF, DIM_INF]. */
#define DIM_INF (INT64_MAX / 4)

typedef enum weft_dimkind { DIM_SYMBOL, DIM_FLOORDIV, DIM_MAX, DIM_MIN } weft_dimkind;

/* A symbol, or a function that the polynomial form cannot express. */
typedef struct weft_dimatom {
    weft_dimkind kind;
    uint32_t symbol; /* DIM_SYMBOL: its number */
    uint32_t depth, weight;
    weft_dim a, b;      /* other kinds: the arguments */
    weft_dim self;      /* the expression that is just this atom */
    uint32_t same_hash; /* number plus 1 of an older atom; 0: none */
} weft_dimatom;

/* coef * atom[0] * ... * atom[n - 1]; atoms sorted, unused ones 0. */
typedef struct weft_dimterm {
    int64_t coef;
    uint32_t n;
    uint32_t atom[DIM_DEGREE_MAX];
} weft_dimterm;

/* Terms sorted: higher degree first, then by atoms; the constant is last. */
typedef struct weft_dimexpr {
    const weft_dimterm *term;
    uint32_t n;
    uint32_t depth, weight;
    uint32_t same_hash; /* number plus 1 of an older expression; 0: none */
} weft_dimexpr;

/* A polynomial that is not interned yet. */
typedef struct weft_dimpoly {
    uint32_t n;
    weft_dimterm term[DIM_WORK_TERMS];
} weft_dimpoly;

typedef struct weft_dimsym {
    const char *name;
    int64_t lo, hi;
    uint32_t atom;
    bool data;
} weft_dimsym;

struct weft_dimpool {
    weft_arena *arena;
    weft_names *names;
    weft_map *symbol_of_name;
    WEFT_VEC(weft_dimsym) symbols;
    WEFT_VEC(weft_dimatom) atoms;
    WEFT_VEC(weft_dimexpr) exprs;
    weft_map *newest_atom, *newest_expr; /* hash to the number plus 1 of the newest with it */
    uint32_t next_fresh;
};

typedef struct weft_dimrange {
    int64_t lo, hi;
} weft_dimrange;

static inline const weft_dimexpr *weft_dim__expr(const weft_dimpool *pool, weft_dim d)
{
    return &pool->exprs.at[WEFT_DIM_CONST_MIN - d];
}

/* A total order by structure and names, never by handles: it is the same in every pool that holds
 * the expressions. */
int weft_dim__compare(const weft_dimpool *pool, weft_dim a, weft_dim b);
int weft_dim__compare_terms(const weft_dimpool *pool, const weft_dimterm *a, const weft_dimterm *b);

/* The polynomial of a dim, and back. Functions that return bool give false when the result is over
 * a limit or overflows. */
void weft_dim__to_poly(const weft_dimpool *pool, weft_dim d, weft_dimpoly *out);
bool weft_dim__from_poly(weft_dimpool *pool, const weft_dimpoly *poly, weft_dim *out);
bool weft_dim__poly_add(const weft_dimpool *pool, weft_dimpoly *poly, const weft_dimterm *term);

/* The opaque atom of that kind over those arguments: found, or made. */
bool weft_dim__find_opaque(const weft_dimpool *pool, weft_dimkind kind, weft_dim a, weft_dim b,
                           weft_dim *out);
bool weft_dim__make_opaque(weft_dimpool *pool, weft_dimkind kind, weft_dim a, weft_dim b,
                           weft_dim *out);
/* NULL when `d` is not exactly one opaque atom or symbol. */
const weft_dimatom *weft_dim__as_atom(const weft_dimpool *pool, weft_dim d);
weft_dim weft_dim__name_symbol(weft_dimpool *pool, const char *name, size_t len);

/* The operations of dim.h; false on failure, where those of dim.h give a fresh symbol. */
bool weft_dim__add(weft_dimpool *pool, weft_dim a, weft_dim b, int64_t scale, weft_dim *out);
bool weft_dim__mul(weft_dimpool *pool, weft_dim a, weft_dim b, weft_dim *out);
bool weft_dim__floordiv(weft_dimpool *pool, weft_dim a, weft_dim b, weft_dim *out);
bool weft_dim__extremum(weft_dimpool *pool, weft_dimkind kind, weft_dim a, weft_dim b,
                        weft_dim *out);
int64_t weft_dim__floor_i64(int64_t a, int64_t b);

#endif
