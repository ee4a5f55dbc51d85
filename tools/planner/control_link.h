/* The link of the controller to the router that it serves: requests and answers over the router's
 * control socket, one JSON object a line each way (docs/serving.md). */
#ifndef WEFT_TOOLS_PLANNER_CONTROL_LINK_H
#define WEFT_TOOLS_PLANNER_CONTROL_LINK_H

#include "scheduler/scheduler.h"

#include <jansson.h>

typedef struct weft_control_link {
    int fd;
    char *at; /* read and not used yet */
    size_t len, cap;
} weft_control_link;

typedef enum weft_link_end {
    WEFT_LINK_OK,
    WEFT_LINK_CLOSED, /* the router has ended */
    WEFT_LINK_FAILED  /* it is silent, or answers no JSON; a message says so */
} weft_link_end;

/* What `status` says. */
typedef struct weft_router_status {
    double now_s;
    uint64_t generation; /* of the plan in force, or of that which comes into force */
    uint64_t replans;    /* how often somebody asked for a call of the policy */
    bool changing, draining;
    const weft_control_count *count; /* by model; versions of one model are added up */
    size_t n_count;
    uint64_t last_generation; /* of the last change that is over; 0: none */
    bool last_ok;
    const char *last_error;
    double last_took_s;
} weft_router_status;

/* Connects to the socket at `path`; NULL: uses the descriptor `fd`, which the link then owns. */
WEFT_MUST_USE weft_err weft_link_open(const char *path, int fd, weft_diag *diag,
                                      weft_control_link *out);
void weft_link_close(weft_control_link *link);
/* Sends a request, which it releases, and waits for the answer: owned, an object. */
weft_link_end weft_link_call(weft_control_link *link, json_t *request, double timeout_s,
                             weft_diag *diag, json_t **out);
/* Waits; returns early, with false, when the router has ended. */
bool weft_link_sleep(weft_control_link *link, double seconds);
/* Whether an answer has "ok": true; else *out_error: why not, borrowed. */
bool weft_link_is_ok(const json_t *answer, const char **out_error);
/* INPUT: a key is missing or of another kind. `out` borrows from the answer and the arena. */
WEFT_MUST_USE weft_err weft_link_read_status(const json_t *answer, weft_arena *arena,
                                             weft_diag *diag, weft_router_status *out);

#endif
