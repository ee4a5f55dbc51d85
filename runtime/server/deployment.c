/* Changes to what is served, one after the other.
 *
 *   load:   waits -> is opened beside the loop, after it was compiled if it is a model of a
 *           repository -> begins -> its state is saved beside the loop
 *           -> comes into force -> the saved state does, too -> is over
 *   unload, weigh, plan: the same without opening; a plan is refused while another change goes on,
 *           and comes into force in steps where slices cannot all be made at once (change_steps.c)
 *   adapters: are read beside the loop; in force when their state is on the disk, without a change
 *           of the router
 *
 * The router does the change (router_change.c), and undoes it if it fails; it is held until the
 * state after it is on the disk. Of a server that is killed at any moment the next one finds the
 * state before or after a change, and nobody was told of a change that it does not find. */
#include "runtime/server/deployment_int.h"
#include "runtime/server/live_int.h"

#include "base/file.h"

#include "scheduler/scheduler.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPERATIONS_MAX = 64, ERROR_BYTES = 512, NOT_RUN = -1 };

typedef enum operation_kind {
    OPERATION_LOAD,
    OPERATION_UNLOAD,
    OPERATION_WEIGH,
    OPERATION_ADAPT,  /* loads an adapter */
    OPERATION_DISMISS /* unloads one */
} operation_kind;

typedef struct weft_operation {
    operation_kind kind;
    uint64_t number;
    weft_deployment *deployment;
    weft_operation_wait *wait; /* NULL: nobody waits */
    /* Owned; NULL: not given. */
    char *path, *folder, *model, *version, *adapter, *config;
    double weight;
    bool has_weight, alone;
    bool is_made; /* by the repository's source */
    weft_job job; /* opens the bundle */
    struct router_bundle *bundle;
    weft_live_adapter *live; /* to come; with a reference */
    uint32_t base;           /* held while the adapter is read: whose sites it has */
    weft_diag *diag;
    weft_err err;
    bool opened;
    struct weft_operation *next;
} operation;

/* A state that is being written, or put into force. */
typedef struct save_job {
    weft_job job;
    weft_deployment *deployment;
    char *text;           /* owned; NULL: put into force what is written */
    bool of_change;       /* a change of the router waits for it */
    operation *operation; /* ends with it; NULL: none */
    int code;             /* errno; 0: done */
} save_job;

struct weft_deployment {
    weft_serve_options options;
    weft_router *router;
    weft_loop *loop;
    weft_offload *offload;  /* opens bundles, saves states; NULL: not started */
    weft_timer soon;        /* lets the next operation begin */
    weft_restored restored; /* from the state */

    operation *first, *last; /* wait */
    operation *current;
    bool changes; /* the current one changes the router */
    uint32_t n_operation;
    uint64_t next_number;
    save_job save;
    bool saves;    /* `save` is under way */
    bool prepared; /* a state is written that is not in force */
    bool stopped;

    weft_staged *steps;       /* NULL: plans come into force at once */
    char *plan, *plan_before; /* applied last, and the one before; NULL: that of the start */
    bool plan_changes;        /* the plan applied last is not in force yet */

    uint64_t last_number;
    bool last_ok;
    char last_error[ERROR_BYTES], state_error[ERROR_BYTES];
};

static void pump(weft_deployment *d);

/* -- The end of an operation ------------------------------------------------------------------ */

static void free_operation(operation *op)
{
    weft_router__free_bundle(op->deployment->router, op->bundle);
    weft_diag_destroy(op->diag);
    free(op->path);
    free(op->folder);
    free(op->model);
    free(op->version);
    free(op->adapter);
    free(op->config);
    weft_live__release(op->live);
    free(op);
}

static void end(operation *op, weft_answer answer, const char *error)
{
    weft_deployment *d = op->deployment;
    weft_operation_wait *wait = op->wait;
    d->last_number = op->number;
    d->last_ok = error == NULL;
    snprintf(d->last_error, sizeof d->last_error, "%s", error ? error : "");
    d->n_operation--;
    if (d->current == op)
        d->current = NULL;
    WEFT_LOG(error ? WEFT_LOG_WARN : WEFT_LOG_INFO, error ? "change_refused" : "change_in_force",
             {.key = "path", .text = op->path ? op->path : ""},
             {.key = "model", .text = op->model ? op->model : ""},
             {.key = "adapter", .text = op->adapter ? op->adapter : ""},
             {.key = "version", .text = op->version ? op->version : ""},
             {.key = "why", .text = error ? error : ""});
    if (wait) {
        wait->operation = NULL;
        wait->done(wait, answer, error);
    }
    free_operation(op);
}

static void end_by(operation *op, weft_err err, const weft_diag *diag)
{
    const weft_message *m = NULL;
    for (size_t i = 0; i < weft_diag_count(diag) && !m; i++)
        if (weft_diag_at(diag, i)->severity == WEFT_SEV_ERROR)
            m = weft_diag_at(diag, i);
    bool is_input = err == WEFT_ERR_INPUT || err == WEFT_ERR_UNSUP ||
                    (err == WEFT_ERR_IO && op->kind == OPERATION_ADAPT);
    weft_answer answer = is_input ? WEFT_ANSWER_INVALID : WEFT_ANSWER_INTERNAL;
    char text[ERROR_BYTES];
    const char *item = m ? m->item : NULL;
    snprintf(text, sizeof text, "%s%s%s%s%s%s", op->is_made ? "failed to load " : "",
             op->is_made ? op->model : "", op->is_made ? ": " : "", item ? item : "",
             item ? ": " : "", m ? m->text : weft_err_text(err));
    end(op, answer, text);
}

/* -- The state -------------------------------------------------------------------------------- */

static save_job *save_of(weft_job *job)
{
    return (save_job *)((char *)job - offsetof(save_job, job));
}

static void run_save(weft_job *job)
{
    save_job *s = save_of(job);
    const char *folder = s->deployment->options.state;
    s->code = s->text ? weft_state__prepare(folder, s->text) : weft_state__commit(folder);
}

static void note_state(weft_deployment *d, int code)
{
    char text[128] = "";
    if (code)
        snprintf(text, sizeof text, "the state cannot be saved: %s", weft_errno_text(code));
    snprintf(d->state_error, sizeof d->state_error, "%s", text);
    if (code)
        WEFT_LOG(WEFT_LOG_ERROR, "state_not_saved", {.key = "folder", .text = d->options.state},
                 {.key = "why", .text = text});
}

static void done_save(weft_job *job);

/* Takes the text. */
static void start_save(weft_deployment *d, char *text, bool of_change, operation *op)
{
    d->saves = true;
    d->save = (save_job){.job = {.run = run_save, .done = done_save},
                         .deployment = d,
                         .text = text,
                         .of_change = of_change,
                         .operation = op,
                         .code = NOT_RUN};
    weft_offload__submit(d->offload, &d->save.job);
}

static void commit_state(weft_deployment *d, operation *op)
{
    d->prepared = false;
    start_save(d, NULL, false, op);
}

static uint32_t find_version(const weft_deployment *d, const operation *op)
{
    return weft_router__find(d->router, op->model, strlen(op->model), op->version,
                             strlen(op->version));
}

/* Puts the operation's adapter, or none, in force; the operation has the one before then. false:
 * out of memory. */
static bool exchange_adapter(weft_deployment *d, operation *op)
{
    weft_live_adapter *before = NULL;
    if (!weft_live__exchange(weft_router__live(d->router), op->model, op->adapter, op->live,
                             &before))
        return false;
    op->live = before;
    return true;
}

/* What the operation changes without a change of the router. false: out of memory. */
static bool put_in_force(weft_deployment *d, operation *op)
{
    if (op->kind == OPERATION_WEIGH) {
        uint32_t at = find_version(d, op);
        if (at != UINT32_MAX)
            weft_router__set_weight(d->router, at, op->weight);
        return true;
    }
    bool done = exchange_adapter(d, op);
    if (done)
        weft_live__count_change(weft_router__live(d->router));
    return done;
}

/* The next state is on the disk. */
static void go_on(weft_deployment *d, operation *op, int code)
{
    if (code || !put_in_force(d, op)) {
        if (!code)
            weft_state__discard(d->options.state);
        end(op, WEFT_ANSWER_INTERNAL, code ? d->state_error : weft_err_text(WEFT_ERR_NOMEM));
        pump(d);
        return;
    }
    commit_state(d, op);
}

static void done_save(weft_job *job)
{
    save_job *s = save_of(job);
    weft_deployment *d = s->deployment;
    bool prepares = s->text != NULL, changing = weft_router__change_status(d->router).changing;
    operation *op = s->operation;
    free(s->text);
    s->text = NULL;
    d->saves = false;
    if (d->stopped) {
        if (!prepares && s->code == NOT_RUN)
            (void)weft_state__commit(d->options.state);
        return;
    }
    note_state(d, s->code);
    if (prepares && s->of_change && changing) {
        d->prepared = s->code == 0;
        if (s->code)
            weft_router__cancel_change(d->router, d->state_error);
        weft_router__hold_change(d->router, false);
        return; /* on_change follows */
    }
    if (prepares && !s->of_change) {
        go_on(d, op, s->code);
        return;
    }
    if (prepares) /* the change was undone meanwhile */
        weft_state__discard(d->options.state);
    d->changes = d->changes && prepares;
    if (op)
        end(op, s->code ? WEFT_ANSWER_INTERNAL : WEFT_ANSWER_OK, s->code ? d->state_error : NULL);
    pump(d);
}

/* Saves what is served after the change that has begun, and holds the change until that is done.
 * Without a state the change goes on. */
static void save_change(weft_deployment *d)
{
    if (!d->options.state)
        return;
    char *text = weft_state__describe(d->router, weft_deployment__plan(d));
    if (!text) {
        weft_router__cancel_change(d->router, "there is no memory for the state");
        return;
    }
    weft_router__hold_change(d->router, true);
    start_save(d, text, true, NULL);
}

/* -- Operations ------------------------------------------------------------------------------- */

static void run_read(weft_job *job)
{
    operation *op = (operation *)((char *)job - offsetof(operation, job));
    const weft_router *router = op->deployment->router;
    op->diag = weft_diag_create();
    op->err = op->diag ? weft_live__read(weft_router__live(router), op->folder, op->path, op->model,
                                         op->adapter, weft_router__model(router, op->base).program,
                                         op->diag, &op->live)
                       : WEFT_ERR_NOMEM;
}

static void run_open(weft_job *job)
{
    operation *op = (operation *)((char *)job - offsetof(operation, job));
    const weft_serve_source *source = &op->deployment->options.source;
    op->diag = weft_diag_create();
    op->err = op->diag ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (op->err == WEFT_ERR_OK && op->is_made)
        op->err = source->make(source->user, op->model, op->config, op->diag, &op->path);
    if (op->err != WEFT_ERR_OK)
        return;
    const weft_serve_bundle as = {.path = op->path,
                                  .folder = op->folder,
                                  .spreads = true,
                                  .model = (const char *const *)&op->model,
                                  .n_model = op->model != NULL};
    op->err = weft_router__read_bundle(&as, &op->deployment->options, op->diag, &op->bundle);
}

static weft_err begin_load(weft_deployment *d, operation *op, weft_diag *diag)
{
    const weft_serve_bundle as = {.path = op->path,
                                  .version = op->version,
                                  .has_weight = op->has_weight,
                                  .weight = op->weight,
                                  .model = (const char *const *)&op->model,
                                  .n_model = op->model != NULL};
    struct router_bundle *bundle = op->bundle;
    op->bundle = NULL;
    return weft_router__load(d->router, bundle, &as, op->alone, diag);
}

/* Sets the weight, after the state has it. */
static void begin_weigh(weft_deployment *d, operation *op)
{
    uint32_t at = find_version(d, op);
    if (at == UINT32_MAX) {
        char text[ERROR_BYTES];
        snprintf(text, sizeof text, "no model '%s' of version %s is served", op->model,
                 op->version);
        end(op, WEFT_ANSWER_NOT_FOUND, text);
        return;
    }
    double before = weft_router__weight(d->router, at);
    weft_router__set_weight(d->router, at, op->weight);
    if (!d->options.state) {
        end(op, WEFT_ANSWER_OK, NULL);
        return;
    }
    char *text = weft_state__describe(d->router, weft_deployment__plan(d));
    weft_router__set_weight(d->router, at, before);
    if (text)
        start_save(d, text, false, op);
    else
        end(op, WEFT_ANSWER_INTERNAL, "there is no memory for the state");
}

/* The first version of the adapter's base that does not have its modules; UINT32_MAX: all have. */
static uint32_t find_misfit(const weft_deployment *d, const operation *op)
{
    uint32_t at = weft_router__find(d->router, op->model, strlen(op->model), NULL, 0), program;
    for (uint32_t i = UINT32_MAX;
         at != UINT32_MAX && (i = weft_router__next_version(d->router, at, i)) != UINT32_MAX;) {
        const weft_bundle *b = weft_router__bundle_of(d->router, i, &program);
        if (weft_router__is_app(d->router, i) || !weft_live__fits(op->live, b, program))
            return i;
    }
    return UINT32_MAX;
}

/* Whether a version of the model that is served was compiled with the adapter. */
static bool is_compiled(const weft_deployment *d, const operation *op)
{
    uint32_t at = weft_router__find(d->router, op->model, strlen(op->model), NULL, 0), program;
    for (uint32_t i = UINT32_MAX;
         at != UINT32_MAX && (i = weft_router__next_version(d->router, at, i)) != UINT32_MAX;) {
        const weft_bundle *b = weft_router__bundle_of(d->router, i, &program);
        if (!weft_router__is_app(d->router, i) &&
            weft_bundle_find_adapter(b, program, op->adapter) != 0)
            return true;
    }
    return false;
}

/* Whether the adapter can be loaded, or unloaded; sets what is to be in force. false: the operation
 * has ended. */
static bool check_adapter(weft_deployment *d, operation *op)
{
    weft_live *live = weft_router__live(d->router);
    const weft_live_adapter *now =
        weft_live__find(live, op->model, strlen(op->model), op->adapter, strlen(op->adapter));
    char text[ERROR_BYTES];
    if (op->kind == OPERATION_ADAPT) {
        uint32_t misfit = find_misfit(d, op);
        if (misfit == UINT32_MAX)
            return true;
        snprintf(text, sizeof text, "version %s of model '%s' has not the modules of the adapter",
                 weft_router__model(d->router, misfit).version, op->model);
        end(op, WEFT_ANSWER_INVALID, text);
        return false;
    }
    bool compiled = is_compiled(d, op);
    if ((now && now->number) || (!now && compiled)) {
        op->live = compiled ? weft_live__removed(live, op->model, op->adapter) : NULL;
        if (op->live || !compiled)
            return true;
        end(op, WEFT_ANSWER_INTERNAL, weft_err_text(WEFT_ERR_NOMEM));
        return false;
    }
    snprintf(text, sizeof text, "model '%s' has no adapter '%s'", op->model, op->adapter);
    end(op, WEFT_ANSWER_NOT_FOUND, text);
    return false;
}

/* Exchanges the adapter, after the state has it. */
static void begin_adapter(weft_deployment *d, operation *op)
{
    if (!check_adapter(d, op))
        return;
    if (!d->options.state) {
        bool done = put_in_force(d, op);
        end(op, done ? WEFT_ANSWER_OK : WEFT_ANSWER_INTERNAL,
            done ? NULL : weft_err_text(WEFT_ERR_NOMEM));
        return;
    }
    char *text = NULL;
    if (exchange_adapter(d, op)) {
        text = weft_state__describe(d->router, weft_deployment__plan(d));
        (void)exchange_adapter(d, op); /* the place is there */
    }
    if (text)
        start_save(d, text, false, op);
    else
        end(op, WEFT_ANSWER_INTERNAL, "there is no memory for the state");
}

/* Begins the current operation, when nothing else goes on. */
static void begin(weft_deployment *d)
{
    operation *op = d->current;
    if (weft_router__change_status(d->router).changing || d->saves)
        return; /* when that is over */
    if (op->kind == OPERATION_WEIGH) {
        begin_weigh(d, op);
        return;
    }
    if (op->kind == OPERATION_ADAPT || op->kind == OPERATION_DISMISS) {
        begin_adapter(d, op);
        return;
    }
    weft_diag *diag = weft_diag_create();
    weft_err err = !diag ? WEFT_ERR_NOMEM
                   : op->kind == OPERATION_LOAD
                       ? begin_load(d, op, diag)
                       : weft_router__unload(d->router, op->path, op->model, op->version, diag);
    d->changes = err == WEFT_ERR_OK;
    if (err == WEFT_ERR_OK)
        save_change(d);
    else
        end_by(op, err, diag);
    weft_diag_destroy(diag);
}

static void done_open(weft_job *job)
{
    operation *op = (operation *)((char *)job - offsetof(operation, job));
    weft_deployment *d = op->deployment;
    op->opened = true;
    if (op->kind == OPERATION_ADAPT)
        weft_router__release(d->router, op->base);
    if (d->stopped)
        return;
    if (op->err == WEFT_ERR_OK)
        begin(d);
    else
        end_by(op, op->err, op->diag);
    pump(d);
}

static bool is_read(const operation *op)
{
    return op->kind == OPERATION_LOAD || op->kind == OPERATION_ADAPT;
}

/* Reads what is to be loaded beside the loop. */
static void start_reading(weft_deployment *d, operation *op)
{
    op->job = (weft_job){.run = run_open, .done = done_open};
    if (op->kind == OPERATION_ADAPT) {
        op->base = weft_router__find(d->router, op->model, strlen(op->model), NULL, 0);
        if (op->base == UINT32_MAX || weft_router__is_app(d->router, op->base)) {
            char text[ERROR_BYTES];
            snprintf(text, sizeof text, "no model '%s' is served", op->model);
            end(op, WEFT_ANSWER_NOT_FOUND, text);
            return;
        }
        weft_router__hold(d->router, op->base);
        op->job.run = run_read;
    }
    weft_offload__submit(d->offload, &op->job);
}

/* Lets the next operation begin. */
static void pump(weft_deployment *d)
{
    while (!d->stopped && !d->changes && !d->saves &&
           !weft_router__change_status(d->router).changing) {
        operation *op = d->current;
        if (op && is_read(op) && !op->opened)
            return;
        if (!op) {
            op = d->first;
            if (!op)
                return;
            d->first = op->next;
            d->last = d->first ? d->last : NULL;
            d->current = op;
            if (is_read(op)) {
                start_reading(d, op);
                continue;
            }
        }
        begin(d);
    }
}

/* A plan that was undone is forgotten. */
static void end_plan(weft_deployment *d, bool ok)
{
    if (!d->plan_changes)
        return;
    free(ok ? d->plan_before : d->plan);
    d->plan = ok ? d->plan : d->plan_before;
    d->plan_before = NULL;
    d->plan_changes = false;
    char *running = d->steps ? weft_staged__end(d->steps) : NULL;
    if (running) {
        free(d->plan);
        d->plan = running;
    }
}

/* A change of the router is over: of an operation, or of a plan. */
static void on_change(void *user, bool ok)
{
    weft_deployment *d = user;
    operation *op = d->changes ? d->current : NULL;
    end_plan(d, ok);
    if (d->stopped)
        return;
    if (d->prepared && ok) { /* then it is over */
        commit_state(d, op);
        return;
    }
    d->changes = false;
    if (d->prepared)
        weft_state__discard(d->options.state);
    d->prepared = false;
    if (op)
        end(op, ok ? WEFT_ANSWER_OK : WEFT_ANSWER_INTERNAL,
            ok ? NULL : weft_router__change_status(d->router).past->error);
    pump(d);
}

static void on_step(void *user)
{
    weft_deployment *d = user;
    if (!d->stopped)
        weft_staged__go_on(d->steps);
}

static char *copy(const char *text, bool *failed)
{
    char *out = text ? strdup(text) : NULL;
    *failed = *failed || (text && !out);
    return out;
}

/* Takes the operation, whose texts are set. Returns its number, or 0. */
static uint64_t enqueue(weft_deployment *d, operation *op, bool failed, weft_operation_wait *wait)
{
    if (failed || d->stopped || d->n_operation >= OPERATIONS_MAX) {
        free_operation(op);
        return 0;
    }
    op->deployment = d;
    op->number = ++d->next_number;
    op->wait = wait;
    if (wait)
        wait->operation = op;
    *(d->last ? &d->last->next : &d->first) = op;
    d->last = op;
    d->n_operation++;
    /* In a turn of the loop: nobody's call is answered inside it. */
    weft_timer__set(d->loop, &d->soon, 0);
    return op->number;
}

uint64_t weft_deployment__load(weft_deployment *d, const weft_serve_bundle *as, bool alone,
                               weft_operation_wait *wait)
{
    bool failed = false;
    operation *op = calloc(1, sizeof *op);
    if (!op)
        return 0;
    *op = (operation){.kind = OPERATION_LOAD,
                      .path = copy(as->path, &failed),
                      .folder = copy(as->folder, &failed),
                      .model = copy(as->n_model ? as->model[0] : NULL, &failed),
                      .version = copy(as->version, &failed),
                      .has_weight = as->has_weight,
                      .weight = as->weight,
                      .alone = alone};
    return enqueue(d, op, failed, wait);
}

const char *weft_deployment__adapters(const weft_deployment *d)
{
    return d->options.adapters;
}

bool weft_deployment__has_source(const weft_deployment *d)
{
    return d->options.source.make != NULL;
}

uint64_t weft_deployment__make(weft_deployment *d, const char *model, const char *config,
                               weft_operation_wait *wait)
{
    bool failed = false;
    operation *op = calloc(1, sizeof *op);
    if (!op)
        return 0;
    *op = (operation){.kind = OPERATION_LOAD,
                      .model = copy(model, &failed),
                      .config = copy(config, &failed),
                      .is_made = true,
                      .alone = true};
    return enqueue(d, op, failed, wait);
}

uint64_t weft_deployment__unload(weft_deployment *d, const char *path, const char *model,
                                 const char *version, weft_operation_wait *wait)
{
    bool failed = false;
    operation *op = calloc(1, sizeof *op);
    if (!op)
        return 0;
    *op = (operation){.kind = OPERATION_UNLOAD,
                      .path = copy(path, &failed),
                      .model = copy(model, &failed),
                      .version = copy(version, &failed)};
    return enqueue(d, op, failed, wait);
}

uint64_t weft_deployment__weigh(weft_deployment *d, const char *model, const char *version,
                                double weight, weft_operation_wait *wait)
{
    bool failed = false;
    operation *op = calloc(1, sizeof *op);
    if (!op)
        return 0;
    *op = (operation){.kind = OPERATION_WEIGH,
                      .model = copy(model, &failed),
                      .version = copy(version, &failed),
                      .weight = weight};
    return enqueue(d, op, failed, wait);
}

uint64_t weft_deployment__adapt(weft_deployment *d, const char *model, const char *adapter,
                                const char *root, const char *folder, weft_operation_wait *wait)
{
    bool failed = false;
    operation *op = weft_router__live(d->router) ? calloc(1, sizeof *op) : NULL;
    if (!op)
        return 0;
    *op = (operation){.kind = folder ? OPERATION_ADAPT : OPERATION_DISMISS,
                      .path = copy(folder, &failed),
                      .folder = copy(root, &failed),
                      .model = copy(model, &failed),
                      .adapter = copy(adapter, &failed)};
    return enqueue(d, op, failed, wait);
}

void weft_deployment__forget(weft_operation_wait *wait)
{
    if (wait->operation)
        wait->operation->wait = NULL;
    wait->operation = NULL;
}

/* -- Plans ------------------------------------------------------------------------------------ */

/* Begins the change to a plan. Takes the arena on success. */
static weft_err begin_plan(weft_deployment *d, const weft_plan *plan, weft_arena *arena,
                           weft_diag *diag)
{
    const weft_serve_control *o = &d->options.control;
    const weft_serve_slice *slice;
    uint32_t n;
    if (o->steps)
        return weft_staged__begin(d->steps, plan, arena, diag);
    WEFT_TRY(o->make_slices(o->user, plan, arena, diag, &slice, &n));
    return weft_router__change(d->router, slice, n, arena, diag);
}

weft_err weft_deployment__apply(weft_deployment *d, const char *text, weft_diag *diag,
                                uint64_t *out_generation)
{
    weft_plan plan;
    if (!d->options.control.make_slices)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "this server was not started with a plan");
    if (d->saves || d->changes)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0}, "a change is under way");
    weft_arena *arena = weft_arena_create(0);
    char *kept = strdup(text);
    weft_err err = arena && kept ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = weft_plan_from_json(text, strlen(text), "plan", arena, diag, &plan);
    if (err == WEFT_ERR_OK)
        err = begin_plan(d, &plan, arena, diag);
    if (err != WEFT_ERR_OK) {
        weft_arena_destroy(arena);
        free(kept);
        return err;
    }
    d->plan_before = d->plan;
    d->plan = kept;
    d->plan_changes = true;
    *out_generation = weft_router__change_status(d->router).generation;
    save_change(d);
    return WEFT_ERR_OK;
}

const char *weft_deployment__plan(const weft_deployment *d)
{
    return d->plan;
}

weft_operation_status weft_deployment__status(const weft_deployment *d)
{
    return (weft_operation_status){.last = d->last_number,
                                   .ok = d->last_ok,
                                   .error = d->last_error,
                                   .n_waiting = d->n_operation,
                                   .state_error = d->state_error};
}

const weft_missing_bundle *weft_deployment__missing(const weft_deployment *d, uint32_t *out_n)
{
    *out_n = d->restored.n_missing;
    return d->restored.missing;
}

/* -- Life ------------------------------------------------------------------------------------- */

weft_err weft_deployment__open(const weft_serve_options *options, weft_diag *diag,
                               weft_serve_options *out_options, weft_deployment **out)
{
    weft_deployment *d = calloc(1, sizeof *d);
    if (!d)
        return WEFT_ERR_NOMEM;
    *d = (weft_deployment){.options = *options, .restored = {.lock = -1}};
    weft_err err =
        options->state ? weft_state__restore(&d->options, &d->restored, diag) : WEFT_ERR_OK;
    d->plan = d->restored.plan;
    if (err != WEFT_ERR_OK) {
        weft_deployment__close(d);
        return err;
    }
    *out_options = d->options;
    *out = d;
    return WEFT_ERR_OK;
}

static void on_soon(void *user)
{
    pump(user);
}

weft_err weft_deployment__start(weft_deployment *d, weft_router *router, weft_loop *loop,
                                weft_diag *diag)
{
    d->router = router;
    d->loop = loop;
    d->soon = (weft_timer){.fn = on_soon, .user = d};
    WEFT_TRY(weft_state__restore_adapters(&d->restored, router));
    if (!d->options.control.path && !d->options.repository && !d->options.adapters)
        return WEFT_ERR_OK;
    d->offload = weft_offload__create(loop, 0);
    if (!d->offload)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0}, "no thread for bundles");
    weft_live__free_beside(weft_router__live(router), d->offload);
    weft_router__free_beside(router, d->offload);
    if (d->options.control.steps)
        WEFT_TRY(weft_staged__create(&d->options.control, router, loop, d->offload, &d->steps));
    return weft_router__on_change(router, on_change, on_step, d);
}

void weft_deployment__drain(weft_deployment *d)
{
    static const char why[] = "the server is shutting down";
    for (operation *op = d->current ? d->current : d->first; op;
         op = op == d->current ? d->first : op->next) {
        weft_operation_wait *wait = op->wait;
        op->wait = NULL;
        if (wait) {
            wait->operation = NULL;
            wait->done(wait, WEFT_ANSWER_UNAVAILABLE, why);
        }
    }
}

void weft_deployment__stop(weft_deployment *d)
{
    if (!d || d->stopped)
        return;
    d->stopped = true;
    if (d->loop)
        weft_timer__cancel(d->loop, &d->soon);
    if (d->options.source.stop)
        d->options.source.stop(d->options.source.user);
    weft_staged__stop(d->steps);
    weft_offload__destroy(d->offload);
    if (d->router) {
        weft_live__free_beside(weft_router__live(d->router), NULL);
        weft_router__free_beside(d->router, NULL);
    }
    d->offload = NULL;
    weft_staged__destroy(d->steps);
    d->steps = NULL;
    while (d->current || d->first) {
        operation *op = d->current ? d->current : d->first;
        if (op == d->first)
            d->first = op->next;
        end(op, WEFT_ANSWER_UNAVAILABLE, "the server is shutting down");
    }
}

void weft_deployment__close(weft_deployment *d)
{
    if (!d)
        return;
    weft_deployment__stop(d);
    if (d->restored.lock >= 0)
        close(d->restored.lock);
    free(d->save.text);
    free(d->plan);
    free(d->plan_before);
    weft_arena_destroy(d->restored.arena);
    free(d);
}
