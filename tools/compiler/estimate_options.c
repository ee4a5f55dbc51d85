/* The command line of `weft estimate`. */
#include "tools/compiler/estimate.h"

#include "base/num.h"
#include "tools/compiler/estimate_kernels.h"

#include <string.h>

enum { BATCH_MAX = 1 << 20, PROCS_MAX = 48 };

enum {
    OPT_GPU = 1,
    OPT_SLICE,
    OPT_SHARE,
    OPT_BATCH,
    OPT_PROCS,
    OPT_DIM,
    OPT_KERNEL,
    OPT_EXACT,
    OPT_FORMAT,
    OPT_EXPLAIN,
    OPT_COMPARE,
    OPT_LOWERING,
    OPT_PROFILE,
    OPT_KERNELS,
    OPT_FEATURES,
    OPT_DISPATCH,
    OPT_CALIBRATE,
    OPT_CALIBRATION,
    OPT_MODEL
};

static const struct option long_options[] = {
    {"gpu", required_argument, NULL, OPT_GPU},
    {"slice", required_argument, NULL, OPT_SLICE},
    {"share", required_argument, NULL, OPT_SHARE},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"procs", required_argument, NULL, OPT_PROCS},
    {"dim", required_argument, NULL, OPT_DIM},
    {"per-kernel", no_argument, NULL, OPT_KERNEL},
    {"exact-f32", no_argument, NULL, OPT_EXACT},
    {"format", required_argument, NULL, OPT_FORMAT},
    {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"compare", required_argument, NULL, OPT_COMPARE},
    {"lowering", required_argument, NULL, OPT_LOWERING},
    {"profile", no_argument, NULL, OPT_PROFILE},
    {"kernels", required_argument, NULL, OPT_KERNELS},
    {"features", no_argument, NULL, OPT_FEATURES},
    {"no-dispatch", no_argument, NULL, OPT_DISPATCH},
    {"calibrate", required_argument, NULL, OPT_CALIBRATE},
    {"calibration", required_argument, NULL, OPT_CALIBRATION},
    {"model", required_argument, NULL, OPT_MODEL},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

#define USAGE(...) weft_tool_usage(&weft_verb_estimate, __VA_ARGS__)

static int take_slice(weft_tool_estimate *o, const char *gpu, const char *slice)
{
    weft_diag *diag = weft_diag_create();
    int code = 0;
    if (o->n_at == WEFT_ESTIMATE_SLICES_MAX)
        code = USAGE("at most %d devices", WEFT_ESTIMATE_SLICES_MAX);
    else if (!diag || weft_slice_make(gpu, slice, diag, &o->at[o->n_at]) != WEFT_ERR_OK)
        code = USAGE("%s", diag && weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : gpu);
    else
        o->n_at++;
    weft_diag_destroy(diag);
    return code;
}

/* "h100,h200:1g.18gb,l4" */
static int take_devices(weft_tool_estimate *o, const char *text)
{
    while (text) {
        size_t len = strcspn(text, ",");
        char item[WEFT_DEVICE_NAME_MAX + WEFT_SLICE_NAME_MAX + 2];
        if (len == 0 || len >= sizeof item)
            return USAGE("--compare takes names of devices, h100,h200:1g.18gb, not '%s'", text);
        memcpy(item, text, len);
        item[len] = 0;
        char *colon = strchr(item, ':');
        if (colon)
            *colon++ = 0;
        int code = take_slice(o, item, colon ? colon : "");
        if (code)
            return code;
        text = text[len] ? text + len + 1 : NULL;
    }
    o->compare = true;
    return 0;
}

static int take_batches(weft_tool_estimate *o, const char *text)
{
    o->n_batch = weft_tool_parse_list(text, o->batch, WEFT_ESTIMATE_BATCHES_MAX);
    bool ok = o->n_batch > 0;
    for (size_t i = 0; i < o->n_batch; i++)
        ok = ok && o->batch[i] <= BATCH_MAX;
    return ok ? 0 : USAGE("--batch needs numbers from 1 to %d, not '%s'", BATCH_MAX, text);
}

static int take_name(weft_tool_estimate *o, int opt, const char *text)
{
    double part;
    switch (opt) {
    case OPT_SHARE:
        o->slice = text;
        return weft_parse_percent(text, &part)
                   ? 0
                   : USAGE("--share needs a percentage such as 40%%, not '%s'", text);
    case OPT_PROCS:
        return weft_parse_i64(text, &o->procs) && o->procs >= 1 && o->procs <= PROCS_MAX
                   ? 0
                   : USAGE("--procs needs a number from 1 to %d, not '%s'", PROCS_MAX, text);
    case OPT_DIM:
        if (!strchr(text, '=') || o->n_dim == WEFT_ESTIMATE_DIMS_MAX)
            return USAGE("--dim needs NAME=VALUE, at most %d times, not '%s'",
                         WEFT_ESTIMATE_DIMS_MAX, text);
        o->dim[o->n_dim++] = text;
        return 0;
    case OPT_FORMAT:
        return weft_tool_parse_format(text, &o->json)
                   ? 0
                   : USAGE("--format takes text or json, not '%s'", text);
    default: /* OPT_LOWERING */
        o->framework = strcmp(text, "framework") == 0;
        return o->framework || strcmp(text, "fused") == 0
                   ? 0
                   : USAGE("--lowering takes fused or framework, not '%s'", text);
    }
}

static int take(weft_tool_estimate *o, int opt)
{
    switch (opt) {
    case 'o':
        o->output = optarg;
        return 0;
    case OPT_GPU:
        o->gpu = optarg;
        return 0;
    case OPT_SLICE:
        o->slice = optarg;
        return 0;
    case OPT_BATCH:
        return take_batches(o, optarg);
    case OPT_KERNEL:
        o->per_kernel = true;
        return 0;
    case OPT_EXACT:
        o->exact_f32 = true;
        return 0;
    case OPT_EXPLAIN:
        o->explain = true;
        return 0;
    case OPT_COMPARE:
        return take_devices(o, optarg);
    case OPT_PROFILE:
        o->profile = true;
        return 0;
    case OPT_KERNELS:
        o->kernels = optarg;
        return 0;
    case OPT_FEATURES:
        o->features = true;
        return 0;
    case OPT_DISPATCH:
        o->no_dispatch = true;
        return 0;
    case OPT_CALIBRATE:
        o->calibrate = optarg;
        return 0;
    case OPT_CALIBRATION:
        o->calibration = optarg;
        return 0;
    case OPT_MODEL:
        o->model = optarg;
        return 0;
    case '?':
        return USAGE("wrong option");
    default:
        return take_name(o, opt, optarg);
    }
}

/* The device and slice of rows that name none must exist, whether or not there are such rows. */
static int check_kernels(weft_tool_estimate *o)
{
    if (o->n_file)
        return USAGE("--kernels takes no model file");
    if (!o->gpu)
        return -1;
    const char *gpu = weft_tool_find_device(o->gpu);
    int code = take_slice(o, gpu, o->slice);
    return code ? code : -1;
}

static int check_model(const char *name)
{
    char known[128] = "";
    for (size_t i = 0, len = 0; weft_model_name_at(i) && len < sizeof known; i++) {
        if (strcmp(weft_model_name_at(i), name) == 0)
            return 0;
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i > 0 ? ", " : "",
                                weft_model_name_at(i));
    }
    return USAGE("--model takes one of %s, not '%s'", known, name);
}

/* What does not go together. */
static int check(weft_tool_estimate *o)
{
    int modes = !!o->kernels + !!o->calibrate + o->profile + o->compare;
    if (modes > 1)
        return USAGE("--kernels, --calibrate, --profile and --compare exclude each other");
    bool is_special = o->n_dim || o->framework || o->exact_f32 || o->model || o->slice[0];
    if (o->profile && (is_special || o->procs > 1))
        return USAGE(
            "--profile is of all slices, by the best models: no --slice, --share, --procs, "
            "--dim, --lowering framework, --exact-f32 or --model");
    if (o->features && !o->kernels)
        return USAGE("--features goes with --kernels");
    if (o->no_dispatch && !o->kernels)
        return USAGE("--no-dispatch goes with --kernels");
    if (o->model && check_model(o->model) != 0)
        return WEFT_EXIT_USAGE;
    if (o->kernels)
        return check_kernels(o);
    if (o->compare && (o->gpu || o->slice[0]))
        return USAGE("--compare names the devices itself: no --gpu, --slice or --share");
    if (o->n_file < 1 && !o->calibrate)
        return USAGE("name a model, a set or a bundle");
    if (!o->gpu && !o->compare)
        return USAGE("--gpu NAME is needed");
    if (o->calibrate && o->calibration)
        return USAGE("--calibrate makes what --calibration takes");
    int code = o->compare ? 0 : take_slice(o, o->gpu, o->slice);
    if (code)
        return code;
    for (size_t i = 0; i < o->n_at; i++)
        if (o->procs > 1 && strcmp(o->at[i].gpu->name, "cpu") == 0)
            return USAGE("--procs: processes share GPUs, a CPU slice has one");
    o->json = o->json || o->output;
    return -1;
}

int weft_tool_estimate_parse(int argc, char **argv, weft_tool_estimate *o)
{
    int opt;
    *o = (weft_tool_estimate){.slice = "",
                              .batch = {1},
                              .n_batch = 1,
                              .procs = 1,
                              .program_bytes = weft_tool_resident_bytes()};
    optind = 1;
    while ((opt = getopt_long(argc, argv, "o:h", long_options, NULL)) != -1) {
        if (opt == 'h')
            return weft_tool_help(&weft_verb_estimate);
        int code = take(o, opt);
        if (code)
            return code;
    }
    o->file = argv + optind;
    o->n_file = argc - optind;
    return check(o);
}
