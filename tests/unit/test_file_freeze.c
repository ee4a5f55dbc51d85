/* weft_file_freeze: whatever happens to the file, the bytes behind the descriptor stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 300000 };

static char folder[] = "/tmp/weft-freeze.XXXXXX";
static char path[64];

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 131 >> 3);
}

static void write_file(size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fputc(byte_at(i), f), byte_at(i));
    assert_int_equal(fclose(f), 0);
}

static void check_bytes(int fd, size_t n, weft_diag *diag)
{
    weft_file file;
    assert_int_equal(weft_file_map_fd(fd, path, diag, &file), WEFT_ERR_OK);
    assert_int_equal(file.len, n);
    for (size_t i = 0; i < n; i++)
        if (file.at[i] != byte_at(i))
            fail_msg("byte %zu changed", i);
    weft_file_unmap(&file);
}

static void overwrite(void)
{
    static uint8_t junk[BYTES];
    int fd = open(path, O_WRONLY);
    memset(junk, 0xa5, sizeof junk);
    assert_int_equal(pwrite(fd, junk, sizeof junk, 0), sizeof junk);
    close(fd);
}

static void test_freeze__bytes_stay(void **state)
{
    weft_diag *diag = weft_diag_create();
    static const size_t sizes[] = {0, 1, BYTES};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int fd;
        write_file(sizes[s]);
        assert_int_equal(weft_file_freeze(path, diag, &fd), WEFT_ERR_OK);
        check_bytes(fd, sizes[s], diag);
        overwrite();
        check_bytes(fd, sizes[s], diag);
        assert_int_equal(truncate(path, 0), 0);
        check_bytes(fd, sizes[s], diag);
        assert_int_equal(unlink(path), 0);
        check_bytes(fd, sizes[s], diag);
        /* Nobody who gets the descriptor can write by it. */
        assert_int_equal(write(fd, "x", 1), -1);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
    }
    weft_diag_destroy(diag);
}

/* Folders that take no file: the copy lies in memory, sealed. */
static void test_freeze__without_disk(void **state)
{
    weft_diag *diag = weft_diag_create();
    int fd;
    (void)state;
    if (geteuid() == 0 && access("/proc/self/attr", X_OK) != 0)
        skip();
    write_file(BYTES);
    assert_int_equal(setenv("TMPDIR", "/proc/self/attr", 1), 0);
    assert_int_equal(chmod(folder, 0500), 0);
    assert_int_equal(weft_file_freeze(path, diag, &fd), WEFT_ERR_OK);
    assert_int_equal(chmod(folder, 0700), 0);
    unsetenv("TMPDIR");
    overwrite();
    check_bytes(fd, BYTES, diag);
    close(fd);
    unlink(path);
    weft_diag_destroy(diag);
}

static void test_freeze__refuses(void **state)
{
    weft_diag *diag = weft_diag_create();
    int fd;
    (void)state;
    assert_int_equal(weft_file_freeze(path, diag, &fd), WEFT_ERR_IO);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(weft_file_freeze(path, diag, &fd), WEFT_ERR_INPUT);
    unlink(path);
    assert_int_equal(weft_file_freeze(folder, diag, &fd), WEFT_ERR_INPUT);
    weft_diag_destroy(diag);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freeze__bytes_stay),
        cmocka_unit_test(test_freeze__without_disk),
        cmocka_unit_test(test_freeze__refuses),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
