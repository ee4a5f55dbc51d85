/* The programs of Weft. `weft` is the command that users type; it replaces itself by the program
 * that has the verb: weft-compiler, weft-planner, weft-server or weft-transfer (verbs.def). Each is
 * a program of its own so that it links, and is distributed with, only the libraries that it needs
 * (see NOTICE).
 */
#ifndef WEFT_TOOLS_PROGRAMS_H
#define WEFT_TOOLS_PROGRAMS_H

#include "tools/common/tools.h"

enum { WEFT_PROGRAM_PATH_MAX = 4096 };

/* Finds the executable file of `program` ("weft-server"): in the folder that the environment
 * variable WEFT_LIBEXEC names, if it is set; else in the folder of the running executable; else
 * in ../libexec/weft relative to that folder. Returns false after a message if the program is
 * missing. */
bool weft_program_find(const char *program, char out[WEFT_PROGRAM_PATH_MAX]);

/* Main function of a program: runs the verb argv[1] of `verb`, a list that ends with NULL.
 * Returns an exit code. */
int weft_program_run(const char *program, const weft_verb *const *verb, int argc, char **argv);

#endif
