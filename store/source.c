/* Files of a store: from a folder, or from a web server by libcurl.
 *
 * Of a server nothing is believed but the bytes of a file, and of these never more than were asked
 * for: an answer that is longer is cut off, one that is shorter is refused. Redirections
 * lead to http and https only, from https to https only, and take no token to another host. What
 * may pass (connections that break or stall, 408, 429, 5xx) is tried again, with longer and longer
 * pauses; what will not (404, a wrong certificate) is not. */
#include "store/store_int.h"

#include "base/file.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    TRIES = 6,
    PAUSE_MS = 250, /* before the second try; doubled for each further one */
    CONNECT_MS = 10000,
    STALL_BYTES_PER_S = 1024, /* slower than this for STALL_S: the connection is given up */
    STALL_S = 20,
    REDIRECTIONS = 5,
    TOKEN_MAX = 16384
};

typedef struct download {
    CURL *easy;
    const weft_source_want *want; /* NULL: idle */
    const char *name;
    uint8_t *bytes;
    size_t len, limit;
    uint32_t tries;
    double not_before_ms;
    bool running;
} download;

struct weft_source {
    const char *root; /* folder, or URL without a slash at its end */
    bool is_web;
    uint64_t bytes;
    char *token;
    const char *ca;
    uint32_t jobs;
    CURLM *multi;
    download *slot; /* jobs */
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* -- A folder --------------------------------------------------------------------------------- */

/* An answer may be shorter than `limit`. *out NULL: there is no such file. */
static weft_err read_file(weft_source *s, const char *name, size_t limit, weft_diag *diag,
                          char **out, size_t *out_len)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", s->root, name) < 0)
        return WEFT_ERR_NOMEM;
    struct stat st;
    weft_err err = WEFT_ERR_OK;
    *out = NULL;
    bool exists = stat(path, &st) == 0;
    if (exists && !S_ISREG(st.st_mode)) /* a pipe would be waited for */
        err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                              "is not a regular file");
    else if (exists)
        err = weft_file_read(path, limit, diag, out, out_len);
    else if (errno != ENOENT && errno != ENOTDIR)
        err = weft_file_report(diag, path, "open", errno);
    if (*out)
        s->bytes += *out_len;
    free(path);
    return err;
}

static weft_err fetch_files(weft_source *s, const weft_source_want *want, uint32_t n,
                            weft_source_take take, void *user, weft_diag *diag)
{
    for (uint32_t i = 0; i < n; i++) {
        char *bytes = NULL;
        size_t len = 0;
        weft_err err = read_file(s, want[i].name, want[i].bytes, diag, &bytes, &len);
        if (err == WEFT_ERR_OK && (!bytes || len != want[i].bytes))
            err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = s->root},
                                  bytes ? "%s has %zu bytes in place of %u" : "has no %s",
                                  want[i].name, len, want[i].bytes);
        if (err == WEFT_ERR_OK)
            err = take(user, &want[i], (const uint8_t *)bytes, diag);
        free(bytes);
        WEFT_TRY(err);
    }
    return WEFT_ERR_OK;
}

/* -- A web server ----------------------------------------------------------------------------- */

static size_t take_bytes(char *at, size_t size, size_t n, void *user)
{
    download *d = user;
    (void)size;
    if (n > d->limit - d->len)
        return 0; /* longer than the file: curl ends the transfer */
    memcpy(d->bytes + d->len, at, n);
    d->len += n;
    return n;
}

static bool set_options(weft_source *s, download *d, const char *url)
{
    CURL *e = d->easy;
    bool https = strncmp(url, "https:", 6) == 0;
    bool ok = curl_easy_setopt(e, CURLOPT_URL, url) == CURLE_OK &&
              curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, https ? "https" : "http") == CURLE_OK &&
              curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, https ? "https" : "http,https") ==
                  CURLE_OK &&
              curl_easy_setopt(e, CURLOPT_WRITEDATA, d) == CURLE_OK;
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(e, CURLOPT_PRIVATE, d);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(e, CURLOPT_MAXREDIRS, (long)REDIRECTIONS);
    curl_easy_setopt(e, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_PER_S);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "weft");
    if (s->ca)
        ok = ok && curl_easy_setopt(e, CURLOPT_CAINFO, s->ca) == CURLE_OK;
    if (s->token) {
        curl_easy_setopt(e, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        ok = ok && curl_easy_setopt(e, CURLOPT_XOAUTH2_BEARER, s->token) == CURLE_OK;
    }
    return ok;
}

/* Asks for the file of a download, of which `bytes` takes `limit`. */
static weft_err start(weft_source *s, download *d)
{
    char *url = NULL;
    if (asprintf(&url, "%s/%s", s->root, d->name) < 0)
        return WEFT_ERR_NOMEM;
    curl_easy_reset(d->easy);
    bool ok = set_options(s, d, url) && curl_multi_add_handle(s->multi, d->easy) == CURLM_OK;
    free(url);
    d->len = 0;
    d->tries++;
    d->running = ok;
    return ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

static bool may_pass(CURLcode code, long status)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    case CURLE_HTTP_RETURNED_ERROR:
        return status == 408 || status == 429 || status >= 500;
    default:
        return false;
    }
}

/* What is wrong with an answer that will not be asked for again. */
static weft_err refuse(const weft_source *s, const download *d, CURLcode code, long status,
                       weft_diag *diag)
{
    const weft_where where = {.file = s->root};
    if (code == CURLE_HTTP_RETURNED_ERROR && (status == 404 || status == 410))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "has no %s", d->name);
    if (code == CURLE_HTTP_RETURNED_ERROR)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "answers %ld to %s", status, d->name);
    if (code == CURLE_WRITE_ERROR)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "%s is longer than %zu bytes", d->name,
                               d->limit);
    if (code == CURLE_OK)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "%s has %zu bytes in place of %zu",
                               d->name, d->len, d->limit);
    return weft_diag_error(diag, WEFT_ERR_IO, where, "%s: %s", d->name, curl_easy_strerror(code));
}

/* Handles a transfer that has ended. `exact`: the file has `limit` bytes. *out_done: it is there,
 * or missing for good, which `missing` tells. */
static weft_err finish(weft_source *s, download *d, CURLcode code, bool exact, weft_diag *diag,
                       bool *out_done, bool *missing)
{
    long status = 0;
    curl_easy_getinfo(d->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(s->multi, d->easy);
    d->running = false;
    s->bytes += d->len;
    *out_done = code == CURLE_OK && (!exact || d->len == d->limit);
    if (*out_done)
        return WEFT_ERR_OK;
    if (missing && code == CURLE_HTTP_RETURNED_ERROR && (status == 404 || status == 410)) {
        *out_done = *missing = true;
        return WEFT_ERR_OK;
    }
    if (!may_pass(code, status) || d->tries >= TRIES)
        return refuse(s, d, code, status, diag);
    d->not_before_ms = now_ms() + (double)(PAUSE_MS << (d->tries - 1));
    return WEFT_ERR_OK;
}

/* Starts what may be started, lets transfers go on, and returns one that has ended, or NULL. */
static weft_err step(weft_source *s, download **out, CURLcode *out_code)
{
    int running = 0, left = 0;
    *out = NULL;
    for (uint32_t i = 0; i < s->jobs; i++) {
        download *d = &s->slot[i];
        if (d->name && !d->running && now_ms() >= d->not_before_ms)
            WEFT_TRY(start(s, d));
    }
    if (curl_multi_perform(s->multi, &running) != CURLM_OK)
        return WEFT_ERR_NOMEM;
    CURLMsg *m = curl_multi_info_read(s->multi, &left);
    if (!m)
        return curl_multi_poll(s->multi, NULL, 0, 100, NULL) == CURLM_OK ? WEFT_ERR_OK
                                                                         : WEFT_ERR_NOMEM;
    void *d = NULL;
    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&d);
    *out = d;
    *out_code = m->data.result;
    return WEFT_ERR_OK;
}

/* Ends what runs and is of no use any more. */
static void stop(weft_source *s)
{
    for (uint32_t i = 0; i < s->jobs; i++) {
        download *d = &s->slot[i];
        if (d->running)
            curl_multi_remove_handle(s->multi, d->easy);
        free(d->bytes);
        *d = (download){.easy = d->easy};
    }
}

/* Gives a download its file. */
static weft_err assign(download *d, const char *name, size_t limit, const weft_source_want *want)
{
    uint8_t *bytes = realloc(d->bytes, limit + 1);
    if (!bytes)
        return WEFT_ERR_NOMEM;
    *d = (download){.easy = d->easy, .want = want, .name = name, .bytes = bytes, .limit = limit};
    return WEFT_ERR_OK;
}

static weft_err fetch_web(weft_source *s, const weft_source_want *want, uint32_t n,
                          weft_source_take take, void *user, weft_diag *diag)
{
    uint32_t next = 0, done = 0;
    weft_err err = WEFT_ERR_OK;
    while (err == WEFT_ERR_OK && done < n) {
        for (uint32_t i = 0; err == WEFT_ERR_OK && i < s->jobs && next < n; i++)
            if (!s->slot[i].name) {
                err = assign(&s->slot[i], want[next].name, want[next].bytes, &want[next]);
                next++;
            }
        download *d = NULL;
        CURLcode code = CURLE_OK;
        bool is_there = false;
        if (err == WEFT_ERR_OK)
            err = step(s, &d, &code);
        if (err == WEFT_ERR_OK && d)
            err = finish(s, d, code, true, diag, &is_there, NULL);
        if (err == WEFT_ERR_OK && is_there) {
            err = take(user, d->want, d->bytes, diag);
            d->name = NULL;
            done++;
        }
    }
    stop(s);
    return err;
}

static weft_err read_web(weft_source *s, const char *name, size_t limit, weft_diag *diag,
                         char **out, size_t *out_len)
{
    bool done = false, missing = false;
    *out = NULL;
    weft_err err = assign(&s->slot[0], name, limit, NULL);
    while (err == WEFT_ERR_OK && !done) {
        download *d = NULL;
        CURLcode code = CURLE_OK;
        err = step(s, &d, &code);
        if (err == WEFT_ERR_OK && d)
            err = finish(s, d, code, false, diag, &done, &missing);
    }
    if (err == WEFT_ERR_OK && !missing) {
        download *d = &s->slot[0];
        d->bytes[d->len] = '\0';
        *out = (char *)d->bytes;
        *out_len = d->len;
        d->bytes = NULL;
    }
    stop(s);
    return err;
}

/* -- Both ------------------------------------------------------------------------------------- */

/* The first line of a file, without blanks at its end. */
static weft_err read_token(const char *path, weft_diag *diag, char **out)
{
    size_t len;
    WEFT_TRY(weft_file_read(path, TOKEN_MAX, diag, out, &len));
    (*out)[strcspn(*out, "\r\n")] = '\0';
    for (const char *at = *out; *at; at++)
        if (*at <= ' ' || *at >= 127)
            len = 0;
    return len && **out ? WEFT_ERR_OK
                        : weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                                          "has no token in its first line");
}

static weft_err open_web(weft_source *s, const weft_pull_options *o, weft_arena *arena,
                         weft_diag *diag)
{
    if (strpbrk(o->store, "?#"))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->store},
                               "a store is a URL without ? and #");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return WEFT_ERR_NOMEM;
    s->ca = o->ca;
    s->jobs = o->jobs;
    s->slot = weft_arena_array(arena, s->jobs, sizeof *s->slot);
    s->multi = curl_multi_init();
    bool ok = s->multi;
    for (uint32_t i = 0; ok && i < s->jobs; i++)
        ok = (s->slot[i].easy = curl_easy_init()) != NULL;
    if (!ok)
        return WEFT_ERR_NOMEM;
    return o->token ? read_token(o->token, diag, &s->token) : WEFT_ERR_OK;
}

weft_err weft_source__open(const weft_pull_options *o, weft_arena *arena, weft_diag *diag,
                           weft_source **out)
{
    weft_source *s = weft_arena_alloc(arena, sizeof *s);
    size_t len = strlen(o->store);
    s->is_web = strncmp(o->store, "http://", 7) == 0 || strncmp(o->store, "https://", 8) == 0;
    while (len > 1 && o->store[len - 1] == '/')
        len--;
    s->root = weft_arena_strndup(arena, o->store, len);
    *out = s;
    if (s->is_web)
        return open_web(s, o, arena, diag);
    return weft_file_is_folder(s->root)
               ? WEFT_ERR_OK
               : weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->store},
                                 "no folder, and no URL that begins with http:// or https://");
}

void weft_source__close(weft_source *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->jobs; i++) {
        free(s->slot[i].bytes);
        curl_easy_cleanup(s->slot[i].easy);
    }
    curl_multi_cleanup(s->multi);
    free(s->token);
}

weft_err weft_source__read(weft_source *s, const char *name, size_t limit, weft_diag *diag,
                           char **out, size_t *out_len)
{
    return s->is_web ? read_web(s, name, limit, diag, out, out_len)
                     : read_file(s, name, limit, diag, out, out_len);
}

weft_err weft_source__fetch(weft_source *s, const weft_source_want *want, uint32_t n,
                            weft_source_take take, void *user, weft_diag *diag)
{
    return s->is_web ? fetch_web(s, want, n, take, user, diag)
                     : fetch_files(s, want, n, take, user, diag);
}

uint64_t weft_source__bytes(const weft_source *s)
{
    return s->bytes;
}
