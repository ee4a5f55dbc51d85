/* The cache of compiled kernels: results come back as they were kept, for equal keys only; nothing
 * that is damaged, foreign or half written is taken; the least recently used results leave. Needs
 * no NVRTC. */
#include "base/file.h"
#include "codegen/cuda/nvrtc_int.h"
#include "tests/support/rand.h"

#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { NO_LIMIT = 1 << 30, PATH_BYTES = 200 };

static char folder[64], path[PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_nvrtc_cache_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static weft_nvrtc__cache *open_as(const char *compiler, uint64_t limit_bytes)
{
    const char *why = NULL;
    weft_nvrtc__cache *cache = weft_nvrtc__cache_open(folder, limit_bytes, compiler, &why);
    if (!cache)
        fail_msg("%s: %s", folder, why);
    return cache;
}

/* Keeps a result that `text` tells. */
static void keep(weft_nvrtc__cache *cache, const char *text, const char *arch)
{
    char cubin[100] = {0}, ptx[100];
    snprintf(cubin + 1, sizeof cubin - 1, "cubin of %s %s", text, arch);
    snprintf(ptx, sizeof ptx, "ptx of %s %s", text, arch);
    const weft_nvrtc__result r = {
        .cubin = cubin, .cubin_bytes = sizeof cubin, .ptx = ptx, .ptx_bytes = strlen(ptx)};
    weft_nvrtc__cache_keep(cache, text, arch, &r);
}

/* Whether there is a result, which must be the right one. */
static bool find(weft_nvrtc__cache *cache, const char *text, const char *arch)
{
    char want[100];
    weft_nvrtc__result r = {0};
    if (!weft_nvrtc__cache_find(cache, text, arch, &r))
        return false;
    snprintf(want, sizeof want, "cubin of %s %s", text, arch);
    assert_int_equal(r.cubin_bytes, 100);
    assert_string_equal(r.cubin + 1, want);
    snprintf(want, sizeof want, "ptx of %s %s", text, arch);
    assert_int_equal(r.ptx_bytes, strlen(want));
    assert_string_equal(r.ptx, want);
    assert_null(r.failed);
    weft_nvrtc__free(&r);
    return true;
}

/* The number of files that match; the first one's path is in `path`. */
static size_t count(const char *pattern)
{
    char all[PATH_BYTES];
    glob_t found;
    snprintf(all, sizeof all, "%s/%s", folder, pattern);
    if (glob(all, 0, NULL, &found) != 0)
        return 0;
    size_t n = found.gl_pathc;
    snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    globfree(&found);
    return n;
}

static void test_nvrtc_cache__gives_back_what_was_kept_for_equal_keys(void **state)
{
    (void)state;
    weft_nvrtc__cache *cache = open_as("one", NO_LIMIT), *other = open_as("two", NO_LIMIT);
    assert_false(find(cache, "a", "sm_80"));
    keep(cache, "a", "sm_80");
    keep(cache, "a", "sm_90");
    assert_true(find(cache, "a", "sm_80"));
    assert_true(find(cache, "a", "sm_90"));
    assert_false(find(cache, "a", "sm_100"));
    assert_false(find(cache, "ab", "sm_80"));
    assert_false(find(other, "a", "sm_80"));
    assert_int_equal(count("*.kernel"), 2);
    assert_int_equal(count("*"), 2);
    weft_nvrtc__cache_close(cache);
    weft_nvrtc__cache_close(other);
    cache = open_as("one", NO_LIMIT);
    assert_true(find(cache, "a", "sm_80"));
    weft_nvrtc__cache_close(cache);
    assert_false(weft_nvrtc__cache_find(NULL, "a", "sm_80", NULL));
    weft_nvrtc__cache_keep(NULL, "a", "sm_80", NULL);
    weft_nvrtc__cache_close(NULL);
}

static void test_nvrtc_cache__takes_no_damaged_file(void **state)
{
    (void)state;
    weft_nvrtc__cache *cache = open_as("one", NO_LIMIT);
    keep(cache, "a", "sm_80");
    assert_int_equal(count("*.kernel"), 1);
    char *whole, file[PATH_BYTES];
    size_t len;
    snprintf(file, sizeof file, "%s", path);
    assert_int_equal(weft_file_read(file, 1 << 20, NULL, &whole, &len), WEFT_ERR_OK);
    for (size_t i = 0; i < len; i++) {
        whole[i] ^= (char)(1 << i % 8);
        assert_int_equal(weft_file_write(file, whole, len, NULL), WEFT_ERR_OK);
        if (find(cache, "a", "sm_80"))
            fail_msg("byte %zu of %zu is changed", i, len);
        whole[i] ^= (char)(1 << i % 8);
    }
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(weft_file_write(file, whole, n, NULL), WEFT_ERR_OK);
        assert_false(find(cache, "a", "sm_80"));
    }
    /* Sizes that overflow when they are added. */
    uint64_t size[3] = {UINT64_MAX, UINT64_MAX / 2, 1};
    memcpy(whole + 16, size, sizeof size);
    assert_int_equal(weft_file_write(file, whole, len, NULL), WEFT_ERR_OK);
    assert_false(find(cache, "a", "sm_80"));
    keep(cache, "a", "sm_80");
    assert_true(find(cache, "a", "sm_80"));
    free(whole);
    weft_nvrtc__cache_close(cache);
}

/* A file of another key, which a collision of hashes would be. */
static void test_nvrtc_cache__takes_no_file_of_another_key(void **state)
{
    (void)state;
    char first[PATH_BYTES], kept[PATH_BYTES];
    weft_nvrtc__cache *cache = open_as("one", NO_LIMIT);
    keep(cache, "a", "sm_80");
    assert_int_equal(count("*.kernel"), 1);
    snprintf(first, sizeof first, "%s", path);
    snprintf(kept, sizeof kept, "%s/kept", folder);
    assert_int_equal(rename(first, kept), 0);
    keep(cache, "b", "sm_80");
    assert_int_equal(count("*.kernel"), 1);
    assert_int_equal(rename(kept, path), 0);
    assert_false(find(cache, "b", "sm_80"));
    assert_false(find(cache, "a", "sm_80"));
    weft_nvrtc__cache_close(cache);
}

static void test_nvrtc_cache__reads_only_regular_files_of_its_own(void **state)
{
    (void)state;
    char target[PATH_BYTES], file[PATH_BYTES];
    weft_nvrtc__cache *cache = open_as("one", NO_LIMIT);
    keep(cache, "a", "sm_80");
    assert_int_equal(count("*.kernel"), 1);
    snprintf(file, sizeof file, "%s", path);
    snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(rename(file, target), 0);
    assert_int_equal(symlink(target, file), 0);
    assert_false(find(cache, "a", "sm_80"));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0); /* does not wait for a writer */
    assert_false(find(cache, "a", "sm_80"));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0700), 0);
    assert_false(find(cache, "a", "sm_80"));
    keep(cache, "a", "sm_80"); /* cannot be kept */
    assert_false(find(cache, "a", "sm_80"));
    assert_int_equal(rmdir(file), 0);
    assert_int_equal(rename(target, file), 0);
    assert_true(find(cache, "a", "sm_80"));
    if (geteuid() == 0) { /* only then can a file be given away */
        assert_int_equal(chown(file, 12345, 12345), 0);
        assert_false(find(cache, "a", "sm_80"));
        keep(cache, "a", "sm_80");
        assert_true(find(cache, "a", "sm_80"));
    }
    weft_nvrtc__cache_close(cache);
}

static void refuse(const char *name, const char *reason)
{
    const char *why = NULL;
    char whole[PATH_BYTES];
    snprintf(whole, sizeof whole, "%s%s", folder, name);
    assert_null(weft_nvrtc__cache_open(whole, NO_LIMIT, "one", &why));
    assert_string_equal(why, reason);
}

static void test_nvrtc_cache__refuses_folders_that_others_may_change(void **state)
{
    (void)state;
    char file[PATH_BYTES];
    snprintf(file, sizeof file, "%s/file", folder);
    assert_int_equal(weft_file_write(file, "x", 1, NULL), WEFT_ERR_OK);
    refuse("/file", "not a folder");
    refuse("/file/below", "Not a directory");
    assert_int_equal(chmod(folder, 0777), 0);
    refuse("", "others may write the folder");
    assert_int_equal(chmod(folder, 0770), 0);
    refuse("", "others may write the folder");
    assert_int_equal(chmod(folder, 0755), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(folder, 12345, 12345), 0);
        refuse("", "another user owns the folder");
        assert_int_equal(chown(folder, 0, 0), 0);
    }
    /* Folders above are made, for the user alone. */
    const char *why = NULL;
    snprintf(file, sizeof file, "%s/a/b/c", folder);
    weft_nvrtc__cache *cache = weft_nvrtc__cache_open(file, NO_LIMIT, "one", &why);
    assert_non_null(cache);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    weft_nvrtc__cache_close(cache);
}

static void test_nvrtc_cache__uses_no_file_that_others_may_write(void **state)
{
    (void)state;
    struct stat st;
    mode_t before = umask(0);
    weft_nvrtc__cache *cache = open_as("one", NO_LIMIT);
    for (int i = 0; i < 2; i++) {
        keep(cache, "a", "sm_80");
        assert_int_equal(count("*.kernel"), 1);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_true(find(cache, "a", "sm_80"));
        assert_int_equal(chmod(path, i ? 0620 : 0602), 0);
        assert_false(find(cache, "a", "sm_80"));
    }
    weft_nvrtc__cache_close(cache);
    umask(before);
}

static void set_age(const char *name, time_t seconds)
{
    const struct timespec at[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    assert_int_equal(utimensat(AT_FDCWD, name, at, 0), 0);
}

/* Of the result that was kept just now; all others are older. */
static void set_age_of_newest(time_t seconds)
{
    char all[PATH_BYTES];
    glob_t found;
    struct stat st;
    snprintf(all, sizeof all, "%s/*.kernel", folder);
    assert_int_equal(glob(all, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (stat(found.gl_pathv[i], &st) == 0 && st.st_mtime > time(NULL) - 1000)
            set_age(found.gl_pathv[i], seconds);
    globfree(&found);
}

static void put_file(const char *name, time_t seconds)
{
    char file[PATH_BYTES];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    assert_int_equal(weft_file_write(file, "x", 1, NULL), WEFT_ERR_OK);
    set_age(file, seconds);
}

static void test_nvrtc_cache__removes_what_was_used_the_longest_time_ago(void **state)
{
    (void)state;
    static const char *const text[] = {"a", "b", "c", "d", "e"};
    weft_nvrtc__cache *cache = open_as("one", NO_LIMIT);
    for (int i = 0; i < 4; i++) {
        keep(cache, text[i], "sm_80");
        set_age_of_newest(10000 - 1000 * i); /* the oldest first */
    }
    assert_int_equal(count("*.kernel"), 4);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    weft_nvrtc__cache_close(cache);
    /* Not of the cache: left alone, whatever their age. Parts: old ones leave. */
    put_file("notes.kernel", 100000);
    put_file("0123456789abcdef0123456789abcdef.kernel.bak", 100000);
    put_file("0123456789abcdef0123456789abcdef.kernel.12-0.tmp", 100000);
    put_file("0123456789abcdef0123456789abcdef.kernel.13-0.tmp", 10);
    cache = open_as("one", (uint64_t)st.st_size * 3 + 10);
    assert_true(find(cache, "a", "sm_80")); /* used now: b and c are the oldest */
    weft_nvrtc__cache_close(cache);
    assert_int_equal(count("*.kernel"), 5); /* a run that keeps nothing removes nothing */
    cache = open_as("one", (uint64_t)st.st_size * 3 + 10);
    keep(cache, "e", "sm_80");
    weft_nvrtc__cache_close(cache);
    cache = open_as("one", NO_LIMIT);
    assert_true(find(cache, "a", "sm_80"));
    assert_false(find(cache, "b", "sm_80"));
    assert_false(find(cache, "c", "sm_80"));
    assert_true(find(cache, "d", "sm_80"));
    assert_true(find(cache, "e", "sm_80"));
    weft_nvrtc__cache_close(cache);
    assert_int_equal(count("notes.kernel"), 1);
    assert_int_equal(count("*.bak"), 1);
    assert_int_equal(count("*.tmp"), 1);
}

/* Each thread keeps and finds the same results, while others and a small limit remove them: what is
 * found is right. */
static void *compile_along(void *arg)
{
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    for (int round = 0; round < 40; round++) {
        const char *why;
        weft_nvrtc__cache *cache = weft_nvrtc__cache_open(folder, 2000, "one", &why);
        for (int i = 0; cache && i < 8; i++) {
            char text[8];
            snprintf(text, sizeof text, "k%u", (unsigned)(rand_next(&seed) % 12));
            if (!find(cache, text, "sm_80"))
                keep(cache, text, "sm_80");
        }
        weft_nvrtc__cache_close(cache);
    }
    return NULL;
}

static void test_nvrtc_cache__serves_several_at_the_same_time(void **state)
{
    (void)state;
    pthread_t thread[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, compile_along, (void *)(i + 1)), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    weft_nvrtc__cache *cache = open_as("one", NO_LIMIT);
    keep(cache, "k0", "sm_80");
    assert_true(find(cache, "k0", "sm_80"));
    weft_nvrtc__cache_close(cache);
    assert_in_range(count("*"), 1, 13);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_nvrtc_cache__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(gives_back_what_was_kept_for_equal_keys),
        T(takes_no_damaged_file),
        T(takes_no_file_of_another_key),
        T(reads_only_regular_files_of_its_own),
        T(refuses_folders_that_others_may_change),
        T(uses_no_file_that_others_may_write),
        T(removes_what_was_used_the_longest_time_ago),
        T(serves_several_at_the_same_time),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
