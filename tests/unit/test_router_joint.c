/* Selection of the models of a joint program that run together: any subset with requests is
 * possible, at most JOINT_KEPT_MAX combinations of sizes are tracked, and the frequent ones stay.
 */
#include "runtime/server/router_int.h"
#include "tests/support/rand.h"

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
    joint_part part[JOINT_KEPT_MAX][PARTS];
    weft_wire_tensor in[JOINT_KEPT_MAX][PARTS];
    bool ready[JOINT_KEPT_MAX][2];
} subject;

static void open_subject(subject *s, uint32_t n_part)
{
    memset(s, 0, sizeof *s);
    s->program.n_part = s->program.n_input = n_part;
    s->joint.program = &s->program;
    s->joint.n_worker = 2;
    for (int i = 0; i < JOINT_KEPT_MAX; i++)
        s->joint.kept[i] = (joint_size){.part = s->part[i], .in = s->in[i], .ready = s->ready[i]};
}

/* Worker 0 has prepared all tracked combinations. */
static void prepare_all(subject *s)
{
    for (uint32_t i = 0; i < s->joint.n_kept; i++)
        s->joint.kept[i].ready[0] = true;
}

/* The selection when the combination came once before and the worker had time to prepare it. */
static bool select_again(subject *s, const joint_part *waiting, uint32_t must, joint_part *out)
{
    (void)weft_joint__select(&s->joint, waiting, must, 0, out);
    prepare_all(s);
    return weft_joint__select(&s->joint, waiting, must, 0, out);
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
            assert_int_equal(select_again(&s, waiting, must, out), several && wanted);
            if (several && wanted)
                assert_memory_equal(out, waiting, sizeof waiting);
        }
}

/* Parts may have different numbers of rows. */
static void test_joint__each_part_has_its_rows(void **state)
{
    subject s;
    const joint_part waiting[3] = {{8, 5}, {0, 0}, {1, 6}};
    joint_part out[3];
    (void)state;
    open_subject(&s, 3);
    assert_true(select_again(&s, waiting, 0, out));
    assert_memory_equal(out, waiting, sizeof waiting);
}

/* A worker that has not prepared a combination gets a prepared one or the single model; after some
 * uses the combination is sent anyway. */
static void test_joint__no_request_waits_for_preparation(void **state)
{
    subject s;
    const joint_part both[3] = {{2, 5}, {1, 6}, {0, 0}}, all[3] = {{2, 5}, {1, 6}, {4, 7}};
    joint_part out[3];
    (void)state;
    open_subject(&s, 3);
    assert_false(weft_joint__select(&s.joint, both, 0, 0, out));
    prepare_all(&s);
    assert_true(weft_joint__select(&s.joint, both, 0, 0, out));
    assert_false(weft_joint__select(&s.joint, both, 0, 1, out)); /* worker 1 has not prepared it */
    assert_true(weft_joint__select(&s.joint, all, 0, 0, out));
    assert_memory_equal(out, both, sizeof both);
    assert_false(weft_joint__select(&s.joint, all, 2, 0, out)); /* `both` has no rows of part 2 */
    int times = 0;
    while (!weft_joint__select(&s.joint, all, 2, 0, out) && times < 1000)
        times++;
    assert_in_range(times, 1, 999);
    assert_memory_equal(out, all, sizeof all);
}

/* For any load: selected rows are waiting rows, part `must` is among them, they are more than that
 * part has alone, and at most JOINT_KEPT_MAX combinations are tracked. */
static void test_joint__random_loads_are_served_soundly(void **state)
{
    enum { SOME = 4 };
    static const int64_t bucket[] = {0, 0, 1, 2, 4, 8};
    uint64_t seed = 3, joint = 0;
    subject s;
    (void)state;
    open_subject(&s, SOME);
    for (int round = 0; round < 20000; round++) {
        joint_part waiting[PARTS], out[PARTS];
        uint32_t must = (uint32_t)(rand_next(&seed) % SOME);
        for (uint32_t k = 0; k < SOME; k++)
            waiting[k] = round % 2
                             ? (joint_part){bucket[rand_next(&seed) % 6], rand_next(&seed) % 2}
                             : (joint_part){bucket[rand_next(&seed) % 3], 0};
        bool chosen = weft_joint__select(&s.joint, waiting, must, 0, out);
        assert_true(s.joint.n_kept <= JOINT_KEPT_MAX);
        if (round % 3 == 0)
            prepare_all(&s);
        if (!chosen)
            continue;
        int64_t rows = 0;
        uint32_t ready = 0;
        joint++;
        for (uint32_t k = 0; k < SOME; k++) {
            assert_true(out[k].rows >= 0 && out[k].rows <= waiting[k].rows);
            assert_true(out[k].rows == 0 || out[k].shape == waiting[k].shape);
            rows += out[k].rows;
            ready += out[k].rows > 0;
        }
        assert_true(ready >= 2 && out[must].rows > 0);
        assert_true(rows > waiting[must].rows);
    }
    assert_true(joint > 1000);
}

/* A combination that makes up half of the load stays tracked among many rare ones. */
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
            waiting[k] = (joint_part){1, rand_next(&seed)}; /* shapes that do not repeat */
        bool chosen = weft_joint__select(&s.joint, waiting, 0, 0, out);
        prepare_all(&s);
        if (round % 2 == 0 && !(chosen && memcmp(out, frequent, sizeof out) == 0))
            missed++;
    }
    assert_true(missed <= 1);
}

/* -- With queues ------------------------------------------------------------------------------ */

enum { MODELS = 3, SERVED = 2 };

/* Three models with one input [batch, 4] each, their joint program, two workers. */
typedef struct place {
    weft_bundle_program program[MODELS + 1];
    weft_bundle_part part[MODELS];
    joint_set joints;
    router_model model[MODELS];
    router_worker worker[SERVED];
    bool serves[SERVED][MODELS];
    weft_request request[MODELS];
    weft_tensor in[MODELS];
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
    for (int i = 0; i < MODELS; i++)
        p->empty[i] = (weft_wire_tensor){.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {0, 4}};
    for (uint32_t w = 0; w < SERVED; w++) {
        p->worker[w].serves = p->serves[w];
        p->worker[w].process.state = WORKER_IDLE;
    }
    p->joints = (joint_set){&p->joint.joint, 1};
}

/* Finds a joint program for worker 0, which has to run `model`. */
static router_joint *find(place *p, uint32_t model, joint_part *out)
{
    const joint_query query = {
        .model = p->model, .worker = p->worker, .n_worker = SERVED, .must = model, .now_ns = 1};
    return weft_joint__find(&p->joints, &query, out);
}

static const joint_size *unprepared(place *p, uint32_t worker, router_joint **out_joint)
{
    return weft_joint__unprepared(&p->joints, &p->worker[worker], worker, out_joint);
}

static void ask(place *p, uint32_t model, int64_t rows)
{
    p->in[model] = (weft_tensor){.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {rows, 4}};
    p->request[model] = (weft_request){.model = model, .in = &p->in[model], .rows = rows};
    weft_batch__push(&p->model[model], &p->request[model]);
}

/* Worker 0 prepares all combinations. */
static void prepare(place *p)
{
    router_joint *j = NULL;
    for (const joint_size *s; (s = unprepared(p, 0, &j)) != NULL;)
        weft_joint__set_prepared(j, 0, s->in, true);
}

/* Idle workers prepare combinations with the inputs that will be sent, most used first. A restarted
 * worker has only the buckets prepared. A combination that cannot be prepared is neither prepared
 * again nor selected, however often it comes. */
static void test_joint__idle_workers_prepare(void **state)
{
    static place p;
    joint_part out[JOINT_PARTS_MAX];
    router_joint *j = NULL;
    (void)state;
    open_place(&p);
    assert_null(unprepared(&p, 0, &j));
    ask(&p, 0, 1);
    ask(&p, 2, 5);
    assert_null(find(&p, 0, out));
    const joint_size *size = unprepared(&p, 0, &j);
    assert_non_null(size);
    assert_ptr_equal(j, &p.joint.joint);
    assert_true(size->in[0].dim[0] == 1 && size->in[1].dim[0] == 0 && size->in[2].dim[0] == 8);
    assert_true(size->in[2].rank == 2 && size->in[2].dim[1] == 4);
    assert_null(unprepared(&p, 1, &j)); /* worker 1 does not serve these models */
    prepare(&p);
    assert_null(unprepared(&p, 0, &j));
    ask(&p, 1, 2);
    assert_non_null(find(&p, 0, out));
    assert_int_equal(out[1].rows, 0); /* the prepared combination, without model 1 */
    size = unprepared(&p, 0, &j);
    assert_non_null(size);
    assert_int_equal(size->in[1].dim[0], 2);
    weft_joint__set_prepared(j, 0, size->in, false);
    for (int i = 0; i < 10; i++) {
        assert_null(unprepared(&p, 0, &j));
        assert_non_null(find(&p, 0, out));
        assert_int_equal(out[1].rows, 0);
    }
    weft_joint__reset_worker(&p.joints, &p.worker[0], 0);
    assert_non_null(unprepared(&p, 0, &j));
}

static void test_joint__what_waits_in_queues(void **state)
{
    static place p;
    joint_part out[JOINT_PARTS_MAX];
    (void)state;
    open_place(&p);
    assert_null(find(&p, 0, out)); /* no request waits */
    ask(&p, 0, 1);
    assert_null(find(&p, 0, out)); /* only model 0 has a request */
    ask(&p, 2, 5);
    assert_null(find(&p, 0, out)); /* the combination is not prepared */
    prepare(&p);
    assert_non_null(find(&p, 0, out));
    /* The request of 5 rows cannot be cut: it is padded to 8. */
    assert_true(out[0].rows == 1 && out[1].rows == 0 && out[2].rows == 8);
    assert_null(find(&p, 1, out)); /* model 1 has no request */
    /* Model 2 is left to another worker that serves it and is idle, not to a busy one. */
    p.serves[1][2] = true;
    assert_null(find(&p, 0, out));
    p.worker[1].process.state = WORKER_BUSY;
    assert_non_null(find(&p, 0, out));
    /* A request that was in a dying worker runs alone. */
    p.request[2].attempts = 1;
    assert_null(find(&p, 0, out));
}

/* A worker that serves two of the three models runs the joint program without the third, whose
 * requests are left to others, and prepares no sizes with rows of it. */
static void test_joint__runs_with_some_of_its_models(void **state)
{
    static place p;
    joint_part out[JOINT_PARTS_MAX];
    router_joint *j = NULL;
    (void)state;
    open_place(&p);
    p.worker[1].process.state = WORKER_BUSY;
    ask(&p, 0, 1);
    ask(&p, 1, 1);
    ask(&p, 2, 2);
    assert_null(find(&p, 0, out)); /* tracks the sizes of all three */
    p.serves[0][1] = false;
    assert_null(unprepared(&p, 0, &j));
    assert_null(find(&p, 0, out));
    prepare(&p);
    assert_non_null(find(&p, 0, out));
    assert_true(out[0].rows == 1 && out[1].rows == 0 && out[2].rows == 2);
    weft_joint__reset_worker(&p.joints, &p.worker[0], 0);
    assert_non_null(unprepared(&p, 0, &j));
    p.serves[0][2] = false;
    assert_null(unprepared(&p, 0, &j));
    assert_null(find(&p, 0, out));
}

/* The limit counts input elements as sent, with padding, of models with requests. */
static void test_joint__is_not_used_beyond_its_limit(void **state)
{
    static place p;
    joint_part out[JOINT_PARTS_MAX];
    (void)state;
    open_place(&p);
    ask(&p, 0, 1);
    ask(&p, 2, 5);
    p.program[MODELS].limit = 36; /* 1 + 8 rows of 4 elements */
    assert_null(find(&p, 0, out));
    prepare(&p);
    assert_non_null(find(&p, 0, out));
    p.program[MODELS].limit = 35;
    assert_null(find(&p, 0, out));
    assert_null(find(&p, 2, out));
    p.program[MODELS].limit = 36;
    ask(&p, 1, 1);
    assert_null(find(&p, 0, out));
    p.program[MODELS].limit = 0; /* no limit */
    assert_non_null(find(&p, 0, out));
}

/* weft_batch__waiting returns the number of rows that weft_batch__take puts into the batch. */
static void test_joint__waiting_rows_are_those_taken(void **state)
{
    static place p;
    size_t compared = 0;
    (void)state;
    for (int64_t rows = 1; rows <= 8; rows++) {
        router_batch batch = {0};
        open_place(&p);
        ask(&p, 0, rows);
        int64_t waiting = weft_batch__waiting(&p.model[0], &compared);
        weft_batch__take(&p.model[0], waiting, &batch);
        assert_int_equal(batch.padded_rows, waiting);
        assert_int_equal(batch.rows, rows);
    }
    open_place(&p);
    ask(&p, 0, 9); /* larger than any bucket: runs alone */
    assert_int_equal(weft_batch__waiting(&p.model[0], &compared), 0);
}

/* The images of a part without rows are at their minimum, or large enough for the windows of its
 * model. */
static void test_joint__windows_fit_into_empty_images(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_dimpool *dims = weft_dimpool_create(arena);
    weft_dim n = weft_dim_symbol(dims, "n", 1, 64), h = weft_dim_symbol(dims, "h", 1, 64);
    const weft_bundle_symbol symbol[] = {{"n", 1, 64}, {"h", 1, 64}};
    const weft_bundle_port in[] = {{.name = "x", .value = 1}, {.name = "x", .value = 2}};
    const weft_bundle_port out[] = {{.name = "y", .value = 2}, {.name = "y", .value = 4}};
    weft_bundle_value value[4] = {0};
    for (int k = 0; k < 4; k++) {
        value[k].type = (weft_ttype){.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {n, h}};
        value[k].type.dim[1] = k == 1 ? weft_dim_add(dims, h, -5) : h;
    }
    weft_bundle_program program[3] = {0};
    const weft_bundle_part part[] = {{0, 1, 1}, {1, 1, 1}};
    for (int k = 0; k < 3; k++)
        program[k] = (weft_bundle_program){.dims = dims,
                                           .symbol = symbol,
                                           .n_symbol = 2,
                                           .value = k == 1 ? value + 2 : value,
                                           .n_value = k == 2 ? 4 : 2,
                                           .input = in,
                                           .n_input = k == 2 ? 2 : 1,
                                           .output = out,
                                           .n_output = k == 2 ? 2 : 1};
    program[2].part = part;
    program[2].n_part = 2;
    const weft_bundle bundle = {.program = program, .n_program = 2, .n_joint = 1};
    joint_set set;
    assert_int_equal(weft_joint__create(&bundle, 0, 1, &set), WEFT_ERR_OK);
    const weft_wire_tensor *empty = set.at[0].empty;
    assert_non_null(empty);
    assert_true(empty[0].dim[0] == 0 && empty[0].dim[1] == 8);
    assert_true(empty[1].dim[0] == 0 && empty[1].dim[1] == 1);
    weft_joint__destroy(&set);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joint__every_subset_of_two_and_more),
        cmocka_unit_test(test_joint__each_part_has_its_rows),
        cmocka_unit_test(test_joint__no_request_waits_for_preparation),
        cmocka_unit_test(test_joint__idle_workers_prepare),
        cmocka_unit_test(test_joint__random_loads_are_served_soundly),
        cmocka_unit_test(test_joint__frequent_sizes_are_kept),
        cmocka_unit_test(test_joint__what_waits_in_queues),
        cmocka_unit_test(test_joint__runs_with_some_of_its_models),
        cmocka_unit_test(test_joint__is_not_used_beyond_its_limit),
        cmocka_unit_test(test_joint__waiting_rows_are_those_taken),
        cmocka_unit_test(test_joint__windows_fit_into_empty_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
