/* low_rank_matmul for GPUs: the kernels of emit_low_rank.c, run on the host, against the operator's
 * reference; over element types, ranks, segments with many rows, few and none, crooked addresses,
 * NaN and infinities. */
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cuda_case.h"
#include "tests/support/typed_text.h"

/* Symbols ?a, ?b, ?c are rows of segments. Types are written T[...]. */
typedef struct low_rank_graph {
    const char *inputs, *node;
    int64_t rows[2][3]; /* values of the symbols, tried one after the other */
} low_rank_graph;

static const low_rank_graph graphs[] = {
    {"%x : T[37,48], %w : T[48,33], %c : T[48,4], %d : T[4,33], %e : T[48,16], %f : T[16,33]",
     "T[37,33] = low_rank_matmul %x, %w, _, %c, %d, %e, %f {starts = dims[0, 20]}",
     {{0}, {0}}},
    /* A segment without factors, bias, epilogue; rows of each are a symbol. */
    {"%p : T[?a], %q : T[?b], %o : T[?c], %x : T[?a+?b+?c,96], %w : T[80,96], %m : T[80], %c : "
     "T[96,5], %d : T[5,80], %e : T[96,31], "
     "%f "
     ": T[31,80], %r : T[?a+?b+?c,80]",
     "T[?a+?b+?c,80] = low_rank_matmul %x, %w, %m, %c, %d, _, _, %e, %f, %r {starts = dims[0, ?a, "
     "?a+?b], trans_b = 1, epilogue = [\"add acc i9\", \"gelu acc\"]}",
     {{40, 3, 33}, {0, 7, 0}}},
    /* One row each and much depth: in parts. */
    {"%p : T[?a], %q : T[?b], %o : T[?c], %x : T[?a+?b+?c,700], %w : T[50,700], %m : T[50], %c : "
     "T[700,8], %d : T[8,50], %e : "
     "T[700,16], "
     "%f : T[16,50], %g : T[700,1], %h : T[1,50]",
     "T[?a+?b+?c,50] = low_rank_matmul %x, %w, %m, %c, %d, %e, %f, %g, %h {starts = dims[0, ?a, "
     "?a+?b], trans_b = 1, epilogue = [\"relu acc\"]}",
     {{1, 1, 1}, {0, 5, 2}}},
    /* The highest rank, one segment; nothing to add for another. */
    {"%x : T[70,130], %w : T[130,96], %c : T[130,64], %d : T[64,96]",
     "T[70,96] = low_rank_matmul %x, %w, _, %c, %d {starts = dims[0]}",
     {{0}, {0}}},
    {"%x : T[9,40], %w : T[40,24]",
     "T[9,24] = low_rank_matmul %x, %w, _, _, _, _, _ {starts = dims[0, 4]}",
     {{0}, {0}}},
    /* A rank without columns; no depth at all. */
    {"%x : T[9,40], %w : T[40,24], %c : T[40,0], %d : T[0,24]",
     "T[9,24] = low_rank_matmul %x, %w, _, %c, %d {starts = dims[0]}",
     {{0}, {0}}},
    {"%x : T[9,0], %w : T[0,24], %m : T[24], %c : T[0,3], %d : T[3,24]",
     "T[9,24] = low_rank_matmul %x, %w, %m, %c, %d {starts = dims[0]}",
     {{0}, {0}}},
    /* The largest tile, with the narrowest and the widest low-rank factors. */
    {"%x : T[1240,40], %w : T[1280,40], %c : T[40,12], %d : T[12,1280]",
     "T[1240,1280] = low_rank_matmul %x, %w, _, %c, %d, _, _ {starts = dims[0, 700], trans_b = 1}",
     {{0}, {0}}},
    {"%x : T[1240,40], %w : T[40,1280], %c : T[40,12], %d : T[12,1280], %e : T[40,50], %f : "
     "T[50,1280]",
     "T[1240,1280] = low_rank_matmul %x, %w, _, %c, %d, %e, %f {starts = dims[0, 700]}",
     {{0}, {0}}},
};

enum { GRAPHS = sizeof graphs / sizeof graphs[0], LARGE = 7 };

static void print_graphs(weft_buf *out, const char *type, size_t n)
{
    weft_buf_puts(out, "wir 1 kernel\n");
    for (size_t i = 0; i < n; i++)
        for (const char *s = "abc"; *s; s++)
            weft_buf_printf(out, "symbol ?%c%zu = [0, 64]\n", *s, i);
    for (size_t i = 0; i < n; i++) {
        weft_buf text = {0};
        put_typed(&text, graphs[i].inputs, type);
        weft_buf_puts(&text, ") {\n");
        if (strstr(graphs[i].inputs, "?a"))
            weft_buf_puts(&text, "  symbol ?a \"a\"\n  symbol ?b \"b\"\n  symbol ?c \"c\"\n");
        weft_buf_puts(&text, "  %y : ");
        put_typed(&text, graphs[i].node, type);
        weft_buf_printf(out, "graph @case%zu (", i);
        for (const char *s = text.at; *s; s++) { /* "?a" of graph 7 is "?a7" */
            weft_buf_putc(out, *s);
            if (s[0] == '?')
                weft_buf_printf(out, "%c%zu", *++s, i);
        }
        weft_buf_puts(out, "\n  return \"y\" %y\n}\n");
        weft_buf_finish(&text);
    }
}

static void run_graphs(const char *type, bool tf32)
{
    const double tolerance = tf32 ? 3e-3 : 0;
    weft_buf text = {0};
    print_graphs(&text, type, GRAPHS);
    cuda_case *c = cuda_case_start_as(text.at, tf32);
    for (uint32_t i = 0; i < GRAPHS; i++)
        for (uint32_t r = 0; r < 2; r++) {
            cuda_case_spec spec = {
                .tolerance = tolerance, .symbol = graphs[i].rows[r], .two_sums = true};
            if (i >= LARGE && r > 0)
                continue;
            cuda_case_verify(c, i, &spec);
            spec.shift = 3;
            spec.special = true;
            if (i < LARGE)
                cuda_case_verify(c, i, &spec);
        }
    cuda_case_stop(c);
    weft_buf_finish(&text);
}

static void test_cuda_low_rank__f32_is_the_reference(void **state)
{
    (void)state;
    run_graphs("f32", false);
}

static void test_cuda_low_rank__tf32_is_near_the_reference(void **state)
{
    (void)state;
    run_graphs("f32", true);
}

static void test_cuda_low_rank__f16_is_the_reference(void **state)
{
    (void)state;
    run_graphs("f16", false);
}

static void test_cuda_low_rank__bf16_is_the_reference(void **state)
{
    (void)state;
    run_graphs("bf16", false);
}

/* As many segments as there may be: ranks 0 to 19, rows 0 to 36. */
static void test_cuda_low_rank__many_segments(void **state)
{
    (void)state;
    weft_buf text = {0}, factors = {0}, starts = {0};
    uint32_t rows = 0;
    weft_buf_puts(&text, "wir 1 kernel\n");
    for (uint32_t i = 0; i < WEFT_LOW_RANK_SEGMENTS; i++) {
        uint32_t rank = i * 7 % 20;
        weft_buf_printf(&starts, i ? ", %u" : "%u", rows);
        rows += i * i * 5 % 37;
        weft_buf_puts(&factors, rank ? "" : ", _, _");
        if (rank == 0)
            continue;
        weft_buf_printf(&factors, ", $u%u, $v%u", i, i);
        weft_buf_printf(&text, "weight $u%u \"u%u\" : f32[24,%u] = random %u\n", i, i, rank, i + 1);
        weft_buf_printf(&text, "weight $v%u \"v%u\" : f32[%u,40] = random %u\n", i, i, rank,
                        i + 31);
    }
    weft_buf_printf(&text,
                    "graph @g (%%x : f32[%u,24], %%w : f32[24,40]) {\n"
                    "  %%y : f32[%u,40] = low_rank_matmul %%x, %%w, _%s {starts = dims[%s]}\n"
                    "  return \"y\" %%y\n}\n",
                    rows, rows, factors.at, starts.at);
    cuda_case *c = cuda_case_start(text.at);
    cuda_case_verify(c, 0, &(cuda_case_spec){.shift = 1});
    cuda_case_stop(c);
    weft_buf_finish(&text);
    weft_buf_finish(&factors);
    weft_buf_finish(&starts);
}

/* One launch: at any numbers of rows one kernel has blocks, or one and the sum of its parts. */
static void test_cuda_low_rank__is_one_launch(void **state)
{
    (void)state;
    weft_buf text = {0};
    print_graphs(&text, "f16", 3);
    cuda_case *c = cuda_case_start(text.at);
    for (uint32_t i = 1; i < 3; i++) {
        const weft_bundle_program *p = &c->bundle.program[i];
        assert_int_equal(p->n_launch, 1);
        for (int64_t rows = 1; rows <= 64; rows++) {
            const int64_t symbol[3] = {rows, 65 - rows, rows};
            uint32_t with_blocks = 0;
            for (uint32_t s = 0; s < p->launch[0].n_command; s++) {
                const weft_bundle_command *command = &p->launch[0].command[s];
                int64_t blocks;
                assert_true(weft_dim_eval(p->dims, command->grid[0], symbol, 3, &blocks));
                with_blocks +=
                    blocks > 0 && strncmp(c->bundle.kernel[command->kernel].name, "low", 3) == 0;
            }
            assert_int_equal(with_blocks, 1);
        }
    }
    cuda_case_stop(c);
    weft_buf_finish(&text);
}

/* What only running tells, or is too much, is refused by name. */
static void test_cuda_low_rank__refusals_name_the_segment(void **state)
{
    (void)state;
    static const char *const refused[][4] = {
        {"8", "65", "0", "segment 0 has rank 65, at most 64"},
        {"?b", "4", "0, 4", "only running tells whether segment 1 has rows"},
    };
    for (size_t i = 0; i < 2; i++) {
        weft_buf text = {0};
        weft_buf_printf(
            &text,
            "wir 1 kernel\nsymbol ?b = [1, 8]\ngraph @g (%%x : f32[%s,8], %%w : f32[8,8], "
            "%%u : f32[8,%s], %%v : f32[%s,8]) {\n%s"
            "  %%y : f32[%s,8] = low_rank_matmul %%x, %%w, _, %%u, %%v {starts = "
            "dims[%s]}\n  return \"y\" %%y\n}\n",
            refused[i][0], refused[i][1], refused[i][1], i ? "  symbol ?b \"b\"\n" : "",
            refused[i][0], refused[i][2]);
        cuda_case c = {.diag = weft_diag_create(), .arena = weft_arena_create(0)};
        cuda_case_check(&c, weft_module_parse(text.at, text.len, "case", NULL, c.diag, &c.m));
        weft_codegen_options options = {.target = "sm_80"};
        assert_int_equal(
            weft_codegen_make(c.m, weft_backend_find("cuda"), &options, c.arena, c.diag, &c.bundle),
            WEFT_ERR_UNSUP);
        assert_non_null(strstr(weft_diag_at(c.diag, 0)->text, refused[i][3]));
        weft_module_destroy(c.m);
        weft_arena_destroy(c.arena);
        weft_diag_destroy(c.diag);
        weft_buf_finish(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_low_rank__f32_is_the_reference),
        cmocka_unit_test(test_cuda_low_rank__tf32_is_near_the_reference),
        cmocka_unit_test(test_cuda_low_rank__f16_is_the_reference),
        cmocka_unit_test(test_cuda_low_rank__bf16_is_the_reference),
        cmocka_unit_test(test_cuda_low_rank__many_segments),
        cmocka_unit_test(test_cuda_low_rank__is_one_launch),
        cmocka_unit_test(test_cuda_low_rank__refusals_name_the_segment),
    };
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
