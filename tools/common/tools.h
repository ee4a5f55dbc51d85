/* What the verbs of the command line share: exit codes, messages, small parsers. Of all code only
 * tools/ prints, reads the clock and may use every layer. */
#ifndef WEFT_TOOLS_TOOLS_H
#define WEFT_TOOLS_TOOLS_H

#include "base/arena.h"
#include "base/diag.h"
#include "tools/common/progress.h"

#include <stdbool.h>
#include <stdio.h>

/* Exit codes: a contract. */
enum {
    WEFT_EXIT_DONE = 0,
    WEFT_EXIT_FAILED = 1,
    WEFT_EXIT_USAGE = 2,
    WEFT_EXIT_INFEASIBLE = 3,
    WEFT_EXIT_DIFFERS = 4
};

typedef struct weft_option weft_option; /* tools/common/options.h */

/* A verb: row of verbs.def. argv[0] is the verb's name. run() returns an exit code. */
typedef struct weft_verb {
    const char *name;
    const weft_option *row; /* its part of options.def */
    int (*run)(int argc, char **argv);
    bool takes_names; /* arguments that are no options are no files that run() reads */
} weft_verb;

#define VERB(name, program, brief) extern const weft_verb weft_verb_##name;
#include "tools/verbs.def"
#undef VERB

/* Ends the phase that is shown, prints all messages to standard error, "error: ..." (coloured on a
 * terminal unless NO_COLOR), and returns the exit code for `err`. */
int weft_tool_report(const weft_diag *diag, weft_err err);
/* Returns the text of the first error, in `arena`, and clears the list: a failure that a report
 * shows is no error of the verb. */
const char *weft_tool_take_reason(weft_diag *diag, weft_err err, weft_arena *arena);
/* Prints "weft VERB: text" and a hint at --help to standard error; returns WEFT_EXIT_USAGE. */
int weft_tool_usage(const weft_verb *verb, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* ", did you mean WORD?", or ""; `near` may be NULL. Valid until the next call. */
const char *weft_tool_hint(const char *near);
/* Name of the row of a device; NULL after a message of wrong usage. */
const char *weft_tool_find_device(const weft_verb *verb, const char *name);
/* --gpu of every verb (weft_option_take): the name of the device's row goes to the const char *
 * `at`. */
int weft_tool_take_device(void *at, const weft_verb *verb, char *arg);
/* Whether to write colours to a stream: it is a terminal and NO_COLOR is not set. */
bool weft_tool_has_color(FILE *stream);
/* Parses "1,2,4", at most `max` positive numbers; returns the count, 0: the text is wrong. */
size_t weft_tool_parse_list(const char *text, int64_t *out, size_t max);
double weft_tool_now_ms(void);
/* Returns the resident memory of this process; 0: unknown. */
uint64_t weft_tool_resident_bytes(void);
/* Writes "12.3 MB" to `buf` (at least 32 bytes); returns buf. */
const char *weft_tool_bytes(uint64_t bytes, char *buf);

/* Whether both name one file that has contents. */
bool weft_tool_is_same_file(const char *a, const char *b);
/* Creates an empty file in TMPDIR whose name begins with `stem`; the caller unlinks it. IO: no
 * file can be created. */
WEFT_MUST_USE weft_err weft_tool_make_temporary(const char *stem, weft_arena *arena,
                                                weft_diag *diag, const char **out);

/* Kind of a file, by its first bytes. */
typedef enum weft_file_kind { WEFT_FILE_ONNX, WEFT_FILE_TEXT, WEFT_FILE_BUNDLE } weft_file_kind;
WEFT_MUST_USE weft_err weft_tool_sniff(const char *path, weft_diag *diag, weft_file_kind *out);
/* Whether the first bytes of a file are those of text IR. */
bool weft_tool_is_text(const char *bytes, size_t len);

#endif
