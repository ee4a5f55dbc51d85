/* Plans of cuDNN for the convolutions of a bundle, made without a GPU: for each program, bucket and
 * device of the target. Those of pooling and attention, whose engines are compiled, can be made
 * only where there is a driver; otherwise they are made when the model is loaded. */
#include "runtime/cuda/cudnn_plan.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The distinct convolutions of a bundle at its bucket sizes. */
typedef struct conv_list {
    weft_conv_key *at;
    uint32_t n, room;
} conv_list;

static bool has(const conv_list *list, const weft_conv_key *key)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (memcmp(&list->at[i], key, sizeof *key) == 0)
            return true;
    return false;
}

static weft_err add(conv_list *list, const weft_conv_key *key)
{
    if (has(list, key))
        return WEFT_ERR_OK;
    if (list->n == list->room) {
        uint32_t room = 2 * list->room + 16;
        weft_conv_key *more = realloc(list->at, room * sizeof *more);
        if (!more)
            return WEFT_ERR_NOMEM;
        list->at = more;
        list->room = room;
    }
    list->at[list->n++] = *key;
    return WEFT_ERR_OK;
}

/* false: the sizes depend on data. */
static bool find_key(const weft_bundle_program *p, const int64_t *symbol, const weft_bundle_conv *c,
                     weft_conv_key *out)
{
    *out = (weft_conv_key){.dtype = c->dtype, .flags = c->flags};
    for (int i = 0; i < WEFT_CONV_DIMS; i++) {
        out->dim[i] = c->dim[i];
        if (!weft_dim_is_const(c->dim[i]) &&
            !weft_dim_eval(p->dims, c->dim[i], symbol, p->n_symbol, &out->dim[i]))
            return false;
    }
    return true;
}

static weft_err list_program(const weft_bundle_program *p, conv_list *list)
{
    weft_conv_key key;
    for (uint32_t b = 0; b < p->n_bucket; b++)
        for (uint32_t l = 0; l < p->n_launch; l++)
            for (uint32_t i = 0; i < p->launch[l].n_command; i++) {
                const weft_bundle_conv *c = p->launch[l].command[i].conv;
                if (c && find_key(p, p->bucket[b].symbol, c, &key))
                    WEFT_TRY(add(list, &key));
            }
    return WEFT_ERR_OK;
}

static weft_err plan_device(const weft_libcudnn *lib, const weft_conv_target *target,
                            const conv_list *list, weft_arena *arena, weft_conv_planning *to,
                            weft_bundle_conv_plans *out)
{
    weft_cudnn_device d;
    weft_bundle_conv_plan *plan = weft_arena_array(arena, list->n, sizeof *plan);
    *out = (weft_bundle_conv_plans){.arch = target->arch,
                                    .device = weft_arena_strdup(arena, target->device),
                                    .version = lib->version,
                                    .plan = plan};
    if (!weft_cudnn__imagine(&d, lib, target->sm, target->sms, target->mem_bytes)) {
        for (uint32_t i = 0; i < list->n; i++)
            out->n_none += !weft_conv_is_late(list->at[i].flags);
        snprintf(to->why_not, sizeof to->why_not, "%s", d.why);
        return WEFT_ERR_OK;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        weft_cudnn_plan *found = weft_cudnn__choose(&d, &list->at[i]);
        char *text = found ? weft_cudnn__text(found) : NULL;
        if (text)
            plan[out->n_plan++] =
                (weft_bundle_conv_plan){list->at[i], weft_arena_strdup(arena, text)};
        else if (!weft_conv_is_late(list->at[i].flags) && out->n_none++ == 0)
            snprintf(to->why_not, sizeof to->why_not, "%s", d.why);
        free(text);
        weft_cudnn__drop(found);
    }
    weft_cudnn__forget(&d);
    return WEFT_ERR_OK;
}

/* *out NULL: the library is not here, see `why_not`. */
static weft_err load(weft_conv_planning *to, const weft_libcudnn **out)
{
    weft_diag *why = weft_diag_create();
    if (!why)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_libcudnn__get(why, out);
    if (err == WEFT_ERR_NODEV) {
        weft_diag_format(weft_diag_at(why, 0), to->why_not, sizeof to->why_not);
        err = WEFT_ERR_OK;
    }
    weft_diag_destroy(why);
    return err;
}

weft_err weft_convs_plan(const weft_bundle *bundle, const weft_conv_target *target, uint32_t n,
                         weft_arena *arena, weft_conv_planning *out)
{
    const weft_libcudnn *lib = NULL;
    conv_list list = {0};
    weft_err err = WEFT_ERR_OK;
    *out = (weft_conv_planning){.n_conv = 0};
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < bundle->n_program + bundle->n_joint; i++)
        err = list_program(&bundle->program[i], &list);
    for (uint32_t i = 0; i < list.n; i++)
        out->n_conv += !weft_conv_is_late(list.at[i].flags);
    if (err == WEFT_ERR_OK && list.n > 0)
        err = load(out, &lib);
    if (err == WEFT_ERR_OK && lib) {
        weft_bundle_conv_plans *plans = weft_arena_array(arena, n, sizeof *plans);
        for (uint32_t i = 0; err == WEFT_ERR_OK && i < n; i++)
            err = plan_device(lib, &target[i], &list, arena, out, &plans[i]);
        out->plans = plans;
        out->n_plans = n;
    }
    free(list.at);
    return err;
}
