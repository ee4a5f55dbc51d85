/* What the files of `weft plan` share: options, inputs, what-if changes, reports. */
#ifndef WEFT_TOOLS_PLAN_H
#define WEFT_TOOLS_PLAN_H

#include "scheduler/scheduler.h"
#include "tools/profile/pipeline.h"
#include "tools/profile/profiles.h"
#include "tools/common/prices.h"
#include "tools/common/tools.h"

enum { WEFT_PLAN_CHANGES_MAX = 64 };

/* --rate NAME=X, --slo NAME=X, --gpu NAME=X; `text` is the argument. */
typedef struct weft_plan_change {
    enum { WEFT_WHATIF_RATE, WEFT_WHATIF_SLO, WEFT_WHATIF_GPU } what;
    const char *text;
} weft_plan_change;

/* --interference */
typedef struct weft_tool_interference {
    bool given;
    weft_interference coeff;
} weft_tool_interference;

typedef struct weft_plan_options {
    const char *set, *fleet, *bundle, *policy, *check, *layout, *output, *explain, *draw, *previous;
    const char *trace, *prices;
    bool compare, json;
    weft_tool_interference interference; /* given: instead of that of `rules` */
    weft_rules rules;
    weft_goal goal;
    double carbon_g_per_kwh;
    uint64_t effort, seed;
    const char *policy_options;
    weft_plan_change change[WEFT_PLAN_CHANGES_MAX];
    size_t n_change;
    weft_tool_pipeline pipeline;
    const char *calibration; /* file, or NULL */
    weft_tool_profile_options profile;
} weft_plan_options;

/* The inputs of a plan. `problem` points into the same struct. */
typedef struct weft_plan_inputs {
    weft_set set;
    weft_tool_prices prices;
    weft_fleet fleet;
    weft_demands demands;
    weft_plan previous;
    weft_problem problem;
} weft_plan_inputs;

/* weft-planner control, which `weft serve` starts: no row of verbs.def. */
extern const weft_verb weft_tool_control;

/* plan_inputs.c */
/* Refuses the name of a policy that is none, and says which may be meant. */
int weft_tool_no_policy(const weft_verb *verb, const char *name);
/* Value of --interference: `at` is a weft_tool_interference. */
int weft_tool_take_interference(void *at, const weft_verb *verb, char *arg);
/* A fleet whose rows have the bandwidths of the estimator's tables, and these prices where the
 * fleet's file says none. */
WEFT_MUST_USE weft_err weft_tool_fleet_load(const char *path, const weft_tool_prices *prices,
                                            weft_arena *arena, weft_diag *diag, weft_fleet *out);
WEFT_MUST_USE weft_err weft_tool_plan_inputs(weft_plan_options *o, weft_arena *arena,
                                             weft_diag *diag, weft_plan_inputs *out);
/* The same inputs with the what-if changes of the options. INPUT: a change names nothing. */
WEFT_MUST_USE weft_err weft_tool_plan_changed(const weft_plan_options *o,
                                              const weft_plan_inputs *in, weft_arena *arena,
                                              weft_diag *diag, weft_plan_inputs *out);
/* Turns the profiles into those that this interference takes. */
void weft_tool_plan_beside(weft_plan_inputs *in, const weft_interference *coeff, weft_arena *arena);
/* Reads a plan.json or a deployment map of ParvaGPU; `layout` NULL: recognised by the header. */
WEFT_MUST_USE weft_err weft_tool_plan_read(const char *path, const char *layout,
                                           const weft_problem *problem, weft_arena *arena,
                                           weft_diag *diag, weft_plan *out);
/* Runs a policy, measures its time, and checks its plan. */
WEFT_MUST_USE weft_err weft_tool_plan_decide(const weft_policy *policy, const weft_problem *problem,
                                             weft_arena *arena, weft_diag *diag, weft_plan *out);

/* plan_report.c: text or JSON on standard output, as `json` says. */
void weft_tool_plan_print(const weft_plan *plan, const weft_problem *problem, weft_arena *arena);
/* Its first lines: devices, cost, bound, slack. */
void weft_tool_plan_print_head(const weft_plan *plan, const weft_problem *problem,
                               weft_arena *arena);
void weft_tool_plan_print_moves(const weft_plan *before, const weft_plan *after,
                                const weft_fleet *fleet, weft_arena *arena);
/* Plans before and after a what-if question; `before` NULL: there is none because of `why_not`. */
void weft_tool_plan_print_whatif(const weft_plan_options *o, const weft_plan *before,
                                 const char *why_not, const weft_plan *after,
                                 const weft_problem *problem, weft_arena *arena);
/* Verdict of the checker; the violations are the errors in `diag`. */
void weft_tool_plan_print_check(const weft_plan *plan, const weft_diag *diag, bool legal);
void weft_tool_plan_print_explanation(const weft_explanation *e, bool json);
/* Runs every policy on the same demands. INFEASIBLE: none finds a plan. */
WEFT_MUST_USE weft_err weft_tool_plan_compare(const weft_plan_options *o,
                                              const weft_plan_inputs *in, weft_arena *arena,
                                              weft_diag *diag);

#endif
