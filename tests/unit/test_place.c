/* ops/place.h: which values need memory, which are aliases, and their live ranges. */
#include "ops/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

/* x -> a, b -> concat c -> view v -> exp y */
typedef struct world {
    weft_place_value value[7];
    weft_place_launch launch[5];
    uint32_t x[1], a[1], b[1], ab[2], c[1], v[1], y[1];
} world;

enum { X = 1, A, B, C, V, Y };

static weft_place_value make(int64_t images, int64_t n)
{
    return (weft_place_value){.dtype = WEFT_DTYPE_F32,
                              .rank = 2,
                              .dim = {images, n},
                              .bytes = (uint64_t)(images * n) * 4};
}

static void init_world(world *w, int64_t images)
{
    *w = (world){.x = {X}, .a = {A}, .b = {B}, .ab = {A, B}, .c = {C}, .v = {V}, .y = {Y}};
    w->value[X] = w->value[A] = w->value[B] = make(images, 16);
    w->value[C] = w->value[V] = w->value[Y] = make(images, 32);
    w->value[V].rank = 1;
    w->value[V].dim[0] = images * 32;
    w->value[X].place = WEFT_PLACE_INPUT;
    w->launch[0] =
        (weft_place_launch){.op = WEFT_OP_EW, .in = w->x, .out = w->a, .n_in = 1, .n_out = 1};
    w->launch[1] =
        (weft_place_launch){.op = WEFT_OP_EW, .in = w->x, .out = w->b, .n_in = 1, .n_out = 1};
    w->launch[2] = (weft_place_launch){
        .op = WEFT_OP_CONCAT, .axis = 1, .in = w->ab, .out = w->c, .n_in = 2, .n_out = 1};
    w->launch[3] =
        (weft_place_launch){.op = WEFT_OP_VIEW, .in = w->c, .out = w->v, .n_in = 1, .n_out = 1};
    w->launch[4] =
        (weft_place_launch){.op = WEFT_OP_EW, .in = w->v, .out = w->y, .n_in = 1, .n_out = 1};
}

static void test_place__views_and_joins(void **state)
{
    (void)state;
    world w;
    init_world(&w, 1);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_int_equal(w.value[C].place, WEFT_PLACE_ARENA);
    assert_int_equal(w.value[C].first, 0); /* its first part is computed by launch 0 */
    assert_int_equal(w.value[C].last, 4);  /* read through the view */
    assert_int_equal(w.value[A].root, C);
    assert_int_equal(w.value[B].root, C);
    assert_int_equal(w.value[B].shift, 64);
    assert_int_equal(w.value[V].root, C);
    assert_true(w.launch[2].joined && w.launch[3].view);
    assert_int_equal(w.value[Y].last, 5); /* an output is live to the end */
    assert_int_equal(w.value[X].place, WEFT_PLACE_INPUT);
}

static void test_place__two_images_are_copied(void **state)
{
    (void)state;
    world w;
    init_world(&w, 2);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_false(w.launch[2].joined);
    assert_int_equal(w.value[A].place, WEFT_PLACE_ARENA);
    assert_int_equal(w.value[A].last, 2);
    assert_int_equal(w.value[C].first, 2);
}

static void test_place__late_spreads(void **state)
{
    (void)state;
    world w;
    init_world(&w, 1);
    w.launch[1].dynamic = true;
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_int_equal(w.value[A].place, WEFT_PLACE_ARENA);
    assert_int_equal(w.value[B].place, WEFT_PLACE_DYNAMIC);
    assert_int_equal(w.value[C].place, WEFT_PLACE_DYNAMIC);
    assert_int_equal(w.value[Y].place, WEFT_PLACE_DYNAMIC);
    assert_true(w.launch[4].dynamic && !w.launch[2].joined && !w.launch[3].view);
}

/* The launch that computes v becomes a slice of c along axis 0, from row `start` on. */
static void cut_rows(world *w, int64_t start, int64_t rows)
{
    w->launch[3].op = WEFT_OP_SLICE;
    w->launch[3].cut = true;
    w->launch[3].start = start;
    w->value[V] = make(rows, 32);
}

static void test_place__slices_lie_in_their_operand(void **state)
{
    (void)state;
    world w;
    init_world(&w, 4);
    cut_rows(&w, 1, 2);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_true(w.launch[3].view);
    assert_int_equal(w.value[V].root, C);
    assert_int_equal(w.value[V].shift, 128);
    assert_int_equal(w.value[C].last, 4);
    /* An empty slice at the end. */
    init_world(&w, 4);
    cut_rows(&w, 4, 0);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_true(w.launch[3].view);
    /* Copied: a slice past the end, of an input, not aligned, or not along the outermost axis. */
    init_world(&w, 4);
    cut_rows(&w, 3, 2);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_false(w.launch[3].view);
    init_world(&w, 4);
    cut_rows(&w, 1, 2);
    w.launch[3].in = w.x;
    w.value[V] = make(2, 16);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_false(w.launch[3].view);
    init_world(&w, 4);
    cut_rows(&w, 1, 2);
    for (uint32_t v = A; v <= V; v++)
        w.value[v] = make(v == V ? 2 : 4, 3);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_false(w.launch[3].view);
    init_world(&w, 4);
    cut_rows(&w, 16, 4);
    w.launch[3].axis = 1;
    w.value[V] = make(4, 16);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_false(w.launch[3].view);
}

static void test_place__views_take_their_value_along(void **state)
{
    (void)state;
    world w;
    init_world(&w, 4);
    /* v = view a; c = concat v, b along axis 0. */
    w.launch[2] =
        (weft_place_launch){.op = WEFT_OP_VIEW, .in = w.a, .out = w.v, .n_in = 1, .n_out = 1};
    uint32_t vb[2] = {V, B};
    w.launch[3] =
        (weft_place_launch){.op = WEFT_OP_CONCAT, .in = vb, .out = w.c, .n_in = 2, .n_out = 1};
    w.launch[4].in = w.c;
    w.value[V] = make(4, 16);
    w.value[C] = make(8, 16);
    weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
    assert_true(w.launch[3].joined);
    assert_int_equal(w.value[A].root, C);
    assert_int_equal(w.value[V].root, C);
    assert_int_equal(w.value[B].shift, 256);
    assert_int_equal(w.value[C].first, 0);
}

/* a and b form a level; a copied concatenation is a level of its own; a joined concatenation and a
 * view belong to the level before them. */
static void test_place__levels_end_where_they_are_read(void **state)
{
    (void)state;
    static const weft_place_level joined[] = {{0, 3}, {0, 3}, {0, 3}, {0, 3}, {4, 4}, {5, 5}},
                                  copied[] = {{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4, 4}, {5, 5}};
    for (int64_t images = 1; images <= 2; images++) {
        world w;
        weft_place_level level[6];
        uint32_t maker[Y + 1] = {0};
        init_world(&w, images);
        weft_place_values(w.value, Y, w.launch, 5, w.y, 1);
        weft_place_levels(w.launch, 5, maker, level);
        assert_memory_equal(level, images == 1 ? joined : copied, sizeof level);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place__slices_lie_in_their_operand),
        cmocka_unit_test(test_place__views_take_their_value_along),
        cmocka_unit_test(test_place__views_and_joins),
        cmocka_unit_test(test_place__two_images_are_copied),
        cmocka_unit_test(test_place__late_spreads),
        cmocka_unit_test(test_place__levels_end_where_they_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
