/* The calibration of the CPU of this machine: `weft calibrate` writes it, other verbs find it. */
#ifndef WEFT_TOOLS_MACHINE_CALIBRATION_H
#define WEFT_TOOLS_MACHINE_CALIBRATION_H

#include "estimator/estimator.h"
#include "tools/common/machine_file.h"

/* Loads the calibration of this machine, and names its file in a note. *out_path stays as it is
 * where there is none, else it lives in `arena`. INPUT: the file cannot be read. */
WEFT_MUST_USE weft_err weft_tool_machine_calibration(weft_arena *arena, weft_diag *diag,
                                                     weft_calibration *out, const char **out_path);

#endif
