/* base/file.h: mapping, containment below a folder, whole files. */
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char dir[] = "test_file_XXXXXX"; /* below the working folder */

static const char *in_dir(const char *name)
{
    static char path[4][300];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static int make_files(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || mkdir(in_dir("sub"), 0755) || mkdir(in_dir("sub/deep"), 0755) ||
        mkdir(in_dir("other"), 0755) ||
        weft_file_write(in_dir("sub/deep/w.bin"), "weights", 7, NULL) ||
        weft_file_write(in_dir("sub/a.bin"), "abc", 3, NULL) ||
        weft_file_write(in_dir("sub/hard1"), "abc", 3, NULL) ||
        weft_file_write(in_dir("other/secret"), "secret", 6, NULL))
        return -1;
    return symlink("../other/secret", in_dir("sub/link_out")) ||
           symlink("a.bin", in_dir("sub/link_in")) || symlink("deep", in_dir("sub/link_dir")) ||
           symlink("/etc/passwd", in_dir("sub/link_abs")) ||
           link(in_dir("sub/hard1"), in_dir("sub/hard2")) || mkfifo(in_dir("sub/pipe"), 0644);
}

static int remove_files(void **state)
{
    (void)state;
    static const char *const names[] = {
        "sub/deep/w.bin", "sub/deep",    "sub/a.bin",    "sub/hard1",    "sub/hard2",
        "sub/link_out",   "sub/link_in", "sub/link_dir", "sub/link_abs", "sub/pipe",
        "sub/written",    "sub/opened",  "sub/link_fd",  "sub",          "other/secret",
        "other",          "big",         "empty"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        remove(in_dir(names[i]));
    return rmdir(dir); /* fails when a temporary file was left behind */
}

static void expect_beneath(const char *rel, weft_err want, const char *text)
{
    weft_diag *diag = weft_diag_create();
    weft_file file = {0};
    assert_int_equal(weft_file_map_beneath(in_dir("sub"), rel, diag, &file), want);
    if (want == WEFT_ERR_OK) {
        assert_int_equal(file.len, strlen(text));
        assert_memory_equal(file.at, text, strlen(text));
        weft_file_unmap(&file);
    } else {
        assert_null(file.at);
        assert_int_equal(weft_diag_count(diag), 1);
        assert_non_null(strstr(weft_diag_at(diag, 0)->text, text));
    }
    weft_diag_destroy(diag);
}

static void test_file__beneath_opens_only_what_lies_below(void **state)
{
    (void)state;
    expect_beneath("a.bin", WEFT_ERR_OK, "abc");
    expect_beneath("./a.bin", WEFT_ERR_OK, "abc");
    expect_beneath("deep/w.bin", WEFT_ERR_OK, "weights");
    expect_beneath("deep//w.bin", WEFT_ERR_OK, "weights");
    expect_beneath("", WEFT_ERR_INPUT, "empty");
    expect_beneath("/etc/passwd", WEFT_ERR_INPUT, "absolute");
    expect_beneath("../other/secret", WEFT_ERR_INPUT, "..");
    expect_beneath("deep/../a.bin", WEFT_ERR_INPUT, "..");
    expect_beneath("deep/..", WEFT_ERR_INPUT, "..");
    expect_beneath("deep\\w.bin", WEFT_ERR_INPUT, "backslash");
    expect_beneath("link_out", WEFT_ERR_INPUT, "symbolic link");
    expect_beneath("link_in", WEFT_ERR_INPUT, "symbolic link");
    expect_beneath("link_abs", WEFT_ERR_INPUT, "symbolic link");
    expect_beneath("link_dir/w.bin", WEFT_ERR_INPUT, "symbolic link");
    expect_beneath("hard1", WEFT_ERR_INPUT, "2 hard links");
    expect_beneath("hard2", WEFT_ERR_INPUT, "2 hard links");
    expect_beneath("deep", WEFT_ERR_INPUT, "not a regular file");
    expect_beneath("pipe", WEFT_ERR_INPUT, "not a regular file");
    expect_beneath("missing", WEFT_ERR_IO, "ENOENT");
    expect_beneath("a.bin/x", WEFT_ERR_IO, "ENOTDIR");
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    expect_beneath(name, WEFT_ERR_INPUT, "longer");
    name[1000] = '\0';
    expect_beneath(name, WEFT_ERR_IO, "ENAMETOOLONG");
    weft_file file;
    assert_int_equal(weft_file_map_beneath(in_dir("nowhere"), "a", NULL, &file), WEFT_ERR_IO);
    assert_int_equal(weft_file_map_beneath_linked(in_dir("sub"), "hard1", NULL, &file),
                     WEFT_ERR_OK);
    assert_int_equal(file.len, 3);
    weft_file_unmap(&file);
    assert_int_equal(weft_file_map_beneath_linked(in_dir("sub"), "link_in", NULL, &file),
                     WEFT_ERR_INPUT);
}

/* Makes openat2 fail in this process, as on a kernel that lacks it; false if the system does not
 * permit that. */
static bool forbid_openat2(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {.len = sizeof code / sizeof code[0], .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) == 0;
}

/* Last of the group: the filter stays. */
static void test_file__beneath_holds_without_openat2(void **state)
{
    if (!forbid_openat2())
        skip();
    test_file__beneath_opens_only_what_lies_below(state);
}

static void test_file__map_reads_regular_files(void **state)
{
    (void)state;
    weft_file file = {0};
    assert_int_equal(weft_file_map(in_dir("sub/link_in"), NULL, &file), WEFT_ERR_OK);
    assert_memory_equal(file.at, "abc", 3);
    weft_file_unmap(&file);
    assert_null(file.at);
    weft_file_unmap(&file);
    assert_int_equal(weft_file_write(in_dir("empty"), "", 0, NULL), WEFT_ERR_OK);
    assert_int_equal(weft_file_map(in_dir("empty"), NULL, &file), WEFT_ERR_OK);
    assert_non_null(file.at);
    assert_int_equal(file.len, 0);
    weft_file_unmap(&file);
    assert_int_equal(weft_file_map(in_dir("sub"), NULL, &file), WEFT_ERR_INPUT);
    assert_int_equal(weft_file_map(in_dir("sub/pipe"), NULL, &file), WEFT_ERR_INPUT);
    assert_int_equal(weft_file_map(in_dir("nothing"), NULL, &file), WEFT_ERR_IO);
}

static void test_file__read_obeys_its_limit(void **state)
{
    (void)state;
    enum { SIZE = 100001 };
    char *bytes = malloc(SIZE), *back = NULL;
    size_t len = 0;
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 7);
    assert_int_equal(weft_file_write(in_dir("big"), bytes, SIZE, NULL), WEFT_ERR_OK);
    assert_int_equal(weft_file_read(in_dir("big"), SIZE, NULL, &back, &len), WEFT_ERR_OK);
    assert_int_equal(len, SIZE);
    assert_memory_equal(back, bytes, SIZE);
    assert_int_equal(back[len], 0);
    free(back);
    back = NULL;
    weft_diag *diag = weft_diag_create();
    assert_int_equal(weft_file_read(in_dir("big"), SIZE - 1, diag, &back, &len), WEFT_ERR_NOMEM);
    assert_int_equal(weft_diag_count(diag), 1);
    assert_null(back);
    /* A device says nothing of its size. */
    assert_int_equal(weft_file_read("/dev/zero", 100000, diag, &back, &len), WEFT_ERR_NOMEM);
    assert_int_equal(weft_file_read("/dev/null", 0, diag, &back, &len), WEFT_ERR_OK);
    assert_int_equal(len, 0);
    free(back);
    assert_int_equal(weft_file_read(dir, 10000, diag, &back, &len), WEFT_ERR_IO);
    weft_diag_destroy(diag);
    free(bytes);
}

static void test_file__write_replaces_in_one_step(void **state)
{
    (void)state;
    const char *path = in_dir("sub/written");
    struct stat st, again;
    weft_file file;
    assert_int_equal(weft_file_write(path, "first", 5, NULL), WEFT_ERR_OK);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(weft_file_map(path, NULL, &file), WEFT_ERR_OK);
    assert_int_equal(weft_file_write(path, "second", 6, NULL), WEFT_ERR_OK);
    assert_memory_equal(file.at, "first", 5); /* who has it open keeps the old one */
    weft_file_unmap(&file);
    assert_int_equal(stat(path, &again), 0);
    assert_int_equal(again.st_mode, st.st_mode);
    assert_int_not_equal(again.st_ino, st.st_ino);
    assert_int_equal(again.st_size, 6);
    assert_int_equal(weft_file_write("/dev/null", "x", 1, NULL), WEFT_ERR_OK);
    assert_int_equal(weft_file_write("/dev/full", "x", 1, NULL), WEFT_ERR_IO);
    assert_int_equal(weft_file_write(in_dir("sub"), "x", 1, NULL), WEFT_ERR_IO);
    assert_int_equal(weft_file_write(in_dir("nowhere/x"), "x", 1, NULL), WEFT_ERR_IO);
}

/* A link to a descriptor that is a file, as /dev/stdout may be: the link stays, the file is
 * written. */
static void test_file__write_keeps_links_to_descriptors(void **state)
{
    (void)state;
    char to[64], link_path[256];
    struct stat st;
    int fd = open(in_dir("sub/opened"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    snprintf(link_path, sizeof link_path, "%s", in_dir("sub/link_fd"));
    snprintf(to, sizeof to, "/proc/self/fd/%d", fd);
    assert_int_equal(symlink(to, link_path), 0);
    assert_int_equal(weft_file_write(link_path, "one", 3, NULL), WEFT_ERR_OK);
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, 3);
    close(fd);
}

static void test_file__removes_folders_with_their_files(void **state)
{
    (void)state;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", in_dir("private"));
    weft_file_remove_folder(folder); /* there is none */
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(weft_file_write(in_dir("private/a"), "1", 1, NULL), WEFT_ERR_OK);
    assert_int_equal(weft_file_write(in_dir("private/.b"), "2", 1, NULL), WEFT_ERR_OK);
    assert_int_equal(symlink("/", in_dir("private/link")), 0);
    weft_file_remove_folder(folder);
    assert_false(weft_file_is_folder(folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file__beneath_opens_only_what_lies_below),
        cmocka_unit_test(test_file__map_reads_regular_files),
        cmocka_unit_test(test_file__read_obeys_its_limit),
        cmocka_unit_test(test_file__write_replaces_in_one_step),
        cmocka_unit_test(test_file__write_keeps_links_to_descriptors),
        cmocka_unit_test(test_file__removes_folders_with_their_files),
        cmocka_unit_test(test_file__beneath_holds_without_openat2),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
