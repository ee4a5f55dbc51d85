/* Mistakes that the double of cuDNN must find. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "doubles_world.h"

static doubles d;

enum { FLOATS = 2 * 8 * 8 * 4 };

/* conv(x, w) + z + bias on 2 images of 4 channels, 8 x 8. */
typedef struct world {
    weft_cudnn_handle handle;
    weft_cudnn_desc made[32];
    uint32_t n;
    weft_cudnn_desc value[8]; /* tensors: x w y z bias and two virtual ones */
    weft_cudnn_desc conv, add_z, add_bias, plan;
    weft_cu_deviceptr memory;
} world;

static weft_cudnn_desc make(world *w, unsigned type)
{
    weft_cudnn_desc desc = NULL;
    assert_int_equal(d.dnn.cudnnBackendCreateDescriptor(type, &desc), 0);
    w->made[w->n++] = desc;
    return desc;
}

static weft_cudnn_status set(weft_cudnn_desc desc, unsigned name, unsigned type, int64_t n,
                             const void *value)
{
    return d.dnn.cudnnBackendSetAttribute(desc, name, type, n, value);
}

static void must_set(weft_cudnn_desc desc, unsigned name, unsigned type, int64_t n,
                     const void *value)
{
    assert_int_equal(set(desc, name, type, n, value), 0);
}

static void set_desc(weft_cudnn_desc desc, unsigned name, weft_cudnn_desc value)
{
    must_set(desc, name, WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static weft_cudnn_status finalise(weft_cudnn_desc desc)
{
    return d.dnn.cudnnBackendFinalize(desc);
}

static weft_cudnn_desc tensor(world *w, int64_t id, bool is_virtual, const int64_t dim[4])
{
    int64_t align = 16, stride[4] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
    unsigned type = WEFT_CUDNN_DATA_FLOAT;
    weft_cudnn_desc t = make(w, WEFT_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    must_set(t, WEFT_CUDNN_ATTR_TENSOR_UNIQUE_ID, WEFT_CUDNN_TYPE_INT64, 1, &id);
    must_set(t, WEFT_CUDNN_ATTR_TENSOR_DATA_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type);
    must_set(t, WEFT_CUDNN_ATTR_TENSOR_DIMENSIONS, WEFT_CUDNN_TYPE_INT64, 4, dim);
    must_set(t, WEFT_CUDNN_ATTR_TENSOR_STRIDES, WEFT_CUDNN_TYPE_INT64, 4, stride);
    must_set(t, WEFT_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, WEFT_CUDNN_TYPE_INT64, 1, &align);
    must_set(t, WEFT_CUDNN_ATTR_TENSOR_IS_VIRTUAL, WEFT_CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    assert_int_equal(finalise(t), 0);
    return t;
}

static weft_cudnn_desc add(world *w, weft_cudnn_desc x, weft_cudnn_desc b, weft_cudnn_desc y)
{
    unsigned mode = WEFT_CUDNN_POINTWISE_ADD, type = WEFT_CUDNN_DATA_FLOAT;
    weft_cudnn_desc f = make(w, WEFT_CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    must_set(f, WEFT_CUDNN_ATTR_POINTWISE_MODE, WEFT_CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    must_set(f, WEFT_CUDNN_ATTR_POINTWISE_MATH_PREC, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type);
    assert_int_equal(finalise(f), 0);
    weft_cudnn_desc o = make(w, WEFT_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, f);
    set_desc(o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_desc(o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_desc(o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    assert_int_equal(finalise(o), 0);
    return o;
}

static weft_cudnn_desc geometry(world *w)
{
    int64_t two = 2, ones[2] = {1, 1};
    unsigned mode = WEFT_CUDNN_CROSS_CORRELATION, type = WEFT_CUDNN_DATA_FLOAT;
    weft_cudnn_desc g = make(w, WEFT_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    must_set(g, WEFT_CUDNN_ATTR_CONVOLUTION_COMP_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type);
    must_set(g, WEFT_CUDNN_ATTR_CONVOLUTION_CONV_MODE, WEFT_CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    must_set(g, WEFT_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, WEFT_CUDNN_TYPE_INT64, 1, &two);
    must_set(g, WEFT_CUDNN_ATTR_CONVOLUTION_DILATIONS, WEFT_CUDNN_TYPE_INT64, 2, ones);
    must_set(g, WEFT_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, WEFT_CUDNN_TYPE_INT64, 2, ones);
    must_set(g, WEFT_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, WEFT_CUDNN_TYPE_INT64, 2, ones);
    must_set(g, WEFT_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, WEFT_CUDNN_TYPE_INT64, 2, ones);
    assert_int_equal(finalise(g), 0);
    return g;
}

static weft_cudnn_desc convolution(world *w, weft_cudnn_desc y)
{
    double one = 1, zero = 0;
    weft_cudnn_desc g = geometry(w);
    weft_cudnn_desc o = make(w, WEFT_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    must_set(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, WEFT_CUDNN_TYPE_DOUBLE, 1,
             &one);
    must_set(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, WEFT_CUDNN_TYPE_DOUBLE, 1,
             &zero);
    set_desc(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, g);
    set_desc(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, w->value[0]);
    set_desc(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w->value[1]);
    set_desc(o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    return o;
}

/* The operations of conv -> z -> bias, or in the other order of the sums. */
static void make_operations(world *w, bool bias_first)
{
    static const int64_t image[4] = {2, 4, 8, 8}, kernel[4] = {4, 4, 3, 3}, bias[4] = {1, 4, 1, 1};
    for (int i = 0; i < 7; i++)
        w->value[i] = tensor(w, i + 1, i > 4, i == 1 ? kernel : i == 4 ? bias : image);
    w->conv = convolution(w, w->value[5]);
    assert_int_equal(finalise(w->conv), 0);
    w->add_z = add(w, bias_first ? w->value[6] : w->value[5], w->value[3],
                   bias_first ? w->value[2] : w->value[6]);
    w->add_bias = add(w, bias_first ? w->value[5] : w->value[6], w->value[4],
                      bias_first ? w->value[6] : w->value[2]);
}

static weft_cudnn_desc make_graph(world *w, bool bias_first)
{
    make_operations(w, bias_first);
    weft_cudnn_desc op[3] = {w->conv, bias_first ? w->add_bias : w->add_z,
                             bias_first ? w->add_z : w->add_bias};
    weft_cudnn_desc g = make(w, WEFT_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    must_set(g, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 3, op);
    return g;
}

static weft_cudnn_desc make_device(world *w)
{
    weft_cudnn_desc p = make(w, WEFT_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    must_set(p, WEFT_CUDNN_ATTR_DEVICEPROP_HANDLE, WEFT_CUDNN_TYPE_HANDLE, 1, &w->handle);
    assert_int_equal(finalise(p), 0);
    return p;
}

/* A plan of the first engine, which needs a workspace. */
static void make_plan(world *w)
{
    unsigned mode = WEFT_CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    weft_cudnn_desc g = make_graph(w, false), device = make_device(w);
    assert_int_equal(finalise(g), 0);
    weft_cudnn_desc h = make(w, WEFT_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    must_set(h, WEFT_CUDNN_ATTR_ENGINEHEUR_MODE, WEFT_CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_desc(h, WEFT_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g);
    set_desc(h, WEFT_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    assert_int_equal(finalise(h), 0);
    weft_cudnn_desc config = make(w, WEFT_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    assert_int_equal(d.dnn.cudnnBackendGetAttribute(h, WEFT_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                    WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                                    &config),
                     0);
    w->plan = make(w, WEFT_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_desc(w->plan, WEFT_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    set_desc(w->plan, WEFT_CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    assert_int_equal(finalise(w->plan), 0);
}

/* Executes the plan with n of its tensors, the last of them `skew` bytes further. */
static weft_cudnn_status execute(world *w, int64_t n, uint64_t skew, bool workspace)
{
    int64_t id[5] = {1, 2, 3, 4, 5};
    void *at[5], *room = (void *)(uintptr_t)(w->memory + 5 * 4096);
    for (int i = 0; i < 5; i++)
        at[i] = (void *)(uintptr_t)(w->memory + (uint64_t)i * 4096 + (i + 1 == n ? skew : 0));
    weft_cudnn_desc pack = make(w, WEFT_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    must_set(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, WEFT_CUDNN_TYPE_INT64, n, id);
    must_set(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, WEFT_CUDNN_TYPE_VOID_PTR, n, at);
    if (workspace)
        must_set(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, WEFT_CUDNN_TYPE_VOID_PTR, 1, &room);
    assert_int_equal(finalise(pack), 0);
    assert_int_equal(d.dnn.cudnnSetStream(w->handle, d.stream), 0);
    return d.dnn.cudnnBackendExecute(w->handle, w->plan, pack);
}

static void open_world(world *w)
{
    *w = (world){.n = 0};
    doubles_start(&d);
    d.dnn_reset();
    assert_int_equal(d.api.cuMemAlloc(&w->memory, 8 * 4096), 0);
    assert_int_equal(d.api.cuMemsetD8Async(w->memory, 0, 8 * 4096, d.stream), 0);
    assert_int_equal(d.dnn.cudnnCreate(&w->handle), 0);
}

static void close_world(world *w)
{
    while (w->n > 0)
        assert_int_equal(d.dnn.cudnnBackendDestroyDescriptor(w->made[--w->n]), 0);
    assert_int_equal(d.dnn.cudnnDestroy(w->handle), 0);
    assert_int_equal(d.api.cuStreamSynchronize(d.stream), 0);
    assert_int_equal(d.api.cuMemFree(w->memory), 0);
    doubles_end(&d);
}

static void test_dnn_double__finds_wrong_attributes(void **state)
{
    (void)state;
    world w;
    int64_t id = 9;
    unsigned type = WEFT_CUDNN_DATA_FLOAT;
    open_world(&w);
    weft_cudnn_desc t = make(&w, WEFT_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    assert_int_not_equal(
        set(t, WEFT_CUDNN_ATTR_TENSOR_UNIQUE_ID, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type), 0);
    doubles_found(&d, "attribute 906, type 1");
    assert_int_not_equal(set(t, WEFT_CUDNN_ATTR_TENSOR_DIMENSIONS, WEFT_CUDNN_TYPE_INT64, 2, &id),
                         0);
    doubles_found(&d, "attribute 902, type 3, 2 values");
    assert_int_not_equal(
        set(t, WEFT_CUDNN_ATTR_POINTWISE_MODE, WEFT_CUDNN_TYPE_POINTWISE_MODE, 1, &type), 0);
    doubles_found(&d, "descriptor of type 17: attribute 0");
    assert_int_not_equal(finalise(t), 0);
    doubles_found(&d, "lacks attribute 906");
    close_world(&w);
}

static void test_dnn_double__finds_wrong_order(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    weft_cudnn_desc g = make_graph(&w, true);
    assert_int_equal(finalise(g), WEFT_CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
    bool no = false;
    assert_int_not_equal(
        set(w.value[0], WEFT_CUDNN_ATTR_TENSOR_IS_VIRTUAL, WEFT_CUDNN_TYPE_BOOLEAN, 1, &no), 0);
    doubles_found(&d, "after the descriptor was finalised");
    weft_cudnn_desc late = convolution(&w, w.value[5]);
    weft_cudnn_desc again = make(&w, WEFT_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    assert_int_not_equal(set(again, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS,
                             WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &late),
                         0);
    doubles_found(&d, "not finalised");
    close_world(&w);
}

static void test_dnn_double__finds_wrong_packs(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    make_plan(&w);
    assert_int_equal(execute(&w, 5, 0, true), 0);
    assert_int_not_equal(execute(&w, 4, 0, true), 0);
    doubles_found(&d, "must be aligned to 16");
    assert_int_not_equal(execute(&w, 5, 4, true), 0);
    doubles_found(&d, "must be aligned to 16");
    assert_int_not_equal(execute(&w, 5, 0, false), 0);
    doubles_found(&d, "needs a workspace");
    assert_int_equal(d.dnn.cudnnBackendDestroyDescriptor(w.value[0]), 0);
    doubles_found(&d, "another descriptor uses this one");
    uint32_t at = 0;
    while (w.made[at] != w.value[0])
        at++;
    memmove(&w.made[at], &w.made[at + 1], (--w.n - at) * sizeof w.made[0]);
    close_world(&w);
}

static void test_dnn_double__finds_plans_without_a_device(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    w.plan = make(&w, WEFT_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    must_set(w.plan, WEFT_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, WEFT_CUDNN_TYPE_CHAR, 3,
             "{}");
    assert_int_not_equal(finalise(w.plan), 0);
    doubles_found(&d, "a plan without a device");
    assert_int_not_equal(execute(&w, 5, 0, true), 0);
    doubles_found(&d, "the plan or the pack is not finalised");
    close_world(&w);
}

static int load_all(void **state)
{
    (void)state;
    doubles_load(&d);
    return 0;
}

int main(void)
{
#define T(name) cmocka_unit_test(test_dnn_double__##name)
    const struct CMUnitTest tests[] = {
        T(finds_wrong_attributes),
        T(finds_wrong_order),
        T(finds_wrong_packs),
        T(finds_plans_without_a_device),
    };
    return cmocka_run_group_tests(tests, load_all, NULL);
}
