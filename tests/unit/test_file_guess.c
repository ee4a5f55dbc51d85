/* Kinds of files by their first bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file_guess.h"

#include <string.h>

#define SAYS(bytes, part) assert_non_null(strstr(weft_file_guess(bytes, sizeof bytes - 1), part))
#define IS_SILENT(bytes)  assert_string_equal(weft_file_guess(bytes, sizeof bytes - 1), "")

static void test_binary(void **state)
{
    (void)state;
    SAYS("WEFT\1\0\0\0", "a bundle");
    SAYS("PK\3\4....", "torch.onnx.export");
    SAYS("\200\2}q\0", "torch.onnx.export");
    SAYS("\211HDF\r\n", "Keras");
    SAYS("\34\0\0\0TFL3", "TensorFlow Lite");
    SAYS("\20\0\0\0\0\0\0\0{\"a\":", "safetensors");
    SAYS("\223NUMPY\1\0", ".npy");
    SAYS("\10\7\22\7pytorch", "an ONNX model");
    SAYS("\10\12:\x80\1", "an ONNX model");
    IS_SILENT("\10\0\22\7");  /* no ir_version */
    IS_SILENT("\10\7\21\7");  /* a double is no field of it */
    IS_SILENT("\10\7\12\7a"); /* the same field again */
    IS_SILENT("\x93NUM");
    IS_SILENT("\1\2\3\4");
}

static void test_text(void **state)
{
    (void)state;
    SAYS("", "empty");
    SAYS("{\n", "JSON");
    SAYS("# a comment\n\n# another\nmodels:\n", "set file");
    SAYS("devices: []", "fleet file");
    SAYS("wir 1 graph", "text IR");
    assert_string_equal(weft_file_guess_format("models: [", 9), "");
    IS_SILENT("# only a comment");
    IS_SILENT("hello");
    IS_SILENT("modelsx");
}

/* No byte behind the last is read, whatever the bytes are. */
static void test_ends(void **state)
{
    (void)state;
    static const char kinds[] = "\34\0\0\0TFL3\10\7\22\7# models:\n{\"PK\3\4";
    for (size_t from = 0; from < sizeof kinds; from++)
        for (size_t len = 0; from + len < sizeof kinds; len++) {
            char copy[sizeof kinds];
            memset(copy, '!', sizeof copy);
            memcpy(copy, kinds + from, len);
            char same[sizeof kinds] = {0};
            memcpy(same, kinds + from, len);
            assert_ptr_equal(weft_file_guess(copy, len), weft_file_guess(same, len));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_binary), cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
