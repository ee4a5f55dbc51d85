/* weft serve: a bundle behind the Open Inference Protocol. */
#include "base/num.h"
#include "runtime/runtime.h"
#include "scheduler/scheduler.h"
#include "tools/tools.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLICES_MAX = 256, CPUS_MAX = 1024 };

typedef struct options {
    weft_serve_options serve;
    const char *plan;
    int64_t cores[SLICES_MAX]; /* of each slice */
    size_t n_slice;
    weft_serve_slice slice[SLICES_MAX];
    uint32_t cpu[CPUS_MAX]; /* those this process may use */
    uint32_t n_cpu;
} options;

enum {
    OPT_HTTP = 1,
    OPT_GRPC,
    OPT_METRICS,
    OPT_ADDRESS,
    OPT_SLICES,
    OPT_MAX_REQUEST,
    OPT_DELAY,
    OPT_TIMEOUT,
    OPT_DRAIN,
    OPT_NV
};

/* -- Options -------------------------------------------------------------------------------- */

static int take_port(int *out)
{
    int64_t port = 0;
    if (strcmp(optarg, "off") == 0) {
        *out = -1;
        return 0;
    }
    if (!weft_parse_i64(optarg, &port) || port < 0 || port > 65535)
        return weft_tool_usage(&weft_verb_serve, "wrong port '%s'", optarg);
    *out = (int)port;
    return 0;
}

static int take_duration(double *out, double scale)
{
    if (!weft_parse_duration_us(optarg, out) || *out < 0)
        return weft_tool_usage(&weft_verb_serve, "'%s' is no duration like 30s or 2ms", optarg);
    *out *= scale;
    return 0;
}

static int take(options *o, int opt)
{
    switch (opt) {
    case OPT_HTTP:
        return take_port(&o->serve.http_port);
    case OPT_GRPC:
        return take_port(&o->serve.grpc_port);
    case OPT_METRICS:
        return take_port(&o->serve.metrics_port);
    case OPT_ADDRESS:
        o->serve.address = optarg;
        return 0;
    case OPT_SLICES:
        o->n_slice = weft_tool_parse_list(optarg, o->cores, SLICES_MAX);
        return o->n_slice ? 0 : weft_tool_usage(&weft_verb_serve, "wrong --slices '%s'", optarg);
    case OPT_MAX_REQUEST:
        if (!weft_parse_bytes(optarg, &o->serve.max_request_bytes) || !o->serve.max_request_bytes)
            return weft_tool_usage(&weft_verb_serve, "wrong --max-request '%s'", optarg);
        return 0;
    case OPT_DELAY:
        return take_duration(&o->serve.max_queue_delay_us, 1);
    case OPT_TIMEOUT:
        return take_duration(&o->serve.request_timeout_s, 1e-6);
    case OPT_DRAIN:
        return take_duration(&o->serve.drain_timeout_s, 1e-6);
    case OPT_NV:
        o->serve.nv_metrics = true;
        return 0;
    default:
        return weft_tool_usage(&weft_verb_serve, "wrong option");
    }
}

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    static const struct option longs[] = {{"http", required_argument, NULL, OPT_HTTP},
                                          {"grpc", required_argument, NULL, OPT_GRPC},
                                          {"metrics", required_argument, NULL, OPT_METRICS},
                                          {"address", required_argument, NULL, OPT_ADDRESS},
                                          {"slices", required_argument, NULL, OPT_SLICES},
                                          {"max-request", required_argument, NULL, OPT_MAX_REQUEST},
                                          {"max-queue-delay", required_argument, NULL, OPT_DELAY},
                                          {"timeout", required_argument, NULL, OPT_TIMEOUT},
                                          {"drain-timeout", required_argument, NULL, OPT_DRAIN},
                                          {"nv-metrics", no_argument, NULL, OPT_NV},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (opt == 'h')
            return weft_tool_help(&weft_verb_serve);
        int code = take(o, opt);
        if (code)
            return code;
    }
    if (argc - optind < 1 || argc - optind > 2)
        return weft_tool_usage(&weft_verb_serve, "name one bundle, and a plan if you have one");
    o->serve.bundle = argv[optind];
    o->plan = argv[optind + 1];
    if (o->plan && o->n_slice)
        return weft_tool_usage(&weft_verb_serve, "--slices and a plan exclude each other");
    return -1;
}

/* -- Slices --------------------------------------------------------------------------------- */

static void find_cpus(options *o)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (uint32_t i = 0; i < CPU_SETSIZE && o->n_cpu < CPUS_MAX; i++)
        if (CPU_ISSET(i, &set))
            o->cpu[o->n_cpu++] = i;
}

/* CPU slices of the first CPU device of the plan, with the models placed on each. */
static weft_err read_plan(options *o, weft_arena *arena, weft_diag *diag)
{
    char *text = NULL;
    size_t len = 0;
    weft_plan plan;
    const weft_where where = {.file = o->plan};
    WEFT_TRY(weft_file_read(o->plan, (uint64_t)256 << 20, diag, &text, &len));
    weft_err err = weft_plan_from_json(text, len, o->plan, arena, diag, &plan);
    free(text);
    WEFT_TRY(err);
    for (size_t i = 0; i < plan.n; i++) {
        const weft_placement *p = &plan.at[i];
        if (strcmp(p->type, "cpu") != 0)
            return weft_diag_error(diag, WEFT_ERR_NODEV, where,
                                   "model '%s' is placed on a %s: this node has none", p->model,
                                   p->type);
        if (p->device != plan.at[0].device)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "the plan has several nodes: serve one at a time");
        if (p->slice_id >= SLICES_MAX)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "over %d slices", SLICES_MAX);
        long cores = p->slice[0] ? strtol(p->slice, NULL, 10) : (long)o->n_cpu;
        if (cores < 1)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "'%s' is no slice of a CPU",
                                   p->slice);
        weft_serve_slice *s = &o->slice[p->slice_id];
        const char **model = weft_arena_array(arena, s->n_model + 1, sizeof *model);
        for (uint32_t k = 0; k < s->n_model; k++)
            model[k] = s->model[k];
        model[s->n_model++] = p->model;
        s->model = model;
        o->cores[p->slice_id] = cores;
        o->n_slice = p->slice_id + 1 > o->n_slice ? p->slice_id + 1 : o->n_slice;
    }
    return WEFT_ERR_OK;
}

static weft_err cut_slices(options *o, weft_diag *diag)
{
    uint32_t at = 0, n = 0;
    for (size_t i = 0; i < o->n_slice; i++) {
        if (o->cores[i] <= 0)
            continue; /* a slice of the plan with no model */
        if ((uint64_t)o->cores[i] > o->n_cpu - at)
            return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                                   "the slices need more cores than the %u this process may use",
                                   o->n_cpu);
        o->slice[n] = o->slice[i];
        o->slice[n].cpu = &o->cpu[at];
        o->slice[n].n_cpu = (uint32_t)o->cores[i];
        at += (uint32_t)o->cores[i];
        n++;
    }
    o->serve.slice = o->slice;
    o->serve.n_slice = n;
    return WEFT_ERR_OK;
}

/* -- The verb ------------------------------------------------------------------------------- */

static void on_ready(void *user, int http_port, int grpc_port, int metrics_port)
{
    (void)user;
    printf("READY http=%d grpc=%d metrics=%d pid=%ld\n", http_port, grpc_port, metrics_port,
           (long)getpid());
    fflush(stdout);
}

static weft_err serve(options *o, weft_arena *arena, weft_diag *diag)
{
    static char exe[4096];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len <= 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "/proc/self/exe is missing");
    exe[len] = '\0';
    o->serve.exe = exe;
    o->serve.on_ready = on_ready;
    find_cpus(o);
    if (o->plan)
        WEFT_TRY(read_plan(o, arena, diag));
    if (o->n_slice)
        WEFT_TRY(cut_slices(o, diag));
    return weft_serve(&o->serve, diag);
}

static int run_serve(int argc, char **argv)
{
    static options o = {.serve = {.http_port = 8000, .grpc_port = 8001, .metrics_port = 8002}};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    code = weft_tool_report(diag, diag && arena ? serve(&o, arena, diag) : WEFT_ERR_NOMEM);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_serve = {
    .name = "serve",
    .brief = "serve a bundle over HTTP and gRPC",
    .usage =
        "usage: weft serve BUNDLE [plan.json] [OPTIONS]\n"
        "Serves the models of a bundle (Open Inference Protocol) until SIGTERM or SIGINT, then\n"
        "answers what it has accepted and ends. Prints a READY line with its ports.\n\n"
        "      --http PORT            8000; 0: any free one; off\n"
        "      --grpc PORT            8001; 0: any free one; off\n"
        "      --metrics PORT         8002; 0: any free one; off\n"
        "      --address A            IPv4 address to listen on (127.0.0.1)\n"
        "      --slices 1,1           cores of each CPU slice (default: one with all cores)\n"
        "      --max-request BYTES    largest request body (64MiB)\n"
        "      --max-queue-delay T    wait this long for a fuller batch, within the SLO (0s)\n"
        "      --timeout T            answer every request within this time (30s)\n"
        "      --drain-timeout T      time to answer what is left when ending (30s)\n"
        "      --nv-metrics           also write Triton's metric names\n",
    .run = run_serve,
};
