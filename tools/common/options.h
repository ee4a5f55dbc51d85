/* Command lines as tables. The rows of a verb stand in tools/options.def; parsing, --help,
 * completions and manual pages are made from them. */
#ifndef WEFT_TOOLS_OPTIONS_H
#define WEFT_TOOLS_OPTIONS_H

#include "tools/common/tools.h"

#include <stddef.h>

/* Kind of a row; for an option: how its argument is read and what type the member has. */
typedef enum weft_option_kind {
    WEFT_OPTION_END,
    WEFT_OPTION_USAGE,   /* `help`: arguments of the verb; several rows: several forms */
    WEFT_OPTION_ABOUT,   /* `help`: what the verb does */
    WEFT_OPTION_HEADING, /* `help`: line above the options that follow */
    WEFT_OPTION_FLAG,    /* bool; no argument */
    WEFT_OPTION_TEXT,    /* const char *, points into argv */
    WEFT_OPTION_COUNT,   /* uint64_t from lo to hi */
    WEFT_OPTION_COUNT32, /* uint32_t from lo to hi */
    WEFT_OPTION_NUMBER,  /* double from lo to hi */
    WEFT_OPTION_SECONDS, /* double: a duration such as 30s or 2ms, in seconds */
    WEFT_OPTION_SECOND,  /* bool: whether the argument is the second word of `arg` */
    WEFT_OPTION_CALL     /* take() */
} weft_option_kind;

/* Stores the argument `arg` in the member `at`. Returns 0, or an exit code after a message. */
typedef int weft_option_take(void *at, const weft_verb *verb, char *arg);

struct weft_option {
    weft_option_kind kind;
    const char *name; /* without dashes; NULL: the row is no option */
    char letter;      /* of the short form; 0: none */
    const char *arg;  /* name of the argument, or its words "text|json"; NULL: takes none */
    const char *help;
    size_t at; /* offset of the member of the verb's options */
    double lo, hi;
    weft_option_take *take;
    bool reads, writes; /* of TEXT: the argument is a file that the verb reads, or replaces */
};

/* Reads the options of argv into the struct `options`; the rows of the verb name its members. A
 * file that is read and would be written, too, is refused. Arguments that are no options follow
 * from argv[optind] on. Returns -1 to go on; or an exit code when --help was printed or a message
 * was. */
int weft_options_parse(const weft_verb *verb, int argc, char **argv, void *options);
/* The same for a verb with exactly one argument that is no option, called `what` in the message
 * ("bundle"); it goes to *out. */
int weft_options_parse_one(const weft_verb *verb, int argc, char **argv, void *options,
                           const char *what, const char **out);
/* --quiet of every verb that has it (weft_option_take): no progress is shown. */
int weft_tool_take_quiet(void *at, const weft_verb *verb, char *arg);
/* Writes the text of --help. */
void weft_options_print(const char *verb, const weft_option *row, FILE *to);
/* Returns the i-th word of an argument "first|second" and its length, which is 0 behind the last
 * word; NULL: `arg` is the name of an argument, not a list of words. */
const char *weft_options_word(const char *arg, size_t i, size_t *out_len);

#endif
