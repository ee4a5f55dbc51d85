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
/* Lets one thread end what another one runs. Zero-initialised, but for the lock. */
typedef struct weft_child_watch {
    pthread_mutex_t lock;
    pid_t pid;         /* 0: nothing runs */
    bool ends;         /* nothing more is to run */
    bool by_stop_only; /* a signal to end the server does not end what runs */
} weft_child_watch;

/* Runs it until it ends, by weft_child_stop too, or by a signal to end the server (SIGTERM, SIGINT)
 * that is blocked. Exit code; -1: it was not started, or was killed. Any thread. */
int weft_child_run(const weft_child *child, weft_child_watch *watch);
void weft_child_stop(weft_child_watch *watch);
bool weft_child_is_stopped(weft_child_watch *watch);
/* Waits. false: no longer, or not at all, because nothing more is to run. */
bool weft_child_pause(weft_child_watch *watch, int ms);

#endif
