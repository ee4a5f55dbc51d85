/* How the slices of GPUs change while they are served on: the steps of the course from the plan in
 * force to the next one (scheduler/plan/plan_course.c), and what each of them needs: MIG instances
 * and MPS daemons.
 *
 * Plans have the numbers of GPUs as those of their devices here. A step makes what is missing for
 * what runs when it is over, whatever the machine has by then, so that the way back, or a second
 * try, is a course like any other. */
#include "tools/server/serve_slices.h"

#include <stdlib.h>
#include <string.h>

/* A plan with the arena that it lives in. */
typedef struct kept_plan {
    weft_arena *arena;
    weft_plan plan;
} kept_plan;

struct weft_gpu_slices {
    weft_machine machine; /* as it was read last; in machine_arena */
    weft_arena *machine_arena, *course_arena;
    kept_plan now, origin; /* what runs; what ran when the change began */
    const weft_plan *step; /* what runs when each of them is over; in course_arena */
};

/* -- Plans ------------------------------------------------------------------------------------ */

/* Copies the strings of a plan, which is in the arena, too. */
static void own_strings(weft_plan *plan, weft_arena *arena)
{
    plan->policy = weft_arena_strdup(arena, plan->policy ? plan->policy : "");
    for (size_t i = 0; i < plan->n; i++) {
        weft_placement_own(&plan->at[i], arena);
        plan->at[i].where = (weft_location){0};
    }
}

static weft_plan copy_plan(const weft_plan *plan, weft_arena *arena)
{
    weft_plan out = *plan;
    out.at = weft_arena_array(arena, plan->n + 1, sizeof *out.at);
    if (plan->n > 0)
        memcpy(out.at, plan->at, plan->n * sizeof *out.at);
    own_strings(&out, arena);
    return out;
}

/* Replaces what is kept by a copy. false: out of memory. */
static bool keep(const weft_plan *plan, kept_plan *out)
{
    weft_arena *arena = weft_arena_create(0);
    if (!arena)
        return false;
    const kept_plan new = {.arena = arena, .plan = copy_plan(plan, arena)};
    weft_arena_destroy(out->arena);
    *out = new;
    return true;
}

/* The placements of a mapped plan, on the GPUs. */
static weft_plan locate(const weft_slice_mapper *m, const weft_plan *plan, weft_arena *arena)
{
    weft_plan out = *plan;
    out.at = weft_arena_array(arena, plan->n + 1, sizeof *out.at);
    out.n = 0;
    for (size_t i = 0; i < plan->n; i++)
        for (uint32_t k = 0; k < m->n_target; k++)
            if (m->target[k].device == plan->at[i].device) {
                out.at[out.n] = plan->at[i];
                out.at[out.n++].device = m->target[k].gpu->index;
            }
    return out;
}

/* From then on the plan, which m has mapped, is what runs. */
static weft_err begin(const weft_slice_mapper *m, weft_gpu_slices **out)
{
    weft_gpu_slices *g = calloc(1, sizeof *g);
    const weft_plan plan = locate(m, m->plan, m->arena);
    if (!g || !keep(&plan, &g->now)) {
        free(g);
        return WEFT_ERR_NOMEM;
    }
    g->machine = m->machine; /* its arena outlives the server */
    *out = g;
    return WEFT_ERR_OK;
}

weft_err weft_slices__on_gpus(const weft_slices_options *options, const weft_plan *plan,
                              const weft_slice_groups *groups, weft_arena *arena, weft_diag *diag,
                              weft_slices *out)
{
    weft_slice_mapper m = {.options = options,
                           .plan = plan,
                           .arena = arena,
                           .diag = diag,
                           .where = {.file = options->plan},
                           .out = out,
                           .daemons = &out->daemons};
    WEFT_TRY(weft_machine_read(arena, diag, &m.machine));
    WEFT_TRY(weft_slices__match(&m, groups));
    if (options->reconfigure_mig) {
        for (uint32_t i = 0; i < m.n_target; i++)
            WEFT_TRY(weft_slices__make_instances(&m, &m.target[i], true));
        WEFT_TRY(weft_machine_read(arena, diag, &m.machine));
        for (uint32_t i = 0; i < m.n_target; i++)
            m.target[i].gpu = &m.machine.gpu[m.target[i].gpu->index];
    }
    WEFT_TRY(weft_slices__add(&m));
    return begin(&m, &out->gpus);
}

void weft_slices__end(weft_gpu_slices *g)
{
    if (!g)
        return;
    weft_arena_destroy(g->machine_arena);
    weft_arena_destroy(g->course_arena);
    weft_arena_destroy(g->now.arena);
    weft_arena_destroy(g->origin.arena);
    free(g);
}

/* -- The course ------------------------------------------------------------------------------- */

/* GPUs on which nothing runs. */
static size_t list_spare(const weft_gpu_slices *g, weft_plan_spare *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < g->machine.n_gpu && n < WEFT_SLICE_GPUS_MAX; i++) {
        const weft_machine_gpu *gpu = &g->machine.gpu[i];
        bool used = gpu->why_not[0] || !gpu->type || gpu->prohibited;
        for (size_t k = 0; k < g->now.plan.n && !used; k++)
            used = g->now.plan.at[k].device == gpu->index;
        if (!used)
            out[n++] = (weft_plan_spare){
                .device = gpu->index, .type = gpu->type->name, .is_mig = gpu->mig_on};
    }
    return n;
}

/* Spare GPUs may run copies only where their instances may be made. */
static size_t list_for_copies(const weft_slices *s, const weft_gpu_slices *g, weft_plan_spare *out)
{
    size_t n = list_spare(g, out), kept = 0;
    for (size_t i = 0; i < n; i++)
        if (s->options->reconfigure_mig || !out[i].is_mig)
            out[kept++] = out[i];
    return kept;
}

/* The course to a plan on GPUs; at least one step. */
static weft_err set_course(weft_slices *s, const weft_plan *to, uint32_t *out_n_step)
{
    weft_gpu_slices *g = s->gpus;
    weft_plan_spare spare[WEFT_SLICE_GPUS_MAX];
    weft_plan_course course;
    weft_arena *arena = weft_arena_create(0);
    if (!arena)
        return WEFT_ERR_NOMEM;
    weft_plan_find_course(&g->now.plan, to, spare, list_for_copies(s, g, spare), arena, &course);
    uint32_t n = course.n_step > 0 ? course.n_step : 1;
    weft_plan *step = weft_arena_array(arena, n, sizeof *step);
    for (uint32_t k = 0; k < n; k++)
        step[k] = copy_plan(course.n_step > 0 ? course.step[k].plan : to, arena);
    weft_arena_destroy(g->course_arena);
    g->course_arena = arena;
    g->step = step;
    *out_n_step = n;
    return WEFT_ERR_OK;
}

/* What the server checks before anything happens: models and batches. */
static void list_models(const weft_slice_groups *groups, weft_arena *arena,
                        const weft_serve_slice **out, uint32_t *out_n)
{
    weft_serve_slice *at = weft_arena_array(arena, groups->len, sizeof *at);
    for (uint32_t i = 0; i < groups->len; i++)
        at[i] = (weft_serve_slice){.model = groups->at[i].model,
                                   .batch = groups->at[i].batch,
                                   .n_model = groups->at[i].n_model};
    *out = at;
    *out_n = groups->len;
}

static weft_slice_mapper make_mapper(weft_slices *s, const weft_plan *plan, weft_arena *arena,
                                     weft_diag *diag)
{
    return (weft_slice_mapper){.options = s->options,
                               .plan = plan,
                               .machine = s->gpus->machine,
                               .arena = arena,
                               .diag = diag,
                               .daemons = &s->daemons};
}

/* The devices of the plan that this server serves. */
static weft_plan take_devices(const weft_slice_groups *groups, const weft_plan *plan,
                              weft_arena *arena)
{
    weft_plan out = *plan;
    out.at = weft_arena_array(arena, plan->n + 1, sizeof *out.at);
    out.n = 0;
    for (size_t i = 0; i < plan->n; i++) {
        bool served = false;
        for (uint32_t k = 0; k < groups->len && !served; k++)
            served = groups->at[k].device == plan->at[i].device;
        if (served)
            out.at[out.n++] = plan->at[i];
    }
    return out;
}

static weft_err plan_steps(void *user, const weft_plan *to, weft_arena *arena, weft_diag *diag,
                           const weft_serve_slice **out, uint32_t *out_n, uint32_t *out_n_step)
{
    weft_slices *s = user;
    weft_slice_groups groups, placed;
    weft_plan_spare spare[WEFT_SLICE_GPUS_MAX];
    weft_slices_options all = *s->options; /* --devices is about the plan's own numbers */
    all.n_device = 0;
    WEFT_TRY(weft_slices__group(s->options, to, arena, diag, &groups));
    if (weft_device_type_is_cpu(groups.at[0].first->type))
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "the plan is for CPUs, the server serves on GPUs: start it with the "
                               "new plan");
    const weft_plan served = take_devices(&groups, to, arena);
    size_t n_spare = list_spare(s->gpus, spare);
    const weft_plan settled = weft_plan_settle(&s->gpus->now.plan, &served, spare, n_spare, arena);
    WEFT_TRY(weft_slices__group(&all, &settled, arena, diag, &placed));
    weft_slice_mapper m = make_mapper(s, &settled, arena, diag);
    m.prefers = true;
    WEFT_TRY(weft_slices__match(&m, &placed));
    const weft_plan located = locate(&m, &settled, arena);
    if (!keep(&s->gpus->now.plan, &s->gpus->origin))
        return WEFT_ERR_NOMEM;
    list_models(&groups, arena, out, out_n);
    return set_course(s, &located, out_n_step);
}

static weft_err plan_back(void *user, uint32_t *out_n_step)
{
    weft_slices *s = user;
    return set_course(s, &s->gpus->origin.plan, out_n_step);
}

/* -- A step ----------------------------------------------------------------------------------- */

static weft_err read_machine(weft_gpu_slices *g, weft_diag *diag)
{
    weft_machine machine = {0};
    weft_arena *arena = weft_arena_create(0);
    weft_err err = arena ? weft_machine_read(arena, diag, &machine) : WEFT_ERR_NOMEM;
    if (err != WEFT_ERR_OK) {
        weft_arena_destroy(arena);
        return err;
    }
    weft_arena_destroy(g->machine_arena);
    g->machine_arena = arena;
    g->machine = machine;
    return WEFT_ERR_OK;
}

static weft_err make_instances(weft_slices *s, const weft_plan *plan,
                               const weft_slice_groups *groups, weft_arena *arena, weft_diag *diag)
{
    weft_slice_mapper m = make_mapper(s, plan, arena, diag);
    WEFT_TRY(weft_slices__take(&m, groups));
    for (uint32_t i = 0; i < m.n_target; i++)
        WEFT_TRY(weft_slices__make_instances(&m, &m.target[i], false));
    return read_machine(s->gpus, diag);
}

static weft_err prepare_step(void *user, uint32_t k, weft_arena *arena, weft_diag *diag,
                             const weft_serve_slice **out, uint32_t *out_n)
{
    weft_slices *s = user;
    const weft_plan *plan = &s->gpus->step[k];
    weft_slice_groups groups;
    weft_slices_options all = *s->options;
    weft_slices *made = weft_arena_array(arena, 1, sizeof *made);
    all.n_device = 0;
    *out = made->at;
    *out_n = 0;
    if (plan->n == 0) /* all that ran had to end */
        return WEFT_ERR_OK;
    WEFT_TRY(weft_slices__group(&all, plan, arena, diag, &groups));
    WEFT_TRY(read_machine(s->gpus, diag));
    if (s->options->reconfigure_mig)
        WEFT_TRY(make_instances(s, plan, &groups, arena, diag));
    weft_slice_mapper m = make_mapper(s, plan, arena, diag);
    m.out = made;
    WEFT_TRY(weft_slices__take(&m, &groups));
    WEFT_TRY(weft_slices__add(&m));
    /* Names and UUIDs of the machine are read again at the next step. */
    for (uint32_t i = 0; i < made->n; i++) {
        made->at[i].gpu = weft_arena_strdup(arena, made->at[i].gpu);
        if (made->at[i].mig)
            made->at[i].mig = weft_arena_strdup(arena, made->at[i].mig);
    }
    *out_n = made->n;
    return WEFT_ERR_OK;
}

static void take_step(void *user, uint32_t k)
{
    weft_gpu_slices *g = ((weft_slices *)user)->gpus;
    /* Without memory the course from what ran before finds the same slices. */
    (void)keep(&g->step[k], &g->now);
}

static weft_err tell_running(void *user, weft_arena *arena, weft_plan *out)
{
    const weft_plan *now = &((weft_slices *)user)->gpus->now.plan;
    bool used[WEFT_SLICE_GPUS_MAX] = {false};
    uint32_t number[WEFT_SLICE_GPUS_MAX] = {0};
    *out = *now;
    out->at = weft_arena_array(arena, now->n + 1, sizeof *out->at);
    out->gpus = 0;
    out->goodput_per_s = 0;
    for (size_t i = 0; i < now->n; i++)
        used[now->at[i].device % WEFT_SLICE_GPUS_MAX] = true;
    for (uint32_t i = 0; i < WEFT_SLICE_GPUS_MAX; i++) {
        number[i] = out->gpus;
        out->gpus += used[i];
    }
    for (size_t i = 0; i < now->n; i++) {
        out->at[i] = now->at[i];
        out->at[i].device = number[now->at[i].device % WEFT_SLICE_GPUS_MAX];
        out->goodput_per_s += now->at[i].rate_per_s;
    }
    return WEFT_ERR_OK;
}

const weft_serve_steps weft_slices_steps = {.plan = plan_steps,
                                            .back = plan_back,
                                            .prepare = prepare_step,
                                            .reached = take_step,
                                            .tell = tell_running};
