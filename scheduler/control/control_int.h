/* What the files of the controller share. A file uses only what stands above its own section. */
#ifndef WEFT_SCHEDULER_CONTROL_CONTROL_INT_H
#define WEFT_SCHEDULER_CONTROL_CONTROL_INT_H

#include "base/str.h"
#include "scheduler/plan/plan.h"

enum { CONTROL_WINDOWS_MAX = 24 };

/* -- control_rates.c: counts over time, and rates estimated from them -------------------------- */

/* Counts of a service since the history began. */
typedef struct control_sample {
    uint64_t arrivals, answered, missed;
} control_sample;

/* A model or an app. */
typedef struct control_service {
    const char *name;
    bool app;
    double asked_per_s; /* rate, without headroom, of the last call of the policy */
    double boost;       /* further headroom: its SLO was missed at the rate that was planned */
    uint64_t queue;
    /* Of the present observation. */
    double up_per_s;   /* the most that a window shows */
    double down_per_s; /* what it may be planned for after a fall */
    uint64_t n_up;     /* requests in the window of up_per_s, */
    double up_s;       /* its length, */
    double up_sigma;   /* and its distance from asked_per_s */
    double down_sigma;
} control_service;

/* A ring of samples of all services. */
typedef struct control_history {
    uint32_t n_service, room, n, first;
    int64_t *at_ns;         /* of each sample */
    control_sample *sample; /* sample k of service i: sample[k * n_service + i] */
    int64_t gap_ns;         /* least time between two samples that are kept */
} control_history;

/* How many standard deviations a Poisson count n is above (below: negative) its mean. */
double weft_control__sigma(uint64_t n, double mean);
void weft_control__init_history(control_history *h, const weft_control_options *o,
                                uint32_t n_service, weft_arena *arena);
/* Forgets all samples. */
void weft_control__forget(control_history *h);
/* `now`: a sample of each service. */
void weft_control__record(control_history *h, int64_t now_ns, const control_sample *now);
/* The newest sample that is at least `ns` old, else the oldest; NULL: none. *age_ns: its age. */
const control_sample *weft_control__look_back(const control_history *h, int64_t now_ns, int64_t ns,
                                              int64_t *age_ns);
/* Fills the fields of the present observation. */
void weft_control__estimate(const control_history *h, const weft_control_options *o, int64_t now_ns,
                            const control_sample *now, control_service *service);

/* -- control_choice.c: two plans compared ------------------------------------------------------ */

typedef struct control_choice {
    double wanted_per_s, now_per_s, next_per_s; /* asked for, and carried by both plans */
    double saving;                              /* of the new plan, `unit` an hour */
    double price;                               /* of the moves, `unit` */
    const char *unit;
    uint32_t moves;
    double change_s; /* until the last slice serves, without last batches */
    weft_plan_course course;
} control_choice;

/* Requests per second that a plan carries of what the problem asks for, by its capacities. */
double weft_control__carried(const weft_plan *plan, const weft_problem *problem, weft_arena *arena,
                             double *out_wanted);
void weft_control__compare(const weft_plan *now, const weft_plan *next, const weft_problem *problem,
                           const weft_control_options *options, weft_arena *arena,
                           control_choice *out);
/* A model of the problem that `now` places and `next` does not; NULL: none. The variants of apps
 * are the policy's own choice. */
const char *weft_control__find_lost(const weft_plan *now, const weft_plan *next,
                                    const weft_problem *problem);

#endif
