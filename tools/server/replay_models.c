/* The server that weft replay asks, its statistics, and the requests for it: inputs by the server's
 * metadata of each model (Open Inference Protocol), sent as binary tensors. */
#include "tools/server/replay.h"

#include "base/hash.h"
#include "base/num.h"
#include "base/random.h"
#include "tools/common/npy.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    METADATA_BYTES_MAX = 1 << 20,
    METADATA_SECONDS = 10,
    INPUTS_MAX = 256,
    FILE_ROWS_MAX = 64, /* rows of a file that are sent in turn */
    RANDOM_MESSAGES = 4,
};

static const uint64_t message_bytes_max = (uint64_t)256 << 20;

/* -- Address ---------------------------------------------------------------------------------- */

static weft_err resolve_unix(const char *path, weft_diag *diag, weft_replay_target *out)
{
    struct sockaddr_un *to = (struct sockaddr_un *)&out->address;
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof to->sun_path)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = out->text},
                               "a path has 1 to %zu bytes", sizeof to->sun_path - 1);
    to->sun_family = AF_UNIX;
    memcpy(to->sun_path, path, len + 1);
    out->address_len = sizeof *to;
    out->host = "localhost";
    return WEFT_ERR_OK;
}

weft_err weft_replay_resolve(const char *text, weft_arena *arena, weft_diag *diag,
                             weft_replay_target *out)
{
    *out = (weft_replay_target){.text = text};
    const weft_where where = {.item = text};
    if (strncmp(text, "https:", 6) == 0)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, where,
                               "weft replay does not speak TLS: give the plain HTTP port");
    if (strncmp(text, "unix:", 5) == 0)
        return resolve_unix(text + 5, diag, out);
    if (strncmp(text, "http://", 7) == 0)
        text += 7;
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    if (len == 0 || !colon[1] || strchr(colon, '/'))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "is not HOST:PORT or unix:PATH");
    out->host = text;
    char *name = weft_arena_strndup(arena, text, len);
    if (name[0] == '[' && name[len - 1] == ']') {
        name[len - 1] = '\0';
        name++;
    }
    struct addrinfo *found = NULL, hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int code = getaddrinfo(name, colon + 1, &hint, &found);
    if (code != 0)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "%s", gai_strerror(code));
    memcpy(&out->address, found->ai_addr, found->ai_addrlen);
    out->address_len = found->ai_addrlen;
    freeaddrinfo(found);
    return WEFT_ERR_OK;
}

/* -- Metadata --------------------------------------------------------------------------------- */

static int64_t clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static weft_err connect_to(const weft_replay_target *to, weft_diag *diag, int *out)
{
    struct timeval limit = {.tv_sec = METADATA_SECONDS};
    int fd = socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    }
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to->address, to->address_len) < 0) {
        weft_err err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.item = to->text},
                                       "cannot connect: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return err;
    }
    *out = fd;
    return WEFT_ERR_OK;
}

static weft_err read_answer(const weft_replay_target *to, int fd, weft_diag *diag, weft_buf *buf,
                            weft_replay_head *head)
{
    char bytes[4096];
    const weft_where where = {.item = to->text};
    int64_t until = clock_s() + METADATA_SECONDS;
    weft_replay_read got = WEFT_REPLAY_MORE;
    while (got == WEFT_REPLAY_MORE || buf->len < head->size + head->length) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || clock_s() > until)
            return weft_diag_error(diag, WEFT_ERR_IO, where,
                                   "no complete answer about its models within %d s",
                                   METADATA_SECONDS);
        weft_buf_add(buf, bytes, (size_t)n);
        if (buf->failed)
            return WEFT_ERR_NOMEM;
        if (got == WEFT_REPLAY_MORE)
            got = weft_replay_read_head(buf->at, buf->len, head);
        if (got == WEFT_REPLAY_BAD)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "sends %s", head->why);
        if (got == WEFT_REPLAY_DONE && head->length > METADATA_BYTES_MAX)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "metadata above 1 MiB");
    }
    return WEFT_ERR_OK;
}

/* Gets the metadata of a model, or what else there is of it (`more`: "/stats"); *out NULL: the
 * server does not have it. */
static weft_err get_of_model(const weft_replay_target *to, const char *model, const char *more,
                             weft_diag *diag, json_t **out)
{
    int fd = -1;
    weft_buf buf = {0}, ask = {0};
    weft_replay_head head = {0};
    *out = NULL;
    WEFT_TRY(connect_to(to, diag, &fd));
    weft_buf_printf(&ask, "GET /v2/models/%s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n",
                    model, more, to->host);
    if (to->key)
        weft_buf_printf(&ask, "Authorization: Bearer %s\r\n", to->key);
    weft_buf_puts(&ask, "\r\n");
    weft_err err = ask.failed ? WEFT_ERR_NOMEM : WEFT_ERR_OK;
    if (err == WEFT_ERR_OK && send(fd, ask.at, ask.len, MSG_NOSIGNAL) != (ssize_t)ask.len)
        err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.item = to->text},
                              "does not take a request");
    if (err == WEFT_ERR_OK)
        err = read_answer(to, fd, diag, &buf, &head);
    if (err == WEFT_ERR_OK && (head.status == 401 || head.status == 403))
        err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = to->text},
                              "answers %u: give a key with --key-file", head.status);
    if (err == WEFT_ERR_OK && head.status == 200) {
        *out = json_loadb(buf.at + head.size, (size_t)head.length, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(*out))
            err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = model},
                                  "the server's metadata is not a JSON object");
    }
    if (err != WEFT_ERR_OK) {
        json_decref(*out);
        *out = NULL;
    }
    close(fd);
    weft_buf_finish(&buf);
    weft_buf_finish(&ask);
    return err;
}

/* -- Tensors ---------------------------------------------------------------------------------- */

typedef struct port {
    const char *name;
    weft_tensor t;    /* of one request; data: of the message being made */
    weft_tensor file; /* rank -1: random */
    bool rows;        /* the first dimension of the file is that of requests */
} port;

static weft_err refuse(weft_diag *diag, const char *model, const char *name, const char *text)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = model}, "input '%s': %s",
                           name ? name : "?", text);
}

static const char *find_file(const weft_tool_bindings *list, const char *model, const char *name)
{
    size_t n = strlen(model);
    for (size_t i = 0; i < list->n; i++) {
        const char *at = list->at[i].name;
        if (strcmp(at, name) == 0 ||
            (strncmp(at, model, n) == 0 && at[n] == ':' && strcmp(at + n + 1, name) == 0))
            return list->at[i].path;
    }
    return NULL;
}

/* The file has this shape, or rows of it where the first dimension varies. */
static weft_err bind_file(const char *model, const char *path, bool batched, weft_arena *arena,
                          weft_diag *diag, port *p)
{
    WEFT_TRY(weft_tool_load_tensor(path, arena, diag, &p->file));
    bool same = p->file.rank == p->t.rank && p->file.dtype == p->t.dtype;
    p->rows = batched;
    for (int32_t i = 0; same && i < p->t.rank; i++) {
        if (p->t.dim[i] >= 0 && !(i == 0 && batched) && p->t.dim[i] != p->file.dim[i])
            same = false;
        if (!(i == 0 && batched))
            p->t.dim[i] = p->file.dim[i];
    }
    if (!same || weft_tensor_numel(&p->file) <= 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                               "does not have the type and shape of input '%s' of %s, or no "
                               "elements",
                               p->name, model);
    return WEFT_ERR_OK;
}

static weft_err read_port(const char *model, const json_t *o, const weft_tool_bindings *list,
                          weft_arena *arena, weft_diag *diag, port *out)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *type = json_string_value(json_object_get(o, "datatype"));
    const json_t *shape = json_object_get(o, "shape");
    size_t rank = json_array_size(shape);
    if (!name || !type || !json_is_array(shape) || rank > WEFT_RANK_MAX)
        return refuse(diag, model, name, "the server's metadata of it is wrong");
    *out = (port){.name = weft_arena_strdup(arena, name), .file = {.rank = -1}};
    out->t.dtype = weft_dtype_from_oip(type);
    out->t.rank = (int32_t)rank;
    if (out->t.dtype == WEFT_DTYPE_NONE || weft_dtype_size(out->t.dtype) == 0)
        return refuse(diag, model, name, "weft replay makes no inputs of its type");
    bool batched = false;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < -1)
            return refuse(diag, model, name, "the server's metadata of its shape is wrong");
        out->t.dim[i] = json_integer_value(dim);
        if (i == 0 && out->t.dim[0] == -1) {
            batched = true;
            out->t.dim[0] = 1;
        }
    }
    const char *path = find_file(list, model, name);
    if (path)
        WEFT_TRY(bind_file(model, path, batched, arena, diag, out));
    for (size_t i = 0; i < rank; i++)
        if (out->t.dim[i] < 0)
            return refuse(diag, model, name,
                          "has a dimension that varies: give a file with --input");
    int64_t n = weft_tensor_numel(&out->t);
    if (n < 0 || (uint64_t)n * weft_dtype_size(out->t.dtype) > message_bytes_max)
        return refuse(diag, model, name, "is larger than 256 MiB");
    out->t.data = weft_arena_alloc(arena, weft_tensor_bytes(&out->t) + 1);
    return WEFT_ERR_OK;
}

static void fill(const port *p, uint64_t turn, weft_rand *rng)
{
    size_t bytes = weft_tensor_bytes(&p->t);
    if (p->file.rank >= 0) {
        uint64_t row = p->rows ? turn % (uint64_t)p->file.dim[0] : 0;
        memcpy(p->t.data, (const char *)p->file.data + row * bytes, bytes);
        return;
    }
    int64_t n = weft_tensor_numel(&p->t);
    for (int64_t i = 0; i < n; i++) {
        double u = weft_rand_unit(rng);
        if (weft_dtype_is_float(p->t.dtype))
            weft_tensor_set_f64(&p->t, i, 2 * u - 1);
        else
            weft_tensor_set_i64(&p->t, i, u < 0.5);
    }
}

/* -- Messages --------------------------------------------------------------------------------- */

static char *describe(const port *p, size_t n)
{
    json_t *root = json_object(), *inputs = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_object(), *shape = json_array();
        for (int32_t k = 0; k < p[i].t.rank; k++)
            json_array_append_new(shape, json_integer(p[i].t.dim[k]));
        json_object_set_new(o, "name", json_string(p[i].name));
        json_object_set_new(o, "datatype", json_string(weft_dtype_oip_name(p[i].t.dtype)));
        json_object_set_new(o, "shape", shape);
        json_object_set_new(
            o, "parameters",
            json_pack("{s:I}", "binary_data_size", (json_int_t)weft_tensor_bytes(&p[i].t)));
        json_array_append_new(inputs, o);
    }
    json_object_set_new(root, "inputs", inputs);
    json_object_set_new(root, "parameters", json_pack("{s:b}", "binary_data_output", 1));
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

static weft_err make_message(const weft_replay_target *to, const char *model, const port *p,
                             size_t n, weft_buf *out)
{
    char *text = describe(p, n);
    uint64_t bytes = 0;
    if (!text)
        return WEFT_ERR_NOMEM;
    size_t len = strlen(text);
    for (size_t i = 0; i < n; i++)
        bytes += weft_tensor_bytes(&p[i].t);
    weft_buf_printf(out,
                    "POST /v2/models/%s/infer HTTP/1.1\r\nHost: %s\r\n"
                    "Content-Type: application/octet-stream\r\n"
                    "Inference-Header-Content-Length: %zu\r\nContent-Length: %llu\r\n",
                    model, to->host, len, (unsigned long long)(len + bytes));
    if (to->key)
        weft_buf_printf(out, "Authorization: Bearer %s\r\n", to->key);
    weft_buf_puts(out, "\r\n");
    weft_buf_add(out, text, len);
    for (size_t i = 0; i < n; i++)
        weft_buf_add(out, p[i].t.data, weft_tensor_bytes(&p[i].t));
    free(text);
    return out->failed ? WEFT_ERR_NOMEM : WEFT_ERR_OK;
}

static weft_err make_service(const weft_replay_target *to, const json_t *metadata,
                             const weft_tool_bindings *list, uint64_t seed, weft_arena *arena,
                             weft_diag *diag, weft_replay_service *s)
{
    const json_t *inputs = json_object_get(metadata, "inputs");
    size_t n = json_array_size(inputs);
    uint64_t bytes = 0;
    if (!json_is_array(inputs) || n > INPUTS_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->name},
                               "the server's metadata has no 'inputs', or over %d", INPUTS_MAX);
    port *p = weft_arena_array(arena, n + 1, sizeof *p);
    uint64_t rows = 1;
    for (size_t i = 0; i < n; i++) {
        WEFT_TRY(read_port(s->name, json_array_get(inputs, i), list, arena, diag, &p[i]));
        bytes += weft_tensor_bytes(&p[i].t);
        uint64_t more = p[i].file.rank < 0 ? RANDOM_MESSAGES
                        : p[i].rows        ? (uint64_t)p[i].file.dim[0]
                                           : 1;
        rows = more > rows ? more : rows;
    }
    if (bytes > message_bytes_max)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->name},
                               "inputs of a request are larger than 256 MiB");
    s->n_message = (uint32_t)(rows > FILE_ROWS_MAX ? FILE_ROWS_MAX : rows);
    while (s->n_message > 1 && s->n_message * bytes > message_bytes_max)
        s->n_message--;
    s->message = weft_arena_array(arena, s->n_message, sizeof *s->message);
    weft_rand rng;
    weft_rand_seed(&rng, weft_hash64(s->name, strlen(s->name), seed));
    for (uint32_t k = 0; k < s->n_message; k++) {
        for (size_t i = 0; i < n; i++)
            fill(&p[i], k, &rng);
        WEFT_TRY(make_message(to, s->name, p, n, &s->message[k]));
    }
    return WEFT_ERR_OK;
}

weft_err weft_replay_make_messages(const weft_replay_target *to, const weft_tool_bindings *input,
                                   uint64_t seed, weft_arena *arena, weft_diag *diag,
                                   weft_replay_report *r)
{
    for (size_t i = 0; i < r->n_service; i++) {
        weft_replay_service *s = &r->service[i];
        json_t *metadata = NULL;
        if (!weft_set_name_valid(s->name))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->name},
                                   "is no name of a model for weft replay");
        WEFT_TRY(get_of_model(to, s->name, "", diag, &metadata));
        if (!metadata) {
            s->why_none = "the trace asks for it, but the server does not have it";
            continue;
        }
        weft_err err = make_service(to, metadata, input, seed, arena, diag, s);
        json_decref(metadata);
        WEFT_TRY(err);
    }
    return WEFT_ERR_OK;
}

/* -- Statistics ------------------------------------------------------------------------------- */

static double number_of(const json_t *stats, const char *of, const char *key)
{
    return json_number_value(json_object_get(json_object_get(stats, of), key));
}

weft_err weft_replay_add_inside(const weft_replay_target *to, int sign, weft_diag *diag,
                                weft_replay_report *r)
{
    for (size_t i = 0; i < r->n_service; i++) {
        weft_replay_service *s = &r->service[i];
        json_t *root = NULL;
        size_t k;
        const json_t *version;
        if (s->n_message == 0)
            continue;
        WEFT_TRY(get_of_model(to, s->name, "/stats", diag, &root));
        json_array_foreach(json_object_get(root, "model_stats"), k, version)
        {
            const json_t *stats = json_object_get(version, "inference_stats");
            s->inside.n += (uint64_t)sign * (uint64_t)fmax(number_of(stats, "success", "count"), 0);
            s->inside.ns += sign * (number_of(stats, "queue", "ns") + //
                                    number_of(stats, "compute_infer", "ns"));
        }
        json_decref(root);
    }
    return WEFT_ERR_OK;
}
