/* Files. Every check is made on the opened descriptor, never on the name: replacing the file
 * between check and use has no effect. */
#include "base/file_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPENAT2_TRIES = 16, TEMP_NAME_TRIES = 100 };

weft_err weft_file_report(weft_diag *diag, const char *path, const char *verb, int code)
{
    const char *name = strerrorname_np(code);
    weft_where where = {.file = path};
    return weft_diag_error(diag, code == ENOMEM ? WEFT_ERR_NOMEM : WEFT_ERR_IO, where,
                           "cannot %s: %s (%s, %d)", verb, weft_errno_text(code),
                           name ? name : "errno", code);
}

/* Maps the regular file behind `fd`, which stays open. */
static weft_err map_fd(int fd, const struct stat *st, const char *path, weft_diag *diag,
                       weft_file *out)
{
    weft_file file = {(const uint8_t *)"", 0};
    if ((uint64_t)st->st_size > PTRDIFF_MAX)
        return weft_file_report(diag, path, "map", EFBIG);
    if (st->st_size > 0) {
        void *at = mmap(NULL, (size_t)st->st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED)
            return weft_file_report(diag, path, "map", errno);
        file.at = at;
        file.len = (uint64_t)st->st_size;
    }
    *out = file;
    return WEFT_ERR_OK;
}

bool weft_file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

void weft_file_remove_folder(const char *path)
{
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(path);
}

bool weft_file_is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

weft_err weft_file_map_fd(int fd, const char *path, weft_diag *diag, weft_file *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return weft_file_report(diag, path, "stat", errno);
    if (!S_ISREG(st.st_mode))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                               "not a regular file");
    return map_fd(fd, &st, path, diag, out);
}

weft_err weft_file_open(const char *path, weft_diag *diag, int *out_fd)
{
    /* Non-blocking: the open of a pipe would wait for its writer. */
    *out_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return *out_fd >= 0 ? WEFT_ERR_OK : weft_file_report(diag, path, "open", errno);
}

weft_err weft_file_map(const char *path, weft_diag *diag, weft_file *out)
{
    int fd;
    WEFT_TRY(weft_file_open(path, diag, &fd));
    weft_err err = weft_file_map_fd(fd, path, diag, out);
    close(fd);
    return err;
}

void weft_file_unmap(weft_file *file)
{
    if (file->len)
        munmap((void *)(uintptr_t)file->at, (size_t)file->len);
    file->at = NULL;
    file->len = 0;
}

/* A page fault maps the pages around it too (fault-around, 64 KiB on Linux), so whole blocks of
 * that size are released. */
void weft_file_drop(const weft_file *file, const void *at, uint64_t bytes)
{
    enum { AROUND = 64 << 10 };
    uintptr_t low = (uintptr_t)file->at, begin = (uintptr_t)at;
    if (!file->len || begin < low || begin - low > file->len || bytes > file->len - (begin - low))
        return;
    uint64_t from = (begin - low) / AROUND * AROUND;
    uint64_t to = ((begin - low + bytes) / AROUND + 1) * AROUND;
    (void)madvise((void *)(low + from), (to < file->len ? to : file->len) - from, MADV_DONTNEED);
}

/* -- Below a folder --------------------------------------------------------------------------- */

/* NULL when `rel` may be opened, else what is wrong with it. */
static const char *check_relative(const char *rel)
{
    if (!*rel)
        return "the path is empty";
    if (*rel == '/')
        return "the path is absolute";
    if (strchr(rel, '\\'))
        return "the path holds a backslash";
    if (strlen(rel) >= 4096)
        return "the path is longer than 4095 bytes";
    for (const char *p = rel; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.')
            return "the path holds \"..\"";
        p += len;
        p += *p == '/';
    }
    return NULL;
}

enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY };

/* For kernels without openat2: one component at a time, none of them a symbolic link. */
static int open_walking(int dir_fd, const char *rel)
{
    char name[NAME_MAX + 1];
    int at = dir_fd;
    for (const char *p = rel;;) {
        p += strspn(p, "/");
        size_t len = strcspn(p, "/");
        bool last = p[len] == '\0';
        int fd = -1;
        int code = ENAMETOOLONG;
        if (len <= NAME_MAX) {
            memcpy(name, p, len);
            memcpy(name + len, len ? "" : ".", len ? 1 : 2);
            fd = openat(at, name, last ? OPEN_FLAGS : OPEN_FLAGS | O_DIRECTORY);
            code = errno;
            /* A symbolic link in place of a folder has its own error, as with openat2. */
            struct stat st;
            if (fd < 0 && code == ENOTDIR && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISLNK(st.st_mode))
                code = ELOOP;
        }
        if (at != dir_fd)
            close(at);
        errno = code;
        if (fd < 0 || last)
            return fd;
        at = fd;
        p += len;
    }
}

static int open_beneath(int dir_fd, const char *rel)
{
#ifdef SYS_openat2
    struct open_how how = {.flags = (uint64_t)OPEN_FLAGS,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    long fd = -1;
    /* EAGAIN: something was renamed during the walk, and the kernel could not tell. */
    for (int i = 0; i < OPENAT2_TRIES; i++) {
        fd = syscall(SYS_openat2, dir_fd, rel, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    /* EPERM: older seccomp filters of containers refuse unknown system calls with it. */
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return (int)fd;
#endif
    return open_walking(dir_fd, rel);
}

weft_err weft_file_open_beneath(const char *dir, const char *rel, weft_diag *diag, int *out_fd)
{
    weft_where where = {.file = rel};
    const char *wrong = check_relative(rel);
    if (wrong)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "%s", wrong);
    int dir_fd = open(*dir ? dir : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return weft_file_report(diag, dir, "open folder", errno);
    int fd = open_beneath(dir_fd, rel);
    int code = errno;
    close(dir_fd);
    if (fd < 0) {
        if (code == ELOOP || code == EXDEV)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "the path leads through a symbolic link or out of its folder");
        return weft_file_report(diag, rel, "open", code);
    }
    *out_fd = fd;
    return WEFT_ERR_OK;
}

static weft_err map_beneath(const char *dir, const char *rel, bool any_links, weft_diag *diag,
                            weft_file *out)
{
    weft_where where = {.file = rel};
    struct stat st;
    weft_err err;
    int fd;
    WEFT_TRY(weft_file_open_beneath(dir, rel, diag, &fd));
    if (fstat(fd, &st) != 0)
        err = weft_file_report(diag, rel, "stat", errno);
    else if (!S_ISREG(st.st_mode))
        err = weft_diag_error(diag, WEFT_ERR_INPUT, where, "not a regular file");
    else if (st.st_nlink != 1 && !any_links)
        err = weft_diag_error(diag, WEFT_ERR_INPUT, where, "the file has %lu hard links, not 1",
                              (unsigned long)st.st_nlink);
    else
        err = map_fd(fd, &st, rel, diag, out);
    close(fd);
    return err;
}

weft_err weft_file_map_beneath(const char *dir, const char *rel, weft_diag *diag, weft_file *out)
{
    return map_beneath(dir, rel, false, diag, out);
}

weft_err weft_file_map_beneath_linked(const char *dir, const char *rel, weft_diag *diag,
                                      weft_file *out)
{
    return map_beneath(dir, rel, true, diag, out);
}

/* -- Whole files ------------------------------------------------------------------------------ */

weft_err weft_file__read_fd(int fd, const char *path, uint64_t limit_bytes, weft_diag *diag,
                            char **out, size_t *out_len)
{
    weft_where where = {.file = path};
    struct stat st;
    size_t len = 0, cap = 1 << 14;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        if ((uint64_t)st.st_size > limit_bytes)
            return weft_diag_error(diag, WEFT_ERR_NOMEM, where, "%llu bytes, the limit is %llu",
                                   (unsigned long long)st.st_size, (unsigned long long)limit_bytes);
        /* Two more than the size: one to see the end of the file, one for the NUL. */
        if ((uint64_t)st.st_size < PTRDIFF_MAX - 2)
            cap = (size_t)st.st_size + 2;
    }
    char *at = malloc(cap);
    for (;;) {
        if (!at)
            return weft_diag_error(diag, WEFT_ERR_NOMEM, where, "no memory to read %zu bytes", cap);
        ssize_t got = read(fd, at + len, cap - 1 - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int code = errno;
            free(at);
            return weft_file_report(diag, path, "read", code);
        }
        if (got == 0)
            break;
        len += (size_t)got;
        if (len > limit_bytes) {
            free(at);
            return weft_diag_error(diag, WEFT_ERR_NOMEM, where, "over the limit of %llu bytes",
                                   (unsigned long long)limit_bytes);
        }
        if (len == cap - 1) {
            char *more = cap <= PTRDIFF_MAX / 2 ? realloc(at, cap * 2) : NULL;
            if (!more)
                free(at);
            at = more;
            cap *= 2;
        }
    }
    at[len] = '\0';
    *out = at;
    *out_len = len;
    return WEFT_ERR_OK;
}

weft_err weft_file_read(const char *path, uint64_t limit_bytes, weft_diag *diag, char **out,
                        size_t *out_len)
{
    if (strcmp(path, "-") == 0)
        return weft_file__read_fd(STDIN_FILENO, "<stdin>", limit_bytes, diag, out, out_len);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return weft_file_report(diag, path, "open", errno);
    weft_err err = weft_file__read_fd(fd, path, limit_bytes, diag, out, out_len);
    close(fd);
    return err;
}

bool weft_file_get(int fd, void *to, size_t len)
{
    for (char *at = to; len > 0;) {
        ssize_t n = read(fd, at, len < (size_t)1 << 30 ? len : (size_t)1 << 30);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

int weft_file_put(int fd, const void *bytes, size_t len)
{
    for (const char *at = bytes; len > 0;) {
        ssize_t n = write(fd, at, len < (size_t)1 << 30 ? len : (size_t)1 << 30);
        if (n == 0 || (n < 0 && errno != EINTR))
            return n == 0 ? EIO : errno;
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int weft_file_get_at(int fd, void *to, size_t len, uint64_t offset)
{
    for (char *at = to; len > 0;) {
        ssize_t n = pread(fd, at, len, (off_t)offset);
        if (n == 0 || (n < 0 && errno != EINTR))
            return n == 0 ? ENODATA : errno;
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        offset += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

int weft_file_put_at(int fd, const void *bytes, size_t len, uint64_t offset)
{
    for (const char *at = bytes; len > 0;) {
        ssize_t n = pwrite(fd, at, len < (size_t)1 << 30 ? len : (size_t)1 << 30, (off_t)offset);
        if (n == 0 || (n < 0 && errno != EINTR))
            return n == 0 ? EIO : errno;
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        offset += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

int weft_file_make(const char *name, const void *bytes, size_t len)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || weft_file_put(fd, bytes, len) == 0)
        return fd;
    close(fd);
    return -1;
}

/* 0 or an errno. */
static int write_all(int fd, const weft_span *span, size_t n)
{
    int code = 0;
    for (size_t i = 0; i < n && !code; i++)
        code = weft_file_put(fd, span[i].at, span[i].len);
    return code;
}

/* Opens a new file beside `path` with the permissions of `mode` that the umask leaves; `temp` gets
 * its name. */
static int open_temp(const char *path, char *temp, size_t size, mode_t mode)
{
    int fd = -1;
    for (int i = 0; i < TEMP_NAME_TRIES; i++) {
        snprintf(temp, size, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    return fd;
}

weft_err weft_file_write(const char *path, const void *bytes, size_t len, weft_diag *diag)
{
    weft_span span = {bytes, len};
    return weft_file_write_spans(path, &span, 1, diag);
}

/* A link to a descriptor of the process, such as /dev/stdout. */
static bool is_descriptor(const char *path)
{
    static const char folder[] = "/proc/";
    char to[sizeof folder - 1];
    return readlink(path, to, sizeof to) == (ssize_t)sizeof to &&
           memcmp(to, folder, sizeof to) == 0;
}

/* `is_private`: only the user may read and write the file, whatever the one before allowed. */
static weft_err write_spans(const char *path, const weft_span *span, size_t n, bool is_private,
                            weft_diag *diag)
{
    if (strcmp(path, "-") == 0) {
        int code = write_all(STDOUT_FILENO, span, n);
        return code ? weft_file_report(diag, "<stdout>", "write", code) : WEFT_ERR_OK;
    }
    struct stat st;
    bool exists = stat(path, &st) == 0;
    /* A device, a pipe or a descriptor is written, not replaced. */
    bool direct = exists && (!S_ISREG(st.st_mode) || is_descriptor(path));
    size_t size = strlen(path) + 40;
    char *temp = malloc(size);
    if (!temp)
        return weft_file_report(diag, path, "write", ENOMEM);
    int fd = direct ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY)
                    : open_temp(path, temp, size, is_private ? 0600 : 0666);
    int code = fd < 0 ? errno : 0;
    const char *verb = "create";
    if (fd >= 0) {
        verb = "write";
        code = write_all(fd, span, n);
        if (!code && exists && !direct && !is_private && fchmod(fd, st.st_mode & 0777) != 0)
            code = errno;
        if (close(fd) != 0 && !code)
            code = errno;
        if (!direct && !code && rename(temp, path) != 0) {
            verb = "rename";
            code = errno;
        }
        if (!direct && code)
            unlink(temp);
    }
    free(temp);
    return code ? weft_file_report(diag, path, verb, code) : WEFT_ERR_OK;
}

weft_err weft_file_write_spans(const char *path, const weft_span *span, size_t n, weft_diag *diag)
{
    return write_spans(path, span, n, false, diag);
}

weft_err weft_file_write_private(const char *path, const weft_span *span, size_t n, weft_diag *diag)
{
    return write_spans(path, span, n, true, diag);
}
