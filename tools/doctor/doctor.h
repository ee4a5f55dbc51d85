/* What this machine is ready for: the checks of `weft doctor`. They read, and change nothing. */
#ifndef WEFT_TOOLS_DOCTOR_H
#define WEFT_TOOLS_DOCTOR_H

#include "base/arena.h"
#include "base/diag.h"

/* What a machine can be used for: USE(ID, NAME, TEXT). */
#define WEFT_DOCTOR_USES(USE)                                 \
    USE(CPU, "cpu", "run and serve on CPUs")                  \
    USE(COMPILE, "compile", "compile for GPUs")               \
    USE(GPU, "gpu", "run and serve on GPUs")                  \
    USE(MIG, "mig", "serve plans with MIG instances")         \
    USE(MPS, "mps", "serve plans with shares of GPUs by MPS") \
    USE(GREEN, "green", "shares of GPUs by green contexts")   \
    USE(TIMES, "times", "times of launches without gaps, by CUPTI")

enum {
#define USE(id, name, text) WEFT_DOCTOR_INDEX_##id,
    WEFT_DOCTOR_USES(USE)
#undef USE
        WEFT_DOCTOR_N_USE
};
enum {
#define USE(id, name, text) WEFT_DOCTOR_##id = 1 << WEFT_DOCTOR_INDEX_##id,
    WEFT_DOCTOR_USES(USE)
#undef USE
        WEFT_DOCTOR_ON_GPU = WEFT_DOCTOR_GPU | WEFT_DOCTOR_MIG | WEFT_DOCTOR_MPS |
                             WEFT_DOCTOR_GREEN | WEFT_DOCTOR_TIMES
};

typedef enum weft_doctor_state {
    WEFT_DOCTOR_OK,
    WEFT_DOCTOR_NOTE,   /* works, but less well than it could, or is not here and not needed */
    WEFT_DOCTOR_MISSING /* something that should work does not */
} weft_doctor_state;

typedef struct weft_doctor_check {
    const char *item, *text, *remedy; /* remedy NULL: none needed, or none known */
    weft_doctor_state state;
    uint32_t blocks; /* WEFT_DOCTOR_* uses that are not possible because of it */
} weft_doctor_check;

typedef struct weft_doctor {
    weft_arena *arena;
    const char *root; /* before the paths of /proc, /sys and /dev; "": this system */
    WEFT_VEC(weft_doctor_check) check;
} weft_doctor;

const char *weft_doctor_use_name(uint32_t i); /* NULL if i is no use */
const char *weft_doctor_use_text(uint32_t i);
/* The uses that no check blocks. */
uint32_t weft_doctor_ready(const weft_doctor *d);

/* Adds the checks of doctor_cpu.c, and of doctor_gpu.c. Errors: NOMEM, and those of reading the
 * machine; what a check finds is no error. */
WEFT_MUST_USE weft_err weft_doctor_check_cpu(weft_doctor *d);
WEFT_MUST_USE weft_err weft_doctor_check_gpus(weft_doctor *d, weft_diag *diag);

/* -- For the checks (doctor.c) -------------------------------------------------------------- */

/* Adds a check; the text is printf's. */
void weft_doctor__add(weft_doctor *d, const char *item, weft_doctor_state state, uint32_t blocks,
                      const char *remedy, const char *fmt, ...) WEFT_PRINTF(6, 7);
/* The path below the root, in the arena. */
const char *weft_doctor__path(const weft_doctor *d, const char *path);
/* What follows `key` and its colon in a file of lines "key : value"; NULL: not there. */
const char *weft_doctor__value(const weft_doctor *d, const char *path, const char *key);

#endif
