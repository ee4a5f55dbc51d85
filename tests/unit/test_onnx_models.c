/* Every model of the ONNX conformance data is imported and verifies, or is refused with the name
 * of the unsupported feature. Skipped (77) if the data is not installed. */
#include "frontend/frontend.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

typedef struct counts {
    int imported, refused;
} counts;

static const char *data_folder(void)
{
    const char *dir = getenv("WEFT_ONNX_DATA");
    return dir ? dir : WEFT_ONNX_DATA;
}

/* A refusal says what is not supported. */
static void check_refusal(const weft_diag *diag, const char *path)
{
    size_t unsup = 0;
    for (size_t i = 0; i < weft_diag_count(diag); i++)
        unsup += weft_diag_at(diag, i)->err == WEFT_ERR_UNSUP;
    if (unsup == 0)
        fail_msg("%s: refused without a reason", path);
}

static void check_model(const char *path, counts *n)
{
    weft_module *m = weft_module_create((size_t)1 << 30);
    weft_diag *diag = weft_diag_create();
    weft_graph *g = NULL;
    weft_err err = weft_import_onnx(m, path, NULL, diag, &g);
    if (err == WEFT_ERR_OK)
        err = weft_module_verify(m, diag);
    if (err != WEFT_ERR_OK && err != WEFT_ERR_UNSUP) {
        char text[400] = "";
        if (weft_diag_count(diag))
            weft_diag_format(weft_diag_at(diag, 0), text, sizeof text);
        fail_msg("%s: %s: %s", path, weft_err_name(err), text);
    }
    if (err == WEFT_ERR_UNSUP)
        check_refusal(diag, path);
    n->imported += err == WEFT_ERR_OK;
    n->refused += err == WEFT_ERR_UNSUP;
    weft_diag_destroy(diag);
    weft_module_destroy(m);
}

static counts check_folder(const char *sub)
{
    char path[4096];
    counts n = {0, 0};
    snprintf(path, sizeof path, "%s/%s", data_folder(), sub);
    DIR *dir = opendir(path);
    if (!dir)
        return n;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/%s/model.onnx", data_folder(), sub, e->d_name);
        if (access(path, R_OK) == 0)
            check_model(path, &n);
    }
    closedir(dir);
    print_message("%s: %d imported, %d refused\n", sub, n.imported, n.refused);
    return n;
}

static void test_onnx_models__nodes(void **state)
{
    (void)state;
    counts n = check_folder("node");
    if (n.imported + n.refused >= 900) /* the whole set */
        assert_true(n.imported >= 860);
}

static void test_onnx_models__simple(void **state)
{
    (void)state;
    (void)check_folder("simple");
}

static void test_onnx_models__pytorch(void **state)
{
    (void)state;
    assert_int_equal(check_folder("pytorch-operator").refused, 0);
    assert_int_equal(check_folder("pytorch-converted").refused, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_models__nodes),
        cmocka_unit_test(test_onnx_models__simple),
        cmocka_unit_test(test_onnx_models__pytorch),
    };
    if (access(data_folder(), R_OK) != 0) {
        print_message("no data in %s\n", data_folder());
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
