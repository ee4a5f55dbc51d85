/* A fresh arena and message list for each test, and a temporary file for readers of files. Tests
 * are registered with cmocka_unit_test_setup_teardown(name, set_up, tear_down). Include cmocka
 * before this header. */
#ifndef WEFT_TESTS_SUPPORT_FIXTURE_H
#define WEFT_TESTS_SUPPORT_FIXTURE_H

#include "base/arena.h"
#include "base/diag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_arena *arena;
static weft_diag *diag;
static char temp_path[64]; /* the temporary file; "" until the first write_bytes of a test */

static inline int set_up(void **state)
{
    (void)state;
    arena = weft_arena_create(0);
    diag = weft_diag_create();
    return arena && diag ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    if (temp_path[0])
        unlink(temp_path);
    temp_path[0] = 0;
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}

/* Where temporary files are made. Some tests write thousands of small files, so they use a file
 * system in memory if there is one. */
static inline const char *temp_folder(void)
{
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* Makes these bytes the contents of temp_path. */
static inline void write_bytes(const char *bytes, size_t len)
{
    if (!temp_path[0]) {
        snprintf(temp_path, sizeof temp_path, "%s/weft-test-XXXXXX", temp_folder());
        int fd = mkstemp(temp_path);
        assert_true(fd >= 0);
        close(fd);
    }
    FILE *f = fopen(temp_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *text)
{
    write_bytes(text, strlen(text));
}

#endif
