/* Which GEMMs of a program the modules of an adapter belong to. */
#include "runtime/adapter/adapter.h"

#include "ops/adapter_rows.h"

static weft_err refuse(const char *folder, const weft_peft_module *m, weft_diag *diag,
                       const char *text, const weft_bundle_site *site)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = folder, .item = m->path},
                           "%s%s", text, site ? site->name : "");
}

/* The site that the path fits best. */
static weft_err find_site(const weft_peft_module *m, const weft_bundle_site *site, uint32_t n_site,
                          const char *folder, weft_diag *diag, uint32_t *out)
{
    weft_path_fit best = WEFT_PATH_APART;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_site; i++) {
        weft_path_fit fit = weft_path_compare(m->path, site[i].name);
        if (fit == WEFT_PATH_APART || fit < best)
            continue;
        n = fit > best ? 1 : n + 1;
        best = fit;
        *out = i;
    }
    if (n == 0)
        return refuse(folder, m, diag,
                      "no GEMM of the compiled model that adapters may change belongs to this "
                      "module: an adapter "
                      "that the model was compiled with changes it, or adapter_modules of the set "
                      "file names it",
                      NULL);
    if (n > 1)
        return refuse(folder, m, diag, "fits several modules of the model, one is ", &site[*out]);
    if (site[*out].k != m->k || site[*out].n != m->n)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = folder, .item = m->path},
                               "has factors for %lld to %lld features, the model has %lld to %lld",
                               (long long)m->k, (long long)m->n, (long long)site[*out].k,
                               (long long)site[*out].n);
    return WEFT_ERR_OK;
}

weft_err weft_peft_find_sites(const weft_peft *peft, const weft_bundle_site *site, uint32_t n_site,
                              const char *folder, weft_diag *diag, uint32_t *out)
{
    for (uint32_t i = 0; i < peft->n; i++) {
        WEFT_TRY(find_site(&peft->module[i], site, n_site, folder, diag, &out[i]));
        for (uint32_t k = 0; k < i; k++)
            if (out[k] == out[i])
                return refuse(folder, &peft->module[i], diag, "is the same module of the model as ",
                              &(weft_bundle_site){.name = peft->module[k].path});
    }
    return WEFT_ERR_OK;
}
