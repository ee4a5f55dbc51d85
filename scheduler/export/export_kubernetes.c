/* Exports to Kubernetes: manifests for kustomize.
 *
 *   kustomization.yaml   refers to device-plugin, so that `kubectl apply -k DIR` works
 *   base/                for each group of workers a ConfigMap with its part of the plan, and a
 *                        PodDisruptionBudget
 *   services/            for each group a Service, and for each model a Service over all groups
 *                        that serve it; a NetworkPolicy that allows their ports and nothing else
 *   device-plugin/       for each group a Deployment; slices are the resources
 *                        nvidia.com/mig-PROFILE, nvidia.com/gpu and nvidia.com/gpu.shared
 *   dra/                 the same Deployments with resource claims (resource.k8s.io/v1). The MPS
 *                        shares of a GPU have one claim, so each of them is a Deployment
 *   kserve/              for each group a ServingRuntime and an InferenceService
 *   monitor/             a PodMonitor, apart because most clusters do not have this kind
 *
 * Nodes must have the label weft/device-type. The bundle is on a volume claim or in an image, which
 * is mounted read-only at the folder of the bundle, or an init container gets it from a store.
 * Probes ask a port of their own (--health), which is answered under any load and needs no key. */
#include "scheduler/export/yaml_words.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

typedef enum style { STYLE_PLUGIN, STYLE_DRA, STYLE_KSERVE } style;

static const char plan_folder[] = "/etc/weft/plan";

/* Routers forget an ended pod within PRE_STOP_S, in which it still answers; then it has its drain
 * time of 30 s. */
enum { PRE_STOP_S = 5, GRACE_S = 45 };

/* Ports of a worker, in the order of their numbers. */
static const struct {
    const char *name, *flag;
    bool service; /* other pods may ask it */
} ports[] = {{"http", "--http", true},
             {"grpc", "--grpc", true},
             {"metrics", "--metrics", true},
             {"health", "--health", false}};
enum { PORTS = sizeof ports / sizeof ports[0] };

/* Leaves the metadata open. */
static void open_object(weft_export_yaml *y, const char *api, const char *kind, const char *name)
{
    weft_export_yaml__document(y);
    weft_export_yaml__map(y);
    put(y, "apiVersion", api);
    put(y, "kind", kind);
    open_map(y, "metadata");
    put(y, "name", name);
}

/* By this label the objects of former exports can be found. */
static void put_instance(weft_export_yaml *y, const export_ctx *ctx)
{
    put(y, "app.kubernetes.io/instance", ctx->o.name);
}

static void begin_object(weft_export_yaml *y, const export_ctx *ctx, const char *api,
                         const char *kind, const char *name)
{
    open_object(y, api, kind, name);
    open_map(y, "labels");
    put_instance(y, ctx);
    end_map(y);
    end_map(y);
}

static weft_err add_file(export_ctx *ctx, weft_export_yaml *y, const char *path)
{
    char *text = weft_export_yaml__finish(y);
    if (!text)
        return WEFT_ERR_NOMEM;
    weft_export__add(ctx, path, text, false);
    free(text);
    return WEFT_ERR_OK;
}

/* -- Kustomizations --------------------------------------------------------------------------- */

static weft_err add_kustomization(export_ctx *ctx, const char *folder, const char *const *resource,
                                  size_t n)
{
    weft_export_yaml y;
    weft_export_yaml__begin(&y);
    weft_export_yaml__document(&y);
    weft_export_yaml__map(&y);
    put(&y, "apiVersion", "kustomize.config.k8s.io/v1beta1");
    put(&y, "kind", "Kustomization");
    open_seq(&y, "resources");
    for (size_t i = 0; i < n; i++)
        weft_export_yaml__text(&y, resource[i]);
    end_seq(&y);
    end_map(&y);
    return add_file(ctx, &y, weft_arena_printf(ctx->arena, "%skustomization.yaml", folder));
}

/* The name of a ConfigMap contains a hash of its plan, so that another plan is another pod, which a
 * Deployment rolls out and back. The generator would not put its own hash into the references of
 * custom resources. */
static const char *config_name(const export_ctx *ctx, const export_group *g)
{
    const char *plan = ctx->worker[g->first].plan;
    return weft_arena_printf(ctx->arena, "%s-%016llx", g->name,
                             (unsigned long long)weft_hash64(plan, strlen(plan), 0));
}

/* One budget a pod: of a pod with two the cluster refuses every eviction. A group of one worker may
 * lose it, since a node could otherwise never be drained. */
static weft_err add_budgets(export_ctx *ctx)
{
    weft_export_yaml y;
    weft_export_yaml__begin(&y);
    for (uint32_t i = 0; i < ctx->n_group; i++) {
        begin_object(&y, ctx, "policy/v1", "PodDisruptionBudget", ctx->group[i].name);
        open_map(&y, "spec");
        put_number(&y, "maxUnavailable", 1);
        put(&y, "unhealthyPodEvictionPolicy", "AlwaysAllow");
        open_map(&y, "selector");
        open_map(&y, "matchLabels");
        put(&y, "weft/group", ctx->group[i].name);
        end_map(&y);
        end_map(&y);
        end_map(&y);
        end_map(&y);
    }
    return add_file(ctx, &y, "base/disruption-budgets.yaml");
}

static weft_err add_base(export_ctx *ctx)
{
    weft_export_yaml y;
    WEFT_TRY(add_budgets(ctx));
    weft_export_yaml__begin(&y);
    weft_export_yaml__document(&y);
    weft_export_yaml__map(&y);
    put(&y, "apiVersion", "kustomize.config.k8s.io/v1beta1");
    put(&y, "kind", "Kustomization");
    open_map(&y, "generatorOptions");
    put_bool(&y, "disableNameSuffixHash", true);
    open_map(&y, "labels");
    put_instance(&y, ctx);
    end_map(&y);
    end_map(&y);
    open_seq(&y, "resources");
    weft_export_yaml__text(&y, "disruption-budgets.yaml");
    end_seq(&y);
    open_seq(&y, "configMapGenerator");
    for (uint32_t i = 0; i < ctx->n_group; i++) {
        const export_group *g = &ctx->group[i];
        const char *path = weft_arena_printf(ctx->arena, "plans/%s.json", g->name);
        weft_export_yaml__map(&y);
        put(&y, "name", config_name(ctx, g));
        open_seq(&y, "files");
        weft_export_yaml__text(&y, weft_arena_printf(ctx->arena, "plan.json=%s", path));
        end_seq(&y);
        end_map(&y);
        weft_export__add(ctx, weft_arena_printf(ctx->arena, "base/%s", path),
                         ctx->worker[g->first].plan, false);
    }
    end_seq(&y);
    end_map(&y);
    return add_file(ctx, &y, "base/kustomization.yaml");
}

/* -- Services --------------------------------------------------------------------------------- */

static void write_service(weft_export_yaml *y, const export_ctx *ctx, const char *name,
                          const char *key, const char *value)
{
    begin_object(y, ctx, "v1", "Service", name);
    open_map(y, "spec");
    open_map(y, "selector");
    put(y, key, value);
    end_map(y);
    open_seq(y, "ports");
    for (uint32_t i = 0; i < PORTS && ports[i].service; i++) {
        weft_export_yaml__map(y);
        put(y, "name", ports[i].name);
        put_number(y, "port", ctx->o.port + i);
        put(y, "targetPort", ports[i].name);
        end_map(y);
    }
    end_seq(y);
    end_map(y);
    end_map(y);
}

static void write_port(weft_export_yaml *y, const char *protocol, int64_t port)
{
    weft_export_yaml__map(y);
    put(y, "protocol", protocol);
    put_number(y, "port", port);
    end_map(y);
}

/* What gets the bundle asks for names, and on the port of the store. */
static void write_egress(weft_export_yaml *y, const char *url)
{
    open_seq(y, "egress");
    weft_export_yaml__map(y);
    open_seq(y, "ports");
    write_port(y, "UDP", 53);
    write_port(y, "TCP", 53);
    write_port(y, "TCP", weft_export__store_port(url));
    end_seq(y);
    end_map(y);
    end_seq(y);
}

/* Workers are asked on their ports and ask nobody. Probes come from the node, which no policy keeps
 * out. */
static weft_err add_network_policy(export_ctx *ctx)
{
    weft_export_yaml y;
    weft_export_yaml__begin(&y);
    begin_object(&y, ctx, "networking.k8s.io/v1", "NetworkPolicy", ctx->o.name);
    open_map(&y, "spec");
    open_map(&y, "podSelector");
    open_map(&y, "matchLabels");
    put_instance(&y, ctx);
    end_map(&y);
    end_map(&y);
    open_seq(&y, "policyTypes");
    weft_export_yaml__text(&y, "Ingress");
    weft_export_yaml__text(&y, "Egress");
    end_seq(&y);
    open_seq(&y, "ingress");
    weft_export_yaml__map(&y);
    open_seq(&y, "ports");
    for (int i = 0; i < PORTS && ports[i].service; i++) {
        weft_export_yaml__map(&y);
        put(&y, "port", ports[i].name);
        end_map(&y);
    }
    end_seq(&y);
    end_map(&y);
    end_seq(&y);
    if (ctx->o.store)
        write_egress(&y, ctx->o.store);
    end_map(&y);
    end_map(&y);
    return add_file(ctx, &y, "services/network-policy.yaml");
}

static weft_err add_services(export_ctx *ctx)
{
    static const char *const files[] = {"services.yaml", "network-policy.yaml"};
    weft_export_yaml y;
    weft_export_yaml__begin(&y);
    for (uint32_t i = 0; i < ctx->n_group; i++)
        write_service(&y, ctx, ctx->group[i].name, "weft/group", ctx->group[i].name);
    for (uint32_t i = 0; i < ctx->n_model; i++) {
        const char *name = weft_arena_printf(ctx->arena, "%s-model-%s", ctx->o.name, ctx->model[i]);
        write_service(&y, ctx, weft_export__label(ctx->arena, name, WEFT_EXPORT_LABEL_MAX),
                      weft_export__model_key(ctx, ctx->model[i]), "true");
    }
    WEFT_TRY(add_file(ctx, &y, "services/services.yaml"));
    WEFT_TRY(add_network_policy(ctx));
    return add_kustomization(ctx, "services/", files, 2);
}

/* -- Monitor ---------------------------------------------------------------------------------- */

static weft_err add_monitor(export_ctx *ctx)
{
    static const char *const files[] = {"pod-monitor.yaml"};
    weft_export_yaml y;
    weft_export_yaml__begin(&y);
    begin_object(&y, ctx, "monitoring.coreos.com/v1", "PodMonitor", ctx->o.name);
    open_map(&y, "spec");
    open_map(&y, "selector");
    open_map(&y, "matchLabels");
    put_instance(&y, ctx);
    end_map(&y);
    end_map(&y);
    open_seq(&y, "podTargetLabels");
    weft_export_yaml__text(&y, "weft/group");
    end_seq(&y);
    open_seq(&y, "podMetricsEndpoints");
    weft_export_yaml__map(&y);
    put(&y, "port", "metrics");
    put(&y, "path", "/metrics");
    end_map(&y);
    end_seq(&y);
    end_map(&y);
    end_map(&y);
    WEFT_TRY(add_file(ctx, &y, "monitor/pod-monitor.yaml"));
    return add_kustomization(ctx, "monitor/", files, 1);
}

/* -- Containers ------------------------------------------------------------------------------- */

static const char *resource_of(const export_ctx *ctx, const export_worker *w)
{
    switch (w->kind) {
    case WEFT_SLICE_MIG:
        return weft_arena_printf(ctx->arena, "nvidia.com/mig-%s", w->slice);
    case WEFT_SLICE_MPS:
        return "nvidia.com/gpu.shared";
    default:
        return "nvidia.com/gpu";
    }
}

/* With an integer number of cores and equal request and limit, the static CPU manager policy of the
 * kubelet pins the container to cores. Workers on GPUs have no limit of CPU and memory: the driver
 * takes memory of the host that no plan knows. */
static void write_resources(weft_export_yaml *y, const export_ctx *ctx, const export_worker *w,
                            style how)
{
    bool cpu = w->kind == WEFT_SLICE_CORES;
    uint64_t mib = weft_export__request_mib(w);
    const char *memory = weft_arena_printf(ctx->arena, "%lluMi", (unsigned long long)mib);
    if (cpu && w->cores == 0)
        return;
    open_map(y, "resources");
    if (!cpu && how == STYLE_DRA) {
        open_seq(y, "claims");
        weft_export_yaml__map(y);
        put(y, "name", "slice");
        end_map(y);
        end_seq(y);
    }
    open_map(y, "requests");
    put_number(y, "cpu", cpu ? w->cores : WEFT_EXPORT_GPU_CPUS);
    if (mib > 0)
        put(y, "memory", memory);
    end_map(y);
    if (cpu || how != STYLE_DRA) {
        open_map(y, "limits");
        put_number(y, cpu ? "cpu" : resource_of(ctx, w), cpu ? w->cores : 1);
        if (cpu && mib > 0)
            put(y, "memory", memory);
        end_map(y);
    }
    end_map(y);
}

static void write_probe(weft_export_yaml *y, const char *probe, const char *path, int64_t failures)
{
    open_map(y, probe);
    open_map(y, "httpGet");
    put(y, "path", path);
    put(y, "port", "health");
    end_map(y);
    put_number(y, "periodSeconds", 10);
    put_number(y, "failureThreshold", failures);
    end_map(y);
}

static void write_lifecycle(weft_export_yaml *y)
{
    open_map(y, "lifecycle");
    open_map(y, "preStop");
    open_map(y, "sleep");
    put_number(y, "seconds", PRE_STOP_S);
    end_map(y);
    end_map(y);
    end_map(y);
}

static void write_security(weft_export_yaml *y)
{
    open_map(y, "securityContext");
    put_bool(y, "allowPrivilegeEscalation", false);
    put_bool(y, "readOnlyRootFilesystem", true);
    open_map(y, "capabilities");
    open_seq(y, "drop");
    weft_export_yaml__text(y, "ALL");
    end_seq(y);
    end_map(y);
    end_map(y);
}

static void write_arguments(weft_export_yaml *y, const export_ctx *ctx, const char *bundle,
                            const uint32_t *port)
{
    open_seq(y, "command");
    weft_export_yaml__text(y, ctx->o.weft);
    end_seq(y);
    open_seq(y, "args");
    weft_export_yaml__text(y, "serve");
    weft_export_yaml__text(y, bundle);
    weft_export_yaml__text(y, weft_arena_printf(ctx->arena, "%s/plan.json", plan_folder));
    weft_export_yaml__text(y, "--address");
    weft_export_yaml__text(y, "0.0.0.0");
    for (int i = 0; i < PORTS; i++) {
        weft_export_yaml__text(y, ports[i].flag);
        weft_export_yaml__text(y, weft_arena_printf(ctx->arena, "%u", port[i]));
    }
    end_seq(y);
}

static void write_models_mount(weft_export_yaml *y, const export_ctx *ctx, bool read_only)
{
    weft_export_yaml__map(y);
    put(y, "name", "models");
    put(y, "mountPath", weft_export__bundle_folder(ctx));
    if (read_only)
        put_bool(y, "readOnly", true);
    end_map(y);
}

/* Gets the bundle from the store. Pods of one claim wait for the first, and then have it. */
static void write_init_container(weft_export_yaml *y, const export_ctx *ctx)
{
    const char *const argument[] = {"pull",
                                    ctx->o.store,
                                    ctx->o.digest,
                                    "-o",
                                    ctx->o.bundle,
                                    "--have",
                                    weft_export__bundle_folder(ctx)};
    open_seq(y, "initContainers");
    weft_export_yaml__map(y);
    put(y, "name", "bundle");
    put(y, "image", ctx->o.image);
    open_seq(y, "command");
    weft_export_yaml__text(y, ctx->o.weft);
    end_seq(y);
    open_seq(y, "args");
    for (size_t i = 0; i < sizeof argument / sizeof argument[0]; i++)
        weft_export_yaml__text(y, argument[i]);
    end_seq(y);
    write_security(y);
    open_seq(y, "volumeMounts");
    write_models_mount(y, ctx, false);
    end_seq(y);
    end_map(y);
    end_seq(y);
}

static void write_container(weft_export_yaml *y, const export_ctx *ctx, const export_worker *w,
                            style how, const char *bundle, const uint32_t *port)
{
    weft_export_yaml__map(y);
    put(y, "name", how == STYLE_KSERVE ? "kserve-container" : "weft");
    put(y, "image", ctx->o.image);
    write_arguments(y, ctx, bundle, port);
    if (w->kind == WEFT_SLICE_MPS) {
        open_seq(y, "env");
        weft_export_yaml__map(y);
        put(y, "name", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
        put(y, "value", weft_arena_printf(ctx->arena, "%u", w->percent));
        end_map(y);
        end_seq(y);
    }
    open_seq(y, "ports");
    for (int i = 0; i < PORTS; i++) {
        weft_export_yaml__map(y);
        put(y, "name", how == STYLE_KSERVE && i == 1 ? "h2c" : ports[i].name);
        put_number(y, "containerPort", port[i]);
        end_map(y);
    }
    end_seq(y);
    write_resources(y, ctx, w, how);
    write_probe(y, "startupProbe", "/v2/health/live", 30);
    write_probe(y, "livenessProbe", "/v2/health/live", 3);
    write_probe(y, "readinessProbe", "/v2/health/ready", 3);
    write_lifecycle(y);
    write_security(y);
    open_seq(y, "volumeMounts");
    if (how != STYLE_KSERVE)
        write_models_mount(y, ctx, true);
    weft_export_yaml__map(y);
    put(y, "name", "plan");
    put(y, "mountPath", plan_folder);
    put_bool(y, "readOnly", true);
    end_map(y);
    /* For the unnamed copy of the bundle. */
    weft_export_yaml__map(y);
    put(y, "name", "tmp");
    put(y, "mountPath", "/var/tmp");
    end_map(y);
    end_seq(y);
    end_map(y);
}

static void write_bundle_volume(weft_export_yaml *y, const export_ctx *ctx)
{
    weft_export_yaml__map(y);
    put(y, "name", "models");
    if (ctx->o.bundle_image) {
        open_map(y, "image");
        put(y, "reference", ctx->o.bundle_image);
        put(y, "pullPolicy", "IfNotPresent");
    } else if (ctx->o.claim) {
        open_map(y, "persistentVolumeClaim");
        put(y, "claimName", ctx->o.claim);
        if (!ctx->o.store)
            put_bool(y, "readOnly", true);
    } else {
        open_map(y, "emptyDir");
        put(y, "medium", "");
    }
    end_map(y);
    end_map(y);
}

static void write_volumes(weft_export_yaml *y, const char *config)
{
    weft_export_yaml__map(y);
    put(y, "name", "tmp");
    open_map(y, "emptyDir");
    put(y, "medium", "");
    end_map(y);
    end_map(y);
    weft_export_yaml__map(y);
    put(y, "name", "plan");
    open_map(y, "configMap");
    put(y, "name", config);
    end_map(y);
    end_map(y);
}

/* -- Deployments ------------------------------------------------------------------------------ */

/* Kueue reads `queue` (NULL: none) from the Deployment and hands it to the pods. */
static void write_labels(weft_export_yaml *y, const export_ctx *ctx, const export_worker *w,
                         const char *name, const char *queue)
{
    open_map(y, "labels");
    put(y, "app.kubernetes.io/name", "weft");
    put_instance(y, ctx);
    put(y, "weft/worker", name);
    put(y, "weft/group", ctx->group[w->group].name);
    for (uint32_t i = 0; i < ctx->n_model; i++)
        for (size_t k = 0; k < w->n_model; k++)
            if (strcmp(w->model[k], ctx->model[i]) == 0) {
                put(y, weft_export__model_key(ctx, ctx->model[i]), "true");
                break;
            }
    if (queue)
        put(y, "kueue.x-k8s.io/queue-name", queue);
    end_map(y);
}

static void write_claims(weft_export_yaml *y, const export_ctx *ctx, const export_worker *w)
{
    if (w->kind == WEFT_SLICE_CORES)
        return;
    open_seq(y, "resourceClaims");
    weft_export_yaml__map(y);
    put(y, "name", "slice");
    if (w->kind == WEFT_SLICE_MPS)
        put(y, "resourceClaimName",
            weft_arena_printf(ctx->arena, "%s-d%u", ctx->o.name, w->device));
    else
        put(y, "resourceClaimTemplateName", ctx->group[w->group].name);
    end_map(y);
    end_seq(y);
}

static void write_pod(weft_export_yaml *y, const export_ctx *ctx, const export_worker *w, style how)
{
    const uint32_t port[PORTS] = {ctx->o.port, ctx->o.port + 1, ctx->o.port + 2, ctx->o.port + 3};
    open_map(y, "spec");
    put_number(y, "terminationGracePeriodSeconds", GRACE_S);
    weft_export__write_scheduling(y, ctx, w);
    open_map(y, "securityContext");
    put_bool(y, "runAsNonRoot", true);
    put_number(y, "runAsUser", 1000);
    if (ctx->o.store) {
        put_number(y, "fsGroup", 1000); /* the claim can be written */
        put(y, "fsGroupChangePolicy", "OnRootMismatch");
    }
    open_map(y, "seccompProfile");
    put(y, "type", "RuntimeDefault");
    end_map(y);
    end_map(y);
    put_bool(y, "automountServiceAccountToken", false);
    if (how == STYLE_DRA)
        write_claims(y, ctx, w);
    if (ctx->o.store)
        write_init_container(y, ctx);
    open_seq(y, "containers");
    write_container(y, ctx, w, how, ctx->o.bundle, port);
    end_seq(y);
    open_seq(y, "volumes");
    write_bundle_volume(y, ctx);
    write_volumes(y, config_name(ctx, &ctx->group[w->group]));
    end_seq(y);
    end_map(y);
}

static void write_strategy(weft_export_yaml *y, bool in_place)
{
    open_map(y, "strategy");
    put(y, "type", "RollingUpdate");
    open_map(y, "rollingUpdate");
    put_number(y, "maxSurge", in_place ? 0 : 1);
    put_number(y, "maxUnavailable", in_place ? 1 : 0);
    end_map(y);
    end_map(y);
}

static void write_deployment(weft_export_yaml *y, const export_ctx *ctx, const export_worker *w,
                             const char *name, uint32_t replicas, style how)
{
    open_object(y, "apps/v1", "Deployment", name);
    write_labels(y, ctx, w, name, ctx->o.queue);
    end_map(y);
    open_map(y, "spec");
    put_number(y, "replicas", replicas);
    /* The shares of a claim are a Deployment each: in place, all of a group would end at once.
     * Their successors use the same claim, so that they need no free slice. */
    write_strategy(y, ctx->o.in_place && !(how == STYLE_DRA && w->kind == WEFT_SLICE_MPS));
    open_map(y, "selector");
    open_map(y, "matchLabels");
    put(y, "weft/worker", name);
    end_map(y);
    end_map(y);
    open_map(y, "template");
    open_map(y, "metadata");
    write_labels(y, ctx, w, name, NULL);
    end_map(y);
    write_pod(y, ctx, w, how);
    end_map(y);
    end_map(y);
    end_map(y);
}

static weft_err add_deployments(export_ctx *ctx, const char *path, style how)
{
    weft_export_yaml y;
    weft_export_yaml__begin(&y);
    for (uint32_t i = 0; i < ctx->n_group; i++) {
        const export_worker *w = &ctx->worker[ctx->group[i].first];
        if (how == STYLE_DRA && w->kind == WEFT_SLICE_MPS)
            continue;
        write_deployment(&y, ctx, w, ctx->group[i].name, ctx->group[i].n, how);
    }
    for (uint32_t i = 0; i < ctx->n_worker && how == STYLE_DRA; i++)
        if (ctx->worker[i].kind == WEFT_SLICE_MPS)
            write_deployment(&y, ctx, &ctx->worker[i], ctx->worker[i].name, 1, how);
    return add_file(ctx, &y, path);
}

/* -- Claims ----------------------------------------------------------------------------------- */

static void write_devices(weft_export_yaml *y, const export_ctx *ctx, const export_worker *w)
{
    open_map(y, "devices");
    open_seq(y, "requests");
    weft_export_yaml__map(y);
    put(y, "name", "slice");
    open_map(y, "exactly");
    put(y, "deviceClassName", w->kind == WEFT_SLICE_MIG ? "mig.nvidia.com" : "gpu.nvidia.com");
    if (w->kind == WEFT_SLICE_MIG) {
        open_seq(y, "selectors");
        weft_export_yaml__map(y);
        open_map(y, "cel");
        put(y, "expression",
            weft_arena_printf(ctx->arena, "device.attributes['gpu.nvidia.com'].profile == '%s'",
                              w->slice));
        end_map(y);
        end_map(y);
        end_seq(y);
    }
    end_map(y);
    end_map(y);
    end_seq(y);
    if (w->kind == WEFT_SLICE_MPS) {
        open_seq(y, "config");
        weft_export_yaml__map(y);
        open_seq(y, "requests");
        weft_export_yaml__text(y, "slice");
        end_seq(y);
        open_map(y, "opaque");
        put(y, "driver", "gpu.nvidia.com");
        open_map(y, "parameters");
        put(y, "apiVersion", "resource.nvidia.com/v1beta1");
        put(y, "kind", "GpuConfig");
        open_map(y, "sharing");
        put(y, "strategy", "MPS");
        open_map(y, "mpsConfig");
        put_number(y, "defaultActiveThreadPercentage", 100);
        end_map(y);
        end_map(y);
        end_map(y);
        end_map(y);
        end_map(y);
        end_seq(y);
    }
    end_map(y);
}

static weft_err add_claims(export_ctx *ctx, bool *any)
{
    weft_export_yaml y;
    uint32_t last = UINT32_MAX;
    weft_export_yaml__begin(&y);
    for (uint32_t i = 0; i < ctx->n_group; i++) {
        const export_worker *w = &ctx->worker[ctx->group[i].first];
        if (w->kind == WEFT_SLICE_CORES || w->kind == WEFT_SLICE_MPS)
            continue;
        *any = true;
        begin_object(&y, ctx, "resource.k8s.io/v1", "ResourceClaimTemplate", ctx->group[i].name);
        open_map(&y, "spec");
        open_map(&y, "spec");
        write_devices(&y, ctx, w);
        end_map(&y);
        end_map(&y);
        end_map(&y);
    }
    for (uint32_t i = 0; i < ctx->n_worker; i++) {
        const export_worker *w = &ctx->worker[i];
        if (w->kind != WEFT_SLICE_MPS || w->device == last)
            continue;
        *any = true;
        last = w->device;
        begin_object(&y, ctx, "resource.k8s.io/v1", "ResourceClaim",
                     weft_arena_printf(ctx->arena, "%s-d%u", ctx->o.name, w->device));
        open_map(&y, "spec");
        write_devices(&y, ctx, w);
        end_map(&y);
        end_map(&y);
    }
    if (*any)
        return add_file(ctx, &y, "dra/claims.yaml");
    free(weft_export_yaml__finish(&y));
    return WEFT_ERR_OK;
}

/* -- KServe ----------------------------------------------------------------------------------- */

static void write_runtime(weft_export_yaml *y, const export_ctx *ctx, const export_group *g)
{
    static const uint32_t port[PORTS] = {8080, 9000, 8002, 8003};
    const export_worker *w = &ctx->worker[g->first];
    const char *file = strrchr(ctx->o.bundle, '/');
    begin_object(y, ctx, "serving.kserve.io/v1alpha1", "ServingRuntime", g->name);
    open_map(y, "spec");
    open_map(y, "annotations");
    put(y, "prometheus.kserve.io/port", "8002");
    put(y, "prometheus.kserve.io/path", "/metrics");
    end_map(y);
    open_seq(y, "supportedModelFormats");
    weft_export_yaml__map(y);
    put(y, "name", "weft");
    put(y, "version", "1");
    put_bool(y, "autoSelect", false);
    end_map(y);
    end_seq(y);
    open_seq(y, "protocolVersions");
    weft_export_yaml__text(y, "v2");
    weft_export_yaml__text(y, "grpc-v2");
    end_seq(y);
    open_seq(y, "containers");
    write_container(y, ctx, w, STYLE_KSERVE, weft_arena_printf(ctx->arena, "/mnt/models%s", file),
                    port);
    end_seq(y);
    open_seq(y, "volumes");
    write_volumes(y, config_name(ctx, g));
    end_seq(y);
    end_map(y);
    end_map(y);
}

static void write_inference(weft_export_yaml *y, const export_ctx *ctx, const export_group *g)
{
    const export_worker *w = &ctx->worker[g->first];
    open_object(y, "serving.kserve.io/v1beta1", "InferenceService", g->name);
    write_labels(y, ctx, w, g->name, NULL);
    end_map(y);
    open_map(y, "spec");
    open_map(y, "predictor");
    put_number(y, "minReplicas", g->n);
    put_number(y, "maxReplicas", g->n);
    put_number(y, "terminationGracePeriodSeconds", GRACE_S);
    weft_export__write_scheduling(y, ctx, w);
    open_map(y, "model");
    open_map(y, "modelFormat");
    put(y, "name", "weft");
    put(y, "version", "1");
    end_map(y);
    put(y, "runtime", g->name);
    put(y, "protocolVersion", "v2");
    put(y, "storageUri",
        ctx->o.bundle_image ? weft_arena_printf(ctx->arena, "oci://%s", ctx->o.bundle_image)
                            : weft_arena_printf(ctx->arena, "pvc://%s", ctx->o.claim));
    end_map(y);
    end_map(y);
    end_map(y);
    end_map(y);
}

static weft_err add_kserve(export_ctx *ctx)
{
    static const char *const files[] = {"../base", "runtimes.yaml", "services.yaml"};
    weft_export_yaml y;
    weft_export_yaml__begin(&y);
    for (uint32_t i = 0; i < ctx->n_group; i++)
        write_runtime(&y, ctx, &ctx->group[i]);
    WEFT_TRY(add_file(ctx, &y, "kserve/runtimes.yaml"));
    weft_export_yaml__begin(&y);
    for (uint32_t i = 0; i < ctx->n_group; i++)
        write_inference(&y, ctx, &ctx->group[i]);
    WEFT_TRY(add_file(ctx, &y, "kserve/services.yaml"));
    return add_kustomization(ctx, "kserve/", files, 3);
}

/* Whether path is in the folder, or is it. */
static bool is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return strncmp(path, folder, len) == 0 && (path[len] == '/' || !path[len]);
}

/* The volume of the bundle hides what the image has in its folder. */
static weft_err check_bundle(const export_ctx *ctx)
{
    const char *folder = weft_export__bundle_folder(ctx);
    const char *const hidden[] = {ctx->o.weft, plan_folder, "/var/tmp", "/proc", "/sys", "/dev"};
    if (strchr(folder, ':'))
        return weft_export__fail(ctx, "bundle",
                                 "a volume is mounted at no path with a colon:", ctx->o.bundle);
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (is_below(hidden[i], folder))
            return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, (weft_where){.item = "bundle"},
                                   "its folder is mounted, and would hide %s of the container: "
                                   "'%.128s'",
                                   hidden[i], ctx->o.bundle);
    return WEFT_ERR_OK;
}

weft_err weft_export__kubernetes(export_ctx *ctx)
{
    static const char *const top[] = {"device-plugin"};
    static const char *const plugin[] = {"../base", "../services", "deployments.yaml"};
    static const char *const dra[] = {"../base", "../services", "deployments.yaml", "claims.yaml"};
    bool claims = false;
    WEFT_TRY(check_bundle(ctx));
    if (ctx->o.store && ctx->o.store[0] == '/')
        return weft_export__fail(ctx, "store", "of pods must be a URL, not", ctx->o.store);
    for (uint32_t i = 0; i < ctx->n_group; i++)
        if (strlen(ctx->worker[ctx->group[i].first].plan) > 1000000)
            return weft_diag_error(ctx->diag, WEFT_ERR_UNSUP, (weft_where){0},
                                   "the plan of one worker is over the 1 MiB of a ConfigMap");
    WEFT_TRY(add_kustomization(ctx, "", top, 1));
    WEFT_TRY(add_base(ctx));
    WEFT_TRY(add_services(ctx));
    WEFT_TRY(add_monitor(ctx));
    WEFT_TRY(add_deployments(ctx, "device-plugin/deployments.yaml", STYLE_PLUGIN));
    WEFT_TRY(add_kustomization(ctx, "device-plugin/", plugin, 3));
    WEFT_TRY(add_claims(ctx, &claims));
    WEFT_TRY(add_deployments(ctx, "dra/deployments.yaml", STYLE_DRA));
    WEFT_TRY(add_kustomization(ctx, "dra/", dra, claims ? 4 : 3));
    /* KServe brings models itself, and knows no stores. */
    return ctx->o.store ? WEFT_ERR_OK : add_kserve(ctx);
}
