/* The kind of machine that this is, and where its calibration is.
 *
 * The file is ${XDG_STATE_HOME:-~/.local/state}/weft/calibration-ID.csv, in the form of
 * tools/profile/calibration_file.h. ID is a hash of what /proc/cpuinfo says of the CPU (vendor,
 * family, model, stepping, name, cache), of the number of CPUs and of the version of the form, so
 * that a home folder that several machines share has one file for each kind of machine. */
#ifndef WEFT_TOOLS_MACHINE_FILE_H
#define WEFT_TOOLS_MACHINE_FILE_H

#include "base/diag.h"

/* Version of calibration_file.h; a machine's calibration of another one is not used. */
enum { WEFT_CALIBRATION_VERSION = 2 };

enum { WEFT_TOOL_MACHINE_NAME_MAX = 128, WEFT_TOOL_MACHINE_PATH_MAX = 1024 };

typedef struct weft_tool_machine {
    char name[WEFT_TOOL_MACHINE_NAME_MAX]; /* of the CPU, for messages */
    char path[WEFT_TOOL_MACHINE_PATH_MAX]; /* of its calibration, whether it exists or not */
} weft_tool_machine;

/* UNSUP: neither XDG_STATE_HOME nor HOME is set, or the path is too long. */
WEFT_MUST_USE weft_err weft_tool_machine_find(weft_diag *diag, weft_tool_machine *out);

#endif
