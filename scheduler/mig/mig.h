/* Door of mig/: which MIG instances fit on a device (mig_pack.c), the best option of a model on
 * each profile (mig_best.c), and the fewest devices for a set of services, by search (mig_search.c)
 * or as an integer program (mig_program.c). */
#ifndef WEFT_SCHEDULER_MIG_MIG_H
#define WEFT_SCHEDULER_MIG_MIG_H

#include "scheduler/builder/builder.h"

/* -- MIG geometry (mig_pack.c) ---------------------------------------------------------------- */

enum {
    WEFT_MIG_PROFILES_MAX = 8,
    WEFT_MIG_FACETS_MAX = WEFT_MIG_PROFILES_MAX + 1,
    WEFT_MIG_SETS_MAX = 512 /* multisets of instances that fit one device */
};

/* Which multisets of instances fit a device type. Profile p is the p-th of the device type. */
typedef struct weft_mig_shape {
    const weft_device_type *type;
    uint32_t n; /* profiles; 0: no MIG */
    /* Facets (linear inequalities): count[] instances fit on G devices if and only if, for every f,
     * sum_p weight[f][p] * count[p] <= cap[f] * G. */
    uint32_t n_facet;
    uint32_t weight[WEFT_MIG_FACETS_MAX][WEFT_MIG_PROFILES_MAX];
    uint32_t cap[WEFT_MIG_FACETS_MAX];
    uint32_t order[WEFT_MIG_PROFILES_MAX]; /* profiles from large to small: the placing order */
} weft_mig_shape;

/* A multiset of instances on one device, by profile. */
typedef struct weft_mig_count {
    uint8_t of[WEFT_MIG_PROFILES_MAX];
} weft_mig_count;

/* n is 0 for a device without MIG, with more than 8 memory slots or with more than
 * WEFT_MIG_PROFILES_MAX profiles. */
weft_mig_shape weft_mig__shape(const weft_device_type *type);
/* Fewest devices that hold count[p] instances of each profile p, in closed form. */
uint64_t weft_mig__devices(const weft_mig_shape *shape, const uint64_t *count);
/* Multisets that fit one device; `maximal`: only those that are contained in no other one. Returns
 * their number and writes at most `cap` of them. */
size_t weft_mig__multisets(const weft_mig_shape *shape, bool maximal, weft_mig_count *out,
                           size_t cap);

/* One instance of a packing. */
typedef struct weft_mig_place {
    uint32_t device;
    int32_t start;
} weft_mig_place;

/* Places count[p] instances of each profile p on `devices` devices with the slots (*taken)[d], and
 * on more devices when those are full; *taken grows in `arena`. out[p] gets count[p] places.
 * Returns the number of devices; it is weft_mig__devices if the devices were empty. */
uint32_t weft_mig__place(const weft_mig_shape *shape, const uint64_t *count, uint32_t devices,
                         uint32_t **taken, weft_arena *arena,
                         weft_mig_place *out[WEFT_MIG_PROFILES_MAX]);

/* -- Best options (mig_best.c) ---------------------------------------------------------------- */

/* For each MIG profile the option of a model with the highest capacity; among equals the one with
 * the smallest batch, then with the fewest processes. NULL: the model has no option there. */
typedef struct weft_mig_best {
    const weft_option *option[WEFT_MIG_PROFILES_MAX];
    double per_s[WEFT_MIG_PROFILES_MAX]; /* 0: none */
} weft_mig_best;

/* The best options on whole instances of one fleet row. `procs`: only options with this number of
 * processes; 0: with any. */
weft_mig_best weft_mig__best(const weft_builder *builder, const weft_mig_shape *shape,
                             const weft_fleet_device *row, uint32_t demand, uint32_t procs);

/* -- Fewest devices (mig_search.c) ------------------------------------------------------------ */

/* The rate of a service, and the rate that one instance of each profile serves (0: not usable). */
typedef struct weft_mig_load {
    double rate_per_s;
    double per_s[WEFT_MIG_PROFILES_MAX];
} weft_mig_load;

/* Instances of one service, by profile. */
typedef struct weft_mig_counts {
    uint32_t of[WEFT_MIG_PROFILES_MAX];
} weft_mig_counts;

typedef struct weft_mig_search {
    const weft_mig_shape *shape;
    const weft_mig_load *load;
    uint32_t n;
    uint32_t width; /* states of the dynamic program: more find better plans, in more time */
    weft_arena *arena;
} weft_mig_search;

typedef struct weft_mig_found {
    weft_mig_counts *count; /* by service */
    uint64_t devices;
    uint64_t bound; /* lower bound on the devices of any solution */
} weft_mig_found;

/* false: some service is served by no profile or needs too many instances, or the search gave up.
 */
bool weft_mig__search(const weft_mig_search *in, weft_mig_found *out);

/* Solves the same problem as an integer program (mig_program.c) for at most `devices` devices, from
 * out->bound upwards. false: no solution was found, and out->count is unchanged. In both cases
 * out->bound is raised to what the solver proved. */
bool weft_mig__solve(const weft_mig_search *in, const weft_solver *solver, uint64_t devices,
                     uint32_t nodes_max, weft_mig_found *out);

#endif
