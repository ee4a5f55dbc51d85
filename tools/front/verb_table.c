/* Verbs and their command lines, from verbs.def and options.def. */
#include "tools/front/verb_table.h"

#include <string.h>

#define OPTIONS_OF_ALL
/* clang-format off */
#define BEGIN(verb)   static const weft_option rows_##verb[] = {
#define USAGE(text)   {.kind = WEFT_OPTION_USAGE, .help = text},
#define ABOUT(text)   {.kind = WEFT_OPTION_ABOUT, .help = text},
#define HEADING(text) {.kind = WEFT_OPTION_HEADING, .help = text},
#define OPTION(long_name, short_name, argument, action, text) \
    {.kind = WEFT_OPTION_TEXT,                                \
     .name = long_name,                                       \
     .letter = short_name,                                    \
     .arg = argument,                                         \
     .help = text},
#define END {.kind = WEFT_OPTION_END}};
/* clang-format on */
#include "tools/options.def"

static const weft_verb_row verbs[] = {
#define VERB(name, program, brief) {#name, "weft-" #program, brief, rows_##name},
#include "tools/verbs.def"
#undef VERB
};

enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

const weft_verb_row *weft_verb_row_at(size_t i)
{
    return i < N_VERBS ? &verbs[i] : NULL;
}

const weft_verb_row *weft_verb_row_find(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}
