/* Carbon intensity that is polled: from a file, or from the output of a command. */
#ifndef WEFT_TOOLS_PLANNER_CONTROL_CARBON_H
#define WEFT_TOOLS_PLANNER_CONTROL_CARBON_H

#include "base/diag.h"

/* Reads the intensity in g/kWh: the last number of the file, or of the output of "!COMMAND", which
 * the shell runs for at most 10 s. INPUT, IO: there is none. */
WEFT_MUST_USE weft_err weft_tool_poll_carbon(const char *source, weft_diag *diag, double *out);

#endif
