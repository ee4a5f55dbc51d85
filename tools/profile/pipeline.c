/* Passes with dumps and timings. */
#include "tools/profile/pipeline.h"

#include "base/num.h"

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
    if (!after && wants(p->dump_before, pass))
        dump(p, pass, number, ".before", m);
    /* A dump directory alone means: after every pass. */
    if (after && (wants(p->dump_after, pass) || (p->dump_dir && !p->dump_after && !p->dump_before)))
        dump(p, pass, number, "", m);
    if (after && p->show_time)
        fprintf(stderr, "%8.2f ms  %s%s\n", time_ms, weft_pass_name(pass),
                changed ? "" : " (no change)");
}

static bool parse_verify(const char *arg, weft_verify_when *out)
{
    static const char *const names[] = {
        [WEFT_VERIFY_END] = "end", [WEFT_VERIFY_EACH] = "each", [WEFT_VERIFY_OFF] = "off"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], arg) == 0) {
            *out = (weft_verify_when)i;
            return true;
        }
    return false;
}

static int need_pass(const weft_verb *verb, const char *name, bool all_too)
{
    if (weft_pass_find(name) || (all_too && strcmp(name, "all") == 0))
        return 0;
    return weft_tool_usage(verb, "no pass '%s'; `weft list passes` names them", name);
}

int weft_tool_pipeline_option(weft_tool_pipeline *p, const weft_verb *verb, int opt,
                              const char *arg)
{
    int64_t limit = 0;
    switch (opt) {
    case WEFT_OPT_DUMP_BEFORE:
        p->dump_before = arg;
        return need_pass(verb, arg, true);
    case WEFT_OPT_DUMP_AFTER:
        p->dump_after = arg;
        return need_pass(verb, arg, true);
    case WEFT_OPT_DUMP_DIR:
        p->dump_dir = arg;
        return 0;
    case WEFT_OPT_STOP_AFTER:
        p->run.stop_after = arg;
        return need_pass(verb, arg, false);
    case WEFT_OPT_START_AT:
        p->run.start_at = arg;
        return need_pass(verb, arg, false);
    case WEFT_OPT_PASS_LIMIT:
        if (!weft_parse_i64(arg, &limit) || limit < 1)
            return weft_tool_usage(verb, "--pass-limit needs a number from 1, not '%s'", arg);
        p->run.pass.rewrite_limit = (uint64_t)limit;
        return 0;
    case WEFT_OPT_VERIFY:
        if (!parse_verify(arg, &p->run.verify))
            return weft_tool_usage(verb, "--verify takes each, end or off, not '%s'", arg);
        return 0;
    case WEFT_OPT_TIME:
        p->show_time = true;
        return 0;
    case WEFT_OPT_TARGET:
        p->run.pass.target = arg;
        if (strcmp(arg, "cpu") != 0 && strcmp(arg, "cpu:avx2") != 0 && !weft_target_is_gpu(arg))
            return weft_tool_usage(
                verb, "no target '%s'; there are cpu, cpu:avx2 and sm_NN of a GPU", arg);
        return 0;
    case WEFT_OPT_BATCH:
        p->run.pass.n_batch =
            weft_tool_parse_list(arg, p->batch, sizeof p->batch / sizeof p->batch[0]);
        p->run.pass.batch = p->batch;
        if (p->run.pass.n_batch == 0)
            return weft_tool_usage(verb, "--batch needs numbers like 1,2,4, not '%s'", arg);
        return 0;
    default:
        return weft_tool_usage(verb, "wrong option");
    }
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
    if (gpu->capability > 0)
        snprintf(target, sizeof target, "sm_%u", gpu->capability);
    own.run.pass.target = target;
    const weft_pass *const *pass = weft_pipeline_for(target, &n);
    return weft_tool_pipeline_run(&own, m, pass, n, diag);
}
