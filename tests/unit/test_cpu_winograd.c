/* Weights transformed for Winograd, compared with what oneDNN's own reorder makes of them. */
#include "runtime/cpu/cpu_winograd.h"
#include "runtime/cpu/cpu_team.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct winograd_case {
    int64_t batch, ic, oc, size;
} winograd_case;

static const winograd_case cases[] = {{1, 16, 16, 7},    {1, 64, 64, 56},   {4, 64, 128, 28},
                                      {1, 128, 128, 28}, {8, 256, 256, 14}, {1, 256, 512, 7},
                                      {8, 512, 512, 7},  {2, 96, 208, 20},  {1, 48, 112, 33}};

static bool execute(weft_dnnl_scope *scope, dnnl_stream_t stream, const weft_dnnl_md *from,
                    const weft_dnnl_md *to, float *src, float *dst)
{
    const weft_dnnl_pd *pd = weft_dnnl__reorder(scope, from, to);
    assert_non_null(pd);
    const weft_dnnl_md *md = weft_dnnl__pd_md(scope, pd, dnnl_query_scratchpad_md, 0);
    void *scratch = malloc(weft_dnnl__md_bytes(md) + 1);
    dnnl_primitive_t prim = weft_dnnl__primitive_create(pd);
    dnnl_exec_arg_t arg[3] = {
        {DNNL_ARG_FROM, weft_dnnl__memory_create(scope->engine, from, src)},
        {DNNL_ARG_TO, weft_dnnl__memory_create(scope->engine, to, dst)},
        {DNNL_ARG_SCRATCHPAD, md ? weft_dnnl__memory_create(scope->engine, md, scratch) : NULL}};
    bool done = weft_dnnl__execute(prim, stream, md ? 3 : 2, arg);
    for (int i = 0; i < 3; i++)
        weft_dnnl__memory_destroy(arg[i].memory);
    weft_dnnl__primitive_destroy(prim);
    free(scratch);
    return done;
}

/* Whether the library transforms weights for this shape; `tile`: see weft_dnnl__conv. */
static bool check_case(weft_dnnl_scope *scope, dnnl_stream_t stream, const winograd_case *c,
                       int tile)
{
    const int64_t w[] = {c->oc, c->ic, 3, 3}, x[] = {c->batch, c->ic, c->size, c->size},
                  y[] = {c->batch, c->oc, c->size, c->size};
    const weft_dnnl_window window = {.stride = {1, 1}, .before = {1, 1}, .after = {1, 1}};
    const weft_dnnl_md *from = weft_dnnl__md_by_tag(scope, 4, w, dnnl_f32, dnnl_abcd);
    const weft_dnnl_pd *pd =
        weft_dnnl__conv(scope, NULL, dnnl_convolution_winograd, tile, &window,
                        weft_dnnl__md_by_tag(scope, 4, x, dnnl_f32, dnnl_aBcd16b),
                        weft_dnnl__md_by_tag(scope, 4, w, dnnl_f32, dnnl_format_tag_any), NULL,
                        weft_dnnl__md_by_tag(scope, 4, y, dnnl_f32, dnnl_aBcd16b));
    weft_dnnl_winograd f;
    if (!pd)
        return false;
    const weft_dnnl_md *to = weft_dnnl__pd_md(scope, pd, dnnl_query_weights_md, 0);
    if (!to || !weft_dnnl__md_winograd(to, &f) || !weft_cpu__winograd_fits(&f))
        return false;
    assert_true(tile == 0 || f.tile == tile);
    uint64_t n = (uint64_t)(c->oc * c->ic) * 9, room = weft_dnnl__md_bytes(to), seed = 5;
    float *src = malloc(n * sizeof *src), *want = calloc(1, room), *got = calloc(1, room);
    assert_true(src && want && got);
    for (uint64_t i = 0; i < n; i++)
        src[i] = (float)((int32_t)rand_below(&seed, 2001) - 1000) / 512.0f;
    assert_true(execute(scope, stream, from, to, src, want));
    memset(got, 0x5a, room);
    int64_t half = f.oc / f.oc_block / 2 * f.oc_block;
    weft_cpu__winograd_pack(&f, src, c->oc, c->ic, 0, half, 1, got);
    weft_cpu__winograd_pack(&f, src, c->oc, c->ic, half, f.oc, 2, got);
    assert_int_equal(room, (uint64_t)((f.tile + 2) * (f.tile + 2) * f.oc * f.ic) * sizeof(float));
    for (uint64_t i = 0; i < room / sizeof(float); i++)
        if (!(fabsf(got[i] - want[i]) <= 4e-6f))
            fail_msg("%lld to %lld channels, tile %d: element %llu is %g, not %g", (long long)c->ic,
                     (long long)c->oc, f.tile, (unsigned long long)i, (double)got[i],
                     (double)want[i]);
    free(src);
    free(want);
    free(got);
    return true;
}

static void test_cpu_winograd__packs_as_onednn(void **state)
{
    (void)state;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int found = 0;
    assert_int_equal(weft_dnnl__engine_open(&engine, &stream), dnnl_success);
    weft_team_begin(2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_dnnl_scope scope = {.engine = engine};
        found += check_case(&scope, stream, &cases[i], 0);
        found += check_case(&scope, stream, &cases[i], 4);
        weft_dnnl__scope_finish(&scope);
    }
    weft_team_end();
    weft_dnnl__engine_close(engine, stream);
    print_message("%d shapes\n", found);
    if (found == 0)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu_winograd__packs_as_onednn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
