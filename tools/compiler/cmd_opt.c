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

static int add_pass(options *o, const char *name, size_t len)
{
    char text[64];
    if (len == 0 || len >= sizeof text)
        return weft_tool_usage(&weft_verb_opt, "wrong list of passes");
    memcpy(text, name, len);
    text[len] = '\0';
    const weft_pass *pass = weft_pass_find(text);
    if (!pass)
        return weft_tool_usage(&weft_verb_opt, "no pass '%s'; `weft list passes` names them", text);
    if (o->n_pass == PASSES_MAX)
        return weft_tool_usage(&weft_verb_opt, "over %d passes", PASSES_MAX);
    o->pass[o->n_pass++] = pass;
    return 0;
}

static int add_passes(options *o, const char *list)
{
    for (;;) {
        size_t len = strcspn(list, ",");
        int code = add_pass(o, list, len);
        if (code || list[len] == '\0')
            return code;
        list += len + 1;
    }
}

static int add_pipeline(options *o, const char *name)
{
    size_t n = 0;
    const weft_pass *const *pass = weft_pipeline(name, &n);
    if (!pass)
        return weft_tool_usage(&weft_verb_opt, "no pipeline '%s'", name);
    for (size_t i = 0; i < n && o->n_pass < PASSES_MAX; i++)
        o->pass[o->n_pass++] = pass[i];
    return 0;
}

/* Returns -1 to go on, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    static const struct option longs[] = {{"passes", required_argument, NULL, 'p'},
                                          {"pipeline", required_argument, NULL, 'P'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          WEFT_PIPELINE_OPTIONS,
                                          {NULL, 0, NULL, 0}};
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "p:o:h", longs, NULL)) != -1) {
        int code = 0;
        if (opt == 'h')
            return weft_tool_help(&weft_verb_opt);
        if (opt == '?')
            return weft_tool_usage(&weft_verb_opt, "wrong option");
        if (opt == 'p')
            code = add_passes(o, optarg);
        else if (opt == 'P')
            code = add_pipeline(o, optarg);
        else if (opt == 'o')
            o->output = optarg;
        else
            code = weft_tool_pipeline_option(&o->pipeline, &weft_verb_opt, opt, optarg);
        if (code)
            return code;
    }
    if (argc - optind != 1)
        return weft_tool_usage(&weft_verb_opt, "name one file, or - for standard input");
    o->file = argv[optind];
    return -1;
}

static weft_err opt_file(options *o, weft_diag *diag)
{
    weft_module *m = NULL;
    WEFT_TRY(weft_tool_load_module(o->file, diag, &m));
    weft_err err = weft_tool_pipeline_run(&o->pipeline, m, o->pass, o->n_pass, diag);
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
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    code = weft_tool_report(diag, opt_file(&o, diag));
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_opt = {
    .name = "opt",
    .usage = "usage: weft opt FILE [-p PASS,PASS...] [OPTIONS]\n"
             "Reads an ONNX or text IR file ('-': text from standard input), runs the passes and\n"
             "prints the module as text.\n\n"
             "  -p, --passes LIST        passes to run, in order (none: print what was read)\n"
             "      --pipeline NAME      all passes of a pipeline: cpu, gpu, framework\n"
             "  -o, --output FILE        write there instead of standard output\n" //
    WEFT_PIPELINE_USAGE,
    .run = run_opt,
};
