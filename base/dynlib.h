/* Optional shared libraries: opened by one of several names; their functions are looked up into a
 * structure of pointers that a table describes. Neither header nor library is needed to build.
 *
 *     // SYM(need, type of the result, name, parameters), in x_syms.def
 *     SYM(true, int, xOpen, (const char *name))
 *
 *     typedef struct x_api {
 *     #define SYM(need, result, name, params) result(*name) params;
 *     #include "x_syms.def"
 *     #undef SYM
 *     } x_api;
 *     static const weft_dynlib_symbol symbols[] = {
 *     #define SYM(need, result, name, params) {#name, offsetof(x_api, name), need},
 *     #include "x_syms.def"
 *     #undef SYM
 *     }; */
#ifndef WEFT_BASE_DYNLIB_H
#define WEFT_BASE_DYNLIB_H

#include "base/diag.h"

#include <stdbool.h>

typedef struct weft_dynlib weft_dynlib;

typedef struct weft_dynlib_symbol {
    const char *name;
    size_t offset; /* of a pointer to a function, in the caller's structure */
    bool need;     /* false: NULL where the library lacks it */
} weft_dynlib_symbol;

/* Opens the first of `n` names (paths, or sonames that the loader looks for) that can be opened.
 * `what` says in messages what it is: "the CUDA driver". NODEV lists all names, and why the last
 * one failed that is there but cannot be loaded. Owned; thread-safe. */
WEFT_MUST_USE weft_err weft_dynlib_open(const char *what, const char *const *name, size_t n,
                                        weft_diag *diag, weft_dynlib **out);
/* Accepts NULL. */
void weft_dynlib_close(weft_dynlib *lib);
/* The name that was opened. */
const char *weft_dynlib_name(const weft_dynlib *lib);
/* Address of a function; NULL when the library has none of that name. */
void *weft_dynlib_find(const weft_dynlib *lib, const char *symbol);
/* Fills the pointers of `table`. NODEV names every function that is needed and missing. */
WEFT_MUST_USE weft_err weft_dynlib_resolve(const weft_dynlib *lib, const weft_dynlib_symbol *symbol,
                                           size_t n, void *table, weft_diag *diag);

#endif
