/* What `weft serve --policy` adds: a first plan, and a controller process that follows the load.
 * Both are runs of the planner program, because the server links no solver. */
#ifndef WEFT_TOOLS_SERVE_FOLLOW_H
#define WEFT_TOOLS_SERVE_FOLLOW_H

#include "base/arena.h"
#include "base/diag.h"

#include <sys/types.h>

typedef struct weft_follow_options {
    const char *set, *fleet, *policy; /* policy NULL: nothing is followed */
    const char *policy_options, *control_options, *carbon;
} weft_follow_options;

/* Zero-initialised: nothing runs. */
typedef struct weft_follow {
    const char *folder; /* of this run: socket and plan; NULL: none */
    const char *plan, *socket;
    pid_t pid; /* of the process that keeps the controller running */
} weft_follow;

/* Makes the folder and, unless `plan` is one, the first plan; `socket` NULL: one in the folder.
 * INPUT: the controller would refuse the set, the fleet, the plan or an option; it has said why. */
WEFT_MUST_USE weft_err weft_follow_prepare(const weft_follow_options *options, const char *plan,
                                           const char *socket, weft_arena *arena, weft_diag *diag,
                                           weft_follow *out);
/* Starts the controller, and again whenever it ends, with growing pauses. It connects to the socket
 * when that is there. */
WEFT_MUST_USE weft_err weft_follow_start(const weft_follow_options *options, weft_arena *arena,
                                         weft_diag *diag, weft_follow *follow);
/* Ends the controller and removes the folder. */
void weft_follow_end(weft_follow *follow);

#endif
