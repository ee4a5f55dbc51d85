/* Threads of the CPU driver: one team for each thread that runs sessions.
 *
 * A job is a number of parts. The caller and the helper threads of its team claim parts until none
 * is left: a helper that the system does not schedule delays a job only if it has claimed a part.
 * Helpers spin for a short time after a job and sleep then; where they find that other processes
 * use their CPUs, they sleep at once.
 *
 * A job with at most as many parts as the team has threads may contain barriers, because every part
 * then has a thread of its own. oneDNN's parallel regions are such jobs (cpu_omp.c).
 *
 * All functions concern the calling thread. */
#ifndef WEFT_RUNTIME_CPU_CPU_TEAM_H
#define WEFT_RUNTIME_CPU_CPU_TEAM_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_TEAM_THREADS_MAX = 1024 };

typedef void (*weft_team_fn)(void *cx, uint32_t part);

/* Between both calls the thread may run jobs on up to `threads` threads, itself included. */
void weft_team_begin(uint32_t threads);
void weft_team_end(void);
/* Threads that the next job may use; 0 outside of begin and end, 1 within a job. */
uint32_t weft_team_threads(void);
/* Sets that number until `end`; returns the previous one. For primitives of little work. */
uint32_t weft_team_limit(uint32_t threads);

/* Whether a thread of the team was preempted lately. */
bool weft_team_is_busy(void);

/* Calls fn(cx, part) for each part in [0, parts) on up to `threads` threads and waits. Within a job
 * the parts run one after the other. false: threads cannot be created, and nothing was run. */
bool weft_team_run(weft_team_fn fn, void *cx, uint32_t parts, uint32_t threads);
/* The same in two calls: `start` claims part 0 for the caller, which executes it itself, and `join`
 * executes what is left and waits. */
bool weft_team_start(weft_team_fn fn, void *cx, uint32_t parts);
void weft_team_join(void);

/* Within a job: the part that the thread executes, and the number of parts. Otherwise 0 and 1. */
uint32_t weft_team_part(void);
uint32_t weft_team_parts(void);
/* Index of the thread in its team: below the `threads` of the job; the caller's is 0. */
uint32_t weft_team_self(void);
/* Waits until every part of the job has called it. */
void weft_team_barrier(void);
/* The sticky flag of the floating-point units for an invalid operation, such as a comparison or a
 * maximum of NaN: cleared, and read, for the thread and for what helpers have done for it. */
void weft_team_clear_invalid(void);
bool weft_team_is_invalid(void);
/* Whether this processor's flag is known here; if not, it is never raised. */
bool weft_team_has_invalid(void);
/* Ends the helpers of the calling thread: new ones inherit its CPU set. */
void weft_team_reset(void);

#endif
