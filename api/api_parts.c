/* The models of a session, and the joint program that runs them together. */
#include "api/api_int.h"

#include <stdlib.h>

weft_err weft_embed__open_parts(api_session *s)
{
    weft_err err = WEFT_ERR_OK;
    pthread_mutex_lock(&s->bundle->lock);
    for (uint32_t i = 0; i < s->n_part && err == WEFT_ERR_OK; i++)
        if (!s->part[i].session)
            err = weft_session_open(s->bundle->engine, s->part[i].program->name, s->diag,
                                    &s->part[i].session);
    pthread_mutex_unlock(&s->bundle->lock);
    return err;
}

/* -- Joint programs --------------------------------------------------------------------------- */

uint32_t weft_embed__part_of(const api_session *s, uint32_t model)
{
    for (uint32_t i = 0; i < s->n_part; i++)
        if (s->part[i].model == model)
            return i;
    return UINT32_MAX;
}

/* Inputs of a model with a batch of 0. false: an input then still has elements. */
static bool make_empty(const weft_bundle_program *p, weft_tensor *out)
{
    int64_t *symbol = calloc((size_t)p->n_symbol + 1, sizeof *symbol);
    bool ok = symbol && p->batch_symbol < p->n_symbol;
    for (uint32_t i = 0; ok && i < p->n_symbol; i++)
        symbol[i] = i == p->batch_symbol ? 0 : p->symbol[i].lo > 1 ? p->symbol[i].lo : 1;
    for (uint32_t i = 0; ok && i < p->n_input; i++) {
        const weft_ttype *t = &p->value[p->input[i].value - 1].type;
        out[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = (int32_t)t->rank};
        for (uint32_t d = 0; ok && d < t->rank; d++)
            ok = weft_dim_eval(p->dims, t->dim[d], symbol, p->n_symbol, &out[i].dim[d]);
        ok = ok && weft_tensor_numel(&out[i]) == 0;
    }
    free(symbol);
    return ok;
}

/* Connects the ports of the joint program with those of the session. false: a model of it that is
 * not in the session cannot be left empty, or there is no memory. */
static bool connect(api_session *s, const weft_bundle_program *joint)
{
    uint32_t in = 0, out = 0;
    s->joint_in = calloc((size_t)joint->n_input + 1, sizeof *s->joint_in);
    s->joint_out = calloc((size_t)joint->n_output + 1, sizeof *s->joint_out);
    s->joint_tensor = calloc((size_t)joint->n_input + joint->n_output + 1, sizeof *s->joint_tensor);
    if (!s->joint_in || !s->joint_out || !s->joint_tensor)
        return false;
    for (uint32_t k = 0; k < joint->n_part; k++) {
        uint32_t at = weft_embed__part_of(s, joint->part[k].program);
        for (uint32_t i = 0; i < joint->part[k].n_in; i++)
            s->joint_in[in + i] = at == UINT32_MAX ? UINT32_MAX : s->part[at].in_at + i;
        for (uint32_t i = 0; i < joint->part[k].n_out; i++)
            s->joint_out[out + i] = at == UINT32_MAX ? UINT32_MAX : s->part[at].out_at + i;
        if (at == UINT32_MAX &&
            !make_empty(&s->bundle->bundle->program[joint->part[k].program], &s->joint_tensor[in]))
            return false;
        in += joint->part[k].n_in;
        out += joint->part[k].n_out;
    }
    return true;
}

void weft_embed__disconnect(api_session *s)
{
    free(s->joint_in);
    free(s->joint_out);
    free(s->joint_tensor);
    s->joint_in = s->joint_out = NULL;
    s->joint_tensor = NULL;
}

/* Whether the joint program contains all models of the session. */
static bool contains(const api_session *s, const weft_bundle_program *joint)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < joint->n_part; k++)
        n += weft_embed__part_of(s, joint->part[k].program) != UINT32_MAX;
    return n == s->n_part;
}

weft_err weft_embed__open_joint(api_session *s)
{
    const weft_bundle *b = s->bundle->bundle;
    const weft_bundle_program *best = NULL;
    for (uint32_t i = 0; s->n_part > 1 && i < b->n_joint; i++) {
        const weft_bundle_program *joint = &b->program[b->n_program + i];
        if (joint->is_packed || (best && joint->n_part >= best->n_part) || !contains(s, joint))
            continue;
        weft_embed__disconnect(s);
        best = connect(s, joint) ? joint : best;
        if (best != joint && best && !connect(s, best))
            best = NULL;
    }
    return best ? weft_session_open(s->bundle->engine, best->name, s->diag, &s->joint)
                : WEFT_ERR_OK;
}

bool weft_embed__is_joint(const api_session *s)
{
    if (!s->joint)
        return false;
    uint64_t elements = 0, limit = weft_session_program(s->joint)->limit;
    for (uint32_t i = 0; i < s->n_input; i++)
        elements += (uint64_t)weft_tensor_numel(&s->in[i]);
    return limit == 0 || elements <= limit;
}

void weft_embed__joint_inputs(api_session *s)
{
    const weft_bundle_program *joint = weft_session_program(s->joint);
    for (uint32_t i = 0; i < joint->n_input; i++)
        if (s->joint_in[i] != UINT32_MAX)
            s->joint_tensor[i] = s->in[s->joint_in[i]];
}
