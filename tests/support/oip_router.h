/* A router on the models of oip_subject.h without processes, for tests of what is in front of it:
 * accepted requests wait until the test answers them or the router gives up. */
#ifndef WEFT_TESTS_OIP_ROUTER_H
#define WEFT_TESTS_OIP_ROUTER_H

#include "runtime/server/router_int.h"
#include "tests/support/oip_subject.h"

typedef struct oip_router {
    weft_serve_options options;
    weft_serve_slice slice;
    router_model model[OIP_MODELS];
    uint32_t key[OIP_MODELS];
    bool serves[OIP_MODELS], shares[OIP_MODELS];
    weft_line line[OIP_MODELS];
    router_bundle bundle;
    router_worker worker;
    weft_router router;
} oip_router;

static inline void oip_router_open(oip_router *r, oip_subject *s)
{
    static char path[] = "models.weft";
    memset(r, 0, sizeof *r);
    r->slice = (weft_serve_slice){.name = "cpu"};
    r->bundle = (router_bundle){.path = path, .bundle = &s->bundle};
    r->worker =
        (router_worker){.bundle = &r->bundle, .process.slice = &r->slice, .serves = r->serves};
    r->router = (weft_router){.options = &r->options,
                              .model = r->model,
                              .key = r->key,
                              .n_model = OIP_MODELS,
                              .worker = &r->worker,
                              .n_worker = 1,
                              .shares = r->shares,
                              .line = r->line,
                              .timeout_ns = 1000000000};
    for (int i = 0; i < OIP_MODELS; i++) {
        r->serves[i] = true;
        r->model[i] = (router_model){.program = &s->program[i],
                                     .version = "1",
                                     .shown = true,
                                     .weight = 1,
                                     .largest_bucket = 1};
        weft_router__set_key(&r->router, (uint32_t)i);
    }
}

/* Outputs of zeros, batch 1. */
static inline void oip_router_fill(weft_request *request, const weft_bundle_program *p)
{
    static uint64_t zeros[8];
    for (uint32_t i = 0; i < p->n_output; i++) {
        const weft_ttype *t = &p->value[p->output[i].value - 1].type;
        request->out[i] = (weft_tensor){.dtype = t->dtype, .rank = t->rank, .data = zeros};
        for (uint32_t k = 0; k < t->rank; k++)
            request->out[i].dim[k] = 1;
    }
}

/* Answers the first request of each queue. */
static inline void oip_router_answer(oip_router *r)
{
    for (int i = 0; i < OIP_MODELS; i++) {
        weft_request *request = r->model[i].head;
        if (!request)
            continue;
        weft_batch__remove(&r->model[i], request);
        r->router.n_pending--;
        oip_router_fill(request, r->model[i].program);
        request->answer = WEFT_ANSWER_OK;
        request->done(request);
    }
}

#endif
