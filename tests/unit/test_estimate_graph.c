/* Lowering of graphs to workloads: kinds and problem sizes of every form, launches of a framework,
 * memory. */
#include "tests/support/network.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* -- A graph of one test ---------------------------------------------------------------------- */

typedef struct world {
    weft_module *m;
    weft_arena *arena;
    weft_diag *diag;
    weft_workload work;
    weft_err err;
} world;

static void lower_at(world *w, const char *text, weft_lowering lowering, bool folded_norm,
                     uint32_t batch)
{
    int64_t symbol[8] = {0};
    weft_estimate_options o = {.lowering = lowering, .folded_norm = folded_norm};
    *w = (world){.arena = weft_arena_create(0), .diag = weft_diag_create()};
    if (weft_module_parse(text, strlen(text), "text", NULL, w->diag, &w->m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(w->diag, 0)->text);
    if (weft_module_verify(w->m, w->diag) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(w->diag, 0)->text);
    weft_graph *g = weft_graph_at(w->m, 0);
    assert_int_equal(weft_estimate_symbols(g, batch, w->diag, symbol), WEFT_ERR_OK);
    w->err = weft_workload_make(g, symbol, &o, w->arena, w->diag, &w->work);
}

static void lower(world *w, const char *text)
{
    lower_at(w, text, WEFT_LOWERING_FUSED, false, 1);
    assert_int_equal(w->err, WEFT_ERR_OK);
}

static void close_world(world *w)
{
    weft_module_destroy(w->m);
    weft_arena_destroy(w->arena);
    weft_diag_destroy(w->diag);
}

static const weft_kernel *at(const world *w, size_t i)
{
    assert_true(i < w->work.n);
    return &w->work.kernel[i].kernel;
}

static void assert_gemm(const weft_kernel *k, double batch, double m, double n, double inner)
{
    if (k->batch != batch || k->m != m || k->n != n || k->k != inner)
        fail_msg("%g x (%g %g %g), not %g x (%g %g %g)", k->batch, k->m, k->n, k->k, batch, m, n,
                 inner);
}

static void assert_rows(const weft_kernel *k, weft_kernel_kind kind, const char *fn, double rows,
                        double cols)
{
    assert_int_equal(k->kind, kind);
    if (fn)
        assert_string_equal(k->fn, fn);
    else
        assert_null(k->fn);
    if (k->rows != rows || k->cols != cols)
        fail_msg("%g x %g, not %g x %g", k->rows, k->cols, rows, cols);
}

/* -- GEMMs --------------------------------------------------------------------------------- */

static void test_estimate_graph__gemms(void **state)
{
    world w;
    (void)state;
    lower(&w, "wir 1 kernel\n"
              "weight $w : f32[64,32] = splat 0.0\n"
              "weight $t : f32[32,64] = splat 0.0\n"
              "weight $v : f32[64] = splat 0.0\n"
              "graph @g (%x : f32[2,8,64], %y : f32[2,4,64,16], %z : f32[2,4,10,64]) {\n"
              "  %a : f32[2,8,32] = matmul %x, $w\n"
              "  %b : f32[2,8,32] = matmul %x, $t, _ {trans_b = 1}\n"
              "  %c : f32[2,4,10,16] = matmul %z, %y\n"
              "  %d : f32[2,8] = matmul %x, $v\n"
              "  %e : f32[64,64] = gemm $w, $t\n"
              "  %f : f32[2,4,10,10] = einsum %z, %z {equation = \"bhqd,bhkd->bhqk\"}\n"
              "  %h : f32[2,8,64] = attention %x, %x, %x {heads = 4, head_dim = 16}\n"
              "  return \"a\" %a, \"b\" %b, \"c\" %c, \"d\" %d, \"e\" %e, \"f\" %f, \"h\" %h\n"
              "}\n");
    assert_int_equal(w.work.n, 7);
    assert_gemm(at(&w, 0), 1, 16, 32, 64); /* a matrix shared by the batch: one tall GEMM */
    assert_gemm(at(&w, 1), 1, 16, 32, 64);
    assert_gemm(at(&w, 2), 8, 10, 16, 64);
    assert_gemm(at(&w, 3), 1, 16, 1, 64);
    assert_gemm(at(&w, 4), 1, 64, 64, 32);
    assert_gemm(at(&w, 5), 8, 10, 10, 64);
    assert_gemm(at(&w, 6), 8, 8, 8, 16);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(at(&w, i)->kind, WEFT_KERNEL_GEMM);
    assert_int_equal(at(&w, 6)->kind, WEFT_KERNEL_ATTENTION);
    assert_true(at(&w, 0)->work.flops == 2.0 * 16 * 32 * 64);
    close_world(&w);
}

static void test_estimate_graph__convolutions(void **state)
{
    world w;
    (void)state;
    lower(&w, "wir 1 kernel\n"
              "weight $w : f32[64,3,7,7] = splat 0.0\n"
              "weight $g : f32[64,16,3,3] = splat 0.0\n"
              "weight $d : f32[64,1,3,3] = splat 0.0\n"
              "weight $t : f32[64,8,2,2] = splat 0.0\n"
              "weight $l : f32[5,4,3] = splat 0.0\n"
              "graph @g (%x : f32[2,3,32,48], %s : f32[2,4,20]) {\n"
              "  %a : f32[2,64,16,24] = conv %x, $w {pads = [3, 3, 3, 3], strides = [2, 2]}\n"
              "  %b : f32[2,64,16,24] = conv %a, $g {group = 4, pads = [1, 1, 1, 1]}\n"
              "  %c : f32[2,64,16,24] = conv %b, $d {auto_pad = \"SAME_UPPER\", group = 64}\n"
              "  %e : f32[2,8,32,48] = conv_transpose %c, $t {strides = [2, 2]}\n"
              "  %f : f32[2,5,18] = conv %s, $l\n"
              "  return \"e\" %e, \"f\" %f\n"
              "}\n");
    assert_int_equal(w.work.n, 5);
    const weft_conv_shape *c = &at(&w, 0)->conv;
    assert_int_equal(at(&w, 0)->kind, WEFT_KERNEL_CONV);
    assert_gemm(at(&w, 0), 1, 2 * 16 * 24, 64, 3 * 49);
    assert_true(c->images == 2 && c->in_channels == 3 && c->out_channels == 64 && c->groups == 1);
    assert_true(c->in_h == 32 && c->in_w == 48 && c->out_h == 16 && c->out_w == 24);
    assert_true(c->kernel_h == 7 && c->kernel_w == 7 && c->stride_h == 2 && c->pad_w == 3);
    assert_gemm(at(&w, 1), 4, 2 * 16 * 24, 16, 16 * 9);
    assert_int_equal(at(&w, 2)->kind, WEFT_KERNEL_DEPTHWISE);
    assert_true(at(&w, 2)->conv.pad_h == 1 && at(&w, 2)->conv.groups == 64);
    assert_rows(at(&w, 2), WEFT_KERNEL_DEPTHWISE, "conv", 2 * 64, 16 * 24);
    assert_gemm(at(&w, 3), 1, 2 * 16 * 24, 8 * 4, 64);
    assert_true(at(&w, 3)->conv.out_channels == 8);
    assert_gemm(at(&w, 4), 1, 2 * 18, 5, 12);
    assert_true(at(&w, 4)->conv.in_w == 20 && at(&w, 4)->conv.in_h == 1);
    close_world(&w);
}

/* -- Rows ------------------------------------------------------------------------------------- */

static void test_estimate_graph__rows(void **state)
{
    world w;
    (void)state;
    lower(&w, "wir 1 kernel\n"
              "weight $v : f32[16] = splat 0.5\n"
              "weight $c : f32[4] = splat 0.5\n"
              "graph @g (%x : f32[2,4,8,16], %i : i64[3]) {\n"
              "  %a : f32[2,4,8,16] = ew %x {steps = [\"gelu i0\"]}\n"
              "  %b : f32[2,4,8,16] = ew %x {steps = [\"relu i0\", \"exp s0\"]}\n"
              "  %c : f32[2,4,8,16] = layer_norm %x, $v, $v {axis = -1}\n"
              "  %d : f32[2,4,8,16] = softmax %x {axis = 1}\n"
              "  %e : f32[2,4,8,16] = batch_norm %x, $c, $c, $c, $c\n"
              "  %f : f32[2,4,8,16] = instance_norm %x, $c, $c\n"
              "  %h : f32[2,4,8,16] = group_norm %x, $c, $c {num_groups = 2}\n"
              "  %j : f32[2,4,1,1] = global_average_pool %x\n"
              "  %k : f32[2,8] = reduce_sum %x {axes = dims[1, 3], keepdims = 0}\n"
              "  %l : f32[2,4,4,8] = max_pool %x {kernel_shape = [2, 2], strides = [2, 2]}\n"
              "  %m : f32[16,8,4,2] = transpose %x {perm = [3, 2, 1, 0]}\n"
              "  %n : f32[3,4,8,16] = gather %x, %i {axis = 0}\n"
              "  %o : f32[2,4,8,8] = slice %x {axes = dims[3], ends = dims[16], starts = "
              "dims[0], steps = dims[2]}\n"
              "  return \"a\" %a, \"b\" %b, \"c\" %c, \"d\" %d, \"e\" %e, \"f\" %f, \"h\" %h, "
              "\"j\" %j, \"k\" %k, \"l\" %l, \"m\" %m, \"n\" %n, \"o\" %o\n"
              "}\n");
    assert_int_equal(w.work.n, 13);
    assert_rows(at(&w, 0), WEFT_KERNEL_EW, "gelu", 64, 16);
    assert_rows(at(&w, 1), WEFT_KERNEL_EW, NULL, 64, 16);
    assert_rows(at(&w, 2), WEFT_KERNEL_NORM, "layer_norm", 64, 16);
    assert_rows(at(&w, 3), WEFT_KERNEL_SOFTMAX, "softmax", 256, 4);
    assert_rows(at(&w, 4), WEFT_KERNEL_NORM, "batch_norm", 4, 256);
    assert_true(at(&w, 4)->batch == 2);
    assert_rows(at(&w, 5), WEFT_KERNEL_NORM, "instance_norm", 8, 128);
    assert_rows(at(&w, 6), WEFT_KERNEL_NORM, "group_norm", 4, 256);
    assert_rows(at(&w, 7), WEFT_KERNEL_REDUCE, "global_average_pool", 8, 128);
    assert_rows(at(&w, 8), WEFT_KERNEL_REDUCE, "reduce_sum", 16, 64);
    assert_rows(at(&w, 9), WEFT_KERNEL_POOL, "max_pool", 32, 8);
    assert_rows(at(&w, 10), WEFT_KERNEL_MOVE, "transpose", 512, 2);
    assert_rows(at(&w, 11), WEFT_KERNEL_MOVE, "gather", 96, 16);
    assert_rows(at(&w, 12), WEFT_KERNEL_MOVE, "slice", 64, 8);
    close_world(&w);
}

/* A reorder of single pixels is a view; with channels innermost a convolution has the sizes of the
 * plain one. */
static void test_estimate_graph__channels_innermost(void **state)
{
    world w;
    (void)state;
    lower(&w, "wir 1 kernel\n"
              "weight $w : f32[16,3,3,8] = splat 0.0\n"
              "graph @g (%x : f32[2,8,4,6]) {\n"
              "  %a : f32[2,8,4,6]:nhwc = reorder %x {layout = \"nhwc\"}\n"
              "  %b : f32[2,16,2,4]:nhwc = conv %a, $w {trans_w = 1}\n"
              "  %c : f32[2,16,1,1]:nhwc = global_average_pool %b\n"
              "  %d : f32[2,16,1,1] = reorder %c {layout = \"plain\"}\n"
              "  return \"d\" %d\n"
              "}\n");
    assert_int_equal(w.work.n, 3);
    assert_int_equal(at(&w, 0)->kind, WEFT_KERNEL_MOVE);
    assert_int_equal(at(&w, 1)->kind, WEFT_KERNEL_CONV);
    assert_gemm(at(&w, 1), 1, 2 * 2 * 4, 16, 8 * 9);
    assert_int_equal(at(&w, 2)->kind, WEFT_KERNEL_REDUCE);
    close_world(&w);
}

/* An LSTM is three kernels, two of which run once for each time step. */
static void test_estimate_graph__recurrent_layers_are_steps(void **state)
{
    world w;
    weft_estimate e;
    weft_slice slice;
    (void)state;
    lower(&w, "wir 1 kernel\n"
              "weight $w : f32[1,64,8] = splat 0.0\n"
              "weight $r : f32[1,64,16] = splat 0.0\n"
              "graph @g (%x : f32[20,3,8]) {\n"
              "  %a : f32[20,1,3,16] = lstm %x, $w, $r {hidden_size = 16}\n"
              "  return \"a\" %a\n"
              "}\n");
    assert_int_equal(w.work.n, 3);
    assert_gemm(at(&w, 0), 1, 60, 64, 8);
    assert_gemm(at(&w, 1), 1, 3, 64, 16);
    assert_int_equal(w.work.kernel[0].launches, 1);
    assert_int_equal(w.work.kernel[1].launches, 20);
    assert_int_equal(w.work.kernel[2].launches, 20);
    assert_int_equal(weft_slice_make("h100", "", w.diag, &slice), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_workload(&w.work, &slice, NULL, w.arena, w.diag, &e),
                     WEFT_ERR_OK);
    assert_true(e.total.time_us > 40 * slice.gpu->launch_us);
    close_world(&w);
}

/* -- Frameworks ------------------------------------------------------------------------------- */

static const char network[] = "wir 1 kernel\n"
                              "symbol ?b = [1, 64]\n"
                              "weight $w : f32[64,3,3,3] = splat 0.0\n"
                              "weight $c : f32[64] = splat 0.5\n"
                              "graph @g (%x : f32[?b,3,32,32]) {\n"
                              "  symbol ?b \"b\"\n"
                              "  %a : f32[?b,64,32,32] = conv %x, $w, $c {pads = [1, 1, 1, 1]}\n"
                              "  %r : f32[?b,64,32,32] = ew %a {steps = [\"relu i0\"]}\n"
                              "  %s : f32[?b,64,16,32] = slice %r {axes = dims[2], ends = "
                              "dims[16], starts = dims[0]}\n"
                              "  %v : f32[?b,32768] = view %s {shape = dims[?b, 32768]}\n"
                              "  return \"v\" %v\n"
                              "}\n";

static void test_estimate_graph__frameworks_launch_more(void **state)
{
    world fused, eager, folded;
    (void)state;
    lower_at(&fused, network, WEFT_LOWERING_FUSED, false, 4);
    lower_at(&eager, network, WEFT_LOWERING_FRAMEWORK, false, 4);
    lower_at(&folded, network, WEFT_LOWERING_FRAMEWORK, true, 4);
    assert_int_equal(fused.work.n, 3); /* conv with bias, relu, slice */
    assert_int_equal(eager.work.n, 3); /* conv, bias, relu */
    assert_int_equal(folded.work.n, 3);
    assert_rows(at(&eager, 1), WEFT_KERNEL_EW, "add", 4 * 64, 1024);
    assert_rows(at(&folded, 1), WEFT_KERNEL_NORM, "batch_norm", 64, 4 * 1024);
    assert_true(at(&eager, 0)->work.flops == 2.0 * 4 * 64 * 1024 * 27);
    assert_true(at(&fused, 0)->work.flops == at(&eager, 0)->work.flops + 4.0 * 64 * 1024);
    assert_true(at(&fused, 0)->work.weight_bytes == at(&eager, 0)->work.weight_bytes + 64 * 4);
    close_world(&fused);
    close_world(&eager);
    close_world(&folded);
}

/* The number of kernels equals that of the traces: orion/profiles has one row more for each network
 * (README.md); BERT-large has 20 kernels a layer. */
static void test_estimate_graph__framework_launches_what_was_traced(void **state)
{
    static const struct {
        const char *name;
        size_t kernels;
    } cases[] = {{"resnet50", 174}, {"resnet101", 344}, {"mobilenet_v2", 151}, {"bert_large", 490}};
    const weft_estimate_options o = {.lowering = WEFT_LOWERING_FRAMEWORK};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_module *m = network_load(cases[i].name, "framework");
        weft_arena *arena = weft_arena_create(0);
        weft_diag *diag = weft_diag_create();
        weft_graph *g = weft_graph_at(m, 0);
        weft_workload work;
        int64_t symbol[8] = {0};
        assert_int_equal(weft_estimate_symbols(g, 4, diag, symbol), WEFT_ERR_OK);
        assert_int_equal(weft_workload_make(g, symbol, &o, arena, diag, &work), WEFT_ERR_OK);
        assert_int_equal(work.n, cases[i].kernels);
        weft_diag_destroy(diag);
        weft_arena_destroy(arena);
        weft_module_destroy(m);
    }
}

/* Small batches are bound by the host, large ones by the device. */
static void test_estimate_graph__framework_time(void **state)
{
    const weft_framework *f = weft_framework_at(0);
    weft_slice slice;
    (void)state;
    assert_ptr_equal(weft_framework_find(f->name), f);
    assert_null(weft_framework_find("none"));
    assert_null(weft_framework_at(1000));
    for (uint32_t batch = 1; batch <= 64; batch *= 8) {
        world w;
        weft_estimate e;
        weft_estimate_options o = {.lowering = WEFT_LOWERING_FRAMEWORK};
        lower_at(&w, network, WEFT_LOWERING_FRAMEWORK, false, batch);
        assert_int_equal(weft_slice_make("a100-80", "1g.10gb", w.diag, &slice), WEFT_ERR_OK);
        assert_int_equal(weft_estimate_workload(&w.work, &slice, &o, w.arena, w.diag, &e),
                         WEFT_ERR_OK);
        double copies_us = (double)w.work.in_bytes / f->in_gbps * 1e-3 +
                           (double)w.work.out_bytes / f->out_gbps * 1e-3;
        double host_us = 3 * f->host_us;
        assert_true(e.total.time_us >= fmax(host_us, e.device_us) + copies_us - 1e-6);
        assert_true(e.total.time_us <= host_us + e.device_us + copies_us + 1e-6);
        assert_true(e.total.creq <= slice.share && e.total.creq > 0);
        assert_true(e.total.bandwidth_gbps <= slice.bandwidth_gbps);
        /* A framework with a slower host. */
        weft_framework slow = *f;
        slow.host_us = 1e4;
        o.framework = &slow;
        weft_estimate later;
        assert_int_equal(weft_estimate_workload(&w.work, &slice, &o, w.arena, w.diag, &later),
                         WEFT_ERR_OK);
        assert_true(later.total.time_us > 3e4 && later.device_us == e.device_us);
        assert_true(later.total.energy_j > e.total.energy_j);
        close_world(&w);
    }
}

/* -- Memory and refusals ---------------------------------------------------------------------- */

static void test_estimate_graph__memory(void **state)
{
    world w;
    weft_estimate e;
    weft_slice slice;
    (void)state;
    lower(&w, "wir 1 kernel\n"
              "weight $w : f32[64,64] = splat 0.0\n"
              "weight $u : f32[64,64] = splat 0.0\n"
              "graph @g (%x : f32[32,64]) {\n"
              "  %a : f32[32,64] = matmul %x, $w\n"
              "  %b : f32[32,64] = matmul %a, $w\n"
              "  %c : f32[2048] = view %b {shape = dims[2048]}\n"
              "  %d : f32[32,64] = view %c {shape = dims[32, 64]}\n"
              "  %e : f32[32,64] = matmul %d, $u\n"
              "  %f : f32[32,64] = ew %a, %e {steps = [\"add i0 i1\"]}\n"
              "  return \"f\" %f\n"
              "}\n");
    assert_int_equal(w.work.weight_bytes, 2 * 64 * 64 * 4); /* one read twice */
    assert_int_equal(w.work.in_bytes, 32 * 64 * 4);
    assert_int_equal(w.work.out_bytes, 32 * 64 * 4);
    /* While %e is computed, %a and, through two views, %b are live. */
    assert_int_equal(w.work.arena_bytes, 3 * 32 * 64 * 4);
    assert_int_equal(weft_slice_make("a100-80", "", w.diag, &slice), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_workload(&w.work, &slice, NULL, w.arena, w.diag, &e),
                     WEFT_ERR_OK);
    assert_int_equal(e.workspace_bytes, 4 << 20);
    assert_int_equal(e.total.mreq_bytes, e.weight_bytes + e.arena_bytes + e.io_bytes +
                                             e.workspace_bytes + e.context_bytes);
    assert_int_equal(weft_slice_make("cpu", "", w.diag, &slice), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_workload(&w.work, &slice, NULL, w.arena, w.diag, &e),
                     WEFT_ERR_OK);
    assert_int_equal(e.workspace_bytes, 0);
    close_world(&w);
}

/* Each GEMM that may run concurrently has a workspace: q, k, v and, after a view, w. */
static void test_estimate_graph__workspaces_of_a_wave(void **state)
{
    world w;
    weft_estimate e;
    weft_slice slice;
    (void)state;
    lower(&w, "wir 1 kernel\n"
              "weight $w : f32[64,64] = splat 0.0\n"
              "graph @g (%x : f32[32,64]) {\n"
              "  %q : f32[32,64] = matmul %x, $w\n"
              "  %k : f32[32,64] = matmul %x, $w\n"
              "  %v : f32[32,64] = matmul %x, $w\n"
              "  %y : f32[2048] = view %x {shape = dims[2048]}\n"
              "  %z : f32[32,64] = view %y {shape = dims[32, 64]}\n"
              "  %w : f32[32,64] = matmul %z, $w\n"
              "  %a : f32[32,64] = ew %q, %k, %v, %w {steps = [\"add i0 i1\", \"add acc i2\", "
              "\"add acc i3\"]}\n"
              "  %b : f32[32,64] = matmul %a, $w\n"
              "  %c : f32[32,64] = matmul %a, $w\n"
              "  return \"b\" %b, \"c\" %c\n"
              "}\n");
    assert_int_equal(w.work.n_beside, 4);
    assert_int_equal(weft_slice_make("h200", "", w.diag, &slice), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_workload(&w.work, &slice, NULL, w.arena, w.diag, &e),
                     WEFT_ERR_OK);
    assert_int_equal(e.workspace_bytes, 4 * 32 << 20);
    close_world(&w);
}

/* The arena is that of the plan's bucket; without the bucket the estimator plans the same size. */
static void test_estimate_graph__arena_is_plan_memorys(void **state)
{
    static const char *const names[] = {"mobilenet_v2", "shufflenet_v2_x1_0", "resnet18"};
    static const int64_t batches[] = {1, 8, 32};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        weft_module *m = network_load_for(names[i], "cpu", batches, 3);
        weft_graph *g = weft_graph_at(m, 0);
        weft_arena *arena = weft_arena_create(0);
        weft_diag *diag = weft_diag_create();
        uint64_t planned[3];
        assert_int_equal(weft_graph_bucket_count(g), 3);
        for (int round = 0; round < 2; round++) {
            for (size_t b = 0; b < 3; b++) {
                weft_workload work;
                int64_t symbol[8] = {0};
                if (round == 0)
                    planned[b] = weft_graph_bucket(g, (uint32_t)b)->arena_bytes;
                assert_int_equal(weft_estimate_symbols(g, (uint32_t)batches[b], diag, symbol),
                                 WEFT_ERR_OK);
                assert_int_equal(weft_workload_make(g, symbol, NULL, arena, diag, &work),
                                 WEFT_ERR_OK);
                assert_int_equal(work.arena_bytes, planned[b]);
                assert_true(work.arena_bytes > 0);
            }
            weft_graph_clear_buckets(g);
        }
        weft_diag_destroy(diag);
        weft_arena_destroy(arena);
        weft_module_destroy(m);
    }
}

static void test_estimate_graph__shapes_of_data_are_refused(void **state)
{
    world w;
    (void)state;
    lower_at(&w,
             "wir 1 kernel\n"
             "symbol ?n data\n"
             "graph @g (%x : f32[8]) {\n"
             "  %a : i64[1,?n] = non_zero %x\n"
             "  return \"a\" %a\n"
             "}\n",
             WEFT_LOWERING_FUSED, false, 1);
    assert_int_equal(w.err, WEFT_ERR_UNSUP);
    assert_non_null(strstr(weft_diag_at(w.diag, 0)->text, "non_zero"));
    close_world(&w);
}

/* Products of bytes: the rate of int8, weights of a byte, and on GPUs the kernels around the
 * library's GEMM with their scratch memory; few rows and depthwise convolutions have none. */
static void test_estimate_graph__products_of_bytes(void **state)
{
    (void)state;
    static const char text[] =
        "wir 1 kernel\n"
        "weight $s \"s\" : f32[] = dense [0.5]\n"
        "weight $z \"z\" : u8[] = dense [7]\n"
        "weight $i \"i\" : i8[] = dense [0]\n"
        "weight $w \"w\" : i8[4096,4096] = splat 1\n"
        "weight $c \"c\" : i8[64,64,3,3] = splat 1\n"
        "weight $d \"d\" : i8[64,1,3,3] = splat 1\n"
        "graph @g (%x : u8[4096,4096], %v : u8[8,4096], %y : u8[1,64,56,56]) {\n"
        "  %1 : f32[4096,4096] = qlinear_matmul %x, $s, $z, $w, $s, $i {trans_b = 1}\n"
        "  %2 : f32[8,4096] = qlinear_matmul %v, $s, $z, $w, $s, $i {trans_b = 1}\n"
        "  %3 : u8[1,64,56,56] = qlinear_conv %y, $s, $z, $c, $s, $i, $s, $z {pads = [1, 1, 1, "
        "1]}\n"
        "  %4 : f32[1,64,56,56] = qlinear_conv %3, $s, $z, $d, $s, $i {pads = [1, 1, 1, 1], group "
        "= "
        "64}\n"
        "  return \"a\" %1, \"b\" %2, \"d\" %4\n"
        "}\n";
    world w;
    lower(&w, text);
    assert_int_equal(w.work.n, 4);
    assert_gemm(at(&w, 0), 1, 4096, 4096, 4096);
    assert_int_equal(at(&w, 0)->dtype, WEFT_DTYPE_U8);
    assert_true(at(&w, 0)->staging.packed_bytes == 4096.0 * 4096);
    assert_true(at(&w, 0)->staging.sum_bytes == 4096.0 * 4096 * 4);
    assert_true(at(&w, 1)->staging.launches == 0 && at(&w, 3)->staging.launches == 0);
    assert_true(at(&w, 2)->staging.packed_bytes == 56.0 * 56 * 576);
    assert_int_equal(w.work.weight_bytes, 4096 * 4096 + 64 * 64 * 9 + 64 * 9 + 6);
    assert_int_equal(w.work.staging_bytes, 4096ull * 4096 * 5 + 56 * 56 * (576 + 64 * 4));
    weft_slice h200, cpu;
    weft_cost bytes, half, own;
    assert_int_equal(weft_slice_make("h200", "", w.diag, &h200), WEFT_ERR_OK);
    assert_int_equal(weft_slice_make("cpu", "", w.diag, &cpu), WEFT_ERR_OK);
    weft_kernel f16 = weft_kernel_make_gemm(WEFT_DTYPE_F16, 1, 4096, 4096, 4096, true);
    weft_kernel bare = *at(&w, 0);
    bare.staging = (weft_staging){0};
    const weft_estimate_options roof = {.model = "roofline"};
    assert_int_equal(weft_estimate_kernel(&bare, &h200, &roof, w.diag, &bytes, NULL), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_kernel(&f16, &h200, &roof, w.diag, &half, NULL), WEFT_ERR_OK);
    assert_true(bytes.time_us < 0.6 * half.time_us && bytes.creq > 0);
    assert_int_equal(weft_estimate_kernel(at(&w, 0), &h200, &roof, w.diag, &own, NULL),
                     WEFT_ERR_OK);
    assert_true(own.time_us > bytes.time_us + 2 * 2.5);
    weft_kernel on_cpu = *at(&w, 0);
    assert_int_equal(weft_estimate_kernel(&on_cpu, &cpu, NULL, w.diag, &own, NULL), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_kernel(&bare, &cpu, NULL, w.diag, &bytes, NULL), WEFT_ERR_OK);
    assert_true(own.time_us == bytes.time_us);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_estimate_graph__products_of_bytes),
        cmocka_unit_test(test_estimate_graph__gemms),
        cmocka_unit_test(test_estimate_graph__convolutions),
        cmocka_unit_test(test_estimate_graph__channels_innermost),
        cmocka_unit_test(test_estimate_graph__rows),
        cmocka_unit_test(test_estimate_graph__recurrent_layers_are_steps),
        cmocka_unit_test(test_estimate_graph__frameworks_launch_more),
        cmocka_unit_test(test_estimate_graph__framework_launches_what_was_traced),
        cmocka_unit_test(test_estimate_graph__framework_time),
        cmocka_unit_test(test_estimate_graph__memory),
        cmocka_unit_test(test_estimate_graph__workspaces_of_a_wave),
        cmocka_unit_test(test_estimate_graph__arena_is_plan_memorys),
        cmocka_unit_test(test_estimate_graph__shapes_of_data_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
