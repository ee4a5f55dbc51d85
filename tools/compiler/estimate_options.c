/* Values of options of `weft estimate`, and which options go together. */
#include "tools/compiler/estimate.h"

#include "base/num.h"
#include "tools/compiler/estimate_kernels.h"

#include <string.h>

enum { BATCH_MAX = 1 << 20 };

static int add_slice(weft_tool_estimate *o, const weft_verb *verb, const char *name,
                     const char *slice)
{
    const char *gpu = weft_tool_find_device(verb, name);
    if (!gpu)
        return WEFT_EXIT_USAGE;
    weft_diag *diag = weft_diag_create();
    int code = 0;
    if (!diag)
        return weft_tool_report(NULL, WEFT_ERR_NOMEM);
    if (o->n_at == WEFT_ESTIMATE_SLICES_MAX)
        code = weft_tool_usage(verb, "at most %d devices", WEFT_ESTIMATE_SLICES_MAX);
    else if (weft_slice_make(gpu, slice, diag, &o->at[o->n_at]) != WEFT_ERR_OK)
        code =
            weft_tool_usage(verb, "%s", weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : gpu);
    else
        o->n_at++;
    weft_diag_destroy(diag);
    return code;
}

/* "h100,h200:1g.18gb,l4" */
int weft_tool_take_compared(void *at, const weft_verb *verb, char *arg)
{
    weft_tool_estimate *o = at;
    const char *text = arg;
    while (text) {
        size_t len = strcspn(text, ",");
        char item[WEFT_DEVICE_NAME_MAX + WEFT_SLICE_NAME_MAX + 2];
        if (len == 0 || len >= sizeof item)
            return weft_tool_usage(
                verb, "--compare takes names of devices, h100,h200:1g.18gb, not '%s'", text);
        memcpy(item, text, len);
        item[len] = 0;
        char *colon = strchr(item, ':');
        if (colon)
            *colon++ = 0;
        int code = add_slice(o, verb, item, colon ? colon : "");
        if (code)
            return code;
        text = text[len] ? text + len + 1 : NULL;
    }
    o->compare = true;
    return 0;
}

int weft_tool_take_batches(void *at, const weft_verb *verb, char *text)
{
    weft_tool_estimate *o = at;
    o->n_batch = weft_tool_parse_list(text, o->batch, WEFT_ESTIMATE_BATCHES_MAX);
    bool ok = o->n_batch > 0;
    for (size_t i = 0; i < o->n_batch; i++)
        ok = ok && o->batch[i] <= BATCH_MAX;
    return ok ? 0
              : weft_tool_usage(verb, "--batch takes up to %d numbers from 1 to %d, not '%s'",
                                WEFT_ESTIMATE_BATCHES_MAX, BATCH_MAX, text);
}

/* The share at the beginning of a list, "40%" of "40,60" and "40%,60%". Returns what follows it, or
 * NULL. */
static const char *read_share(const char *list, char name[WEFT_SLICE_NAME_MAX])
{
    size_t len = strcspn(list, ",");
    double part;
    if (len == 0 || len + 2 > WEFT_SLICE_NAME_MAX)
        return NULL;
    snprintf(name, WEFT_SLICE_NAME_MAX, "%.*s%s", (int)len, list, list[len - 1] == '%' ? "" : "%");
    return weft_parse_percent(name, &part) ? list + len : NULL;
}

int weft_tool_take_share(void *at, const weft_verb *verb, char *arg)
{
    char name[WEFT_SLICE_NAME_MAX];
    double part;
    *(const char **)at = arg;
    if (weft_parse_percent(arg, &part))
        return 0;
    for (const char *end = strchr(arg, ',') ? arg : NULL; end && (end = read_share(end, name));
         end++)
        if (!*end)
            return 0;
    return weft_tool_usage(verb,
                           "--share takes a percentage such as 40%%, or one for each model, "
                           "40%%,60%%, not '%s'",
                           arg);
}

/* One slice, or the shares of a list. */
static int add_slices(weft_tool_estimate *o, const weft_verb *verb)
{
    char name[WEFT_SLICE_NAME_MAX];
    const char *rest = strchr(o->slice, ',') ? o->slice : NULL;
    if (!rest)
        return add_slice(o, verb, o->gpu, o->slice);
    o->together = true;
    while ((rest = read_share(rest, name)) != NULL) {
        int code = add_slice(o, verb, o->gpu, name);
        if (code || !*rest++)
            return code;
    }
    return weft_tool_usage(verb, "--slice takes one slice, not '%s'", o->slice);
}

int weft_tool_take_dims(void *at, const weft_verb *verb, char *arg)
{
    weft_tool_estimate *o = at;
    if (!strchr(arg, '=') || o->n_dim == WEFT_ESTIMATE_DIMS_MAX)
        return weft_tool_usage(verb, "--dim takes NAME=VALUE, at most %d times, not '%s'",
                               WEFT_ESTIMATE_DIMS_MAX, arg);
    o->dim[o->n_dim++] = arg;
    return 0;
}

/* Checks the device and slice for rows that name none, even if there are no such rows. */
static int check_kernels(weft_tool_estimate *o, const weft_verb *verb)
{
    if (o->n_file)
        return weft_tool_usage(verb, "--kernels takes no model file");
    if (!o->gpu)
        return -1;
    int code = add_slice(o, verb, o->gpu, o->slice);
    return code ? code : -1;
}

static int check_model(const weft_verb *verb, const char *name)
{
    char known[128] = "";
    for (size_t i = 0, len = 0; weft_model_name_at(i) && len < sizeof known; i++) {
        if (strcmp(weft_model_name_at(i), name) == 0)
            return 0;
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i > 0 ? ", " : "",
                                weft_model_name_at(i));
    }
    return weft_tool_usage(verb, "--model takes one of %s, not '%s'", known, name);
}

/* Options that exclude each other, and those that are needed. */
int weft_tool_estimate_check(weft_tool_estimate *o, const weft_verb *verb)
{
    int modes = !!o->kernels + !!o->calibrate + o->profile + o->compare;
    if (modes > 1)
        return weft_tool_usage(
            verb, "--kernels, --calibrate, --profile and --compare exclude each other");
    bool is_special = o->n_dim || o->framework || o->model || o->slice[0];
    if (o->profile && (is_special || o->procs > 1))
        return weft_tool_usage(
            verb, "--profile covers all slices by the best models: no --slice, --share, --procs, "
                  "--dim, --lowering framework or --model");
    if (o->framework && weft_tool_is_narrow(&o->pass))
        return weft_tool_usage(verb,
                               "--lowering framework takes models as they are: give one that is "
                               "f16 or bf16 itself");
    if (o->kernels && o->pass.precision != WEFT_DTYPE_NONE)
        return weft_tool_usage(verb, "the rows of --kernels name their types: no --precision");
    if (o->draw && (o->kernels || o->calibrate || o->profile))
        return weft_tool_usage(verb, "--draw excludes --kernels, --calibrate and --profile");
    if (o->features && !o->kernels)
        return weft_tool_usage(verb, "--features goes with --kernels");
    if (o->no_dispatch && !o->kernels)
        return weft_tool_usage(verb, "--no-dispatch goes with --kernels");
    if (o->model && check_model(verb, o->model) != 0)
        return WEFT_EXIT_USAGE;
    if (o->kernels)
        return check_kernels(o, verb);
    if (o->compare && (o->gpu || o->slice[0]))
        return weft_tool_usage(verb,
                               "--compare names the devices itself: no --gpu, --slice or --share");
    if (o->n_file < 1 && !o->calibrate)
        return weft_tool_usage(verb, "name a model, a set or a bundle");
    if (!o->gpu && !o->compare)
        return weft_tool_usage(verb, "--gpu NAME is needed");
    if (o->calibrate && o->calibration)
        return weft_tool_usage(
            verb, "--calibrate writes a file that --calibration reads: give one of them");
    int code = o->compare ? 0 : add_slices(o, verb);
    if (code)
        return code;
    if (o->together &&
        (o->procs > 1 || o->calibrate || o->framework || o->n_at > WEFT_CONTENTION_MAX))
        return weft_tool_usage(
            verb,
            "--share LIST takes up to %d models, one process of each: no --procs, "
            "--calibrate or --lowering framework",
            WEFT_CONTENTION_MAX);
    for (size_t i = 0; i < o->n_at; i++) {
        bool is_cpu = o->at[i].gpu->is_cpu;
        if (is_cpu && o->procs > 1)
            return weft_tool_usage(verb, "--procs: processes share GPUs, a CPU slice has one");
        if (is_cpu && weft_tool_is_narrow(&o->pass))
            return weft_tool_usage(verb,
                                   "--precision f16 and bf16 are for GPUs; CPUs compute in f32");
    }
    o->json = o->json || o->output;
    return -1;
}
