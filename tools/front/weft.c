/* weft: the command that users type. Replaces itself by the program that has the verb, so that exit
 * codes and signals are those of the program. Links no library. */
#include "tools/common/programs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#ifndef WEFT_VERSION
#define WEFT_VERSION "0.1.0"
#endif

typedef struct row {
    const char *verb, *program, *brief;
} row;

static const row rows[] = {
#define VERB(name, program, brief) {#name, "weft-" #program, brief},
#include "tools/verbs.def"
#undef VERB
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static void print_help(FILE *f)
{
    fputs("usage: weft VERB [OPTIONS] [ARGUMENTS]\n"
          "Compiles sets of ONNX models for shared devices, and serves them.\n\n",
          f);
    for (size_t i = 0; i < N_ROWS; i++)
        fprintf(f, "  %-9s %s\n", rows[i].verb, rows[i].brief);
    fputs("\n`weft VERB --help` tells more. Exit codes: 0 done, 1 failed, 2 wrong usage,\n"
          "3 infeasible, 4 differs.\n",
          f);
}

static int run_program(const char *program, char **argv)
{
    char path[WEFT_PROGRAM_PATH_MAX];
    if (!weft_program_find(program, path))
        return WEFT_EXIT_FAILED;
    execv(path, argv);
    fprintf(stderr, "weft: cannot execute %s: %s\n", path, strerror(errno));
    return WEFT_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return WEFT_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return WEFT_EXIT_DONE;
    }
    if (strcmp(name, "--version") == 0) {
        puts("weft " WEFT_VERSION);
        return WEFT_EXIT_DONE;
    }
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].verb, name) == 0)
            return run_program(rows[i].program, argv);
    fprintf(stderr, "weft: no verb '%s'; `weft --help` lists them\n", name);
    return WEFT_EXIT_USAGE;
}
