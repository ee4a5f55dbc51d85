/* Fleet files, the device table with its MIG rules, and measured profiles. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "scheduler/input/input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

static weft_err load(const char *text, weft_fleet *out)
{
    write_text(text);
    weft_diag_clear(diag);
    return weft_fleet_load(temp_path, arena, diag, out);
}

/* The first message contains this text ("": any) and has this line (0: any). */
static void expect_message(const char *input, uint32_t line, const char *message)
{
    assert_true(weft_diag_count(diag) > 0);
    const weft_message *msg = weft_diag_at(diag, 0);
    if (message[0] && !strstr(msg->text, message))
        fail_msg("'%s' is not in '%s' for:\n%s", message, msg->text, input);
    if (line && msg->line != line)
        fail_msg("line %u, not %u: %s", msg->line, line, msg->text);
}

static void expect_refusal(const char *text, uint32_t line, const char *message)
{
    weft_fleet fleet;
    assert_int_equal(load(text, &fleet), WEFT_ERR_INPUT);
    expect_message(text, line, message);
}

/* -- Fleet files ------------------------------------------------------------------------------ */

static void test_fleet__reads_all_keys(void **state)
{
    (void)state;
    weft_fleet fleet;
    assert_int_equal(load("devices:\n"
                          "  - type: cpu\n"
                          "    count: 1\n"
                          "    cores: 4\n"
                          "    slices: [1, 1, 2]\n"
                          "  - type: h100\n"
                          "    count: 2\n"
                          "    price: 2.99\n"
                          "    mem: 64GiB\n"
                          "    mig: true\n"
                          "    mps: true\n"
                          "  - {type: Tesla-T4, count: 3}\n", /* a usual name */
                          &fleet),
                     WEFT_ERR_OK);
    assert_int_equal(fleet.n_device, 3);
    const weft_fleet_device *cpu = &fleet.device[0], *h100 = &fleet.device[1];
    assert_int_equal(cpu->cores, 4);
    assert_int_equal(cpu->n_slice, 3);
    assert_int_equal(cpu->slice_cores[2], 2);
    assert_false(cpu->mig || cpu->mps);
    assert_int_equal(h100->count, 2);
    assert_true(h100->price_per_hour == 2.99 && weft_fleet__price(h100) == 2.99);
    assert_true(h100->mig && h100->mps);
    assert_true(weft_fleet__mem(h100) == (uint64_t)64 << 30);
    assert_true(fleet.device[2].price_per_hour == 0 && weft_fleet__price(&fleet.device[2]) > 0);
    assert_ptr_equal(weft_fleet__row(&fleet, "t4"), &fleet.device[2]);
    assert_null(weft_fleet__row(&fleet, "l4"));
}

static void test_fleet__refuses_wrong_values(void **state)
{
    (void)state;
    expect_refusal("devices:\n  - {type: h101, count: 1}\n", 2,
                   "unknown device type, did you mean h100?");
    expect_refusal("devices:\n  - {type: h100, cout: 1}\n", 2,
                   "unexpected key: cout, did you mean count?");
    expect_refusal("devices:\n  - {type: h100, count: 0}\n", 2, "count");
    expect_refusal("devices:\n  - {type: h100, count: -1}\n", 0, "");
    expect_refusal("devices:\n  - {type: h100, count: 99999}\n", 2, "count");
    expect_refusal("devices:\n  - {type: h100, count: 1, cores: 2}\n", 2, "cores");
    expect_refusal("devices:\n  - {type: h100, count: 1, price: -2}\n", 2, "price");
    expect_refusal("devices:\n  - {type: h100, count: 1, price: nan}\n", 2, "price");
    expect_refusal("devices:\n  - {type: h100, count: 1, mig: maybe}\n", 0, "");
    expect_refusal("devices:\n  - {type: h100, count: 1, mem: lots}\n", 2, "mem");
    expect_refusal("devices:\n  - {type: h100, count: 1, gpus: 2}\n", 2, "gpus");
    expect_refusal("devices:\n  - {type: t4, count: 1, mig: true}\n", 2, "no MIG");
    expect_refusal("devices:\n  - {type: cpu, count: 1}\n", 2, "cores");
    expect_refusal("devices:\n  - {type: cpu, count: 1, cores: 2, mps: true}\n", 2, "MPS");
    expect_refusal("devices:\n  - {type: cpu, count: 1, cores: 2, slices: [1, 2]}\n", 2,
                   "3 cores in total");
    expect_refusal("devices:\n  - {type: cpu, count: 1, cores: 2, slices: [0]}\n", 2, "no cores");
    expect_refusal("devices: []\n", 0, "");
    expect_refusal("devices:\n  - {type: t4, count: 1}\n  - {type: t4, count: 1}\n", 3, "twice");
}

/* -- Devices and slices ----------------------------------------------------------------------- */

static void test_fleet__device_table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; weft_device_type_at(i); i++) {
        const weft_device_type *t = weft_device_type_at(i);
        assert_ptr_equal(weft_device_type_find(t->name), t);
        assert_true(t->source && t->source[0]);
        assert_true(strlen(t->name) < WEFT_DEVICE_NAME_MAX);
        for (size_t j = 0; j < t->n_mig; j++) {
            const weft_mig_profile *m = &t->mig[j];
            assert_true(m->share > 0 && m->share <= 1);
            assert_true(m->mem_bytes > 0 && m->mem_bytes <= t->mem_bytes);
            assert_true(m->slots >= 1 && m->slots <= t->mig_slots && m->starts);
            for (size_t k = 0; k < j; k++)
                assert_string_not_equal(m->name, t->mig[k].name);
            for (uint32_t s = 0; s < 32; s++)
                if (m->starts & 1u << s)
                    assert_true(s + m->slots <= t->mig_slots);
        }
    }
    assert_null(weft_device_type_find("nothing"));
}

/* Counts all sets of (profile, start) with disjoint memory slots, without the 1g of double memory.
 * The published counts are 298 legal sets and 19 maximal ones. */
typedef struct mig_count {
    const weft_device_type *type;
    uint32_t legal, maximal;
} mig_count;

static bool fits_one(const weft_device_type *t, size_t j, uint32_t start, uint32_t taken)
{
    const weft_mig_profile *m = &t->mig[j];
    uint32_t range = ((1u << m->slots) - 1) << start;
    return m->starts & 1u << start && !(taken & range) && !(m->gpcs == 1 && m->slots == 2);
}

static void count_sets(mig_count *c, size_t from, uint32_t taken)
{
    bool full = true;
    c->legal++;
    for (size_t i = 0; i < c->type->n_mig * 8; i++) {
        size_t j = i / 8;
        uint32_t start = i % 8;
        if (!fits_one(c->type, j, start, taken))
            continue;
        full = false;
        if (i >= from)
            count_sets(c, i + 1, taken | ((1u << c->type->mig[j].slots) - 1) << start);
    }
    c->maximal += full;
}

static void test_fleet__mig_tables_allow_the_known_sets(void **state)
{
    static const char *const names[] = {"a100-40", "a100-80", "h100", "h200"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        mig_count c = {.type = weft_device_type_find(names[i])};
        count_sets(&c, 0, 0);
        assert_int_equal(c.legal, 298);
        assert_int_equal(c.maximal, 19);
    }
}

static void test_fleet__slices_resolve(void **state)
{
    static const uint32_t cores[] = {1, 3};
    weft_fleet_device cpu = {
        .type = "cpu", .count = 1, .cores = 4, .slice_cores = cores, .n_slice = 2};
    weft_fleet_device h200 = {.type = "h200", .count = 1, .mig = true, .mps = true};
    weft_fleet_device plain = {.type = "h200", .count = 1};
    weft_fleet_slice s;
    const char *why;
    (void)state;
    assert_true(weft_fleet_slice__resolve(&cpu, "3core", &s, &why));
    assert_true(s.kind == WEFT_SLICE_CORES && s.share == 0.75 && s.cores == 3);
    assert_false(weft_fleet_slice__resolve(&cpu, "4core", &s, &why));
    assert_false(weft_fleet_slice__resolve(&cpu, "", &s, &why));
    assert_false(weft_fleet_slice__resolve(&cpu, "core", &s, &why));
    assert_false(weft_fleet_slice__resolve(&cpu, "0core", &s, &why));
    cpu.n_slice = 0;
    assert_true(weft_fleet_slice__resolve(&cpu, "4core", &s, &why));
    assert_true(weft_fleet_slice__resolve(&h200, "1g.35gb", &s, &why));
    assert_true(s.kind == WEFT_SLICE_MIG && s.share == 26.0 / 132);
    assert_true(weft_fleet_slice__resolve(&h200, "40%", &s, &why));
    assert_true(s.kind == WEFT_SLICE_MPS && s.percent == 40 && s.share == 0.4);
    assert_true(weft_fleet_slice__resolve(&h200, "", &s, &why));
    assert_true(s.kind == WEFT_SLICE_WHOLE && s.share == 1);
    /* A share of an instance has half of 3 of 7 GPCs, and the memory of the whole instance. */
    assert_true(weft_fleet_slice__resolve(&h200, "3g.71gb/50%", &s, &why));
    assert_true(s.kind == WEFT_SLICE_MIG && s.percent == 50 && weft_fleet_slice__is_nested(&s));
    assert_true(s.share == 60.0 / 132 / 2 && s.weight == 3.0 / 14);
    assert_true(s.mem_bytes == s.mig->mem_bytes && strcmp(s.mig->name, "3g.71gb") == 0);
    assert_false(weft_fleet_slice__resolve(&h200, "3g.71gb/0%", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "3g.71gb/101%", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "3g.71gb/50", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "3g.71gb/", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "3g/50%", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "/50%", &s, &why));
    weft_fleet_device no_mps = h200;
    no_mps.mps = false;
    assert_false(weft_fleet_slice__resolve(&no_mps, "3g.71gb/50%", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "101%", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "0%", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "2.5%", &s, &why));
    assert_false(weft_fleet_slice__resolve(&h200, "1g.10gb", &s, &why));
    assert_false(weft_fleet_slice__resolve(&plain, "1g.18gb", &s, &why));
    assert_false(weft_fleet_slice__resolve(&plain, "40%", &s, &why));
}

/* -- Measured profiles ------------------------------------------------------------------------ */

static weft_err load_profile(const char *text, const char *layout, weft_profile *out)
{
    write_text(text);
    weft_diag_clear(diag);
    return weft_profile_load(temp_path, layout, "m", arena, diag, out);
}

static void expect_bad_profile(const char *text, const char *layout, uint32_t line,
                               const char *message)
{
    weft_profile profile;
    assert_int_equal(load_profile(text, layout, &profile), WEFT_ERR_INPUT);
    expect_message(text, line, message);
}

static void test_fleet__reads_weft_profile(void **state)
{
    (void)state;
    weft_profile p;
    assert_int_equal(load_profile("# measured on a Tuesday\n"
                                  "slice,device,time_us,batch,mreq_bytes\r\n"
                                  "1core,cpu,1500.5,1,1000000\r\n"
                                  "\n"
                                  "1g.10gb,h100,300,8,2000000",
                                  "weft", &p),
                     WEFT_ERR_OK);
    assert_int_equal(p.n, 2);
    assert_string_equal(p.point[0].device, "cpu");
    assert_string_equal(p.point[0].slice, "1core");
    assert_true(p.point[0].cost.time_us == 1500.5 && p.point[0].procs == 1);
    assert_string_equal(p.point[0].cost.source, "measured");
    assert_true(p.point[1].share == 16.0 / 132 && p.point[1].cost.mreq_bytes == 2000000);
    assert_int_equal(
        load_profile("device,slice,batch,time_us,idle_us\ncpu,1core,1,1500,900\n", "weft", &p),
        WEFT_ERR_OK);
    assert_true(p.point[0].idle_us == 900);
}

static void test_fleet__reads_parvagpu_profile(void **state)
{
    (void)state;
    weft_profile p;
    assert_int_equal(load_profile("Mig instance,Batch size,Workload Number,Throughput,Latency\n"
                                  "1,4,2,52.5,0.152\n"
                                  "7,8,1,0,0\n",
                                  "parvagpu", &p),
                     WEFT_ERR_OK);
    assert_int_equal(p.n, 1);
    assert_string_equal(p.point[0].device, "a100-80");
    assert_string_equal(p.point[0].slice, "1g.10gb");
    assert_true(p.point[0].throughput_per_s == 105 && p.point[0].procs == 2);
    assert_true(p.point[0].cost.time_us == 152000);
}

#define HEAD "device,slice,batch,time_us\n"

static void test_fleet__refuses_wrong_profiles(void **state)
{
    (void)state;
    weft_profile p;
    expect_bad_profile("", "weft", 0, "empty");
    expect_bad_profile(HEAD, "weft", 0, "no usable point");
    expect_bad_profile("device,slice,batch\n", "weft", 1, "time_us");
    expect_bad_profile("device,slice,batch,time_us,x\n", "weft", 1, "unknown column");
    expect_bad_profile("device,device,batch,time_us\n", "weft", 1, "twice");
    expect_bad_profile(HEAD "h100,,1\n", "weft", 2, "3 fields");
    expect_bad_profile(HEAD "h100,,1,0\n", "weft", 2, "time_us");
    expect_bad_profile(HEAD "h100,,1,nan\n", "weft", 2, "time_us");
    expect_bad_profile(HEAD "h100,,1,-5\n", "weft", 2, "time_us");
    expect_bad_profile(HEAD "h100,,0,5\n", "weft", 2, "batch");
    expect_bad_profile("device,slice,batch,time_us,idle_us\nh100,,1,5,6\n", "weft", 2, "idle_us");
    expect_bad_profile(HEAD "h100,,x,5\n", "weft", 2, "batch");
    expect_bad_profile(HEAD "h999,,1,5\n", "weft", 2, "unknown device");
    expect_bad_profile(HEAD "h100,9g,1,5\n", "weft", 2, "9g");
    expect_bad_profile(HEAD "h100,,1,5\nh100,,1,6\n", "weft", 3, "twice");
    expect_bad_profile("a,b\n", "parvagpu", 1, "header");
    expect_bad_profile("Mig instance,Batch size,Workload Number,Throughput,Latency\n"
                       "5,1,1,10,0.1\n",
                       "parvagpu", 2, "Mig instance");
    char text[2000];
    memset(text, ',', sizeof text);
    text[1000] = 0;
    expect_bad_profile(text, "weft", 1, "256 columns");
    static char line[70000];
    memset(line, 'x', sizeof line - 1);
    expect_bad_profile(line, "weft", 1, "65536 bytes");
    assert_int_equal(load_profile(HEAD, "other", &p), WEFT_ERR_INPUT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_fleet__reads_all_keys),         TEST(test_fleet__refuses_wrong_values),
        TEST(test_fleet__device_table_is_sound),  TEST(test_fleet__mig_tables_allow_the_known_sets),
        TEST(test_fleet__slices_resolve),         TEST(test_fleet__reads_weft_profile),
        TEST(test_fleet__reads_parvagpu_profile), TEST(test_fleet__refuses_wrong_profiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
