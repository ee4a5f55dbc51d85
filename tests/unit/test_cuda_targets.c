/* Kernels of GEMMs, convolutions and attention, of the shapes that common models have, compiled
 * by NVRTC for several architectures: what they take of registers, shared and local memory, and how
 * many blocks a multiprocessor then holds. Skipped where there is no NVRTC.
 *
 * ctest label: slow (NVRTC takes the time, and sanitizers cannot look into NVRTC). */
#include "codegen/codegen.h"
#include "estimator/estimator.h"
#include "ir/ir.h"
#include "passes/passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/typed_text.h"

/* The oldest and the newest; WEFT_TARGETS names others. conform/machine_code.py compiles for those
 * between them, with WEFT_CUBINS, a folder for the images. */
#define TARGETS "sm_75,sm_120"

enum {
    SHARED_MAX = 48 << 10, /* that every device gives without being asked */
    LOCAL_MAX = 128,       /* bytes of a thread: a few registers outside of inner loops */
    WARPS_MIN = 2,  /* that a multiprocessor holds at once, where tensor cores take every type... */
    FULL_CORES = 80 /* ...from this capability on */
};

/* Element type, operands, node, weight: of BERT, GPT, ResNet and MobileNet, at sizes that take each
 * tile. Types are written T[...]. */
static const char *const nodes[][4] = {
    {"f16", "%a : T[8192,768], %b : T[3072,768], %c : T[3072]",
     "T[8192,3072] = matmul %a, %b, %c {epilogue = [\"gelu acc\"], trans_b = 1}"},
    {"bf16", "%a : T[128,768], %b : T[3072,768], %c : T[3072]",
     "T[128,3072] = matmul %a, %b, %c {epilogue = [\"gelu acc\"], trans_b = 1}"},
    {"f16", "%a : T[16,768], %b : T[768,768], %r : T[16,768]",
     "T[16,768] = matmul %a, %b, _, %r {epilogue = [\"sigmoid acc\", \"mul s0 i3\"]}"},
    {"f32", "%a : T[8192,768], %b : T[3072,768], %c : T[3072]",
     "T[8192,3072] = matmul %a, %b, %c {epilogue = [\"gelu acc\"], trans_b = 1}"},
    {"f32", "%a : T[128,3072], %b : T[3072,768]",
     "T[128,768] = matmul %a, %b {epilogue = [\"gelu acc\"], trans_a = 0}"},
    {"bf16", "%x : T[64,768], %w : T[768,768], %m : T[768], %u : T[768,16], %v : T[16,768]",
     "T[64,768] = low_rank_matmul %x, %w, %m, %u, %v, _, _ {starts = dims[0, 32], trans_b = 1}"},
    {"f16", "%x : T[8192,768], %w : T[3072,768], %u : T[768,64], %v : T[64,3072]",
     "T[8192,3072] = low_rank_matmul %x, %w, _, %u, %v, _, _ {epilogue = [\"gelu acc\"], starts = "
     "dims[0, 4096], trans_b = 1}"},
    {"f32", "%x : T[8192,768], %w : T[3072,768], %u : T[768,32], %v : T[32,3072]",
     "T[8192,3072] = low_rank_matmul %x, %w, _, %u, %v, _, _ {epilogue = [\"gelu acc\"], starts = "
     "dims[0, 4096], trans_b = 1}"},
    {"f16", "%q : T[8,?s,2304], %m : T[8,1,1,?s]",
     "T[8,?s,768] = attention %q, %q, %q, %m {head_dim = 64, heads = 12, k_offset = 768, scale = "
     "0.125, v_offset = 1536}"},
    {"bf16", "%q : T[1,?s,1024], %m : bool[?s,?s]",
     "T[1,?s,1024] = attention %q, %q, %q, %m {head_dim = 256, heads = 4, scale = 0.06}"},
    {"f32", "%q : T[8,?s,1024]",
     "T[8,?s,1024] = attention %q, %q, %q {head_dim = 128, heads = 8, scale = 0.09}"},
    {"f16", "%x : T[64,256,56,56], %c : T[128]",
     "T[64,128,28,28] = conv %x, $w1, %c {epilogue = [\"relu acc\"], pads = [1, 1, 1, 1], strides "
     "= "
     "[2, 2]}",
     "$w1 \"w1\" : T[128,256,3,3]"},
    {"f32", "%x : T[1,512,7,7], %c : T[512], %r : T[1,512,7,7]",
     "T[1,512,7,7] = conv %x, $w2, %c, %r {epilogue = [\"add acc i3\", \"relu s0\"], pads = [1, 1, "
     "1, 1]}",
     "$w2 \"w2\" : T[512,512,3,3]"},
    {"f16", "%x : T[8,256,56,56], %c : T[64]",
     "T[8,64,56,56] = conv %x, $w3, %c {epilogue = [\"relu acc\"]}", "$w3 \"w3\" : T[64,256,1,1]"},
    {"f16", "%x : T[?b,144,56,56], %c : T[144]",
     "T[?b,144,28,28] = conv %x, $w4, %c {epilogue = [\"clip acc #0.0 #6.0\"], group = 144, pads = "
     "[1, 1, 1, 1], strides = [2, 2]}",
     "$w4 \"w4\" : T[144,1,3,3]"},
};

enum { NODES = sizeof nodes / sizeof nodes[0] };

/* Kernels as they are without and with the defaults of the compiler: f32 rounded to TF32, which
 * changes nodes of f32 only, and channels innermost, which changes convolutions with weights only.
 */
typedef enum form { EXACT, DEFAULT, FORMS } form;

static bool has_form(int node, form f)
{
    return f == EXACT || nodes[node][3] || strcmp(nodes[node][0], "f32") == 0;
}

static weft_module *make_module(form f, weft_diag *diag)
{
    weft_buf text = {0};
    weft_module *m = NULL;
    weft_buf_puts(&text, "wir 1 kernel\nsymbol ?b = [1, 64]\nsymbol ?s = [1, 512]\n");
    for (int i = 0; i < NODES; i++) {
        if (!nodes[i][3] || !has_form(i, f))
            continue;
        weft_buf_puts(&text, "weight ");
        put_typed(&text, nodes[i][3], nodes[i][0]);
        weft_buf_puts(&text, " = splat 0.5\n");
    }
    for (int i = 0; i < NODES; i++) {
        if (!has_form(i, f))
            continue;
        weft_buf_printf(&text, "graph @node%d (", i);
        put_typed(&text, nodes[i][1], nodes[i][0]);
        weft_buf_printf(&text,
                        ") {\n%s%s  %%y : ", strstr(nodes[i][1], "?b") ? "  symbol ?b \"b\"\n" : "",
                        strstr(nodes[i][1], "?s") ? "  symbol ?s \"s\"\n" : "");
        put_typed(&text, nodes[i][2], nodes[i][0]);
        weft_buf_puts(&text, "\n  return \"y\" %y\n}\n");
    }
    if (weft_module_parse(text.at, text.len, "nodes", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    weft_buf_finish(&text);
    const weft_pass *pass = weft_pass_find("channels-last");
    const weft_run_options options = {.verify = WEFT_VERIFY_EACH};
    if (f == DEFAULT && weft_passes_run(m, &pass, 1, &options, diag) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    return m;
}

static void check_kernel(const weft_bundle *b, const weft_bundle_kernel *k, uint32_t arch)
{
    const weft_bundle_resource *r = &k->resource[arch];
    const char *name = b->arch[arch];
    uint32_t capability = (uint32_t)strtoul(name + 3, NULL, 10);
    weft_diag *diag = weft_diag_create();
    weft_occupancy o;
    if (r->registers == 0 || r->registers > 255)
        fail_msg("%s %s: %u registers", name, k->name, r->registers);
    uint32_t shared = r->shared_bytes + k->shared_bytes;
    if (shared > SHARED_MAX)
        fail_msg("%s %s: %u bytes of shared memory", name, k->name, shared);
    if (r->local_bytes > LOCAL_MAX)
        fail_msg("%s %s: %u bytes of local memory", name, k->name, r->local_bytes);
    weft_thread_block block = {.threads = k->threads, .regs = r->registers, .static_bytes = shared};
    if (weft_occupancy_find(capability, &block, diag, &o) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    if (o.blocks < 1 || (capability >= FULL_CORES && o.warps < WARPS_MIN))
        fail_msg("%s %s: %u blocks, %u warps at once", name, k->name, o.blocks, o.warps);
    weft_diag_destroy(diag);
}

/* The images, and a line "ARCH KERNEL REGISTERS LOCAL SHARED THREADS" of each kernel. Images are
 * numbered from `first` on. */
static void write_images(const weft_bundle *b, uint32_t first, const char *folder)
{
    char list[600];
    snprintf(list, sizeof list, "%s/resources", folder);
    FILE *lines = fopen(list, "a");
    assert_non_null(lines);
    for (uint32_t i = 0; i < b->n_kernel; i++)
        for (uint32_t a = 0; a < b->n_arch; a++) {
            const weft_bundle_resource *r = &b->kernel[i].resource[a];
            fprintf(lines, "%s %s %u %u %u %u\n", b->arch[a], b->kernel[i].name, r->registers,
                    r->local_bytes, r->shared_bytes + b->kernel[i].shared_bytes,
                    b->kernel[i].threads);
        }
    assert_int_equal(fclose(lines), 0);
    for (uint32_t i = 0; i < b->n_image; i++) {
        const weft_bundle_image *image = &b->image[i];
        char path[600];
        snprintf(path, sizeof path, "%s/%u.%s", folder, first + image->module, image->arch);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(image->data, 1, image->bytes, f), image->bytes);
        assert_int_equal(fclose(f), 0);
    }
}

static bool skipped;

/* Returns the number of kernels. */
static uint32_t check_form(form f, uint32_t first)
{
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_module *m = make_module(f, diag);
    weft_bundle b = {0};
    const char *targets = getenv("WEFT_TARGETS");
    weft_codegen_cache cache = {.folder = WEFT_KERNEL_CACHE "/nvrtc", .limit_bytes = UINT64_MAX};
    weft_codegen_options options = {.target = targets ? targets : TARGETS,
                                    .n_thread = 2,
                                    .tf32 = f == DEFAULT,
                                    .cache = &cache};
    weft_err err = weft_codegen_make(m, weft_backend_find("cuda"), &options, arena, diag, &b);
    if (err == WEFT_ERR_NODEV) {
        print_message("%s\n", weft_diag_at(diag, 0)->text);
        skipped = true;
    }
    if (err != WEFT_ERR_OK && !skipped)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    assert_true(skipped || b.n_arch > 0);
    for (uint32_t i = 0; i < b.n_kernel; i++)
        for (uint32_t a = 0; a < b.n_arch; a++)
            check_kernel(&b, &b.kernel[i], a);
    if (getenv("WEFT_CUBINS"))
        write_images(&b, first, getenv("WEFT_CUBINS"));
    uint32_t n = b.n_kernel;
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return n;
}

static void test_cuda_targets__kernels_fit_every_architecture(void **state)
{
    (void)state;
    uint32_t n = check_form(EXACT, 0);
    if (skipped)
        skip();
    assert_in_range(n, NODES, 2 * NODES);
    assert_in_range(check_form(DEFAULT, n), NODES / 2, 2 * NODES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_targets__kernels_fit_every_architecture),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed == 0 && skipped ? 77 : failed;
}
