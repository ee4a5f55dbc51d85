/* Runs passes, with dumps and timings. */
#include "tools/profile/pipeline.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

enum { TARGET_MAX = 16 };

static bool wants(const char *which, const weft_pass *pass)
{
    return which && (strcmp(which, "all") == 0 || strcmp(which, weft_pass_name(pass)) == 0);
}

static void dump(const weft_tool_pipeline *p, const weft_pass *pass, uint32_t number,
                 const char *when, weft_module *m)
{
    weft_buf text = {0};
    weft_module_print(m, &text);
    if (p->dump_dir) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%02u-%s%s.wir", p->dump_dir, number, weft_pass_name(pass),
                 when);
        weft_diag *diag = weft_diag_create();
        weft_err err = weft_file_write(path, text.at, text.len, diag);
        if (err != WEFT_ERR_OK)
            weft_tool_report(diag, err);
        weft_diag_destroy(diag);
    } else {
        fprintf(stderr, "# %s%s\n%s", weft_pass_name(pass), when, text.at ? text.at : "");
    }
    weft_buf_finish(&text);
}

static void hook(void *user, const weft_pass *pass, uint32_t number, bool after, bool changed,
                 double time_ms, weft_module *m)
{
    const weft_tool_pipeline *p = user;
    if (p->watch)
        p->watch(p->watcher, pass, number, after, changed, time_ms, m);
    /* Dumps and times go to standard error, too. */
    if (!after && p->doing && !p->show_time && (p->dump_dir || !(p->dump_before || p->dump_after)))
        weft_tool_progress("%s: %s", p->doing, weft_pass_name(pass));
    if (!after && wants(p->dump_before, pass))
        dump(p, pass, number, ".before", m);
    /* --dump-dir alone means: dump after every pass */
    if (after && (wants(p->dump_after, pass) || (p->dump_dir && !p->dump_after && !p->dump_before)))
        dump(p, pass, number, "", m);
    if (after && p->show_time)
        fprintf(stderr, "%8.2f ms  %s%s\n", time_ms, weft_pass_name(pass),
                changed ? "" : " (no change)");
}

static const char *pass_at(size_t i, const void *user)
{
    (void)user;
    return weft_pass_at(i) ? weft_pass_name(weft_pass_at(i)) : NULL;
}

int weft_tool_no_pass(const weft_verb *verb, const char *name)
{
    return weft_tool_usage(verb, "no pass '%s'%s; `weft list passes` names them", name,
                           weft_tool_hint(weft_nearest(name, pass_at, NULL)));
}

int weft_tool_take_pass(void *at, const weft_verb *verb, char *arg)
{
    *(const char **)at = arg;
    if (weft_pass_find(arg))
        return 0;
    return weft_tool_no_pass(verb, arg);
}

int weft_tool_take_dump(void *at, const weft_verb *verb, char *arg)
{
    *(const char **)at = arg;
    return strcmp(arg, "all") == 0 ? 0 : weft_tool_take_pass(at, verb, arg);
}

int weft_tool_take_verify(void *at, const weft_verb *verb, char *arg)
{
    static const char *const names[] = {
        [WEFT_VERIFY_END] = "end", [WEFT_VERIFY_EACH] = "each", [WEFT_VERIFY_OFF] = "off"};
    (void)verb;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], arg) == 0)
            *(weft_verify_when *)at = (weft_verify_when)i;
    return 0;
}

int weft_tool_take_target(void *at, const weft_verb *verb, char *arg)
{
    weft_tool_pipeline *p = at;
    p->run.pass.target = arg;
    if (strcmp(arg, "cpu") == 0 || strcmp(arg, "cpu:avx2") == 0 || weft_target_is_gpu(arg))
        return 0;
    return weft_tool_usage(verb, "no target '%s'; there are cpu, cpu:avx2 and sm_NN of a GPU", arg);
}

int weft_tool_take_precision(void *at, const weft_verb *verb, char *arg)
{
    weft_pass_options *pass = at;
    (void)verb;
    pass->exact_f32 = strcmp(arg, "f32") == 0;
    pass->precision = strcmp(arg, "tf32") == 0 ? WEFT_DTYPE_F32 : weft_dtype_parse(arg);
    return 0;
}

bool weft_tool_is_narrow(const weft_pass_options *pass)
{
    return pass->precision != WEFT_DTYPE_NONE && pass->precision != WEFT_DTYPE_F32;
}

int weft_tool_take_batch(void *at, const weft_verb *verb, char *arg)
{
    weft_tool_pipeline *p = at;
    p->run.pass.n_batch = weft_tool_parse_list(arg, p->batch, sizeof p->batch / sizeof p->batch[0]);
    p->run.pass.batch = p->batch;
    if (p->run.pass.n_batch == 0)
        return weft_tool_usage(verb, "--batch takes up to %zu numbers like 1,2,4, not '%s'",
                               sizeof p->batch / sizeof p->batch[0], arg);
    return 0;
}

weft_err weft_tool_pipeline_run(weft_tool_pipeline *p, weft_module *m, const weft_pass *const *pass,
                                size_t n, weft_diag *diag)
{
    p->run.hook = hook;
    p->run.user = p;
    return weft_passes_run(m, pass, n, &p->run, diag);
}

weft_err weft_tool_pipeline_lower(const weft_tool_pipeline *p, weft_module *m, const weft_gpu *gpu,
                                  weft_diag *diag)
{
    char target[TARGET_MAX] = "cpu";
    weft_tool_pipeline own = *p;
    size_t n = 0;
    /* GPUs of another maker get the kernels of one with the same element types. */
    static const uint32_t usual_capability = 90;
    if (!gpu->is_cpu)
        snprintf(target, sizeof target, "sm_%u",
                 gpu->capability ? gpu->capability : usual_capability);
    own.run.pass.target = target;
    const weft_pass *const *pass = weft_pipeline_for(target, &n);
    return weft_tool_pipeline_run(&own, m, pass, n, diag);
}
