/* A model of a repository with another configuration. */
#ifndef WEFT_TOOLS_SERVER_MODEL_OVERLAY_H
#define WEFT_TOOLS_SERVER_MODEL_OVERLAY_H

#include "base/arena.h"
#include "base/diag.h"

/* Makes the repository `folder`, which does not exist, of links to what `repository` has, but with
 * the configuration `json` for `model`: a ModelConfig in protobuf's JSON, in place of the whole
 * config.pbtxt. INPUT: that is no such JSON. */
WEFT_MUST_USE weft_err weft_overlay_make(const char *repository, const char *model,
                                         const char *json, const char *folder, weft_arena *arena,
                                         weft_diag *diag);
/* Removes it, or what there is of it. */
void weft_overlay_remove(const char *folder, const char *model, weft_arena *arena);

#endif
