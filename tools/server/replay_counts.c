/* What weft replay counts. As in the simulator (docs/simulate.md) a request belongs to the time
 * bucket in which it is due, an answer to that in which it comes; requests of the warm-up count
 * nowhere. */
#include "tools/server/replay.h"

#include <string.h>

const char *weft_replay_fault_name(weft_replay_fault fault)
{
    static const char *const name[WEFT_REPLAY_FAULTS] = {"refused", "connect", "closed",
                                                         "timeout", "status",  "protocol"};
    return name[fault];
}

void weft_replay_add_time(weft_arena *arena, weft_replay_times *t, int64_t ns)
{
    if (!t->bin)
        t->bin = weft_arena_array(arena, WEFT_LOG_FINE_N, sizeof *t->bin);
    t->bin[weft_log_bin(ns, WEFT_LOG_FINE_BITS)]++;
    t->n++;
    t->sum_ns += (double)ns;
    if (ns > t->max_ns)
        t->max_ns = ns;
}

void weft_replay_add_times(weft_arena *arena, weft_replay_times *to, const weft_replay_times *from)
{
    if (!from->bin)
        return;
    if (!to->bin)
        to->bin = weft_arena_array(arena, WEFT_LOG_FINE_N, sizeof *to->bin);
    for (uint32_t i = 0; i < WEFT_LOG_FINE_N; i++)
        to->bin[i] += from->bin[i];
    to->n += from->n;
    to->sum_ns += from->sum_ns;
    if (from->max_ns > to->max_ns)
        to->max_ns = from->max_ns;
}

double weft_replay_percentile_us(const weft_replay_times *t, double part)
{
    uint64_t rank = weft_log_rank(t->n, part), sum = 0;
    for (uint32_t i = 0; t->n > 0 && i < WEFT_LOG_FINE_N; i++) {
        sum += t->bin[i];
        if (sum >= rank)
            return weft_log_middle(i, WEFT_LOG_FINE_BITS) / 1e3;
    }
    return 0;
}

void weft_replay_count_request(weft_replay_report *r, uint32_t service, int64_t planned_ns)
{
    if (planned_ns < r->warm_ns)
        return;
    r->service[service].count.requests++;
    r->service[service].bucket.requests++;
}

void weft_replay_count_answer(weft_arena *arena, weft_replay_report *r, uint32_t service,
                              int64_t planned_ns, int64_t sent_ns, int64_t now_ns)
{
    weft_replay_service *s = &r->service[service];
    if (planned_ns < r->warm_ns)
        return;
    int64_t ns = now_ns - planned_ns;
    bool late = s->slo_us > 0 && (double)ns > s->slo_us * 1e3;
    s->count.answered++;
    s->count.late += late;
    s->count.good += !late;
    s->bucket.answered++;
    s->bucket.late += late;
    s->bucket.good += !late;
    weft_replay_add_time(arena, &s->latency, ns);
    weft_replay_add_time(arena, &s->sent, now_ns - sent_ns);
    if (r->bucket_ns == 0)
        return;
    if (!s->coarse)
        s->coarse = weft_arena_array(arena, WEFT_LOG_COARSE_N, sizeof *s->coarse);
    s->coarse[weft_log_bin(ns, WEFT_LOG_COARSE_BITS)]++;
}

void weft_replay_count_fault(weft_replay_report *r, uint32_t service, int64_t planned_ns,
                             weft_replay_fault fault)
{
    weft_replay_service *s = &r->service[service];
    if (planned_ns < r->warm_ns)
        return;
    s->fault[fault]++;
    s->count.dropped++;
    s->bucket.dropped++;
}

static double coarse_p99(const weft_replay_service *s)
{
    uint64_t rank = weft_log_rank(s->bucket.answered, 0.99), sum = 0;
    for (uint32_t i = 0; s->coarse && s->bucket.answered > 0 && i < WEFT_LOG_COARSE_N; i++) {
        sum += s->coarse[i];
        if (sum >= rank)
            return weft_log_middle(i, WEFT_LOG_COARSE_BITS) / 1e3;
    }
    return 0;
}

static void close_bucket(weft_arena *arena, weft_replay_report *r, int64_t start, int64_t end)
{
    weft_sim_counts *count = weft_arena_array(arena, r->n_service + 1, sizeof *count);
    double *p99 = weft_arena_array(arena, r->n_service + 1, sizeof *p99);
    for (size_t i = 0; i < r->n_service; i++) {
        weft_replay_service *s = &r->service[i];
        count[i] = s->bucket;
        p99[i] = coarse_p99(s);
        s->bucket = (weft_sim_counts){0};
        if (s->coarse)
            memset(s->coarse, 0, WEFT_LOG_COARSE_N * sizeof *s->coarse);
    }
    weft_sim_bucket b = {.start_s = (double)start / 1e9,
                         .length_s = (double)(end - start) / 1e9,
                         .count = count,
                         .p99_us = p99};
    WEFT_VEC_PUSH(arena, &r->bucket, b);
}

void weft_replay_close_buckets(weft_arena *arena, weft_replay_report *r, int64_t now_ns, bool last)
{
    if (r->bucket_ns == 0)
        return;
    for (;;) {
        int64_t start = r->warm_ns + (int64_t)r->bucket.len * r->bucket_ns;
        int64_t end = start + r->bucket_ns;
        if (end > now_ns) {
            if (last && start < now_ns)
                close_bucket(arena, r, start, now_ns);
            return;
        }
        close_bucket(arena, r, start, end);
    }
}
