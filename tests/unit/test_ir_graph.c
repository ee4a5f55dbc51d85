#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "ir/ir.h"

#define XXH_STATIC_LINKING_ONLY
#include <string.h>
#include <xxhash.h>

typedef struct fixture {
    weft_module *m;
    weft_graph *g;
    weft_type type;
    weft_val x;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    f.m = weft_module_create(0);
    f.g = weft_graph_create(f.m, "g");
    weft_dim dim[] = {2, 3};
    f.type = weft_type_make(f.m, WEFT_DTYPE_F32, dim, 2);
    f.x = weft_graph_add_input(f.g, "x", f.type);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    weft_module_destroy(((fixture *)*state)->m);
    return 0;
}

static weft_node add_node(fixture *f, weft_op_id op, weft_val a, weft_val b)
{
    weft_val in[] = {a, b};
    weft_node_spec spec = {.op = op, .in = in, .n_in = b.i ? 2 : 1, .out = &f->type, .n_out = 1};
    return weft_node_append(f->g, &spec);
}

static weft_val out(fixture *f, weft_node n)
{
    return weft_node_out(f->m, n, 0);
}

static void test_type__equal_types_have_one_handle(void **state)
{
    fixture *f = *state;
    weft_dim dim[] = {2, 3}, other[] = {3, 2};
    assert_int_equal(weft_type_make(f->m, WEFT_DTYPE_F32, dim, 2).i, f->type.i);
    assert_int_not_equal(weft_type_make(f->m, WEFT_DTYPE_F32, other, 2).i, f->type.i);
    assert_int_not_equal(weft_type_make(f->m, WEFT_DTYPE_F16, dim, 2).i, f->type.i);
    assert_int_not_equal(weft_type_make(f->m, WEFT_DTYPE_F32, dim, 1).i, f->type.i);
    weft_ttype blocked = *weft_type_get(f->m, f->type);
    blocked.layout = WEFT_LAYOUT_C16;
    assert_int_not_equal(weft_type_intern(f->m, &blocked).i, f->type.i);
    assert_int_equal(weft_type_get(f->m, f->type)->rank, 2);
}

static void test_type__handles_survive_many_types(void **state)
{
    fixture *f = *state;
    const weft_ttype *first = weft_type_get(f->m, f->type);
    for (weft_dim i = 0; i < 5000; i++)
        weft_type_make(f->m, WEFT_DTYPE_F32, &i, 1);
    for (weft_dim i = 0; i < 5000; i++) {
        weft_type t = weft_type_make(f->m, WEFT_DTYPE_F32, &i, 1);
        assert_int_equal(weft_type_get(f->m, t)->dim[0], i);
    }
    assert_ptr_equal(weft_type_get(f->m, f->type), first);
}

static void test_graph__nodes_stand_in_order(void **state)
{
    fixture *f = *state;
    weft_node a = add_node(f, WEFT_OP_RELU, f->x, (weft_val){0});
    weft_node c = add_node(f, WEFT_OP_RELU, out(f, a), (weft_val){0});
    weft_val in = out(f, a);
    weft_node_spec spec = {.op = WEFT_OP_RELU, .in = &in, .n_in = 1, .out = &f->type, .n_out = 1};
    weft_node b = weft_node_insert_before(f->g, c, &spec);
    assert_int_equal(weft_graph_node_count(f->g), 3);
    assert_int_equal(weft_graph_first(f->g).i, a.i);
    assert_int_equal(weft_node_next(f->m, a).i, b.i);
    assert_int_equal(weft_node_prev(f->m, c).i, b.i);
    weft_node_move_before(f->g, c, b);
    assert_int_equal(weft_graph_last(f->g).i, b.i);
    assert_int_equal(weft_node_next(f->m, a).i, c.i);
    weft_node_move_before(f->g, c, (weft_node){0});
    assert_int_equal(weft_graph_last(f->g).i, c.i);
}

static void test_graph__nodes_may_go_while_walking(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 10; i++)
        add_node(f, WEFT_OP_RELU, f->x, (weft_val){0});
    uint32_t met = 0;
    WEFT_FOREACH_NODE (f->m, f->g, n) {
        if (met++ % 2 == 0)
            weft_node_remove(f->g, n);
    }
    assert_int_equal(met, 10);
    assert_int_equal(weft_graph_node_count(f->g), 5);
    assert_int_equal(weft_val_use_count(f->m, f->x), 5);
}

static void test_uses__follow_operands(void **state)
{
    fixture *f = *state;
    weft_node a = add_node(f, WEFT_OP_ADD, f->x, f->x);
    weft_node b = add_node(f, WEFT_OP_ADD, out(f, a), f->x);
    assert_int_equal(weft_val_use_count(f->m, f->x), 3);
    weft_use u = weft_val_use(f->m, f->x, 2);
    assert_int_equal(u.node.i, b.i);
    assert_int_equal(u.idx, 1);
    weft_node_set_in(f->m, a, 0, (weft_val){0});
    assert_int_equal(weft_val_use_count(f->m, f->x), 2);
    assert_int_equal(weft_val_use(f->m, f->x, 0).idx, 1);
    weft_node_set_in(f->m, a, 0, f->x);
    assert_int_equal(weft_val_use_count(f->m, f->x), 3);
    assert_int_equal(weft_val_use(f->m, f->x, 3).node.i, 0);
}

static void test_uses__replace_changes_operands_and_outputs(void **state)
{
    fixture *f = *state;
    weft_node a = add_node(f, WEFT_OP_RELU, f->x, (weft_val){0});
    weft_node b = add_node(f, WEFT_OP_ADD, out(f, a), out(f, a));
    weft_graph_add_output(f->g, "a", out(f, a));
    weft_graph_add_output(f->g, "b", out(f, b));
    weft_val_replace(f->g, out(f, a), f->x);
    assert_int_equal(weft_val_use_count(f->m, out(f, a)), 0);
    assert_int_equal(weft_node_in(f->m, b, 0).i, f->x.i);
    assert_int_equal(weft_node_in(f->m, b, 1).i, f->x.i);
    assert_int_equal(weft_graph_output(f->g, 0).i, f->x.i);
    assert_int_equal(weft_graph_output(f->g, 1).i, out(f, b).i);
    assert_true(weft_val_is_output(f->g, f->x));
    weft_node_remove(f->g, a);
    assert_int_equal(weft_val_use_count(f->m, f->x), 2);
}

static void test_node__operands_grow_and_trim(void **state)
{
    fixture *f = *state;
    weft_node a = add_node(f, WEFT_OP_CONCAT, f->x, (weft_val){0});
    weft_node b = add_node(f, WEFT_OP_RELU, f->x, (weft_val){0});
    for (uint32_t i = 2; i < 40; i += 2)
        weft_node_grow_in(f->m, a, i, i % 4 ? f->x : (weft_val){0});
    assert_int_equal(weft_node_in_count(f->m, a), 39);
    assert_int_equal(weft_val_use_count(f->m, f->x), 2 + 10);
    weft_node_set_in(f->m, a, 38, (weft_val){0});
    weft_node_trim_in(f->m, a);
    assert_int_equal(weft_node_in_count(f->m, a), 35);
    assert_int_equal(weft_node_in(f->m, a, 1).i, 0);
    assert_int_equal(weft_node_in(f->m, a, 100).i, 0);
    for (uint32_t i = 0; i < weft_val_use_count(f->m, f->x); i++) {
        weft_use u = weft_val_use(f->m, f->x, i);
        assert_true(u.node.i == a.i || u.node.i == b.i);
        assert_int_equal(weft_node_in(f->m, u.node, u.idx).i, f->x.i);
    }
}

static void test_node__attributes_stay_sorted(void **state)
{
    fixture *f = *state;
    weft_node n = add_node(f, WEFT_OP_RELU, f->x, (weft_val){0});
    int64_t axes[] = {1, 2};
    const char *steps[] = {"relu i0", "neg s0"};
    weft_node_set_attr(f->m, n, &WEFT_ATTR_OF_STRS(STEPS, steps, 2));
    weft_node_set_attr(f->m, n, &WEFT_ATTR_OF_INT(AXIS, 3));
    weft_node_set_attr(f->m, n, &WEFT_ATTR_OF_INTS(AXES, axes, 2));
    axes[0] = 9;
    steps[0] = "gone";
    weft_attrs attrs = weft_node_attrs(f->m, n);
    assert_int_equal(attrs.n, 3);
    for (uint32_t i = 1; i < attrs.n; i++)
        assert_true(attrs.at[i - 1].key < attrs.at[i].key);
    assert_int_equal(weft_attrs_find(attrs, WEFT_ATTR_AXES)->u.ints[0], 1);
    assert_string_equal(weft_attrs_find(attrs, WEFT_ATTR_STEPS)->u.strs[0], "relu i0");
    weft_node_set_attr(f->m, n, &WEFT_ATTR_OF_INT(AXIS, 4));
    assert_int_equal(weft_attrs_int(weft_node_attrs(f->m, n), WEFT_ATTR_AXIS, 0), 4);
    /* The list that was lent out does not change. */
    assert_int_equal(weft_attrs_int(attrs, WEFT_ATTR_AXIS, 0), 3);
    weft_node_drop_attr(f->m, n, WEFT_ATTR_AXES);
    weft_node_drop_attr(f->m, n, WEFT_ATTR_AXES);
    assert_int_equal(weft_node_attrs(f->m, n).n, 2);
}

static void test_graph__symbols_of_two_graphs_stay_apart(void **state)
{
    fixture *f = *state;
    weft_graph *h = weft_graph_create(f->m, "other graph");
    weft_dimpool *pool = weft_module_dims(f->m);
    weft_dim a = weft_graph_symbol(f->g, "batch size", 1, 8);
    weft_dim b = weft_graph_symbol(h, "batch size", 1, 4);
    assert_true(a != b);
    assert_true(weft_graph_symbol(f->g, "batch size", 2, 100) == a);
    int64_t lo, hi;
    weft_dim_bounds(pool, a, &lo, &hi);
    assert_int_equal(lo, 2);
    assert_int_equal(hi, 8);
    assert_string_equal(weft_graph_symbol_name(h, 0), "batch size");
    assert_string_equal(weft_dim_symbol_name(pool, weft_dim_as_symbol(pool, a)), "batch_size");
    assert_string_equal(weft_dim_symbol_name(pool, weft_dim_as_symbol(pool, b)),
                        "other_graph.batch_size");
    /* A symbol of data has the name already. */
    weft_dim fresh = weft_dim_fresh(pool);
    const char *name = weft_dim_symbol_name(pool, weft_dim_as_symbol(pool, fresh));
    assert_true(weft_graph_symbol(f->g, name, 0, 1) != fresh);
}

static void test_weight__hash_tells_type_and_bytes(void **state)
{
    fixture *f = *state;
    uint8_t data[24] = {1}, same[24] = {1}, differs[24] = {2};
    weft_dim flat = 6;
    weft_weight_info info = {.type = f->type, .name = "w", .data = data, .bytes = 24};
    weft_weight a = weft_weight_add(f->m, &info);
    info.data = same;
    weft_weight b = weft_weight_add(f->m, &info);
    info.data = differs;
    weft_weight c = weft_weight_add(f->m, &info);
    info.data = data;
    info.type = weft_type_make(f->m, WEFT_DTYPE_F32, &flat, 1);
    weft_weight d = weft_weight_add(f->m, &info);
    assert_true(weft_hash128_eq(weft_weight_hash(f->m, a), weft_weight_hash(f->m, b)));
    assert_false(weft_hash128_eq(weft_weight_hash(f->m, a), weft_weight_hash(f->m, c)));
    assert_false(weft_hash128_eq(weft_weight_hash(f->m, a), weft_weight_hash(f->m, d)));
    assert_int_equal(weft_weight_count(f->m), 4);
    assert_int_equal(weft_val_weight(f->m, weft_weight_val(f->m, c)).i, c.i);
    assert_int_equal(weft_val_get_kind(f->m, weft_weight_val(f->m, c)), WEFT_VAL_WEIGHT);
}

/* Constructs other bytes with the same hash: XXH3 multiplies the halves of each word, mixed with
 * its secret, and adds the words unchanged. If one half is 0 the other one is arbitrary, as long as
 * the sum of the words stays. */
static void test_weight__other_bytes_of_the_same_hash_are_not_equal(void **state)
{
    fixture *f = *state;
    static uint32_t word[2][1024];
    uint32_t secret[XXH3_SECRET_DEFAULT_SIZE / 4];
    weft_dim dim[] = {32, 32};
    uint64_t seed = weft_hash_mix(weft_hash_mix(weft_hash_mix(WEFT_DTYPE_F32, 2), 32), 32);
    XXH3_generateSecret_fromSeed(secret, seed);
    for (uint32_t i = 0; i < 2; i++) {
        word[i][0] = secret[0]; /* of the first stripe of 64 bytes, its secret from byte 0 on */
        word[i][1] = 1000 + i;
        word[i][16] = secret[2]; /* of the second, from byte 8 on */
        word[i][17] = 1000 - i;
    }
    weft_weight_info info = {.type = weft_type_make(f->m, WEFT_DTYPE_F32, dim, 2),
                             .name = "w",
                             .data = (const uint8_t *)word[0],
                             .bytes = sizeof word[0]};
    weft_weight a = weft_weight_add(f->m, &info);
    weft_weight copy = weft_weight_add_copy(f->m, &info);
    info.data = (const uint8_t *)word[1];
    weft_weight b = weft_weight_add(f->m, &info);
    assert_true(weft_hash128_eq(weft_weight_hash(f->m, a), weft_weight_hash(f->m, b)));
    assert_false(weft_weight_equal(f->m, a, b));
    assert_true(weft_weight_equal(f->m, a, copy));
    assert_int_not_equal(weft_weight_add_copy(f->m, &info).i, copy.i);
}

static void test_module__limit_unwinds_to_the_guard(void **state)
{
    (void)state;
    weft_module *m = weft_module_create(1 << 16);
    assert_non_null(m);
    jmp_buf env;
    volatile int n = 0;
    weft_module_guard(m, &env);
    if (setjmp(env) == 0)
        for (;;) {
            weft_dim dim = n++;
            weft_type_make(m, WEFT_DTYPE_F32, &dim, 1);
        }
    assert_true(n > 10);
    weft_module_destroy(m);
    assert_null(weft_module_create(64));
}

static void test_graph__buckets_are_copied(void **state)
{
    fixture *f = *state;
    int64_t symbol = 4;
    weft_buffer buffer = {.val = f->x, .bytes = 24};
    weft_bucket bucket = {.symbol = &symbol, .n_symbol = 1, .buffer = &buffer, .n_buffer = 1};
    weft_graph_add_bucket(f->g, &bucket);
    symbol = 5;
    buffer.bytes = 0;
    assert_int_equal(weft_graph_bucket_count(f->g), 1);
    assert_int_equal(weft_graph_bucket(f->g, 0)->symbol[0], 4);
    assert_int_equal(weft_graph_bucket(f->g, 0)->buffer[0].bytes, 24);
    weft_graph_clear_buckets(f->g);
    assert_int_equal(weft_graph_bucket_count(f->g), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_type__equal_types_have_one_handle),
        TEST(test_type__handles_survive_many_types),
        TEST(test_graph__nodes_stand_in_order),
        TEST(test_graph__nodes_may_go_while_walking),
        TEST(test_uses__follow_operands),
        TEST(test_uses__replace_changes_operands_and_outputs),
        TEST(test_node__operands_grow_and_trim),
        TEST(test_node__attributes_stay_sorted),
        TEST(test_graph__symbols_of_two_graphs_stay_apart),
        TEST(test_weight__hash_tells_type_and_bytes),
        TEST(test_weight__other_bytes_of_the_same_hash_are_not_equal),
        TEST(test_module__limit_unwinds_to_the_guard),
        TEST(test_graph__buckets_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
