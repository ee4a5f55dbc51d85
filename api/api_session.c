/* Sessions: their life, and what they take and give. */
#include "api/api_int.h"

#include <stdlib.h>
#include <string.h>

/* Sets the parts and counts their inputs and outputs. */
static weft_status find_models(api_session *s, const char *const *model, uint32_t n,
                               weft_error *error)
{
    const weft_bundle *b = s->bundle->bundle;
    for (uint32_t i = 0; i < n; i++) {
        const weft_bundle_program *p = model && model[i] ? weft_bundle_find(b, model[i]) : NULL;
        if (!p) {
            const weft_model_info *first = weft_describe(s->bundle, 0);
            return weft_embed__say(error, WEFT_INPUT, "no model is named %s; the bundle has %u%s%s",
                                   model && model[i] ? model[i] : "NULL", b->n_program,
                                   first ? ", the first is " : "", first ? first->name : "");
        }
        uint32_t at = (uint32_t)(p - b->program);
        if (weft_embed__part_of(s, at) != UINT32_MAX)
            return weft_embed__say(error, WEFT_INPUT, "model %s is named twice", p->name);
        s->part[s->n_part++] =
            (api_part){.program = p, .model = at, .in_at = s->n_input, .out_at = s->n_output};
        s->n_input += p->n_input;
        s->n_output += p->n_output;
    }
    return WEFT_OK;
}

static bool make_tensors(api_session *s)
{
    s->input = calloc((size_t)s->n_input + 1, sizeof *s->input);
    s->output = calloc((size_t)s->n_output + 1, sizeof *s->output);
    s->in = calloc((size_t)s->n_input + 1, sizeof *s->in);
    s->out = calloc((size_t)s->n_output + 1, sizeof *s->out);
    if (!s->input || !s->output || !s->in || !s->out)
        return false;
    for (uint32_t i = 0; i < s->n_part; i++) {
        const api_part *part = &s->part[i];
        const weft_model_info *info = weft_describe(s->bundle, part->model);
        if (info->n_input > 0)
            memcpy(s->input + part->in_at, info->input, info->n_input * sizeof *s->input);
        if (info->n_output > 0)
            memcpy(s->output + part->out_at, info->output, info->n_output * sizeof *s->output);
    }
    return true;
}

/* Opens the engine if this is the first session, and the joint program. The bundle is locked. */
static weft_err open_engine(api_session *s)
{
    if (!s->bundle->engine)
        WEFT_TRY(weft_engine_open_bundle(s->bundle->bundle, &s->bundle->options, s->diag,
                                         &s->bundle->engine));
    return weft_embed__open_joint(s);
}

static weft_status open_session(api_session *s, const char *const *model, uint32_t n,
                                weft_error *error)
{
    weft_status status = find_models(s, model, n, error);
    if (status != WEFT_OK)
        return status;
    if (!make_tensors(s))
        return weft_embed__fail(error, WEFT_ERR_NOMEM, NULL);
    pthread_mutex_lock(&s->bundle->lock);
    weft_err err = open_engine(s);
    pthread_mutex_unlock(&s->bundle->lock);
    if (err == WEFT_ERR_OK && (!s->joint || weft_session_program(s->joint)->limit > 0))
        err = weft_embed__open_parts(s);
    return weft_embed__fail(error, err, s->diag);
}

api_session *weft_start_joint(api_bundle *bundle, const char *const *model, uint32_t n,
                              weft_error *error)
{
    if (!bundle || n == 0 || n > bundle->bundle->n_program) {
        weft_embed__say(error, WEFT_INPUT, "%u models of %u", n,
                        bundle ? bundle->bundle->n_program : 0);
        return NULL;
    }
    api_session *s = calloc(1, sizeof *s);
    api_part *part = calloc(n, sizeof *part);
    weft_diag *diag = weft_diag_create();
    if (!s || !part || !diag) {
        weft_embed__fail(error, WEFT_ERR_NOMEM, NULL);
        weft_diag_destroy(diag);
        free(part);
        free(s);
        return NULL;
    }
    s->bundle = bundle;
    s->part = part;
    s->diag = diag;
    atomic_fetch_add(&bundle->users, 1);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->queue_lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (open_session(s, model, n, error) != WEFT_OK) {
        weft_stop(s);
        return NULL;
    }
    return s;
}

api_session *weft_start(api_bundle *bundle, const char *model, weft_error *error)
{
    return weft_start_joint(bundle, &model, 1, error);
}

void weft_stop(api_session *session)
{
    api_session *s = session;
    if (!s)
        return;
    weft_embed__end_async(s);
    pthread_mutex_lock(&s->bundle->lock);
    weft_session_close(s->joint);
    for (uint32_t i = 0; i < s->n_part; i++)
        weft_session_close(s->part[i].session);
    pthread_mutex_unlock(&s->bundle->lock);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->queue_lock);
    pthread_cond_destroy(&s->changed);
    weft_embed__disconnect(s);
    weft_embed__release(s->bundle);
    weft_diag_destroy(s->diag);
    free(s->kernel);
    free(s->input);
    free(s->output);
    free(s->in);
    free(s->out);
    free(s->part);
    free(s);
}

const weft_tensor_info *weft_inputs(const api_session *session, uint32_t *out_n)
{
    *out_n = session->n_input;
    return session->input;
}

const weft_tensor_info *weft_outputs(const api_session *session, uint32_t *out_n)
{
    *out_n = session->n_output;
    return session->output;
}

const char *weft_joined_by(const api_session *session)
{
    return session->joint ? weft_session_program(session->joint)->name : NULL;
}
