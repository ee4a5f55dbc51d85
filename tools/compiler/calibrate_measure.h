/* Measures kernels of the CPU driver for `weft calibrate`. */
#ifndef WEFT_TOOLS_CALIBRATE_MEASURE_H
#define WEFT_TOOLS_CALIBRATE_MEASURE_H

#include "base/arena.h"
#include "estimator/estimator.h"

typedef WEFT_VEC(weft_calibration_row) weft_tool_rows;

/* Compiles and runs a fixed set of small models with `threads` threads, as weft run does, and adds
 * a row for each distinct kernel of each batch size: its predicted parts and its measured time, the
 * 10th percentile over runs, because other processes use the machine too. *out_cpu_part: CPU time
 * of the runs over their time; with one thread 1, if no other process took the CPU. Rows live in
 * `arena`. */
WEFT_MUST_USE weft_err weft_tool_measure_kernels(uint32_t threads, weft_arena *arena,
                                                 weft_diag *diag, weft_tool_rows *rows,
                                                 double *out_cpu_part);

#endif
