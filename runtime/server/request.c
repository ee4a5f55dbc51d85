/* A request: the tensors of one inference and its answer. */
#include "runtime/server/router_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

weft_request *weft_request__create(const weft_bundle *bundle, uint32_t model)
{
    const weft_bundle_program *p = &bundle->program[model];
    weft_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->model = model;
    r->in = calloc(p->n_input + 1, sizeof *r->in);
    r->out = calloc(p->n_output + 1, sizeof *r->out);
    if (!r->in || !r->out) {
        weft_request__destroy(r);
        return NULL;
    }
    return r;
}

void weft_request__destroy(weft_request *request)
{
    if (!request)
        return;
    free(request->in);
    free(request->out);
    free(request->out_data);
    free(request);
}

void weft_request__set_answer(weft_request *request, weft_answer answer, const char *fmt, ...)
{
    va_list ap;
    request->answer = answer;
    va_start(ap, fmt);
    vsnprintf(request->message, sizeof request->message, fmt, ap);
    va_end(ap);
}
