/* Where the chunks of a bundle begin.
 *
 * A bundle stores each distinct weight once, on a multiple of 64 bytes, so its own table tells what
 * two bundles can have in common: no rolling hash has to find it, and no chunk mixes a weight that
 * both have with bytes that only one has. A large weight begins a chunk and is cut from its start,
 * so that its chunks are the same at any place of any bundle. Small ones (biases, normalisations)
 * are put together; a group ends behind a weight whose checksum says so, with a chance in
 * proportion to its size, and so at the same weights in every bundle (content-defined chunking,
 * with weights in place of bytes). Images of GPU code are treated alike. Metadata differ between
 * any two bundles and compress well: they are cut by size, header and section table are chunks of
 * their own. */
#include "store/store_int.h"

#include <string.h>

enum {
    CHUNK_BYTES = 4 << 20,  /* largest chunk made */
    LARGE_BYTES = 32 << 10, /* a part from here on is in no group */
    GROUP_BYTES = 64 << 10  /* mean of a group */
};

/* A weight or an image. */
typedef struct part {
    uint64_t at, checksum;
} part;

typedef struct splitter {
    WEFT_VEC(uint32_t) size;
    weft_arena *arena;
    uint64_t from; /* where the chunk that is being made begins */
} splitter;

/* Ends the chunk at `end`; one that is too large becomes several. */
static void cut(splitter *s, uint64_t end)
{
    while (s->from < end) {
        uint64_t bytes = end - s->from < CHUNK_BYTES ? end - s->from : CHUNK_BYTES;
        WEFT_VEC_PUSH(s->arena, &s->size, (uint32_t)bytes);
        s->from += bytes;
    }
}

/* Whether a group ends behind a part of so many bytes. */
static bool ends_group(uint64_t checksum, uint64_t bytes)
{
    return checksum % GROUP_BYTES < bytes;
}

/* Cuts a section that has these parts, in order, and ends at `end`. */
static void cut_parts(splitter *s, const part *p, uint32_t n, uint64_t end)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t next = i + 1 < n ? p[i + 1].at : end, bytes = next - p[i].at;
        if (bytes >= LARGE_BYTES || next - s->from > CHUNK_BYTES)
            cut(s, p[i].at);
        if (bytes >= LARGE_BYTES || ends_group(p[i].checksum, bytes))
            cut(s, next);
    }
    cut(s, end);
}

static void cut_weights(splitter *s, const weft_bundle *b, uint64_t end)
{
    part *p = weft_arena_array(s->arena, b->n_weight, sizeof *p);
    uint32_t n = 0;
    for (uint32_t w = 0; w < b->n_weight; w++)
        if (b->weight[w].bytes)
            p[n++] = (part){(uint64_t)(b->weight[w].data - b->file.at), b->weight[w].checksum};
    cut_parts(s, p, n, end);
}

static void cut_images(splitter *s, const weft_bundle *b, uint64_t end)
{
    part *p = weft_arena_array(s->arena, b->n_image, sizeof *p);
    for (uint32_t i = 0; i < b->n_image; i++)
        p[i] = (part){(uint64_t)(b->image[i].data - b->file.at), b->image[i].checksum};
    cut_parts(s, p, b->n_image, end);
}

uint32_t weft_store__split(const weft_bundle *b, weft_arena *arena, uint32_t **out)
{
    splitter s = {.arena = arena};
    weft_bundle_section section[WEFT_BUNDLE_SECTIONS_MAX];
    uint32_t n = weft_bundle_sections(b, section);
    for (uint32_t i = 0; i < n; i++) {
        /* Zeros between two sections belong to the first. */
        uint64_t end = i + 1 < n ? section[i + 1].offset : section[i].offset + section[i].bytes;
        cut(&s, section[i].offset);
        if (strcmp(section[i].name, "weights") == 0)
            cut_weights(&s, b, end);
        else if (strcmp(section[i].name, "code") == 0)
            cut_images(&s, b, end);
        cut(&s, end);
    }
    cut(&s, b->file.len);
    *out = s.size.at;
    return s.size.len;
}
