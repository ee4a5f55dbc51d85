/* weft pull: gets a bundle from a store. */
#include "runtime/server/server.h"
#include "store/store.h"
#include "tools/common/tools.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

enum { JOBS = 8 };

typedef struct options {
    weft_pull_options pull;
    const char *require_signature;
    bool json;
} options;

static int take_have(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    if (o->pull.n_have == WEFT_STORE_HAVE_MAX)
        return weft_tool_usage(verb, "--have more than %d times", WEFT_STORE_HAVE_MAX);
    o->pull.have[o->pull.n_have++] = arg;
    return 0;
}

#define OPTIONS_OF_pull
#define OPTIONS options
#include "tools/common/option_rows.h"

static void show_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    weft_tool_advance((double)done / 1e6, (double)total / 1e6, "MB");
}

static weft_err accept(void *user, int fd, int signature_fd, const char *path, weft_diag *diag)
{
    const options *o = user;
    if (!o->require_signature)
        return WEFT_ERR_OK;
    return signature_fd < 0
               ? weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                                 "has no signature in the store, which is required")
               : weft_signature_check(fd, signature_fd, path, o->require_signature, diag);
}

static bool print_json(const weft_pull_report *r)
{
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:I, s:i, s:i, s:I, s:I, s:I, s:I, s:b, s:b}", "format", "weft-pull",
        "version", 1, "sha256", r->sha256, "bytes", (json_int_t)r->bytes, "chunks", (int)r->n_chunk,
        "fetched_chunks", (int)r->n_fetched, "fetched_bytes", (json_int_t)r->fetched_bytes,
        "kept_bytes", (json_int_t)r->kept_bytes, "reused_bytes", (json_int_t)r->reused_bytes,
        "transferred_bytes", (json_int_t)r->transferred_bytes, "signed", r->is_signed, "was_there",
        r->was_there);
    bool ok = root && json_dumpf(root, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    json_decref(root);
    return ok;
}

static void print_text(const options *o, const weft_pull_report *r)
{
    char all[32], kept[32], reused[32], moved[32];
    if (r->was_there)
        printf("%s: is sha256:%s already\n", o->pull.output, r->sha256);
    else
        printf("%s: sha256:%s, %s, of which %s were here in older bundles and %s of a pull before; "
               "%s were transferred\n",
               o->pull.output, r->sha256, weft_tool_bytes(r->bytes, all),
               weft_tool_bytes(r->reused_bytes, reused), weft_tool_bytes(r->kept_bytes, kept),
               weft_tool_bytes(r->transferred_bytes, moved));
}

static int parse(int argc, char **argv, options *o)
{
    int code = weft_options_parse(&weft_verb_pull, argc, argv, o);
    if (code >= 0)
        return code;
    if (argc - optind != 2 || !o->pull.output || strcmp(o->pull.output, "-") == 0)
        return weft_tool_usage(&weft_verb_pull, "name a store and a bundle in it, and -o FILE");
    o->pull.store = argv[optind];
    o->pull.name = argv[optind + 1];
    if (o->pull.token && strncmp(o->pull.store, "https://", 8) != 0)
        return weft_tool_usage(&weft_verb_pull, "--token is for stores of https://");
    return -1;
}

static int run_pull(int argc, char **argv)
{
    options o = {.pull = {.jobs = JOBS, .accept = accept, .progress = show_progress}};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    o.pull.user = &o;
    weft_pull_report report = {0};
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_tool_progress("getting %s", o.pull.output);
    weft_err err = diag && arena ? weft_store_pull(&o.pull, arena, diag, &report) : WEFT_ERR_NOMEM;
    code = weft_tool_report(diag, err);
    if (err == WEFT_ERR_OK && !o.json && !weft_tool_is_quiet())
        print_text(&o, &report);
    else if (err == WEFT_ERR_OK && o.json && !print_json(&report))
        code = WEFT_EXIT_FAILED;
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_pull = {
    .name = "pull", .row = rows, .run = run_pull, .takes_names = true};
