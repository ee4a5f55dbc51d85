/* The file of a bundle: header, sections and checksums. bundle_read.c reads and checks the
 * metadata; bundle_write.c is the writer. */
#include "ir/bundle.h"

#include "base/file_guess.h"
#include "base/num.h"
#include "ir/bundle_int.h"

#include "bundle.pb-c.h"

#include <string.h>

/* Bound on the memory that a hostile file can make the reader allocate. */
static const size_t memory_max_bytes = (size_t)2 << 30;

typedef struct opener {
    weft_bundle b;
    const char *path;
    weft_arena *scratch;
    weft_diag *diag;
    uint32_t n_section;
    weft_file section[WEFT_SECTION_END];
    uint64_t checksum[WEFT_SECTION_END];
} opener;

static weft_err refuse(opener *o, const char *text)
{
    return weft_diag_error(o->diag, WEFT_ERR_INPUT, (weft_where){.file = o->path}, "%s", text);
}

/* -- Checksums -------------------------------------------------------------------------------- */

uint64_t weft_bundle__hash_head(const uint8_t *header, const uint8_t *table, size_t table_bytes)
{
    return weft_hash64(table, table_bytes, weft_hash64(header, WEFT_BUNDLE_CHECKED_BYTES, 0));
}

uint64_t weft_bundle__hash_weights(const weft_bundle_weight *weight, uint32_t n)
{
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t bytes[8];
        weft_bundle__put(bytes, 8, weight[i].checksum);
        hash = weft_hash64(bytes, sizeof bytes, hash);
    }
    return hash;
}

uint64_t weft_bundle__hash_images(const weft_bundle_image *image, uint32_t n)
{
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t bytes[8];
        weft_bundle__put(bytes, 8, image[i].checksum);
        hash = weft_hash64(bytes, sizeof bytes, hash);
    }
    return hash;
}

static bool is_zero(const uint8_t *at, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        if (at[i])
            return false;
    return true;
}

/* -- Header and sections ---------------------------------------------------------------------- */

static weft_err check_header(opener *o, uint64_t *out_table_at)
{
    const uint8_t *h = o->b.file.at;
    uint64_t len = o->b.file.len;
    weft_where where = {.file = o->path};
    if (len < 8 || memcmp(h, WEFT_BUNDLE_MAGIC, 4) != 0)
        return weft_diag_error(o->diag, WEFT_ERR_INPUT, where, "not a bundle%s",
                               weft_file_guess(h, (size_t)len));
    if (weft_bundle__get(h + 4, 4) != WEFT_BUNDLE_VERSION)
        return weft_diag_error(o->diag, WEFT_ERR_UNSUP, where,
                               "the bundle has version %llu, this program reads %d",
                               (unsigned long long)weft_bundle__get(h + 4, 4), WEFT_BUNDLE_VERSION);
    if (len < WEFT_BUNDLE_HEADER_BYTES + WEFT_BUNDLE_SECTIONS_MIN * WEFT_BUNDLE_ENTRY_BYTES)
        return weft_diag_error(o->diag, WEFT_ERR_INPUT, where,
                               "the bundle is cut off after %llu bytes", (unsigned long long)len);
    if (weft_bundle__get(h + 8, 8) != len)
        return weft_diag_error(
            o->diag, WEFT_ERR_INPUT, where, "the bundle should have %llu bytes and has %llu",
            (unsigned long long)weft_bundle__get(h + 8, 8), (unsigned long long)len);
    uint64_t table_at = weft_bundle__get(h + 16, 8), n = weft_bundle__get(h + 24, 4);
    uint64_t table_bytes = n * WEFT_BUNDLE_ENTRY_BYTES;
    if (n < WEFT_BUNDLE_SECTIONS_MIN || n > WEFT_BUNDLE_SECTIONS ||
        len < WEFT_BUNDLE_HEADER_BYTES + table_bytes || table_at != len - table_bytes ||
        table_at % WEFT_BUNDLE_ALIGN || !is_zero(h + 28, 28))
        return refuse(o, "the header is damaged");
    if (weft_bundle__get(h + 56, 8) != weft_bundle__hash_head(h, h + table_at, (size_t)table_bytes))
        return refuse(o, "header and section table do not have their checksum");
    o->b.identity = weft_bundle__get(h + 56, 8);
    o->n_section = (uint32_t)n;
    *out_table_at = table_at;
    return WEFT_ERR_OK;
}

static weft_err find_sections(opener *o)
{
    uint64_t table_at = 0, next = WEFT_BUNDLE_HEADER_BYTES;
    const uint8_t *file = o->b.file.at;
    WEFT_TRY(check_header(o, &table_at));
    for (uint32_t kind = WEFT_SECTION_META; kind <= o->n_section; kind++) {
        const uint8_t *e = file + table_at + (kind - 1) * WEFT_BUNDLE_ENTRY_BYTES;
        uint64_t len = weft_bundle__get(e + 16, 8);
        if (weft_bundle__get(e, 4) != kind || !is_zero(e + 4, 4) ||
            weft_bundle__get(e + 8, 8) != next || len > table_at - next)
            return refuse(o, "the section table is damaged");
        o->section[kind] = (weft_file){file + next, len};
        uint64_t end = next + len;
        next = weft_align_up(end, WEFT_BUNDLE_ALIGN); /* table_at is aligned: not behind it */
        if (!is_zero(file + end, next - end))
            return refuse(o, "there are bytes between sections");
        o->checksum[kind] = weft_bundle__get(e + 24, 8);
        if (kind == WEFT_SECTION_META &&
            weft_hash64(file + end - len, (size_t)len, 0) != o->checksum[kind])
            return refuse(o, "the metadata do not have their checksum");
    }
    if (next != table_at)
        return refuse(o, "there are bytes behind the last section");
    return WEFT_ERR_OK;
}

/* -- Metadata --------------------------------------------------------------------------------- */

static void *scratch_alloc(void *data, size_t size)
{
    return weft_arena_alloc(data, size);
}

static void scratch_free(void *data, void *at)
{
    (void)data;
    (void)at;
}

static weft_err read_metadata(opener *o)
{
    weft_file meta = o->section[WEFT_SECTION_META];
    if (meta.len > WEFT_BUNDLE_META_MAX_BYTES)
        return weft_diag_error(o->diag, WEFT_ERR_NOMEM, (weft_where){.file = o->path},
                               "the metadata have %llu bytes, the limit is %d",
                               (unsigned long long)meta.len, WEFT_BUNDLE_META_MAX_BYTES);
    ProtobufCAllocator allocator = {scratch_alloc, scratch_free, o->scratch};
    Weft__Bundle__Bundle *msg = weft__bundle__bundle__unpack(&allocator, (size_t)meta.len, meta.at);
    if (!msg)
        return refuse(o, "the metadata are no message");
    /* Packing again must give the same size: it differs if a string holds NUL, a field is given
     * twice, or a number has more bytes than it needs. */
    if (msg->base.n_unknown_fields || weft__bundle__bundle__get_packed_size(msg) != meta.len)
        return refuse(o, "the metadata are not as a writer writes them");
    const weft_file *code =
        o->n_section >= WEFT_SECTION_CODE ? &o->section[WEFT_SECTION_CODE] : NULL;
    WEFT_TRY(weft_bundle__read(&o->b, msg, &o->section[WEFT_SECTION_WEIGHTS], code, o->path,
                               o->scratch, o->diag));
    if (weft_bundle__hash_weights(o->b.weight, o->b.n_weight) != o->checksum[WEFT_SECTION_WEIGHTS])
        return refuse(o, "the weights section does not have its checksum");
    if (code &&
        weft_bundle__hash_images(o->b.image, o->b.n_image) != o->checksum[WEFT_SECTION_CODE])
        return refuse(o, "the code section does not have its checksum");
    return WEFT_ERR_OK;
}

static weft_err open_guarded(opener *o, weft_bundle **out)
{
    jmp_buf env;
    weft_arena_guard(o->b.arena, &env);
    weft_arena_guard(o->scratch, &env);
    if (setjmp(env))
        return weft_diag_error(o->diag, WEFT_ERR_NOMEM, (weft_where){.file = o->path},
                               "out of memory while reading the bundle");
    WEFT_TRY(read_metadata(o));
    weft_bundle *b = weft_arena_alloc(o->b.arena, sizeof *b);
    *b = o->b;
    *out = b;
    return WEFT_ERR_OK;
}

/* Takes the mapping over. */
static weft_err open_mapped(weft_file file, const char *path, weft_diag *diag, weft_bundle **out)
{
    opener o = {.path = path, .diag = diag, .b = {.file = file}};
    o.b.arena = weft_arena_create(memory_max_bytes);
    o.scratch = weft_arena_create(memory_max_bytes);
    weft_err err = find_sections(&o);
    if (!o.b.arena || !o.scratch)
        err = weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){.file = path}, "out of memory");
    if (err == WEFT_ERR_OK)
        err = open_guarded(&o, out);
    weft_arena_destroy(o.scratch);
    if (err == WEFT_ERR_OK) {
        weft_arena_guard((*out)->arena, NULL);
    } else {
        weft_arena_destroy(o.b.arena);
        weft_file_unmap(&o.b.file);
    }
    return err;
}

weft_err weft_bundle_open(const char *path, weft_diag *diag, weft_bundle **out)
{
    weft_file file;
    WEFT_TRY(weft_file_map(path, diag, &file));
    return open_mapped(file, path, diag, out);
}

weft_err weft_bundle_open_fd(int fd, const char *path, weft_diag *diag, weft_bundle **out)
{
    weft_file file;
    WEFT_TRY(weft_file_map_fd(fd, path, diag, &file));
    return open_mapped(file, path, diag, out);
}

void weft_bundle_close(weft_bundle *bundle)
{
    if (!bundle)
        return;
    weft_file file = bundle->file;
    weft_arena_destroy(bundle->arena); /* and with it the structure */
    weft_file_unmap(&file);
}

/* -- Bytes ------------------------------------------------------------------------------------ */

weft_err weft_bundle_check_weight(const weft_bundle *bundle, uint32_t w, weft_diag *diag)
{
    const weft_bundle_weight *weight = &bundle->weight[w - 1];
    if (!bundle->file.len) /* made in memory */
        return WEFT_ERR_OK;
    uint64_t padding = weft_align_up(weight->bytes, WEFT_BUNDLE_ALIGN) - weight->bytes;
    if (weft_hash64(weight->data, (size_t)weight->bytes, 0) != weight->checksum ||
        !is_zero(weight->data + weight->bytes, padding))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = weight->name},
                               "the weight's bytes do not have their checksum");
    return WEFT_ERR_OK;
}

uint32_t weft_bundle_sections(const weft_bundle *bundle,
                              weft_bundle_section out[WEFT_BUNDLE_SECTIONS_MAX])
{
    static const char *const names[] = {[WEFT_SECTION_META] = "metadata",
                                        [WEFT_SECTION_WEIGHTS] = "weights",
                                        [WEFT_SECTION_CODE] = "code"};
    if (!bundle->file.len)
        return 0;
    const uint8_t *e = bundle->file.at + weft_bundle__get(bundle->file.at + 16, 8);
    uint32_t n = (uint32_t)weft_bundle__get(bundle->file.at + 24, 4);
    for (uint32_t i = 0; i < n; i++, e += WEFT_BUNDLE_ENTRY_BYTES)
        out[i] = (weft_bundle_section){names[weft_bundle__get(e, 4)], weft_bundle__get(e + 8, 8),
                                       weft_bundle__get(e + 16, 8)};
    return n;
}
