/* weft-planner: the verbs that make, simulate and export plans, and the controller of a running
 * server. */
#include "tools/common/programs.h"
#include "tools/planner/cmd_plan.h"

static const weft_verb *const verbs[] = {
#define VERB_compiler(name)
#define VERB_planner(name) &weft_verb_##name,
#define VERB_transfer(name)
#define VERB_server(name)
#define VERB(name, program, brief) VERB_##program(name)
#include "tools/verbs.def"
#undef VERB
    &weft_tool_control, NULL};

int main(int argc, char **argv)
{
    return weft_program_run("weft-planner", verbs, argc, argv);
}
