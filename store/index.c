/* The index of a bundle as text. The reader takes exactly the writer's text: one space between
 * words, no sign and no leading zero in a number, a newline behind each line, nothing behind the
 * last. */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>

static const char first_words[] = "weft-index-1 ";

enum {
    DIGITS_MAX = 19, /* of a number: below 2^63 */
    LINE_MAX_BYTES = WEFT_SHA256_TEXT + 2 * (DIGITS_MAX + 1) + sizeof " zstd"
};

/* -- Digests -------------------------------------------------------------------------------- */

void weft_chunk_print_sha256(const uint8_t *sha256, char out[WEFT_SHA256_TEXT])
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < WEFT_SHA256_BYTES; i++) {
        out[2 * i] = digit[sha256[i] >> 4];
        out[2 * i + 1] = digit[sha256[i] & 15];
    }
    out[WEFT_SHA256_TEXT - 1] = '\0';
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool weft_chunk_parse_sha256(const char *hex, size_t len, uint8_t *out)
{
    uint8_t sha256[WEFT_SHA256_BYTES];
    if (len != WEFT_SHA256_TEXT - 1)
        return false;
    for (size_t i = 0; i < WEFT_SHA256_BYTES; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        sha256[i] = (uint8_t)(high << 4 | low);
    }
    memcpy(out, sha256, sizeof sha256);
    return true;
}

/* -- Reading ----------------------------------------------------------------------------------- */

typedef struct words {
    const char *at, *end;
} words;

static bool take_word(words *t, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(t->end - t->at) < len || memcmp(t->at, word, len) != 0)
        return false;
    t->at += len;
    return true;
}

static bool take_sha256(words *t, uint8_t *out)
{
    if (t->end - t->at < WEFT_SHA256_TEXT - 1 ||
        !weft_chunk_parse_sha256(t->at, WEFT_SHA256_TEXT - 1, out))
        return false;
    t->at += WEFT_SHA256_TEXT - 1;
    return true;
}

/* A number from 1 to `max`. */
static bool take_number(words *t, uint64_t max, uint64_t *out)
{
    uint64_t x = 0;
    int n = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++, n++) {
        if (n == DIGITS_MAX || (n > 0 && x == 0))
            return false;
        x = x * 10 + (uint64_t)(*t->at - '0');
    }
    *out = x;
    return x >= 1 && x <= max;
}

/* SHA256 BYTES, or SHA256 BYTES zstd STORED: what is compressed is smaller. */
static bool take_chunk(words *t, weft_chunk *out)
{
    uint64_t bytes = 0, stored = 0;
    bool ok = take_sha256(t, out->sha256) && take_word(t, " ") &&
              take_number(t, WEFT_CHUNK_BYTES_MAX, &bytes);
    if (ok && take_word(t, " zstd "))
        ok = take_number(t, bytes - 1, &stored);
    out->bytes = (uint32_t)bytes;
    out->stored = (uint32_t)stored;
    return ok && take_word(t, "\n");
}

weft_err weft_chunk_parse_index(const char *bytes, size_t len, const char *path, weft_arena *arena,
                                weft_diag *diag, weft_chunk_index *out)
{
    words t = {bytes, bytes + len};
    weft_chunk_index index = {0};
    uint64_t sum = 0;
    size_t lines = 0;
    for (const char *at = bytes; at < t.end && (at = memchr(at, '\n', (size_t)(t.end - at))); at++)
        lines++;
    bool ok = len <= WEFT_INDEX_BYTES_MAX && lines > 1 && take_word(&t, first_words) &&
              take_number(&t, INT64_MAX, &index.bytes) && take_word(&t, " ") &&
              take_sha256(&t, index.sha256) && take_word(&t, "\n");
    if (!ok)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path, .line = 1},
                               "not the index of a bundle");
    weft_chunk *chunk = weft_arena_array(arena, lines - 1, sizeof *chunk);
    for (; t.at < t.end; index.n_chunk++) {
        /* A line without its end is the last, and not counted. */
        if (index.n_chunk == lines - 1 || !take_chunk(&t, &chunk[index.n_chunk]))
            return weft_diag_error(diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = path, .line = index.n_chunk + 2},
                                   "wrong line of an index");
        sum += chunk[index.n_chunk].bytes;
    }
    if (sum != index.bytes)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                               "its chunks have %llu bytes, the bundle %llu",
                               (unsigned long long)sum, (unsigned long long)index.bytes);
    index.chunk = chunk;
    *out = index;
    return WEFT_ERR_OK;
}

/* -- Writing ----------------------------------------------------------------------------------- */

char *weft_chunk_print_index(const weft_chunk_index *index, weft_arena *arena, size_t *out_len)
{
    char *text = weft_arena_array(arena, (size_t)index->n_chunk + 1, LINE_MAX_BYTES), *at = text;
    char hex[WEFT_SHA256_TEXT];
    weft_chunk_print_sha256(index->sha256, hex);
    at += sprintf(at, "%s%llu %s\n", first_words, (unsigned long long)index->bytes, hex);
    for (uint32_t i = 0; i < index->n_chunk; i++) {
        const weft_chunk *c = &index->chunk[i];
        weft_chunk_print_sha256(c->sha256, hex);
        at += sprintf(at, c->stored ? "%s %u zstd %u\n" : "%s %u\n", hex, c->bytes, c->stored);
    }
    *out_len = (size_t)(at - text);
    return text;
}
