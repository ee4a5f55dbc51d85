/* What a server serves: bundles with versions and weights, and the plan. Changes to it come one
 * after the other, whoever asks for them (deployment.c); what is in force is kept in a folder
 * (state_file.c); clients may name bundles of one folder (repository.c).
 *
 * On the loop's thread, but for the functions that say so. */
#ifndef WEFT_RUNTIME_SERVER_DEPLOYMENT_INT_H
#define WEFT_RUNTIME_SERVER_DEPLOYMENT_INT_H

#include "base/hash.h"
#include "scheduler/scheduler.h"
#include "runtime/server/serve_int.h"

/* -- The state (state_file.c) --------------------------------------------------------------- */

typedef struct weft_state_adapter {
    const char *base, *name;
    const char *path; /* NULL: removed, though the bundle has it */
    weft_hash128 identity;
} weft_state_adapter;

typedef struct weft_state {
    const weft_serve_bundle *bundle;
    uint32_t n_bundle;
    const weft_state_adapter *adapter;
    uint32_t n_adapter;
    const char *plan; /* JSON; NULL: that of the start */
} weft_state;

/* Makes the folder if it is missing, and keeps other servers out as long as *out_lock is open. */
WEFT_MUST_USE weft_err weft_state__open(const char *folder, weft_diag *diag, int *out_lock);
/* *out_found: the folder has a state. INPUT: it is no state, which is never overwritten. */
WEFT_MUST_USE weft_err weft_state__read(const char *folder, weft_arena *arena, weft_diag *diag,
                                        weft_state *out, bool *out_found);
/* The text of a state: what is served when the change that is under way is over. NULL: no memory.
 */
char *weft_state__describe(const weft_router *router, const char *plan);
/* Writes the next state beside the one in force, to the disk; any thread. 0 or errno. */
int weft_state__prepare(const char *folder, const char *text);
/* Puts the next state in force; any thread. 0 or errno. */
int weft_state__commit(const char *folder);
void weft_state__discard(const char *folder);

/* -- Restoring (state_restore.c) -------------------------------------------------------------- */

/* A bundle of the state that is not served; or an adapter: version is its name then. */
typedef struct weft_missing_bundle {
    const char *path, *version, *why;
} weft_missing_bundle;

typedef struct weft_restored {
    weft_arena *arena; /* what the options refer to afterwards */
    int lock;          /* of the state's folder; -1: none */
    weft_missing_bundle *missing;
    uint32_t n_missing;
    const weft_state_adapter *adapter;
    uint32_t n_adapter;
    char *plan; /* owned by the caller (free); NULL: none */
} weft_restored;

/* Sets the bundles and slices of the options to those of the state, if their folder has one. */
WEFT_MUST_USE weft_err weft_state__restore(weft_serve_options *options, weft_restored *out,
                                           weft_diag *diag);
/* Has the router serve the adapters of the state. */
WEFT_MUST_USE weft_err weft_state__restore_adapters(weft_restored *restored,
                                                    const weft_router *router);

/* -- Plans that come into force in steps (change_steps.c) ------------------------------------- */

typedef struct weft_staged weft_staged;

WEFT_MUST_USE weft_err weft_staged__create(const weft_serve_control *control, weft_router *router,
                                           weft_loop *loop, weft_offload *offload,
                                           weft_staged **out);
/* Nothing begins any more; NULL is allowed. */
void weft_staged__stop(weft_staged *steps);
/* After the offload has ended; NULL is allowed. */
void weft_staged__destroy(weft_staged *steps);
/* Begins the change to a plan, whose arena it takes on success. */
WEFT_MUST_USE weft_err weft_staged__begin(weft_staged *steps, const weft_plan *plan,
                                          weft_arena *arena, weft_diag *diag);
/* A step is over, or has failed. */
void weft_staged__go_on(weft_staged *steps);
/* The change is over. Returns the plan of what runs, if the way back has failed, too; owned by the
 * caller. NULL: it has not. */
char *weft_staged__end(weft_staged *steps);

/* -- Operations (deployment.c) -------------------------------------------------------------- */

typedef struct weft_deployment weft_deployment;

/* Who waits for the end of an operation; embedded in it. */
typedef struct weft_operation_wait {
    /* Called once, not inside of the call that began the operation. `error`: NULL: it is done. */
    void (*done)(struct weft_operation_wait *wait, weft_answer answer, const char *error);
    struct weft_operation *operation; /* NULL: none */
} weft_operation_wait;

/* Reads the state, if there is a folder for it: *out_options are then those of `options` with the
 * bundles and slices of the state. They refer to the deployment. */
WEFT_MUST_USE weft_err weft_deployment__open(const weft_serve_options *options, weft_diag *diag,
                                             weft_serve_options *out_options,
                                             weft_deployment **out);
/* From now on it changes what the router serves. */
WEFT_MUST_USE weft_err weft_deployment__start(weft_deployment *deployment, weft_router *router,
                                              weft_loop *loop, weft_diag *diag);
/* Tells everybody who waits that the server is shutting down. */
void weft_deployment__drain(weft_deployment *deployment);
/* Ends all operations; before the router's changes are ended. */
void weft_deployment__stop(weft_deployment *deployment);
void weft_deployment__close(weft_deployment *deployment); /* NULL is allowed */

/* Serves a bundle as well, in place of those that have its models under the same version; `alone`:
 * under any version. Returns its number; 0: too many operations wait, or no memory; nobody is told
 * then. `wait` may be NULL. */
uint64_t weft_deployment__load(weft_deployment *deployment, const weft_serve_bundle *as, bool alone,
                               weft_operation_wait *wait);
/* The same for the versions of a model that the repository's source makes, in place of all others.
 * `config`: see weft_serve_source. */
uint64_t weft_deployment__make(weft_deployment *deployment, const char *model, const char *config,
                               weft_operation_wait *wait);
/* Whether the repository has models that are compiled, and no bundles. */
bool weft_deployment__has_source(const weft_deployment *deployment);
/* See weft_router__unload. */
uint64_t weft_deployment__unload(weft_deployment *deployment, const char *path, const char *model,
                                 const char *version, weft_operation_wait *wait);
/* Sets the weight of a version. */
uint64_t weft_deployment__weigh(weft_deployment *deployment, const char *model, const char *version,
                                double weight, weft_operation_wait *wait);
/* Serves an adapter of PEFT by the name MODEL@ADAPTER, in place of the one that has the name: that
 * of requests which come from then on. `root`, `folder`: see weft_peft_read; `folder` NULL: no
 * longer serves it. 0: also if adapters cannot be loaded. */
uint64_t weft_deployment__adapt(weft_deployment *deployment, const char *model, const char *adapter,
                                const char *root, const char *folder, weft_operation_wait *wait);
/* The folder that clients may load adapters from; NULL: they may not. */
const char *weft_deployment__adapters(const weft_deployment *deployment);
/* The wait is not called any more; the operation goes on. */
void weft_deployment__forget(weft_operation_wait *wait);

/* Brings a plan (JSON) into force; see weft_router__change. */
WEFT_MUST_USE weft_err weft_deployment__apply(weft_deployment *deployment, const char *plan,
                                              weft_diag *diag, uint64_t *out_generation);
/* The plan that is in force or comes into force; NULL: that of the start. */
const char *weft_deployment__plan(const weft_deployment *deployment);

/* The operation that ended last. */
typedef struct weft_operation_status {
    uint64_t last; /* its number; 0: none */
    bool ok;
    const char *error;
    uint32_t n_waiting;      /* that have not ended */
    const char *state_error; /* why the state could not be saved last; "": it was */
} weft_operation_status;
weft_operation_status weft_deployment__status(const weft_deployment *deployment);

const weft_missing_bundle *weft_deployment__missing(const weft_deployment *deployment,
                                                    uint32_t *out_n);

/* -- New versions beside others (rollout.c) -- */

typedef struct weft_rollout weft_rollout;

WEFT_MUST_USE weft_err weft_rollout__start(weft_router *router, weft_deployment *deployment,
                                           weft_loop *loop, weft_rollout **out);
void weft_rollout__stop(weft_rollout *rollout); /* before the deployment; NULL is allowed */

/* -- A repository that is looked at again (poll.c) -------------------------------------------- */

typedef struct weft_poll weft_poll;

/* Loads models that are new or have changed, and unloads those that are gone. *out is NULL where
 * the options ask for none. */
WEFT_MUST_USE weft_err weft_poll__start(const weft_serve_options *options,
                                        weft_deployment *deployment, weft_loop *loop,
                                        weft_poll **out);
void weft_poll__stop(weft_poll *poll); /* before the deployment; NULL is allowed */

/* -- The folder of bundles (repository.c) --------------------------------------------------- */

/* A file that has a version of a model: FOLDER/MODEL.weft (version 1) or FOLDER/MODEL/VERSION.weft.
 */
typedef struct weft_repository_file {
    char path[4096];
    char version[WEFT_VERSION_MAX];
    bool is_versioned; /* the file's name, or who asked for it, says the version */
} weft_repository_file;

/* `version` NULL: the latest. false: there is none, or the name can be no model's. */
bool weft_repository__find(const char *folder, const char *model, const char *version,
                           weft_repository_file *out);
/* Goes through all of them, some thousands in a folder at most; also through FOLDER/MODEL/VERSION/,
 * the versions of models that are compiled. */
typedef struct weft_repository_scan weft_repository_scan;
weft_repository_scan *weft_repository__open_scan(const char *folder); /* NULL: out of memory */
void weft_repository__close_scan(weft_repository_scan *scan);         /* NULL is allowed */
/* Looks at the next file or folder. false: that was all. *out_model NULL: it is no version of a
 * model. Both names hold until the next call. */
bool weft_repository__scan(weft_repository_scan *scan, const char **out_model,
                           const char **out_version);

/* What a client says beside the name of the model, and may. Zeroed: nothing, and all. */
typedef struct weft_repository_request {
    const char *patterns; /* see weft_access__models */
    const char *version;  /* NULL: load the latest, in place of all others; unload all */
    const char *path;     /* of an adapter, below the folder of all; NULL: BASE/ADAPTER */
    const char *config;   /* see weft_serve_source */
    bool has_weight;
    double weight;
} weft_repository_request;

typedef struct weft_repository_refusal {
    weft_answer answer;
    char text[WEFT_REQUEST_MESSAGE_MAX];
} weft_repository_refusal;

/* Whether a client may load and unload the model, or the adapter of a model: `patterns` are those
 * of weft_access__models. */
bool weft_repository__may_change(const char *patterns, const char *model);
/* Begin an operation; the model is that of a client, or BASE@ADAPTER. `folder` NULL: loading is
 * off. false: refused, nobody is told. */
bool weft_repository__load(weft_deployment *deployment, const char *folder, const char *model,
                           const weft_repository_request *request, weft_operation_wait *wait,
                           weft_repository_refusal *out);
bool weft_repository__unload(weft_deployment *deployment, const char *folder, const char *model,
                             const weft_repository_request *request, weft_operation_wait *wait,
                             weft_repository_refusal *out);

#endif
