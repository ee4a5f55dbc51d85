/* What the verbs that export plans share: options, plans read with their demands, and the folder
 * with the files. */
#ifndef WEFT_TOOLS_EXPORT_FOLDER_H
#define WEFT_TOOLS_EXPORT_FOLDER_H

#include "scheduler/scheduler.h"
#include "tools/common/tools.h"

enum { WEFT_TOOL_SBATCH_MAX = 32 };

/* EXPORT_ROWS of options.def. */
typedef struct weft_tool_export {
    weft_export_options o;
    const char *nodes; /* file */
    const char *sbatch[WEFT_TOOL_SBATCH_MAX];
} weft_tool_export;

/* The name of a system; `at` is a const weft_exporter *. */
int weft_tool_take_exporter(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_sbatch(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_buffer(void *at, const weft_verb *verb, char *arg);

/* Refuses options that none of the systems reads; `front` may be NULL. Returns -1 to go on, or an
 * exit code. */
int weft_tool_export_check(const weft_verb *verb, const weft_tool_export *e,
                           const weft_exporter *system, const weft_exporter *front);
/* Reads --nodes, and points `o` at what the options have. */
WEFT_MUST_USE weft_err weft_tool_export_prepare(weft_tool_export *e, weft_arena *arena,
                                                weft_diag *diag);
/* A plan file and the demands that it states. */
WEFT_MUST_USE weft_err weft_tool_export_plan(const char *path, weft_arena *arena, weft_diag *diag,
                                             weft_plan *out, weft_demands *out_demands);
/* Writes the files into a folder, which is made if it is missing. */
WEFT_MUST_USE weft_err weft_tool_export_write(const char *folder, const weft_export_file *file,
                                              size_t n, weft_arena *arena, weft_diag *diag);

#endif
