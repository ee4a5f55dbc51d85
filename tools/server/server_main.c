/* weft-server: the verbs that execute bundles, and the workers that `weft serve` starts. */
#include "runtime/server/server.h"
#include "tools/common/programs.h"

#include <string.h>

static const weft_verb *const verbs[] = {
#define VERB_compiler(name)
#define VERB_planner(name)
#define VERB_transfer(name)
#define VERB_server(name)          &weft_verb_##name,
#define VERB(name, program, brief) VERB_##program(name)
#include "tools/verbs.def"
#undef VERB
    NULL};

int main(int argc, char **argv)
{
    /* `weft serve` runs itself in this way, once for each slice. */
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return weft_worker_main(argc, argv);
    return weft_program_run("weft-server", verbs, argc, argv);
}
