/* The tables of ONNX operators, one for each domain. */
#include "frontend/onnx_int.h"

#include <string.h>

#define ONNX(onnx_name, first_version, last_version, id, hook_name) \
    {.name = #onnx_name,                                            \
     .first = (first_version),                                      \
     .last = (last_version),                                        \
     .op = WEFT_OP_##id,                                            \
     .hook = weft_onnx_hook_##hook_name},
static const weft_onnx_row default_rows[] = {
#include "frontend/onnx_ops.def"
};
static const weft_onnx_row ml_rows[] = {
#include "frontend/onnx_ops_ml.def"
};
static const weft_onnx_row ms_rows[] = {
#include "frontend/onnx_ops_ms.def"
};
static const weft_onnx_row training_rows[] = {
#include "frontend/onnx_ops_training.def"
};
#undef ONNX

static const struct domain {
    const char *name;
    int last; /* the newest version */
    const weft_onnx_row *row;
    size_t n;
} domains[WEFT_ONNX_DOMAINS] = {
#define DOMAIN(id, domain_name, newest, rows) \
    {.name = (domain_name), .last = (newest), .row = (rows), .n = sizeof(rows) / sizeof((rows)[0])},
#include "frontend/onnx_domains.def"
#undef DOMAIN
};

weft_onnx_domain weft_onnx__domain(const char *name)
{
    if (strcmp(name, "ai.onnx") == 0)
        return WEFT_ONNX_DEFAULT;
    int i = 0;
    while (i < WEFT_ONNX_DOMAINS && strcmp(domains[i].name, name) != 0)
        i++;
    return (weft_onnx_domain)i;
}

int weft_onnx__newest(weft_onnx_domain domain)
{
    return domains[domain].last;
}

const weft_onnx_row *weft_onnx__row(weft_onnx_domain domain, const char *op_type, int64_t version)
{
    const struct domain *d = &domains[domain];
    size_t lo = 0, hi = d->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(d->row[mid].name, op_type) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    const weft_onnx_row *found = NULL;
    for (; lo < d->n && strcmp(d->row[lo].name, op_type) == 0; lo++) {
        found = &d->row[lo];
        if (version >= found->first && (!found->last || version <= found->last))
            break;
    }
    return found;
}

const char *weft_onnx__why_refused(const char *op_type)
{
    static const struct {
        const char *name, *why;
    } refused[] = {
#define R(operator_name, reason) {#operator_name, reason},
#include "frontend/onnx_refused.def"
#undef R
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (strcmp(refused[i].name, op_type) == 0)
            return refused[i].why;
    return NULL;
}

const char *weft_import_op_at(size_t i, const char **out_domain, int *out_first, int *out_last)
{
    const struct domain *d = domains;
    while (d < domains + WEFT_ONNX_DOMAINS && i >= d->n)
        i -= d++->n;
    if (d == domains + WEFT_ONNX_DOMAINS)
        return NULL;
    *out_domain = d->name;
    *out_first = d->row[i].first;
    *out_last = d->row[i].last ? d->row[i].last : d->last;
    return d->row[i].name;
}
