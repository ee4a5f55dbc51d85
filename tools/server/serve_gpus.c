/* Maps the slices of a plan to the GPUs of this machine.
 *
 * A bipartite matching assigns each device of the plan a GPU of the same type that is divided as
 * the plan requires. Each slice becomes one worker process, or as many as the plan says; a worker
 * sees only its GPU or MIG instance, selected by UUID. Shares of a GPU or instance are MPS
 * percentages with a memory limit, or SM partitions. */
#include "tools/server/serve_slices.h"
#include "base/slice_name.h"
#include "tools/common/tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GPUS_MAX = WEFT_SLICE_GPUS_MAX, ENV_MAX = 4 };

typedef weft_slice_target target;
typedef weft_slice_mapper mapper;

/* -- What the plan asks for ------------------------------------------------------------------ */

/* A slice of the plan: "", "3g.40gb", "40%", "3g.40gb/50%". */
static bool parse_slice(const char *text, weft_slice_name *out)
{
    *out = (weft_slice_name){0};
    return weft_slicename_parse(text, out) && (out->share == 0 || out->percent > 0);
}

static weft_err find_targets(mapper *m, const weft_slice_groups *groups)
{
    for (uint32_t i = 0; i < groups->len; i++) {
        const weft_slice_group *g = &groups->at[i];
        weft_slice_name c;
        if (!parse_slice(g->first->slice, &c) || (c.profile[0] && g->first->mig_start < 0))
            return weft_diag_error(m->diag, WEFT_ERR_INPUT, m->where,
                                   "'%s' of model '%s' is no slice of a GPU", g->first->slice,
                                   g->first->model);
        if (m->n_target && m->target[m->n_target - 1].device == g->device) {
            m->target[m->n_target - 1].n++;
            continue;
        }
        if (m->n_target == GPUS_MAX)
            return weft_diag_error(m->diag, WEFT_ERR_INPUT, m->where, "over %d GPUs", GPUS_MAX);
        m->target[m->n_target++] = (target){.device = g->device, .group = g, .n = 1};
    }
    return WEFT_ERR_OK;
}

/* -- Which GPU it gets ------------------------------------------------------------------------ */

static const weft_machine_mig *find_instance(const weft_machine_gpu *gpu, const char *profile,
                                             int32_t start)
{
    for (uint32_t i = 0; i < gpu->n_mig; i++)
        if (strcmp(gpu->mig[i].profile, profile) == 0 && gpu->mig[i].start == start)
            return &gpu->mig[i];
    return NULL;
}

/* Finds the MIG instance of a group. The starts of instances are unknown without root; instances
 * of equal profiles are interchangeable, so the k-th of the plan gets the k-th of the machine. */
static const weft_machine_mig *pick_instance(const weft_machine_gpu *gpu, const target *t,
                                             const weft_slice_group *group)
{
    weft_slice_name want, c;
    uint32_t rank = 0, seen = 0;
    uint64_t counted = 0; /* bit k: the instance that starts at slot k is counted in `rank` */
    parse_slice(group->first->slice, &want);
    const weft_machine_mig *exact = find_instance(gpu, want.profile, group->first->mig_start);
    if (exact)
        return exact;
    for (uint32_t i = 0; i < t->n; i++) {
        uint64_t bit = 1ull << (t->group[i].first->mig_start & 63);
        parse_slice(t->group[i].first->slice, &c);
        if (strcmp(c.profile, want.profile) == 0 && !(counted & bit) &&
            t->group[i].first->mig_start < group->first->mig_start) {
            counted |= bit;
            rank++;
        }
    }
    for (uint32_t i = 0; i < gpu->n_mig; i++)
        if (strcmp(gpu->mig[i].profile, want.profile) == 0 && gpu->mig[i].start < 0 &&
            seen++ == rank)
            return &gpu->mig[i];
    return NULL;
}

/* Returns "" if the GPU fits the target, else the reason why not. */
static const char *why_not(const mapper *m, const target *t, const weft_machine_gpu *gpu)
{
    if (gpu->why_not[0])
        return weft_arena_printf(m->arena, "cannot be read: %s", gpu->why_not);
    if (!gpu->type || strcmp(gpu->type->name, t->group->first->type) != 0)
        return weft_arena_printf(m->arena, "is a %s", gpu->type ? gpu->type->name : gpu->name);
    if (gpu->prohibited)
        return "its compute mode prohibits contexts";
    for (uint32_t i = 0; i < t->n; i++) {
        const weft_placement *p = t->group[i].first;
        weft_slice_name c;
        parse_slice(p->slice, &c);
        if ((c.profile[0] != '\0') != gpu->mig_on)
            return gpu->mig_on ? "MIG mode is on, the plan uses the whole GPU" : "MIG mode is off";
        if (c.profile[0] && !m->options->reconfigure_mig && !pick_instance(gpu, t, &t->group[i]))
            return weft_arena_printf(m->arena, "has no MIG instance %s at slot %" PRId32, c.profile,
                                     p->mig_start);
    }
    return "";
}

/* Finds a GPU for target `i` by an augmenting path (Kuhn's algorithm for bipartite matching):
 * other targets may move to other GPUs. */
static bool match(mapper *m, uint32_t i, bool *tried)
{
    uint32_t n = m->machine.n_gpu < GPUS_MAX ? m->machine.n_gpu : GPUS_MAX;
    uint32_t first = m->prefers && m->target[i].device < n ? m->target[i].device : 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t g = (first + k) % n;
        const weft_machine_gpu *gpu = &m->machine.gpu[g];
        if (tried[g] || *why_not(m, &m->target[i], gpu))
            continue;
        tried[g] = true;
        uint32_t holder = 0;
        while (holder < m->n_target && m->target[holder].gpu != gpu)
            holder++;
        if (holder == m->n_target || match(m, holder, tried)) {
            m->target[i].gpu = gpu;
            return true;
        }
    }
    return false;
}

static weft_err report_no_gpu(const mapper *m, const target *t)
{
    const weft_placement *p = t->group->first;
    weft_err err = weft_diag_error(
        m->diag, WEFT_ERR_NODEV, m->where,
        "model '%s' is placed on device %u, a %s%s%s: this machine has no such free GPU", p->model,
        t->device, p->type, p->slice[0] ? " cut into " : "", p->slice);
    bool mig = false;
    if (m->machine.why_no_gpu[0])
        weft_diag_note(m->diag, (weft_where){0}, "%s", m->machine.why_no_gpu);
    for (uint32_t g = 0; g < m->machine.n_gpu; g++) {
        char gpu[32];
        const char *why = why_not(m, t, &m->machine.gpu[g]);
        snprintf(gpu, sizeof gpu, "GPU %u", m->machine.gpu[g].index);
        weft_diag_note(m->diag, (weft_where){.item = gpu}, "%s",
                       *why ? why : "serves another device of the plan");
        mig = mig || strstr(why, "has no MIG instance");
    }
    if (mig)
        weft_diag_note(m->diag, (weft_where){0},
                       "--reconfigure-mig creates the instances; 'weft export --to mig-parted' "
                       "writes them as configuration of nvidia-mig-parted");
    return err;
}

weft_err weft_slices__match(mapper *m, const weft_slice_groups *groups)
{
    WEFT_TRY(find_targets(m, groups));
    for (uint32_t i = 0; i < m->n_target; i++)
        m->target[i].gpu = NULL;
    for (uint32_t i = 0; i < m->n_target; i++) {
        bool tried[GPUS_MAX] = {false};
        if (!match(m, i, tried))
            return report_no_gpu(m, &m->target[i]);
    }
    return WEFT_ERR_OK;
}

weft_err weft_slices__take(mapper *m, const weft_slice_groups *groups)
{
    WEFT_TRY(find_targets(m, groups));
    for (uint32_t i = 0; i < m->n_target; i++) {
        target *t = &m->target[i];
        const weft_machine_gpu *gpu =
            t->device < m->machine.n_gpu ? &m->machine.gpu[t->device] : NULL;
        if (!gpu || gpu->why_not[0])
            return weft_diag_error(m->diag, WEFT_ERR_NODEV, m->where, "GPU %u %s%s", t->device,
                                   gpu ? "cannot be read: " : "is not here",
                                   gpu ? gpu->why_not : "");
        t->gpu = gpu;
    }
    return WEFT_ERR_OK;
}

/* -- MIG -------------------------------------------------------------------------------------- */

/* Ends the daemon of an instance that is to be destroyed: it is in use as long as the daemon runs.
 */
static void end_daemon(mapper *m, const char *uuid)
{
    weft_slice_daemons *d = m->daemons;
    for (uint32_t i = 0; i < d->n; i++)
        if (strcmp(d->at[i].uuid, uuid) == 0) {
            weft_mps_stop(d->at[i].mps, m->diag);
            d->at[i] = d->at[--d->n];
            return;
        }
}

/* Ends the daemons of the instances of a GPU that the list lacks. */
static void end_daemons(mapper *m, const weft_machine_gpu *gpu, const weft_machine_mig_want *want,
                        uint32_t n)
{
    for (uint32_t i = 0; i < gpu->n_mig; i++) {
        const weft_machine_mig *at = &gpu->mig[i];
        bool wanted = false;
        for (uint32_t k = 0; k < n && !wanted; k++)
            wanted =
                (uint32_t)at->start == want[k].start && strcmp(at->profile, want[k].profile) == 0;
        if (!wanted)
            end_daemon(m, at->uuid);
    }
}

weft_err weft_slices__make_instances(mapper *m, const target *t, bool all)
{
    weft_machine_mig_want *want = weft_arena_array(m->arena, t->n, sizeof *want);
    uint32_t n = 0, n_missing = 0;
    for (uint32_t k = 0; k < t->n; k++) {
        const weft_placement *p = t->group[k].first;
        bool has = false;
        weft_slice_name c;
        parse_slice(p->slice, &c);
        for (uint32_t j = 0; j < n; j++) /* shares of one instance */
            has = has || want[j].start == (uint32_t)p->mig_start;
        if (!c.profile[0] || has)
            continue;
        n_missing += !find_instance(t->gpu, c.profile, p->mig_start);
        want[n++] = (weft_machine_mig_want){.profile = weft_arena_strdup(m->arena, c.profile),
                                            .start = (uint32_t)p->mig_start};
    }
    if (n == 0 || (n_missing == 0 && !all))
        return WEFT_ERR_OK;
    end_daemons(m, t->gpu, want, n);
    return all ? weft_machine_set_mig(t->gpu->index, want, n, m->diag)
               : weft_machine_add_mig(t->gpu->index, want, n, m->diag);
}

/* -- MPS -------------------------------------------------------------------------------------- */

/* Finds the MPS pipe directory for one GPU or instance; *out NULL: that of the environment. */
static weft_err find_daemon(mapper *m, const char *name, const char *uuid, bool mig,
                            const char **out)
{
    const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    weft_slice_daemons *d = m->daemons;
    *out = NULL;
    for (uint32_t i = 0; i < d->n && !*out; i++)
        if (strcmp(d->at[i].uuid, uuid) == 0)
            *out = weft_mps_pipe_dir(d->at[i].mps);
    if (*out)
        return WEFT_ERR_OK;
    if (!m->options->start_mps && mig)
        return weft_diag_error(m->diag, WEFT_ERR_NODEV, (weft_where){.item = name},
                               "needs an MPS daemon of the MIG instance: --mps starts one");
    if (!m->options->start_mps) {
        const char *path =
            weft_arena_printf(m->arena, "%s/control", dir && *dir ? dir : "/tmp/nvidia-mps");
        if (access(path, F_OK) == 0)
            return WEFT_ERR_OK;
        return weft_diag_error(m->diag, WEFT_ERR_NODEV, (weft_where){.item = name},
                               "needs an MPS daemon, and none runs with the pipe directory %s: "
                               "--mps starts one",
                               dir && *dir ? dir : "/tmp/nvidia-mps");
    }
    if (!m->machine.mps_control[0])
        return weft_diag_error(m->diag, WEFT_ERR_NODEV, (weft_where){.item = name},
                               "needs MPS: there is no nvidia-cuda-mps-control in PATH");
    if (d->n == WEFT_SLICES_MAX)
        return weft_diag_error(m->diag, WEFT_ERR_INPUT, m->where, "over %d MPS daemons",
                               WEFT_SLICES_MAX);
    WEFT_TRY(weft_mps_start(m->machine.mps_control, uuid, m->diag, &d->at[d->n].mps));
    snprintf(d->at[d->n].uuid, sizeof d->at[d->n].uuid, "%s", uuid);
    *out = weft_mps_pipe_dir(d->at[d->n++].mps);
    return WEFT_ERR_OK;
}

/* -- Workers ---------------------------------------------------------------------------------- */

/* Sums the memory of all shares of one GPU or instance; 0: the memory of one is unknown. */
static uint64_t planned_bytes(const target *t, const weft_slice_group *g, bool mig)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const weft_slice_group *other = &t->group[i];
        if (mig && other->first->mig_start != g->first->mig_start)
            continue;
        if (other->mem_bytes == 0)
            return 0;
        total += other->mem_bytes;
    }
    return total;
}

/* Memory limit of a process of a share: the memory of the device without the plan's reserve,
 * divided in proportion to the planned memory, so that estimates that are slightly too low do
 * not fail. 0: no limit. */
static uint64_t limit_bytes(const mapper *m, const target *t, const weft_slice_group *g, bool mig,
                            uint64_t all_bytes)
{
    uint64_t planned = planned_bytes(t, g, mig);
    if (planned == 0)
        return 0;
    double part = (double)g->mem_bytes / (double)planned / g->procs;
    return (uint64_t)((double)all_bytes * (1 - m->plan->rules.mem_reserve) * part);
}

/* Assigns SMs to a share, behind those of the shares before it; each number is rounded to the
 * GPU's step. */
static weft_err take_sms(const mapper *m, const target *t, const weft_slice_group *g,
                         const char *name, uint32_t sms, weft_serve_slice *s)
{
    const weft_machine_gpu *gpu = t->gpu;
    uint32_t at = 0, n = 0;
    if (!gpu->part_min || !sms)
        return weft_diag_error(m->diag, WEFT_ERR_NODEV, (weft_where){.item = name},
                               "this GPU has no green contexts");
    for (const weft_slice_group *other = t->group; other <= g; other++) {
        weft_slice_name c;
        parse_slice(other->first->slice, &c);
        if (other->first->mig_start != g->first->mig_start)
            continue;
        at += n;
        n = (sms * c.percent + 50) / 100 / gpu->part_step * gpu->part_step;
        n = n < gpu->part_min ? gpu->part_min : n;
    }
    if (at + n > sms)
        return weft_diag_error(m->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = name},
                               "shares in steps of %u SMs need %u, the device has %u",
                               gpu->part_step, at + n, sms);
    s->sm_first = at;
    s->n_sm = n;
    return WEFT_ERR_OK;
}

static const char *slice_name(const mapper *m, const target *t, const weft_slice_group *g,
                              const weft_slice_name *c)
{
    const char *name = weft_arena_printf(m->arena, "GPU %u", t->gpu->index);
    if (c->profile[0])
        name = weft_arena_printf(m->arena, "%s %s at slot %" PRId32, name, c->profile,
                                 g->first->mig_start);
    if (c->percent)
        name =
            weft_arena_printf(m->arena, "%s share %u%% (slice %u)", name, c->percent, g->slice_id);
    return name;
}

static weft_err add_workers(mapper *m, const weft_serve_slice *slice, uint32_t n)
{
    weft_slices *out = m->out;
    for (uint32_t i = 0; i < n; i++) {
        if (out->n == WEFT_SLICES_MAX)
            return weft_diag_error(m->diag, WEFT_ERR_INPUT, m->where, "over %d processes",
                                   WEFT_SLICES_MAX);
        out->at[out->n] = *slice;
        if (n > 1)
            out->at[out->n].name = weft_arena_printf(m->arena, "%s process %u", slice->name, i);
        out->n++;
    }
    return WEFT_ERR_OK;
}

/* *pipe: directory of the MPS daemon of this GPU or instance; NULL: not started yet. */
static weft_err add_slice(mapper *m, const target *t, const weft_slice_group *g, const char **pipe)
{
    weft_slice_name c;
    parse_slice(g->first->slice, &c);
    const weft_machine_mig *mig = c.profile[0] ? pick_instance(t->gpu, t, g) : NULL;
    const char *name = slice_name(m, t, g, &c), *uuid = mig ? mig->uuid : t->gpu->uuid;
    bool mps = (c.percent && !m->options->green) || g->procs > 1 || (c.percent && *pipe) ||
               (c.percent && m->options->start_mps);
    const char **env = weft_arena_array(m->arena, ENV_MAX, sizeof *env);
    weft_serve_slice s = {.name = name,
                          .gpu = t->gpu->uuid,
                          .mig = mig ? mig->uuid : NULL,
                          .plan_bytes = g->mem_bytes,
                          .model = g->model,
                          .n_model = g->n_model,
                          .batch = g->batch,
                          .env = env};
    if (c.profile[0] && !mig)
        return weft_diag_error(m->diag, WEFT_ERR_NODEV, (weft_where){.item = name},
                               "the MIG instance no longer exists");
    env[s.n_env++] = weft_arena_printf(m->arena, "CUDA_VISIBLE_DEVICES=%s", uuid);
    if (mps && !*pipe)
        WEFT_TRY(find_daemon(m, name, uuid, mig != NULL, pipe));
    if (mps && *pipe)
        env[s.n_env++] = weft_arena_printf(m->arena, "CUDA_MPS_PIPE_DIRECTORY=%s", *pipe);
    if (c.percent || g->procs > 1)
        s.mem_limit_bytes =
            limit_bytes(m, t, g, mig != NULL, mig ? mig->mem_bytes : t->gpu->mem_bytes);
    if (c.percent && m->options->green)
        WEFT_TRY(take_sms(m, t, g, name, mig ? mig->sms : t->gpu->sms, &s));
    else if (c.percent)
        env[s.n_env++] =
            weft_arena_printf(m->arena, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%u", c.percent);
    if (mps && s.mem_limit_bytes)
        env[s.n_env++] =
            weft_arena_printf(m->arena, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%" PRIu64 "M",
                              (s.mem_limit_bytes >> 20) + 1);
    return add_workers(m, &s, g->procs);
}

weft_err weft_slices__add(mapper *m)
{
    for (uint32_t i = 0; i < m->n_target; i++) {
        const target *t = &m->target[i];
        const char **pipe = weft_arena_array(m->arena, 65, sizeof *pipe); /* indexed by slot */
        for (uint32_t k = 0; k < t->n; k++) {
            int32_t start = t->group[k].first->mig_start;
            WEFT_TRY(add_slice(m, t, &t->group[k], &pipe[start < 0 || start > 63 ? 64 : start]));
        }
    }
    return WEFT_ERR_OK;
}
