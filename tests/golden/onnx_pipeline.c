/* Runs the pipeline on the ONNX conformance models: onnx_pipeline FOLDER. Each model.onnx below
 * the folder goes through the passes; the verifier runs after each pass. The result must print,
 * read back and print the same, and compute what the model computed. Models that the importer
 * refuses are counted. */
#include "golden.h"

#include "frontend/frontend.h"
#include "passes/passes.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>

enum { SKIPPED = 77, OPEN_MAX = 16, MODELS_MIN = 100 };

/* nftw has no argument for the caller. */
static int n_good, n_bad, n_refused;

static void complain(const char *path, const char *what, const weft_diag *diag)
{
    char text[1024];
    printf("%s: %s\n", path, what);
    for (size_t i = 0; i < weft_diag_count(diag); i++) {
        weft_diag_format(weft_diag_at(diag, i), text, sizeof text);
        printf("    %s\n", text);
    }
}

static weft_module *import(const char *path, weft_diag *diag)
{
    weft_module *m = weft_module_create(0);
    weft_graph *g;
    if (m && weft_import_onnx(m, path, NULL, diag, &g) == WEFT_ERR_OK)
        return m;
    weft_module_destroy(m);
    return NULL;
}

/* The module parsed from its own printed text, or NULL. */
static weft_module *reread(const char *path, weft_module *m, weft_diag *diag)
{
    weft_module *again = NULL;
    weft_buf first = {0}, second = {0};
    char dir[4096];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    weft_module_print(m, &first);
    if (weft_module_parse(first.at, first.len, path, dir, diag, &again) == WEFT_ERR_OK) {
        weft_module_print(again, &second);
        if (strcmp(first.at, second.at) != 0) {
            weft_module_destroy(again);
            again = NULL;
        }
    }
    weft_buf_finish(&first);
    weft_buf_finish(&second);
    return again;
}

static const char *check_model(const char *path, weft_module *before, weft_module *m,
                               weft_diag *diag)
{
    size_t n;
    const weft_pass *const *pass = weft_pipeline("cpu", &n);
    weft_run_options options = {.verify = WEFT_VERIFY_EACH};
    if (weft_passes_run(m, pass, n, &options, diag) != WEFT_ERR_OK)
        return "the passes fail";
    weft_module *again = reread(path, m, diag);
    const char *wrong = NULL;
    if (!again)
        wrong = "the print does not read back to the same";
    else if (weft_module_verify(again, diag) != WEFT_ERR_OK)
        wrong = "what was read back breaks rules";
    else if (!golden_same_meaning(before, again))
        wrong = "the passes changed what it computes";
    weft_module_destroy(again);
    return wrong;
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    if (kind != FTW_F || strcmp(path + at->base, "model.onnx") != 0)
        return 0;
    weft_diag *diag = weft_diag_create();
    weft_module *before = import(path, diag), *m = import(path, diag);
    if (!before || !m) {
        n_refused++;
    } else {
        weft_diag_clear(diag);
        const char *wrong = check_model(path, before, m, diag);
        if (wrong)
            complain(path, wrong, diag);
        n_bad += wrong != NULL;
        n_good += wrong == NULL;
    }
    weft_module_destroy(before);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2 || nftw(argv[1], visit, OPEN_MAX, FTW_PHYS) != 0) {
        printf("no conformance data\n");
        return SKIPPED;
    }
    printf("%d models keep their meaning, %d do not, %d refused\n", n_good, n_bad, n_refused);
    return n_bad || n_good < MODELS_MIN ? 1 : 0;
}
