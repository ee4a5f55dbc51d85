/* What the files of the policy usher share: what models need (usher_need.c), the placement of one
 * combination (usher_place.c) and the search over combinations (usher_search.c). policy_usher.c
 * says what it is about. */
#ifndef WEFT_SCHEDULER_POLICIES_USHER_INT_H
#define WEFT_SCHEDULER_POLICIES_USHER_INT_H

#include "scheduler/policies/policies_int.h"

enum {
    WEFT_USHER_GROUP = 4,
    WEFT_USHER_BATCHES = 6,
    WEFT_USHER_DEGREES = 6,
    WEFT_USHER_MEM = 1000, /* memory is counted in such parts of a device */
    WEFT_USHER_BOUNDS = 4, /* compute, memory, and each again for items of at least one half */
    WEFT_USHER_EFFORT = 200000,
};

typedef struct weft_usher_options {
    bool no_alternate, no_divide, no_sort;
    bool full;       /* every combination, nothing pruned */
    bool wait;       /* T includes the time in which a batch collects */
    bool stats;      /* say what was searched */
    uint32_t degree; /* multiples of c, 1..6 */
    double eps;      /* slow-down that is as good as none */
    double trigger;  /* part of its rate by which a model moves before all is planned anew */
} weft_usher_options;

typedef struct weft_usher_type {
    const weft_fleet_device *row;
    double price; /* 1 when not known */
} weft_usher_type;

/* One replica on one type of device. */
typedef struct weft_usher_need {
    const weft_option *option; /* NULL: cannot be there */
    uint32_t c, m;             /* percent of the compute, WEFT_USHER_MEM parts of the memory */
    double rate_per_s;         /* batch / T */
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
    bool sure;                       /* carries the rate on any type that can have it */
    double c, m;                     /* mean over types, percent */
    double goodput;                  /* at most, capped at the rate */
    double must[WEFT_USHER_BOUNDS];  /* the same of the replicas that carry its goodput */
    double least[WEFT_USHER_BOUNDS]; /* dollars that its replicas take of devices, at least */
    double unit[2]; /* parts of devices that one request a second takes, at least */
} weft_usher_config;

typedef struct weft_usher_model {
    uint32_t demand, rank;
    double rate_per_s, slo_us;
    double c, m; /* mean over batches and types, percent */
    weft_usher_config *config;
    uint32_t n_config;
    uint32_t n_pair, n_same; /* all pairs; those equal to another one */
} weft_usher_model;

/* Devices in one state. */
typedef struct weft_usher_class {
    uint32_t type, c_free, m_free, count;
    bool inside;          /* opened for the group at hand */
    uint32_t first, last; /* devices, linked; UINT32_MAX: none */
} weft_usher_class;

/* One step of a placement: `count` devices went from one class to another, each with `each`
 * replicas (or pairs) more. */
typedef struct weft_usher_move {
    uint32_t from, to; /* from UINT32_MAX: new devices */
    uint32_t count, each;
    uint32_t model[2]; /* of the group; second UINT32_MAX: no pair */
} weft_usher_move;

typedef struct weft_usher_result {
    double cost, goodput;
    double part[WEFT_USHER_GROUP]; /* goodput of each model */
    bool enough;                   /* all rates are carried, each model has a replica */
    bool complete;                 /* and all replicas have a place */
} weft_usher_result;

typedef struct weft_usher_stats {
    double combinations; /* of the groups that were searched: 36^4 each where all pairs exist */
    double dropped;      /* a pair breaks a limit, or is the same as another */
    double cut;          /* by the bound */
    uint64_t placed;     /* PLACEMENT was called */
    uint32_t groups, limited; /* limited: by the effort, so that less may be possible */
} weft_usher_stats;

typedef struct weft_usher {
    weft_builder *builder;
    weft_usher_options options;
    const weft_usher_type *type;
    uint32_t n_type;
    weft_usher_model *model; /* by name */
    uint32_t n_model;
    uint32_t (*group)[WEFT_USHER_GROUP]; /* models; UINT32_MAX: none */
    uint32_t n_group;
    uint32_t *opened;                   /* by type */
    WEFT_VEC(weft_usher_class) classes; /* the first `kept` are from before the placement */
    uint32_t kept;
    WEFT_VEC(weft_usher_move) moves; /* since the placement began: log to undo, and to carry out */
    uint64_t effort;
    weft_usher_stats stats;
} weft_usher;

/* -- usher_keep.c ----------------------------------------------------------------------------- */

/* Puts the plan in force again when no rate has moved by `trigger` of itself (0: never) or by
 * 500/s; false, and nothing changed, when it is to be made anew. */
bool weft_usher__keep(weft_builder *builder, double trigger);

/* -- usher_need.c ----------------------------------------------------------------------------- */

/* Requirements and pairs of all models. INFEASIBLE with a reason. */
WEFT_MUST_USE weft_err weft_usher__models(weft_usher *u);
/* Pairs `n` elements so that the sum of |d_i + d_j| is least: mate[i]; i itself: alone. */
void weft_usher__pair(const double *d, uint32_t n, uint32_t *mate, weft_arena *arena);
/* Groups of up to four. */
void weft_usher__group(weft_usher *u);

/* -- usher_place.c ---------------------------------------------------------------------------- */

/* Algorithm 2 for one combination: config[i] of the i-th model of the group. The state is changed;
 * weft_usher__undo takes it back. */
weft_usher_result weft_usher__place(weft_usher *u, const weft_usher_config *const *config,
                                    const double *rate_per_s, uint32_t n);
void weft_usher__undo(weft_usher *u);

/* -- usher_search.c --------------------------------------------------------------------------- */

/* Algorithm 1 for one group: the best combination. false: none carries all (not so with the goal
 * goodput); config and *out are then of the combination that carries most. */
bool weft_usher__search(weft_usher *u, const uint32_t *group, uint32_t n,
                        const weft_usher_config **config, weft_usher_result *out);

#endif
