/* Runs a suite of ONNX conformance cases (folders with model.onnx and
 * test_data_set_N/{input,output}_K.pb) through importer, passes, code generation, a bundle file
 * and the CPU driver.
 *
 * Cases run in child processes, so that a crash fails only one case. The gaps file lists
 * cases that are known to fail, one per line with the reason; a listed case that passes is a
 * failure, so that the list stays correct. Exit code 77 if the data is not installed. */
#include "runtime/runtime.h"
#include "tests/support/compiled.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PORTS_MAX = 64,
    NAMES_MAX = 4096,
    CASE_SECONDS = 120,
    CASES_A_CHILD = 64,
    NO_GAP = NAMES_MAX
};

/* How a case ends. REFUSED: an UNSUP error with a message; WRONG: other numbers, or a model said to
 * be invalid; CRASH: a signal, a time-out included. */
typedef enum outcome { CASE_PASS, CASE_WRONG, CASE_REFUSED, CASE_CRASH, CASE_OUTCOMES } outcome;
static const char *const outcome_name[CASE_OUTCOMES] = {"passes", "wrong", "refused", "crash"};

typedef struct options {
    const char *data, *suite, *gaps, *only;
    bool verbose;
} options;

/* -- One case ------------------------------------------------------------------------------- */

static outcome report(const weft_diag *diag, weft_err err)
{
    for (size_t i = 0; i < weft_diag_count(diag) && i < 3; i++) {
        char text[1024];
        weft_diag_format(weft_diag_at(diag, i), text, sizeof text);
        fprintf(stderr, "    %s\n", text);
    }
    return err == WEFT_ERR_UNSUP ? CASE_REFUSED : CASE_WRONG;
}

/* Two units in the last place of the narrow types, whose intermediate results are rounded too. */
static double relative_tolerance(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_BF16 ? 0x1p-6 : dtype == WEFT_DTYPE_F16 ? 0x1p-9 : 1e-3;
}

/* |got - want| <= r |want| + 1e-6 scale, with the r of ONNX's own backend test; integers and
 * booleans exactly. */
static bool agrees(const weft_tensor *got, const weft_tensor *want, char *why, size_t size)
{
    if (got->dtype != want->dtype || got->rank != want->rank) {
        snprintf(why, size, "result is %s of rank %d, expected %s of rank %d",
                 weft_dtype_name(got->dtype), got->rank, weft_dtype_name(want->dtype), want->rank);
        return false;
    }
    for (int32_t i = 0; i < want->rank; i++)
        if (got->dim[i] != want->dim[i]) {
            snprintf(why, size, "dim %d is %lld, expected %lld", i, (long long)got->dim[i],
                     (long long)want->dim[i]);
            return false;
        }
    double scale = 0;
    int64_t n = weft_tensor_numel(want);
    for (int64_t i = 0; i < n; i++) {
        double y = fabs(weft_tensor_get_f64(want, i));
        scale = isfinite(y) && y > scale ? y : scale;
    }
    bool exact = !weft_dtype_is_float(want->dtype);
    double relative = relative_tolerance(want->dtype);
    for (int64_t i = 0; i < n; i++) {
        double x = weft_tensor_get_f64(got, i), y = weft_tensor_get_f64(want, i);
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        if (!exact && fabs(x - y) <= relative * fabs(y) + 1e-6 * scale + 1e-7)
            continue;
        snprintf(why, size, "element %lld is %g, expected %g", (long long)i, x, y);
        return false;
    }
    return true;
}

static uint32_t load_tensors(const char *set, const char *kind, weft_arena *arena, weft_diag *diag,
                             weft_tensor *out, weft_err *err)
{
    uint32_t n = 0;
    for (; n < PORTS_MAX && *err == WEFT_ERR_OK; n++) {
        char path[4096 + 128];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s_%u.pb", set, kind, n);
        if (stat(path, &st) != 0)
            break;
        *err = weft_import_tensor(path, arena, diag, &out[n]);
    }
    return n;
}

/* Old data stores bfloat16 tensors as uint16. */
static void fix_bfloat16(weft_tensor *t, uint32_t declared)
{
    if (declared == WEFT_DTYPE_BF16 && t->dtype == WEFT_DTYPE_U16)
        t->dtype = WEFT_DTYPE_BF16;
}

static outcome run_data_set(weft_session *session, const char *set, weft_arena *arena,
                            weft_diag *diag)
{
    static weft_tensor in[PORTS_MAX], want[PORTS_MAX], out[PORTS_MAX];
    const weft_bundle_program *p = weft_session_program(session);
    weft_err err = WEFT_ERR_OK;
    uint32_t n_in = load_tensors(set, "input", arena, diag, in, &err);
    uint32_t n_want = load_tensors(set, "output", arena, diag, want, &err);
    if (err != WEFT_ERR_OK)
        return report(diag, err);
    if (n_in < p->n_input || n_want > p->n_output || p->n_output > PORTS_MAX) {
        fprintf(stderr, "    %u inputs and %u outputs, the data has %u and %u\n", p->n_input,
                p->n_output, n_in, n_want);
        return CASE_WRONG;
    }
    for (uint32_t i = 0; i < p->n_input; i++)
        fix_bfloat16(&in[i], p->value[p->input[i].value - 1].type.dtype);
    for (uint32_t i = 0; i < n_want; i++)
        fix_bfloat16(&want[i], p->value[p->output[i].value - 1].type.dtype);
    err = weft_session_run(session, in, p->n_input, diag, out, p->n_output);
    if (err != WEFT_ERR_OK)
        return report(diag, err);
    for (uint32_t i = 0; i < n_want; i++) {
        char why[256];
        if (!agrees(&out[i], &want[i], why, sizeof why)) {
            fprintf(stderr, "    output %u: %s\n", i, why);
            return CASE_WRONG;
        }
    }
    return CASE_PASS;
}

static outcome run_case(const char *dir)
{
    char model[4096 + 64], path[] = "/tmp/weft-case-XXXXXX";
    snprintf(model, sizeof model, "%s/model.onnx", dir);
    int fd = mkstemp(path);
    if (fd < 0) {
        perror("    mkstemp");
        return CASE_WRONG;
    }
    close(fd);
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_engine *engine = NULL;
    weft_session *session = NULL;
    const int64_t batch = 1;
    const weft_run_options run = {.pass = {.batch = &batch, .n_batch = 1},
                                  .verify = WEFT_VERIFY_EACH};
    weft_err err = compile_file(model, path, &run, arena, diag);
    if (err == WEFT_ERR_OK)
        err = weft_engine_open(path, &(weft_engine_options){.threads = 1}, diag, &engine);
    if (err == WEFT_ERR_OK)
        err = weft_session_open(engine, "m", diag, &session);
    outcome result = err == WEFT_ERR_OK ? CASE_PASS : report(diag, err);
    for (int set = 0; result == CASE_PASS; set++) {
        char data[4096 + 64];
        struct stat st;
        snprintf(data, sizeof data, "%s/test_data_set_%d", dir, set);
        if (stat(data, &st) != 0)
            break;
        result = run_data_set(session, data, arena, diag);
    }
    weft_session_close(session);
    weft_engine_close(engine);
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
    unlink(path);
    return result;
}

/* -- Cases in child processes --------------------------------------------------------------- */

static void run_cases_and_exit(const options *o, char *const *name, size_t n, int to)
{
    for (size_t i = 0; i < n; i++) {
        char dir[4096];
        snprintf(dir, sizeof dir, "%s/%s/%s", o->data, o->suite, name[i]);
        alarm(CASE_SECONDS);
        unsigned char result = (unsigned char)run_case(dir);
        if (result != CASE_PASS)
            fprintf(stderr, "    in %s\n", name[i]);
        fflush(NULL);
        if (write(to, &result, 1) != 1)
            abort();
    }
    exit(0);
}

/* Runs the first cases of a list in one child, until all or CASES_A_CHILD are done or one crashes.
 * Returns how many have a result. What the sanitizers find when the child ends is a crash of the
 * last one. */
static size_t run_cases_apart(const options *o, char *const *name, size_t n, outcome *out)
{
    int ends[2], status = 0;
    size_t done = 0;
    n = n < CASES_A_CHILD ? n : CASES_A_CHILD;
    fflush(NULL);
    pid_t pid = pipe(ends) == 0 ? fork() : -1;
    if (pid < 0) {
        perror("    fork");
        exit(1);
    }
    if (pid == 0) {
        close(ends[0]);
        run_cases_and_exit(o, name, n, ends[1]);
    }
    close(ends[1]);
    for (unsigned char result; done < n && read(ends[0], &result, 1) == 1;)
        out[done++] = (outcome)result;
    close(ends[0]);
    if (waitpid(pid, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "    ended by signal %d, exit code %d\n", WTERMSIG(status),
                WEXITSTATUS(status));
        done += done < n;
        out[done - 1] = CASE_CRASH;
    }
    return done;
}

/* -- Gaps ----------------------------------------------------------------------------------- */

typedef struct names {
    char *at[NAMES_MAX];
    bool met[NAMES_MAX], may_differ[NAMES_MAX];
    size_t n;
} names;

/* Lines "suite/case: reason"; '#' begins a comment. */
static bool load_gaps(const char *path, const char *suite, names *out)
{
    FILE *f = fopen(path, "r");
    char line[1024];
    size_t prefix = strlen(suite);
    if (!f) {
        perror(path);
        return false;
    }
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (line[0] == '#' || line[0] == '\n' || strncmp(line, suite, prefix) != 0 ||
            line[prefix] != '/')
            continue;
        if (!colon || strspn(colon + 1, " \n") == strlen(colon + 1) || out->n == NAMES_MAX) {
            fprintf(stderr, "%s: no reason given: %s", path, line);
            fclose(f);
            return false;
        }
        *colon = '\0';
        out->may_differ[out->n] = strncmp(colon + 1, " wrong:", 7) == 0;
        out->at[out->n++] = strdup(line + prefix + 1);
    }
    fclose(f);
    return true;
}

static size_t find_gap(names *gaps, const char *name)
{
    for (size_t i = 0; i < gaps->n; i++)
        if (strcmp(gaps->at[i], name) == 0) {
            gaps->met[i] = true;
            return i;
        }
    return NO_GAP;
}

/* -- The suite ------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool list_cases(const options *o, names *out)
{
    char path[4096 + 128];
    snprintf(path, sizeof path, "%s/%s", o->data, o->suite);
    DIR *dir = opendir(path);
    if (!dir)
        return false;
    for (struct dirent *e; (e = readdir(dir)) && out->n < NAMES_MAX;)
        if (e->d_name[0] != '.' && (!o->only || strcmp(o->only, e->d_name) == 0))
            out->at[out->n++] = strdup(e->d_name);
    closedir(dir);
    qsort(out->at, out->n, sizeof out->at[0], by_name);
    return true;
}

/* A gap is a case that is refused; a reason that begins with "wrong:" explains other numbers, which
 * are then the data's fault. */
static bool is_expected(const names *gaps, size_t gap, outcome result)
{
    if (gap == NO_GAP)
        return result == CASE_PASS;
    return result == (gaps->may_differ[gap] ? CASE_WRONG : CASE_REFUSED);
}

static int run_suite(const options *o, const names *cases, names *gaps)
{
    unsigned count[CASE_OUTCOMES] = {0}, unexpected = 0;
    static outcome results[NAMES_MAX];
    for (size_t i = 0; i < cases->n;)
        i += run_cases_apart(o, cases->at + i, cases->n - i, results + i);
    for (size_t i = 0; i < cases->n; i++) {
        size_t gap = find_gap(gaps, cases->at[i]);
        outcome result = results[i];
        count[result]++;
        bool expected = is_expected(gaps, gap, result);
        unexpected += !expected;
        if (!expected || o->verbose)
            printf("%s/%s: %s%s\n", o->suite, cases->at[i], outcome_name[result],
                   gap == NO_GAP ? "" : ", is listed as a gap");
    }
    for (size_t i = 0; i < gaps->n && !o->only; i++)
        if (!gaps->met[i]) {
            unexpected++;
            printf("%s/%s: listed as a gap, but there is no such case\n", o->suite, gaps->at[i]);
        }
    printf("%s: %zu cases, %u pass, %u refused, %u wrong, %u crash; %zu listed gaps, %u not as "
           "listed\n",
           o->suite, cases->n, count[CASE_PASS], count[CASE_REFUSED], count[CASE_WRONG],
           count[CASE_CRASH], gaps->n, unexpected);
    return unexpected ? 1 : 0;
}

int main(int argc, char **argv)
{
    options o = {0};
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--verbose") == 0)
            o.verbose = true;
        else if (strcmp(argv[i], "--data") == 0 && next)
            o.data = argv[++i];
        else if (strcmp(argv[i], "--suite") == 0 && next)
            o.suite = argv[++i];
        else if (strcmp(argv[i], "--gaps") == 0 && next)
            o.gaps = argv[++i];
        else if (strcmp(argv[i], "--case") == 0 && next)
            o.only = argv[++i];
    }
    if (!o.data || !o.suite || !o.gaps) {
        fputs("usage: onnx_cases --data DIR --suite NAME --gaps FILE [--case NAME] [--verbose]\n",
              stderr);
        return 2;
    }
    static names cases, gaps;
    if (!list_cases(&o, &cases)) {
        printf("no conformance data in %s/%s: skipped\n", o.data, o.suite);
        return 77;
    }
    return load_gaps(o.gaps, o.suite, &gaps) ? run_suite(&o, &cases, &gaps) : 1;
}
