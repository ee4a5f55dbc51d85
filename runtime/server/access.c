/* The gate in front of all APIs: keys with rights, and APIs that a header restricts.
 *
 * The hash of a presented key is compared with those of all keys, each in constant time and without
 * an early end, so that no time tells how much of a key is right. */
#include "runtime/server/access_int.h"
#include "runtime/server/serve_int.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SECRET_MAX = 4096, HEADER_MAX = 256 };

/* The prefix that gRPC clients of Triton add. */
#define GRPC_PREFIX "triton-grpc-protocol-"

/* APIs that need a header. */
typedef struct restriction {
    weft_transport over;
    uint32_t groups;
    char *header, *value; /* owned */
    size_t value_len;
} restriction;

/* Requests that a key may make at once. */
typedef struct bucket {
    double tokens;
    uint64_t at_ns;
} bucket;

typedef struct key_set {
    weft_key_file file;
    bucket *bucket;  /* by key */
    uint32_t nobody; /* the key of requests without one; file.n: none */
} key_set;

struct weft_access {
    const char *path; /* NULL: no keys */
    const weft_router *router;
    key_set keys;
    restriction *restriction;
    uint32_t n_restriction;
};

/* -- Admission ------------------------------------------------------------------------------- */

static const struct {
    unsigned http;
    int grpc;
    const char *field, *text;
} admissions[] = {
#define ADMISSION(name, http, grpc, field, text) {http, grpc, field, text},
#include "runtime/server/admissions.def"
#undef ADMISSION
};

unsigned weft_admission__http(weft_admission admission)
{
    return admissions[admission].http;
}

int weft_admission__grpc(weft_admission admission)
{
    return admissions[admission].grpc;
}

const char *weft_admission__field(weft_admission admission)
{
    return admissions[admission].field;
}

static weft_admission say(char *text, weft_admission admission)
{
    snprintf(text, WEFT_REQUEST_MESSAGE_MAX, "%s", admissions[admission].text);
    return admission;
}

/* -- Keys ----------------------------------------------------------------------------------- */

static void free_keys(key_set *keys)
{
    weft_key_file__finish(&keys->file);
    free(keys->bucket);
    *keys = (key_set){0};
}

/* A burst of one second, or of one request. */
static double burst_of(const weft_key *key)
{
    return key->rate_per_s > 1 ? key->rate_per_s : 1;
}

static void warn_of_pattern(const char *path, const weft_key *key)
{
    WEFT_LOG(WEFT_LOG_WARN, "key_without_models", {.key = "file", .text = path},
             {.key = "key", .text = key->name}, {.key = "models", .text = key->models});
}

/* Whether some model has a name that fits the key, now: others may be loaded later. */
static bool names_any(const weft_router *router, const weft_key *key)
{
    for (uint32_t m = 0; m < weft_router__model_count(router); m++)
        if (weft_router__is_shown(router, m) &&
            weft_key__names_model(key->models,
                                  weft_bundle_served(weft_router__model(router, m).program)))
            return true;
    return false;
}

static weft_err make_keys(const weft_access *a, weft_diag *diag, key_set *out)
{
    key_set k = {0};
    WEFT_TRY(weft_key_file__read(a->path, diag, &k.file));
    k.bucket = calloc(k.file.n, sizeof *k.bucket);
    if (!k.bucket) {
        free_keys(&k);
        return WEFT_ERR_NOMEM;
    }
    k.nobody = k.file.n;
    for (uint32_t i = 0; i < k.file.n; i++) {
        const weft_key *key = &k.file.key[i];
        if (!names_any(a->router, key))
            warn_of_pattern(a->path, key);
        if (key->kind == WEFT_KEY_NONE)
            k.nobody = i;
        k.bucket[i] = (bucket){.tokens = burst_of(key), .at_ns = weft_clock__now_ns()};
    }
    *out = k;
    return WEFT_ERR_OK;
}

/* A key keeps what it has used: reading the file again gives no new burst. */
static void keep_buckets(const key_set *old, key_set *new)
{
    for (uint32_t i = 0; i < new->file.n; i++)
        for (uint32_t k = 0; k < old->file.n; k++)
            if (strcmp(old->file.key[k].name, new->file.key[i].name) == 0) {
                double most = burst_of(&new->file.key[i]);
                new->bucket[i] = old->bucket[k];
                if (new->bucket[i].tokens > most)
                    new->bucket[i].tokens = most;
            }
}

weft_err weft_access__reload(weft_access *a, weft_diag *diag)
{
    key_set keys;
    if (!a || !a->path)
        return WEFT_ERR_OK;
    WEFT_TRY(make_keys(a, diag, &keys));
    keep_buckets(&a->keys, &keys);
    free_keys(&a->keys);
    a->keys = keys;
    return WEFT_ERR_OK;
}

/* Index of the request's key; the number of keys: none. */
static uint32_t find_key(const weft_access *a, const weft_presented *p)
{
    const weft_key_file *f = &a->keys.file;
    uint32_t found = f->n;
    if (p->has_key) {
        for (uint32_t i = 0; i < f->n; i++) {
            bool same = f->key[i].kind == WEFT_KEY_SECRET &&
                        CRYPTO_memcmp(f->key[i].sha256, p->sha256, sizeof p->sha256) == 0;
            found = same ? i : found;
        }
        return found;
    }
    for (uint32_t i = 0; p->certificate && i < f->n; i++)
        if (f->key[i].kind == WEFT_KEY_CERTIFICATE && strcmp(f->key[i].name, p->certificate) == 0)
            return i;
    return a->keys.nobody;
}

static bool take_token(weft_access *a, uint32_t at)
{
    const weft_key *key = &a->keys.file.key[at];
    bucket *b = &a->keys.bucket[at];
    if (key->rate_per_s <= 0)
        return true;
    uint64_t now_ns = weft_clock__now_ns();
    b->tokens += (double)(now_ns - b->at_ns) * 1e-9 * key->rate_per_s;
    b->at_ns = now_ns;
    if (b->tokens > burst_of(key))
        b->tokens = burst_of(key);
    if (b->tokens < 1)
        return false;
    b->tokens -= 1;
    return true;
}

/* -- Restrictions --------------------------------------------------------------------------- */

static weft_err wrong(weft_diag *diag, const char *text, const char *why)
{
    /* Up to the value, which is a secret. */
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                           "restricted API '%.*s': %s; write GROUP,GROUP:HEADER=VALUE or "
                           "GROUP:HEADER=@FILE",
                           (int)strcspn(text, "="), text, why);
}

static weft_err read_groups(const weft_access *a, const char *text, size_t len, weft_diag *diag,
                            restriction *r)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < a->n_restriction; i++)
        taken |= a->restriction[i].over == r->over ? a->restriction[i].groups : 0;
    for (size_t at = 0; at <= len;) {
        const char *comma = memchr(text + at, ',', len - at);
        size_t end = comma ? (size_t)(comma - text) : len;
        weft_api_group group = weft_api__find_group(text + at, end - at);
        if (group == WEFT_API_GROUPS)
            return wrong(diag, text, "no such API group");
        if ((taken | r->groups) & 1u << group)
            return wrong(diag, text, "an API group stands twice");
        r->groups |= 1u << group;
        at = end + 1;
    }
    return WEFT_ERR_OK;
}

static weft_err read_value(const char *value, weft_diag *diag, restriction *r)
{
    if (*value == '@')
        return weft_key_file__read_secret(value + 1, SECRET_MAX, diag, &r->value, &r->value_len);
    r->value = strdup(value);
    r->value_len = strlen(value);
    return r->value ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

/* Names of header fields (RFC 9110, 5.6.2), in lower case as HTTP/2 has them. */
static bool make_header(restriction *r, const char *name, size_t len)
{
    const char *prefix = r->over == WEFT_OVER_GRPC ? GRPC_PREFIX : "";
    size_t size = strlen(prefix) + len + 1;
    r->header = malloc(size);
    if (r->header)
        snprintf(r->header, size, "%s%.*s", prefix, (int)len, name);
    return r->header;
}

static bool is_header(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || strchr("\"(),/:;<=>?@[\\]{}", name[i]))
            return false;
    return len > 0 && len <= HEADER_MAX;
}

static weft_err read_restriction(weft_access *a, weft_transport over, const char *text,
                                 weft_diag *diag)
{
    const char *colon = strchr(text, ':'), *equals = colon ? strchr(colon, '=') : NULL;
    restriction *r = &a->restriction[a->n_restriction];
    *r = (restriction){.over = over};
    if (!equals)
        return wrong(diag, text, "no header and value");
    WEFT_TRY(read_groups(a, text, (size_t)(colon - text), diag, r));
    a->n_restriction++; /* weft_access__destroy frees what it has */
    size_t len = (size_t)(equals - colon - 1);
    if (!is_header(colon + 1, len))
        return wrong(diag, text, "the name of the header is not valid");
    if (!make_header(r, colon + 1, len))
        return WEFT_ERR_NOMEM;
    WEFT_TRY(read_value(equals + 1, diag, r));
    return r->value_len ? WEFT_ERR_OK : wrong(diag, text, "the value is empty");
}

static weft_err read_restrictions(weft_access *a, const weft_serve_options *o, weft_diag *diag)
{
    const weft_serve_restrictions *list[] = {
        [WEFT_OVER_HTTP] = &o->http_restricted, [WEFT_OVER_GRPC] = &o->grpc_restricted};
    a->restriction = calloc(list[0]->n + list[1]->n + 1u, sizeof *a->restriction);
    if (!a->restriction)
        return WEFT_ERR_NOMEM;
    for (int over = WEFT_OVER_HTTP; over <= WEFT_OVER_GRPC; over++)
        for (uint32_t i = 0; i < list[over]->n; i++)
            WEFT_TRY(read_restriction(a, (weft_transport)over, list[over]->text[i], diag));
    return WEFT_ERR_OK;
}

/* -- Life ----------------------------------------------------------------------------------- */

/* Keys that travel in the clear can be read on the way. */
static void warn_of_plain(const weft_serve_options *o)
{
    const char *address = o->address ? o->address : "127.0.0.1";
    bool loopback = strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
                    strcmp(address, "[::1]") == 0 || strcmp(address, "localhost") == 0;
    bool sockets = (o->http.path || o->http.port < 0) && (o->grpc.path || o->grpc.port < 0);
    if (!loopback && !sockets && !o->tls_cert)
        WEFT_LOG(WEFT_LOG_WARN, "keys_without_tls", {.key = "address", .text = address});
}

weft_err weft_access__create(const weft_serve_options *o, const weft_router *router,
                             weft_diag *diag, weft_access **out)
{
    *out = NULL;
    if (!o->api_keys && o->http_restricted.n == 0 && o->grpc_restricted.n == 0)
        return WEFT_ERR_OK;
    weft_access *a = calloc(1, sizeof *a);
    if (!a)
        return WEFT_ERR_NOMEM;
    *a = (weft_access){.path = o->api_keys, .router = router};
    weft_err err = read_restrictions(a, o, diag);
    if (err == WEFT_ERR_OK && a->path)
        err = make_keys(a, diag, &a->keys);
    if (err != WEFT_ERR_OK) {
        weft_access__destroy(a);
        return err;
    }
    warn_of_plain(o);
    *out = a;
    return WEFT_ERR_OK;
}

void weft_access__destroy(weft_access *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; i < a->n_restriction; i++) {
        free(a->restriction[i].header);
        free(a->restriction[i].value);
    }
    free(a->restriction);
    free_keys(&a->keys);
    free(a);
}

/* -- Requests ------------------------------------------------------------------------------- */

static bool is(const char *at, size_t len, const char *lower)
{
    return strlen(lower) == len && strncasecmp(at, lower, len) == 0;
}

static void take_key(weft_presented *p, const char *key, size_t len)
{
    uint8_t sha256[WEFT_KEY_BYTES];
    SHA256((const unsigned char *)key, len, sha256);
    p->conflict =
        p->conflict || (p->has_key && CRYPTO_memcmp(p->sha256, sha256, sizeof sha256) != 0);
    memcpy(p->sha256, sha256, sizeof sha256);
    p->has_key = true;
}

void weft_access__take_header(const weft_access *a, weft_transport over, weft_presented *p,
                              const char *name, size_t name_len, const char *value, size_t len)
{
    static const char bearer[] = "bearer ";
    size_t skip = sizeof bearer - 1;
    if (!a)
        return;
    if (a->path && is(name, name_len, "x-api-key"))
        take_key(p, value, len);
    if (a->path && is(name, name_len, "authorization")) {
        /* Another scheme presents a key that is unknown. */
        skip = len > skip && strncasecmp(value, bearer, skip) == 0 ? skip : 0;
        while (skip && skip < len && value[skip] == ' ')
            skip++;
        take_key(p, value + skip, len - skip);
    }
    for (uint32_t i = 0; i < a->n_restriction; i++) {
        const restriction *r = &a->restriction[i];
        if (r->over == over && is(name, name_len, r->header) && len == r->value_len &&
            CRYPTO_memcmp(value, r->value, len) == 0)
            p->fits |= 1u << i;
    }
}

static weft_admission check_restrictions(const weft_access *a, weft_transport over,
                                         const weft_presented *p, weft_api_group group, char *text)
{
    for (uint32_t i = 0; i < a->n_restriction; i++) {
        const restriction *r = &a->restriction[i];
        if (r->over != over || !(r->groups & 1u << group) || (p->fits & 1u << i))
            continue;
        snprintf(text, WEFT_REQUEST_MESSAGE_MAX,
                 over == WEFT_OVER_HTTP ? "This API is restricted, expecting header '%.200s'"
                                        : "This protocol is restricted, expecting header '%.200s'",
                 r->header);
        return WEFT_ADMISSION_RESTRICTED;
    }
    return WEFT_ADMISSION_ADMITTED;
}

weft_admission weft_access__admit(weft_access *a, weft_transport over, const weft_presented *p,
                                  weft_api_group group, char *text)
{
    if (!a)
        return WEFT_ADMISSION_ADMITTED;
    weft_admission got = check_restrictions(a, over, p, group, text);
    if (got != WEFT_ADMISSION_ADMITTED || !a->path)
        return got;
    if (p->conflict)
        return say(text, WEFT_ADMISSION_CONFLICT);
    uint32_t key = find_key(a, p);
    if (key == a->keys.file.n)
        return say(text, WEFT_ADMISSION_UNKNOWN);
    if (!(a->keys.file.key[key].groups & 1u << group))
        /* Without a key, another request may have the right. */
        return say(text, a->keys.file.key[key].kind == WEFT_KEY_NONE ? WEFT_ADMISSION_UNKNOWN
                                                                     : WEFT_ADMISSION_FORBIDDEN);
    return take_token(a, key) ? WEFT_ADMISSION_ADMITTED : say(text, WEFT_ADMISSION_TOO_MANY);
}

const char *weft_access__models(const weft_access *a, const weft_presented *p)
{
    if (!a || !a->path)
        return NULL;
    uint32_t key = p->conflict ? a->keys.file.n : find_key(a, p);
    return key == a->keys.file.n ? "" : a->keys.file.key[key].models;
}

const char *weft_access__key_name(const weft_access *a, const weft_presented *p)
{
    if (!a || !a->path || p->conflict)
        return "";
    uint32_t key = find_key(a, p);
    return key == a->keys.file.n ? "" : a->keys.file.key[key].name;
}
