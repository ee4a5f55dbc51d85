/* Tensors of ONNX files: every field that holds elements, and external data that tries to escape
 * the model's folder. */
#include "frontend/frontend.h"
#include "tests/support/onnx_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* -- One weight in a model -------------------------------------------------------------------- */

typedef struct subject {
    weft_module *m;
    weft_err err;
    char text[400];
    weft_weight w;
} subject;

static subject import_weight_with(weft_buf *tensor, const char *dir,
                                  const weft_import_options *options, uint8_t **out_bytes)
{
    weft_buf graph = {0}, model = {0};
    onnx_put_msg(&graph, ONNX_INITIALISER, tensor);
    onnx_put_node(&graph, "Identity", "w", "y", NULL);
    onnx_put_value(&graph, ONNX_OUTPUT, "y", 0, NULL);
    onnx_put_model(&model, &graph, 17);
    weft_diag *diag = weft_diag_create();
    weft_graph *g = NULL;
    subject s = {.m = weft_module_create(0)};
    uint8_t *bytes = malloc(model.len);
    memcpy(bytes, model.at, model.len);
    s.err = weft_import_onnx_bytes(s.m, bytes, model.len, dir, "t.onnx", options, diag, &g);
    if (weft_diag_count(diag))
        weft_diag_format(weft_diag_at(diag, 0), s.text, sizeof s.text);
    weft_diag_destroy(diag);
    weft_buf_finish(&model);
    if (s.err == WEFT_ERR_OK)
        s.w = weft_val_weight(s.m, weft_node_in(s.m, weft_graph_first(g), 0));
    *out_bytes = bytes;
    return s;
}

static subject import_weight(weft_buf *tensor, const char *dir, uint8_t **out_bytes)
{
    return import_weight_with(tensor, dir, NULL, out_bytes);
}

static void release(subject *s, uint8_t *bytes)
{
    weft_module_destroy(s->m);
    free(bytes);
}

static void begin(weft_buf *t, int elem_type, const char *dims)
{
    onnx_put_dims(t, dims);
    onnx_put_int(t, 2, elem_type);
    onnx_put_str(t, 8, "w");
}

static void check_fails(weft_buf *tensor, weft_err err, const char *part)
{
    uint8_t *bytes;
    subject s = import_weight(tensor, NULL, &bytes);
    if (!strstr(s.text, part))
        fail_msg("\"%s\" does not hold \"%s\"", s.text, part);
    assert_int_equal(s.err, err);
    release(&s, bytes);
}

static void check_bytes(weft_buf *tensor, weft_dtype dtype, const void *wanted, size_t len)
{
    uint8_t *bytes;
    subject s = import_weight(tensor, NULL, &bytes);
    if (s.err != WEFT_ERR_OK)
        fail_msg("%s", s.text);
    const weft_weight_info *info = weft_weight_get(s.m, s.w);
    assert_int_equal(weft_type_get(s.m, info->type)->dtype, dtype);
    assert_int_equal(info->bytes, len);
    assert_memory_equal(info->data, wanted, len);
    release(&s, bytes);
}

/* -- Elements inside the file ----------------------------------------------------------------- */

static void test_onnx_tensor__raw_data_stays_in_place(void **state)
{
    (void)state;
    enum { N = 40000 }; /* over what is copied to align it */
    float *x = calloc(N, sizeof *x);
    x[7] = 1.5f;
    weft_buf t = {0};
    begin(&t, ONNX_FLOAT, "40000");
    onnx_put_bytes(&t, 9, x, N * sizeof *x);
    uint8_t *bytes;
    subject s = import_weight(&t, NULL, &bytes);
    assert_int_equal(s.err, WEFT_ERR_OK);
    const weft_weight_info *info = weft_weight_get(s.m, s.w);
    assert_ptr_equal(info->data, bytes + info->offset);
    assert_memory_equal(info->data, x, N * sizeof *x);
    assert_string_equal(info->name, "w");
    free(x);
    release(&s, bytes);
}

static void test_onnx_tensor__small_weights_are_aligned(void **state)
{
    (void)state;
    for (int pad = 0; pad < 9; pad++) {
        weft_buf t = {0};
        begin(&t, ONNX_INT64, "2");
        onnx_put_bytes(&t, 12, "ninebytes", (size_t)pad); /* doc_string shifts what follows */
        int64_t x[2] = {-1, 1};
        onnx_put_bytes(&t, 9, x, sizeof x);
        uint8_t *bytes;
        subject s = import_weight(&t, NULL, &bytes);
        assert_int_equal(s.err, WEFT_ERR_OK);
        assert_int_equal((uintptr_t)weft_weight_get(s.m, s.w)->data % 8, 0);
        release(&s, bytes);
    }
}

static void test_onnx_tensor__float_data(void **state)
{
    (void)state;
    float x[3] = {1, -2, 0.5f};
    weft_buf t = {0};
    begin(&t, ONNX_FLOAT, "3");
    onnx_put_bytes(&t, 4, x, sizeof x);
    check_bytes(&t, WEFT_DTYPE_F32, x, sizeof x);
    /* One by one, and mixed with a packed run. */
    begin(&t, ONNX_FLOAT, "3");
    onnx_put_float(&t, 4, 1);
    onnx_put_bytes(&t, 4, x + 1, 8);
    check_bytes(&t, WEFT_DTYPE_F32, x, sizeof x);
}

static void test_onnx_tensor__varint_data(void **state)
{
    (void)state;
    weft_buf t = {0};
    int64_t big[2] = {INT64_MIN, 300};
    begin(&t, ONNX_INT64, "2");
    onnx_put_int(&t, 7, big[0]);
    onnx_put_int(&t, 7, big[1]);
    check_bytes(&t, WEFT_DTYPE_I64, big, sizeof big);
    int32_t ints[2] = {-1, 70000};
    begin(&t, ONNX_INT32, "2");
    onnx_put_int(&t, 5, ints[0]);
    onnx_put_int(&t, 5, ints[1]);
    check_bytes(&t, WEFT_DTYPE_I32, ints, sizeof ints);
    int8_t bytes[2] = {-3, 100};
    begin(&t, 3, "2");
    onnx_put_int(&t, 5, bytes[0]);
    onnx_put_int(&t, 5, bytes[1]);
    check_bytes(&t, WEFT_DTYPE_I8, bytes, sizeof bytes);
    uint32_t wide[1] = {4000000000u};
    begin(&t, 12, "1");
    onnx_put_int(&t, 11, wide[0]);
    check_bytes(&t, WEFT_DTYPE_U32, wide, sizeof wide);
    uint16_t half[2] = {0x3c00, 0xc000};
    begin(&t, ONNX_FLOAT16, "2");
    onnx_put_bytes(&t, 5, "\x80\x78\x80\x80\x03", 5);
    check_bytes(&t, WEFT_DTYPE_F16, half, sizeof half);
    uint16_t brain[1] = {0x3f80};
    begin(&t, ONNX_BFLOAT16, "1");
    onnx_put_int(&t, 5, 0x3f80);
    check_bytes(&t, WEFT_DTYPE_BF16, brain, sizeof brain);
}

static void test_onnx_tensor__bools_are_zero_or_one(void **state)
{
    (void)state;
    weft_buf t = {0};
    begin(&t, ONNX_BOOL, "3");
    onnx_put_bytes(&t, 9, "\x00\x02\xff", 3);
    check_bytes(&t, WEFT_DTYPE_BOOL, "\x00\x01\x01", 3);
    begin(&t, ONNX_BOOL, "2");
    onnx_put_int(&t, 5, 256);
    onnx_put_int(&t, 5, 0);
    check_bytes(&t, WEFT_DTYPE_BOOL, "\x01\x00", 2);
}

static void test_onnx_tensor__no_elements(void **state)
{
    (void)state;
    weft_buf t = {0};
    begin(&t, ONNX_FLOAT, "0,3");
    check_bytes(&t, WEFT_DTYPE_F32, "", 0);
    begin(&t, ONNX_FLOAT, "3");
    check_fails(&t, WEFT_ERR_INPUT, "no elements");
}

/* #8109, #7822: lengths that do not fit, products that overflow. */
static void test_onnx_tensor__lengths_are_exact(void **state)
{
    (void)state;
    weft_buf t = {0};
    begin(&t, ONNX_FLOAT, "3");
    onnx_put_bytes(&t, 9, "0123456789abcd", 14);
    check_fails(&t, WEFT_ERR_INPUT, "14 bytes, the tensor has 12");
    begin(&t, ONNX_FLOAT, "3");
    onnx_put_bytes(&t, 4, "0123456789", 10);
    check_fails(&t, WEFT_ERR_INPUT, "10 bytes");
    begin(&t, ONNX_INT64, "3");
    onnx_put_int(&t, 7, 1);
    check_fails(&t, WEFT_ERR_INPUT, "1 bytes of varints, the tensor has 3 elements");
    begin(&t, ONNX_INT64, "1");
    onnx_put_bytes(&t, 7, "\x01\x01", 2);
    check_fails(&t, WEFT_ERR_INPUT, "not 1 varints");
    begin(&t, ONNX_INT64, "1000000000000");
    onnx_put_int(&t, 7, 1);
    check_fails(&t, WEFT_ERR_INPUT, "1000000000000 elements");
    begin(&t, ONNX_FLOAT, "4294967296,4294967296,4294967296");
    onnx_put_bytes(&t, 9, "", 0);
    check_fails(&t, WEFT_ERR_INPUT, "too many elements");
    begin(&t, ONNX_FLOAT, "-1");
    onnx_put_bytes(&t, 9, "", 0);
    check_fails(&t, WEFT_ERR_INPUT, "dimension 0 is -1");
    begin(&t, ONNX_FLOAT, "1,1,1,1,1,1,1,1,1");
    onnx_put_bytes(&t, 9, "0123", 4);
    check_fails(&t, WEFT_ERR_UNSUP, "rank 9");
}

static void test_onnx_tensor__one_field_holds_elements(void **state)
{
    (void)state;
    weft_buf t = {0};
    begin(&t, ONNX_FLOAT, "1");
    onnx_put_float(&t, 4, 1);
    onnx_put_bytes(&t, 9, "0123", 4);
    check_fails(&t, WEFT_ERR_INPUT, "two fields");
    begin(&t, ONNX_FLOAT, "1");
    onnx_put_int(&t, 7, 1);
    check_fails(&t, WEFT_ERR_INPUT, "the wrong field");
    begin(&t, ONNX_FLOAT, "1");
    onnx_put_bytes(&t, 9, "0123", 4);
    onnx_put_bytes(&t, 9, "0123", 4);
    check_fails(&t, WEFT_ERR_INPUT, "repeated");
    begin(&t, ONNX_FLOAT, "1");
    onnx_put_int(&t, 4, 1);
    check_fails(&t, WEFT_ERR_INPUT, "wire type");
    begin(&t, ONNX_FLOAT, "1");
    onnx_put_str(&t, 3, "");
    check_fails(&t, WEFT_ERR_UNSUP, "segments");
}

static void test_onnx_tensor__types_are_refused_by_name(void **state)
{
    (void)state;
    weft_buf t = {0};
    begin(&t, ONNX_STRING, "1");
    onnx_put_str(&t, 6, "text");
    check_fails(&t, WEFT_ERR_UNSUP, "tensor of strings");
    begin(&t, 14, "1");
    onnx_put_bytes(&t, 9, "01234567", 8);
    check_fails(&t, WEFT_ERR_UNSUP, "(complex64)");
    begin(&t, 29, "1");
    check_fails(&t, WEFT_ERR_UNSUP, "29");
    begin(&t, 1000, "1");
    check_fails(&t, WEFT_ERR_UNSUP, "1000");
    begin(&t, 0, "1");
    check_fails(&t, WEFT_ERR_INPUT, "data type 0");
}

/* Types of fewer than 8 bits are packed in files; in memory an element takes a byte. */
static void test_onnx_tensor__narrow_types(void **state)
{
    (void)state;
    enum { UINT4 = 21, INT4 = 22, F4 = 23, UINT2 = 25, F6 = 27, F8 = 17 };
    weft_buf t = {0};
    begin(&t, INT4, "3");
    onnx_put_bytes(&t, 9, "\x81\x0f", 2);
    check_bytes(&t, WEFT_DTYPE_I4, (int8_t[]){1, -8, -1}, 3);
    begin(&t, UINT4, "3");
    onnx_put_int(&t, 5, 0x21);
    onnx_put_int(&t, 5, 0x0f);
    check_bytes(&t, WEFT_DTYPE_U4, (uint8_t[]){1, 2, 15}, 3);
    begin(&t, UINT2, "5");
    onnx_put_bytes(&t, 9, "\xe4\x02", 2);
    check_bytes(&t, WEFT_DTYPE_U2, (uint8_t[]){0, 1, 2, 3, 2}, 5);
    begin(&t, F6, "4");
    onnx_put_bytes(&t, 9, "\x41\x30\x10", 3);
    check_bytes(&t, WEFT_DTYPE_F6E2M3, (uint8_t[]){1, 1, 3, 4}, 4);
    begin(&t, F6, "2"); /* one in an entry */
    onnx_put_int(&t, 5, 3);
    onnx_put_int(&t, 5, 33);
    check_bytes(&t, WEFT_DTYPE_F6E2M3, (uint8_t[]){3, 33}, 2);
    begin(&t, F8, "2");
    onnx_put_bytes(&t, 9, "\x7e\x80", 2);
    check_bytes(&t, WEFT_DTYPE_F8E4M3FN, (uint8_t[]){0x7e, 0x80}, 2);
    begin(&t, F4, "4"); /* unpacked in raw_data */
    onnx_put_bytes(&t, 9, "\x01\x01\x01\x01", 4);
    check_fails(&t, WEFT_ERR_INPUT, "4 bytes, the tensor has 2");
    begin(&t, INT4, "4000000000");
    onnx_put_bytes(&t, 9, "\x01", 1);
    check_fails(&t, WEFT_ERR_INPUT, "1 bytes, the tensor has 2000000000");
    begin(&t, INT4, "4");
    onnx_put_int(&t, 5, 1);
    check_fails(&t, WEFT_ERR_INPUT, "1 bytes of varints");
    begin(&t, INT4, "0");
    check_bytes(&t, WEFT_DTYPE_I4, "", 0);
}

/* -- External data ---------------------------------------------------------------------------- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/weft-onnx-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    char path[128];
    snprintf(path, sizeof path, "%s/m", folder);
    mkdir(path, 0700);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"m/data.bin", "m/link.bin", "m/hard.bin", "m/sub/data.bin",
                                        "m/sub",      "m/dirlink",  "m/w.pb",     "outside.bin",
                                        "m",          "."};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (unlink(path) != 0)
            rmdir(path);
    }
    return rmdir(folder);
}

static void write_file(const char *name, const void *bytes, size_t len)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
}

static void put_entry(weft_buf *t, const char *key, const char *value, size_t len)
{
    weft_buf e = {0};
    onnx_put_str(&e, 1, key);
    onnx_put_bytes(&e, 2, value, len);
    onnx_put_msg(t, 13, &e);
}

static void put_external(weft_buf *t, const char *location, const char *offset, const char *length)
{
    begin(t, ONNX_FLOAT, "2");
    onnx_put_int(t, 14, 1);
    put_entry(t, "location", location, strlen(location));
    if (offset)
        put_entry(t, "offset", offset, strlen(offset));
    if (length)
        put_entry(t, "length", length, strlen(length));
}

static weft_err import_external(weft_buf *t, const char *part)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/m", folder);
    uint8_t *bytes;
    subject s = import_weight(t, dir, &bytes);
    if (part && !strstr(s.text, part))
        fail_msg("\"%s\" does not hold \"%s\"", s.text, part);
    if (s.err == WEFT_ERR_OK) {
        float x[2];
        memcpy(x, weft_weight_get(s.m, s.w)->data, sizeof x);
        assert_true(x[0] == 1.0f && x[1] == 2.0f);
    }
    release(&s, bytes);
    return s.err;
}

static const float data_bin[4] = {0.0f, 1.0f, 2.0f, 3.0f};

static void test_onnx_external__is_read(void **state)
{
    (void)state;
    write_file("m/data.bin", data_bin, sizeof data_bin);
    weft_buf t = {0};
    put_external(&t, "data.bin", "4", "8");
    assert_int_equal(import_external(&t, NULL), WEFT_ERR_OK);
    put_external(&t, "./data.bin", "4", "8");
    put_entry(&t, "checksum", "0000", 4);
    assert_int_equal(import_external(&t, NULL), WEFT_ERR_OK);
    char path[128];
    snprintf(path, sizeof path, "%s/m/sub", folder);
    mkdir(path, 0700);
    write_file("m/sub/data.bin", data_bin + 1, 8);
    put_external(&t, "sub/data.bin", NULL, NULL);
    assert_int_equal(import_external(&t, NULL), WEFT_ERR_OK);
}

/* CVE-2022-25882, CVE-2024-27318: every spelling of a way out. */
static void test_onnx_external__stays_in_the_folder(void **state)
{
    (void)state;
    write_file("outside.bin", data_bin + 1, 8);
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/m/data.bin", folder);
    const char *const out[] = {"../outside.bin",
                               "sub/../../outside.bin",
                               "./../outside.bin",
                               "../m/data.bin",
                               "sub/../data.bin",
                               "..",
                               ".",
                               "",
                               "..\\outside.bin",
                               "sub\\data.bin",
                               "/etc/passwd",
                               absolute,
                               "sub/..//../outside.bin"};
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
        weft_buf t = {0};
        put_external(&t, out[i], NULL, NULL);
        assert_int_not_equal(import_external(&t, NULL), WEFT_ERR_OK);
    }
}

/* CVE-2024-27319: strings have lengths, and may hold a NUL. */
static void test_onnx_external__nul_in_location(void **state)
{
    (void)state;
    weft_buf t = {0};
    begin(&t, ONNX_FLOAT, "2");
    onnx_put_int(&t, 14, 1);
    put_entry(&t, "location", "data.bin\0../x", 13);
    assert_int_equal(import_external(&t, "NUL byte"), WEFT_ERR_INPUT);
}

/* CVE-2026-27489: symbolic links as the file and as a folder on the way. */
static void test_onnx_external__no_symbolic_links(void **state)
{
    (void)state;
    char path[128], target[128];
    snprintf(path, sizeof path, "%s/m/link.bin", folder);
    assert_int_equal(symlink("data.bin", path), 0);
    weft_buf t = {0};
    put_external(&t, "link.bin", "4", "8");
    assert_int_equal(import_external(&t, "symbolic link"), WEFT_ERR_INPUT);
    snprintf(path, sizeof path, "%s/m/dirlink", folder);
    snprintf(target, sizeof target, "%s/m/sub", folder);
    assert_int_equal(symlink(target, path), 0);
    put_external(&t, "dirlink/data.bin", NULL, NULL);
    assert_int_equal(import_external(&t, "symbolic link"), WEFT_ERR_INPUT);
}

/* CVE-2026-34446: a second name of a file outside. */
static void test_onnx_external__no_hard_links(void **state)
{
    (void)state;
    char path[128], target[128];
    snprintf(path, sizeof path, "%s/m/hard.bin", folder);
    snprintf(target, sizeof target, "%s/outside.bin", folder);
    assert_int_equal(link(target, path), 0);
    weft_buf t = {0};
    put_external(&t, "hard.bin", NULL, NULL);
    assert_int_equal(import_external(&t, "hard links"), WEFT_ERR_INPUT);
    char dir[128];
    snprintf(dir, sizeof dir, "%s/m", folder);
    weft_import_options allow = {.allow_hard_links = true};
    put_external(&t, "hard.bin", NULL, NULL);
    uint8_t *bytes;
    subject s = import_weight_with(&t, dir, &allow, &bytes);
    assert_int_equal(s.err, WEFT_ERR_OK);
    release(&s, bytes);
    unlink(path);
}

/* CVE-2026-34445: keys, offsets and lengths. */
static void test_onnx_external__keys_and_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *offset, *length, *part;
    } bad[] = {{"-1", "8", "offset"},
               {"4", "-8", "length"},
               {"9223372036854775807", "8", "at 9223372036854775807"},
               {"18446744073709551615", "8", "offset"},
               {"99999999999999999999", "8", "offset"},
               {"12", "8", "8 bytes at 12"},
               {"17", NULL, "at 17"},
               {"0", "9223372036854775807", "9223372036854775807 bytes"},
               {"0", "4", "4 bytes, the tensor has 8"},
               {"0", NULL, "16 bytes, the tensor has 8"},
               {"0x4", "8", "offset"},
               {" 4", "8", "offset"},
               {"", "8", "offset"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weft_buf t = {0};
        put_external(&t, "data.bin", bad[i].offset, bad[i].length);
        assert_int_equal(import_external(&t, bad[i].part), WEFT_ERR_INPUT);
    }
    weft_buf t = {0};
    put_external(&t, "data.bin", "4", "8");
    put_entry(&t, "basepath", "/", 1);
    assert_int_equal(import_external(&t, "unknown key"), WEFT_ERR_INPUT);
    put_external(&t, "data.bin", "4", "8");
    put_entry(&t, "location", "other", 5);
    assert_int_equal(import_external(&t, "repeated"), WEFT_ERR_INPUT);
    begin(&t, ONNX_FLOAT, "2");
    onnx_put_int(&t, 14, 1);
    assert_int_equal(import_external(&t, "without location"), WEFT_ERR_INPUT);
    put_external(&t, "data.bin", "4", "8");
    onnx_put_bytes(&t, 9, "01234567", 8);
    assert_int_equal(import_external(&t, "both inside"), WEFT_ERR_INPUT);
    put_external(&t, "absent.bin", "4", "8");
    assert_int_equal(import_external(&t, "cannot open"), WEFT_ERR_IO);
    put_external(&t, "sub", NULL, NULL);
    assert_int_not_equal(import_external(&t, NULL), WEFT_ERR_OK);
}

static void test_onnx_external__needs_a_folder(void **state)
{
    (void)state;
    weft_buf t = {0};
    put_external(&t, "data.bin", "4", "8");
    check_fails(&t, WEFT_ERR_INPUT, "where none is allowed");
}

/* -- Tensor files ----------------------------------------------------------------------------- */

static void test_onnx_tensor__file(void **state)
{
    (void)state;
    weft_buf t = {0};
    float x[2] = {1, 2};
    begin(&t, ONNX_FLOAT, "2,1");
    onnx_put_bytes(&t, 9, x, sizeof x);
    write_file("m/w.pb", t.at, t.len);
    char path[128];
    snprintf(path, sizeof path, "%s/m/w.pb", folder);
    weft_arena *arena = weft_arena_create(0);
    weft_tensor tensor;
    assert_int_equal(weft_import_tensor(path, arena, NULL, &tensor), WEFT_ERR_OK);
    assert_int_equal(tensor.rank, 2);
    assert_int_equal(tensor.dim[0], 2);
    assert_memory_equal(tensor.data, x, sizeof x);
    write_file("m/w.pb", t.at, t.len - 1);
    weft_buf_finish(&t);
    assert_int_equal(weft_import_tensor(path, arena, NULL, &tensor), WEFT_ERR_INPUT);
    put_external(&t, "data.bin", "4", "8");
    write_file("m/w.pb", t.at, t.len);
    weft_buf_finish(&t);
    assert_int_equal(weft_import_tensor(path, arena, NULL, &tensor), WEFT_ERR_INPUT);
    assert_int_equal(weft_import_tensor("/nonexistent", arena, NULL, &tensor), WEFT_ERR_IO);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_tensor__raw_data_stays_in_place),
        cmocka_unit_test(test_onnx_tensor__small_weights_are_aligned),
        cmocka_unit_test(test_onnx_tensor__float_data),
        cmocka_unit_test(test_onnx_tensor__varint_data),
        cmocka_unit_test(test_onnx_tensor__bools_are_zero_or_one),
        cmocka_unit_test(test_onnx_tensor__no_elements),
        cmocka_unit_test(test_onnx_tensor__lengths_are_exact),
        cmocka_unit_test(test_onnx_tensor__one_field_holds_elements),
        cmocka_unit_test(test_onnx_tensor__types_are_refused_by_name),
        cmocka_unit_test(test_onnx_tensor__narrow_types),
        cmocka_unit_test(test_onnx_external__is_read),
        cmocka_unit_test(test_onnx_external__stays_in_the_folder),
        cmocka_unit_test(test_onnx_external__nul_in_location),
        cmocka_unit_test(test_onnx_external__no_symbolic_links),
        cmocka_unit_test(test_onnx_external__no_hard_links),
        cmocka_unit_test(test_onnx_external__keys_and_ranges),
        cmocka_unit_test(test_onnx_external__needs_a_folder),
        cmocka_unit_test(test_onnx_tensor__file),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
