/* The file of spans: lines of OTLP/JSON, written by a thread of its own so that a slow disk delays
 * no answer. When it is too slow, spans are dropped and counted. */
#include "base/random.h"
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { PENDING_MAX = 4 << 20 }; /* bytes that wait to be written */

struct weft_spans {
    const weft_serve_options *options;
    weft_spans_rate rate; /* that holds now */
    weft_rand rand;
    int fd; /* of the thread, while it runs; -1: no file */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t work;
    weft_buf pending;
    uint64_t n_written, n_dropped;
    bool reopens, ends;
};

/* -- The thread ----------------------------------------------------------------------------- */

/* Others may not read what clients have asked for. A pipe that nobody reads is an error, one that
 * is full loses lines: neither may block the server's start or end. */
static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
}

static uint64_t count_lines(const char *text, size_t len)
{
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n;
}

/* Bytes that the disk has taken; less than all: it is full. */
static size_t write_lines(int fd, const char *text, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = write(fd, text + done, len - done);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    return done;
}

static void *write_spans(void *user)
{
    weft_spans *t = user;
    bool cut = false; /* the last line in the file is not whole */
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->pending.len && !t->reopens && !t->ends)
            pthread_cond_wait(&t->work, &t->lock);
        weft_buf lines = t->pending;
        bool reopens = t->reopens, ends = t->ends;
        t->pending = (weft_buf){0};
        t->reopens = false;
        pthread_mutex_unlock(&t->lock);
        int fd = reopens ? open_file(t->options->trace_file) : -1;
        if (fd >= 0) {
            close(t->fd);
            t->fd = fd;
            cut = false;
        }
        if (cut && write_lines(t->fd, "\n", 1) == 1)
            cut = false;
        size_t put = cut ? 0 : write_lines(t->fd, lines.at, lines.len);
        uint64_t n = count_lines(lines.at, lines.len), whole = count_lines(lines.at, put);
        cut = cut || (put > 0 && lines.at[put - 1] != '\n');
        weft_buf_finish(&lines);
        pthread_mutex_lock(&t->lock);
        t->n_written += whole;
        t->n_dropped += n - whole;
        if (ends && !t->pending.len)
            break;
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static bool start_thread(weft_spans *t)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    t->has_thread = pthread_create(&t->thread, NULL, write_spans, t) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return t->has_thread;
}

/* -- Life ----------------------------------------------------------------------------------- */

weft_err weft_spans__create(const weft_serve_options *o, weft_diag *diag, weft_spans **out)
{
    uint64_t seed = 0;
    weft_spans *t = calloc(1, sizeof *t);
    if (!t)
        return WEFT_ERR_NOMEM;
    *t = (weft_spans){.options = o, .fd = -1};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    /* Ids must differ between servers; nobody need be unable to guess them. */
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = weft_clock__now_ns() ^ (uint64_t)getpid() << 32;
    weft_rand_seed(&t->rand, seed);
    *out = t;
    t->rate = weft_spans__first_rate(t);
    if (!o->trace_file)
        return WEFT_ERR_OK;
    t->fd = open_file(o->trace_file);
    if (t->fd < 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = o->trace_file}, "%s",
                               strerror(errno));
    return start_thread(t) ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

void weft_spans__destroy(weft_spans *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->ends = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    if (t->has_thread)
        pthread_join(t->thread, NULL);
    if (t->fd >= 0)
        close(t->fd);
    weft_buf_finish(&t->pending);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void weft_spans__reopen(weft_spans *t)
{
    if (!t || !t->has_thread)
        return;
    pthread_mutex_lock(&t->lock);
    t->reopens = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

weft_spans_rate weft_spans__first_rate(const weft_spans *t)
{
    if (!t)
        return (weft_spans_rate){0};
    return (weft_spans_rate){.on = t->options->trace_file, .rate = t->options->trace_rate};
}

weft_spans_rate weft_spans__rate(const weft_spans *t)
{
    return t ? t->rate : (weft_spans_rate){0};
}

void weft_spans__set_rate(weft_spans *t, weft_spans_rate rate)
{
    if (t)
        t->rate = rate;
}

bool weft_spans__is_on(const weft_spans *t)
{
    return t && ((t->has_thread && t->rate.on) || weft_log__is_on(WEFT_LOG_ACCESS));
}

/* -- Origins -------------------------------------------------------------------------------- */

static void make_id(weft_spans *t, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t word = weft_rand_next(&t->rand);
        memcpy(out + i, &word, sizeof word);
    }
    out[0] |= n && !out[0]; /* not all zero */
}

void weft_origin__decide(weft_origin *o, weft_spans *t)
{
    if (!o->has_parent) {
        memset(&o->context, 0, sizeof o->context);
        make_id(t, o->context.trace, sizeof o->context.trace);
        o->context.sampled = weft_rand_unit(&t->rand) < t->rate.rate;
    }
    o->spans = t->has_thread && t->rate.on && o->context.sampled;
}

/* -- Spans ---------------------------------------------------------------------------------- */

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };

typedef struct span {
    const char *name;
    int kind;
    const uint8_t *id, *parent; /* parent NULL: none */
    uint64_t start_ns, end_ns;  /* of weft_clock__now_ns */
} span;

static void put_id(weft_buf *out, const char *name, const uint8_t *id, size_t n)
{
    char text[2 * WEFT_TRACE_ID_BYTES + 1];
    weft_spans__put_hex(id, n, text);
    weft_buf_printf(out, "\"%s\":\"%s\",", name, text);
}

/* `wall_ns`: Unix time minus that of weft_clock__now_ns. */
static void put_span(weft_buf *out, const weft_request *r, const span *s, uint64_t wall_ns)
{
    weft_buf_puts(out, "{");
    put_id(out, "traceId", r->origin.context.trace, WEFT_TRACE_ID_BYTES);
    put_id(out, "spanId", s->id, WEFT_SPAN_ID_BYTES);
    if (s->parent)
        put_id(out, "parentSpanId", s->parent, WEFT_SPAN_ID_BYTES);
    weft_buf_printf(out,
                    "\"name\":\"%s\",\"kind\":%d,\"startTimeUnixNano\":\"%llu\","
                    "\"endTimeUnixNano\":\"%llu\"",
                    s->name, s->kind, (unsigned long long)(wall_ns + s->start_ns),
                    (unsigned long long)(wall_ns + s->end_ns));
}

static void put_text(weft_buf *out, const char *key, const char *text)
{
    weft_buf_printf(out, ",{\"key\":\"%s\",\"value\":{\"stringValue\":", key);
    weft_log__put_text(out, text);
    weft_buf_puts(out, "}}");
}

static void put_count(weft_buf *out, const char *key, int64_t n)
{
    weft_buf_printf(out, ",{\"key\":\"%s\",\"value\":{\"intValue\":\"%lld\"}}", key, (long long)n);
}

/* The names of models and transports need no escapes. */
static void put_request(weft_buf *out, const weft_request *r, const char *model)
{
    weft_buf_printf(out,
                    ",\"attributes\":[{\"key\":\"weft.model\",\"value\":{\"stringValue\":"
                    "\"%s\"}}",
                    model);
    put_text(out, "weft.transport", r->origin.over);
    put_text(out, "network.peer.address", r->origin.peer);
    if (r->id && r->id[0])
        put_text(out, "weft.request.id", r->id);
    put_count(out, "weft.rows", r->rows);
    put_count(out, "weft.batch_rows", r->batch_rows);
    put_count(out, "weft.attempts", r->attempts);
    weft_buf_puts(out, "]");
    if (r->answer != WEFT_ANSWER_OK) {
        weft_buf_printf(out, ",\"status\":{\"code\":%d,\"message\":", STATUS_ERROR);
        weft_log__put_text(out, r->message);
        weft_buf_puts(out, "}");
    }
    weft_buf_puts(out, "}");
}

static uint64_t unix_offset_ns(uint64_t now_ns)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec - now_ns;
}

static void put_line(weft_spans *t, const weft_request *r, const char *model, uint64_t now_ns,
                     weft_buf *out)
{
    uint8_t id[3][WEFT_SPAN_ID_BYTES];
    const weft_origin *o = &r->origin;
    uint64_t wall_ns = unix_offset_ns(now_ns), sent_ns = r->arrived_ns + r->queue_ns;
    uint64_t done_ns = sent_ns + r->compute_input_ns + r->compute_infer_ns + r->compute_output_ns;
    for (int i = 0; i < 3; i++)
        make_id(t, id[i], sizeof id[i]);
    const span request = {.name = "request",
                          .kind = KIND_SERVER,
                          .id = id[0],
                          .parent = o->has_parent ? o->context.parent : NULL,
                          .start_ns = o->received_ns,
                          .end_ns = now_ns};
    const span parts[] = {
        {"queue", KIND_INTERNAL, id[1], id[0], r->arrived_ns, sent_ns},
        {"compute", KIND_INTERNAL, id[2], id[0], sent_ns, done_ns < now_ns ? done_ns : now_ns}};
    weft_buf_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":"
                       "\"service.name\",\"value\":{\"stringValue\":\"weft\"}}]},"
                       "\"scopeSpans\":[{\"scope\":{\"name\":\"weft\"},\"spans\":[");
    put_span(out, r, &request, wall_ns);
    put_request(out, r, model);
    for (int i = 0; i < 2 && r->answer == WEFT_ANSWER_OK; i++) {
        weft_buf_puts(out, ",");
        put_span(out, r, &parts[i], wall_ns);
        weft_buf_puts(out, "}");
    }
    weft_buf_puts(out, "]}]}]}\n");
}

void weft_spans__write(weft_spans *t, const weft_request *r, const char *model, uint64_t now_ns)
{
    weft_buf line = {0};
    if (!t || !r->origin.spans)
        return;
    put_line(t, r, model, now_ns, &line);
    pthread_mutex_lock(&t->lock);
    if (!line.failed && t->pending.len + line.len <= PENDING_MAX)
        weft_buf_add(&t->pending, line.at, line.len);
    else
        t->n_dropped++;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    weft_buf_finish(&line);
}

void weft_spans__write_metrics(weft_spans *t, weft_buf *out)
{
    if (!t || !t->has_thread)
        return;
    pthread_mutex_lock(&t->lock);
    uint64_t n[] = {t->n_written, t->n_dropped};
    pthread_mutex_unlock(&t->lock);
    weft_buf_printf(out,
                    "# HELP weft_traces_written_total Requests whose spans were written\n"
                    "# TYPE weft_traces_written_total counter\nweft_traces_written_total %llu\n"
                    "# HELP weft_traces_dropped_total Requests whose spans were not written\n"
                    "# TYPE weft_traces_dropped_total counter\nweft_traces_dropped_total %llu\n",
                    (unsigned long long)n[0], (unsigned long long)n[1]);
}
