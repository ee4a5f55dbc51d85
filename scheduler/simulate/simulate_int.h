/* What the files of the simulator share: the world (slices, processes, queues), its clock, and the
 * accounts. simulate.c says how it works. */
#ifndef WEFT_SCHEDULER_SIMULATE_SIMULATE_INT_H
#define WEFT_SCHEDULER_SIMULATE_SIMULATE_INT_H

#include "scheduler/simulate/arrivals_int.h"
#include "scheduler/builder/builder.h"
#include "scheduler/plan/plan.h"

enum {
    SIM_BATCH_MAX = 256,       /* requests in one batch, as in the runtime */
    SIM_ENTRIES_MAX = 1 << 27, /* room of all batches and queues together, requests */
    SIM_BUCKETS_MAX = 1000000,
    SIM_CELLS_MAX = 20000000, /* buckets times services */
    SIM_FINE_BITS = 7,        /* of a histogram: 128 steps an octave, under 0.8 % each */
    SIM_COARSE_BITS = 5,
    SIM_TOP_BITS = 45, /* times from 2^45 ns, 9.8 h, count as that */
    SIM_FINE_N = (SIM_TOP_BITS - SIM_FINE_BITS + 1) << SIM_FINE_BITS,
    SIM_COARSE_N = (SIM_TOP_BITS - SIM_COARSE_BITS + 1) << SIM_COARSE_BITS,
};

static const int64_t sim_never_ns = INT64_MAX / 2;

typedef struct sim_request {
    int64_t time_ns;
    uint32_t service;
} sim_request;

/* What one execution of so many rows takes. */
typedef struct sim_size {
    uint32_t batch;
    int64_t exec_ns;
    double energy_j; /* 0: not known */
} sim_size;

/* One placement. */
typedef struct sim_replica {
    uint32_t slice, service; /* service: of its model */
    uint32_t batch, procs;
    const sim_size *size; /* by batch, the last is `batch` */
    uint32_t n_size;
    int64_t hold_ns;       /* the oldest request of a batch waits so long for it to fill */
    uint32_t queue;        /* its own; UINT32_MAX: pulls from those of the services */
    double weight;         /* requests per second it is meant for */
    uint64_t stride, pass; /* its turn among the replicas of a service */
    uint32_t load;         /* requests waiting and running */
    uint64_t batches, requests;
} sim_replica;

/* A place where requests wait, and the processes that may take them. */
typedef struct sim_queue {
    sim_request *at; /* ring; room is a power of two */
    uint32_t head, len, room;
    bool armed; /* a timer will look at it */
    WEFT_VEC(uint32_t) server;
    uint64_t *idle; /* bit by position in `server` */
    uint32_t n_word;
} sim_queue;

typedef struct sim_lane {
    uint32_t queue, replica, pos; /* pos: of the server in the queue's list */
} sim_lane;

typedef enum sim_state { SIM_STARTING, SIM_ON, SIM_OFF, SIM_GONE } sim_state;

/* A process that runs one batch at a time. */
typedef struct sim_server {
    uint32_t slice, replica; /* replica: of the batch in hand */
    bool busy;
    int64_t start_ns, end_ns, seen_ns; /* accounted up to seen_ns */
    const sim_size *size;
    sim_request *run;
    uint32_t n_run;
    sim_lane *lane;
} sim_server;

typedef struct sim_slice {
    uint32_t device; /* in world.device */
    char name[WEFT_SLICE_NAME_MAX];
    uint32_t slice_id;
    int32_t mig_start;
    uint32_t mig_mask; /* memory slots */
    double share;
    sim_state state;
    int64_t on_ns, off_ns; /* off_ns: sim_never_ns while it serves */
    uint32_t first_replica, n_replica, first_server, n_server, n_lane;
    const char *models;
    uint32_t turn; /* lane that goes first */
    int64_t busy_ns;
    uint64_t batches, requests;
    uint64_t key; /* hash of all that must agree for a slice to be kept */
    bool kept;    /* while a switch is worked out */
} sim_slice;

typedef struct sim_device {
    const char *type;
    double idle_w, busy_w, price_per_hour;
    uint32_t live;             /* slices that are not gone */
    int64_t since_ns, used_ns; /* in use since then, and before */
    uint64_t mark;             /* hash of its slices, while a switch is worked out */
    bool taken;
} sim_device;

typedef struct sim_service {
    const char *name;
    bool app;
    double slo_us;
    int64_t slo_ns;
    WEFT_VEC(uint32_t) route; /* replicas that serve it */
    weft_sim_counts count, bucket;
    uint64_t seen; /* requests since the last call of the policy */
    uint64_t batches, padded;
    double sum_ns, wait_ns, sum_accuracy;
    uint32_t *variant; /* of an app: services of its models */
    const double *accuracy;
    uint32_t n_variant;
    int64_t max_ns;
    uint64_t *fine;
    uint32_t *coarse;
} sim_service;

typedef struct sim_world {
    const weft_sim_options *o;
    weft_arena *arena;
    weft_diag *diag;
    int64_t now_ns, warm_ns, end_ns, timeout_ns;
    uint32_t queue_max;
    bool fill;
    sim_service *service;
    const weft_demand **demand; /* of the models, as they are among the services */
    uint32_t n_service, n_model;
    WEFT_VEC(sim_queue) queue;
    WEFT_VEC(sim_replica) replica;
    WEFT_VEC(sim_server) server;
    WEFT_VEC(sim_slice) slice;
    WEFT_VEC(sim_device) device;
    uint64_t room; /* of batches and queues, requests */
    weft_timer *timer;
    size_t n_timer, timer_room;
    uint64_t events;
    /* Plans. */
    const weft_plan *plan;
    size_t next_step;
    int64_t next_step_ns, next_period_ns;
    void *policy_state;
    weft_arena *plan_arena;
    uint64_t calls;
    WEFT_VEC(weft_sim_change) change;
    /* Accounts. */
    int64_t seen_ns; /* devices are accounted up to here */
    uint32_t n_device;
    double idle_w, price_per_hour;
    bool no_watts; /* some device in use has none */
    double busy_share_ns, share_ns, live_share, device_ns, cost, energy_j, carbon_g;
    double bucket_busy, bucket_share, bucket_energy_j, bucket_carbon_g, tick_energy_j;
    int64_t bucket_start_ns, next_bucket_ns, next_carbon_ns;
    WEFT_VEC(weft_sim_bucket) bucket;
    weft_err failed;
} sim_world;

enum { SIM_TIMER_DONE, SIM_TIMER_FLUSH, SIM_TIMER_ON, SIM_TIMER_OFF, SIM_TIMER_SHIFT = 30 };

static inline uint32_t weft_sim__key(int kind, uint32_t index)
{
    return (uint32_t)kind << SIM_TIMER_SHIFT | index;
}

/* -- simulate.c ------------------------------------------------------------------------------- */

void weft_sim__set_timer(sim_world *w, int64_t time_ns, int kind, uint32_t index);
/* A slice begins to serve, or ends to. */
void weft_sim__open_slice(sim_world *w, uint32_t slice);
void weft_sim__close_slice(sim_world *w, uint32_t slice);
uint32_t weft_sim__add_queue(sim_world *w);

/* -- simulate_plan.c -------------------------------------------------------------------------- */

WEFT_MUST_USE weft_err weft_sim__init_services(sim_world *w);
/* The first plan: everything serves at once. */
WEFT_MUST_USE weft_err weft_sim__begin(sim_world *w, const weft_plan *plan);
/* From now on this plan. */
WEFT_MUST_USE weft_err weft_sim__switch(sim_world *w, const weft_plan *plan, const char *policy);
/* Steps and calls of the policy that are due now. */
WEFT_MUST_USE weft_err weft_sim__replan(sim_world *w);

/* -- simulate_count.c ------------------------------------------------------------------------- */

void weft_sim__account_server(sim_world *w, sim_server *server);
/* A device comes into use, or goes out of it. */
void weft_sim__use_device(sim_world *w, sim_device *d, bool in_use);
/* Up to now: devices, slices that are there, idle power. */
void weft_sim__account(sim_world *w);
void weft_sim__count_answer(sim_world *w, const sim_request *r, const sim_server *server,
                            const sim_replica *replica);
/* Ends of buckets and hours, end of the warm-up; at a time of weft_sim__next_tick. */
WEFT_MUST_USE weft_err weft_sim__tick(sim_world *w);
int64_t weft_sim__next_tick(const sim_world *w);
void weft_sim__report(sim_world *w, weft_sim_report *out);

#endif
