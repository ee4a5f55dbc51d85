/* weft-transfer: the verbs that move bundles to and from stores. A program of its own, so that only
 * it links libcurl and what that brings in. */
#include "tools/common/programs.h"

static const weft_verb *const verbs[] = {
#define VERB_compiler(name)
#define VERB_planner(name)
#define VERB_server(name)
#define VERB_transfer(name)        &weft_verb_##name,
#define VERB(name, program, brief) VERB_##program(name)
#include "tools/verbs.def"
#undef VERB
    NULL};

int main(int argc, char **argv)
{
    return weft_program_run("weft-transfer", verbs, argc, argv);
}
