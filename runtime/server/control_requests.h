/* Requests of the control socket (control_requests.c), without the socket (control_socket.c). */
#ifndef WEFT_RUNTIME_SERVER_CONTROL_REQUESTS_H
#define WEFT_RUNTIME_SERVER_CONTROL_REQUESTS_H

#include "runtime/server/deployment_int.h"

/* What requests ask and change. */
typedef struct ctl_service {
    const weft_serve_options *options;
    weft_router *router;
    weft_deployment *deployment;
    char *note; /* last text of the controller, owned; NULL: none */
    uint64_t replans;
} ctl_service;

/* The answer to one line, without its end: a JSON object, owned. NULL: out of memory. */
char *weft_ctl__answer(ctl_service *service, const char *line, size_t len);

#endif
