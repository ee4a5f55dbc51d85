/* Stores: bundles in pieces by content, as plain files that any web server, object store or shared
 * folder can offer.
 *
 *   chunks/HH/HEX        a chunk: HEX is the SHA-256 of its bytes, HH its first two digits
 *   chunks/HH/HEX.zst    the same, compressed (one frame of zstd)
 *   bundles/HEX          index of the bundle whose SHA-256 is HEX: its chunks in order
 *   bundles/HEX.sig      its signature, where it has one
 *   tags/NAME            "sha256:HEX" of the bundle that has this name now
 *
 * Files are never changed (tags are replaced as a whole), so that caches may keep them and a store
 * can be copied by any program: chunks first, then bundles, then tags. Everything that comes from
 * a store is untrusted: sizes are bounded by the index before anything is read, a chunk is written
 * only if it has its hash, and a bundle gets its name only if the whole has its hash.
 *
 * All functions: thread-compatible; what they keep is in the caller's arena. */
#ifndef WEFT_STORE_STORE_H
#define WEFT_STORE_STORE_H

#include "base/arena.h"
#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_SHA256_BYTES = 32,
    WEFT_SHA256_TEXT = 2 * WEFT_SHA256_BYTES + 1,
    WEFT_CHUNK_BYTES_MAX = 16 << 20,
    WEFT_INDEX_BYTES_MAX = 64 << 20,
    WEFT_STORE_HAVE_MAX = 64,
    WEFT_STORE_JOBS_MAX = 64
};

/* -- Index: text, one line for the bundle and one for each chunk --------------------------------
 *
 *   weft-index-1 BYTES SHA256
 *   SHA256 BYTES
 *   SHA256 BYTES zstd STORED
 */

typedef struct weft_chunk {
    uint8_t sha256[WEFT_SHA256_BYTES];
    uint32_t bytes;
    uint32_t stored; /* bytes of the compressed chunk; 0: it is stored as it is */
} weft_chunk;

typedef struct weft_chunk_index {
    uint64_t bytes; /* of the bundle: the sum of its chunks */
    uint8_t sha256[WEFT_SHA256_BYTES];
    const weft_chunk *chunk;
    uint32_t n_chunk;
} weft_chunk_index;

/* Takes only what weft_chunk_print_index writes. Chunks are in `arena`; `path` is for messages. */
WEFT_MUST_USE weft_err weft_chunk_parse_index(const char *text, size_t len, const char *path,
                                              weft_arena *arena, weft_diag *diag,
                                              weft_chunk_index *out);
/* The text, in `arena`. */
char *weft_chunk_print_index(const weft_chunk_index *index, weft_arena *arena, size_t *out_len);
void weft_chunk_print_sha256(const uint8_t *sha256, char out[WEFT_SHA256_TEXT]);
/* 64 lower-case hexadecimal digits. */
bool weft_chunk_parse_sha256(const char *hex, size_t len, uint8_t *out);

/* -- Moving bundles --------------------------------------------------------------------------- */

typedef void (*weft_store_progress)(void *user, uint64_t done, uint64_t total);

typedef struct weft_push_options {
    const char *bundle, *folder; /* the folder is made where it is missing */
    const char *tag;             /* or NULL */
    int level;                   /* of zstd; 0: chunks are not compressed */
    weft_store_progress progress;
    void *user;
} weft_push_options;

typedef struct weft_push_report {
    char sha256[WEFT_SHA256_TEXT];
    uint64_t bytes;     /* of the bundle */
    uint32_t n_chunk;   /* of it */
    uint32_t n_new;     /* chunks that the store did not have */
    uint64_t new_bytes; /* in these */
    uint64_t put_bytes; /* written to the store: as much must go to its copies */
    bool is_signed;
} weft_push_report;

/* Chunks that the store has already are not written again. Chunks begin at sections and at weights
 * of the bundle. */
WEFT_MUST_USE weft_err weft_store_push(const weft_push_options *options, weft_arena *arena,
                                       weft_diag *diag, weft_push_report *out);

typedef struct weft_pull_options {
    const char *store;                     /* folder, or http:// or https:// */
    const char *name;                      /* sha256:HEX, or a tag */
    const char *output;                    /* the bundle: replaced as a whole, or not at all */
    const char *have[WEFT_STORE_HAVE_MAX]; /* bundles, or folders whose newest bundle counts */
    uint32_t n_have;
    const char *token; /* file with a bearer token, or NULL */
    const char *ca;    /* certificates (PEM) in place of the system's, or NULL */
    uint32_t jobs;     /* downloads at a time */
    /* Whether a whole file may become the bundle; `signature_fd` -1: the store has none. Called
     * before anything of it is parsed. Also asked whether an older bundle may be parsed. */
    weft_err (*accept)(void *user, int fd, int signature_fd, const char *path, weft_diag *diag);
    weft_store_progress progress;
    void *user;
} weft_pull_options;

typedef struct weft_pull_report {
    char sha256[WEFT_SHA256_TEXT];
    uint64_t bytes; /* of the bundle */
    uint32_t n_chunk;
    uint32_t n_fetched;         /* chunks that the store was asked for */
    uint64_t kept_bytes;        /* were there, of an interrupted pull */
    uint64_t reused_bytes;      /* of older bundles */
    uint64_t fetched_bytes;     /* in chunks that the store was asked for */
    uint64_t transferred_bytes; /* came from the store, with index and signature */
    bool is_signed;
    bool was_there; /* nothing was to be done */
} weft_pull_report;

/* Writes to OUTPUT.part, which a later pull goes on with after any interruption; several pulls of
 * one OUTPUT wait for each other. Chunks that OUTPUT (the bundle before) or one of `have` has are
 * not fetched. The signature goes to OUTPUT.sig. */
WEFT_MUST_USE weft_err weft_store_pull(const weft_pull_options *options, weft_arena *arena,
                                       weft_diag *diag, weft_pull_report *out);

#endif
