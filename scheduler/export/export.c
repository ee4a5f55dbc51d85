/* The table of exporters, and how they are run. */
#include "scheduler/export/export_int.h"

#include <string.h>

static weft_err run_exporter(const weft_plan *plan, const weft_export_options *options,
                             weft_arena *arena, weft_diag *diag, const weft_export_file **out,
                             size_t *out_n, weft_err (*write)(export_ctx *))
{
    export_ctx *ctx = weft_arena_array(arena, 1, sizeof *ctx);
    *ctx = (export_ctx){.plan = plan, .o = *options, .arena = arena, .diag = diag};
    WEFT_TRY(weft_export__prepare(ctx));
    WEFT_TRY(write(ctx));
    *out = ctx->files.at;
    *out_n = ctx->files.len;
    return WEFT_ERR_OK;
}

/* -- The table -------------------------------------------------------------------------------- */

#define EXPORTER(id, name, brief)                                                              \
    static weft_err run_##id(const weft_plan *plan, const weft_export_options *options,        \
                             weft_arena *arena, weft_diag *diag, const weft_export_file **out, \
                             size_t *out_n)                                                    \
    {                                                                                          \
        return run_exporter(plan, options, arena, diag, out, out_n, weft_export__##id);        \
    }
#include "scheduler/export/exporters.def"
#undef EXPORTER

static const weft_exporter exporter_table[] = {
#define EXPORTER(id, name, brief) {name, brief, run_##id},
#include "scheduler/export/exporters.def"
#undef EXPORTER
};

enum { EXPORTER_COUNT = sizeof exporter_table / sizeof exporter_table[0] };

const weft_exporter *weft_exporter_at(size_t i)
{
    return i < EXPORTER_COUNT ? &exporter_table[i] : NULL;
}

const weft_exporter *weft_exporter_find(const char *name)
{
    for (size_t i = 0; i < EXPORTER_COUNT; i++)
        if (strcmp(exporter_table[i].name, name) == 0)
            return &exporter_table[i];
    return NULL;
}
