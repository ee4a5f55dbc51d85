/* The report of `weft compile` (docs/compile-report.md has the keys): written as JSON or text,
 * and read by `weft bench`, which adds measurements. */
#ifndef WEFT_TOOLS_REPORT_FILE_H
#define WEFT_TOOLS_REPORT_FILE_H

#include "base/diag.h"

#include <jansson.h>
#include <stdbool.h>

/* Stands for infinity, which JSON does not have. */
#define WEFT_REPORT_NO_NUMBER 1e300

/* Reads a report; the caller owns *out. INPUT: the file is no report. */
WEFT_MUST_USE weft_err weft_tool_read_report(const char *path, weft_diag *diag, json_t **out);
/* Writes a report; `path` "-" is standard output. */
WEFT_MUST_USE weft_err weft_tool_save_report(const json_t *root, const char *path, bool json,
                                             weft_diag *diag);

#endif
