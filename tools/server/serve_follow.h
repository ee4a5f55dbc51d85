/* What `weft serve --policy` adds: a first plan, and a controller process that follows the load.
 * Both are runs of the planner program, because the server links no solver. */
#ifndef WEFT_TOOLS_SERVE_FOLLOW_H
#define WEFT_TOOLS_SERVE_FOLLOW_H

#include "tools/server/serve_child.h"

typedef struct weft_follow_options {
    const char *set, *fleet, *policy; /* policy NULL: nothing is followed */
    const char *policy_options, *control_options, *carbon;
} weft_follow_options;

/* Zero-initialised: nothing runs. */
typedef struct weft_follow {
    const char *folder; /* of this run: socket and plan; NULL: none */
    const char *plan, *socket;
    weft_child controller;
    weft_child_watch watch;
    pthread_t thread; /* keeps the controller running */
    bool has_thread;
} weft_follow;

/* Makes the folder and, unless `plan` is one, the first plan; `socket` NULL: one in the folder.
 * INPUT: the controller would refuse the set, the fleet, the plan or an option; it has said why. */
WEFT_MUST_USE weft_err weft_follow_prepare(const weft_follow_options *options, const char *plan,
                                           const char *socket, weft_arena *arena, weft_diag *diag,
                                           weft_follow *out);
/* Starts the controller when the socket is there, and again whenever it ends, with growing pauses.
 * `follow` stays where it is until weft_follow_end. */
WEFT_MUST_USE weft_err weft_follow_start(const weft_follow_options *options, weft_arena *arena,
                                         weft_diag *diag, weft_follow *follow);
/* Ends the controller and removes the folder. */
void weft_follow_end(weft_follow *follow);

#endif
