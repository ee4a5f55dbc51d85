/* CLOVER: the variants of one application on MIG instances of some GPUs. Shared by clover.c (the
 * objective), clover_search.c (annealing and the reference schemes) and policy_clover.c. */
#ifndef WEFT_SCHEDULER_POLICIES_CLOVER_INT_H
#define WEFT_SCHEDULER_POLICIES_CLOVER_INT_H

#include "scheduler/policies/policies_int.h"

enum { WEFT_CLOVER_VARIANTS_MAX = 16 };

/* An application, its GPUs and the weights of its objective. */
typedef struct weft_clover {
    const weft_mig_shape *shape; /* of the type of GPU; instance sizes are its profiles */
    uint32_t devices;            /* GPUs that the application may have */
    uint32_t n_variant;
    double accuracy[WEFT_CLOVER_VARIANTS_MAX];
    /* The fastest option of a variant on an instance size; NULL: it does not fit, or misses the
     * SLO. Energy is in joules per request. */
    const weft_option *option[WEFT_CLOVER_VARIANTS_MAX][WEFT_MIG_PROFILES_MAX];
    double energy_j[WEFT_CLOVER_VARIANTS_MAX][WEFT_MIG_PROFILES_MAX];
    double rate_per_s;
    double carbon_g_per_kwh;
    double lambda;         /* weight of carbon against accuracy */
    double least_accuracy; /* 0: any */
    /* Accuracy of BASE, the best variant on whole GPUs, and its carbon at the reference
     * intensity. */
    double base_accuracy, base_carbon;
} weft_clover;

/* The edge weights of the configuration graph: for each variant and size, the number of instances
 * on all GPUs. */
typedef struct weft_clover_config {
    uint32_t n[WEFT_CLOVER_VARIANTS_MAX][WEFT_MIG_PROFILES_MAX];
} weft_clover_config;

typedef struct weft_clover_score {
    double energy_j, accuracy; /* of a request; mean over all requests */
    double capacity_per_s;
    double f; /* lambda dCarbon + (1 - lambda) dAcc, percentage points */
    double h; /* what annealing minimises: -f and penalties */
    bool feasible;
} weft_clover_score;

/* Whether the instances fit on the GPUs. */
bool weft_clover__fits(const weft_clover *c, const weft_clover_config *x);
weft_clover_score weft_clover__score(const weft_clover *c, const weft_clover_config *x);
/* Graph edit distance: the sum of the differences of edge weights. */
uint32_t weft_clover__distance(const weft_clover *c, const weft_clover_config *x,
                               const weft_clover_config *y);
/* A random neighbour at a distance of 1 to 4 that fits; false: none was found. */
bool weft_clover__neighbour(const weft_clover *c, const weft_clover_config *x, uint64_t *seed,
                            weft_clover_config *out);

/* The reference schemes of the paper. false: the GPUs do not carry the rate. */
bool weft_clover__base(const weft_clover *c,
                       weft_clover_config *out); /* best variant, whole GPUs */
bool weft_clover__co2opt(const weft_clover *c,
                         weft_clover_config *out); /* least energy, smallest */
/* Of all configurations with one variant on instances of one size (all GPUs full of them, or as
 * many as the rate needs), the best one replaces *x if it is better. */
void weft_clover__start(const weft_clover *c, weft_clover_config *x);
/* BLOVER: random search over `effort` configurations. */
bool weft_clover__random(const weft_clover *c, uint64_t seed, uint64_t effort,
                         weft_clover_config *out);
/* ORACLE: exhaustive search over all mixtures of one GPU, the same on all GPUs. */
bool weft_clover__oracle(const weft_clover *c, weft_clover_config *out);
/* Simulated annealing from *x, until `patience` evaluations in a row found nothing better or
 * `effort` evaluations are done. *x becomes the best feasible configuration found; false: there was
 * none. */
bool weft_clover__anneal(const weft_clover *c, uint64_t seed, uint64_t effort, uint64_t patience,
                         weft_clover_config *x);

#endif
