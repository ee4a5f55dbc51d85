/* What the files of the policy usher share: requirements of models (usher_need.c), placement of one
 * combination (usher_place.c) and search over combinations (usher_search.c). policy_usher.c has the
 * essay. */
#ifndef WEFT_SCHEDULER_POLICIES_USHER_INT_H
#define WEFT_SCHEDULER_POLICIES_USHER_INT_H

#include "scheduler/policies/policies_int.h"

enum {
    WEFT_USHER_GROUP = 4,
    WEFT_USHER_BATCHES = 6,
    WEFT_USHER_DEGREES = 6,
    WEFT_USHER_MEM = 1000, /* parts of a device in which memory is counted */
    WEFT_USHER_BOUNDS = 4, /* compute, memory, and each again for items of at least one half */
    WEFT_USHER_EFFORT = 200000,
};

/* What the compute that a model requires, and the bandwidth, are taken from: the profile's mean, or
 * its use over time. */
typedef enum weft_usher_measure {
    WEFT_USHER_MEAN,
    WEFT_USHER_PEAK,    /* the highest level of the run (section 2 of the paper) */
    WEFT_USHER_P90,     /* that covers 90 % of the time */
    WEFT_USHER_EXPECTED /* the least level that the run exceeds by at most eps of its mean */
} weft_usher_measure;

typedef struct weft_usher_options {
    bool no_alternate, no_divide, no_sort;
    bool full;       /* every combination, without pruning */
    bool wait;       /* T includes the time in which a batch is collected */
    bool stats;      /* adds a note with the numbers of the search */
    uint32_t degree; /* greatest multiple of c, 1..6 */
    double eps;      /* slow-down that is considered none */
    weft_usher_measure measure;
    double trigger; /* part of its rate by which a model must move for a new plan */
} weft_usher_options;

typedef struct weft_usher_type {
    const weft_fleet_device *row;
    double price; /* 1 if it is not known */
} weft_usher_type;

/* One replica on one type of device. */
typedef struct weft_usher_need {
    const weft_option *option; /* NULL: the model cannot be on the type */
    uint32_t c, m;     /* c: percent of the compute; m: parts of the memory, of WEFT_USHER_MEM */
    double rate_per_s; /* batch / T */
} weft_usher_need;

typedef enum weft_usher_side {
    WEFT_USHER_NEUTRAL,
    WEFT_USHER_C_HEAVY,
    WEFT_USHER_M_HEAVY
} weft_usher_side;

/* A (batch, replicas) pair of a model. */
typedef struct weft_usher_config {
    uint32_t batch, replicas;
    const weft_usher_need *need; /* by type */
    weft_usher_side side;
    bool sure;      /* carries the rate on any type that it can be on */
    double c, m;    /* mean over types, percent */
    double goodput; /* upper bound, at most the rate */
    double
        must[WEFT_USHER_BOUNDS]; /* the same as `least`, of the replicas that carry its goodput */
    double least[WEFT_USHER_BOUNDS]; /* lower bound on the price of the parts of devices that its
                                        replicas take, dollars */
    double unit[2]; /* lower bound on the parts of devices for one request per second */
} weft_usher_config;

typedef struct weft_usher_model {
    uint32_t demand, rank;
    double rate_per_s, slo_us;
    double c, m; /* mean over batches and types, percent */
    weft_usher_config *config;
    uint32_t n_config;
    uint32_t n_pair, n_same; /* n_pair: all pairs; n_same: pairs that equal another one */
} weft_usher_model;

/* Devices in equal states. */
typedef struct weft_usher_class {
    uint32_t type, c_free, m_free, count;
    bool inside;          /* opened for the present group */
    uint32_t first, last; /* linked list of devices; UINT32_MAX: none */
} weft_usher_class;

/* One action of a placement: `count` devices went from one class to another, each with `each`
 * replicas (or pairs) more. */
typedef struct weft_usher_move {
    uint32_t from, to; /* from UINT32_MAX: new devices */
    uint32_t count, each;
    uint32_t model[2]; /* in the group; second UINT32_MAX: no pair */
} weft_usher_move;

typedef struct weft_usher_result {
    double cost, goodput;
    double part[WEFT_USHER_GROUP]; /* goodput of each model */
    bool enough;                   /* all rates are carried, and each model has a replica */
    bool complete;                 /* and all replicas have a place */
} weft_usher_result;

typedef struct weft_usher_stats {
    double combinations;      /* of the groups that were searched; 36^4 each if all pairs exist */
    double dropped;           /* a pair breaks a limit, or equals another pair */
    double cut;               /* pruned by the bound */
    uint64_t placed;          /* calls of Algorithm 2 */
    uint32_t groups, limited; /* limited: groups whose search ended with the effort */
} weft_usher_stats;

typedef struct weft_usher {
    weft_builder *builder;
    weft_usher_options options;
    const weft_usher_type *type;
    uint32_t n_type;
    weft_usher_model *model; /* sorted by name */
    uint32_t n_model;
    uint32_t (*group)[WEFT_USHER_GROUP]; /* models; UINT32_MAX: none */
    uint32_t n_group;
    uint32_t *opened;                   /* by type */
    WEFT_VEC(weft_usher_class) classes; /* the first `kept` existed before the placement */
    uint32_t kept;
    WEFT_VEC(weft_usher_move) moves; /* log of the placement, for undo and for carrying it out */
    uint64_t effort;
    weft_usher_stats stats;
} weft_usher;

/* -- usher_keep.c ----------------------------------------------------------------------------- */

/* Puts the plan in force again unless a rate has moved by `trigger` of itself (0: never) or by
 * 500/s; false, and nothing changed: a new plan is needed. */
bool weft_usher__keep(weft_builder *builder, double trigger);

/* -- usher_need.c ----------------------------------------------------------------------------- */

/* Computes requirements and pairs of all models. INFEASIBLE with a reason. */
WEFT_MUST_USE weft_err weft_usher__models(weft_usher *u);
/* Pairs `n` elements so that the sum of |d_i + d_j| is minimal: i goes with mate[i]; mate[i] = i:
 * alone. */
void weft_usher__pair(const double *d, uint32_t n, uint32_t *mate, weft_arena *arena);
/* Divides the models into groups of up to four. */
void weft_usher__group(weft_usher *u);

/* -- usher_place.c ---------------------------------------------------------------------------- */

/* Algorithm 2 for one combination: config[i] is that of the i-th model of the group. Changes the
 * state; weft_usher__undo restores it. */
weft_usher_result weft_usher__place(weft_usher *u, const weft_usher_config *const *config,
                                    const double *rate_per_s, uint32_t n);
void weft_usher__undo(weft_usher *u);

/* -- usher_search.c --------------------------------------------------------------------------- */

/* Algorithm 1 for one group: the best combination. false: no combination carries all rates (with
 * the goal goodput this is no failure); config and *out then have the combination that carries
 * most. */
bool weft_usher__search(weft_usher *u, const uint32_t *group, uint32_t n,
                        const weft_usher_config **config, weft_usher_result *out);

#endif
