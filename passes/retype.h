/* For passes that change the element type of values. */
#ifndef WEFT_PASSES_RETYPE_H
#define WEFT_PASSES_RETYPE_H

#include "passes/passes_int.h"

#include "base/map.h"

/* `v` as `dtype`, by a cast before `user` (none: at the end); `known` has the casts made so far, by
 * value. */
weft_val weft_retype__cast(weft_graph *g, weft_node user, weft_val v, weft_dtype dtype,
                           weft_map *known);
/* Whether inference accepts the operands of `n`; sets the element types of its results and keeps
 * their dims, of which a second inference may know less. */
bool weft_retype__infer(weft_passctx *cx, weft_graph *g, weft_node n, weft_contents *contents);

#endif
