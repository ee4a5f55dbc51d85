/* Calibrations as files: what `weft estimate --calibrate` writes and `--calibration` reads. */
#ifndef WEFT_TOOLS_CALIBRATION_FILE_H
#define WEFT_TOOLS_CALIBRATION_FILE_H

#include "estimator/estimator.h"

/* A table `key,value` with a comment that says what it is; docs/estimate-json.md has the keys. */
WEFT_MUST_USE weft_err weft_tool_calibration_save(const weft_calibration *c, const char *path,
                                                  weft_diag *diag);
/* INPUT with file and line: a version or a key that is not known, a key twice or missing, a device
 * that is not known, a scale that no fit can give. */
WEFT_MUST_USE weft_err weft_tool_calibration_load(const char *path, weft_diag *diag,
                                                  weft_calibration *out);

#endif
