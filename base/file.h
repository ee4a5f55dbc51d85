/* Files: mapped read-only, written atomically, and opened strictly below a folder. */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include "base/diag.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_file {
    const uint8_t *at;
    uint64_t len;
} weft_file;

/* Whether there is one; symbolic links are followed. */
bool weft_file_is_folder(const char *path);
bool weft_file_is_regular(const char *path);
/* Removes a folder and the files in it; not if it has folders. */
void weft_file_remove_folder(const char *path);
/* Maps a regular file (private, read-only). A file that shrinks later raises SIGBUS: callers that
 * serve copy what must survive. `path` "-" is not special. */
WEFT_MUST_USE weft_err weft_file_map(const char *path, weft_diag *diag, weft_file *out);
/* The same for a descriptor, which stays open; `path` is for messages. */
WEFT_MUST_USE weft_err weft_file_map_fd(int fd, const char *path, weft_diag *diag, weft_file *out);
void weft_file_unmap(weft_file *file);
/* Releases the memory of these bytes; the next access reads them from the file again. Without
 * effect when the bytes are not inside the mapping. */
void weft_file_drop(const weft_file *file, const void *at, uint64_t bytes);

/* Opens a regular file so that its bytes cannot change while the descriptor is open, whoever
 * overwrites or truncates the file: a descriptor of the file itself on a file system that has
 * no writers (squashfs, erofs, ...), else of an unnamed copy (a clone of its blocks, or a copy, in
 * its folder or the folder of temporary files; or a sealed memory file). Read-only and closed by
 * exec. */
WEFT_MUST_USE weft_err weft_file_freeze(const char *path, weft_diag *diag, int *out_fd);
/* The same for a file that is open, which is closed; `path` is for messages, and the copy is made
 * in its folder. */
WEFT_MUST_USE weft_err weft_file_freeze_fd(int fd, const char *path, weft_diag *diag, int *out_fd);
/* A new file without a name, in the folder or, where that is NULL or has no such files, the folder
 * of temporary files, or in memory: a descriptor to write, and one that can only read. */
WEFT_MUST_USE weft_err weft_file_make_unnamed(const char *folder, weft_diag *diag, int *out_write,
                                              int *out_read);
/* The same without protection: the file itself. */
WEFT_MUST_USE weft_err weft_file_open(const char *path, weft_diag *diag, int *out_fd);

/* Opens `rel` below folder `dir`: relative, no "..", no NUL, no backslash, no symbolic link in any
 * component. Uses openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS); where the kernel lacks it, walks
 * the components with O_NOFOLLOW. */
WEFT_MUST_USE weft_err weft_file_open_beneath(const char *dir, const char *rel, weft_diag *diag,
                                              int *out_fd);

/* Maps such a file: a regular one with one hard link. The opened descriptor is what is checked. */
WEFT_MUST_USE weft_err weft_file_map_beneath(const char *dir, const char *rel, weft_diag *diag,
                                             weft_file *out);

/* The same for a file with any number of hard links. */
WEFT_MUST_USE weft_err weft_file_map_beneath_linked(const char *dir, const char *rel,
                                                    weft_diag *diag, weft_file *out);

/* Reads a whole file (or standard input for "-") into a heap buffer, owned, NUL behind it.
 * Over `limit_bytes`: NOMEM with a message. */
WEFT_MUST_USE weft_err weft_file_read(const char *path, uint64_t limit_bytes, weft_diag *diag,
                                      char **out, size_t *out_len);

/* Reads a whole regular file that is open, and closes it. IO: somebody wrote to it meanwhile.
 * `path` is for messages. */
WEFT_MUST_USE weft_err weft_file_read_stable(int fd, const char *path, uint64_t limit_bytes,
                                             weft_diag *diag, char **out, size_t *out_len);

/* Adds a message, "cannot VERB", with the text and name of an errno. Returns NOMEM or IO. */
weft_err weft_file_report(weft_diag *diag, const char *path, const char *verb, int code);
/* Reads exactly `len` bytes from a descriptor; false: it ends before, or cannot be read. */
bool weft_file_get(int fd, void *to, size_t len);
/* The same at an offset of its file: 0 or an errno, ENODATA where the file ends before. */
int weft_file_get_at(int fd, void *to, size_t len, uint64_t offset);
/* Writes all bytes to a descriptor; 0 or an errno. */
int weft_file_put(int fd, const void *bytes, size_t len);
/* The same at an offset of its file. */
int weft_file_put_at(int fd, const void *bytes, size_t len, uint64_t offset);
/* The descriptor of a file in memory that has these bytes; -1: no memory. `name` is for /proc. */
int weft_file_make(const char *name, const void *bytes, size_t len);

/* Writes to a temporary file beside `path` and renames it, so that no reader sees half a file;
 * "-" writes to standard output. */
WEFT_MUST_USE weft_err weft_file_write(const char *path, const void *bytes, size_t len,
                                       weft_diag *diag);

/* The same for bytes in several buffers. */
typedef struct weft_span {
    const void *at;
    size_t len;
} weft_span;

WEFT_MUST_USE weft_err weft_file_write_spans(const char *path, const weft_span *span, size_t n,
                                             weft_diag *diag);
/* The same, and nobody but the user may read or write the file, whatever the umask and the file
 * before allow. */
WEFT_MUST_USE weft_err weft_file_write_private(const char *path, const weft_span *span, size_t n,
                                               weft_diag *diag);

#endif
