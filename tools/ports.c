/* Tensors on the command line; see ports.h. */
#include "tools/ports.h"

#include "frontend/frontend.h"
#include "tools/npy.h"

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

uint32_t weft_tool_find_port(const weft_bundle_port *port, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(port[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}

weft_err weft_tool_load_inputs(const weft_tool_bindings *list, const weft_bundle_program *p,
                               weft_arena *arena, weft_diag *diag, weft_tensor *in)
{
    for (size_t i = 0; i < list->n; i++) {
        uint32_t at = weft_tool_find_port(p->input, p->n_input, list->at[i].name);
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
