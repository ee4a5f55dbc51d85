/* The other end of WEFT_FAULT=fork (inject.c): at each call that could fail the program asks the
 * program that drives it (faults.py) what to try, over a socket that WEFT_FAULT_DRIVER numbers, and
 * forks for each try. */
#ifndef WEFT_TESTS_FAULTS_INJECT_FORK_H
#define WEFT_TESTS_FAULTS_INJECT_FORK_H

#include <stdbool.h>
#include <stdint.h>

enum { INJECT_FOLDER_BYTES = 252 };

/* What the program sends: a call that could fail, or (kind 0) how the try ended. */
typedef struct inject_ask {
    uint32_t kind;  /* inject_kind */
    uint32_t stack; /* as in inject_point */
    int32_t status; /* of waitpid, after a try */
} inject_ask;

/* What it receives. */
typedef struct inject_order {
    int32_t mode; /* inject_mode of the try, -1: go on */
    char folder[INJECT_FOLDER_BYTES];
} inject_order;

/* Forks as the driver orders. True: in a process for one try, which has moved to the order's
 * folder. There every file that was open in the folder before is its copy of that name in the new
 * one, and no descriptor has its position in common with the parent. False: in the parent, nothing
 * is left to try. The process may have one thread only. */
bool inject_fork_tries(int driver, uint32_t kind, uint32_t stack, inject_order *order);

#endif
