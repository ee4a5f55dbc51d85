/* Names, versions and weights of models; files of a repository. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/deployment_int.h"
#include "runtime/server/router_int.h"
#include "tests/support/rand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MODELS = 8 };

typedef struct world {
    weft_bundle_program program[MODELS];
    router_model model[MODELS];
    uint32_t key[MODELS];
    router_worker worker[2];
    bool serves[2][MODELS];
    weft_router router;
} world;

static void add(world *w, const char *name, const char *version, double weight, uint32_t worker)
{
    uint32_t i = w->router.n_model++;
    w->program[i].name = name;
    w->model[i] =
        (router_model){.program = &w->program[i], .shown = true, .wanted = true, .weight = weight};
    strcpy(w->model[i].version, version);
    weft_router__set_key(&w->router, i);
    w->serves[worker][i] = true;
}

static void begin(world *w)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < 2; i++)
        w->worker[i] = (router_worker){.serves = w->serves[i], .process = {.state = WORKER_IDLE}};
    w->router = (weft_router){.model = w->model, .key = w->key, .worker = w->worker, .n_worker = 2};
}

static uint32_t find(const world *w, const char *name, const char *version)
{
    return weft_router__find(&w->router, name, strlen(name), version, strlen(version));
}

static void test_router_models__find(void **state)
{
    world w;
    (void)state;
    begin(&w);
    add(&w, "m", "9", 1, 0);
    add(&w, "mm", "1", 1, 0);
    add(&w, "m", "10", 1, 1);
    add(&w, "m", "2", 0, 1);
    assert_int_equal(find(&w, "m", ""), 2); /* the latest, by number */
    assert_int_equal(find(&w, "m", "9"), 0);
    assert_int_equal(find(&w, "m", "1"), UINT32_MAX);
    assert_int_equal(find(&w, "m", "09"), UINT32_MAX);
    assert_int_equal(find(&w, "mm", ""), 1);
    assert_int_equal(find(&w, "", ""), UINT32_MAX);
    w.model[0].weight = 2;
    assert_int_equal(find(&w, "m", ""), 0);
    w.model[0].shown = false;
    assert_int_equal(find(&w, "m", "9"), UINT32_MAX);
    assert_int_equal(find(&w, "m", ""), 2);
    uint32_t at = weft_router__next_version(&w.router, 2, UINT32_MAX);
    assert_int_equal(at, 3);
    assert_int_equal(weft_router__next_version(&w.router, 2, at), 2);
    assert_int_equal(weft_router__next_version(&w.router, 2, 2), UINT32_MAX);
}

/* In any run of requests no version is more than one ahead of or behind its part. */
static void test_router_models__weights(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        world w;
        uint64_t s = seed;
        double sum = 0, weight[4];
        uint32_t n[4] = {0};
        begin(&w);
        for (uint32_t i = 0; i < 4; i++) {
            char version[8];
            snprintf(version, sizeof version, "%u", i + 1);
            weight[i] = rand_below(&s, 8) + (i == 0);
            sum += weight[i];
            add(&w, "m", version, weight[i], i % 2);
        }
        add(&w, "other", "1", 100, 0);
        for (uint32_t k = 1; k <= 500; k++) {
            uint32_t at = weft_router__choose(&w.router, 2);
            assert_true(at < 4);
            n[at]++;
            for (uint32_t i = 0; i < 4; i++) {
                double part = k * weight[i] / sum;
                assert_true(n[i] > part - 4 && n[i] < part + 4);
                assert_true(weight[i] > 0 || n[i] == 0);
            }
        }
        /* Without its worker a version gets nothing, until none has one. */
        w.worker[0].process.state = WORKER_WAITING;
        bool any = weight[1] > 0 || weight[3] > 0;
        for (uint32_t k = 0; k < 50; k++)
            assert_true(weft_router__choose(&w.router, 0) % 2 == 1 || !any);
    }
}

static void test_router_models__all_weights_zero(void **state)
{
    world w;
    (void)state;
    begin(&w);
    add(&w, "m", "1", 0, 0);
    add(&w, "m", "3", 0, 1);
    assert_int_equal(weft_router__choose(&w.router, find(&w, "m", "")), 1);
}

static void test_router_models__versions(void **state)
{
    static const char *const good[] = {"1", "10", "999999999999999999"};
    static const char *const bad[] = {"",
                                      "0",
                                      "01",
                                      "-1",
                                      "+1",
                                      "1.0",
                                      "1x",
                                      " 1",
                                      "1 ",
                                      "1\n",
                                      "x",
                                      "1e3",
                                      "1000000000000000000"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(weft_serve_is_version(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(weft_serve_is_version(bad[i]));
}

static void make_file(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

static int count_scanned(const char *folder)
{
    weft_repository_scan *scan = weft_repository__open_scan(folder);
    const char *model, *version;
    int n = 0;
    assert_non_null(scan);
    while (weft_repository__scan(scan, &model, &version)) {
        assert_true(!model || (model[0] && version[0]));
        n += model != NULL;
    }
    assert_false(weft_repository__scan(scan, &model, &version));
    weft_repository__close_scan(scan);
    return n;
}

static void test_repository__find(void **state)
{
    char folder[] = "/tmp/weft-repository-XXXXXX", path[256];
    weft_repository_file file;
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? "n" : "m");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    static const char *const names[] = {"m/2.weft", "m/10.weft", "m/03.weft", "m/x.weft",
                                        "m.weft",   "p.weft",    ".weft"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        make_file(folder, names[i]);
    assert_true(weft_repository__find(folder, "m", NULL, &file));
    assert_string_equal(file.version, "10");
    assert_true(weft_repository__find(folder, "m", "2", &file));
    assert_true(weft_repository__find(folder, "m", "1", &file)); /* m.weft */
    assert_true(weft_repository__find(folder, "p", NULL, &file));
    assert_string_equal(file.version, "1");
    static const char *const bad[] = {"", ".", "..", "../m", "m/2", "/m", "n", "q", "m.weft", "p/"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(weft_repository__find(folder, bad[i], NULL, &file));
    assert_false(weft_repository__find(folder, "m", "3", &file));
    assert_false(weft_repository__find(folder, "m", "../2", &file));
    assert_false(weft_repository__find(folder, "p", "2", &file));
    assert_int_equal(count_scanned(folder), 4);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? "n" : "m");
        rmdir(path);
    }
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_models__find),
        cmocka_unit_test(test_router_models__weights),
        cmocka_unit_test(test_router_models__all_weights_zero),
        cmocka_unit_test(test_router_models__versions),
        cmocka_unit_test(test_repository__find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
