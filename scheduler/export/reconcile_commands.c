/* The stages of a change as commands of the engine that runs the workers: a script, and the files
 * that it uses.
 *
 *   ENGINE/    the export of the new plan; for Slurm and systemd with the copies that run meanwhile
 *   front-K/   the export of the front after the starts of stage K
 *
 * Kubernetes counts replicas: a worker that starts or ends is one more or one less of its group,
 * and the cluster chooses where. */
#include "scheduler/export/reconcile_int.h"

#include "base/hash.h"
#include "base/map.h"

#include <string.h>

typedef struct writer {
    change *c;
    weft_reconciliation *r;
    weft_buf buf;
    weft_map *replicas; /* Kubernetes: of each group, by hash of its name */
    WEFT_VEC(weft_export_file) files;
} writer;

/* -- Files ------------------------------------------------------------------------------------- */

static weft_err add_export(writer *w, const weft_exporter *exporter, const weft_plan *plan,
                           const char *folder)
{
    const weft_export_file *file;
    size_t n;
    weft_export_options o = w->c->o->how;
    o.some_nodes = true;
    WEFT_TRY(exporter->run(plan, &o, w->c->arena, w->c->diag, &file, &n));
    for (size_t i = 0; i < n; i++) {
        weft_export_file one = file[i];
        one.path = weft_arena_printf(w->c->arena, "%s/%s", folder, file[i].path);
        WEFT_VEC_PUSH(w->c->arena, &w->files, one);
    }
    return WEFT_ERR_OK;
}

static bool is_exported(const change_unit *u)
{
    return u->stays || u->copy_of != UINT32_MAX;
}

/* -- Slurm ------------------------------------------------------------------------------------- */

static void begin_slurm(writer *w)
{
    weft_buf_puts(
        &w->buf, "waits() {\n"
                 "    message=$1\n"
                 "    n=0\n"
                 "    shift\n"
                 "    while ! \"$@\"; do\n"
                 "        n=$((n + 1))\n"
                 "        [ \"$n\" -lt \"${WEFT_WAIT_S:-600}\" ] || { echo \"reconcile: $message\" "
                 ">&2; exit 1; }\n"
                 "        sleep 1\n"
                 "    done\n"
                 "}\n"
                 "is_ready() { sh \"$here/slurm/addresses.sh\" | cut -d ' ' -f 1 | grep -qxF "
                 "\"$1\"; }\n"
                 "is_gone() { jobs=$(squeue --me -h -n \"$1\") && [ -z \"$jobs\" ]; }\n"
                 "ready() { waits \"$1 does not get ready\" is_ready \"$1\"; }\n"
                 "gone() { waits \"$1 does not end\" is_gone \"$1\"; }\n");
}

static void start_slurm(writer *w, const weft_reconcile_stage *s)
{
    for (uint32_t i = 0; i < s->n_start; i++)
        weft_buf_printf(&w->buf, "sbatch \"$here/slurm/jobs/%s.sh\"\n", s->start[i].name);
    for (uint32_t i = 0; i < s->n_start; i++)
        weft_buf_printf(&w->buf, "ready %s\n", s->start[i].name);
}

static void stop_slurm(writer *w, const weft_reconcile_stage *s)
{
    for (uint32_t i = 0; i < s->n_stop; i++)
        weft_buf_printf(&w->buf, "scancel --me --name=%s\n", s->stop[i].name);
    for (uint32_t i = 0; i < s->n_stop; i++)
        weft_buf_printf(&w->buf, "gone %s\n", s->stop[i].name);
}

static void front_slurm(writer *w, size_t stage)
{
    weft_buf_printf(&w->buf,
                    "sh \"$here/slurm/addresses.sh\" | sh \"$here/front-%zu/update.sh\" %s -\n",
                    stage, w->c->to->o.socket);
}

/* -- systemd ----------------------------------------------------------------------------------- */

/* Copies may run on nodes that neither plan has. */
static const char *address_of(const writer *w, const char *node)
{
    return weft_export__address_of(w->c->to, node);
}

/* Copies the units and the plans of each node where workers start. */
static void begin_systemd(writer *w)
{
    weft_map *seen = weft_map_create(w->c->arena);
    for (size_t k = 0; k < w->r->n_stage; k++)
        for (uint32_t i = 0; i < w->r->stage[k].n_start; i++) {
            const char *node = w->r->stage[k].start[i].node, *address = address_of(w, node);
            uint64_t key = weft_hash64(node, strlen(node), 0);
            if (weft_map_get(seen, key, &(uint64_t){0}))
                continue;
            weft_map_put(seen, key, 1);
            const char *host = weft_export__host_of(w->c->arena, address);
            const char *config = w->c->to->o.config;
            weft_buf_printf(&w->buf,
                            "ssh root@%s mkdir -p %s/plans\n"
                            "scp -q \"$here/systemd/%s\"/*.service \"$here/systemd/%s\"/*.target "
                            "root@%s:/etc/systemd/system/\n"
                            "scp -q \"$here/systemd/%s\"/plans/*.json root@%s:%s/plans/\n"
                            "systemctl --host=root@%s daemon-reload\n",
                            address, config, node, node, host, node, host, config, host);
        }
}

static void call_systemd(writer *w, const char *verb, const weft_reconcile_worker *worker,
                         uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        weft_buf_printf(&w->buf, "systemctl --host=root@%s %s %s.service\n",
                        weft_export__host_of(w->c->arena, address_of(w, worker[i].node)), verb,
                        worker[i].name);
}

/* Writes which MIG instances the workers that start have; one that is not known has no file, which
 * ends its start. */
static void find_instances(writer *w, const weft_reconcile_stage *s)
{
    weft_map *seen = weft_map_create(w->c->arena);
    for (uint32_t i = 0; i < s->n_start; i++) {
        const char *node = s->start[i].node;
        uint64_t key = weft_hash64(node, strlen(node), 0);
        if (s->start[i].at[0]->mig_start < 0 || weft_map_get(seen, key, &(uint64_t){0}))
            continue;
        weft_map_put(seen, key, 1);
        weft_buf_printf(&w->buf, "ssh root@%s sh -s -- %s/devices", address_of(w, node),
                        w->c->to->o.config);
        for (uint32_t k = i; k < s->n_start; k++)
            if (strcmp(s->start[k].node, node) == 0 && s->start[k].at[0]->mig_start >= 0)
                weft_buf_printf(&w->buf, " %s", s->start[k].name);
        weft_buf_printf(&w->buf,
                        " <\"$here/systemd/%s/devices.sh\" || echo \"%s: not all instances are "
                        "known\" >&2\n",
                        node, node);
    }
}

static void start_systemd(writer *w, const weft_reconcile_stage *s)
{
    find_instances(w, s);
    call_systemd(w, "start", s->start, s->n_start);
}

static void stop_systemd(writer *w, const weft_reconcile_stage *s)
{
    call_systemd(w, "stop", s->stop, s->n_stop);
    for (uint32_t i = 0; i < s->n_stop; i++)
        if (s->stop[i].at[0]->mig_start >= 0)
            weft_buf_printf(&w->buf, "ssh root@%s rm -f %s/devices/%s.env\n",
                            address_of(w, s->stop[i].node), w->c->to->o.config, s->stop[i].name);
}

static void front_socket(writer *w, size_t stage)
{
    weft_buf_printf(&w->buf, "sh \"$here/front-%zu/update.sh\" %s\n", stage, w->c->to->o.socket);
}

/* -- Kubernetes -------------------------------------------------------------------------------- */

static uint64_t replicas_of(const writer *w, const char *group)
{
    uint64_t n = 0;
    (void)weft_map_get(w->replicas, weft_hash64(group, strlen(group), 0), &n);
    return n;
}

static void set_replicas(writer *w, const char *group, uint64_t n)
{
    weft_map_put(w->replicas, weft_hash64(group, strlen(group), 0), n);
}

static void begin_kubernetes(writer *w)
{
    w->replicas = weft_map_create(w->c->arena);
    for (uint32_t i = 0; i < w->c->from->n_worker; i++) {
        const char *group = w->c->from->group[w->c->from->worker[i].group].name;
        set_replicas(w, group, replicas_of(w, group) + 1);
    }
    weft_buf_puts(&w->buf, "kubectl apply -k \"$here/kubernetes/base\"\n"
                           "kubectl apply -k \"$here/kubernetes/services\"\n");
}

/* Scales each group of a list by the number of its workers there. */
static void scale(writer *w, const weft_reconcile_worker *list, uint32_t n, bool up)
{
    weft_map *seen = weft_map_create(w->c->arena);
    for (uint32_t i = 0; i < n; i++) {
        const char *group = list[i].group;
        uint64_t key = weft_hash64(group, strlen(group), 0), now, more = 0;
        if (weft_map_get(seen, key, &more))
            continue;
        for (uint32_t k = i; k < n; k++)
            more += strcmp(list[k].group, group) == 0;
        weft_map_put(seen, key, 1);
        bool exists = weft_map_get(w->replicas, key, &now);
        now = exists ? now : 0;
        now = up ? now + more : now - more;
        set_replicas(w, group, now);
        if (!exists)
            weft_buf_printf(&w->buf,
                            "kubectl apply -f \"$here/kubernetes/device-plugin/deployments.yaml\" "
                            "-l weft/group=%s\n",
                            group);
        weft_buf_printf(&w->buf, "kubectl scale deployment/%s --replicas=%llu\n", group,
                        (unsigned long long)now);
    }
    for (uint32_t i = 0; i < weft_map_len(seen) && up; i++)
        for (uint32_t k = 0; k < n; k++) {
            uint64_t key, value;
            weft_map_entry(seen, i, &key, &value);
            if (weft_hash64(list[k].group, strlen(list[k].group), 0) != key)
                continue;
            weft_buf_printf(&w->buf, "kubectl rollout status deployment/%s --timeout=600s\n",
                            list[k].group);
            break;
        }
}

static void start_kubernetes(writer *w, const weft_reconcile_stage *s)
{
    scale(w, s->start, s->n_start, true);
}

static void stop_kubernetes(writer *w, const weft_reconcile_stage *s)
{
    scale(w, s->stop, s->n_stop, false);
}

/* A Deployment replaces its pods by its own strategy, which the order has allowed for. */
static void roll_kubernetes(writer *w, const weft_reconcile_stage *s)
{
    weft_buf_printf(&w->buf,
                    "kubectl apply -f \"$here/kubernetes/device-plugin/deployments.yaml\" "
                    "-l weft/group=%s\n"
                    "kubectl rollout status deployment/%s --timeout=%us\n",
                    s->start[0].group, s->start[0].group, 600 * s->n_start);
}

static void front_gateway(writer *w, size_t stage)
{
    weft_buf_printf(&w->buf, "kubectl apply -f \"$here/front-%zu/routes.yaml\"\n", stage);
}

/* Groups that the new plan does not have are gone for good. */
static void end_kubernetes(writer *w)
{
    for (uint32_t i = 0; i < w->c->from->n_group; i++) {
        const char *group = w->c->from->group[i].name;
        if (replicas_of(w, group) == 0)
            weft_buf_printf(&w->buf,
                            "kubectl delete deployment/%s service/%s poddisruptionbudget/%s\n",
                            group, group, group);
    }
}

/* -- Engines ----------------------------------------------------------------------------------- */

typedef struct engine {
    const char *name, *front;
    void (*begin)(writer *w);
    void (*start)(writer *w, const weft_reconcile_stage *s);
    void (*traffic)(writer *w, size_t stage);
    void (*stop)(writer *w, const weft_reconcile_stage *s);
    void (*end)(writer *w); /* NULL: nothing */
} engine;

static const engine engines[] = {
    {"kubernetes", "gateway", begin_kubernetes, start_kubernetes, front_gateway, stop_kubernetes,
     end_kubernetes},
    {"slurm", "haproxy", begin_slurm, start_slurm, front_slurm, stop_slurm, NULL},
    {"systemd", "haproxy", begin_systemd, start_systemd, front_socket, stop_systemd, NULL},
};

bool weft_change__counts(const weft_exporter *exporter)
{
    return exporter && strcmp(exporter->name, "kubernetes") == 0;
}

static const engine *find_engine(const char *name)
{
    for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++)
        if (strcmp(engines[i].name, name) == 0)
            return &engines[i];
    return NULL;
}

/* New MIG instances are made by no command here. */
static void write_instances(writer *w, const weft_reconcile_stage *s)
{
    for (uint32_t i = 0; i < s->n_start; i++) {
        const weft_placement *p = s->start[i].at[0];
        if (p->mig_start >= 0)
            weft_buf_printf(&w->buf, "# needs an instance %s at slot %d of GPU %u of %s\n",
                            p->slice, p->mig_start, s->start[i].gpu, s->start[i].node);
    }
}

static weft_err write_stages(writer *w, const engine *e, const weft_exporter *front)
{
    for (size_t k = 0; k < w->r->n_stage; k++) {
        const weft_reconcile_stage *s = &w->r->stage[k];
        weft_buf_printf(&w->buf, "echo 'reconcile: stage %zu of %zu: %u start, %u end' >&2\n",
                        k + 1, w->r->n_stage, s->n_start, s->n_stop);
        if (s->rolls) {
            roll_kubernetes(w, s);
            continue;
        }
        write_instances(w, s);
        e->start(w, s);
        if (front) {
            const char *folder = weft_arena_printf(w->c->arena, "front-%zu", k + 1);
            WEFT_TRY(add_export(w, front, s->plan, folder));
            e->traffic(w, k + 1);
        }
        e->stop(w, s);
    }
    return WEFT_ERR_OK;
}

weft_err weft_change__commands(change *c, weft_reconciliation *r)
{
    const weft_exporter *front = c->o->front;
    const engine *e = find_engine(c->o->engine->name);
    writer w = {.c = c, .r = r};
    if (!e)
        return weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){.item = c->o->engine->name},
                               "is no engine that runs workers; kubernetes, slurm and systemd are");
    if (front && strcmp(front->name, e->front) != 0)
        return weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){.item = front->name},
                               "is no front of %s; %s is", e->name, e->front);
    const weft_plan *plan =
        weft_change__counts(c->o->engine) ? r->plan : weft_change__plan(c, is_exported);
    WEFT_TRY(add_export(&w, c->o->engine, plan, e->name));
    weft_buf_puts(&w.buf, "#!/bin/sh\nset -eu\nhere=$(cd \"$(dirname \"$0\")\" && pwd)\n");
    if (r->n_stage > 0)
        e->begin(&w);
    weft_err err = write_stages(&w, e, front);
    if (e->end && r->n_stage > 0)
        e->end(&w);
    r->script = weft_buf_keep(&w.buf, c->arena);
    r->file = w.files.at;
    r->n_file = w.files.len;
    return err;
}
