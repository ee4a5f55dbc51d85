/* Calibration files: written by `weft estimate --calibrate`, read for `--calibration`. */
#ifndef WEFT_TOOLS_CALIBRATION_FILE_H
#define WEFT_TOOLS_CALIBRATION_FILE_H

#include "estimator/estimator.h"
#include "tools/common/machine_file.h"

/* Writes a table `key,value` with an explaining comment; docs/estimate-json.md has the keys. */
WEFT_MUST_USE weft_err weft_tool_calibration_save(const weft_calibration *c, const char *path,
                                                  weft_diag *diag);
/* INPUT with file and line: an unknown version, key or device, a key that is missing or there
 * twice, or a scale outside the range of the fit. */
WEFT_MUST_USE weft_err weft_tool_calibration_load(const char *path, weft_diag *diag,
                                                  weft_calibration *out);

#endif
