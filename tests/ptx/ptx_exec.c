/* The instructions, for the lanes of a mask. A register holds its bits, zero-extended to 64. */
#include "tests/ptx/ptx_int.h"

#include "base/f16.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 wide_u;

/* Executes `...` with `l` for each lane of `mask`. */
#define LANES(...)                                     \
    do {                                               \
        if (mask == ~0u) {                             \
            for (unsigned l = 0; l < PTX_LANES; l++) { \
                __VA_ARGS__;                           \
            }                                          \
        } else {                                       \
            for (unsigned l = 0; l < PTX_LANES; l++)   \
                if (mask >> l & 1) {                   \
                    __VA_ARGS__;                       \
                }                                      \
        }                                              \
    } while (0)

static uint64_t *row(ptx_warp *w, int reg)
{
    return w->reg + (size_t)reg * PTX_LANES;
}

static uint64_t low(uint64_t x, unsigned bytes)
{
    return bytes >= 8 ? x : x & ((1ull << 8 * bytes) - 1);
}

static int64_t extend(uint64_t x, unsigned bytes)
{
    unsigned shift = 64 - 8 * bytes;
    return (int64_t)(x << shift) >> shift;
}

static float as_f32(uint64_t x)
{
    uint32_t bits = (uint32_t)x;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint64_t of_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static double as_f64(uint64_t x)
{
    double f;
    memcpy(&f, &x, sizeof f);
    return f;
}

static uint64_t of_f64(double f)
{
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static double real_of(uint64_t x, ptx_type t)
{
    switch (t) {
    case PTX_f64:
        return as_f64(x);
    case PTX_f16:
        return (double)weft_f16_to_f32((uint16_t)x);
    case PTX_bf16:
        return (double)as_f32(low(x, 2) << 16);
    default:
        return (double)as_f32(x);
    }
}

static void unknown(ptx_state *s, const ptx_insn *i)
{
    (void)i;
    ptx_fail(s, -1, "an instruction that the interpreter does not know");
}

/* -- Integers --------------------------------------------------------------------------------- */

static uint64_t divide(uint64_t x, uint64_t y, bool rest, bool is_signed, unsigned n)
{
    if (low(y, n) == 0)
        return low(~0ull, n);
    if (!is_signed)
        return rest ? low(x, n) % low(y, n) : low(x, n) / low(y, n);
    int64_t a = extend(x, n), b = extend(y, n);
    if (b == -1)
        return rest ? 0 : low(0 - (uint64_t)a, n);
    return low((uint64_t)(rest ? a % b : a / b), n);
}

static void integers(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned n = ptx_type_bytes(i->type);
    bool is_signed = ptx_type_kind(i->type) == 's';
    uint64_t *d = row(w, i->a[0]);
    const uint64_t *x = row(w, i->a[1]), *y = row(w, i->a[i->n > 2 ? 2 : 1]),
                   *z = row(w, i->a[i->n > 3 ? 3 : 1]);
    const bool high = ptx_has(i, PTX_F_hi), twice = ptx_has(i, PTX_F_wide);
    switch (i->op) {
    case PTX_add:
        LANES(d[l] = low(x[l] + y[l], n));
        break;
    case PTX_sub:
        LANES(d[l] = low(x[l] - y[l], n));
        break;
    case PTX_mul:
    case PTX_mad: {
        bool add = i->op == PTX_mad;
        if (twice && is_signed)
            LANES(d[l] =
                      low((uint64_t)(extend(x[l], n) * extend(y[l], n)) + (add ? z[l] : 0), 2 * n));
        else if (twice)
            LANES(d[l] = low(low(x[l], n) * low(y[l], n) + (add ? z[l] : 0), 2 * n));
        else if (high && is_signed)
            LANES(d[l] = low((uint64_t)((wide)extend(x[l], n) * extend(y[l], n) >> 8 * n) +
                                 (add ? z[l] : 0),
                             n));
        else if (high)
            LANES(d[l] = low((uint64_t)((wide_u)low(x[l], n) * low(y[l], n) >> 8 * n) +
                                 (add ? z[l] : 0),
                             n));
        else
            LANES(d[l] = low(x[l] * y[l] + (add ? z[l] : 0), n));
        break;
    }
    case PTX_div:
    case PTX_rem:
        LANES(d[l] = divide(x[l], y[l], i->op == PTX_rem, is_signed, n));
        break;
    case PTX_neg:
        LANES(d[l] = low(0 - x[l], n));
        break;
    case PTX_abs:
        LANES(d[l] = low(extend(x[l], n) < 0 ? 0 - x[l] : x[l], n));
        break;
    case PTX_min:
    case PTX_max: {
        bool max = i->op == PTX_max;
        if (is_signed)
            LANES(d[l] = low((extend(x[l], n) < extend(y[l], n)) != max ? x[l] : y[l], n));
        else
            LANES(d[l] = low((low(x[l], n) < low(y[l], n)) != max ? x[l] : y[l], n));
        break;
    }
    case PTX_and:
        LANES(d[l] = low((x[l] ^ i->negated[1]) & (y[l] ^ i->negated[2]), n));
        break;
    case PTX_or:
        LANES(d[l] = low((x[l] ^ i->negated[1]) | (y[l] ^ i->negated[2]), n));
        break;
    case PTX_xor:
        LANES(d[l] = low(x[l] ^ y[l], n));
        break;
    case PTX_not:
        if (i->type == PTX_pred)
            LANES(d[l] = !(x[l] & 1));
        else
            LANES(d[l] = low(~x[l], n));
        break;
    case PTX_shl:
        LANES(d[l] = low(y[l], 4) >= 8 * n ? 0 : low(x[l] << low(y[l], 4), n));
        break;
    case PTX_shr:
        if (is_signed)
            LANES(d[l] = low((uint64_t)(extend(x[l], n) >>
                                        (low(y[l], 4) >= 8 * n ? 8 * n - 1 : low(y[l], 4))),
                             n));
        else
            LANES(d[l] = low(y[l], 4) >= 8 * n ? 0 : low(x[l], n) >> low(y[l], 4));
        break;
    default:
        unknown(s, i);
    }
}

/* add.cc, addc, sub.cc, subc, mad.cc, madc: sums with a carry in, out, or both. */
static void carries(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned n = ptx_type_bytes(i->type);
    bool with = i->op == PTX_addc || i->op == PTX_subc || i->op == PTX_madc;
    bool minus = i->op == PTX_sub || i->op == PTX_subc, out = ptx_has(i, PTX_F_cc);
    bool product = i->op == PTX_mad || i->op == PTX_madc, high = ptx_has(i, PTX_F_hi);
    uint64_t *d = row(w, i->a[0]);
    const uint64_t *x = row(w, i->a[1]), *y = row(w, i->a[2]), *z = row(w, i->a[i->n > 3 ? 3 : 2]);
    if (i->n != (product ? 4 : 3) || (product && ptx_type_kind(i->type) == 's' && high) ||
        ptx_has(i, PTX_F_wide)) {
        unknown(s, i);
        return;
    }
    LANES(wide_u all = (wide_u)low(x[l], n) * low(y[l], n);
          uint64_t a = product ? low((uint64_t)(high ? all >> 8 * n : all), n) : low(x[l], n);
          uint64_t b = low(product ? z[l] : y[l], n); uint64_t in = with ? w->carry >> l & 1 : 0;
          wide_u sum = minus ? (wide_u)a - b - in : (wide_u)a + b + in;
          d[l] = low((uint64_t)sum, n);
          if (out) w->carry = (w->carry & ~(1u << l)) | (uint32_t)(sum >> 8 * n & 1) << l);
}

static uint64_t permute(uint64_t a, uint64_t b, uint64_t how)
{
    uint64_t both = low(a, 4) | low(b, 4) << 32, d = 0;
    for (unsigned k = 0; k < 4; k++) {
        unsigned pick = (unsigned)(how >> 4 * k) & 15;
        uint64_t byte = both >> 8 * (pick & 7) & 0xff;
        if (pick & 8)
            byte = byte & 0x80 ? 0xff : 0;
        d |= byte << 8 * k;
    }
    return d;
}

static uint64_t insert_bits(uint64_t a, uint64_t b, uint64_t at, uint64_t len, unsigned n)
{
    at &= 0xff;
    len &= 0xff;
    for (uint64_t k = 0; k < len && at + k < 8 * n; k++)
        b = (b & ~(1ull << (at + k))) | (a >> k & 1) << (at + k);
    return low(b, n);
}

static uint64_t extract_bits(uint64_t a, uint64_t at, uint64_t len, unsigned n, bool is_signed)
{
    uint64_t d = 0, top = 8 * n - 1;
    at &= 0xff;
    len &= 0xff;
    uint64_t last = at + len - 1 < top ? at + len - 1 : top;
    bool sign = is_signed && len && (a >> last & 1);
    for (uint64_t k = 0; k <= top; k++)
        d |= (k < len && at + k <= top ? a >> (at + k) & 1 : (uint64_t)sign) << k;
    return d;
}

static void bits(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned n = ptx_type_bytes(i->type);
    bool is_signed = ptx_type_kind(i->type) == 's';
    uint64_t *d = row(w, i->a[0]);
    const uint64_t *x = row(w, i->a[1]), *y = row(w, i->a[i->n > 2 ? 2 : 1]),
                   *z = row(w, i->a[i->n > 3 ? 3 : 1]), *u = row(w, i->a[i->n > 4 ? 4 : 1]);
    switch (i->op) {
    case PTX_prmt:
        LANES(d[l] = permute(x[l], y[l], z[l]));
        break;
    case PTX_bfi:
        LANES(d[l] = insert_bits(x[l], y[l], z[l], u[l], n));
        break;
    case PTX_bfe:
        LANES(d[l] = extract_bits(x[l], y[l], z[l], n, is_signed));
        break;
    case PTX_brev:
        LANES(uint64_t b = 0;
              for (unsigned k = 0; k < 8 * n; k++) b |= (x[l] >> k & 1) << (8 * n - 1 - k);
              d[l] = b);
        break;
    case PTX_popc:
        LANES(d[l] = (uint64_t)__builtin_popcountll(low(x[l], n)));
        break;
    case PTX_clz:
        LANES(d[l] = low(x[l], n) ? (uint64_t)__builtin_clzll(low(x[l], n)) - (64 - 8 * n) : 8 * n);
        break;
    case PTX_shf: /* of the 64 bits y:x by z */
        LANES(unsigned by = ptx_has(i, PTX_F_wrap) ? (unsigned)z[l] & 31
                            : low(z[l], 4) > 32    ? 32u
                                                   : (unsigned)z[l];
              uint64_t both = low(x[l], 4) | low(y[l], 4) << 32;
              d[l] = low(ptx_has(i, PTX_F_l) ? both << by >> 32 : both >> by, 4));
        break;
    case PTX_lop3:
        LANES(uint64_t r = 0;
              for (unsigned k = 0; k < 32; k++) r |=
              (u[l] >> ((x[l] >> k & 1) << 2 | (y[l] >> k & 1) << 1 | (z[l] >> k & 1)) & 1) << k;
              d[l] = r);
        break;
    case PTX_dp4a:
        LANES(int64_t sum = extend(z[l], 4); for (unsigned k = 0; k < 4; k++) {
            bool sa = i->types[0] == PTX_s32, sb = i->type == PTX_s32;
            uint64_t a = x[l] >> 8 * k & 0xff, b = y[l] >> 8 * k & 0xff;
            sum += (sa ? extend(a, 1) : (int64_t)a) * (sb ? extend(b, 1) : (int64_t)b);
        } d[l] = low((uint64_t)sum, 4));
        break;
    /* Two halves of x by two bytes of y: the lower ones, or the upper ones. */
    case PTX_dp2a:
        LANES(int64_t sum = extend(z[l], 4); for (unsigned k = 0; k < 2; k++) {
            bool sa = i->types[0] == PTX_s32, sb = i->type == PTX_s32;
            uint64_t a = x[l] >> 16 * k & 0xffff;
            uint64_t b = y[l] >> 8 * (k + (ptx_has(i, PTX_F_hi) ? 2 : 0)) & 0xff;
            sum += (sa ? extend(a, 2) : (int64_t)a) * (sb ? extend(b, 1) : (int64_t)b);
        } d[l] = low((uint64_t)sum, 4));
        break;
    default:
        unknown(s, i);
    }
}

/* -- Floats ----------------------------------------------------------------------------------- */

/* An exact result rounded down or up. */
static float round_to(double x, const ptx_insn *i)
{
    float r = (float)x;
    if (ptx_has(i, PTX_F_rm) && (double)r > x)
        return nextafterf(r, -INFINITY);
    if (ptx_has(i, PTX_F_rp) && (double)r < x)
        return nextafterf(r, INFINITY);
    if (ptx_has(i, PTX_F_rz) && fabs((double)r) > fabs(x))
        return nextafterf(r, 0);
    return r;
}

static double unary(ptx_op op, double x)
{
    switch (op) {
    case PTX_rcp:
        return 1 / x;
    case PTX_sqrt:
        return sqrt(x);
    case PTX_rsqrt:
        return 1 / sqrt(x);
    case PTX_ex2:
        return exp2(x);
    case PTX_lg2:
        return log2(x);
    case PTX_sin:
        return sin(x);
    case PTX_cos:
        return cos(x);
    default:
        return tanh(x);
    }
}

static void floats(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    uint64_t *d = row(w, i->a[0]);
    const uint64_t *x = row(w, i->a[1]), *y = row(w, i->a[i->n > 2 ? 2 : 1]),
                   *z = row(w, i->a[i->n > 3 ? 3 : 1]);
    bool sat = ptx_has(i, PTX_F_sat),
         directed = ptx_has(i, PTX_F_rm) || ptx_has(i, PTX_F_rp) || ptx_has(i, PTX_F_rz);
    if (sat || i->n_type > 1 || (i->type != PTX_f32 && i->type != PTX_f64)) {
        unknown(s, i);
        return;
    }
    bool is64 = i->type == PTX_f64;
#define BOTH(expression32, expression64)                                                     \
    do {                                                                                     \
        if (is64)                                                                            \
            LANES(double a = as_f64(x[l]); double b = as_f64(y[l]); double c = as_f64(z[l]); \
                  (void)b, (void)c; d[l] = of_f64(expression64));                            \
        else                                                                                 \
            LANES(float a = as_f32(x[l]); float b = as_f32(y[l]); float c = as_f32(z[l]);    \
                  (void)b, (void)c; d[l] = of_f32(expression32));                            \
    } while (0)
    if (directed && !is64 && i->op != PTX_fma && i->op != PTX_mul && i->op != PTX_add &&
        i->op != PTX_sub) {
        unknown(s, i);
        return;
    }
    switch (i->op) {
    case PTX_add:
        if (directed)
            BOTH(round_to((double)a + (double)b, i), a + b);
        else
            BOTH(a + b, a + b);
        break;
    case PTX_sub:
        if (directed)
            BOTH(round_to((double)a - (double)b, i), a - b);
        else
            BOTH(a - b, a - b);
        break;
    case PTX_mul:
        if (directed)
            BOTH(round_to((double)a * (double)b, i), a * b);
        else
            BOTH(a * b, a * b);
        break;
    case PTX_fma:
    case PTX_mad:
        if (directed)
            BOTH(round_to((double)a * (double)b + (double)c, i), fma(a, b, c));
        else
            BOTH(fmaf(a, b, c), fma(a, b, c));
        break;
    case PTX_div:
        BOTH(a / b, a / b);
        break;
    case PTX_neg:
        if (is64)
            LANES(d[l] = x[l] ^ 1ull << 63);
        else
            LANES(d[l] = low(x[l], 4) ^ 1ull << 31);
        break;
    case PTX_abs:
        if (is64)
            LANES(d[l] = x[l] & ~(1ull << 63));
        else
            LANES(d[l] = x[l] & 0x7fffffff);
        break;
    case PTX_min:
        BOTH(fminf(a, b), fmin(a, b));
        break;
    case PTX_max:
        BOTH(fmaxf(a, b), fmax(a, b));
        break;
    case PTX_copysign: /* the sign of the first operand */
        BOTH(copysignf(b, a), copysign(b, a));
        break;
    case PTX_rcp:
    case PTX_sqrt:
    case PTX_rsqrt:
    case PTX_ex2:
    case PTX_lg2:
    case PTX_sin:
    case PTX_cos:
    case PTX_tanh:
        BOTH((float)unary(i->op, (double)a), unary(i->op, a));
        break;
    default:
        unknown(s, i);
    }
#undef BOTH
}

/* -- Comparisons ------------------------------------------------------------------------------ */

static void compare(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    int orders = i->orders;
    unsigned n = ptx_type_bytes(i->type);
    bool is_real = ptx_type_kind(i->type) == 'f', is_signed = ptx_type_kind(i->type) == 's';
    bool both = ptx_has(i, PTX_F_and), one = ptx_has(i, PTX_F_or), differ = ptx_has(i, PTX_F_xor);
    bool combined = both || one || differ;
    uint64_t *d = row(w, i->a[0]);
    const uint64_t *x = row(w, i->a[1]), *y = row(w, i->a[2]);
    const uint64_t *q = row(w, i->a[combined && i->n > 3 ? 3 : 0]);
    if (!orders || i->n > (combined ? 4 : 3)) {
        unknown(s, i);
        return;
    }
    LANES(
        int order; if (is_real) {
            double a = real_of(x[l], i->type);
            double b = real_of(y[l], i->type);
            order = a < b ? 1 : a == b ? 2 : a > b ? 4 : 8;
        } else if (is_signed) {
            int64_t a = extend(x[l], n);
            int64_t b = extend(y[l], n);
            order = a < b ? 1 : a == b ? 2 : 4;
        } else {
            uint64_t a = low(x[l], n);
            uint64_t b = low(y[l], n);
            order = a < b ? 1 : a == b ? 2 : 4;
        } bool r = (orders & order) != 0;
        bool p = combined && (q[l] & 1) != i->negated[3]; d[l] = both     ? r && p
                                                                 : one    ? r || p
                                                                 : differ ? r != p
                                                                          : r);
}

/* -- Conversions ------------------------------------------------------------------------------ */

static double round_whole(double x, const ptx_insn *i)
{
    if (ptx_has(i, PTX_F_rni))
        return nearbyint(x);
    if (ptx_has(i, PTX_F_rmi))
        return floor(x);
    if (ptx_has(i, PTX_F_rpi))
        return ceil(x);
    return ptx_has(i, PTX_F_rzi) ? trunc(x) : x;
}

/* Saturates; NaN gives 0. */
static uint64_t whole_of(double x, ptx_type t)
{
    unsigned n = ptx_type_bytes(t);
    bool is_signed = ptx_type_kind(t) == 's';
    double least = is_signed ? -ldexp(1, (int)(8 * n) - 1) : 0;
    double most = ldexp(1, (int)(8 * n) - is_signed);
    if (x != x)
        return 0;
    if (x < least)
        x = least;
    if (x >= most)
        return low(is_signed ? (1ull << (8 * n - 1)) - 1 : ~0ull, n);
    return low(is_signed ? (uint64_t)(int64_t)x : (uint64_t)x, n);
}

static uint64_t bits_of_real(double x, ptx_type to, const ptx_insn *i)
{
    float f = to == PTX_f64 ? 0 : (float)x;
    switch (to) {
    case PTX_f64:
        return of_f64(x);
    case PTX_f16:
        return weft_f16_from_f32(f);
    case PTX_bf16:
        return weft_bf16_from_f32(f);
    case PTX_tf32: { /* rna: to nearest, halves away from zero */
        uint64_t b = of_f32(f);
        return (b & 0x7f800000) == 0x7f800000 ? b : (b + 0x1000) & 0xffffe000u;
    }
    default:
        return of_f32(round_to(x, i));
    }
}

static uint64_t convert(uint64_t x, const ptx_insn *i, unsigned width)
{
    ptx_type to = i->types[0]; /* cvt.TO.FROM */
    bool to_real = ptx_type_kind(to) == 'f', from_real = ptx_type_kind(i->type) == 'f';
    if (from_real) {
        double r = round_whole(real_of(x, i->type), i);
        if (!to_real)
            return low((uint64_t)extend(whole_of(r, to), ptx_type_bytes(to)), width);
        if (ptx_has(i, PTX_F_sat))
            r = r > 0 ? r < 1 ? r : 1 : 0; /* NaN gives 0 */
        return bits_of_real(r, to, i);
    }
    unsigned n = ptx_type_bytes(i->type), m = ptx_type_bytes(to);
    bool is_signed = ptx_type_kind(i->type) == 's';
    if (!to_real) {
        uint64_t y = low(is_signed ? (uint64_t)extend(x, n) : low(x, n), m);
        return low(ptx_type_kind(to) == 's' ? (uint64_t)extend(y, m) : y, width);
    }
    if (to == PTX_f64)
        return of_f64(is_signed ? (double)extend(x, n) : (double)low(x, n));
    return to == PTX_f32
               ? of_f32(is_signed ? (float)extend(x, n) : (float)low(x, n))
               : bits_of_real(is_signed ? (double)extend(x, n) : (double)low(x, n), to, i);
}

/* -- Moves
 * ------------------------------------------------------------------------------------------------
 */

/* mov.b64 %rd, {%r1, %r2}; mov.b32 {%rs1, %rs2}, %r; mov.u32 %r1, %r2 */
static void move(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned n = ptx_type_bytes(i->type), to = i->group[1] - i->group[0], from = i->n - to;
    if (to == 1 && from == 1) {
        uint64_t *d = row(w, i->a[0]);
        const uint64_t *x = row(w, i->a[1]);
        LANES(d[l] = low(x[l], n));
    } else if (to == 1) {
        unsigned each = n / from;
        LANES(uint64_t y = 0; for (unsigned k = 0; k < from; k++) y |=
                              low(row(w, i->a[1 + k])[l], each) << 8 * each * k;
              row(w, i->a[0])[l] = y);
    } else if (from == 1) {
        unsigned each = n / to;
        LANES(uint64_t y = row(w, i->a[to])[l];
              for (unsigned k = 0; k < to; k++) row(w, i->a[k])[l] = low(y >> 8 * each * k, each));
    } else {
        unknown(s, i);
    }
}

static void load_param(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned n = ptx_type_bytes(i->type), which = (unsigned)i->a[i->n - 1];
    uint64_t value = 0;
    if (i->vec != 1 || i->offset[0] < 0 || i->offset[0] + n > s->k->param[which].bytes) {
        ptx_fail(s, -1, "a parameter of %u bytes", s->k->param[which].bytes);
        return;
    }
    memcpy(&value, (const char *)s->launch->param[which] + i->offset[0], n);
    uint64_t *d = row(w, i->a[0]);
    if (ptx_type_kind(i->type) == 's')
        value = low((uint64_t)extend(value, n), s->k->reg[i->a[0]].width);
    LANES(d[l] = value);
}

static void count_shared(ptx_state *s, ptx_warp *w, int reg, int64_t offset, uint32_t mask,
                         unsigned bytes)
{
    uint32_t at[PTX_LANES] = {0};
    const uint64_t *x = row(w, reg);
    LANES(at[l] = (uint32_t)(x[l] + (uint64_t)offset));
    ptx_count_banks(s, at, mask, bytes);
}

/* The address: of 32 bits in windows of their own, or generic of 64. */
static uint64_t address(const ptx_insn *i, uint64_t x)
{
    return x + (uint64_t)i->offset[0];
}

static void load(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned n = ptx_type_bytes(i->type);
    int at = i->a[i->n - 1];
    if (i->space == PTX_PARAM) {
        load_param(s, w, i, mask);
        return;
    }
    if (i->space == PTX_SHARED)
        count_shared(s, w, at, i->offset[0], mask, n * i->vec);
    bool is_signed = ptx_type_kind(i->type) == 's';
    LANES(const unsigned char *p = ptx_touch(s, w->first_thread + l, i->space,
                                             address(i, row(w, at)[l]), n * i->vec, false);
          if (!p) return; for (unsigned k = 0; k < i->vec; k++) {
              uint64_t v = 0;
              memcpy(&v, p + k * n, n);
              if (is_signed)
                  v = low((uint64_t)extend(v, n), s->k->reg[i->a[k]].width);
              row(w, i->a[k])[l] = v;
          });
}

static void store(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned n = ptx_type_bytes(i->type);
    if (i->space == PTX_SHARED)
        count_shared(s, w, i->a[0], i->offset[0], mask, n * i->vec);
    LANES(unsigned char *p = ptx_touch(s, w->first_thread + l, i->space,
                                       address(i, row(w, i->a[0])[l]), n * i->vec, true);
          if (!p) return;
          for (unsigned k = 0; k < i->vec; k++) memcpy(p + k * n, &row(w, i->a[1 + k])[l], n));
}

static void change_space(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    uint64_t window = i->space == PTX_SHARED  ? PTX_SHARED_WINDOW
                      : i->space == PTX_LOCAL ? PTX_LOCAL_WINDOW
                                              : 0;
    uint64_t *d = row(w, i->a[0]);
    const uint64_t *x = row(w, i->a[1]);
    if (i->space == PTX_PARAM)
        unknown(s, i);
    else if (ptx_has(i, PTX_F_to))
        LANES(d[l] = x[l] & ~window);
    else
        LANES(d[l] = x[l] | window);
}

/* -- Of a warp
 * -----------------------------------------------------------------------------------------------
 */

static bool whole_warp(ptx_state *s, const ptx_warp *w, uint32_t mask)
{
    if (mask == ~0u)
        return true;
    ptx_fail(s, (int)w->first_thread, "by a part of the warp (%08x)", mask);
    return false;
}

static void shuffle(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned first = i->n == 6 ? 2 : 1; /* with a predicate beside the result */
    uint64_t x[PTX_LANES], y[PTX_LANES], ok[PTX_LANES] = {0};
    memcpy(x, row(w, i->a[first]), sizeof x);
    const uint64_t *b = row(w, i->a[first + 1]), *c = row(w, i->a[first + 2]),
                   *members = row(w, i->a[first + 3]);
    for (unsigned l = 0; l < PTX_LANES; l++) {
        if (!(mask >> l & 1))
            continue;
        if ((uint32_t)members[l] != mask) {
            ptx_fail(s, (int)(w->first_thread + l), "lanes %08x of the warp for the mask %08x",
                     mask, (uint32_t)members[l]);
            return;
        }
        int by = (int)b[l] & 31, clamp = (int)c[l] & 31, segment = (int)(c[l] >> 8) & 31,
            me = (int)l;
        int least = me & segment, most = least | (clamp & ~segment), from;
        bool inside;
        if (ptx_has(i, PTX_F_up)) {
            from = me - by;
            inside = from >= most;
        } else {
            from = ptx_has(i, PTX_F_down)   ? me + by
                   : ptx_has(i, PTX_F_bfly) ? me ^ by
                                            : least | (by & ~segment);
            inside = from <= most;
        }
        if (!inside)
            from = me;
        if (!(mask >> from & 1)) {
            ptx_fail(s, (int)(w->first_thread + l), "from lane %d, which takes no part", from);
            return;
        }
        y[l] = x[from];
        ok[l] = inside;
    }
    LANES(row(w, i->a[0])[l] = low(y[l], 4); if (first == 2) row(w, i->a[1])[l] = ok[l]);
}

static void vote(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    uint32_t on = 0;
    const uint64_t *p = row(w, i->a[1]), *members = row(w, i->a[2]);
    for (unsigned l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1 && (uint32_t)members[l] != mask) {
            ptx_fail(s, (int)(w->first_thread + l), "lanes %08x of the warp for the mask %08x",
                     mask, (uint32_t)members[l]);
            return;
        }
    LANES(on |= (uint32_t)((p[l] & 1) != i->negated[1]) << l);
    if (ptx_has(i, PTX_F_ballot))
        LANES(row(w, i->a[0])[l] = on);
    else if (ptx_has(i, PTX_F_any))
        LANES(row(w, i->a[0])[l] = on != 0);
    else if (ptx_has(i, PTX_F_all))
        LANES(row(w, i->a[0])[l] = on == mask);
    else
        unknown(s, i);
}

/* Lane l gets, of matrix m, elements 2t and 2t + 1 of row g; transposed, of column g. */
static void load_matrices(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    unsigned n = ptx_has(i, PTX_F_x4) ? 4 : ptx_has(i, PTX_F_x2) ? 2 : 1;
    bool transposed = ptx_has(i, PTX_F_trans);
    uint16_t element[4][8][8];
    if (!whole_warp(s, w, mask))
        return;
    const uint64_t *at = row(w, i->a[n]);
    count_shared(s, w, i->a[n], i->offset[0], n == 4 ? ~0u : (1u << 8 * n) - 1, 16);
    for (unsigned l = 0; l < 8 * n; l++) {
        const unsigned char *p =
            ptx_touch(s, w->first_thread + l, PTX_SHARED, address(i, at[l]), 16, false);
        if (!p)
            return;
        memcpy(element[l / 8][l % 8], p, 16);
    }
    for (unsigned m = 0; m < n; m++)
        for (unsigned l = 0; l < PTX_LANES; l++) {
            unsigned g = l / 4, t = l % 4 * 2;
            uint32_t lo = transposed ? element[m][t][g] : element[m][g][t];
            uint32_t hi = transposed ? element[m][t + 1][g] : element[m][g][t + 1];
            row(w, i->a[m])[l] = lo | hi << 16;
        }
}

/* -- Tensor cores ----------------------------------------------------------------------------- */

static float half_of(uint32_t pair, unsigned which, bool is_bf16)
{
    uint16_t h = (uint16_t)(pair >> 16 * which);
    return is_bf16 ? as_f32((uint64_t)h << 16) : weft_f16_to_f32(h);
}

/* d[16][8] = a[16][k] b[k][8] + c. A register of a holds `each` neighbours along k; registers
 * alternate between rows g and g + 8, then go on by 4 * each along k. */
static void multiply(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    float a[16][16], b[16][8], d[16][8];
    /* Of d, a, b, c. */
    bool tf32 = i->types[1] == PTX_tf32, bf16 = i->types[1] == PTX_bf16;
    bool half = bf16 || i->types[1] == PTX_f16;
    half = half && i->types[0] == PTX_f32 && i->types[1] == i->types[2];
    unsigned depth = ptx_has(i, PTX_F_m16n8k16) ? 16 : ptx_has(i, PTX_F_m16n8k8) ? 8 : 0;
    unsigned each = tf32 ? 1 : 2, n_b = depth / (4 * each), n_a = 2 * n_b;
    if (!depth || !(tf32 || half) || i->n != 8 + n_a + n_b) {
        unknown(s, i);
        return;
    }
    if (!whole_warp(s, w, mask))
        return;
    s->m->count.mma++;
    const int *ra = i->a + 4, *rb = ra + n_a, *rc = rb + n_b;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        unsigned g = l / 4, t = l % 4;
        for (unsigned r = 0; r < n_a; r++)
            for (unsigned e = 0; e < each; e++) {
                uint32_t x = (uint32_t)row(w, ra[r])[l];
                a[g + r % 2 * 8][r / 2 * 4 * each + t * each + e] =
                    tf32 ? as_f32(x & 0xffffe000u) : half_of(x, e, bf16);
            }
        for (unsigned r = 0; r < n_b; r++)
            for (unsigned e = 0; e < each; e++) {
                uint32_t x = (uint32_t)row(w, rb[r])[l];
                b[r * 4 * each + t * each + e][g] =
                    tf32 ? as_f32(x & 0xffffe000u) : half_of(x, e, bf16);
            }
        for (unsigned r = 0; r < 4; r++)
            d[g + r / 2 * 8][2 * t + r % 2] = as_f32(row(w, rc[r])[l]);
    }
    for (unsigned y = 0; y < 16; y++)
        for (unsigned k = 0; k < depth; k++)
            for (unsigned x = 0; x < 8; x++)
                d[y][x] += a[y][k] * b[k][x];
    for (unsigned l = 0; l < PTX_LANES; l++)
        for (unsigned r = 0; r < 4; r++)
            row(w, i->a[r])[l] = of_f32(d[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2]);
}

/* -- Asynchronous copies ---------------------------------------------------------------------- */

static void copy(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    if (ptx_has(i, PTX_F_commit_group)) {
        LANES(ptx_copy_commit(s, w->first_thread + l));
    } else if (ptx_has(i, PTX_F_wait_group)) {
        LANES(ptx_copy_wait(s, w->first_thread + l, (unsigned)row(w, i->a[0])[l]));
    } else if (ptx_has(i, PTX_F_wait_all)) {
        LANES(ptx_copy_commit(s, w->first_thread + l); ptx_copy_wait(s, w->first_thread + l, 0));
    } else if (i->n >= 3) {
        count_shared(s, w, i->a[0], i->offset[0], mask, 16);
        LANES(unsigned bytes = (unsigned)row(w, i->a[2])[l];
              unsigned given = i->n > 3 ? (unsigned)row(w, i->a[3])[l] : bytes;
              ptx_copy_async(s, w->first_thread + l, low(address(i, row(w, i->a[0])[l]), 4),
                             row(w, i->a[1])[l] + (uint64_t)i->offset[1], bytes, given));
    } else {
        unknown(s, i);
    }
}

void ptx_execute(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask)
{
    bool is_real = ptx_type_kind(i->type) == 'f';
    switch (i->op) {
    case PTX_ld:
        load(s, w, i, mask);
        break;
    case PTX_st:
        store(s, w, i, mask);
        break;
    case PTX_mov:
        move(s, w, i, mask);
        break;
    case PTX_cvta:
        change_space(s, w, i, mask);
        break;
    case PTX_cvt:
        if (i->n != 2)
            unknown(s, i);
        else
            LANES(row(w, i->a[0])[l] = convert(row(w, i->a[1])[l], i, s->k->reg[i->a[0]].width));
        break;
    case PTX_setp:
        compare(s, w, i, mask);
        break;
    case PTX_selp:
        LANES(row(w, i->a[0])[l] =
                  low((row(w, i->a[3])[l] & 1) != i->negated[3] ? row(w, i->a[1])[l]
                                                                : row(w, i->a[2])[l],
                      ptx_type_bytes(i->type)));
        break;
    case PTX_testp:
        LANES(double x = real_of(row(w, i->a[1])[l], i->type);
              row(w, i->a[0])[l] = ptx_has(i, PTX_F_finite)     ? isfinite(x) != 0
                                   : ptx_has(i, PTX_F_infinite) ? isinf(x) != 0
                                                                : x != x);
        break;
    case PTX_prmt:
    case PTX_bfi:
    case PTX_bfe:
    case PTX_brev:
    case PTX_popc:
    case PTX_clz:
    case PTX_shf:
    case PTX_lop3:
    case PTX_dp4a:
    case PTX_dp2a:
        bits(s, w, i, mask);
        break;
    case PTX_shfl:
        shuffle(s, w, i, mask);
        break;
    case PTX_vote:
        vote(s, w, i, mask);
        break;
    case PTX_activemask:
        LANES(row(w, i->a[0])[l] = mask);
        break;
    case PTX_ldmatrix:
        load_matrices(s, w, i, mask);
        break;
    case PTX_mma:
        multiply(s, w, i, mask);
        break;
    case PTX_cp:
        copy(s, w, i, mask);
        break;
    case PTX_trap:
        ptx_fail(s, (int)w->first_thread, "a trap");
        break;
    default:
        if (is_real)
            floats(s, w, i, mask);
        else if (ptx_has(i, PTX_F_cc) || i->op == PTX_addc || i->op == PTX_subc ||
                 i->op == PTX_madc)
            carries(s, w, i, mask);
        else
            integers(s, w, i, mask);
    }
}
