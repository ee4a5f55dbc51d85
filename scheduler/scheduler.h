/* Planning: places models on devices. Demands (models with SLO, rate and profile) and a fleet
 * (devices that can be split) go in, a policy makes a plan of them, and the checker verifies any
 * plan. Also: reports on plans, simulation of a plan in virtual time, and export to other systems.
 *
 * Everything here is a pure function of its arguments: no clock, no environment, no device. Types
 * are thread-compatible. The folder uses base/, ir/cost.h and ir/bundle.h only. */
#ifndef WEFT_SCHEDULER_SCHEDULER_H
#define WEFT_SCHEDULER_SCHEDULER_H

#include "base/arena.h"
#include "base/device_type.h"
#include "base/diag.h"
#include "base/nearest.h"
#include "ir/cost.h"
#include "scheduler/set.h"

#include <stdbool.h>

struct json_t;

/* -- Fleets --------------------------------------------------------------------------------- */

/* `count` equal devices, and how they may be split. */
typedef struct weft_fleet_device {
    const char *type; /* row of the device table, base/device_type.h */
    uint32_t count;
    uint32_t cores;              /* CPU only */
    const uint32_t *slice_cores; /* CPU only: cores of each slice; n_slice 0: one slice of all */
    size_t n_slice;
    bool mig, mps;         /* whether it may be split in this way */
    uint64_t mem_bytes;    /* 0: as in the device table */
    double price_per_hour; /* of one device, dollars; 0: as in the device table */
    double bandwidth_gbps; /* peak of its memory, for interference; 0: not known */
    /* Devices of each node, rack and zone, by weft_domain; 0: not divided. */
    uint32_t per_domain[WEFT_DOMAINS];
    uint32_t lost_node; /* one that failed, its index + 1; 0: none */
} weft_fleet_device;

typedef struct weft_fleet {
    const char *file;
    const weft_fleet_device *device;
    size_t n_device;
} weft_fleet;

/* Reads a fleet file (YAML, docs/set-file.md). INPUT with file and line. The result lives in
 * `arena`. */
WEFT_MUST_USE weft_err weft_fleet_load(const char *path, weft_arena *arena, weft_diag *diag,
                                       weft_fleet *out);

/* Price of a device of the row by that of a table, which is of a GPU or of a core. */
double weft_fleet_listed_price(const weft_fleet_device *row, double price_per_hour);

/* A row goes on without the node of this name. Returns how many devices it had; 0: the row does not
 * say that it has such a node. */
uint32_t weft_fleet_lose(weft_fleet_device *row, const char *node, weft_arena *arena);

/* -- Demands -------------------------------------------------------------------------------- */

typedef struct weft_demand {
    const char *model;
    double slo_us;     /* 0: none */
    double rate_per_s; /* 0: one placement, which serves any load */
    weft_profile profile;
    bool admit_by_slo;  /* requests that would be late are refused; for the simulation */
    weft_domain spread; /* it has to be in two of them; NONE: anywhere */
} weft_demand;

typedef struct weft_demands {
    const weft_demand *at;
    size_t n;
} weft_demands;
/* What a message of a model that is none of these ends with (weft_nearest_say). */
const char *weft_demands_say_known(const weft_demands *demands, const char *model,
                                   char buf[WEFT_NEAREST_BYTES_MAX]);

/* What a model of a set file demands; the times are the caller's. */
weft_demand weft_demand_of(const weft_set_model *model, weft_profile profile);

/* -- Families ------------------------------------------------------------------------------- */

/* Models that can run as one joint program. */
typedef struct weft_family {
    const char *name; /* of the models, joined by '+' */
    const char *const *model;
    size_t n;
    /* Of the joint program: a point's batch counts the requests of all models, equally many of
     * each; shared weights count once in its memory. */
    weft_profile profile;
} weft_family;

/* The name of a family. Lives in the arena. */
const char *weft_family_name(const char *const *model, size_t n, weft_arena *arena);
/* Whether a name is that of a family, and not of a model. */
bool weft_family_is_name(const char *name);
/* Whether a name is one of a model, or of a family whose models have safe names. */
bool weft_family_name_valid(const char *name);
/* The models that a name stands for: those of a family, or the one model. Lives in the arena. */
size_t weft_family_models(const char *name, weft_arena *arena, const char *const **out);
/* Whether a model is one of those that a name stands for. */
bool weft_family_has(const char *name, const char *model);

/* -- Problems ------------------------------------------------------------------------------- */

typedef enum weft_latency_rule {
    WEFT_RULE_EXACT,  /* wait + execution <= SLO; slo.c has the formulas */
    WEFT_RULE_HALF,   /* execution < SLO / 2 (text of ParvaGPU's paper, gpulet, Nexus) */
    WEFT_RULE_HALF09, /* execution < 0.9 * SLO / 2 (ParvaGPU's program) */
    WEFT_RULE_QUEUE   /* a quantile of the latency under random arrivals (queue_capacity.c) */
} weft_latency_rule;

typedef enum weft_arrival_kind {
    WEFT_ARRIVE_POISSON,
    WEFT_ARRIVE_BURSTY, /* Markov-modulated Poisson process of two states */
    WEFT_ARRIVE_CONSTANT
} weft_arrival_kind;

const char *weft_arrival_kind_name(weft_arrival_kind kind); /* "poisson", "bursty", "constant" */
bool weft_arrival_kind_parse(const char *text, weft_arrival_kind *out);

enum { WEFT_INTERFERENCE_MAX = 1000000 }; /* of a coefficient */

/* Interference of models that run at the same time on one device or MIG instance.
 * A model is slowed down by the factor
 * max(1, c[0] l2_own + c[1] l2_other + c[2] dram_own + c[3] dram_other + c[4]); utilisations, 0..1,
 * are those of each model alone on its share (gpulet, ATC'22). Zeroes: no interference; times are
 * those of the profiles. */
typedef struct weft_interference {
    double c[5];
    bool over_time; /* instead: by the bandwidth that each uses over time */
    bool mean;      /* over_time: each as if it used its mean all the time */
} weft_interference;

/* Constraints on plans. Zero-initialised: the defaults. */
typedef struct weft_rules {
    weft_latency_rule latency;
    bool whole_ms;      /* SLOs are rounded down to whole ms, as in ParvaGPU's program */
    uint32_t procs_max; /* processes of one model on one slice; 0: limited by the device only */
    bool isolated;      /* no two models share a slice or a MIG instance */
    bool oversubscribe; /* the MPS shares of a device may sum to more than 100 % */
    double mem_reserve; /* part of each memory that stays free; at least 0, below 1 */
    double confidence;  /* that no execution takes longer than planned; 0: times as in profiles */
    weft_interference interference;
    weft_domain survive; /* without any one of them every rate is still served; NONE: not asked */
    /* Rule `queue` only. */
    weft_arrival_kind arrivals;
    double quantile; /* of the requests that keep their SLO; 0: 0.99 */
    double burst;    /* bursty: peak rate over mean rate; 0: that of weft_arrivals_options */
    double host_us;  /* of each request: transport, router, copies; at least that of the profile */
} weft_rules;

const char *weft_latency_rule_name(weft_latency_rule rule); /* "exact", "half", "half09", "queue" */
bool weft_latency_rule_parse(const char *text, weft_latency_rule *out);

typedef enum weft_goal {
    WEFT_GOAL_COST,    /* serve every rate; fewest dollars an hour, then fewest devices */
    WEFT_GOAL_GOODPUT, /* serve as many requests as the fleet can, then at the lowest cost */
    WEFT_GOAL_CARBON   /* serve every rate with the least carbon; apps limit the accuracy */
} weft_goal;

const char *weft_goal_name(weft_goal goal); /* "cost", "goodput", "carbon" */
bool weft_goal_parse(const char *text, weft_goal *out);

/* An integer program: minimise cost * x subject to row_lo <= A x <= row_hi, 0 <= x <= upper, x
 * integer. A is stored by columns: the entries of column c are (row[i], coeff[i]) for i from
 * start[c] to start[c + 1] - 1. */
typedef struct weft_program {
    uint32_t n_col, n_row;
    const double *cost, *upper;    /* by column */
    const double *row_lo, *row_hi; /* by row; row_hi HUGE_VAL: no limit */
    const uint32_t *start, *row;
    const double *coeff;
    uint32_t nodes_max; /* of branch and bound */
    bool relaxed;       /* x need not be integer: a linear program */
    double *dual;       /* relaxed: receives the dual values of the rows; NULL: not wanted */
} weft_program;

/* A deterministic solver of integer programs. The caller provides it in the problem, so that only
 * the planner links one; without a solver, policies use their own searches. */
typedef struct weft_solver {
    const char *name;
    /* *out_found: x, n_col numbers of the caller, holds a solution. *out_bound: lower bound on the
     * cost of any solution. */
    weft_err (*solve)(const weft_program *program, double *x, bool *out_found, double *out_bound);
} weft_solver;

extern const weft_solver weft_solver_cbc; /* COIN-OR CBC; library weft_cbc */

struct weft_plan;

/* The whole input of a policy. */
typedef struct weft_problem {
    const weft_demands *demands;
    const weft_fleet *fleet;
    weft_rules rules;
    weft_goal goal;
    const weft_set_app *app; /* tasks with several model variants */
    size_t n_app;
    const weft_family *family; /* what may be placed as one; none in a grouped problem */
    size_t n_family;
    const struct weft_plan *previous; /* the plan in force; NULL: none */
    double now_s;                     /* time of the caller's clock, for policies with periods */
    double carbon_g_per_kwh;          /* intensity of the grid; 0: not known */
    uint64_t seed;
    uint64_t effort;           /* iterations of a search; 0: the policy's default */
    const char *options;       /* parameters of the policy, "key=value,..."; NULL: its defaults */
    const weft_solver *solver; /* may be NULL: policies use their own searches */
} weft_problem;

/* Reads a measured profile (CSV, docs/set-file.md). `layout`: "weft" or "parvagpu"; `model`: for
 * messages. */
WEFT_MUST_USE weft_err weft_profile_load(const char *path, const char *layout, const char *model,
                                         weft_arena *arena, weft_diag *diag, weft_profile *out);
/* The profile as the interference of the rules takes it: with interference over time, the times of
 * MPS shares become those on an idle device, where these are known. Problems with such rules have
 * profiles of this kind. */
weft_profile weft_interference_times(const weft_profile *profile, const weft_interference *coeff,
                                     weft_arena *arena);

/* -- Placements ----------------------------------------------------------------------------- */

/* Where a placement is in the world outside: what a fleet with failure domains or an earlier export
 * says. NULL or 0: nothing does. */
typedef struct weft_location {
    const char *node, *rack, *zone;
    uint32_t gpu; /* index of the device among those of its node; with `node` */
    /* Of the process that serves the slice, as exports name it: with `node`. */
    const char *worker;
    uint32_t port;
} weft_location;

/* One model on one slice, or a family that runs there as one joint program. Placements that name
 * the same slice share it in time. */
typedef struct weft_placement {
    const char *model; /* or a family's name */
    uint32_t device;   /* number of the device in the plan, from 0 without gaps */
    const char *type;  /* device type */
    const char *slice; /* "": whole device; MIG profile; "40%": MPS share; "1core": CPU slice */
    int32_t mig_start; /* first memory slot of the MIG instance; -1 without MIG */
    uint32_t slice_id; /* placements with equal device and slice_id are on one slice */
    double share;      /* part of the device's compute units that the slice has */
    uint32_t batch, procs;
    double rate_per_s;     /* requests assigned */
    double capacity_per_s; /* requests of this model that the slice can serve within the SLO */
    double latency_us;     /* worst case, or quantile, with batching and queueing; slo.c */
    double exec_us;        /* of a batch, rule `queue`; 0: follows from capacity and latency */
    uint64_t mem_bytes;    /* of all processes; 0: not known */
    double expected_error; /* relative error of the execution time */
    const char *source;    /* of the execution time: "measured", "analytic", ... */
    weft_location where;
} weft_placement;

typedef struct weft_plan {
    const char *policy;
    weft_rules rules;
    weft_goal goal;
    weft_placement *at;
    size_t n;
    uint32_t gpus; /* devices in use, CPUs included */
    double cost_per_hour;
    double goodput_per_s; /* sum of the rates of the placements */
    double power_w;       /* of the executed batches; 0: some profile has no energy */
    double lower_bound;   /* of gpus over all plans within the rules */
    double cost_bound;    /* of cost_per_hour over all plans within the rules; 0: not known */
    bool proven;          /* whether no plan within the rules is cheaper; without prices: no plan
                           * has fewer gpus */
    double decision_ms;   /* set by the caller, which has a clock */
} weft_plan;

/* What a policy can do: ways to split devices, and more. */
enum {
    WEFT_SPLIT_WHOLE = 1, /* whole devices */
    WEFT_SPLIT_MIG = 2,
    WEFT_SPLIT_MPS = 4,
    WEFT_SPLIT_CORES = 8,    /* slices of CPUs */
    WEFT_SPLIT_TIME = 16,    /* time sharing: several models on one slice */
    WEFT_SPLIT_VARIANTS = 32 /* chooses the variants of apps */
};

/* A policy: a pure and deterministic function. Rows of policies.def. */
typedef struct weft_policy {
    const char *name;
    const char *alias; /* an earlier name that users may still type; NULL: none */
    const char *brief;
    const char *cite;
    const char *const *parameters; /* keys of its options, NULL behind the last; NULL: none */
    uint32_t splits;               /* WEFT_SPLIT_* */
    size_t state_size; /* bytes that it remembers between calls; zero before the first call */
    /* Large problems that the policy is fast enough for; the policy weft tries it on them, too. */
    bool many_models;   /* sets of over a hundred models */
    bool many_segments; /* plans of thousands of placements */
    /* INFEASIBLE, with a message that names the model and what would make it feasible. */
    weft_err (*place)(void *state, const weft_problem *problem, weft_arena *arena, weft_diag *diag,
                      weft_plan *out);
} weft_policy;

const weft_policy *weft_policy_find(const char *name); /* by name or alias; NULL: none */
const weft_policy *weft_policy_at(size_t i);           /* NULL past the last */
/* INPUT: the options ("key=number,..."; NULL: none) are not those of the policy. A value may still
 * be out of its range, which placing reports. */
WEFT_MUST_USE weft_err weft_policy_check(const weft_policy *policy, const char *options,
                                         weft_diag *diag);

/* Runs a policy without checking its plan. Apps are resolved first: their SLOs hold for their
 * variants, and, unless the policy chooses variants itself, the best variant gets the rate.
 * `state`: the policy's state_size bytes, kept by the caller between calls; NULL: a first and only
 * call. */
WEFT_MUST_USE weft_err weft_plan_decide(const weft_policy *policy, void *state,
                                        const weft_problem *problem, weft_arena *arena,
                                        weft_diag *diag, weft_plan *out);
/* The same, and checks the plan. BUG: the plan is illegal. */
WEFT_MUST_USE weft_err weft_plan_make(const weft_policy *policy, void *state,
                                      const weft_problem *problem, weft_arena *arena,
                                      weft_diag *diag, weft_plan *out);

/* The problem as the plan sees it: the models of each family that it places are one demand. */
void weft_families_of_plan(const weft_plan *plan, const weft_problem *problem, weft_arena *arena,
                           weft_problem *out);

/* Checks a plan under the rules that it states: MIG slots, memory, shares, counts, rates,
 * latencies, and all derived fields, which are recomputed. Adds one error for each violation.
 * INPUT: there is a violation. */
WEFT_MUST_USE weft_err weft_plan_check(const weft_plan *plan, const weft_problem *problem,
                                       weft_diag *diag);

/* Writes and reads plan.json (docs/plan-json.md). The written text is owned by the caller (free).
 * Reading checks keys, kinds and ranges. */
WEFT_MUST_USE weft_err weft_plan_to_json(const weft_plan *plan, const weft_demands *demands,
                                         char **out);
WEFT_MUST_USE weft_err weft_plan_from_json(const char *text, size_t len, const char *file,
                                           weft_arena *arena, weft_diag *diag, weft_plan *out);
/* The demands that a plan file states: name, SLO and rate of each model; profiles stay empty. */
WEFT_MUST_USE weft_err weft_plan_demands_from_json(const char *text, size_t len, const char *file,
                                                   weft_arena *arena, weft_diag *diag,
                                                   weft_demands *out);

/* -- Plans of other programs ---------------------------------------------------------------- */

/* At most this far, relatively, is the plan from the best one: by price, without prices by devices.
 * HUGE_VAL: not known. */
double weft_plan_gap(const weft_plan *plan);

/* Computes the derived fields of a plan from profiles and fleet: all fields but policy, rules,
 * goal, decision_ms, and the choices of each placement (model, device, slice, batch, processes,
 * rate). */
void weft_plan_derive(weft_plan *plan, const weft_problem *problem, weft_arena *arena);

/* Whether a text is a deployment map of ParvaGPU (SC'24). */
bool weft_parvagpu_detect(const char *text, size_t len);
/* Reads such a map as a plan under the rules of the problem. A map has no rates: the rate of a
 * model is split over its instances in proportion to their capacity. */
WEFT_MUST_USE weft_err weft_plan_from_parvagpu(const char *text, size_t len, const char *file,
                                               const weft_problem *problem, weft_arena *arena,
                                               weft_diag *diag, weft_plan *out);

/* -- Reports on plans ----------------------------------------------------------------------- */

typedef struct weft_plan_metrics {
    double internal_slack;         /* part of the placed slices that is idle, 0..1 */
    double external_fragmentation; /* part of the devices in use that no slice covers, 0..1 */
    double cost_bound;             /* lower bound on dollars an hour of any plan; 0: not known */
    double gap;                    /* weft_plan_gap */
    double carbon_g_per_h;         /* 0: not known */
} weft_plan_metrics;

/* Computes the metrics of ParvaGPU (SC'24). With the weight w of a slice, its part of the device,
 * slack is 1 - sum(w * busy part of the time) / sum(w), and fragmentation is 1 - sum(w) / devices.
 */
void weft_plan_measure(const weft_plan *plan, const weft_problem *problem, weft_arena *arena,
                       weft_plan_metrics *out);

/* A placement that starts (from NULL), ends (to NULL), or changes its place, batch or processes. */
typedef struct weft_plan_move {
    const char *model;
    const weft_placement *from, *to;
} weft_plan_move;

/* The moves from one plan to another, sorted by model. Devices are matched by their placements, not
 * by number. A change of rate alone is not a move. The result lives in `arena`. */
void weft_plan_diff(const weft_plan *before, const weft_plan *after, weft_arena *arena,
                    const weft_plan_move **out, size_t *out_n);

/* Why a profile point is or is not an option, from closest to farthest. */
typedef enum weft_verdict {
    WEFT_VERDICT_CHOSEN,    /* the plan uses it */
    WEFT_VERDICT_POSSIBLE,  /* legal, and a device has room */
    WEFT_VERDICT_NO_ROOM,   /* legal, but no device has room beside this plan */
    WEFT_VERDICT_SLO,       /* too slow */
    WEFT_VERDICT_MEMORY,    /* too large */
    WEFT_VERDICT_RULES,     /* more processes than the rules or the device allow */
    WEFT_VERDICT_NO_SLICE,  /* the fleet does not allow the slice */
    WEFT_VERDICT_NO_DEVICE, /* not in the fleet */
} weft_verdict;

const char *weft_verdict_name(weft_verdict verdict); /* "chosen", "slo", ... */

/* A slice of a model's profile with its best batch. */
typedef struct weft_explain_option {
    const char *type, *slice;
    uint32_t batch, procs;
    double capacity_per_s, latency_us; /* latency: twice the execution time */
    double per_device_per_s;           /* capacity of a whole device of such slices */
    double per_dollar;                 /* requests per dollar of such a device; 0: not known */
    weft_verdict verdict;
    const char *reason; /* a sentence with the numbers compared */
} weft_explain_option;

typedef struct weft_explain_place {
    const weft_placement *at;
    double slack_rate, slack_latency; /* unused part of the capacity and of the SLO; without an
                                       * SLO slack_latency is 1 */
    /* Rule `queue`, models alone on their slices; else 0: the part of the peak that the rule keeps
     * free, and the share of late requests under Poisson arrivals at the assigned rate
     * (queue_chain.c). */
    double rule_cost, late_share;
    const char *const *with; /* models on the same slice */
    size_t n_with;
    const char *const *beside; /* models on the same device, on other slices */
    size_t n_beside;
} weft_explain_place;

/* A change of SLO or rate with which the model fits on a smaller slice, or the plan needs fewer
 * devices. */
typedef struct weft_explain_change {
    enum { WEFT_CHANGE_SLO, WEFT_CHANGE_RATE } what;
    double from, to;      /* us, or requests per second */
    const char *slice;    /* the smaller slice; NULL: the change saves devices */
    const char *type;     /* device type of the slice */
    uint32_t gpus;        /* of the plan after a change that saves devices */
    double cost_per_hour; /* likewise */
} weft_explain_change;

/* What co-location wins or costs: the plan beside one in which the models of this family are placed
 * the other way, as one if the plan has them apart, and apart if it has them as one. */
typedef struct weft_explain_family {
    const char *name;
    bool used;     /* the plan places them as one */
    bool feasible; /* there is a plan with the other way: */
    uint32_t gpus;
    double cost_per_hour;
    double busy, busy_now; /* devices' worth of work at the rates, of that plan and of this one */
} weft_explain_family;

typedef struct weft_explanation {
    const char *model; /* or the family that runs it */
    double slo_us, rate_per_s;
    const weft_explain_place *place;
    size_t n_place;
    const weft_explain_option *option;
    size_t n_option;
    const weft_explain_change *change;
    size_t n_change;
    const weft_explain_family *family; /* those that have the model */
    size_t n_family;
    /* Of the domains that the rules or the model ask for, else of nodes, if the plan has them: how
     * many have the model, the one that has most of it, and its capacity without that one. */
    weft_domain domain;
    uint32_t n_domain;
    const char *worst_domain;
    double left_per_s;
} weft_explanation;

/* Explains the placements of a model (explain_plan.c). Changes that save devices are searched with
 * at most 22 runs of `policy`; NULL: they are not searched. INPUT: the plan has no such model. */
WEFT_MUST_USE weft_err weft_plan_explain(const weft_plan *plan, const weft_problem *problem,
                                         const weft_policy *policy, const char *model,
                                         weft_arena *arena, weft_diag *diag, weft_explanation *out);

typedef struct weft_draw_options {
    bool color;                  /* terminal only: ANSI colours */
    uint32_t width;              /* terminal only: columns; 0: 100 */
    const weft_demands *demands; /* SVG only: SLOs, for what latencies leave of them; NULL: none */
} weft_draw_options;

/* Draws the devices of a plan with MIG slots or shares, coloured by model. The text is owned by the
 * caller (free). */
WEFT_MUST_USE weft_err weft_plan_draw_text(const weft_plan *plan, const weft_draw_options *options,
                                           char **out);
WEFT_MUST_USE weft_err weft_plan_draw_svg(const weft_plan *plan, const weft_draw_options *options,
                                          char **out);

/* -- Control -------------------------------------------------------------------------------- */

/* A trial of plans in virtual time, from present queues on. */
typedef struct weft_trial {
    const weft_plan *now, *next; /* next comes into force at once; NULL: now stays */
    const weft_problem *problem; /* with the rates observed */
    const uint64_t *queue;       /* waiting requests: of the demands in order, then of the apps */
    double start_s, mig_s;       /* to start a worker; to make a MIG instance, in addition */
    double seconds;              /* to simulate */
} weft_trial;

typedef struct weft_trial_result {
    uint64_t requests, good; /* good: answered within the SLO */
    double seconds;          /* simulated: fewer than asked for at high rates */
} weft_trial_result;

typedef weft_err (*weft_try_plan)(const weft_trial *trial, weft_arena *arena, weft_diag *diag,
                                  weft_trial_result *out);

/* When a policy is asked for a plan, with what rates, and which of its plans come into force.
 * Zero-initialised: the policy is asked every period_s with the rates of the last period, and all
 * its plans come into force. */
typedef struct weft_control_options {
    const weft_policy *policy;
    double period_s; /* between two calls of the policy at most; 0: only other causes call it */
    double headroom; /* the policy is given the rates observed times this; 0: 1 */
    /* Rates: windows from up_s on, each twice as long as the one before, are searched for a rise;
     * rates fall to the mean of the last down_s. up_s 0: the rates since the last call. */
    double up_s, down_s;
    double sigma; /* standard deviations of a Poisson count that a change of rate exceeds */
    /* Causes of a call before the period is over; 0: none. */
    double rate_change;   /* relative change of a rate since the last call */
    double miss_share;    /* part of the requests that miss their SLO, since the last call */
    double carbon_change; /* relative change of the carbon intensity since the last call */
    double hold_s;        /* least time from a change to one that is made only to save */
    /* A plan that is not needed comes into force if it saves its moves within payback_s; 0: always.
     * A move costs the slice that it starts for move_s, on a new MIG instance for mig_s more. */
    double payback_s, move_s, mig_s;
    bool as_much;           /* no plan carries every rate: asks for one with the goal goodput */
    weft_try_plan try_plan; /* compares both plans before one comes into force; NULL: no trial */
    double try_s;           /* length of a trial, beside five times the change */
    double poll_s;          /* between observations; for those who make them */
    double carbon_s;        /* between two readings of the carbon intensity; likewise */
} weft_control_options;

/* Defaults for a live server; `policy` and `try_plan` stay as they are. */
void weft_control_live(weft_control_options *options);
/* Reads "live,KEY=VALUE,..." (docs/serving.md) over what is there. INPUT names the key. */
WEFT_MUST_USE weft_err weft_control_parse(const char *text, weft_diag *diag,
                                          weft_control_options *options);

/* What was counted of a model or app since some start: all counts only grow, but for `queue`. */
typedef struct weft_control_count {
    const char *name;
    uint64_t arrivals; /* offered: also those that were refused or dropped */
    uint64_t answered; /* late answers included */
    uint64_t missed;   /* late, refused or dropped */
    uint64_t queue;    /* waiting now */
} weft_control_count;

typedef struct weft_observation {
    int64_t now_ns; /* of any clock that does not go back */
    const weft_control_count *at;
    size_t n;
    double carbon_g_per_kwh; /* 0: not known */
    bool changing;           /* the last change is not over */
    bool asked;              /* somebody asks for a call of the policy now */
} weft_observation;

typedef enum weft_control_action {
    WEFT_CONTROL_WAIT,   /* the policy was not asked */
    WEFT_CONTROL_KEEP,   /* its plan is not worth its moves */
    WEFT_CONTROL_NONE,   /* it found no plan */
    WEFT_CONTROL_CHANGE, /* its plan is in force from now on */
} weft_control_action;

typedef struct weft_decision {
    weft_control_action action;
    const weft_plan *plan;       /* in force now; valid until the next change but one */
    const weft_demands *demands; /* CHANGE: with the rates that the plan was made for */
    const char *text;            /* the reason, with figures; valid until the next observation */
} weft_decision;

/* Decides when the plan in force changes. A pure function of its options and of the observations
 * so far: no clock, no I/O. Single-thread. */
typedef struct weft_controller weft_controller;

/* `options`, `problem` and `start`, the plan in force, are borrowed. The rates of the problem are
 * those that `start` was made for. NOMEM. */
WEFT_MUST_USE weft_err weft_controller_create(const weft_control_options *options,
                                              const weft_problem *problem, const weft_plan *start,
                                              weft_controller **out);
/* Errors are those of the policy, but for INFEASIBLE, which is a decision. */
WEFT_MUST_USE weft_err weft_controller_observe(weft_controller *c, const weft_observation *o,
                                               weft_diag *diag, weft_decision *out);
/* Whether the problem has a model or an app of this name; observations of others are left out. */
bool weft_controller_knows(const weft_controller *c, const char *name);
/* The last change failed: the plan before it is in force. */
void weft_controller_undo(weft_controller *c);
/* Another plan is in force, which the controller did not make. Borrowed. */
void weft_controller_replace(weft_controller *c, const weft_plan *plan);
void weft_controller_destroy(weft_controller *c);

/* A trial by simulation (simulate/). */
WEFT_MUST_USE weft_err weft_sim_try(const weft_trial *trial, weft_arena *arena, weft_diag *diag,
                                    weft_trial_result *out);

/* -- Dispatch (dispatch/) ----------------------------------------------------------------------
 * What a router decides: that of the server, and that of the simulation. Times are of any clock. */

/* When the batch of a request has to end for its answer to come `slo_us` after `arrived_ns`, if a
 * request costs `host_us` besides queue and batch; not before it arrived. slo_us 0, or over any
 * time: of models without an SLO, as if theirs were a second, so that they have a place among
 * others. */
uint64_t weft_line_due_ns(uint64_t arrived_ns, double slo_us, double host_us);

/* A request that waits. */
typedef struct weft_waiting {
    uint64_t due_ns; /* its answer is late if its batch ends after this time */
    int64_t rows;
    bool promised; /* late, it is worth nothing */
    bool kept;     /* it is never dropped */
} weft_waiting;

/* Time of a batch: mean and mean deviation. Mean 0: not known. */
typedef struct weft_batch_time {
    double mean_ns, dev_ns;
} weft_batch_time;

/* One more batch took so long; the mean is known. */
void weft_line_learn(weft_batch_time *time, double took_ns);

/* The queue of a model, in the order in which requests are due, and its batches. */
typedef struct weft_line {
    const void *of;
    /* The request behind `at` (NULL: the first one); NULL: there is none, `out` stays. */
    const void *(*next)(const void *of, const void *at, weft_waiting *out);
    weft_batch_time (*time)(const void *of, int64_t rows); /* of a batch of so many rows */
    int64_t (*size)(const void *of, uint32_t i); /* rows of a size of batches, ascending */
    uint32_t n_size;
    int64_t most_rows; /* of a batch */
} weft_line;

/* The first request of a model, and the workers' time that the model has had. */
typedef struct weft_line_turn {
    uint64_t due_ns;
    double virtual_ns;
} weft_line_turn;

/* Whether the queue of one model goes before that of another on a worker that is idle. */
bool weft_line_goes_first(const weft_line_turn *a, const weft_line_turn *b, uint64_t now_ns);
/* Virtual time that a model is charged for a batch. */
double weft_line_charge(const weft_line *line, int64_t rows);

/* The workers that serve a model. */
typedef struct weft_crew {
    uint32_t n;
    double soonest_ns; /* until one of them is idle */
    bool any_idle;
} weft_crew;

/* When a request would run, counted from now. */
typedef struct weft_forecast {
    bool known;   /* the times of batches are */
    bool at_once; /* it finds an idle worker and no queue */
    double start_ns, finish_ns;
} weft_forecast;

/* `other`: queues of other models that the same workers serve. */
weft_forecast weft_line_forecast(const weft_line *line, const weft_line *other, uint32_t n_other,
                                 const weft_waiting *request, const weft_crew *crew,
                                 uint64_t now_ns);
/* By how much the request would be late; 0: it is in time, or nothing is known. */
double weft_forecast_late_ns(const weft_forecast *forecast, uint64_t due_ns, uint64_t now_ns);

/* What to do with a queue, which is not empty, before a batch of at most `most` rows is taken. */
typedef struct weft_line_choice {
    uint32_t drop; /* requests at its head that would be late */
    int64_t most;  /* rows of the batch, then */
} weft_line_choice;

weft_line_choice weft_line_choose(const weft_line *line, int64_t most, uint64_t now_ns);

/* A variant of an app, now. */
typedef struct weft_pick_variant {
    double accuracy, wait_us, finish_us; /* as forecast */
    double cost;                         /* of an answer; 0: not known */
    bool ready;                          /* some worker serves it, and can take the request */
} weft_pick_variant;

/* The mean accuracy of an app's answers. */
typedef struct weft_pick_mean {
    double least;  /* asked for; 0: any */
    double most;   /* of the most accurate variant */
    double credit; /* what answers above it have earned and those below it cost; begins with 0 */
} weft_pick_mean;

/* What a request to an app needs; 0: any. */
typedef struct weft_pick_query {
    double min_accuracy, latency_us, max_cost; /* of its answer */
    weft_pick_mean mean;                       /* of the app's answers */
    bool best_effort;                          /* the nearest variant will do */
} weft_pick_query;

typedef enum weft_pick_reason {
    WEFT_PICK_ACTIVE,  /* it satisfies the request */
    WEFT_PICK_LATE,    /* no variant that is accurate and cheap enough is in time */
    WEFT_PICK_NEAREST, /* none is accurate and cheap enough */
    WEFT_PICK_NONE     /* the same, and the request takes no other; `variant`: the nearest one */
} weft_pick_reason;

typedef struct weft_pick {
    uint32_t variant; /* UINT32_MAX: none is ready */
    weft_pick_reason reason;
} weft_pick;

weft_pick weft_pick_choose(const weft_pick_variant *variant, uint32_t n,
                           const weft_pick_query *query);
/* A variant is chosen, and later its request ends, with an answer or without. */
void weft_pick_begin(weft_pick_mean *mean, double accuracy);
void weft_pick_end(weft_pick_mean *mean, double accuracy, bool answered);
const char *weft_pick_reason_name(weft_pick_reason reason);

/* Requests of a version of a model, and those of them that failed, were refused or came late. */
typedef struct weft_canary_counts {
    uint64_t requests, bad;
} weft_canary_counts;

/* How many requests a new version has had at look `look`, from 0 on. */
uint64_t weft_canary_look_at(uint32_t look);
/* Whether a new version does worse than the others beside it; over all looks chance alone says so
 * with a probability of at most 0.05. */
bool weft_canary_is_worse(const weft_canary_counts *canary, const weft_canary_counts *others,
                          uint32_t look);

/* -- Simulation ----------------------------------------------------------------------------- */

/* What a request names: a model or an app. */
typedef struct weft_service {
    const char *name;
    double rate_per_s;
} weft_service;

typedef struct weft_arrival {
    int64_t time_ns;
    uint32_t service; /* index among the services given */
} weft_arrival;

/* A stream of requests in the order of time: generated (arrivals.c) or read (trace_csv.c).
 * Single-thread. */
typedef struct weft_arrivals weft_arrivals;

typedef struct weft_arrivals_options {
    weft_arrival_kind kind;
    double duration_s; /* all arrivals are before this time */
    uint64_t seed;
    double burst_factor; /* rate in a burst over the rate between bursts; 0: 5 */
    double burst_share;  /* part of the time that is burst; 0: 0.1 */
    double burst_s;      /* mean length of a burst; 0: 1 */
} weft_arrivals_options;

/* Generates requests. The arrivals of a service do not depend on the other services. Lives in
 * `arena`. */
WEFT_MUST_USE weft_err weft_arrivals_generate(const weft_arrivals_options *options,
                                              const weft_service *service, size_t n,
                                              weft_arena *arena, weft_diag *diag,
                                              weft_arrivals **out);
/* Opens a trace (docs/simulate.md), which is streamed; "-": standard input. Where a trace has only
 * counts, `seed` decides the times. */
WEFT_MUST_USE weft_err weft_trace_open(const char *path, const weft_service *service, size_t n,
                                       uint64_t seed, weft_arena *arena, weft_diag *diag,
                                       weft_arrivals **out);
/* The same from memory; the text must outlive the stream. */
WEFT_MUST_USE weft_err weft_trace_open_text(const char *text, size_t len, const char *file,
                                            const weft_service *service, size_t n, uint64_t seed,
                                            weft_arena *arena, weft_diag *diag,
                                            weft_arrivals **out);
/* The same requests, `factor` (above 0) times as fast. Takes the stream over. Lives in `arena`. */
void weft_arrivals_speed(weft_arrivals *arrivals, double factor, weft_arena *arena,
                         weft_arrivals **out);
/* The largest ratio of peak to mean rate of any model in a trace, at least 1, and the model (NULL:
 * none is above 1): that of bursty arrivals for which the rule `queue` serves this part of the
 * requests in time. */
WEFT_MUST_USE weft_err weft_trace_burst(const char *path, const struct weft_problem *problem,
                                        double quantile, weft_arena *arena, weft_diag *diag,
                                        const char **out_model, double *out_ratio);
/* *more is false at the end; `out` is then left as it is. */
WEFT_MUST_USE weft_err weft_arrivals_next(weft_arrivals *arrivals, weft_arrival *out, bool *more);
void weft_arrivals_close(weft_arrivals *arrivals);

/* Carbon intensity of a grid: value i holds from i * period_s on, the last one without end. */
typedef struct weft_carbon {
    const double *g_per_kwh;
    size_t n;
    double period_s;
} weft_carbon;

/* Reads a CSV of hourly intensity: one column under a header, or the first of several columns with
 * "carbon_intensity" in its name. A missing value repeats the one before it. */
WEFT_MUST_USE weft_err weft_carbon_load(const char *path, weft_arena *arena, weft_diag *diag,
                                        weft_carbon *out);

typedef enum weft_sim_router {
    WEFT_SIM_PULL, /* one queue a model; an idle worker takes the batch that has waited longest, as
                      in the server */
    WEFT_SIM_SHARES, /* one queue a replica, filled in proportion to the plan's rates */
    WEFT_SIM_LEAST   /* one queue a replica; the least loaded one gets the next request */
} weft_sim_router;

/* Which requests are refused when they would be answered too late, as by the server. */
typedef enum weft_sim_admission {
    WEFT_SIM_ADMIT_MODEL, /* those of demands that ask for it */
    WEFT_SIM_ADMIT_SLO,   /* those of all models with an SLO */
    WEFT_SIM_ADMIT_ALL    /* none */
} weft_sim_admission;

typedef enum weft_sim_close {
    WEFT_SIM_CLOSE_DEFAULT, /* pull: idle; shares and least: fill */
    WEFT_SIM_CLOSE_IDLE,    /* a batch leaves as soon as a worker is idle */
    WEFT_SIM_CLOSE_FILL     /* a batch leaves when it is full, or at its flush time (slo.c) */
} weft_sim_close;

/* Power of a whole device of a type, W. */
typedef struct weft_sim_power {
    const char *type;
    double idle_w, busy_w;
} weft_sim_power;

/* A plan that comes into force at at_s. */
typedef struct weft_sim_later {
    double at_s;
    const weft_plan *plan;
} weft_sim_later;

typedef struct weft_sim_options {
    const weft_plan *plan;
    /* Demands (without a profile, execution times follow from the plan), fleet (NULL: prices follow
     * from the plan), apps, carbon intensity, parameters of the policy. */
    const weft_problem *problem;
    const weft_sim_later *later; /* later plans, in the order of time */
    size_t n_later;
    const weft_policy *policy; /* called over time with the rates observed; NULL: never */
    double period_s;
    double headroom; /* the policy is given the rates observed times this; 0: 1 */
    /* How it is called; `policy`, and period_s and headroom if they are not 0, are those above. */
    weft_control_options control;
    weft_sim_router router;
    weft_sim_close close;
    weft_sim_admission admission; /* with WEFT_SIM_PULL */
    double duration_s;            /* end of the run; 0: when the last request is answered */
    double warmup_s; /* requests that arrive before this time are served, but not counted */
    double bucket_s; /* length of a time bucket of the report; 0: no buckets */
    double queue_delay_us;
    double timeout_s;   /* 0: 30 */
    uint32_t queue_max; /* requests waiting in one queue; 0: 4096 */
    double start_s;     /* to start a worker on a slice that exists */
    double mig_s;       /* to make a new MIG instance, in addition */
    const weft_sim_power *power;
    size_t n_power;
    const weft_carbon *carbon;
    double pue; /* 0: 1 */
    /* Called now and then with the virtual time; NULL: not. */
    void (*progress)(double now_s, double duration_s);
    /* Called for each answered request, if not NULL; for tests. */
    void (*on_answer)(void *user, uint32_t replica, uint32_t service, int64_t arrived_ns,
                      int64_t started_ns, int64_t answered_ns);
    void *user;
} weft_sim_options;

typedef struct weft_sim_counts {
    uint64_t requests, answered, good, late, dropped;
} weft_sim_counts;

typedef struct weft_sim_service {
    const char *name;
    bool app;
    double slo_us;
    weft_sim_counts count;
    uint64_t in_flight; /* neither answered nor dropped at the end */
    uint64_t batches, padded_rows;
    double mean_us, p50_us, p95_us, p99_us, max_us; /* of answered requests */
    double mean_wait_us;
    double accuracy; /* of an app: mean over its answers; of a model: 0 */
} weft_sim_service;

typedef struct weft_sim_slice {
    uint32_t device;
    const char *type, *slice;
    uint32_t slice_id;
    int32_t mig_start;
    const char *models;  /* joined by '+' */
    double from_s, to_s; /* the time in which it served */
    double busy;         /* busy part of the time of its processes, 0..1 */
    uint64_t batches, requests;
} weft_sim_slice;

typedef struct weft_sim_device {
    uint32_t device;
    const char *type;
    double used_s; /* time with slices that serve or are being started */
    double busy;   /* busy part of that time; slices are weighted by their shares */
} weft_sim_device;

typedef struct weft_sim_bucket {
    double start_s, length_s;
    const weft_sim_counts *count; /* by service */
    const double *p99_us;         /* by service */
    double busy; /* busy part of the time of the slices, weighted by their shares */
    uint32_t gpus;
    double energy_j, carbon_g, carbon_g_per_kwh;
} weft_sim_bucket;

typedef struct weft_sim_change {
    double at_s;
    const char *policy;
    uint32_t started, stopped, kept; /* slices */
    uint32_t gpus;
    double ready_s;  /* when the last of the new slices serves */
    bool refused;    /* the policy found no plan; the old one stays in force */
    const char *why; /* the controller's reason; "": it gives none */
} weft_sim_change;

typedef struct weft_sim_report {
    double simulated_s; /* counted time: from the end of the warm-up on */
    uint64_t events;
    weft_sim_service total; /* name NULL */
    const weft_sim_service *service;
    size_t n_service;
    const weft_sim_slice *slice;
    size_t n_slice;
    const weft_sim_device *device;
    size_t n_device;
    const weft_sim_bucket *bucket;
    size_t n_bucket;
    const weft_sim_change *change;
    size_t n_change;
    double busy;     /* busy part of the time of the slices, weighted by their shares */
    double device_s; /* device seconds in use */
    double cost;     /* dollars */
    bool has_energy; /* the power of every device in use is known */
    bool has_carbon;
    double energy_j, carbon_g;
} weft_sim_report;

/* What requests can name under a problem: its models by name, then its apps by name. */
void weft_sim_services(const weft_problem *problem, weft_arena *arena, const weft_service **out,
                       size_t *out_n);
/* Serves `arrivals` (for the services of weft_sim_services) by the plan in virtual time. */
WEFT_MUST_USE weft_err weft_simulate(const weft_sim_options *options, weft_arrivals *arrivals,
                                     weft_arena *arena, weft_diag *diag, weft_sim_report *out);
/* The report as JSON (docs/simulate.md), and its time buckets as CSV. Owned by the caller
 * (free). */
WEFT_MUST_USE weft_err weft_sim_to_json(const weft_sim_report *report, char **out);
WEFT_MUST_USE weft_err weft_sim_to_csv(const weft_sim_report *report, char **out);

#include "scheduler/course.h"
#include "scheduler/export.h"

#endif
