/* What the files of the simulator share: the simulated world, and the functions of each file. A
 * file uses only what stands above its own section. */
#ifndef WEFT_SCHEDULER_SIMULATE_SIMULATE_INT_H
#define WEFT_SCHEDULER_SIMULATE_SIMULATE_INT_H

#include "scheduler/simulate/arrivals_int.h"
#include "base/map.h"
#include "scheduler/builder/builder.h"
#include "scheduler/plan/plan.h"

enum {
    SIM_BATCH_MAX = 256,       /* requests in one batch, as in the runtime */
    SIM_ENTRIES_MAX = 1 << 27, /* requests that all batches together have room for */
    SIM_BUCKETS_MAX = 1000000, /* time buckets */
    SIM_CELLS_MAX = 20000000,  /* time buckets times services */
    SIM_FACTORS_MAX = 1 << 20, /* factors of interference that are remembered */
};

/* Later than every event. */
static const int64_t sim_never_ns = INT64_MAX / 2;

typedef struct sim_request {
    int64_t time_ns;
    uint64_t due_ns; /* its place in the queue: where requests pull, when it is due */
    uint32_t service;
    bool promised; /* late, it is worth nothing */
} sim_request;

/* The execution of a batch of up to `batch` requests. */
typedef struct sim_size {
    uint32_t batch;
    uint32_t id;            /* of all sizes of the world, from 1 on */
    int64_t exec_ns;        /* with the rest of the device busy */
    int64_t idle_ns;        /* with the rest of the device idle */
    double energy_j;        /* 0: not known */
    weft_pressure use;      /* of what its neighbours use, too */
    weft_batch_time learnt; /* as the server would have */
} sim_size;

/* One placement. */
typedef struct sim_replica {
    uint32_t slice, service; /* service: that of its model */
    uint32_t batch, procs;
    sim_size *size; /* in the order of batches; the last one has `batch` */
    uint32_t n_size;
    int64_t hold_ns;       /* longest time that the oldest request waits for its batch to fill */
    uint32_t queue;        /* its own queue; UINT32_MAX: it pulls from the queues of services */
    double weight;         /* requests per second that it is planned for */
    uint64_t stride, pass; /* of stride scheduling among the replicas of a service */
    uint32_t load;         /* requests waiting and running */
    uint64_t batches, requests;
} sim_replica;

/* Waiting requests in the order in which they are due, and the processes that may take them. */
typedef struct sim_queue {
    sim_request *at; /* ring buffer; room is a power of two */
    uint32_t head, len, room;
    bool armed; /* a flush timer is set */
    WEFT_VEC(uint32_t) server;
    uint64_t *idle; /* bit i: server.at[i] is idle */
    uint32_t n_word;
    double virtual_ns; /* of a model: the processes' time that it has had */
    bool marked;       /* scratch */
} sim_queue;

/* A queue that a process takes batches from, and the replica that then runs them. */
typedef struct sim_lane {
    uint32_t queue, replica;
    uint32_t pos; /* of the process in the queue's list */
} sim_lane;

typedef enum sim_state {
    SIM_STARTING, /* serves from a timer on */
    SIM_ON,
    SIM_OFF, /* takes no more batches; some may still run */
    SIM_GONE
} sim_state;

/* A process, which runs one batch at a time. */
typedef struct sim_server {
    uint32_t slice;
    /* The batch in hand. */
    uint32_t replica;
    bool busy;
    int64_t start_ns, end_ns;
    int64_t seen_ns;  /* accounted up to this time */
    int64_t pace_ns;  /* time that the whole batch would take as fast as now */
    int64_t paced_ns; /* since when it is so fast */
    double left;      /* part of the batch that was left then */
    sim_size *size;
    sim_request *run;
    uint32_t n_run;
    sim_lane *lane; /* as many as its slice says */
} sim_server;

typedef struct sim_slice {
    uint32_t device; /* in world.device */
    char name[WEFT_SLICE_NAME_MAX];
    uint32_t slice_id;
    int32_t mig_start;
    double share;
    bool among; /* an MPS share: interference slows it down */
    sim_state state;
    int64_t on_ns, off_ns; /* off_ns: sim_never_ns while it serves */
    uint32_t first_replica, n_replica, first_server, n_server, n_lane;
    const char *models;
    uint32_t turn; /* first lane that is asked for a batch, without pulling */
    int64_t busy_ns;
    uint64_t batches, requests;
    uint64_t key; /* hash of all that must be equal for the next plan to keep the slice */
    bool kept;    /* during a transition: the new plan has it, too */
    bool leaves;  /* it ends at leave_ns */
    int64_t leave_ns;
    weft_placement *placement; /* by replica */
} sim_slice;

typedef struct sim_device {
    const char *type;
    double idle_w, busy_w, price_per_hour;
    WEFT_VEC(uint32_t) slice;  /* those that are not gone; in use while there are any */
    bool paced;                /* the times of batches depend on what runs beside them */
    int64_t since_ns, used_ns; /* start of the present use; duration of the earlier ones */
    uint64_t mark;             /* during a transition: hash of its slices */
    bool taken;                /* during a transition: has a device of the new plan */
} sim_device;

/* A model or an app that requests name. */
typedef struct sim_service {
    const char *name;
    bool app;
    double slo_us;
    int64_t slo_ns;
    WEFT_VEC(uint32_t) route; /* replicas that serve it */
    weft_sim_counts count, bucket;
    uint64_t seen; /* requests since the start, also of the warm-up */
    uint64_t batches, padded;
    double sum_ns, wait_ns, sum_accuracy;
    uint32_t *variant; /* of an app: the services of its models */
    const double *accuracy;
    uint32_t n_variant;
    weft_pick_mean mean; /* of an app */
    int64_t host_ns;     /* cost of a request besides its execution */
    int64_t max_ns;
    uint64_t *fine;   /* histogram of latencies of the whole run; NULL: none yet */
    uint32_t *coarse; /* the same of the time bucket */
} sim_service;

typedef struct sim_world {
    const weft_sim_options *o;
    weft_arena *arena;
    weft_diag *diag;
    int64_t now_ns, warm_ns, end_ns, timeout_ns;
    uint32_t queue_max;
    bool fill;            /* batches leave when they are full, not as soon as a process is idle */
    sim_service *service; /* models by name, then apps by name; service i has queue i */
    const weft_demand **demand; /* of the models, in the order of services */
    uint32_t n_service, n_model;
    double virtual_ns;          /* of the model that got a process last, when it did */
    weft_line *line;            /* by service: scratch */
    struct sim_line *other;     /* the same */
    weft_pick_variant *variant; /* the same */
    WEFT_VEC(sim_queue) queue;
    WEFT_VEC(sim_replica) replica;
    WEFT_VEC(sim_server) server;
    WEFT_VEC(sim_slice) slice;
    WEFT_VEC(sim_device) device;
    uint64_t room;    /* requests that all batches have room for */
    weft_map *factor; /* of interference, by the batches that run beside each other */
    uint32_t n_size;
    weft_timer *timer; /* heap */
    size_t n_timer, timer_room;
    uint64_t events;
    /* Plans (simulate_transition.c, simulate_replan.c). */
    const weft_plan *plan; /* in force */
    size_t next_later;
    int64_t next_later_ns, next_period_ns, poll_ns;
    weft_controller *controller; /* has the plan in force, if a policy made it; NULL: no policy */
    weft_control_count *seen;    /* scratch: an observation of each service */
    uint64_t calls;
    WEFT_VEC(weft_sim_change) change;
    /* Accounts (simulate_accounts.c). */
    int64_t seen_ns; /* devices are accounted up to this time */
    uint32_t n_device;
    double idle_w, price_per_hour;
    bool no_watts; /* the power of some device type is not known */
    double busy_share_ns, share_ns, live_share, device_ns, cost, energy_j, carbon_g;
    double bucket_busy, bucket_share, bucket_energy_j, bucket_carbon_g;
    double pending_energy_j; /* not yet in energy_j and carbon_g */
    int64_t bucket_start_ns, next_bucket_ns, next_carbon_ns;
    WEFT_VEC(weft_sim_bucket) bucket;
} sim_world;

/* -- simulate_accounts.c: latencies, use, energy, carbon, cost -------------------------------- */

/* Sets the first boundaries of time buckets and of carbon intensity. */
void weft_sim__open_accounts(sim_world *w);
/* Adds the time since server->seen_ns of a busy process. */
void weft_sim__account_server(sim_world *w, sim_server *server);
/* Adds the time since w->seen_ns of devices and slices. To be called before they change. */
void weft_sim__account_devices(sim_world *w);
/* The device comes into use, or goes out of use. */
void weft_sim__use_device(sim_world *w, sim_device *d, bool in_use);
/* Counted time that the device was in use, up to now. */
int64_t weft_sim__used_ns(const sim_world *w, const sim_device *d);
/* One answer, now, to a request of the batch that `server` ran. */
void weft_sim__count_answer(sim_world *w, const sim_request *r, const sim_server *server);
/* Carbon intensity at a time, g/kWh. */
double weft_sim__intensity(const sim_world *w, int64_t ns);
/* The end of the time bucket or of the interval of carbon intensity, whichever is first. */
int64_t weft_sim__next_boundary(const sim_world *w);
/* Closes the bucket and the interval that end now, if any does. */
WEFT_MUST_USE weft_err weft_sim__pass_boundary(sim_world *w);
/* The end of the run: all accounts are up to date, the last bucket is closed. */
void weft_sim__close_accounts(sim_world *w);
/* Nearest rank in the fine histogram of a service; 0 without answers. */
double weft_sim__percentile_us(const sim_service *s, double part);
/* Adds the fine histogram of one service to that of another one. */
void weft_sim__add_histogram(weft_arena *arena, sim_service *to, const sim_service *from);

/* -- simulate_report.c: the accounts as a report ---------------------------------------------- */

void weft_sim__report(sim_world *w, weft_sim_report *out);

/* -- simulate_dispatch.c: what the router decides, with the server's functions ---------------- */

/* A queue and the replica that its batches are forecast by. */
typedef struct sim_line {
    const sim_queue *queue;
    const sim_replica *replica;
} sim_line;

/* The size at which `rows` requests run. *rows becomes less if the batch is cut to a smaller
 * size. */
sim_size *weft_sim__size(const sim_replica *replica, uint32_t *rows);
/* Request i of a queue. */
sim_request *weft_sim__waiting(const sim_queue *q, uint32_t i);
/* Sets when a request that a model answers is due, and whether that is a promise. */
void weft_sim__promise(const sim_world *w, uint32_t model, sim_request *r);
/* The model whose queue a request joins: its own or, of an app, the variant that is chosen. false:
 * it is refused. */
bool weft_sim__admit(sim_world *w, sim_request *r, uint32_t *out_model);
/* A request is answered or dropped. `model`: whose queue it had; counts if that is a variant. */
void weft_sim__settle(sim_world *w, const sim_request *r, uint32_t model, bool answered);
/* Whether queue a goes before queue b; neither is empty. */
bool weft_sim__goes_first(const sim_world *w, const sim_queue *a, const sim_queue *b);
/* What to do with a queue before its replica takes a batch. */
weft_line_choice weft_sim__choose(const sim_world *w, uint32_t queue, const sim_replica *replica);
/* The model gets a process for a batch of so many rows. */
void weft_sim__charge(sim_world *w, uint32_t queue, const sim_replica *replica, uint32_t rows);

/* -- simulate_timers.c: when what happens ----------------------------------------------------- */

enum {
    SIM_TIMER_DONE,  /* a process ends its batch */
    SIM_TIMER_FLUSH, /* the oldest request of a queue may wait no longer */
    SIM_TIMER_ON,    /* a slice begins to serve */
    SIM_TIMER_OFF,   /* a slice ends to serve */
    SIM_TIMER_SHIFT = 30
};

/* `index`: of the process, the queue or the slice; below 2^30. */
void weft_sim__set_timer(sim_world *w, int64_t time_ns, int kind, uint32_t index);

/* -- simulate_pace.c: how fast batches run beside each other ---------------------------------- */

/* Batches on the device have begun or ended: all of it go on faster or slower. */
void weft_sim__pace(sim_world *w, uint32_t device);

/* -- simulate_serving.c: queues, batches, routing --------------------------------------------- */

uint32_t weft_sim__add_queue(sim_world *w);
void weft_sim__open_slice(sim_world *w, uint32_t slice);
/* Requests that wait for the slice alone go to other replicas. */
void weft_sim__close_slice(sim_world *w, uint32_t slice);
/* A request comes now. */
void weft_sim__arrive(sim_world *w, const weft_arrival *a);
/* Takes the first timer off the heap and does what it is for. */
void weft_sim__fire(sim_world *w);
/* Drops all requests that have waited for the timeout. */
void weft_sim__expire(sim_world *w);
/* Drops all requests that wait for a service which no slice serves. */
void weft_sim__drop_unserved(sim_world *w);

/* -- simulate_world.c: services, and slices made from placements ------------------------------ */

/* The placements of one slice of a plan, in the order of models. */
typedef struct sim_group {
    const weft_placement *const *at;
    uint32_t n, device; /* device: index in the plan, then in the world */
    uint64_t key;       /* hash of all that must be equal for a slice to be kept */
    uint32_t kept;      /* the slice of the world that it is already, or UINT32_MAX */
} sim_group;

WEFT_MUST_USE weft_err weft_sim__init_services(sim_world *w);
/* UINT32_MAX: no such model. */
uint32_t weft_sim__find_model(const sim_world *w, const char *model);
/* INPUT, and a message that names the placement. */
weft_err weft_sim__refuse(const sim_world *w, const weft_placement *p, const char *text);
uint32_t weft_sim__add_device(sim_world *w, const weft_plan *plan, const char *type);
/* A slice that is STARTING. */
WEFT_MUST_USE weft_err weft_sim__add_slice(sim_world *w, const sim_group *g);
/* Gives a replica the rate that the placement is planned for. */
void weft_sim__set_weight(sim_replica *r, const weft_placement *p);

/* -- simulate_transition.c: from one plan to the next one ------------------------------------- */

/* The first plan: all its slices serve at once. */
WEFT_MUST_USE weft_err weft_sim__begin(sim_world *w, const weft_plan *plan);
/* From now on this plan, which `policy` made. */
WEFT_MUST_USE weft_err weft_sim__switch(sim_world *w, const weft_plan *plan, const char *policy);

/* -- simulate_replan.c: later plans, and a policy that is called over time -------------------- */

/* Sets the times of the first later plan and of the first call of the controller. */
WEFT_MUST_USE weft_err weft_sim__init_plans(sim_world *w);
int64_t weft_sim__next_plan(const sim_world *w);
/* Later plans and the call of the controller that are due now, if any is. */
WEFT_MUST_USE weft_err weft_sim__replan(sim_world *w);

#endif
