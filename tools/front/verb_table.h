/* Verbs and their command lines as the command `weft` sees them: texts only. */
#ifndef WEFT_TOOLS_VERB_TABLE_H
#define WEFT_TOOLS_VERB_TABLE_H

#include "tools/common/options.h"

/* Row of verbs.def with its rows of options.def. */
typedef struct weft_verb_row {
    const char *name, *program, *brief; /* `program`: "weft-server" */
    const weft_option *option;          /* kinds other than USAGE, ABOUT and HEADING do not count */
} weft_verb_row;

/* i-th verb, NULL behind the last. */
const weft_verb_row *weft_verb_row_at(size_t i);
const weft_verb_row *weft_verb_row_find(const char *name);

/* Prints the completions of a shell (bash, zsh, fish); false: no such shell. */
bool weft_completions_print(const char *shell, FILE *to);
/* Prints the manual page of a verb, or of the command itself (NULL), for man(1). */
void weft_manual_print(const weft_verb_row *verb, const char *version, FILE *to);

#endif
