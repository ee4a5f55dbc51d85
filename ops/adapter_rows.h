/* Adapters of low rank (LoRA) as data of a run: which rows of the batch use which adapter, and the
 * factors that an adapter has for the GEMMs of a program that it may change (its sites).
 *
 * A program with operators `adapter_delta` is compiled once for any adapters. Sites are named by
 * the path of the module whose weight they multiply by, as in
 * "encoder.layer.0.attention.self.query". */
#ifndef WEFT_OPS_ADAPTER_ROWS_H
#define WEFT_OPS_ADAPTER_ROWS_H

#include <stdbool.h>
#include <stdint.h>

/* The largest rank that kernels take. */
enum { WEFT_ADAPTER_RANK_MAX = 1024 };

/* What an adapter adds at a site: (x a^T) b, with a [rank, k] and b [rank, n], which has the scale.
 * rank 0: nothing. */
typedef struct weft_adapter_factors {
    int64_t rank, k, n;
    const float *a, *b;
} weft_adapter_factors;

/* The factors of an adapter for the site of this name. */
typedef struct weft_adapter_part {
    const char *site;
    weft_adapter_factors factors;
} weft_adapter_part;

/* Borrowed by a run. factors[i]: of site i of the program. */
typedef struct weft_adapter {
    const weft_adapter_factors *factors;
    uint32_t n_site;
} weft_adapter;

/* Part i of n equal parts of the batch uses adapter of[i]; NULL: none. n 0: no part uses one. */
typedef struct weft_adapter_rows {
    const weft_adapter *const *of;
    int64_t n;
    const char *const *site; /* names of the program's sites */
    uint32_t n_site;
} weft_adapter_rows;

/* Number of the site; UINT32_MAX: the program has none of that name. */
uint32_t weft_adapter_site(const weft_adapter_rows *rows, const char *name);
/* The factors for site `site` of part `part`, which fit k and n; NULL: there are none. */
const weft_adapter_factors *weft_adapter_factors_of(const weft_adapter_rows *rows, int64_t part,
                                                    uint32_t site, int64_t k, int64_t n);

/* How well a path of a module fits another: the same, one ends with '.' and the other, as where an
 * exporter or a trainer saw only a part of the network, or not at all. */
typedef enum weft_path_fit { WEFT_PATH_APART, WEFT_PATH_ENDS, WEFT_PATH_SAME } weft_path_fit;

weft_path_fit weft_path_compare(const char *a, const char *b);

#endif
