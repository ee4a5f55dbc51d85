/* Tensors on the command line; see ports.h. */
#include "tools/server/ports.h"

#include "base/num.h"

#include "frontend/frontend.h"
#include "tools/server/npy.h"

#include <string.h>

int weft_tool_bind(const weft_verb *verb, char *arg, weft_tool_bindings *list)
{
    char *eq = strchr(arg, '=');
    if (!eq || eq == arg || eq[1] != '@' || !eq[2])
        return weft_tool_usage(verb, "'%s' is not of the form NAME=@FILE", arg);
    if (list->n == WEFT_BINDINGS_MAX)
        return weft_tool_usage(verb, "over %d files", WEFT_BINDINGS_MAX);
    *eq = '\0';
    list->at[list->n++] = (weft_tool_binding){arg, eq + 2};
    return 0;
}

weft_err weft_tool_load_tensor(const char *path, weft_arena *arena, weft_diag *diag,
                               weft_tensor *out)
{
    size_t n = strlen(path);
    if (n > 3 && strcmp(path + n - 3, ".pb") == 0)
        return weft_import_tensor(path, arena, diag, out);
    return weft_npy_load(path, arena, diag, out);
}

weft_err weft_tool_load_inputs(const weft_tool_bindings *list, const weft_bundle_program *p,
                               weft_arena *arena, weft_diag *diag, weft_tensor *in)
{
    for (size_t i = 0; i < list->n; i++) {
        uint32_t at = weft_bundle_find_port(p->input, p->n_input, list->at[i].name);
        if (at == UINT32_MAX)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "has no input '%s'", list->at[i].name);
        WEFT_TRY(weft_tool_load_tensor(list->at[i].path, arena, diag, &in[at]));
    }
    for (uint32_t i = 0; i < p->n_input; i++)
        if (in[i].dtype == WEFT_DTYPE_NONE)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "input '%s' is missing: --input %s=@FILE", p->input[i].name,
                                   p->input[i].name);
    return WEFT_ERR_OK;
}

/* -- Made-up inputs ------------------------------------------------------------------------- */

/* Values of the symbols: the bucket with that batch size, or its first bucket with the batch put
 * in. */
static void choose_symbols(const weft_bundle_program *p, int64_t batch, int64_t *out)
{
    const weft_bundle_bucket *best = NULL;
    for (uint32_t i = 0; i < p->n_bucket; i++)
        if (!best ||
            (p->batch_symbol < p->n_symbol && p->bucket[i].symbol[p->batch_symbol] == batch &&
             best->symbol[p->batch_symbol] != batch))
            best = &p->bucket[i];
    for (uint32_t i = 0; i < p->n_symbol; i++)
        out[i] = best ? best->symbol[i] : p->symbol[i].lo > 0 ? p->symbol[i].lo : 1;
    if (p->batch_symbol < p->n_symbol)
        out[p->batch_symbol] = batch;
}

void weft_tool_fill_tensor(weft_tensor *t)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    int64_t n = weft_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double u = (double)(state >> 11) * 0x1p-53;
        if (weft_dtype_is_float(t->dtype))
            weft_tensor_set_f64(t, i, 2 * u - 1);
        else
            weft_tensor_set_i64(t, i, u < 0.5);
    }
}

int weft_tool_take_dim(const weft_verb *verb, char *arg, weft_tool_dim *out)
{
    char *equals = strchr(arg, '=');
    if (!equals || equals == arg || !weft_parse_i64(equals + 1, &out->value) || out->value < 0)
        return weft_tool_usage(verb, "--dim needs NAME=VALUE, not '%s'", arg);
    *equals = 0;
    out->name = arg;
    return 0;
}

weft_err weft_tool_make_inputs(const weft_bundle_program *p, int64_t batch,
                               const weft_tool_dim *dim, size_t n_dim, weft_arena *arena,
                               weft_diag *diag, weft_tensor *in)
{
    int64_t *symbol = weft_arena_array(arena, (size_t)p->n_symbol + 1, sizeof *symbol);
    choose_symbols(p, batch, symbol);
    for (size_t i = 0; i < n_dim; i++)
        for (uint32_t k = 0; k < p->n_symbol; k++)
            if (k != p->batch_symbol && strcmp(p->symbol[k].name, dim[i].name) == 0)
                symbol[k] = dim[i].value;
    for (uint32_t i = 0; i < p->n_input; i++) {
        const weft_ttype *type = &p->value[p->input[i].value - 1].type;
        in[i] = (weft_tensor){.dtype = (weft_dtype)type->dtype, .rank = type->rank};
        for (uint32_t k = 0; k < type->rank; k++)
            if (!weft_dim_eval(p->dims, type->dim[k], symbol, p->n_symbol, &in[i].dim[k]))
                return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                       "input '%s' has no size at batch %lld", p->input[i].name,
                                       (long long)batch);
        if (weft_numel(in[i].dim, in[i].rank) < 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "input '%s' is too large", p->input[i].name);
        in[i].data = weft_arena_alloc(arena, weft_tensor_bytes(&in[i]));
        weft_tool_fill_tensor(&in[i]);
    }
    return WEFT_ERR_OK;
}
