/* Programs that the server runs beside itself: the compiler and the planner, whose libraries it
 * does not link. */
#ifndef WEFT_TOOLS_SERVE_CHILD_H
#define WEFT_TOOLS_SERVE_CHILD_H

#include "base/arena.h"
#include "base/diag.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

enum { WEFT_CHILD_ARGS_MAX = 32 };

/* A command line, which ends with a NULL. Zero-initialised: empty. */
typedef struct weft_child {
    char *argv[WEFT_CHILD_ARGS_MAX];
    size_t n;
} weft_child;

/* Adds an option with its value, or, with `name` NULL, an argument; nothing if `value` is NULL. The
 * texts are borrowed. */
void weft_child_add(weft_child *child, const char *name, const char *value);
/* Begins a command line with the path of a program of Weft and its verb. IO: the program is
 * missing, which `needs` (an option of the user) needs. */
WEFT_MUST_USE weft_err weft_child_begin(const char *program, const char *verb, const char *needs,
                                        weft_arena *arena, weft_diag *diag, weft_child *out);
/* Becomes the program, in a process that was forked: signals as in a new process, and an end with
 * the parent. */
void weft_child_become(const weft_child *child, pid_t parent);
/* Runs it. Exit code; -1: it was not started, or was killed. */
int weft_child_run(const weft_child *child);

/* Lets one thread end what another one runs. Zero-initialised, but for the lock. */
typedef struct weft_child_watch {
    pthread_mutex_t lock;
    pid_t pid; /* 0: nothing runs */
    bool ends; /* nothing more is to run */
} weft_child_watch;

/* As weft_child_run, until weft_child_stop, or a signal to end (SIGTERM, SIGINT) that is blocked;
 * any thread. */
int weft_child_run_watched(const weft_child *child, weft_child_watch *watch);
void weft_child_stop(weft_child_watch *watch);

#endif
