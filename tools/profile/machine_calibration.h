/* The calibration of the CPU of this machine: `weft calibrate` writes it, other verbs find it.
 *
 * The file is ${XDG_STATE_HOME:-~/.local/state}/weft/calibration-ID.csv, in the form of
 * calibration_file.h. ID is a hash of what /proc/cpuinfo says of the CPU (vendor, family, model,
 * stepping, name, cache), of the number of CPUs and of the version of the form, so that a home
 * folder that several machines share has one file for each kind of machine. */
#ifndef WEFT_TOOLS_MACHINE_CALIBRATION_H
#define WEFT_TOOLS_MACHINE_CALIBRATION_H

#include "estimator/estimator.h"

enum { WEFT_MACHINE_NAME_MAX = 128, WEFT_MACHINE_PATH_MAX = 1024 };

typedef struct weft_tool_machine {
    char name[WEFT_MACHINE_NAME_MAX]; /* of the CPU, for messages */
    char path[WEFT_MACHINE_PATH_MAX]; /* of its calibration, whether it exists or not */
} weft_tool_machine;

/* UNSUP: neither XDG_STATE_HOME nor HOME is set, or the path is too long. */
WEFT_MUST_USE weft_err weft_tool_machine_find(weft_diag *diag, weft_tool_machine *out);
/* Loads the calibration of this machine, and names its file in a note. *out_path stays as it is
 * where there is none, else it lives in `arena`. INPUT: the file cannot be read. */
WEFT_MUST_USE weft_err weft_tool_machine_calibration(weft_arena *arena, weft_diag *diag,
                                                     weft_calibration *out, const char **out_path);

#endif
