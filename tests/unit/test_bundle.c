/* ir/bundle.h: reading gives what was written, equal contents give equal bytes, and a damaged file
 * is refused or reads as the original. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "codegen/codegen.h"
#include "tests/support/rand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_BYTES = 64, TABLE_BYTES = 64, FLIPS = 10000, CUTS = 1000 };

/* Two siblings that share a weight, a model with every kind of attribute, one without weights. */
static const char two_models[] =
    "wir 1 plan\n"
    "symbol ?b = [1, 8]\n"
    "symbol ?n.b = [0, 64]\n"
    "symbol ?s = [2, inf]\n"
    "symbol ?d0 data\n"
    "weight $w : f32[4,4] = random 7\n"
    "weight $h1 \"head\" : f32[4,3] = random 8\n"
    "weight $h2 \"head\" : f32[4,3] = random 9\n"
    "weight $again : f32[4,4] = random 7\n"
    "weight $empty : i64[0] = dense []\n"
    "weight $big : i8[100] = random 3\n"
    "graph @base (%x : f32[?b,4]) {\n"
    "  symbol ?b \"batch size\"\n"
    "  %1 : f32[?b,4] = matmul %x, $w {alpha = -0.0, epilogue = [\"relu acc\"]} loc \"m\" "
    "\"MatMul_0\"\n"
    "  %2 : f32[?b,3] = matmul %1, $h1\n"
    "  return \"y\" %2, \"x\" %x, \"big\" $big\n"
    "  bucket {?b = 1} arena 64 {\n"
    "    %1 offset 0 bytes 16 live 0..1\n"
    "  }\n"
    "  bucket {?b = 8} arena 256 {\n"
    "    %1 offset 64 bytes 128 live 0..1\n"
    "  }\n"
    "}\n"
    "graph @sibling (%x : f32[?n.b,4]) {\n"
    "  symbol ?n.b \"b\"\n"
    "  %1 : f32[?n.b,4] = matmul %x, $again {trans_b = 0}\n"
    "  %2 : f32[?n.b,3] = matmul %1, $h2, _\n"
    "  return \"y\" %2\n"
    "}\n"
    "graph @other (%x : f32[?b,?s,2], %i : i64[4]) {\n"
    "  symbol ?b \"b\"\n"
    "  symbol ?s \"seq len\"\n"
    "  require equal [?s * 2, ?b] \"Reshape: elements\" \"Reshape_3\"\n"
    "  require fits [floordiv(?s, 3), ?b, ?b - 8] \"Add: dimension\"\n"
    "  %1 : f32[?b,?s * 2] = view %x {shape = dims[?b, ?s * 2]}\n"
    "  %2 : f32[?b,floordiv(?s * 2 + 1, 3)], _ = max_pool %x {kernel_shape = [3], strides = "
    "ints[]}\n"
    "  %3 : i64[1,?d0] = non_zero %i\n"
    "  %4 : bf16[1,?d0] = cast %3 {to = bf16}\n"
    "  %5 : f32[?b,2] = slice %1 {starts = dims[-2], ends = dims[max(?s, 3)], axes = dims[1]}\n"
    "  %6 : f32[2] = resize %5, _, $empty {scales = [1.0, 2.5e-10], mode = \"linear\"}\n"
    "  return \"y\" %5, \"z\" %4, \"u\" %2, \"v\" %6\n"
    "}\n"
    "graph @same (%x : f32[]) {\n"
    "  return \"same\" %x\n"
    "}\n";

typedef struct fixture {
    weft_diag *diag;
    weft_arena *arena;
    weft_module *m;
    weft_bundle bundle;
    char path[64], other[64];
} fixture;

static fixture f;

static void succeed(weft_err err)
{
    if (err == WEFT_ERR_OK)
        return;
    char text[300] = "";
    if (weft_diag_count(f.diag))
        weft_diag_format(weft_diag_at(f.diag, 0), text, sizeof text);
    fail_msg("%s: %s", weft_err_name(err), text);
}

static int set_up(void **state)
{
    (void)state;
    static const weft_profile_point point[] = {
        {.device = "cpu",
         .slice = "1core",
         .share = 0.5,
         .batch = 4,
         .procs = 1,
         .throughput_per_s = 10.5,
         .cost = {100, 80, 130, 0.25, 1 << 20, 2.5, 0.125, 0.3, "analytic"},
         .use = {{[2] = {[0] = 55}, [7] = {[3] = 200}}}},
        {.device = "h100",
         .share = 1,
         .batch = 8,
         .procs = 2,
         .cost = {1e-3, 0, 0, 1, UINT64_MAX, 0, 0, 0, "measured"}}};
    f.diag = weft_diag_create();
    f.arena = weft_arena_create(0);
    snprintf(f.path, sizeof f.path, "bundle-%ld.weft", (long)getpid());
    snprintf(f.other, sizeof f.other, "bundle-%ld-b.weft", (long)getpid());
    succeed(weft_module_parse(two_models, strlen(two_models), "test.wir", NULL, f.diag, &f.m));
    weft_codegen_model model[4] = {
        {.slo_us = 1e5, .rate_per_s = 12.5, .profile = {.point = point, .n = 2, .host_us = 250}}};
    succeed(weft_codegen_bundle(f.m, weft_backend_find("null"), model, "{\"gpus\": []}", f.arena,
                                f.diag, &f.bundle));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove(f.path);
    remove(f.other);
    weft_module_destroy(f.m);
    weft_arena_destroy(f.arena);
    weft_diag_destroy(f.diag);
    memset(&f, 0, sizeof f);
    return 0;
}

static uint8_t *load(const char *path, size_t *len)
{
    char *at = NULL;
    succeed(weft_file_read(path, UINT64_MAX, f.diag, &at, len));
    return (uint8_t *)at;
}

static void store(const char *path, const uint8_t *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static bool weights_are_sound(const weft_bundle *b)
{
    for (uint32_t w = 1; w <= b->n_weight; w++)
        if (weft_bundle_check_weight(b, w, NULL) != WEFT_ERR_OK)
            return false;
    return true;
}

/* -- Round trip ------------------------------------------------------------------------------- */

static void test_bundle__reads_what_was_written(void **state)
{
    (void)state;
    weft_bundle *b = NULL;
    succeed(weft_bundle_write(&f.bundle, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    assert_string_equal(b->target, "null");
    assert_string_equal(b->plan_json, "{\"gpus\": []}");
    assert_int_equal(b->n_program, 4);
    assert_int_equal(b->n_weight, 5); /* w and again are one */
    assert_true(weights_are_sound(b));
    for (uint32_t w = 0; w < b->n_weight; w++) {
        assert_int_equal((uintptr_t)b->weight[w].data % 64, 0);
        assert_string_equal(b->weight[w].name, f.bundle.weight[w].name);
        assert_int_equal(b->weight[w].bytes, f.bundle.weight[w].bytes);
        assert_memory_equal(b->weight[w].data, f.bundle.weight[w].data, b->weight[w].bytes);
    }
    const weft_bundle_program *p = weft_bundle_find(b, "base");
    assert_non_null(p);
    assert_null(weft_bundle_find(b, "bas"));
    assert_string_equal(p->symbol[0].name, "batch size");
    assert_int_equal(p->symbol[0].hi, 8);
    assert_true(p->slo_us == 1e5 && p->rate_per_s == 12.5 && p->profile.host_us == 250);
    assert_int_equal(p->profile.n, 2);
    assert_memory_equal(p->profile.point, f.bundle.program[0].profile.point,
                        2 * sizeof *p->profile.point);
    assert_string_equal(p->launch[0].item, "MatMul_0");
    assert_true(1 / weft_attrs_float(p->launch[0].attrs, WEFT_ATTR_ALPHA, 1) < 0); /* -0 */
    assert_int_equal(p->n_bucket, 2);
    assert_int_equal(p->bucket[1].symbol[0], 8);
    assert_int_equal(p->bucket[1].buffer[0].offset, 64);
    assert_int_equal(p->output[2].value, p->n_value);
    assert_int_equal(p->value[p->n_value - 1].weight, 3);
    weft_bundle_close(b);
}

static void test_bundle__writing_what_was_read_gives_the_same_bytes(void **state)
{
    (void)state;
    weft_bundle *b = NULL;
    size_t n = 0, n_other = 0;
    succeed(weft_bundle_write(&f.bundle, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    succeed(weft_bundle_write(b, f.other, f.diag));
    uint8_t *at = load(f.path, &n), *other = load(f.other, &n_other);
    assert_int_equal(n, n_other);
    assert_memory_equal(at, other, n);
    /* Over itself: the mapped file stays until it is closed. */
    succeed(weft_bundle_write(b, f.path, f.diag));
    assert_true(weights_are_sound(b));
    free(other);
    other = load(f.path, &n_other);
    assert_memory_equal(at, other, n);
    weft_bundle_close(b);
    free(at);
    free(other);
}

static void test_bundle__takes_a_bundle_without_anything(void **state)
{
    (void)state;
    weft_bundle *b = NULL, empty = {.tool = "t", .target = "cpu"};
    succeed(weft_bundle_write(&empty, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    assert_int_equal(b->n_program, 0);
    assert_int_equal(b->n_weight, 0);
    assert_null(b->plan_json);
    weft_bundle_close(b);
}

/* -- Damage ----------------------------------------------------------------------------------- */

/* true if the file is refused or has its original contents. */
static bool is_refused_or_equal(const char *path, const uint8_t *good, size_t n)
{
    weft_bundle *b = NULL;
    bool ok = true;
    weft_err err = weft_bundle_open(path, f.diag, &b);
    if (err != WEFT_ERR_OK) {
        ok = err != WEFT_ERR_BUG && weft_diag_count(f.diag) > 0;
    } else if (weights_are_sound(b)) {
        size_t len = 0;
        succeed(weft_bundle_write(b, f.other, f.diag));
        uint8_t *at = load(f.other, &len);
        ok = len == n && memcmp(at, good, n) == 0;
        free(at);
    }
    if (err == WEFT_ERR_OK)
        weft_bundle_close(b);
    weft_diag_clear(f.diag);
    return ok;
}

static void test_bundle__a_flipped_byte_is_refused(void **state)
{
    (void)state;
    size_t n = 0;
    uint64_t seed = 1;
    succeed(weft_bundle_write(&f.bundle, f.path, f.diag));
    uint8_t *good = load(f.path, &n), *bad = malloc(n);
    assert_non_null(bad);
    FILE *file = fopen(f.path, "r+b");
    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    for (int i = 0; i < FLIPS; i++) {
        size_t at = i < (int)n ? (size_t)i : rand_next(&seed) % n;
        uint8_t byte = good[at] ^ (uint8_t)(i < (int)n ? 1u << i % 8 : 1 + rand_next(&seed) % 255);
        fseek(file, (long)at, SEEK_SET);
        fputc(byte, file);
        if (!is_refused_or_equal(f.path, good, n))
            fail_msg("byte %zu as 0x%02x means something else", at, byte);
        fseek(file, (long)at, SEEK_SET);
        fputc(good[at], file);
    }
    fclose(file);
    free(good);
    free(bad);
}

static void test_bundle__a_cut_file_is_refused(void **state)
{
    (void)state;
    size_t n = 0;
    uint64_t seed = 2;
    weft_bundle *b = NULL;
    succeed(weft_bundle_write(&f.bundle, f.path, f.diag));
    uint8_t *good = load(f.path, &n);
    for (int i = 0; i < CUTS; i++) {
        size_t len = i < 200 ? (size_t)i : rand_next(&seed) % n;
        if (i >= 900)
            len = n - 1 - (size_t)(i - 900);
        store(f.path, good, len);
        if (weft_bundle_open(f.path, f.diag, &b) == WEFT_ERR_OK)
            fail_msg("%zu of %zu bytes are taken", len, n);
        assert_true(weft_diag_count(f.diag) > 0);
        weft_diag_clear(f.diag);
    }
    free(good);
}

static void test_bundle__bytes_behind_the_end_are_refused(void **state)
{
    (void)state;
    size_t n = 0;
    weft_bundle *b = NULL;
    succeed(weft_bundle_write(&f.bundle, f.path, f.diag));
    uint8_t *good = load(f.path, &n), *more = calloc(1, n + 64);
    assert_non_null(more);
    memcpy(more, good, n);
    store(f.path, more, n + 64);
    assert_int_equal(weft_bundle_open(f.path, f.diag, &b), WEFT_ERR_INPUT);
    free(good);
    free(more);
}

/* -- Wrong contents with correct checksums ---------------------------------------------------- */

/* Writes a bundle with one error, which the reader must name. */
static void refuse(const weft_bundle *wrong, const char *text)
{
    weft_bundle *b = NULL;
    succeed(weft_bundle_write(wrong, f.path, f.diag));
    weft_err err = weft_bundle_open(f.path, f.diag, &b);
    if (err == WEFT_ERR_OK)
        fail_msg("taken; should have said: %s", text);
    assert_true(err == WEFT_ERR_INPUT || err == WEFT_ERR_UNSUP);
    if (!strstr(weft_diag_at(f.diag, 0)->text, text))
        fail_msg("said: %s; not: %s", weft_diag_at(f.diag, 0)->text, text);
    weft_diag_clear(f.diag);
}

/* A bundle of one program, "base", that can be changed. */
typedef struct forged {
    weft_bundle b;
    weft_bundle_program p;
    weft_bundle_value value[8];
    weft_bundle_launch launch[2];
    weft_bundle_port input[1], output[3];
    weft_bundle_bucket bucket[2];
    weft_bundle_buffer buffer[1];
    weft_bundle_symbol symbol[1];
    weft_bundle_weight weight[5];
    int64_t size[1];
} forged;

static forged *make_forged(void)
{
    forged *l = weft_arena_alloc(f.arena, sizeof *l);
    const weft_bundle_program *p = &f.bundle.program[0];
    l->b = f.bundle;
    l->p = *p;
    memcpy(l->value, p->value, p->n_value * sizeof *p->value);
    memcpy(l->launch, p->launch, sizeof l->launch);
    memcpy(l->input, p->input, sizeof l->input);
    memcpy(l->output, p->output, sizeof l->output);
    memcpy(l->bucket, p->bucket, sizeof l->bucket);
    memcpy(l->buffer, p->bucket[1].buffer, sizeof l->buffer);
    memcpy(l->symbol, p->symbol, sizeof l->symbol);
    memcpy(l->weight, f.bundle.weight, sizeof l->weight);
    for (int i = 0; i < 3; i++)
        l->weight[i].n_users = 1;
    l->size[0] = 8;
    l->bucket[1].symbol = l->size;
    l->bucket[1].buffer = l->buffer;
    l->p.value = l->value;
    l->p.launch = l->launch;
    l->p.input = l->input;
    l->p.output = l->output;
    l->p.bucket = l->bucket;
    l->p.symbol = l->symbol;
    l->b.program = &l->p;
    l->b.n_program = 1;
    l->b.weight = l->weight;
    l->b.n_weight = 3;
    return l;
}

static void test_bundle__the_truth_of_the_lies_is_taken(void **state)
{
    (void)state;
    weft_bundle *b = NULL;
    succeed(weft_bundle_write(&make_forged()->b, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    weft_bundle_close(b);
}

/* A program may be a version of a model that requests call by another name. */
static void test_bundle__versions_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *serves, *version;
    } wrong[] = {{"a/b", "1"}, {"m", "01"}, {"m", "x"}, {"m", "1234567890123456789"}};
    weft_bundle *b = NULL;
    forged *l = make_forged();
    succeed(weft_bundle_write(&l->b, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    assert_null(b->program[0].version);
    assert_string_equal(weft_bundle_served(&b->program[0]), l->p.name);
    weft_bundle_close(b);
    l->p.serves = "resnet";
    l->p.version = "12";
    succeed(weft_bundle_write(&l->b, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    assert_string_equal(b->program[0].version, "12");
    assert_string_equal(weft_bundle_served(&b->program[0]), "resnet");
    weft_bundle_close(b);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        l->p.serves = wrong[i].serves;
        l->p.version = wrong[i].version;
        refuse(&l->b, "is to be served under another name or version");
    }
}

static void test_bundle__wrong_indices_are_refused(void **state)
{
    (void)state;
    forged *l = make_forged();
    uint32_t later[] = {5, 2}, twice[] = {1}, far[] = {99, 2}, none[] = {0, 2};
    l->launch[0].in = later;
    refuse(&l->b, "operand 0 is value 5, which is not defined");
    l = make_forged();
    l->launch[0].in = far;
    refuse(&l->b, "operand 0 is value 99");
    l = make_forged();
    l->launch[0].in = none;
    refuse(&l->b, "operand 0 is value 0");
    l = make_forged();
    l->launch[0].out = twice;
    refuse(&l->b, "result 0 is value 1, which is defined elsewhere");
    l = make_forged();
    l->output[0].value = 100;
    refuse(&l->b, "output \"y\" is value 100");
    l = make_forged();
    l->input[0].value = 2;
    refuse(&l->b, "is defined elsewhere");
    l = make_forged();
    l->value[1].weight = 44;
    refuse(&l->b, "weight 44 of 3");
    l = make_forged();
    l->p.n_launch = 1;
    l->p.n_output = 1;
    l->output[0].value = 1;
    l->p.n_bucket = 0;
    refuse(&l->b, "is not defined");
    l = make_forged();
    l->p.batch_symbol = 1;
    refuse(&l->b, "is not dimension 0");
}

static void test_bundle__wrong_types_are_refused(void **state)
{
    (void)state;
    forged *l = make_forged();
    l->value[1].type.dim[0] = 5;
    refuse(&l->b, "does not have the type of weight");
    l = make_forged();
    l->value[0].type.layout = WEFT_LAYOUT_NHWC;
    refuse(&l->b, "does not have the plain layout");
    l = make_forged();
    l->value[0].type.dim[1] = -3;
    refuse(&l->b, "has a wrong dimension");
    l = make_forged();
    l->symbol[0].lo = 9;
    refuse(&l->b, "symbol \"batch size\"");
    l = make_forged();
    l->weight[0].n_users = 7;
    refuse(&l->b, "says it has 7 users");
    l = make_forged();
    l->p.slo_us = -1;
    refuse(&l->b, "SLO");
    l = make_forged();
    l->p.profile.host_us = NAN;
    refuse(&l->b, "host cost");
}

static void test_bundle__wrong_requirements_are_refused(void **state)
{
    (void)state;
    forged *l = make_forged();
    weft_bundle_require r = {.kind = WEFT_REQUIRE_FITS, .a = 4, .b = 5, .guard = 1, .what = "sum"};
    weft_bundle *b = NULL;
    l->p.require = &r;
    l->p.n_require = 1;
    succeed(weft_bundle_write(&l->b, f.path, f.diag));
    succeed(weft_bundle_open(f.path, f.diag, &b));
    weft_bundle_close(b);
    r.kind = WEFT_REQUIRE_COUNT;
    refuse(&l->b, "requirement 0 is wrong");
    r.kind = WEFT_REQUIRE_EQUAL;
    r.b = weft_dim_fresh(l->p.dims);
    refuse(&l->b, "requirement 0 is wrong");
}

static void test_bundle__requirements_are_checked(void **state)
{
    (void)state;
    static float x[64];
    const weft_bundle_program *p = &f.bundle.program[2];
    int64_t value[2];
    /* 2 s == b, and b is s / 3 or 1 */
    weft_tensor in[] = {{.dtype = WEFT_DTYPE_F32, .rank = 3, .dim = {4, 2, 2}, .data = x},
                        {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {4}, .data = x}};
    assert_int_equal(weft_bundle_bind(p, in, 2, value, f.diag), WEFT_ERR_INPUT);
    assert_string_equal(weft_diag_at(f.diag, 0)->text,
                        "Add: dimension: 0 and 4 do not broadcast where b = 4, seq len = 2");
    weft_diag_clear(f.diag);
    in[0].dim[0] = 2;
    assert_int_equal(weft_bundle_bind(p, in, 2, value, f.diag), WEFT_ERR_INPUT);
    assert_string_equal(weft_diag_at(f.diag, 0)->text,
                        "Reshape: elements: 4 and 2 differ where b = 2, seq len = 2");
    assert_string_equal(weft_diag_at(f.diag, 0)->item, "Reshape_3");
    weft_diag_clear(f.diag);
    in[0].dim[0] = 8; /* the guard of the second one is 0 */
    in[0].dim[1] = 4;
    assert_int_equal(weft_bundle_bind(p, in, 2, value, f.diag), WEFT_ERR_OK);
}

static void test_bundle__wrong_attributes_are_refused(void **state)
{
    (void)state;
    forged *l = make_forged();
    static const weft_attr pads = {.key = WEFT_ATTR_PADS, .kind = WEFT_KIND_INT, .u = {.i = 1}};
    static const weft_attr alpha = {.key = WEFT_ATTR_ALPHA, .kind = WEFT_KIND_STR, .u = {.s = ""}};
    weft_attr twice[] = {l->launch[0].attrs.at[0], l->launch[0].attrs.at[0]};
    l->launch[0].attrs = (weft_attrs){&pads, 1};
    refuse(&l->b, "pads");
    l->launch[0].attrs = (weft_attrs){&alpha, 1};
    refuse(&l->b, "alpha");
    l->launch[0].attrs = (weft_attrs){twice, 2};
    refuse(&l->b, "given twice");
    l = make_forged();
    l->launch[0].op = WEFT_OP_RELU;
    refuse(&l->b, "relu: 2 operands");
}

static void test_bundle__wrong_buffers_are_refused(void **state)
{
    (void)state;
    forged *l = make_forged();
    l->buffer[0].offset = 192;
    refuse(&l->b, "are outside the arena of 256");
    l->buffer[0].offset = UINT64_MAX;
    refuse(&l->b, "are outside the arena of 256");
    l = make_forged();
    l->buffer[0].bytes = 127;
    refuse(&l->b, "has 127 bytes");
    l = make_forged();
    l->buffer[0].value = 1;
    refuse(&l->b, "wrong buffer for value 1");
    l = make_forged();
    l->size[0] = 9;
    refuse(&l->b, "symbol \"batch size\" is 9");
}

static void test_bundle__names_are_unique(void **state)
{
    (void)state;
    forged *l = make_forged();
    l->output[1].name = "y";
    refuse(&l->b, "has no name of its own");
    weft_bundle_program *two = weft_arena_array(f.arena, 2, sizeof *two);
    l = make_forged();
    two[0] = two[1] = l->p;
    l->b.program = two;
    l->b.n_program = 2;
    refuse(&l->b, "model 1 has no name of its own");
}

static void test_bundle__other_files_are_refused(void **state)
{
    (void)state;
    weft_bundle *b = NULL;
    assert_int_equal(weft_bundle_open("no such file", f.diag, &b), WEFT_ERR_IO);
    store(f.path, (const uint8_t *)"", 0);
    assert_int_equal(weft_bundle_open(f.path, f.diag, &b), WEFT_ERR_INPUT);
    store(f.path, (const uint8_t *)two_models, sizeof two_models);
    assert_int_equal(weft_bundle_open(f.path, f.diag, &b), WEFT_ERR_INPUT);
    uint8_t version[HEADER_BYTES + TABLE_BYTES] = "WEFT\2";
    store(f.path, version, sizeof version);
    assert_int_equal(weft_bundle_open(f.path, f.diag, &b), WEFT_ERR_UNSUP);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_bundle__##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_what_was_written),
        TEST(writing_what_was_read_gives_the_same_bytes),
        TEST(takes_a_bundle_without_anything),
        TEST(a_flipped_byte_is_refused),
        TEST(a_cut_file_is_refused),
        TEST(bytes_behind_the_end_are_refused),
        TEST(the_truth_of_the_lies_is_taken),
        TEST(versions_are_read),
        TEST(wrong_indices_are_refused),
        TEST(wrong_types_are_refused),
        TEST(wrong_attributes_are_refused),
        TEST(wrong_requirements_are_refused),
        TEST(requirements_are_checked),
        TEST(wrong_buffers_are_refused),
        TEST(names_are_unique),
        TEST(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
