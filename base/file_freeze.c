/* Files whose bytes cannot change while they are open: weft_file_freeze.
 *
 * A mapping does not protect from a writer: pages that were not yet read change with the file, and
 * a truncated file raises SIGBUS. An unnamed copy has no name by which anybody could open it. */
#include "base/file_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { COPY_BYTES = 1 << 30, TRIES = 3, FD_PATH_BYTES = 32 };

/* Copies the blocks or the bytes. false: errno. */
static bool copy_bytes(int from, int to, uint64_t bytes)
{
    if (ioctl(to, FICLONE, from) == 0)
        return true;
    off_t at = 0, put = 0;
    bool plain = false; /* by read and write: the kernel cannot copy between these files */
    char block[1 << 16];
    while ((uint64_t)at < bytes) {
        uint64_t left = bytes - (uint64_t)at;
        size_t most = left < COPY_BYTES ? (size_t)left : COPY_BYTES;
        ssize_t n = -1;
        if (!plain)
            n = copy_file_range(from, &at, to, &put, most, 0);
        if (n < 0 && !plain && errno != EINTR && errno != ENOSPC && errno != EIO) {
            plain = true;
            continue;
        }
        if (plain) {
            n = pread(from, block, most < sizeof block ? most : sizeof block, at);
            n = n > 0 ? pwrite(to, block, (size_t)n, at) : n;
            at += n > 0 ? n : 0;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO; /* shorter than it was */
        if (n <= 0)
            return false;
    }
    return true;
}

/* An unnamed file in the folder, on a disk that stays at most half full; -1: not possible. */
static int unnamed_in(const char *folder, uint64_t bytes)
{
    struct statvfs fs;
    if (statvfs(folder, &fs) != 0 || (uint64_t)fs.f_bavail * fs.f_frsize / 2 < bytes)
        return -1;
    return open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* The same file by a descriptor that cannot write; -1 where there is no /proc. */
static int open_to_read(int fd)
{
    char path[FD_PATH_BYTES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* In place of the given one, which stays where there is no /proc. */
static int reopen_to_read(int fd)
{
    int readable = open_to_read(fd);
    if (readable < 0)
        return fd;
    close(fd);
    return readable;
}

static const char *temporary(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp ? tmp : "/var/tmp";
}

/* Copies into a new file `to`, which it closes when it fails: -1. */
static int filled(int from, int to, uint64_t bytes)
{
    if (to < 0)
        return -1;
    if (!copy_bytes(from, to, bytes)) {
        int code = errno;
        close(to);
        errno = code;
        return -1;
    }
    return to;
}

static int copy_unnamed(int from, const char *path, uint64_t bytes)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) + (slash == path) : 1;
    if (len < sizeof folder) {
        memcpy(folder, slash ? path : ".", len);
        folder[len] = '\0';
        int to = filled(from, unnamed_in(folder, bytes), bytes);
        if (to >= 0)
            return reopen_to_read(to);
    }
    int to = filled(from, unnamed_in(temporary(), bytes), bytes);
    if (to >= 0)
        return reopen_to_read(to);
    to = filled(from, memfd_create("weft-bundle", MFD_CLOEXEC | MFD_ALLOW_SEALING), bytes);
    if (to >= 0)
        fcntl(to, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return to;
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Copies the open file; again when somebody wrote to it meanwhile. */
static weft_err copy_stable(int from, const char *path, weft_diag *diag, int *out_fd)
{
    for (int i = 0; i < TRIES; i++) {
        struct stat before, after;
        if (fstat(from, &before) != 0)
            return weft_file_report(diag, path, "stat", errno);
        if (!S_ISREG(before.st_mode))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                                   "not a regular file");
        int to = copy_unnamed(from, path, (uint64_t)before.st_size);
        int code = errno;
        if (fstat(from, &after) == 0 && is_unchanged(&before, &after)) {
            *out_fd = to;
            return to >= 0 ? WEFT_ERR_OK : weft_file_report(diag, path, "copy", code);
        }
        if (to >= 0)
            close(to);
    }
    return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path},
                           "the file is being written while it is read");
}

/* Whether no writer of the file system exists anywhere. That it is mounted read-only here does not
 * tell: it may be writable elsewhere. */
static bool is_read_only(int fd)
{
    static const uint32_t types[] = {SQUASHFS_MAGIC, EROFS_SUPER_MAGIC_V1, CRAMFS_MAGIC,
                                     ISOFS_SUPER_MAGIC};
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0)
        return false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if ((uint32_t)fs.f_type == types[i])
            return true;
    return false;
}

weft_err weft_file_freeze(const char *path, weft_diag *diag, int *out_fd)
{
    int from;
    WEFT_TRY(weft_file_open(path, diag, &from));
    return weft_file_freeze_fd(from, path, diag, out_fd);
}

weft_err weft_file_freeze_fd(int from, const char *path, weft_diag *diag, int *out_fd)
{
    if (is_read_only(from)) {
        *out_fd = from;
        return WEFT_ERR_OK;
    }
    weft_err err = copy_stable(from, path, diag, out_fd);
    close(from);
    return err;
}

weft_err weft_file_make_unnamed(const char *folder, weft_diag *diag, int *out_write, int *out_read)
{
    int to = folder ? unnamed_in(folder, 0) : -1;
    if (to < 0)
        to = unnamed_in(temporary(), 0);
    if (to < 0)
        to = memfd_create("weft", MFD_CLOEXEC);
    int from = to >= 0 ? open_to_read(to) : -1;
    if (to >= 0 && from < 0)
        from = fcntl(to, F_DUPFD_CLOEXEC, 0);
    if (from < 0) {
        int code = errno;
        if (to >= 0)
            close(to);
        return weft_file_report(diag, folder ? folder : temporary(), "make a file", code);
    }
    *out_write = to;
    *out_read = from;
    return WEFT_ERR_OK;
}

weft_err weft_file_read_stable(int fd, const char *path, uint64_t limit_bytes, weft_diag *diag,
                               char **out, size_t *out_len)
{
    struct stat before, after;
    char *text = NULL;
    size_t len = 0;
    weft_err err = WEFT_ERR_OK;
    if (fstat(fd, &before) != 0)
        err = weft_file_report(diag, path, "stat", errno);
    else if (!S_ISREG(before.st_mode))
        err =
            weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path}, "not a regular file");
    if (err == WEFT_ERR_OK)
        err = weft_file__read_fd(fd, path, limit_bytes, diag, &text, &len);
    if (err == WEFT_ERR_OK && (fstat(fd, &after) != 0 || !is_unchanged(&before, &after)))
        err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path},
                              "the file is being written while it is read");
    close(fd);
    if (err != WEFT_ERR_OK) {
        free(text);
        return err;
    }
    *out = text;
    *out_len = len;
    return WEFT_ERR_OK;
}
