/* Bundles: any file is read or refused; a bundle that was read can be written and read again with
 * the same contents.
 *
 * Input: byte 0 and a file; or byte 1 and metadata, for which a file with correct checksums and
 * zeros as weights and images is built, so that the checks after the checksums are reached too. */
#include "base/num.h"
#include "ir/bundle.h"

#include "bundle.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WEIGHTS_MAX_BYTES = 1 << 20, IMAGE_MAX_BYTES = 1 << 16, IMAGES_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(uint8_t *at, unsigned bytes, uint64_t x)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(x >> 8 * i);
}

/* Size of the weights section and its checksum. */
static uint64_t measure_weights(const uint8_t *meta, size_t len, uint64_t *out_checksum)
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

static void put_entry(uint8_t *at, uint32_t kind, uint64_t offset, uint64_t len, uint64_t checksum)
{
    put(at, 4, kind);
    put(at + 8, 8, offset);
    put(at + 16, 8, len);
    put(at + 24, 8, checksum);
}

/* Metadata with the checksums of zero-filled images; NULL if it has no images or too large ones.
 * *out_bytes, *out_checksum: of the image section. */
static uint8_t *fill_images(const uint8_t *meta, size_t len, size_t *out_len, uint64_t *out_bytes,
                            uint64_t *out_checksum)
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

/* Builds the file around the metadata; returns its length. */
static size_t build_file(const uint8_t *meta, size_t len, uint8_t **out)
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

static void write_and_compare(const weft_bundle *b)
{
    const char *dir = getenv("TMPDIR");
    char path[2][256];
    char *bytes[2] = {NULL, NULL};
    size_t len[2] = {0, 0};
    weft_bundle *again = NULL;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/fuzz-bundle-%ld-%d", dir ? dir : "/tmp",
                 (long)getpid(), i);
    if (weft_bundle_write(b, path[0], NULL) != WEFT_ERR_OK ||
        weft_bundle_open(path[0], NULL, &again) != WEFT_ERR_OK ||
        weft_bundle_write(again, path[1], NULL) != WEFT_ERR_OK ||
        weft_file_read(path[0], UINT64_MAX, NULL, &bytes[0], &len[0]) != WEFT_ERR_OK ||
        weft_file_read(path[1], UINT64_MAX, NULL, &bytes[1], &len[1]) != WEFT_ERR_OK ||
        len[0] != len[1] || memcmp(bytes[0], bytes[1], len[0]) != 0)
        abort();
    weft_bundle_close(again);
    free(bytes[0]);
    free(bytes[1]);
    unlink(path[0]);
    unlink(path[1]);
}

static void read_file(const uint8_t *file, size_t len)
{
    char path[64];
    int fd = memfd_create("bundle", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    weft_bundle *b = NULL;
    if (fd >= 0 && write(fd, file, len) == (ssize_t)len &&
        weft_bundle_open(path, NULL, &b) == WEFT_ERR_OK) {
        for (uint32_t w = 1; w <= b->n_weight; w++)
            (void)!weft_bundle_check_weight(b, w, NULL);
        write_and_compare(b);
        weft_bundle_close(b);
    }
    if (fd >= 0)
        close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 0) {
        read_file(data + 1, size - 1);
        return 0;
    }
    uint8_t *file = NULL;
    size_t len = build_file(data + 1, size - 1, &file);
    if (file)
        read_file(file, len);
    free(file);
    return 0;
}
