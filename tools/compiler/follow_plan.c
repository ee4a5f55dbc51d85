/* Reads what a plan says about merging: the models of each slice, and the batches that they run at.
 * A family is a set of its own; the other models of its slice are another set. */
#include "tools/compiler/follow_plan.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { PLAN_BYTES_MAX = 256 << 20 };

/* Buckets of the batch symbol without --batch, as in weft_pass_options. */
static const int64_t usual_batch[] = {1, 2, 4, 8};

typedef struct follower {
    const weft_tool_sources *sources;
    weft_tool_pipeline *pipeline;
    weft_arena *arena;
    weft_diag *diag;
    weft_where where;
    bool *placed; /* by graph */
    WEFT_VEC(weft_merge_set) set;
} follower;

static weft_err note_models(follower *f, const char *const *model, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const weft_graph *g = weft_graph_find(f->sources->module, model[i]);
        if (!g || !weft_graph_is_model(g))
            return weft_diag_error(f->diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = f->where.file, .item = model[i]},
                                   "the plan places it, but it is not among the models");
        f->placed[weft_graph_index(g)] = true;
    }
    return WEFT_ERR_OK;
}

static weft_err add_batch(follower *f, int64_t batch)
{
    weft_tool_pipeline *p = f->pipeline;
    size_t n = p->run.pass.n_batch, at = 0;
    while (at < n && p->batch[at] < batch)
        at++;
    if (at < n && p->batch[at] == batch)
        return WEFT_ERR_OK;
    if (n == sizeof p->batch / sizeof *p->batch)
        return weft_diag_error(f->diag, WEFT_ERR_INPUT, f->where,
                               "over %zu batches; make the plan again with fewer", n);
    memmove(p->batch + at + 1, p->batch + at, (n - at) * sizeof *p->batch);
    p->batch[at] = batch;
    p->run.pass.n_batch++;
    return WEFT_ERR_OK;
}

/* The batches of --batch, ascending, or the usual ones. */
static weft_err start_batches(follower *f)
{
    weft_pass_options *pass = &f->pipeline->run.pass;
    int64_t given[sizeof f->pipeline->batch / sizeof(int64_t)];
    size_t n = pass->n_batch;
    memcpy(given, n > 0 ? f->pipeline->batch : usual_batch,
           n > 0 ? n * sizeof *given : sizeof usual_batch);
    n = n > 0 ? n : sizeof usual_batch / sizeof *usual_batch;
    pass->n_batch = 0;
    pass->batch = f->pipeline->batch;
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(add_batch(f, given[i]));
    return WEFT_ERR_OK;
}

static bool is_for_target(const follower *f, const weft_placement *p)
{
    return weft_target_is_gpu(f->pipeline->run.pass.target) == !weft_device_type_is_cpu(p->type);
}

static bool is_on_slice(const weft_placement *p, const weft_placement *of)
{
    return p->device == of->device && p->slice_id == of->slice_id;
}

static bool are_equal(const weft_merge_set *a, const weft_merge_set *b)
{
    bool equal =
        a->n_model == b->n_model && a->as_one == b->as_one && !a->device == !b->device &&
        (!a->device || (strcmp(a->device, b->device) == 0 && strcmp(a->slice, b->slice) == 0));
    for (size_t i = 0; equal && i < a->n_model; i++)
        equal = strcmp(a->model[i], b->model[i]) == 0;
    return equal;
}

static void add_set(follower *f, const weft_placement *p, const char *const *model, size_t n,
                    bool as_one)
{
    bool here = is_for_target(f, p);
    weft_merge_set set = {.model = model,
                          .n_model = n,
                          .as_one = as_one,
                          .device = here ? p->type : NULL,
                          .slice = here ? p->slice : NULL};
    for (size_t i = 0; i < f->set.len; i++)
        if (are_equal(&f->set.at[i], &set))
            return;
    if (n > 1)
        WEFT_VEC_PUSH(f->arena, &f->set, set);
}

static weft_err add_placement(follower *f, const weft_placement *p)
{
    const char *const *model;
    size_t n = weft_family_models(p->model, f->arena, &model);
    WEFT_TRY(note_models(f, model, n));
    if (n > 1)
        add_set(f, p, model, n, true);
    return add_batch(f, p->batch / n > 0 ? (int64_t)(p->batch / n) : 1);
}

/* The models that have a slice of their own each or share it, other than those of families. */
static void add_slice(follower *f, const weft_plan *plan, size_t first)
{
    const char **model = weft_arena_array(f->arena, plan->n + 1, sizeof *model);
    size_t n = 0;
    for (size_t i = 0; i < first; i++)
        if (is_on_slice(&plan->at[i], &plan->at[first]))
            return;
    for (size_t i = first; i < plan->n; i++)
        if (is_on_slice(&plan->at[i], &plan->at[first]) && !weft_family_is_name(plan->at[i].model))
            model[n++] = plan->at[i].model;
    add_set(f, &plan->at[first], model, n, false);
}

static weft_err read_plan(const char *path, weft_arena *arena, weft_diag *diag, weft_plan *out)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, PLAN_BYTES_MAX, diag, &text, &len));
    weft_err err = weft_plan_from_json(text, len, path, arena, diag, out);
    free(text);
    return err;
}

weft_err weft_tool_follow_plan(const char *path, const weft_tool_sources *sources,
                               weft_tool_pipeline *pipeline, weft_arena *arena, weft_diag *diag)
{
    const weft_module *m = sources->module;
    follower f = {.sources = sources,
                  .pipeline = pipeline,
                  .arena = arena,
                  .diag = diag,
                  .where = {.file = path},
                  .placed = weft_arena_array(arena, (size_t)weft_graph_count(m) + 1, sizeof(bool))};
    weft_plan plan;
    WEFT_TRY(read_plan(path, arena, diag, &plan));
    WEFT_TRY(start_batches(&f));
    for (size_t i = 0; i < plan.n; i++) {
        WEFT_TRY(add_placement(&f, &plan.at[i]));
        add_slice(&f, &plan, i);
    }
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        const weft_graph *g = weft_graph_at(m, i);
        if (weft_graph_is_model(g) && !f.placed[i])
            weft_diag_warn(diag, (weft_where){.file = path, .item = weft_graph_name(g)},
                           "the plan does not place this model; it is merged with no other");
    }
    static const weft_merge_set none;
    pipeline->run.pass.set = f.set.len > 0 ? f.set.at : &none;
    pipeline->run.pass.n_set = f.set.len;
    return WEFT_ERR_OK;
}
