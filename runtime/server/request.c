/* A request: the tensors of one inference and its answer. */
#include "runtime/server/regions.h"
#include "runtime/server/router_int.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weft_payload {
    _Atomic uint32_t n_ref;
    size_t bytes;
    max_align_t at[];
};

weft_payload *weft_payload__create(size_t bytes)
{
    weft_payload *p = bytes < SIZE_MAX - sizeof *p ? malloc(sizeof *p + bytes) : NULL;
    if (!p)
        return NULL;
    p->bytes = bytes;
    atomic_init(&p->n_ref, 1);
    return p;
}

uint8_t *weft_payload__at(weft_payload *p)
{
    return (uint8_t *)p->at;
}

weft_payload *weft_payload__hold(weft_payload *p)
{
    atomic_fetch_add_explicit(&p->n_ref, 1, memory_order_relaxed);
    return p;
}

void weft_payload__release(weft_payload *p, weft_offload *offload)
{
    if (p && atomic_fetch_sub_explicit(&p->n_ref, 1, memory_order_acq_rel) == 1)
        weft_offload__free(offload, p, p->bytes);
}

weft_request *weft_request__create(const weft_model_ref *model)
{
    const weft_bundle_program *p = model->program;
    /* One block: the request, its inputs, its outputs. */
    weft_request *r =
        calloc(1, sizeof *r + ((size_t)p->n_input + p->n_output) * sizeof(weft_tensor));
    if (!r)
        return NULL;
    r->model = model->at;
    r->in = (weft_tensor *)(r + 1);
    r->out = r->in + p->n_input;
    return r;
}

void weft_request__destroy(weft_request *request)
{
    if (!request)
        return;
    weft_regions__end_uses(request->regions);
    weft_payload__release(request->outputs, NULL);
    free(request);
}

bool weft_request__set_adapter(weft_request *request, const char *name, size_t len)
{
    if (len == 0 || len > WEFT_ADAPTER_NAME_MAX || memchr(name, 0, len) ||
        (request->adapter[0] &&
         (strlen(request->adapter) != len || memcmp(request->adapter, name, len) != 0)))
        return false;
    memcpy(request->adapter, name, len);
    request->adapter[len] = 0;
    return true;
}

void weft_request__ask_none(weft_request *request, uint32_t n_output)
{
    request->skip =
        n_output < WEFT_SKIPPED_OUTPUTS_MAX ? ((uint64_t)1 << n_output) - 1 : UINT64_MAX;
}

void weft_request__ask(weft_request *request, uint32_t output)
{
    if (output < WEFT_SKIPPED_OUTPUTS_MAX)
        request->skip &= ~((uint64_t)1 << output);
}

bool weft_request__asks(const weft_request *request, uint32_t output)
{
    return output >= WEFT_SKIPPED_OUTPUTS_MAX || !(request->skip >> output & 1);
}

void weft_request__set_answer(weft_request *request, weft_answer answer, const char *fmt, ...)
{
    va_list ap;
    request->answer = answer;
    va_start(ap, fmt);
    vsnprintf(request->message, sizeof request->message, fmt, ap);
    va_end(ap);
}

void weft_request__list_choice(const weft_app_choice *c,
                               weft_choice_parameter out[WEFT_CHOICE_PARAMETERS])
{
    const weft_choice_parameter all[WEFT_CHOICE_PARAMETERS] = {
        {.key = "weft_variant", .text = c->name},
        {.key = "weft_reason", .text = c->reason},
        {.key = "weft_accuracy", .number = c->accuracy},
        {.key = "weft_cost", .number = c->cost},
        {.key = "weft_predicted_us", .number = c->predicted_us}};
    memcpy(out, all, sizeof all);
}
