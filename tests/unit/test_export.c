/* Exporters: valid names, YAML that reads back, equal bytes for equal plans in any order, and
 * errors for plans that cannot be exported. */
#include "scheduler/export/export_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ctype.h>
#include <math.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

static void test_export__labels_are_dns_labels(void **state)
{
    static const char *const names[] = {"resnet50", "ResNet50", "a_b", "a-b",
                                        "a.b",      "x-",       "--",  "0123456789abcde"};
    const char *seen[8];
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        const char *label = weft_export__label(arena, names[i], 20);
        assert_true(strlen(label) <= 20 && strlen(label) > 0);
        for (const char *c = label; *c; c++)
            assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-');
        assert_true(label[strlen(label) - 1] != '-');
        seen[i] = label;
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(seen[k], label);
    }
    assert_string_equal(seen[0], "resnet50");
    char name[200];
    memset(name, 'a', sizeof name);
    name[128] = 0;
    const char *one = weft_export__label(arena, name, 63);
    name[127] = 'b';
    const char *two = weft_export__label(arena, name, 63);
    assert_int_equal(strlen(one), 63);
    assert_string_not_equal(one, two);
}

static void test_export__yaml_reads_back(void **state)
{
    static const char *const texts[] = {"plain",     "true",   "No",      "~",     "",       "1.5",
                                        "a: b",      "# no",   "- no",    "'",     "\"",     "a\\b",
                                        "new\nline", "{x}",    "*alias",  "&anch", "!tag",   "%d",
                                        "@at",       "`tick`", "a,b",     "[l]",   "null",   "0x1",
                                        "1e3",       "/path",  "pvc://x", "a=b",   " space", "?"};
    enum { N = sizeof texts / sizeof texts[0] };
    weft_export_yaml y;
    yaml_parser_t parser;
    yaml_document_t doc;
    (void)state;
    weft_export_yaml__begin(&y);
    weft_export_yaml__document(&y);
    weft_export_yaml__seq(&y);
    for (size_t i = 0; i < N; i++)
        weft_export_yaml__text(&y, texts[i]);
    weft_export_yaml__number(&y, -7);
    weft_export_yaml__bool(&y, true);
    weft_export_yaml__end_seq(&y);
    char *text = weft_export_yaml__finish(&y);
    assert_non_null(text);
    assert_true(yaml_parser_initialize(&parser));
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    assert_true(yaml_parser_load(&parser, &doc));
    const yaml_node_t *root = yaml_document_get_root_node(&doc);
    assert_int_equal(root->data.sequence.items.top - root->data.sequence.items.start, N + 2);
    for (size_t i = 0; i < N; i++) {
        const yaml_node_t *node = yaml_document_get_node(&doc, root->data.sequence.items.start[i]);
        assert_string_equal((const char *)node->data.scalar.value, texts[i]);
        /* A plain scalar must be a word that every YAML reader takes for a string. */
        if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
            assert_true(strcmp(texts[i], "plain") == 0 || strcmp(texts[i], "/path") == 0);
    }
    yaml_document_delete(&doc);
    yaml_parser_delete(&parser);
    free(text);
    /* An unfinished document is an error. */
    weft_export_yaml__begin(&y);
    weft_export_yaml__document(&y);
    weft_export_yaml__end_map(&y);
    assert_null(weft_export_yaml__finish(&y));
}

enum { PLACED = 9 };

static void make_plan(weft_placement *p, weft_plan *plan)
{
    static const struct {
        const char *model, *type, *slice;
        uint32_t device, id;
        int32_t start;
        uint32_t procs;
    } rows[PLACED] = {
        {"a", "h100", "3g.40gb", 0, 0, 4, 2},   {"a", "h100", "1g.10gb", 0, 1, 0, 1},
        {"B.x", "h100", "1g.10gb", 0, 2, 1, 1}, {"a", "h100", "1g.10gb", 1, 0, 3, 1},
        {"a", "a100-80", "40%", 2, 0, -1, 1},   {"c", "a100-80", "60%", 2, 1, -1, 1},
        {"c", "v100", "", 3, 0, -1, 1},         {"d", "cpu", "1core", 4, 0, -1, 1},
        {"d", "cpu", "1core", 4, 1, -1, 1},
    };
    for (int i = 0; i < PLACED; i++)
        p[i] = (weft_placement){.model = rows[i].model,
                                .device = rows[i].device,
                                .type = rows[i].type,
                                .slice = rows[i].slice,
                                .slice_id = rows[i].id,
                                .mig_start = rows[i].start,
                                .share = 0.1,
                                .batch = 4,
                                .procs = rows[i].procs,
                                .rate_per_s = 10,
                                .capacity_per_s = 20,
                                .latency_us = 1000};
    *plan = (weft_plan){.policy = "test", .at = p, .n = PLACED, .gpus = 5, .cost_per_hour = 10};
}

static const weft_export_file *find_file(const weft_export_file *file, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(file[i].path, path) == 0)
            return &file[i];
    fail_msg("no file %s", path);
    return NULL;
}

static void test_export__order_of_placements_does_not_show(void **state)
{
    weft_placement p[PLACED], q[PLACED];
    weft_plan plan, other;
    (void)state;
    make_plan(p, &plan);
    make_plan(q, &other);
    for (int i = 0; i < PLACED; i++)
        q[i] = p[(i * 4 + 5) % PLACED];
    for (size_t i = 0; weft_exporter_at(i); i++) {
        const weft_export_file *a, *b;
        size_t n, m;
        const weft_exporter *e = weft_exporter_at(i);
        bool addresses = strcmp(e->name, "envoy") == 0; /* looks nothing up by name */
        const weft_export_options options = {
            .nodes = addresses ? "weft-a100-80-0 10.0.0.1\nweft-cpu-0 10.0.0.2\n"
                                 "weft-h100-0 10.0.0.3\nweft-v100-0 fd00::4\n"
                               : NULL};
        assert_int_equal(e->run(&plan, &options, arena, diag, &a, &n), WEFT_ERR_OK);
        assert_int_equal(e->run(&other, &options, arena, diag, &b, &m), WEFT_ERR_OK);
        assert_int_equal(n, m);
        for (size_t k = 0; k < n; k++) {
            assert_string_equal(a[k].path, b[k].path);
            assert_string_equal(a[k].text, b[k].text);
            assert_true(a[k].path[0] != '/' && !strstr(a[k].path, ".."));
            for (size_t j = 0; j < k; j++)
                assert_string_not_equal(a[k].path, a[j].path);
        }
        assert_ptr_equal(weft_exporter_find(e->name), e);
    }
}

static void test_export__parts_are_plans_of_one_worker(void **state)
{
    weft_placement p[PLACED];
    weft_plan plan, part;
    const weft_export_options options = {.gpus_per_node = 1};
    const weft_export_file *file;
    size_t n;
    (void)state;
    make_plan(p, &plan);
    assert_int_equal(weft_exporter_find("systemd")->run(&plan, &options, arena, diag, &file, &n),
                     WEFT_ERR_OK);
    const weft_export_file *f = find_file(file, n, "weft-cpu-0/plans/weft-d4-s0.json");
    assert_int_equal(weft_plan_from_json(f->text, f->len, "part", arena, diag, &part), WEFT_ERR_OK);
    assert_int_equal(part.n, 2);
    assert_int_equal(part.at[1].slice_id, 1);
    assert_int_equal(part.at[1].device, 0);
    f = find_file(file, n, "weft-h100-0/plans/weft-d0-s0.json");
    assert_int_equal(weft_plan_from_json(f->text, f->len, "part", arena, diag, &part), WEFT_ERR_OK);
    assert_int_equal(part.n, 1);
    /* With one GPU per node the second h100 is another node, which starts at the first port again.
     */
    f = find_file(file, n, "weft-h100-1/weft-d1-s0.service");
    assert_non_null(strstr(f->text, "--http 8000 "));
    f = find_file(file, n, "weft-h100-0/weft-d0-s0.service");
    assert_non_null(strstr(f->text, "--http 8020 "));
    assert_non_null(strstr(f->text, "Requires=weft-d0-s0-mps.service"));
    (void)find_file(file, n, "weft-h100-0/weft-d0-s0-mps.service");
}

/* Weights of a front: exact where they can be, else as near as any scale of them comes. */
static void test_export__weights_have_the_shares_of_the_rates(void **state)
{
    static const double rates[][4] = {{70, 20, 10},
                                      {1, 1, 1, 1},
                                      {1000, 3},
                                      {5000, 1},
                                      {0, 7},
                                      {0, 0},
                                      {333.3, 111.1, 17.9, 2.3},
                                      {1e307, 1e307, 1e306}};
    static const size_t n[] = {3, 4, 2, 2, 2, 2, 4, 3};
    static const double most[] = {0, 0, 0.31, 19, 0, 0, 0.02, 0};
    (void)state;
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        uint32_t weight[4], sum = 0;
        double all = 0, worst = 0;
        double said = weft_export__weigh(rates[i], n[i], 256, weight);
        for (size_t k = 0; k < n[i]; k++) {
            assert_in_range(weight[k], 1, 256);
            sum += weight[k];
            all += rates[i][k];
        }
        for (size_t k = 0; k < n[i]; k++)
            if (rates[i][k] > 0)
                worst = fmax(worst, fabs((double)weight[k] / sum * all / rates[i][k] - 1));
        assert_true(i == 4 || fabs(worst - said) < 1e-9);
        assert_true(i == 4 || said <= most[i] + 1e-9);
    }
}

static void test_export__refuses_what_is_unsafe(void **state)
{
    static const weft_export_options wrong[] = {
        {.bundle = "models.weft"},
        {.bundle = "/srv/a b.weft"},
        {.bundle = "/srv/$(x).weft"},
        {.bundle = "/srv/a\nb.weft"},
        {.bundle = "/top.weft"},
        {.bundle = "/srv/weft/"},
        {.socket = "/run/a:b"},
        {.bind = "[::1:80"},
        {.bind = "a/b:80"},
        {.bind = "1.2.3:80"},
        {.weft = "/bin/we\"ft"},
        {.config = "/etc/%i"},
        {.image = "a b"},
        {.image = ""},
        {.claim = "A"},
        {.name = "weft."},
        {.name = "-weft"},
        {.name = "0123456789012345678901234567890123456789"},
        {.port = 65500},
        {.gpus_per_node = 65},
    };
    weft_placement p[PLACED];
    weft_plan plan;
    const weft_export_options options = {0};
    const weft_export_file *file;
    size_t n;
    (void)state;
    make_plan(p, &plan);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(weft_exporter_find("slurm")->run(&plan, &wrong[i], arena, diag, &file, &n),
                         WEFT_ERR_INPUT);
    const struct {
        const char *type, *slice, *model;
        int32_t start;
    } bad[] = {{"h100", "9g.1gb", "a", 0}, {"h100", "half", "a", -1}, {"h 100", "", "a", -1},
               {"h100:1", "", "a", -1},    {"h/100", "", "a", -1},    {"h100-", "", "a", -1},
               {"h100", "", "../a", -1},   {"cpu", "0core", "a", -1}, {"h100", "140%", "a", -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weft_placement one = p[0];
        weft_plan small = {.policy = "test", .at = &one, .n = 1, .gpus = 1};
        one.type = bad[i].type;
        one.slice = bad[i].slice;
        one.model = bad[i].model;
        one.mig_start = bad[i].start;
        for (size_t k = 0; weft_exporter_at(k); k++)
            assert_int_equal(weft_exporter_at(k)->run(&small, &options, arena, diag, &file, &n),
                             WEFT_ERR_INPUT);
    }
    plan.n = 0;
    assert_int_equal(weft_exporter_find("systemd")->run(&plan, &options, arena, diag, &file, &n),
                     WEFT_ERR_INPUT);
    assert_null(weft_exporter_find("helm"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_export__labels_are_dns_labels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_export__yaml_reads_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_export__order_of_placements_does_not_show, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_export__parts_are_plans_of_one_worker, set_up,
                                        tear_down),
        cmocka_unit_test(test_export__weights_have_the_shares_of_the_rates),
        cmocka_unit_test_setup_teardown(test_export__refuses_what_is_unsafe, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
