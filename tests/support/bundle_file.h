/* Bundle files around any metadata: with correct checksums and zeros as weights and images, so that
 * the checks after the checksums are reached too. */
#ifndef WEFT_TESTS_SUPPORT_BUNDLE_FILE_H
#define WEFT_TESTS_SUPPORT_BUNDLE_FILE_H

#include "base/hash.h"
#include "base/num.h"
#include "ir/bundle.h"

#include "bundle.pb-c.h"

#include <stdlib.h>
#include <string.h>

enum { WEIGHTS_MAX_BYTES = 1 << 20, IMAGE_MAX_BYTES = 1 << 16, IMAGES_MAX = 64 };

static inline void put(uint8_t *at, unsigned bytes, uint64_t x)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(x >> 8 * i);
}

/* Size of the weights section and its checksum. */
static inline uint64_t measure_weights(const uint8_t *meta, size_t len, uint64_t *out_checksum)
{
    Weft__Bundle__Bundle *msg = weft__bundle__bundle__unpack(NULL, len, meta);
    uint64_t total = 0, hash = msg ? msg->n_weight : 0;
    for (size_t i = 0; msg && i < msg->n_weight; i++) {
        const Weft__Bundle__Weight *w = msg->weight[i];
        uint64_t bytes = weft_dtype_size(weft_dtype_parse(w->dtype));
        for (size_t k = 0; k < w->n_dim; k++)
            bytes = bytes * (w->dim[k] % WEIGHTS_MAX_BYTES) % WEIGHTS_MAX_BYTES;
        total = (total + weft_align_up(bytes, 64)) % WEIGHTS_MAX_BYTES;
        uint8_t checksum[8];
        put(checksum, 8, w->checksum);
        hash = weft_hash64(checksum, 8, hash);
    }
    if (msg)
        weft__bundle__bundle__free_unpacked(msg, NULL);
    *out_checksum = hash;
    return total;
}

static inline void put_entry(uint8_t *at, uint32_t kind, uint64_t offset, uint64_t len,
                             uint64_t checksum)
{
    put(at, 4, kind);
    put(at + 8, 8, offset);
    put(at + 16, 8, len);
    put(at + 24, 8, checksum);
}

/* Metadata with the checksums of zero-filled images; NULL if it has no images or too large ones.
 * *out_bytes, *out_checksum: of the image section. */
static inline uint8_t *fill_images(const uint8_t *meta, size_t len, size_t *out_len,
                                   uint64_t *out_bytes, uint64_t *out_checksum)
{
    static const uint8_t zeros[IMAGE_MAX_BYTES];
    Weft__Bundle__Bundle *msg = weft__bundle__bundle__unpack(NULL, len, meta);
    uint8_t *copy = NULL;
    bool ok = msg && msg->n_arch > 0 && msg->n_image <= IMAGES_MAX;
    *out_bytes = 0;
    *out_checksum = ok ? msg->n_image : 0;
    for (size_t i = 0; ok && i < msg->n_image; i++) {
        Weft__Bundle__Image *image = msg->image[i];
        uint8_t checksum[8];
        ok = image->bytes <= IMAGE_MAX_BYTES;
        image->checksum = weft_hash64(zeros, ok ? (size_t)image->bytes : 0, 0);
        put(checksum, 8, image->checksum);
        *out_checksum = weft_hash64(checksum, 8, *out_checksum);
        *out_bytes += weft_align_up(image->bytes, 64);
    }
    if (ok)
        copy = malloc(weft__bundle__bundle__get_packed_size(msg) + 1);
    if (copy)
        *out_len = weft__bundle__bundle__pack(msg, copy);
    if (msg)
        weft__bundle__bundle__free_unpacked(msg, NULL);
    return copy;
}

/* Builds the file around the metadata; returns its length. The caller frees *out. */
static inline size_t bundle_file_build(const uint8_t *meta, size_t len, uint8_t **out)
{
    uint64_t code = 0, code_checksum = 0, checksum;
    uint8_t *copy = fill_images(meta, len, &len, &code, &code_checksum);
    uint32_t n_section = copy ? 3 : 2, table_bytes = 32 * n_section;
    meta = copy ? copy : meta;
    uint64_t weights = measure_weights(meta, len, &checksum);
    size_t weights_at = 64 + (size_t)weft_align_up(len, 64);
    size_t code_at = weights_at + (size_t)weights, table_at = code_at + (copy ? (size_t)code : 0);
    uint8_t *file = calloc(1, table_at + table_bytes);
    *out = file;
    if (file) {
        if (len)
            memcpy(file + 64, meta, len);
        put_entry(file + table_at, 1, 64, len, weft_hash64(file + 64, len, 0));
        put_entry(file + table_at + 32, 2, weights_at, weights, checksum);
        if (copy)
            put_entry(file + table_at + 64, 3, code_at, code, code_checksum);
        memcpy(file, "WEFT\1", 5);
        put(file + 8, 8, table_at + table_bytes);
        put(file + 16, 8, table_at);
        put(file + 24, 4, n_section);
        put(file + 56, 8, weft_hash64(file + table_at, table_bytes, weft_hash64(file, 56, 0)));
    }
    free(copy);
    return file ? table_at + table_bytes : 0;
}

#endif
