/* Door of mig/: MIG geometry as numbers, the best option of each profile, and the exact search. */
#ifndef WEFT_SCHEDULER_MIG_MIG_H
#define WEFT_SCHEDULER_MIG_MIG_H

#include "scheduler/builder/builder.h"

/* -- MIG geometry (mig_pack.c) ---------------------------------------------------------------- */

enum {
    WEFT_MIG_PROFILES_MAX = 8,
    WEFT_MIG_FACETS_MAX = WEFT_MIG_PROFILES_MAX + 1,
    WEFT_MIG_SETS_MAX = 512 /* multisets of instances on one device */
};

/* Which multisets of instances fit a device type. Rows of the device table in table order. */
typedef struct weft_mig_shape {
    const weft_device_type *type;
    uint32_t n; /* profiles */
    /* Facets: `count` fits on G devices iff sum_p weight[f][p] count[p] <= cap[f] G for every f. */
    uint32_t n_facet;
    uint32_t weight[WEFT_MIG_FACETS_MAX][WEFT_MIG_PROFILES_MAX];
    uint32_t cap[WEFT_MIG_FACETS_MAX];
    uint32_t order[WEFT_MIG_PROFILES_MAX]; /* profiles, large ones first: the order of placing */
} weft_mig_shape;

typedef struct weft_mig_count {
    uint8_t of[WEFT_MIG_PROFILES_MAX];
} weft_mig_count;

/* n is 0 for a device without MIG, or with more profiles than we handle. */
weft_mig_shape weft_mig__shape(const weft_device_type *type);
/* Fewest devices that hold the instances, in closed form. */
uint64_t weft_mig__devices(const weft_mig_shape *shape, const uint64_t *count);
/* Start slot for one more instance beside `taken`, preferring those that waste least; -1: none. */
int32_t weft_mig__slot(const weft_mig_profile *mig, uint32_t taken);
/* Memory slots of an instance as bits. */
uint32_t weft_mig__range(const weft_mig_profile *mig, int32_t start);
/* Multisets that fit one device; `maximal`: only those that no other one contains. Returns how
 * many there are and writes at most `cap`. */
size_t weft_mig__multisets(const weft_mig_shape *shape, bool maximal, weft_mig_count *out,
                           size_t cap);

/* One instance of a packing. */
typedef struct weft_mig_place {
    uint32_t device;
    int32_t start;
} weft_mig_place;

/* Realises `count` on the devices whose taken slots are given, opening more behind them as need be
 * (in *taken, which grows in `arena`): out[p] has count[p] places. Returns the number of devices,
 * which is weft_mig__devices when all began empty. */
uint32_t weft_mig__place(const weft_mig_shape *shape, const uint64_t *count, uint32_t devices,
                         uint32_t **taken, weft_arena *arena,
                         weft_mig_place *out[WEFT_MIG_PROFILES_MAX]);

/* -- What one service can have (mig_best.c) ---------------------------------------------------- */

/* The option with the highest capacity for each MIG profile of one fleet row; NULL: none within the
 * rules. Equal capacities: the smaller batch, then fewer processes. `procs` 0: any number. */
typedef struct weft_mig_best {
    const weft_option *option[WEFT_MIG_PROFILES_MAX];
    double per_s[WEFT_MIG_PROFILES_MAX]; /* 0: none */
} weft_mig_best;

weft_mig_best weft_mig__best(const weft_builder *builder, const weft_mig_shape *shape,
                             const weft_fleet_device *row, uint32_t demand, uint32_t procs);
/* -- The search for fewest devices (mig_search.c) ---------------------------------------------- */

/* What one service asks for, and what one instance of each profile carries (0: not usable). */
typedef struct weft_mig_load {
    double rate_per_s;
    double per_s[WEFT_MIG_PROFILES_MAX];
} weft_mig_load;

typedef struct weft_mig_counts {
    uint32_t of[WEFT_MIG_PROFILES_MAX];
} weft_mig_counts;

typedef struct weft_mig_search {
    const weft_mig_shape *shape;
    const weft_mig_load *load;
    uint32_t n;
    uint32_t width; /* states kept at a time: how thorough the search is */
    weft_arena *arena;
} weft_mig_search;

typedef struct weft_mig_found {
    weft_mig_counts *count; /* by service */
    uint64_t devices;
    uint64_t bound; /* no counts that carry the loads need fewer */
} weft_mig_found;

/* false: some load is carried by no instance, or by more than we count. */
bool weft_mig__search(const weft_mig_search *in, weft_mig_found *out);

/* The same problem as an integer program over the maximal multisets of the geometry, for a solver
 * (mig_program.c): fewest devices, at most `devices`. false: the solver found nothing better;
 * out->bound is raised by what it excludes all the same. */
bool weft_mig__solve(const weft_mig_search *in, const weft_solver *solver, uint64_t devices,
                     uint32_t nodes_max, weft_mig_found *out);

#endif
