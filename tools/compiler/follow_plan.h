/* Compiling for a plan: what is merged is what is placed together. */
#ifndef WEFT_TOOLS_FOLLOW_PLAN_H
#define WEFT_TOOLS_FOLLOW_PLAN_H

#include "tools/compiler/sources.h"
#include "tools/profile/pipeline.h"

/* Sets the pipeline's merge sets to the slices of the plan file, and adds the planned batches to
 * its batches. All data lives in the arena. Warns of models that the plan does not place. INPUT:
 * the plan cannot be read, places a model that is not among the sources, or has too many batches.
 */
WEFT_MUST_USE weft_err weft_tool_follow_plan(const char *path, const weft_tool_sources *sources,
                                             weft_tool_pipeline *pipeline, weft_arena *arena,
                                             weft_diag *diag);

#endif
