/* Which models of a joint program are run together: every subset with requests has its entry, no
 * more combinations of sizes are sent than a worker keeps prepared, and the frequent ones win. */
#include "runtime/router_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PARTS = 8 };

typedef struct subject {
    weft_bundle_program program;
    router_joint joint;
    joint_part kept[JOINT_KEPT_MAX * PARTS];
} subject;

static void open_subject(subject *s, uint32_t n_part)
{
    memset(s, 0, sizeof *s);
    s->program.n_part = n_part;
    s->joint.program = &s->program;
    s->joint.kept = s->kept;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void test_joint__every_subset_of_two_and_more(void **state)
{
    subject s;
    (void)state;
    open_subject(&s, 3);
    for (uint32_t set = 0; set < 8; set++)
        for (uint32_t must = 0; must < 3; must++) {
            joint_part waiting[3] = {{0}}, out[3];
            for (uint32_t k = 0; k < 3; k++)
                waiting[k].rows = set >> k & 1 ? 1 + k : 0;
            bool several = (set & (set - 1)) != 0, wanted = set >> must & 1;
            assert_int_equal(weft_joint__choose(&s.joint, waiting, must, out), several && wanted);
            if (several && wanted)
                assert_memory_equal(out, waiting, sizeof waiting);
        }
}

/* Unequal rows are taken as they are. */
static void test_joint__each_part_has_its_rows(void **state)
{
    subject s;
    const joint_part waiting[3] = {{8, 5}, {0, 0}, {1, 6}};
    joint_part out[3];
    (void)state;
    open_subject(&s, 3);
    assert_true(weft_joint__choose(&s.joint, waiting, 0, out));
    assert_memory_equal(out, waiting, sizeof waiting);
}

/* Whatever comes, what is chosen waits, holds the oldest model's part and serves more than that
 * model alone; and at most JOINT_KEPT_MAX combinations are alive between two that are forgotten. */
static void test_joint__random_loads_are_served_soundly(void **state)
{
    static const int64_t bucket[] = {0, 0, 1, 2, 4, 8};
    uint64_t seed = 3, joint = 0;
    subject s;
    (void)state;
    open_subject(&s, PARTS);
    for (int round = 0; round < 20000; round++) {
        joint_part waiting[PARTS], out[PARTS];
        uint32_t must = (uint32_t)(next_random(&seed) % PARTS);
        for (uint32_t k = 0; k < PARTS; k++)
            waiting[k] = (joint_part){bucket[next_random(&seed) % 6], next_random(&seed) % 2};
        if (!weft_joint__choose(&s.joint, waiting, must, out))
            continue;
        int64_t rows = 0;
        uint32_t ready = 0;
        joint++;
        for (uint32_t k = 0; k < PARTS; k++) {
            assert_true(out[k].rows >= 0 && out[k].rows <= waiting[k].rows);
            assert_true(out[k].rows == 0 || out[k].shape == waiting[k].shape);
            rows += out[k].rows;
            ready += out[k].rows > 0;
        }
        assert_true(ready >= 2 && out[must].rows > 0);
        assert_true(rows > waiting[must].rows);
        assert_true(s.joint.n_kept <= JOINT_KEPT_MAX);
    }
    assert_true(joint > 1000);
}

/* A combination that is half of the load stays among many rare ones. */
static void test_joint__frequent_sizes_are_kept(void **state)
{
    static const joint_part frequent[PARTS] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}};
    uint64_t seed = 7;
    int missed = 0;
    subject s;
    (void)state;
    open_subject(&s, PARTS);
    for (int round = 0; round < 4000; round++) {
        joint_part waiting[PARTS], out[PARTS];
        memcpy(waiting, frequent, sizeof waiting);
        for (uint32_t k = 0; k < PARTS && round % 2; k++)
            waiting[k] = (joint_part){1, next_random(&seed)}; /* lengths that never come again */
        bool chosen = weft_joint__choose(&s.joint, waiting, 0, out);
        if (round % 2 == 0 && !(chosen && memcmp(out, frequent, sizeof out) == 0))
            missed++;
    }
    assert_true(missed <= 1);
}

/* -- From queues ------------------------------------------------------------------------------ */

enum { MODELS = 3, SERVED = 2 };

/* Three models of an input [batch, 4], their joint program, two workers. */
typedef struct place {
    weft_bundle_program program[MODELS + 1];
    weft_bundle_part part[MODELS];
    weft_bundle bundle;
    weft_router router;
    router_model model[MODELS];
    router_worker worker[SERVED];
    bool serves[SERVED][MODELS];
    weft_request request[MODELS];
    weft_tensor in[MODELS];
    weft_serve_options options;
    subject joint;
    weft_wire_tensor empty[MODELS];
} place;

static void open_place(place *p)
{
    static const int64_t one[] = {1}, two[] = {2}, four[] = {4}, eight[] = {8};
    static const weft_bundle_bucket bucket[] = {
        {.symbol = one}, {.symbol = two}, {.symbol = four}, {.symbol = eight}};
    memset(p, 0, sizeof *p);
    open_subject(&p->joint, MODELS);
    for (uint32_t k = 0; k < MODELS; k++) {
        p->program[k] = (weft_bundle_program){
            .n_symbol = 1, .n_input = 1, .n_output = 1, .bucket = bucket, .n_bucket = 4};
        p->part[k] = (weft_bundle_part){k, 1, 1};
        p->model[k] = (router_model){.program = &p->program[k], .largest_bucket = 8};
        for (uint32_t w = 0; w < SERVED; w++)
            p->serves[w][k] = w == 0;
    }
    p->program[MODELS] = p->joint.program;
    p->program[MODELS].part = p->part;
    p->joint.joint.program = &p->program[MODELS];
    p->joint.joint.empty = p->empty;
    p->bundle = (weft_bundle){.program = p->program, .n_program = MODELS, .n_joint = 1};
    for (uint32_t w = 0; w < SERVED; w++)
        p->worker[w] = (router_worker){.serves = p->serves[w], .state = WORKER_IDLE};
    p->router = (weft_router){.options = &p->options,
                              .bundle = &p->bundle,
                              .model = p->model,
                              .joint = &p->joint.joint,
                              .worker = p->worker,
                              .n_worker = SERVED};
}

static void ask(place *p, uint32_t model, int64_t rows)
{
    p->in[model] = (weft_tensor){.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {rows, 4}};
    p->request[model] = (weft_request){.model = model, .in = &p->in[model], .rows = rows};
    weft_batch__push(&p->model[model], &p->request[model], false);
}

static void test_joint__what_waits_in_queues(void **state)
{
    static place p;
    joint_part out[JOINT_PARTS_MAX];
    (void)state;
    open_place(&p);
    assert_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out)); /* nothing waits */
    ask(&p, 0, 1);
    assert_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out)); /* one alone */
    ask(&p, 2, 5);
    assert_non_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
    /* The request of 5 rows is not cut: it is filled up to 8. */
    assert_true(out[0].rows == 1 && out[1].rows == 0 && out[2].rows == 8);
    assert_null(weft_joint__find(&p.router, &p.worker[0], 1, 1, out)); /* that model has none */
    /* Another worker that is idle may take model 2; a busy one may not. */
    p.serves[1][2] = true;
    assert_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
    p.worker[1].state = WORKER_BUSY;
    assert_non_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
    /* A worker that does not serve all of its models does not have the joint program. */
    p.serves[0][1] = false;
    assert_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
    p.serves[0][1] = true;
    /* A request that a worker died with runs alone. */
    p.request[2].attempts = 1;
    assert_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
}

/* Elements of input count as they are sent, and only those of models with requests. */
static void test_joint__is_not_used_beyond_its_limit(void **state)
{
    static place p;
    joint_part out[JOINT_PARTS_MAX];
    (void)state;
    open_place(&p);
    ask(&p, 0, 1);
    ask(&p, 2, 5);
    p.program[MODELS].limit = 36; /* 1 row and 8 of 4 elements */
    assert_non_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
    p.program[MODELS].limit = 35;
    assert_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
    assert_null(weft_joint__find(&p.router, &p.worker[0], 2, 1, out));
    p.program[MODELS].limit = 36;
    ask(&p, 1, 1);
    assert_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
    p.program[MODELS].limit = 0; /* none */
    assert_non_null(weft_joint__find(&p.router, &p.worker[0], 0, 1, out));
}

/* What is counted as waiting is what is taken, whatever the sizes of the requests at the head. */
static void test_joint__waiting_rows_are_those_taken(void **state)
{
    static place p;
    (void)state;
    for (int64_t rows = 1; rows <= 8; rows++) {
        router_batch batch = {0};
        open_place(&p);
        ask(&p, 0, rows);
        int64_t waiting = weft_batch__waiting(&p.model[0]);
        weft_batch__take(&p.model[0], waiting, &batch);
        assert_int_equal(batch.padded_rows, waiting);
        assert_int_equal(batch.rows, rows);
    }
    open_place(&p);
    ask(&p, 0, 9); /* larger than any bucket: by itself */
    assert_int_equal(weft_batch__waiting(&p.model[0]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joint__every_subset_of_two_and_more),
        cmocka_unit_test(test_joint__each_part_has_its_rows),
        cmocka_unit_test(test_joint__random_loads_are_served_soundly),
        cmocka_unit_test(test_joint__frequent_sizes_are_kept),
        cmocka_unit_test(test_joint__what_waits_in_queues),
        cmocka_unit_test(test_joint__is_not_used_beyond_its_limit),
        cmocka_unit_test(test_joint__waiting_rows_are_those_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
