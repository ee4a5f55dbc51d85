/* Look-ups in a bundle by name. */
#include "ir/bundle.h"

#include "base/nearest.h"

#include <string.h>

static const weft_bundle_program *find_among(const weft_bundle *bundle, uint32_t n,
                                             const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(bundle->program[i].name, name) == 0)
            return &bundle->program[i];
    return NULL;
}

const weft_bundle_program *weft_bundle_find(const weft_bundle *bundle, const char *model)
{
    return find_among(bundle, bundle->n_program, model);
}

bool weft_tuning_is_for(const weft_bundle_tuning *tuning, const char *device, uint32_t sms,
                        uint64_t version)
{
    return tuning->sms == sms && tuning->version == version && strcmp(tuning->device, device) == 0;
}

const weft_bundle_program *weft_bundle_find_any(const weft_bundle *bundle, const char *name)
{
    return find_among(bundle, bundle->n_program + bundle->n_joint, name);
}

uint32_t weft_bundle_find_port(const weft_bundle_port *port, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(port[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}

/* -- Names that are none ---------------------------------------------------------------------- */

static const char *model_at(size_t i, const void *user)
{
    const weft_bundle *bundle = user;
    return i < bundle->n_program ? bundle->program[i].name : NULL;
}

weft_err weft_bundle_refuse_model(const weft_bundle *bundle, const char *name, weft_where where,
                                  weft_diag *diag)
{
    char known[WEFT_NEAREST_BYTES_MAX];
    return weft_diag_error(diag, WEFT_ERR_INPUT, where, "no model is named %s%s", name,
                           weft_nearest_say(name, model_at, bundle, known));
}
