/* Model repositories of Triton. */
#ifndef WEFT_SCHEDULER_INPUT_MODEL_FOLDER_H
#define WEFT_SCHEDULER_INPUT_MODEL_FOLDER_H

#include "scheduler/scheduler.h"

/* Reads a repository, or the folder of one of its models, as a set, whose models are in the order
 * of their names, versions from the latest on. INPUT with the file that is wrong. The result lives
 * in `arena`. */
WEFT_MUST_USE weft_err weft_set__load_folder(const char *path, weft_arena *arena, weft_diag *diag,
                                             weft_set *out);

#endif
