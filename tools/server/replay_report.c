/* The report of weft replay, with the names of that of weft simulate, and both beside each other.
 */
#include "tools/server/replay.h"

#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_DIGITS = 12, SIMULATION_BYTES_MAX = 64 << 20 };

/* Seconds that requests were counted over. */
static double counted_s(const weft_replay_report *r)
{
    return r->end_ns > r->warm_ns ? (double)(r->end_ns - r->warm_ns) / 1e9 : 0;
}

/* The sum of all services; name NULL. */
static weft_replay_service sum_services(weft_arena *arena, const weft_replay_report *r)
{
    weft_replay_service all = {0};
    for (size_t i = 0; i < r->n_service; i++) {
        const weft_replay_service *s = &r->service[i];
        all.count.requests += s->count.requests;
        all.count.answered += s->count.answered;
        all.count.good += s->count.good;
        all.count.late += s->count.late;
        all.count.dropped += s->count.dropped;
        for (int k = 0; k < WEFT_REPLAY_FAULTS; k++)
            all.fault[k] += s->fault[k];
        weft_replay_add_times(arena, &all.latency, &s->latency);
        weft_replay_add_times(arena, &all.sent, &s->sent);
    }
    return all;
}

/* -- JSON ------------------------------------------------------------------------------------- */

static void put(json_t *o, const char *key, double x)
{
    json_object_set_new(o, key,
                        isfinite(x) && x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x)
                                                                       : json_real(x));
}

static void put_counts(json_t *o, const weft_sim_counts *c)
{
    put(o, "requests", (double)c->requests);
    put(o, "answered", (double)c->answered);
    put(o, "good", (double)c->good);
    put(o, "late", (double)c->late);
    put(o, "dropped", (double)c->dropped);
}

static void put_times(json_t *o, const weft_replay_times *t, const char *prefix)
{
    static const struct {
        const char *name;
        double part;
    } row[] = {{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p99_9", 0.999}};
    char key[64];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(key, sizeof key, "%s%s_us", prefix, row[i].name);
        put(o, key, weft_replay_percentile_us(t, row[i].part));
    }
    snprintf(key, sizeof key, "%smean_us", prefix);
    put(o, key, t->n ? t->sum_ns / (double)t->n / 1e3 : 0);
    snprintf(key, sizeof key, "%smax_us", prefix);
    put(o, key, (double)t->max_ns / 1e3);
}

static double violations(const weft_sim_counts *c)
{
    return c->requests ? (double)(c->late + c->dropped) / (double)c->requests : 0;
}

/* What a request costs outside of the server's queue and of the model; 0: not known, because the
 * server counted other answers as well, or tells nothing. */
static double host_cost_us(const weft_replay_service *s)
{
    if (s->sent.n == 0 || s->inside.n != s->sent.n)
        return 0;
    return (s->sent.sum_ns - s->inside.ns) / (double)s->sent.n / 1e3;
}

static json_t *service_to_json(const weft_replay_service *s, double seconds)
{
    json_t *o = json_object(), *errors = json_object();
    if (s->name)
        json_object_set_new(o, s->app ? "app" : "model", json_string(s->name));
    put_counts(o, &s->count);
    for (int k = 0; k < WEFT_REPLAY_FAULTS; k++)
        put(k == WEFT_REPLAY_REFUSED ? o : errors, weft_replay_fault_name((weft_replay_fault)k),
            (double)s->fault[k]);
    json_object_set_new(o, "errors", errors);
    put(o, "goodput_per_s", seconds > 0 ? (double)s->count.good / seconds : 0);
    put(o, "violations", violations(&s->count));
    if (s->name)
        put(o, "slo_us", s->slo_us);
    put_times(o, &s->latency, "");
    put_times(o, &s->sent, "sent_");
    double host_us = host_cost_us(s);
    if (host_us > 0)
        put(o, "host_us", host_us);
    return o;
}

static json_t *bucket_to_json(const weft_replay_report *r, const weft_sim_bucket *b)
{
    json_t *o = json_object(), *models = json_array();
    put(o, "start_s", b->start_s);
    put(o, "length_s", b->length_s);
    for (size_t i = 0; i < r->n_service; i++) {
        json_t *m = json_object();
        json_object_set_new(m, "name", json_string(r->service[i].name));
        put_counts(m, &b->count[i]);
        put(m, "p99_us", b->p99_us[i]);
        json_array_append_new(models, m);
    }
    json_object_set_new(o, "models", models);
    return o;
}

/* -- Comparison ------------------------------------------------------------------------------- */

/* The entry of the simulation with this name; NULL: its total. */
static const json_t *find_simulated(const json_t *simulated, const char *name)
{
    size_t i;
    const json_t *m;
    if (!name)
        return json_object_get(simulated, "total");
    json_array_foreach(json_object_get(simulated, "models"), i, m)
    {
        const char *model = json_string_value(json_object_get(m, "model"));
        const char *app = json_string_value(json_object_get(m, "app"));
        if ((model && strcmp(model, name) == 0) || (app && strcmp(app, name) == 0))
            return m;
    }
    return NULL;
}

static const char *const compared[] = {"goodput_per_s", "violations", "p50_us",
                                       "p95_us",        "p99_us",     "mean_us"};
enum { COMPARED_N = sizeof compared / sizeof *compared };

static json_t *compare(const json_t *live, const json_t *simulated)
{
    json_t *o = json_object();
    for (size_t i = 0; i < COMPARED_N; i++) {
        double a = json_number_value(json_object_get(live, compared[i]));
        double b = json_number_value(json_object_get(simulated, compared[i]));
        json_t *row = json_object();
        put(row, "live", a);
        put(row, "simulated", b);
        if (b > 0)
            put(row, "ratio", a / b);
        else
            json_object_set_new(row, "ratio", json_null());
        json_object_set_new(o, compared[i], row);
    }
    return o;
}

static json_t *compare_all(weft_arena *arena, const weft_replay_report *r, const json_t *simulated)
{
    json_t *list = json_array();
    for (size_t i = 0; i <= r->n_service; i++) {
        weft_replay_service all = {0};
        const weft_replay_service *s = &r->service[i];
        if (i == r->n_service) {
            all = sum_services(arena, r);
            s = &all;
        }
        const json_t *other = find_simulated(simulated, s->name);
        if (!other || s->count.requests == 0)
            continue;
        json_t *live = service_to_json(s, counted_s(r));
        json_t *o = compare(live, other);
        json_object_set_new(o, "model", s->name ? json_string(s->name) : json_null());
        json_array_append_new(list, o);
        json_decref(live);
    }
    return list;
}

weft_err weft_replay_read_simulation(const char *path, weft_diag *diag, json_t **out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, SIMULATION_BYTES_MAX, diag, &text, &len));
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    const char *format = json_string_value(json_object_get(*out, "format"));
    if (format && strcmp(format, "weft-simulation") == 0)
        return WEFT_ERR_OK;
    json_decref(*out);
    *out = NULL;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                           "is not what `weft simulate --format json` writes");
}

weft_err weft_replay_to_json(weft_arena *arena, const weft_replay_report *r,
                             const json_t *simulated, char **out)
{
    json_t *root = json_object(), *models = json_array(), *time = json_array();
    json_t *sender = json_object();
    json_object_set_new(root, "format", json_string("weft-replay"));
    put(root, "version", 1);
    put(root, "replayed_s", counted_s(r));
    weft_replay_service all = sum_services(arena, r);
    json_object_set_new(root, "total", service_to_json(&all, counted_s(r)));
    for (size_t i = 0; i < r->n_service; i++)
        json_array_append_new(models, service_to_json(&r->service[i], counted_s(r)));
    json_object_set_new(root, "models", models);
    put(sender, "connections_opened", (double)r->opened);
    put(sender, "connections_most", (double)r->most_open);
    put_times(sender, &r->lag, "lag_");
    put(sender, "waited", (double)r->wait.n);
    put_times(sender, &r->wait, "wait_");
    json_object_set_new(root, "sender", sender);
    for (size_t i = 0; i < r->bucket.len; i++)
        json_array_append_new(time, bucket_to_json(r, &r->bucket.at[i]));
    json_object_set_new(root, "time", time);
    if (simulated)
        json_object_set_new(root, "compare", compare_all(arena, r, simulated));
    *out = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(REPORT_DIGITS));
    json_decref(root);
    return *out ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

/* -- Text ------------------------------------------------------------------------------------- */

static void print_service(const weft_replay_service *s, double seconds)
{
    const weft_sim_counts *c = &s->count;
    printf("%-24s %10llu %11.1f %8.3f%% %8llu %9.3f %9.3f %9.3f %9.3f", s->name ? s->name : "all",
           (unsigned long long)c->requests, seconds > 0 ? (double)c->good / seconds : 0,
           100 * violations(c), (unsigned long long)c->dropped,
           weft_replay_percentile_us(&s->latency, 0.5) / 1e3,
           weft_replay_percentile_us(&s->latency, 0.9) / 1e3,
           weft_replay_percentile_us(&s->latency, 0.99) / 1e3,
           weft_replay_percentile_us(&s->latency, 0.999) / 1e3);
    if (s->name && s->slo_us > 0)
        printf(" %9.3f", s->slo_us / 1e3);
    putchar('\n');
}

static void print_comparison(weft_arena *arena, const weft_replay_report *r,
                             const json_t *simulated)
{
    json_t *list = compare_all(arena, r, simulated);
    size_t i;
    json_t *o;
    printf("\n%-24s %-14s %12s %12s %8s\n", "model", "", "live", "simulated", "ratio");
    json_array_foreach(list, i, o)
    {
        const char *name = json_string_value(json_object_get(o, "model"));
        for (size_t k = 0; k < COMPARED_N; k++) {
            const json_t *row = json_object_get(o, compared[k]);
            const json_t *ratio = json_object_get(row, "ratio");
            printf("%-24s %-14s %12.6g %12.6g", name ? name : "all", compared[k],
                   json_number_value(json_object_get(row, "live")),
                   json_number_value(json_object_get(row, "simulated")));
            if (json_is_number(ratio))
                printf(" %8.3f", json_number_value(ratio));
            putchar('\n');
        }
    }
    json_decref(list);
}

void weft_replay_print(weft_arena *arena, const weft_replay_report *r, const json_t *simulated)
{
    double seconds = counted_s(r);
    weft_replay_service all = sum_services(arena, r);
    printf("%.6g s, %llu connections, at most %llu at once; sent late by %.3g ms (p99), %.3g ms "
           "(most); %llu waited for a connection\n",
           seconds, (unsigned long long)r->opened, (unsigned long long)r->most_open,
           weft_replay_percentile_us(&r->lag, 0.99) / 1e3, (double)r->lag.max_ns / 1e6,
           (unsigned long long)r->wait.n);
    printf("%-24s %10s %11s %9s %8s %9s %9s %9s %9s %9s\n", "model", "requests", "good/s",
           "violated", "dropped", "p50 ms", "p90", "p99", "p99.9", "SLO");
    for (size_t i = 0; i < r->n_service; i++)
        if (r->service[i].count.requests > 0)
            print_service(&r->service[i], seconds);
    print_service(&all, seconds);
    for (int k = 0; k < WEFT_REPLAY_FAULTS; k++)
        if (all.fault[k] > 0)
            printf("  %s: %llu\n", weft_replay_fault_name((weft_replay_fault)k),
                   (unsigned long long)all.fault[k]);
    if (r->bucket.len > 0)
        printf("\n%10s %10s %10s %10s\n", "from s", "requests", "good/s", "violated");
    for (size_t i = 0; i < r->bucket.len; i++) {
        const weft_sim_bucket *b = &r->bucket.at[i];
        weft_sim_counts sum = {0};
        for (size_t k = 0; k < r->n_service; k++) {
            sum.requests += b->count[k].requests;
            sum.good += b->count[k].good;
            sum.late += b->count[k].late;
            sum.dropped += b->count[k].dropped;
        }
        printf("%10.6g %10llu %10.1f %10llu\n", b->start_s, (unsigned long long)sum.requests,
               b->length_s > 0 ? (double)sum.good / b->length_s : 0,
               (unsigned long long)(sum.late + sum.dropped));
    }
    if (simulated)
        print_comparison(arena, r, simulated);
}
