/* weft opt: runs passes on a text IR or ONNX file and prints the module. */
#include "tools/compiler/sources.h"
#include "tools/profile/pipeline.h"

#include <string.h>

enum { PASSES_MAX = 256 };

typedef struct options {
    weft_tool_pipeline pipeline;
    const weft_pass *pass[PASSES_MAX];
    size_t n_pass;
    const char *file, *output;
} options;

static int add_pass(options *o, const weft_verb *verb, const char *name, size_t len)
{
    char text[64];
    if (len == 0 || len >= sizeof text)
        return weft_tool_usage(verb, "--passes takes names of passes, PASS,PASS");
    memcpy(text, name, len);
    text[len] = '\0';
    const weft_pass *pass = weft_pass_find(text);
    if (!pass)
        return weft_tool_no_pass(verb, text);
    if (o->n_pass == PASSES_MAX)
        return weft_tool_usage(verb, "over %d passes", PASSES_MAX);
    o->pass[o->n_pass++] = pass;
    return 0;
}

static int add_passes(void *at, const weft_verb *verb, char *list)
{
    for (;;) {
        size_t len = strcspn(list, ",");
        int code = add_pass(at, verb, list, len);
        if (code || list[len] == '\0')
            return code;
        list += len + 1;
    }
}

static int add_pipeline(void *at, const weft_verb *verb, char *name)
{
    options *o = at;
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline(name, &n);
    if (!pass)
        return weft_tool_usage(verb, "no pipeline '%s'", name);
    for (size_t i = 0; i < n && o->n_pass < PASSES_MAX; i++)
        o->pass[o->n_pass++] = pass[i];
    return 0;
}

#define OPTIONS_OF_opt
#define OPTIONS options
#include "tools/common/option_rows.h"

static weft_err opt_file(options *o, weft_diag *diag)
{
    weft_module *m = NULL;
    WEFT_TRY(weft_tool_load_module(o->file, diag, &m));
    o->pipeline.doing = o->file;
    weft_err err = weft_tool_pipeline_run(&o->pipeline, m, o->pass, o->n_pass, diag);
    weft_tool_progress(NULL);
    weft_buf text = {0};
    if (err == WEFT_ERR_OK) {
        weft_module_print(m, &text);
        err = text.failed ? WEFT_ERR_NOMEM
                          : weft_file_write(o->output ? o->output : "-", text.at, text.len, diag);
    }
    weft_buf_finish(&text);
    weft_module_destroy(m);
    return err;
}

static int run_opt(int argc, char **argv)
{
    options o = {
        .pipeline.run.pass = {.merge = WEFT_MERGE_AUTO, .assignment = &weft_assignment_igraph}};
    int code = weft_options_parse_one(&weft_verb_opt, argc, argv, &o,
                                      "file, or - for standard input", &o.file);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    code = weft_tool_report(diag, opt_file(&o, diag));
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_opt = {.name = "opt", .row = rows, .run = run_opt};
