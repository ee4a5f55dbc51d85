/* The command `weft`: finds the verb and runs it. */
#include "codegen/codegen.h"
#include "runtime/runtime.h"
#include "tools/common/tools.h"

#include <signal.h>
#include <string.h>

#ifndef WEFT_VERSION
#define WEFT_VERSION "0.1.0"
#endif

static const weft_verb *const verbs[] = {
#define VERB(name) &weft_verb_##name,
#include "tools/verbs.def"
#undef VERB
};

enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void print_help(FILE *f)
{
    fputs("usage: weft VERB [OPTIONS] [ARGUMENTS]\n"
          "Compiles sets of ONNX models for shared devices, and serves them.\n\n",
          f);
    for (size_t i = 0; i < N_VERBS; i++)
        fprintf(f, "  %-9s %s\n", verbs[i]->name, verbs[i]->brief);
    fputs("\n`weft VERB --help` tells more. Exit codes: 0 done, 1 failed, 2 wrong usage,\n"
          "3 infeasible, 4 differs.\n",
          f);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
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
    /* What `weft serve` runs once for each slice; no verb for people. */
    if (strcmp(name, "--worker") == 0)
        return weft_worker_main(argc, argv);
    /* What `weft compile` runs for each module of kernels. */
    if (strcmp(name, WEFT_CODEGEN_WORKER) == 0)
        return weft_codegen_worker(argv);
    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(verbs[i]->name, name) != 0)
            continue;
        int code = verbs[i]->run(argc - 1, argv + 1);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            perror("weft: standard output");
            return code ? code : WEFT_EXIT_FAILED;
        }
        return code;
    }
    fprintf(stderr, "weft: no verb '%s'; `weft --help` lists them\n", name);
    return WEFT_EXIT_USAGE;
}
