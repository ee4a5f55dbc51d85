/* Private to ir/bundle*.c: the bytes of a bundle, little-endian. docs/bundle.md has the tables.
 *
 *   header    0 magic  4 version  8 file length  16 table at  24 sections  28.. zero  56 checksum
 *   section   0 kind   4 zero     8 offset      16 length    24 checksum */
#ifndef WEFT_IR_BUNDLE_INT_H
#define WEFT_IR_BUNDLE_INT_H

#include "ir/bundle.h"

struct Weft__Bundle__Bundle; /* bundle.proto */

#define WEFT_BUNDLE_MAGIC "WEFT"

enum {
    WEFT_BUNDLE_VERSION = 1,
    WEFT_BUNDLE_HEADER_BYTES = 64,
    WEFT_BUNDLE_CHECKED_BYTES = 56, /* of the header, then the table */
    WEFT_BUNDLE_ENTRY_BYTES = 32,
    WEFT_BUNDLE_ALIGN = 64,
    WEFT_BUNDLE_SYMBOLS_MAX = 256,
    WEFT_BUNDLE_REQUIRES_MAX = 65536,
    WEFT_BUNDLE_META_MAX_BYTES = 256 << 20
};

/* In this order, each at most once. */
typedef enum weft_section_kind {
    WEFT_SECTION_NONE,
    WEFT_SECTION_META,
    WEFT_SECTION_WEIGHTS,
    WEFT_SECTION_CODE, /* only of bundles for GPUs */
    WEFT_SECTION_END
} weft_section_kind;

enum { WEFT_BUNDLE_SECTIONS_MIN = WEFT_SECTION_WEIGHTS, WEFT_BUNDLE_SECTIONS = WEFT_SECTION_CODE };

/* Limits of a command, beyond those of any GPU. */
enum {
    WEFT_BUNDLE_ARCHS_MAX = 32,
    WEFT_BUNDLE_TUNINGS_MAX = 64,
    WEFT_BUNDLE_PARAMS_MAX = 128,
    WEFT_BUNDLE_THREADS_MAX = 1024,
    WEFT_BUNDLE_SHARED_MAX_BYTES = 256 << 10
};

static inline uint64_t weft_bundle__get(const uint8_t *at, unsigned bytes)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < bytes; i++)
        x |= (uint64_t)at[i] << 8 * i;
    return x;
}

static inline void weft_bundle__put(uint8_t *at, unsigned bytes, uint64_t x)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(x >> 8 * i);
}

/* Checksum of header and table. */
uint64_t weft_bundle__hash_head(const uint8_t *header, const uint8_t *table, size_t table_bytes);
/* Checksum of the weights section: computed from the weights' checksums, without reading them. */
uint64_t weft_bundle__hash_weights(const weft_bundle_weight *weight, uint32_t n);
/* The same for the code section. */
uint64_t weft_bundle__hash_images(const weft_bundle_image *image, uint32_t n);

/* Reads the metadata into structures in b->arena, and checks them. `weights` and `code` (NULL:
 * none) are the sections with the bytes. Both arenas must have a recovery point. */
WEFT_MUST_USE weft_err weft_bundle__read(weft_bundle *b, const struct Weft__Bundle__Bundle *msg,
                                         const weft_file *weights, const weft_file *code,
                                         const char *path, weft_arena *scratch, weft_diag *diag);

#endif
