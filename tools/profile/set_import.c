/* Models of a set file as graphs.
 *
 * Heads of one model are imported one after the other into one graph, where they share inputs by
 * name. What is equal in several heads is computed once, because `dedup` makes one node of equal
 * operators on equal operands. */
#include "tools/profile/set_import.h"

#include "tools/common/tools.h"

static weft_err import_file(weft_module *m, const weft_set_model *model,
                            weft_import_options options, weft_arena *arena, weft_diag *diag,
                            weft_graph **out)
{
    weft_import_dim *dim = weft_arena_array(arena, model->n_dim + 1, sizeof *dim);
    for (size_t k = 0; k < model->n_dim; k++)
        dim[k] = (weft_import_dim){model->dim[k].name, model->dim[k].lo, model->dim[k].hi};
    weft_import_value *value = weft_arena_array(arena, model->n_value + 1, sizeof *value);
    for (size_t k = 0; k < model->n_value; k++)
        value[k] = (weft_import_value){model->value[k].name, model->value[k].x, model->value[k].n,
                                       model->value[k].is_list};
    options.dim = dim;
    options.n_dim = model->n_dim;
    options.value = value;
    options.n_value = model->n_value;
    weft_tool_progress("reading %s", model->file);
    return weft_import_onnx(m, model->file, &options, diag, out);
}

weft_err weft_tool_import_model(weft_module *m, const weft_set_model *model,
                                const weft_import_options *options, weft_arena *arena,
                                weft_diag *diag, weft_graph **out)
{
    weft_import_options own = *options;
    own.graph_name = model->name;
    if (model->file)
        return import_file(m, model, own, arena, diag, out);
    for (size_t i = 0; i < model->n_head; i++) {
        own.head = model->head[i]->name;
        WEFT_TRY(import_file(m, model->head[i], own, arena, diag, &own.into));
    }
    *out = own.into;
    return WEFT_ERR_OK;
}
