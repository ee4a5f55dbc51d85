/* What a verb does now, on standard error. On a terminal one line is drawn over: a bar with rate
 * and remaining time where they are known, else the time that it has taken. Elsewhere there is a
 * line with the same figures after ten seconds and then every thirty. Any thread. */
#ifndef WEFT_TOOLS_PROGRESS_H
#define WEFT_TOOLS_PROGRESS_H

#include "base/diag.h"

#include <stdbool.h>

/* Begins a phase. NULL: ends it; before something else is printed. */
void weft_tool_progress(const char *fmt, ...) WEFT_PRINTF(1, 2);
/* So much is done, of this phase or of several that count the same: the first begins with 0.
 * `unit`: "models", ...; "s" for seconds. */
void weft_tool_advance(double done, double total, const char *unit);
/* Nothing is shown from now on, as --quiet asks; before the first phase. */
void weft_tool_be_quiet(void);
bool weft_tool_is_quiet(void);

#endif
