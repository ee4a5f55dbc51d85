/* Golden tests: golden [--bless] FILE.wir...
 *
 *   # weft: pass fuse-ew,dce              the command: parse, print, verify, or pass NAME,...;
 *   wir 1 graph                           after passes: batch=1,2 limit=3 fast target=T eval=off
 *                                         merge=STRATEGY deltas=exact|near
 *                                         adapt=PATH,... (modules with adapters of graph @g)
 *   ...
 *   === expect
 *   the module as it should print afterwards
 *
 * A file that is wrong on purpose has no expectation; the guilty lines end in `# error: TEXT`, and
 * exactly those errors must be reported, with TEXT in the message and, where the message has a
 * line, that line; further errors of the same line follow on lines of their own. After passes the
 * meaning is checked too: golden_eval.c. */
#include "golden.h"

#include "base/num.h"
#include "base/str.h"
#include "passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES_MAX = 64, ERRORS_MAX = 100, BATCH_MAX = 16 };
static const char separator[] = "\n=== expect\n";

typedef struct expected_error {
    uint32_t line;
    const char *text;
    size_t len;
    bool met;
} expected_error;

typedef struct test {
    const char *path;
    char *text;         /* whole file */
    size_t input_len;   /* of it, up to the separator */
    const char *expect; /* NULL: none */
    char command[512];
    const char *verb;
    const weft_pass *pass[PASSES_MAX];
    size_t n_pass;
    weft_run_options options;
    int64_t batch[BATCH_MAX];
    weft_adapted_model adapted;
    const char *module[BATCH_MAX];
    bool no_eval;
    expected_error error[ERRORS_MAX];
    size_t n_error;
} test;

static bool complain(const test *t, const char *what, const char *detail)
{
    printf("%s: %s%s%s\n", t->path, what, *detail ? ": " : "", detail);
    return false;
}

/* -- Reading the file ------------------------------------------------------------------------- */

static bool read_passes(test *t, char *list)
{
    for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
        const weft_pass *pass = weft_pass_find(name);
        if (!pass)
            return complain(t, "no such pass", name);
        if (t->n_pass == PASSES_MAX)
            return complain(t, "too many passes", "");
        t->pass[t->n_pass++] = pass;
    }
    return true;
}

static bool read_option(test *t, char *word)
{
    char *value = strchr(word, '=');
    int64_t limit;
    if (strcmp(word, "fast") == 0) {
        t->options.pass.allow_fast = true;
    } else if (strcmp(word, "eval=off") == 0) {
        t->no_eval = true;
    } else if (strncmp(word, "limit=", 6) == 0 && weft_parse_i64(value + 1, &limit)) {
        t->options.pass.rewrite_limit = (uint64_t)limit;
    } else if (strncmp(word, "merge=", 6) == 0) {
        t->options.pass.merge = WEFT_MERGE_STRATEGY;
        t->options.pass.strategy = weft_merge_strategy_find(value + 1);
        if (!t->options.pass.strategy)
            return complain(t, "no such merging strategy", value + 1);
    } else if (strcmp(word, "pack") == 0) {
        t->options.pass.pack = true;
    } else if (strcmp(word, "deltas=exact") == 0) {
        t->options.pass.deltas = WEFT_DELTAS_EXACT;
    } else if (strcmp(word, "deltas=near") == 0) {
        t->options.pass.deltas = WEFT_DELTAS_NEAR;
    } else if (strncmp(word, "target=", 7) == 0) {
        t->options.pass.target = value + 1;
    } else if (strncmp(word, "batch=", 6) == 0) {
        char *save = NULL;
        for (char *n = strtok_r(value + 1, ",", &save); n; n = strtok_r(NULL, ",", &save))
            if (t->options.pass.n_batch == BATCH_MAX ||
                !weft_parse_i64(n, &t->batch[t->options.pass.n_batch++]))
                return complain(t, "wrong batch", n);
        t->options.pass.batch = t->batch;
    } else if (strncmp(word, "adapt=", 6) == 0) {
        t->adapted = (weft_adapted_model){.model = "g", .path = t->module};
        for (char *s = strtok(value + 1, ","); s; s = strtok(NULL, ",")) {
            if (t->adapted.n_path == BATCH_MAX)
                return complain(t, "too many paths", "");
            t->module[t->adapted.n_path++] = s;
        }
        t->options.pass.adapted = &t->adapted;
        t->options.pass.n_adapted = 1;
    } else {
        return complain(t, "unknown option", word);
    }
    return true;
}

/* # weft: VERB [PASSES] [OPTION...] */
static bool read_command(test *t)
{
    static const char head[] = "# weft: ";
    const char *end = strchr(t->text, '\n');
    size_t len = end ? (size_t)(end - t->text) : 0;
    if (strncmp(t->text, head, sizeof head - 1) != 0 || len >= sizeof t->command)
        return complain(t, "the first line is not `# weft: COMMAND`", "");
    memcpy(t->command, t->text, len);
    char *save = NULL;
    t->verb = strtok_r(t->command + sizeof head - 1, " ", &save);
    if (!t->verb)
        return complain(t, "no command", "");
    bool is_pass = strcmp(t->verb, "pass") == 0;
    if (!is_pass && strcmp(t->verb, "parse") != 0 && strcmp(t->verb, "print") != 0 &&
        strcmp(t->verb, "verify") != 0)
        return complain(t, "unknown command", t->verb);
    char *word = strtok_r(NULL, " ", &save);
    char *list = is_pass ? word : NULL;
    if (is_pass)
        word = word ? strtok_r(NULL, " ", &save) : NULL;
    for (; word; word = strtok_r(NULL, " ", &save))
        if (!read_option(t, word))
            return false;
    return !is_pass || (list && read_passes(t, list));
}

static bool read_errors(test *t)
{
    static const char mark[] = "# error: ";
    uint32_t line = 1, guilty = 1;
    bool fresh = true;
    for (const char *s = t->text; s < t->text + t->input_len; s++) {
        /* Another error of the same line has a line of its own after it. */
        if (fresh && strncmp(s, mark, sizeof mark - 1) != 0)
            guilty = line;
        fresh = *s == '\n';
        line += fresh;
        if (strncmp(s, mark, sizeof mark - 1) != 0)
            continue;
        if (t->n_error == ERRORS_MAX)
            return complain(t, "too many expected errors", "");
        const char *text = s + sizeof mark - 1;
        t->error[t->n_error++] =
            (expected_error){.line = guilty, .text = text, .len = strcspn(text, "\n")};
    }
    return true;
}

static bool read_test(test *t)
{
    size_t len;
    if (weft_file_read(t->path, (uint64_t)16 << 20, NULL, &t->text, &len) != WEFT_ERR_OK)
        return complain(t, "cannot be read", "");
    char *at = strstr(t->text, separator);
    t->input_len = at ? (size_t)(at - t->text) + 1 : len;
    t->expect = at ? at + sizeof separator - 1 : NULL;
    return read_command(t) && read_errors(t);
}

/* -- Running ---------------------------------------------------------------------------------- */

static weft_err parse_input(const test *t, weft_diag *diag, weft_module **out)
{
    char dir[4096];
    const char *slash = strrchr(t->path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - t->path) : 1, slash ? t->path : ".");
    return weft_module_parse(t->text, t->input_len, t->path, dir, diag, out);
}

static weft_err run_command(test *t, weft_module *m, weft_diag *diag)
{
    if (strcmp(t->verb, "parse") == 0 || strcmp(t->verb, "print") == 0)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_module_verify(m, diag));
    if (!t->n_pass)
        return WEFT_ERR_OK;
    t->options.verify = WEFT_VERIFY_EACH;
    if (!t->options.pass.strategy)
        t->options.pass.merge = WEFT_MERGE_AUTO;
    t->options.pass.assignment = &weft_assignment_igraph;
    return weft_passes_run(m, t->pass, t->n_pass, &t->options, diag);
}

static bool matches(const expected_error *e, const weft_message *msg)
{
    if (e->met || (msg->line && msg->line != e->line))
        return false;
    for (const char *s = msg->text; *s; s++)
        if (strncmp(s, e->text, e->len) == 0)
            return true;
    return false;
}

/* Reported and expected errors are the same set. */
static bool check_errors(test *t, const weft_diag *diag)
{
    bool ok = true;
    for (size_t i = 0; i < weft_diag_count(diag); i++) {
        const weft_message *msg = weft_diag_at(diag, i);
        char text[1024];
        size_t k = 0;
        if (msg->severity != WEFT_SEV_ERROR)
            continue;
        while (k < t->n_error && !matches(&t->error[k], msg))
            k++;
        weft_diag_format(msg, text, sizeof text);
        if (k < t->n_error)
            t->error[k].met = true;
        else
            ok = complain(t, "unexpected error", text);
    }
    for (size_t k = 0; k < t->n_error; k++) {
        char text[256];
        snprintf(text, sizeof text, "line %u: %.*s", t->error[k].line, (int)t->error[k].len,
                 t->error[k].text);
        if (!t->error[k].met)
            ok = complain(t, "error was not reported", text);
    }
    return ok;
}

static bool write_expectation(const test *t, const weft_buf *got)
{
    weft_buf file = {0};
    weft_buf_add(&file, t->text, t->input_len);
    weft_buf_puts(&file, separator + 1);
    weft_buf_add(&file, got->at, got->len);
    bool ok = weft_file_write(t->path, file.at, file.len, NULL) == WEFT_ERR_OK;
    weft_buf_finish(&file);
    return ok || complain(t, "cannot be written", "");
}

static bool compare(const test *t, const weft_buf *got)
{
    if (strcmp(t->expect, got->at) == 0)
        return true;
    size_t same = 0, line = 1;
    for (; t->expect[same] && t->expect[same] == got->at[same]; same++)
        line += got->at[same] == '\n';
    printf("%s: differs in line %zu of the expectation; got:\n%s", t->path, line, got->at);
    return false;
}

/* The printed text must parse and print the same. */
static bool check_round_trip(const test *t, const weft_buf *got)
{
    weft_module *m = NULL;
    weft_buf again = {0};
    weft_diag *diag = weft_diag_create();
    bool ok = weft_module_parse(got->at, got->len, t->path, ".", diag, &m) == WEFT_ERR_OK;
    char text[1024] = "";
    if (ok) {
        weft_module_print(m, &again);
        ok = again.len == got->len && memcmp(again.at, got->at, got->len) == 0;
    } else if (weft_diag_count(diag)) {
        weft_diag_format(weft_diag_at(diag, 0), text, sizeof text);
    }
    if (!ok)
        complain(t, "the print does not read back", text);
    weft_buf_finish(&again);
    weft_diag_destroy(diag);
    weft_module_destroy(m);
    return ok;
}

static bool check_print(const test *t, weft_module *m, bool bless)
{
    weft_buf got = {0};
    weft_module_print(m, &got);
    bool ok = !got.failed && check_round_trip(t, &got);
    if (ok && bless && (t->expect || t->n_pass || strcmp(t->verb, "print") == 0))
        ok = write_expectation(t, &got);
    else if (ok && t->expect)
        ok = compare(t, &got);
    weft_buf_finish(&got);
    return ok;
}

static bool check_meaning(const test *t, weft_module *after)
{
    weft_module *before = NULL;
    if (t->no_eval || !t->n_pass)
        return true;
    bool ok = parse_input(t, NULL, &before) == WEFT_ERR_OK && golden_same_meaning(before, after);
    weft_module_destroy(before);
    return ok || complain(t, "the passes changed what the module computes", "");
}

static bool run_test(const char *path, bool bless)
{
    test *t = calloc(1, sizeof *t);
    weft_diag *diag = weft_diag_create();
    weft_module *m = NULL;
    if (!t || !diag)
        return false;
    t->path = path;
    bool ok = read_test(t);
    if (ok) {
        weft_err err = parse_input(t, diag, &m);
        if (err == WEFT_ERR_OK)
            err = run_command(t, m, diag);
        ok = check_errors(t, diag);
        if (ok && err == WEFT_ERR_OK)
            ok = check_print(t, m, bless) && check_meaning(t, m);
    }
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    free(t->text);
    free(t);
    return ok;
}

int main(int argc, char **argv)
{
    bool bless = argc > 1 && strcmp(argv[1], "--bless") == 0;
    int failed = 0;
    for (int i = bless ? 2 : 1; i < argc; i++)
        failed += !run_test(argv[i], bless);
    return failed ? 1 : 0;
}
