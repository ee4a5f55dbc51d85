/* The programs of Weft. `weft` is the command that users type; it replaces itself by the program
 * that has the verb: weft-compiler, weft-planner or weft-server (verbs.def). Each is a program of
 * its own so that it links, and is distributed with, only the libraries that it needs (see NOTICE).
 */
#ifndef WEFT_TOOLS_PROGRAMS_H
#define WEFT_TOOLS_PROGRAMS_H

#include "tools/common/tools.h"

enum { WEFT_PROGRAM_PATH_MAX = 4096 };

/* The executable file of `program` ("weft-server"): in the folder that the environment variable
 * WEFT_LIBEXEC names, if it is set; else in the folder of the running executable, else in
 * ../libexec/weft of that folder. False: there is none, and a message was printed. */
bool weft_program_find(const char *program, char out[WEFT_PROGRAM_PATH_MAX]);

/* The main function of a program: runs the verb argv[1] of the list, which NULL ends. Returns an
 * exit code. */
int weft_program_run(const char *program, const weft_verb *const *verb, int argc, char **argv);

#endif
