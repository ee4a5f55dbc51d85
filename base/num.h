/* Checked arithmetic on sizes, and numbers with units as people write them in files. */
#ifndef WEFT_BASE_NUM_H
#define WEFT_BASE_NUM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* false on overflow; *out is then untouched. */
static inline bool weft_size_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a != 0 && b > UINT64_MAX / a)
        return false;
    *out = a * b;
    return true;
}

static inline bool weft_size_add(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b > UINT64_MAX - a)
        return false;
    *out = a + b;
    return true;
}

static inline uint64_t weft_align_up(uint64_t x, uint64_t align)
{
    return (x + align - 1) / align * align;
}

bool weft_i64_mul(int64_t a, int64_t b, int64_t *out);
bool weft_i64_add(int64_t a, int64_t b, int64_t *out);

/* Whole-string parsers: no blanks before, nothing behind; false when wrong or out of range.
 * duration: "108ms" "1.5s" "250us"; rate: "829/s" "60/min"; bytes: "64MiB" "1.5GB" "4096";
 * percent: "40%" gives 0.4. Only weft_parse_f64 takes "nan", "inf" and "-inf", as
 * weft_buf_put_f64 writes them; numbers with units are not negative. */
bool weft_parse_i64(const char *s, int64_t *out);
bool weft_parse_f64(const char *s, double *out);
bool weft_parse_duration_us(const char *s, double *out);
bool weft_parse_rate_per_s(const char *s, double *out);
bool weft_parse_bytes(const char *s, uint64_t *out);
bool weft_parse_percent(const char *s, double *out);

#endif
