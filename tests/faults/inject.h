/* What the injector (inject.c) and the program that drives it (faults.py) share: the layout of the
 * file that WEFT_FAULT_STATE names. All processes of one run map it. Numbers are little-endian. */
#ifndef WEFT_TESTS_FAULTS_INJECT_H
#define WEFT_TESTS_FAULTS_INJECT_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    INJECT_FRAMES = 12,
    INJECT_CALL_BYTES = 24,
    INJECT_HEAD_BYTES = 256,
    INJECT_NOTHING = 100,
    INJECT_COUNT
};

/* One call that could fail, as WEFT_FAULT=count records it. */
typedef struct inject_point {
    uint32_t kind;  /* inject_kind */
    uint32_t stack; /* hash of the innermost return addresses inside the program */
} inject_point;

typedef struct inject_state {
    _Atomic uint64_t calls;    /* of the kinds and the stack that WEFT_FAULT names */
    _Atomic uint64_t injected; /* failures */
    /* The first failure: its process, its call and the return addresses inside the program, as
     * offsets from its start. */
    int64_t pid;
    char call[INJECT_CALL_BYTES];
    uint64_t frame[INJECT_FRAMES];
    /* With WEFT_FAULT=live: what is to fail, or INJECT_COUNT, or INJECT_NOTHING. The driver writes
     * `live_mode` last, with `calls` and `injected` set to 0. */
    _Atomic uint32_t live_mode;
    uint32_t live_kind, live_stack, live_nth;
    _Alignas(INJECT_HEAD_BYTES) inject_point point[]; /* to the end of the file */
} inject_state;

#endif
