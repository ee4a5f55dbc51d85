/* Bodies and messages in the forms gzip (RFC 1952) and deflate (zlib, RFC 1950), within limits. The
 * functions keep nothing and may run beside the loop. */
#ifndef WEFT_RUNTIME_SERVER_ZIP_H
#define WEFT_RUNTIME_SERVER_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Above a megabyte, unpacked bytes over packed ones. */
enum { WEFT_ZIP_RATIO_MAX = 64 };

typedef enum weft_zip_form { WEFT_ZIP_NONE, WEFT_ZIP_GZIP, WEFT_ZIP_DEFLATE } weft_zip_form;

typedef enum weft_zip_result {
    WEFT_ZIP_OK,
    WEFT_ZIP_DAMAGED,
    WEFT_ZIP_TOO_LARGE,
    WEFT_ZIP_NOMEM
} weft_zip_result;

/* Most bytes that `len` packed ones may become: a few must not cost megabytes of memory and seconds
 * of parsing. Never more than `max`. */
size_t weft_zip__most(size_t len, size_t max);
/* Unpacks one member of either form, behind which nothing may follow, to at most `most` bytes. *out
 * is the caller's (free), NULL unless the result is WEFT_ZIP_OK; it may be so of no bytes, too.
 */
weft_zip_result weft_zip__unpack(const void *in, size_t len, size_t most, char **out,
                                 size_t *out_len);
/* Packs quickly rather than well, behind `before` bytes that are left to the caller. false: out of
 * memory, or it would not become smaller. *out is the caller's (free), of *out_len bytes in all. */
bool weft_zip__pack(weft_zip_form form, const void *in, size_t len, size_t before, uint8_t **out,
                    size_t *out_len);
/* "gzip", "deflate", or "identity". */
const char *weft_zip__name(weft_zip_form form);

#endif
