/* weft push: puts a bundle into a store. */
#include "store/store.h"
#include "tools/common/tools.h"

#include <jansson.h>
#include <unistd.h>

enum { LEVEL = 3, LEVEL_MAX = 19 };

typedef struct options {
    weft_push_options push;
    uint32_t level;
    bool json;
} options;

#define OPTIONS_OF_push
#define OPTIONS options
#include "tools/common/option_rows.h"

static void show_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    weft_tool_advance((double)done / 1e6, (double)total / 1e6, "MB");
}

static bool print_json(const weft_push_report *r)
{
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:I, s:i, s:i, s:I, s:I, s:b}", "format", "weft-push", "version",
                  1, "sha256", r->sha256, "bytes", (json_int_t)r->bytes, "chunks", (int)r->n_chunk,
                  "new_chunks", (int)r->n_new, "new_bytes", (json_int_t)r->new_bytes, "put_bytes",
                  (json_int_t)r->put_bytes, "signed", r->is_signed);
    bool ok = root && json_dumpf(root, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    json_decref(root);
    return ok;
}

static void print_text(const weft_push_report *r)
{
    char all[32], fresh[32], put[32];
    printf("sha256:%s\n%s in %u chunks, of which %u with %s are new: %s were written%s\n",
           r->sha256, weft_tool_bytes(r->bytes, all), r->n_chunk, r->n_new,
           weft_tool_bytes(r->new_bytes, fresh), weft_tool_bytes(r->put_bytes, put),
           r->is_signed ? ", with the signature" : "");
}

static int run_push(int argc, char **argv)
{
    options o = {.level = LEVEL};
    int code = weft_options_parse(&weft_verb_push, argc, argv, &o);
    if (code >= 0)
        return code;
    if (argc - optind != 2)
        return weft_tool_usage(&weft_verb_push, "name a bundle and a folder");
    o.push.bundle = argv[optind];
    o.push.folder = argv[optind + 1];
    o.push.level = (int)o.level;
    o.push.progress = show_progress;
    weft_push_report report = {0};
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_tool_progress("storing %s", o.push.bundle);
    weft_err err = diag && arena ? weft_store_push(&o.push, arena, diag, &report) : WEFT_ERR_NOMEM;
    code = weft_tool_report(diag, err);
    if (err == WEFT_ERR_OK && !o.json && !weft_tool_is_quiet())
        print_text(&report);
    else if (err == WEFT_ERR_OK && o.json && !print_json(&report))
        code = WEFT_EXIT_FAILED;
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_push = {.name = "push", .row = rows, .run = run_push};
