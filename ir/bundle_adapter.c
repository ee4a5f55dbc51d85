/* Sites of a program and adapters of a bundle: the low-rank factors (LoRA) that its runs may add to
 * some of its GEMMs. */
#include "ir/bundle.h"

#include <string.h>

uint32_t weft_bundle_sites(const weft_bundle_program *p, weft_arena *arena,
                           const weft_bundle_site **out)
{
    WEFT_VEC(weft_bundle_site) list = {0};
    weft_names *names = weft_names_create(arena);
    for (uint32_t l = 0; l < p->n_launch; l++) {
        const weft_bundle_launch *launch = &p->launch[l];
        if (launch->op != WEFT_OP_ADAPTER_DELTA)
            continue;
        const weft_attr *name = weft_attrs_find(launch->attrs, WEFT_ATTR_SITES);
        uint32_t n;
        const int64_t *width = weft_attrs_ints(launch->attrs, WEFT_ATTR_WIDTHS, &n);
        const weft_ttype *x = &p->value[launch->in[0] - 1].type;
        for (uint32_t i = 0; name && i < n && i < name->n && x->rank > 0; i++) {
            const char *s = name->u.strs[i];
            size_t len = strlen(s);
            weft_dim k = x->dim[x->rank - 1];
            if (len == 0 || !weft_dim_is_const(k) || weft_names_find(names, s, len))
                continue;
            weft_names_add(names, s, len);
            WEFT_VEC_PUSH(arena, &list, ((weft_bundle_site){s, k, width[i]}));
        }
    }
    *out = list.at;
    return list.len;
}

uint32_t weft_bundle_find_adapter(const weft_bundle *bundle, uint32_t program, const char *name)
{
    for (uint32_t i = 0; i < bundle->n_adapter; i++)
        if (bundle->adapter[i].program == program && strcmp(bundle->adapter[i].name, name) == 0)
            return i + 1;
    return 0;
}

uint64_t weft_bundle_adapter_bytes(const weft_bundle *b, const weft_bundle_adapter *a)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < a->n_factor; i++)
        bytes += b->weight[a->factor[i].a - 1].bytes + b->weight[a->factor[i].b - 1].bytes;
    return bytes;
}
