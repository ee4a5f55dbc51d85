/* Private to store/. */
#ifndef WEFT_STORE_STORE_INT_H
#define WEFT_STORE_STORE_INT_H

#include "ir/bundle.h"
#include "store/store.h"

#include <openssl/evp.h>

/* -- Files and digests ------------------------------------------------------------------------ */

bool weft_store__hash(const void *bytes, size_t len, uint8_t *out);
/* SHA-256 of a file; its position does not change. */
weft_err weft_store__hash_file(int fd, const char *path, weft_diag *diag, uint8_t *out);
/* Names in a store. */
char *weft_store__chunk_name(const weft_chunk *chunk, weft_arena *arena);
char *weft_store__bundle_name(const char *hex, const char *suffix, weft_arena *arena);
bool weft_store__is_tag(const char *name);
/* Where a file's folder is: the part of the path before its last slash, or ".". */
char *weft_store__folder_of(const char *path, weft_arena *arena);

/* -- Chunks of a bundle ----------------------------------------------------------------------- */

/* Sizes of the chunks of a bundle that was read from a file, in `arena`; they follow each other. */
uint32_t weft_store__split(const weft_bundle *bundle, weft_arena *arena, uint32_t **out);

/* -- Where files come from -------------------------------------------------------------------- */

typedef struct weft_source weft_source;

typedef struct weft_source_want {
    const char *name; /* in the store */
    uint32_t bytes;   /* of the file, exactly */
    uint32_t chunk;   /* for the caller */
} weft_source_want;

/* In `arena`, to be closed also after an error; *out NULL before. */
WEFT_MUST_USE weft_err weft_source__open(const weft_pull_options *options, weft_arena *arena,
                                         weft_diag *diag, weft_source **out);
void weft_source__close(weft_source *source);
/* A whole file of at most `limit` bytes, which the caller frees; NULL: there is none. */
WEFT_MUST_USE weft_err weft_source__read(weft_source *source, const char *name, size_t limit,
                                         weft_diag *diag, char **out, size_t *out_len);
/* Gets files, several at a time, in any order; `take` gets each. Ends at the first error. */
typedef weft_err (*weft_source_take)(void *user, const weft_source_want *want, const uint8_t *bytes,
                                     weft_diag *diag);
WEFT_MUST_USE weft_err weft_source__fetch(weft_source *source, const weft_source_want *want,
                                          uint32_t n, weft_source_take take, void *user,
                                          weft_diag *diag);
/* Bytes that came, also those of downloads that failed. */
uint64_t weft_source__bytes(const weft_source *source);

#endif
