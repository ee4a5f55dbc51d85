/* weft serve: a bundle behind the Open Inference Protocol. */
#include "base/num.h"
#include "ir/bundle.h"
#include "runtime/server/server.h"
#include "tools/server/serve_slices.h"
#include "tools/common/tools.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    weft_serve_options serve;
    weft_slices_options cut;
    int64_t cores[WEFT_SLICES_MAX];   /* of each slice */
    uint32_t device[WEFT_SLICES_MAX]; /* of the plan */
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
    OPT_START,
    OPT_NV,
    OPT_DEVICES,
    OPT_MPS,
    OPT_SHARES,
    OPT_MIG
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

/* "0,2": numbers of devices of the plan. */
static int take_devices(options *o)
{
    o->cut.device = o->device;
    o->cut.n_device = 0;
    for (const char *at = optarg;; at++) {
        char *end;
        unsigned long x = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || x > UINT32_MAX || o->cut.n_device == WEFT_SLICES_MAX ||
            (*end && *end != ','))
            return weft_tool_usage(&weft_verb_serve, "wrong --devices '%s'", optarg);
        o->device[o->cut.n_device++] = (uint32_t)x;
        at = end;
        if (!*at)
            return 0;
    }
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
        o->cut.cores = o->cores;
        o->cut.n_cores = weft_tool_parse_list(optarg, o->cores, WEFT_SLICES_MAX);
        return o->cut.n_cores ? 0
                              : weft_tool_usage(&weft_verb_serve, "wrong --slices '%s'", optarg);
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
    case OPT_START:
        return take_duration(&o->serve.start_timeout_s, 1e-6);
    case OPT_NV:
        o->serve.nv_metrics = true;
        return 0;
    case OPT_DEVICES:
        return take_devices(o);
    case OPT_MPS:
        o->cut.start_mps = true;
        return 0;
    case OPT_SHARES:
        o->cut.green = strcmp(optarg, "green") == 0;
        if (!o->cut.green && strcmp(optarg, "mps") != 0)
            return weft_tool_usage(&weft_verb_serve, "wrong --shares '%s'", optarg);
        return 0;
    case OPT_MIG:
        o->cut.reconfigure_mig = true;
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
                                          {"start-timeout", required_argument, NULL, OPT_START},
                                          {"nv-metrics", no_argument, NULL, OPT_NV},
                                          {"devices", required_argument, NULL, OPT_DEVICES},
                                          {"mps", no_argument, NULL, OPT_MPS},
                                          {"shares", required_argument, NULL, OPT_SHARES},
                                          {"reconfigure-mig", no_argument, NULL, OPT_MIG},
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
    o->cut.plan = argv[optind + 1];
    if (o->cut.plan && o->cut.n_cores)
        return weft_tool_usage(&weft_verb_serve, "--slices and a plan exclude each other");
    if (!o->cut.plan && (o->cut.n_device || o->cut.start_mps || o->cut.reconfigure_mig))
        return weft_tool_usage(&weft_verb_serve,
                               "--devices, --mps and --reconfigure-mig need a plan");
    return -1;
}

/* -- The verb ------------------------------------------------------------------------------- */

static void on_ready(void *user, int http_port, int grpc_port, int metrics_port)
{
    (void)user;
    printf("READY http=%d grpc=%d metrics=%d pid=%ld\n", http_port, grpc_port, metrics_port,
           (long)getpid());
    fflush(stdout);
}

/* A bundle for CPUs on slices of GPUs may be a rehearsal. */
static weft_err check_target(const options *o, const weft_slices *slices, weft_diag *diag)
{
    weft_bundle *bundle;
    WEFT_TRY(weft_bundle_open(o->serve.bundle, diag, &bundle));
    const char *target = bundle->target && *bundle->target ? bundle->target : "cpu";
    if (slices->n && slices->at[0].gpu && strncmp(target, "sm_", 3) != 0)
        weft_diag_warn(diag, (weft_where){.file = o->serve.bundle},
                       "is compiled for %s: its models do not run on the GPUs of the plan", target);
    weft_bundle_close(bundle);
    return WEFT_ERR_OK;
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
    /* From here on the server reads them: what is started for it is also ended. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    static weft_slices slices;
    weft_err err = weft_slices_make(&o->cut, arena, diag, &slices);
    o->serve.slice = slices.at;
    o->serve.n_slice = slices.n;
    if (err == WEFT_ERR_OK)
        err = check_target(o, &slices, diag);
    if (err == WEFT_ERR_OK) {
        /* Warnings are to be known now, not when the server ends. */
        weft_tool_report(diag, err);
        weft_diag_clear(diag);
        err = weft_serve(&o->serve, diag);
    }
    weft_slices_end(&slices, diag);
    return err;
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
        "      --start-timeout T      time for a worker to prepare its models (300s)\n"
        "      --nv-metrics           also write Triton's metric names\n"
        "      --devices 0,1          serve these devices of the plan alone (all)\n"
        "      --mps                  start MPS daemons of our own for shares of GPUs, and stop\n"
        "                             them at the end (default: one runs already)\n"
        "      --shares mps|green     shares of GPUs are MPS percentages (mps), or SMs of their\n"
        "                             own by green contexts\n"
        "      --reconfigure-mig      make the MIG instances of the plan; destroys others on\n"
        "                             its GPUs\n",
    .run = run_serve,
};
