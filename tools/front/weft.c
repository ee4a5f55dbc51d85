/* weft: the command that users type. Replaces itself by the program that has the verb, so that exit
 * codes and signals are those of the program. Links no library. */
#include "base/nearest.h"
#include "tools/common/programs.h"
#include "tools/front/verb_table.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#ifndef WEFT_VERSION
#define WEFT_VERSION "0.1.0"
#endif

static void print_help(FILE *f)
{
    fputs("usage: weft VERB [OPTIONS] [ARGUMENTS]\n"
          "Compiles sets of ONNX models for shared devices, and serves them.\n\n",
          f);
    for (size_t i = 0; weft_verb_row_at(i); i++)
        fprintf(f, "  %-9s %s\n", weft_verb_row_at(i)->name, weft_verb_row_at(i)->brief);
    fputs("\n`weft VERB --help` explains a verb. Exit codes: 0 done, 1 failed, 2 wrong usage,\n"
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

/* -- Options of the command itself ------------------------------------------------------------ */

static int take_help(const char *arg)
{
    (void)arg;
    print_help(stdout);
    return WEFT_EXIT_DONE;
}

static int take_version(const char *arg)
{
    (void)arg;
    puts("weft " WEFT_VERSION);
    return WEFT_EXIT_DONE;
}

/* For packages: the build writes completions and manual pages with these two. */
static int take_completions(const char *shell)
{
    if (shell && weft_completions_print(shell, stdout))
        return WEFT_EXIT_DONE;
    fputs("weft: --completions takes bash, zsh or fish\n", stderr);
    return WEFT_EXIT_USAGE;
}

static int take_man(const char *name)
{
    const weft_verb_row *verb = name ? weft_verb_row_find(name) : NULL;
    if (name && !verb) {
        fprintf(stderr, "weft: --man takes a verb, not '%s'\n", name);
        return WEFT_EXIT_USAGE;
    }
    weft_manual_print(verb, WEFT_VERSION, stdout);
    return WEFT_EXIT_DONE;
}

static const struct {
    const char *name;
    int (*run)(const char *arg); /* NULL: no argument was given */
} options[] = {{"--help", take_help},
               {"-h", take_help},
               {"help", take_help},
               {"--version", take_version},
               {"--completions", take_completions},
               {"--man", take_man}};

static const char *verb_at(size_t i, const void *user)
{
    (void)user;
    return weft_verb_row_at(i) ? weft_verb_row_at(i)->name : NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return WEFT_EXIT_USAGE;
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (strcmp(options[i].name, argv[1]) == 0) {
            int code = options[i].run(argv[2]);
            return fflush(stdout) == 0 ? code : WEFT_EXIT_FAILED;
        }
    const weft_verb_row *verb = weft_verb_row_find(argv[1]);
    if (verb)
        return run_program(verb->program, argv);
    fprintf(stderr, "weft: no verb '%s'%s; `weft --help` lists the verbs\n", argv[1],
            weft_tool_hint(weft_nearest(argv[1], verb_at, NULL)));
    return WEFT_EXIT_USAGE;
}
