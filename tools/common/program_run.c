/* The main function of the programs that have the verbs. */
#include "tools/common/programs.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- Memory ----------------------------------------------------------------------------------- */

/* Nothing of an output was written: files appear whole (base/file.h), and what standard output
 * holds back is dropped. */
static WEFT_NORETURN void end_without_memory(void)
{
    static const char text[] = "error: out of memory\n";
    ssize_t done = write(STDERR_FILENO, text, sizeof text - 1);
    (void)done;
    _exit(WEFT_EXIT_FAILED);
}

/* jansson leaves out of its documents what it has no memory for. */
static void *alloc_json(size_t size)
{
    void *at = malloc(size);
    if (!at)
        end_without_memory();
    return at;
}

/* -- Verbs ------------------------------------------------------------------------------------ */

int weft_program_run(const char *program, const weft_verb *const *verb, int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* so that the limit (ulimit -f) is an error that names the file */
    weft_arena_on_exhausted(end_without_memory);
    json_set_alloc_funcs(alloc_json, free);
    for (; argc > 1 && *verb; verb++) {
        if (strcmp((*verb)->name, argv[1]) != 0)
            continue;
        int code = (*verb)->run(argc - 1, argv + 1);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            if (errno != EPIPE) /* whoever reads has enough: nothing to tell */
                perror("weft: standard output");
            return code ? code : WEFT_EXIT_FAILED;
        }
        return code;
    }
    fprintf(stderr, "%s: no verb '%s'; `weft --help` lists the verbs\n", program,
            argc > 1 ? argv[1] : "");
    return WEFT_EXIT_USAGE;
}
