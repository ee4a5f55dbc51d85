/* Key files: the text into keys, and the file that may be read for it.
 *
 * Only hashes are kept: keys are random (at least 128 bits), so that one SHA-256 protects them.
 * The descriptor that was opened is what is checked, so that the file cannot be exchanged between
 * the check and the reading. */
#include "base/num.h"
#include "runtime/server/access_int.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIELDS = 5, FIELDS_MIN = 4 };
enum { FIELD_NAME, FIELD_SECRET, FIELD_MODELS, FIELD_GROUPS, FIELD_RATE };

/* -- Names and patterns --------------------------------------------------------------------- */

static bool is_name_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("._-:/@+", c));
}

bool weft_key__is_name(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_name_char(name[i]))
            return false;
    return len > 0 && len <= WEFT_KEY_NAME_MAX;
}

/* Whether a pattern [at, end) is `name`: after a mismatch the last * takes one character more, so
 * that the time is at most the product of both lengths. */
static bool matches(const char *at, const char *end, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (at < end && *at == '*') {
            star = ++at;
            from = name;
        } else if (at < end && (*at == '?' || *at == *name)) {
            at++;
            name++;
        } else if (star) {
            at = star;
            name = ++from;
        } else
            return false;
    }
    while (at < end && *at == '*')
        at++;
    return at == end;
}

bool weft_key__names_model(const char *patterns, const char *model)
{
    for (const char *at = patterns; *at;) {
        size_t len = strcspn(at, ",");
        if (matches(at, at + len, model))
            return true;
        at += len + (at[len] == ',');
    }
    return false;
}

weft_api_group weft_api__find_group(const char *name, size_t len)
{
    static const char *const names[] = {
#define GROUP(name, text) text,
#include "runtime/server/api_groups.def"
#undef GROUP
    };
    size_t i = 0;
    while (i < WEFT_API_GROUPS && (strlen(names[i]) != len || memcmp(names[i], name, len) != 0))
        i++;
    return (weft_api_group)i;
}

/* -- Lines ---------------------------------------------------------------------------------- */

typedef struct reader {
    weft_diag *diag;
    const char *path;
    uint32_t line;
    weft_key_file *file;
} reader;

#define FAIL(r, ...)                                                                               \
    weft_diag_error((r)->diag, WEFT_ERR_INPUT, (weft_where){.file = (r)->path, .line = (r)->line}, \
                    __VA_ARGS__)

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The text is not shown in messages: it may be a key that was put here by mistake. */
static weft_err read_secret(const reader *r, const char *text, weft_key *key)
{
    if (strcmp(text, "certificate") == 0) {
        key->kind = WEFT_KEY_CERTIFICATE;
        return WEFT_ERR_OK;
    }
    if (strcmp(text, "none") == 0) {
        key->kind = WEFT_KEY_NONE;
        return WEFT_ERR_OK;
    }
    bool ok = strlen(text) == 2 * (size_t)WEFT_KEY_BYTES;
    for (size_t i = 0; ok && i < WEFT_KEY_BYTES; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        ok = high >= 0 && low >= 0;
        key->sha256[i] = (uint8_t)(ok ? high << 4 | low : 0);
    }
    return ok ? WEFT_ERR_OK
              : FAIL(r,
                     "key '%s': the second word is neither the SHA-256 of a key as 64 hex "
                     "digits nor 'certificate' nor 'none'",
                     key->name);
}

static weft_err read_models(const reader *r, const char *text, weft_key *key)
{
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        if (len == 0)
            return FAIL(r, "key '%s': an empty pattern in the list of models", key->name);
        at += len;
        if (!*at)
            break;
    }
    key->models = text;
    return WEFT_ERR_OK;
}

static weft_err read_groups(const reader *r, const char *text, weft_key *key)
{
    if (strcmp(text, "*") == 0) {
        key->groups = (1u << WEFT_API_GROUPS) - 1;
        return WEFT_ERR_OK;
    }
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        weft_api_group group = weft_api__find_group(at, len);
        if (group == WEFT_API_GROUPS)
            return FAIL(r, "key '%s': there is no API group '%.*s'", key->name,
                        (int)(len < 64 ? len : 64), at);
        key->groups |= 1u << group;
        at += len;
        if (!*at)
            return WEFT_ERR_OK;
    }
}

static weft_err read_rate(const reader *r, const char *text, weft_key *key)
{
    if (weft_parse_f64(text, &key->rate_per_s) && isfinite(key->rate_per_s) &&
        key->rate_per_s > 0 && key->rate_per_s <= 1e9)
        return WEFT_ERR_OK;
    return FAIL(r, "key '%s': '%.32s' is not a number of requests per second", key->name, text);
}

/* Whether a request could be of both keys. */
static bool is_same(const weft_key *a, const weft_key *b)
{
    return strcmp(a->name, b->name) == 0 || (a->kind == WEFT_KEY_NONE && b->kind == a->kind) ||
           (a->kind == WEFT_KEY_SECRET && b->kind == a->kind &&
            memcmp(a->sha256, b->sha256, sizeof a->sha256) == 0);
}

static weft_err read_key(const reader *r, char *const *field, uint32_t n)
{
    weft_key_file *f = r->file;
    weft_key *key = &f->key[f->n];
    *key = (weft_key){.name = field[FIELD_NAME]};
    if (!weft_key__is_name(key->name, strlen(key->name)))
        return FAIL(r, "a name has letters, digits and ._-:/@+, at most %d", WEFT_KEY_NAME_MAX);
    if (n < FIELDS_MIN)
        return FAIL(r, "key '%s': a line is NAME SHA256 MODELS GROUPS [RATE]", key->name);
    WEFT_TRY(read_secret(r, field[FIELD_SECRET], key));
    WEFT_TRY(read_models(r, field[FIELD_MODELS], key));
    WEFT_TRY(read_groups(r, field[FIELD_GROUPS], key));
    if (n > FIELD_RATE)
        WEFT_TRY(read_rate(r, field[FIELD_RATE], key));
    for (uint32_t i = 0; i < f->n; i++)
        if (is_same(&f->key[i], key))
            return FAIL(r, "key '%s' is the same as '%s'", key->name, f->key[i].name);
    f->n++;
    return WEFT_ERR_OK;
}

/* Splits a line at its blanks, in place. Fields beyond FIELDS are counted only. */
static uint32_t split(char *line, char *field[FIELDS])
{
    uint32_t n = 0;
    for (char *at = line;;) {
        at += strspn(at, " \t\r");
        if (!*at || *at == '#')
            return n;
        if (n < FIELDS)
            field[n] = at;
        n++;
        at += strcspn(at, " \t\r");
        if (*at)
            *at++ = '\0';
    }
}

static weft_err read_lines(reader *r, char *text, size_t len)
{
    char *end = text + len;
    if (memchr(text, '\0', len))
        return FAIL(r, "has a NUL character: it is no key file");
    for (char *line = text; line < end;) {
        char *field[FIELDS], *next = memchr(line, '\n', (size_t)(end - line));
        if (next)
            *next = '\0';
        r->line++;
        uint32_t n = split(line, field);
        if (n > FIELDS)
            return FAIL(r, "a line is NAME SHA256 MODELS GROUPS [RATE]");
        if (n && r->file->n == WEFT_KEYS_MAX)
            return FAIL(r, "has more than %d keys", WEFT_KEYS_MAX);
        if (n)
            WEFT_TRY(read_key(r, field, n));
        line = next ? next + 1 : end;
    }
    r->line = 0;
    return r->file->n ? WEFT_ERR_OK : FAIL(r, "has no key");
}

static uint32_t count_lines(const char *text, size_t len)
{
    uint32_t n = 1;
    for (size_t i = 0; i < len && n < WEFT_KEYS_MAX; i++)
        n += text[i] == '\n';
    return n;
}

weft_err weft_key_file__parse(char *text, size_t len, const char *path, weft_diag *diag,
                              weft_key_file *out)
{
    weft_key_file file = {.text = text};
    reader r = {.diag = diag, .path = path, .file = &file};
    file.key = calloc(count_lines(text, len), sizeof *file.key);
    weft_err err = file.key ? read_lines(&r, text, len) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        *out = file;
    else
        weft_key_file__finish(&file);
    return err;
}

void weft_key_file__finish(weft_key_file *file)
{
    free(file->key);
    free(file->text);
    *file = (weft_key_file){0};
}

/* -- Files ---------------------------------------------------------------------------------- */

static weft_err check_file(int fd, const char *path, uint64_t limit_bytes, weft_diag *diag,
                           size_t *out_len)
{
    struct stat info;
    const weft_where where = {.file = path};
    if (fstat(fd, &info) != 0)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "%s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "is not a regular file");
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "belongs to user %lu: chown it to the server's user or to root",
                               (unsigned long)info.st_uid);
    /* A file of root may be readable by a group: so the secrets of Kubernetes (fsGroup) and the
     * credentials of systemd (an access list) look. */
    mode_t others = S_IRWXO | (info.st_uid == 0 ? S_IWGRP | S_IXGRP : S_IRWXG);
    if (info.st_mode & others)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "others have rights to it (mode %03o): chmod 600 or 400",
                               (unsigned)info.st_mode & 0777);
    if ((uint64_t)info.st_size > limit_bytes)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "is larger than %llu bytes",
                               (unsigned long long)limit_bytes);
    *out_len = (size_t)info.st_size;
    return WEFT_ERR_OK;
}

/* Reads at most `max` bytes: the file may have changed since it was checked. */
static weft_err read_all(int fd, const char *path, size_t max, weft_diag *diag, char **out,
                         size_t *out_len)
{
    char *text = malloc(max + 1);
    size_t have = 0;
    ssize_t n = 1;
    if (!text)
        return WEFT_ERR_NOMEM;
    while (have < max && n) {
        n = read(fd, text + have, max - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(text);
            return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path}, "%s",
                                   strerror(errno));
        }
        have += (size_t)n;
    }
    text[have] = '\0';
    *out = text;
    *out_len = have;
    return WEFT_ERR_OK;
}

static weft_err read_checked(const char *path, uint64_t limit_bytes, weft_diag *diag, char **out,
                             size_t *out_len)
{
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path}, "%s",
                               strerror(errno));
    weft_err err = check_file(fd, path, limit_bytes, diag, &len);
    if (err == WEFT_ERR_OK)
        err = read_all(fd, path, len, diag, out, out_len);
    close(fd);
    return err;
}

weft_err weft_key_file__read(const char *path, weft_diag *diag, weft_key_file *out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(read_checked(path, WEFT_KEY_FILE_MAX, diag, &text, &len));
    return weft_key_file__parse(text, len, path, diag, out);
}

weft_err weft_key_file__read_secret(const char *path, uint64_t limit_bytes, weft_diag *diag,
                                    char **out, size_t *out_len)
{
    WEFT_TRY(read_checked(path, limit_bytes, diag, out, out_len));
    while (*out_len && ((*out)[*out_len - 1] == '\n' || (*out)[*out_len - 1] == '\r'))
        (*out)[--*out_len] = '\0';
    return WEFT_ERR_OK;
}
