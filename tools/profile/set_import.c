/* Models of a set as graphs.
 *
 * Heads of one model are imported one after the other into one graph, where they share inputs by
 * name. What is equal in several heads is computed once, because `dedup` makes one node of equal
 * operators on equal operands. The steps of an ensemble are imported in the same way; outputs of
 * one are inputs of later ones.
 *
 * What a repository's configuration says of inputs and outputs is compared with the file. Where it
 * fixes an axis that the file leaves open, the graph has that size. */
#include "tools/profile/set_import.h"

#include "tools/common/tools.h"
#include "tools/profile/set_combine.h"

#include <string.h>

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
    return weft_import_onnx(m, model->file, &options, diag, out);
}

/* -- Configurations --------------------------------------------------------------------------- */

static weft_import_port *make_ports(const weft_set_port *from, size_t n, weft_arena *arena)
{
    weft_import_port *to = weft_arena_array(arena, n + 1, sizeof *to);
    for (size_t i = 0; i < n; i++) {
        bool has_inner = from[i].inner_dim != NULL;
        to[i] = (weft_import_port){.name = from[i].name,
                                   .dim = has_inner ? from[i].inner_dim : from[i].dim,
                                   .n_dim = has_inner ? from[i].n_inner_dim : from[i].n_dim,
                                   .outer_dim = has_inner ? from[i].dim : NULL,
                                   .n_outer_dim = from[i].n_dim};
    }
    return to;
}

static void put_dims(weft_buf *out, weft_dtype dtype, const int64_t *dim, size_t n)
{
    weft_buf_printf(out, "%s [", weft_dtype_name(dtype));
    for (size_t i = 0; i < n; i++) {
        weft_buf_puts(out, i ? "," : "");
        if (dim[i] < 0)
            weft_buf_puts(out, "?");
        else
            weft_buf_put_i64(out, dim[i]);
    }
    weft_buf_puts(out, "]");
}

/* Both sides of what does not agree. `val` is the value in the graph; NULL: the file has none. */
static weft_err report_difference(const weft_module *m, const weft_set_model *model,
                                  const weft_set_port *port, const char *what, const weft_val *val,
                                  weft_arena *arena, weft_diag *diag)
{
    weft_buf text = {0};
    const weft_where where = {.file = model->config->file, .item = model->name, .line = port->line};
    weft_buf_printf(&text, "%s '%s' is ", what, port->name);
    put_dims(&text, port->dtype, port->dim, port->n_dim);
    weft_buf_printf(&text, " here, %s has ", model->file);
    if (val) {
        const weft_ttype *type = weft_val_ttype(m, *val);
        put_dims(&text, (weft_dtype)type->dtype, type->dim, type->rank); /* symbols are below 0 */
    } else {
        weft_buf_printf(&text, "no such %s", what);
    }
    return weft_diag_error(diag, WEFT_ERR_INPUT, where, "%s", weft_buf_keep(&text, arena));
}

/* Whether the graph's value is what the configuration says: a size that varies there varies in the
 * graph, too; one that it fixes may vary. */
static bool agrees(const weft_ttype *type, const weft_set_port *port)
{
    bool same = (weft_dtype)type->dtype == port->dtype && type->rank == port->n_dim;
    for (uint32_t i = 0; same && i < type->rank; i++)
        same = !weft_dim_is_const(type->dim[i]) || type->dim[i] == port->dim[i];
    return same;
}

static weft_err check_ports(const weft_module *m, const weft_set_model *model,
                            const weft_set_port *port, const weft_import_port *made, size_t n,
                            const char *what, weft_arena *arena, weft_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        if (!made[i].val.i)
            return report_difference(m, model, &port[i], what, NULL, arena, diag);
        if (!agrees(weft_val_ttype(m, made[i].val), &port[i]))
            return report_difference(m, model, &port[i], what, &made[i].val, arena, diag);
    }
    return WEFT_ERR_OK;
}

/* Inputs of the graph that the configuration does not list. */
static weft_err check_listed(const weft_graph *g, const weft_set_model *model, weft_diag *diag)
{
    const weft_set_config *c = model->config;
    for (uint32_t i = 0; c->n_input > 0 && i < weft_graph_input_count(g); i++) {
        const char *name = weft_graph_input_name(g, i);
        size_t k = 0;
        while (k < c->n_input && strcmp(c->input[k].name, name) != 0)
            k++;
        if (k == c->n_input)
            return weft_diag_error(diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = c->file, .item = model->name},
                                   "input '%s' of %s is not listed", name,
                                   model->file ? model->file : "a step, which no input_map names,");
    }
    return WEFT_ERR_OK;
}

static weft_err import_configured(weft_module *m, const weft_set_model *model,
                                  weft_import_options options, weft_arena *arena, weft_diag *diag,
                                  weft_graph **out)
{
    const weft_set_config *c = model->config;
    options.batch_max = c->max_batch;
    options.input = make_ports(c->input, c->n_input, arena);
    options.n_input = c->n_input;
    options.output = make_ports(c->output, c->n_output, arena);
    options.n_output = c->n_output;
    WEFT_TRY(import_file(m, model, options, arena, diag, out));
    WEFT_TRY(check_ports(m, model, c->input, options.input, c->n_input, "input", arena, diag));
    WEFT_TRY(check_ports(m, model, c->output, options.output, c->n_output, "output", arena, diag));
    return check_listed(*out, model, diag);
}

/* -- Ensembles -------------------------------------------------------------------------------- */

/* A tensor of an ensemble. */
typedef struct tensor {
    const char *name;
    weft_val val; /* none: no step has used it yet */
    bool is_input;
} tensor;

typedef struct tensors {
    tensor *at;
    size_t n;
} tensors;

static tensor *find_tensor(const tensors *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->at[i].name, name) == 0)
            return &t->at[i];
    return NULL;
}

/* Every input of the ensemble and every output of a step. */
static tensors list_tensors(const weft_set_model *model, weft_arena *arena)
{
    size_t n = model->config->n_input;
    for (size_t i = 0; i < model->n_step; i++)
        n += model->step[i].n_output;
    tensors t = {.at = weft_arena_array(arena, n + 1, sizeof *t.at)};
    for (size_t i = 0; i < model->config->n_input; i++)
        t.at[t.n++] = (tensor){.name = model->config->input[i].name, .is_input = true};
    for (size_t i = 0; i < model->n_step; i++)
        for (size_t k = 0; k < model->step[i].n_output; k++)
            t.at[t.n++] = (tensor){.name = model->step[i].output[k].of};
    return t;
}

/* The port of a step, with what the step's own configuration says of it. */
static weft_import_port step_port(const weft_set_tensor *of, const weft_set_port *configured,
                                  size_t n, weft_arena *arena)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(configured[i].name, of->name) == 0)
            return *make_ports(&configured[i], 1, arena);
    return (weft_import_port){.name = of->name};
}

/* Smallest of the bounds of the ensemble and of its steps. */
static int64_t smallest_batch(const weft_set_model *model)
{
    int64_t least = model->config->max_batch;
    for (size_t i = 0; i < model->n_step; i++) {
        int64_t x = model->step[i].model->config->max_batch;
        least = x > 0 && (least == 0 || x < least) ? x : least;
    }
    return least;
}

static weft_err import_step(weft_module *m, const weft_set_model *ensemble,
                            const weft_set_step *step, tensors *all, weft_import_options options,
                            weft_arena *arena, weft_diag *diag, weft_graph **out)
{
    const weft_set_config *c = step->model->config;
    const weft_where where = {.file = ensemble->config->file, .item = ensemble->name};
    options.input = weft_arena_array(arena, step->n_input + 1, sizeof *options.input);
    options.output = weft_arena_array(arena, step->n_output + 1, sizeof *options.output);
    options.n_input = step->n_input;
    options.n_output = step->n_output;
    options.is_step = true;
    for (size_t i = 0; i < step->n_input; i++) {
        const tensor *t = find_tensor(all, step->input[i].of);
        options.input[i] = step_port(&step->input[i], c->input, c->n_input, arena);
        options.input[i].as = t->name;
        options.input[i].val = t->val;
    }
    for (size_t i = 0; i < step->n_output; i++)
        options.output[i] = step_port(&step->output[i], c->output, c->n_output, arena);
    WEFT_TRY(import_file(m, step->model, options, arena, diag, out));
    for (size_t i = 0; i < step->n_input; i++) {
        find_tensor(all, step->input[i].of)->val = options.input[i].val;
        if (!options.input[i].val.i)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "input_map: %s has no input '%s'",
                                   step->model->file, step->input[i].name);
    }
    for (size_t i = 0; i < step->n_output; i++) {
        find_tensor(all, step->output[i].of)->val = options.output[i].val;
        if (!options.output[i].val.i)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "output_map: %s has no output '%s'",
                                   step->model->file, step->output[i].name);
    }
    return WEFT_ERR_OK;
}

static weft_err import_ensemble(weft_module *m, const weft_set_model *model,
                                weft_import_options options, weft_arena *arena, weft_diag *diag,
                                weft_graph **out)
{
    const weft_set_config *c = model->config;
    tensors all = list_tensors(model, arena);
    options.batch_max = smallest_batch(model);
    for (size_t i = 0; i < model->n_step; i++)
        WEFT_TRY(import_step(m, model, &model->step[i], &all, options, arena, diag, &options.into));
    for (size_t i = 0; i < c->n_input; i++)
        if (!all.at[i].val.i)
            return weft_diag_error(
                diag, WEFT_ERR_INPUT, (weft_where){.file = c->file, .item = model->name},
                "input '%s' of the ensemble is an input of no step", all.at[i].name);
    weft_import_port *made = weft_arena_array(arena, c->n_output + c->n_input, sizeof *made);
    for (size_t i = 0; i < c->n_input; i++)
        made[i].val = all.at[i].val;
    for (size_t i = 0; i < c->n_output; i++) {
        made[c->n_input + i].val = find_tensor(&all, c->output[i].name)->val;
        weft_graph_add_output(options.into, c->output[i].name, made[c->n_input + i].val);
    }
    WEFT_TRY(check_ports(m, model, c->input, made, c->n_input, "input", arena, diag));
    WEFT_TRY(
        check_ports(m, model, c->output, made + c->n_input, c->n_output, "output", arena, diag));
    *out = options.into;
    return check_listed(*out, model, diag);
}

/* -- Models ----------------------------------------------------------------------------------- */

weft_err weft_tool_import_model(weft_module *m, const weft_set_model *model,
                                const weft_import_options *options, weft_arena *arena,
                                weft_diag *diag, weft_graph **out)
{
    weft_import_options own = *options;
    own.graph_name = model->name;
    if (model->n_step)
        return import_ensemble(m, model, own, arena, diag, out);
    if (model->file && model->config)
        return import_configured(m, model, own, arena, diag, out);
    if (model->file)
        return import_file(m, model, own, arena, diag, out);
    for (size_t i = 0; i < model->n_head; i++) {
        own.head = model->head[i]->name;
        WEFT_TRY(import_file(m, model->head[i], own, arena, diag, &own.into));
    }
    *out = own.into;
    return model->combine ? weft_tool_combine(own.into, model, arena, diag) : WEFT_ERR_OK;
}
