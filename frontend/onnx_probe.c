/* What an ONNX file leaves open and an import shows: it is imported into a module that is thrown
 * away.
 *
 * Axes of one input that have the same name are often a mistake of an exporter; whether the model
 * works if they differ is tried.
 *
 * The rank that a Squeeze without axes gives depends on the sizes: ONNX removes every axis that is
 * 1 when the model runs. As ranks are fixed when a model is compiled, a symbolic size is taken for
 * another number than 1. A model that was exported at batch 1 declares outputs of another rank
 * then; if the declared ranks are those that it has at batch 1, it is compiled for that. The batch
 * is told by its name: of a number of frames, say, 1 is the size that nobody asks for, whatever
 * ranks are declared. */
#include "frontend/onnx_int.h"

#include <string.h>

/* Runs `probe`, which has its file, options and what is tried, in a module of its own. */
static weft_err run_probe(const weft_onnx_ctx *cx, weft_onnx_run *run, weft_import_options *alone,
                          weft_onnx_ctx *probe)
{
    alone->into = NULL;
    alone->n_input = alone->n_output = 0; /* their values are of the other module */
    weft_onnx_ctx own = {.m = weft_module_create(0),
                         .diag = weft_diag_create(),
                         .file = cx->file,
                         .dir = cx->dir,
                         .bytes = cx->bytes,
                         .len = cx->len,
                         .options = alone,
                         .apart = probe->apart,
                         .is_probe = true};
    *probe = own;
    return own.m && own.diag ? run(probe) : WEFT_ERR_NOMEM;
}

static void end_probe(weft_onnx_ctx *probe)
{
    weft_diag_destroy(probe->diag);
    weft_module_destroy(probe->m);
}

static weft_import_options own_options(const weft_onnx_ctx *cx)
{
    return cx->options ? *cx->options : (weft_import_options){0};
}

static bool names_are_apart(const weft_onnx_ctx *cx, weft_onnx_run *run)
{
    weft_import_options alone = own_options(cx);
    weft_onnx_ctx probe = {.apart = true};
    bool apart = run_probe(cx, run, &alone, &probe) == WEFT_ERR_OK && !probe.related;
    end_probe(&probe);
    return apart;
}

/* -- Batches of 1 ------------------------------------------------------------------------------ */

static bool has_bare_squeeze(const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *n = graph->node[i];
        if (n->op_type && strcmp(n->op_type, "Squeeze") == 0 && n->n_attribute == 0 &&
            (n->n_input < 2 || !n->input[1][0]))
            return true;
    }
    return false;
}

static bool is_listed(const weft_import_options *o, const char *name)
{
    for (size_t i = 0; i < o->n_dim; i++)
        if (strcmp(o->dim[i].name, name) == 0)
            return true;
    return false;
}

/* Adds a size of 1 for each batch of the probe that must not be 1, but for those that the user gave
 * sizes; false: there is none. */
static bool list_ones(const weft_onnx_ctx *cx, const weft_onnx_ctx *probe, weft_import_options *o)
{
    uint32_t n_require = weft_graph_require_count(probe->g);
    weft_import_dim *dim = weft_arena_alloc(cx->arena, (o->n_dim + n_require) * sizeof *dim);
    size_t n = o->n_dim;
    if (n)
        memcpy(dim, o->dim, n * sizeof *dim);
    o->dim = dim;
    for (uint32_t r = 0; r < n_require; r++) {
        const weft_graph_require *require = weft_graph_require_at(probe->g, r);
        if (require->kind != WEFT_REQUIRE_DIFFER || require->b != 1)
            continue;
        for (uint32_t i = 0; i < weft_graph_symbol_count(probe->g); i++) {
            const char *name = weft_graph_symbol_name(probe->g, i);
            if (weft_graph_symbol_dim(probe->g, i) == require->a && weft_onnx__is_batch(name) &&
                !is_listed(o, name)) {
                dim[o->n_dim++] = (weft_import_dim){weft_arena_strdup(cx->arena, name), 1, 1};
                break;
            }
        }
    }
    return o->n_dim > n;
}

/* Batches of 1, if only with them the outputs have the ranks that the file declares. */
static void find_ones(weft_onnx_ctx *cx, weft_onnx_run *run)
{
    weft_import_options *ones = weft_arena_alloc(cx->arena, sizeof *ones);
    weft_import_options alone = *ones = own_options(cx);
    weft_onnx_ctx probe = {.apart = cx->apart};
    bool wanted = run_probe(cx, run, &alone, &probe) == WEFT_ERR_OK && probe.rank_differs &&
                  list_ones(cx, &probe, ones);
    end_probe(&probe);
    if (!wanted)
        return;
    alone = *ones;
    probe = (weft_onnx_ctx){.apart = cx->apart};
    wanted = run_probe(cx, run, &alone, &probe) == WEFT_ERR_OK && !probe.rank_differs;
    end_probe(&probe);
    if (!wanted)
        return;
    for (size_t i = cx->options ? cx->options->n_dim : 0; i < ones->n_dim; i++)
        weft_diag_warn(cx->diag, (weft_where){.file = cx->file},
                       "compiled for %s = 1: a Squeeze without axes removes this size, as the "
                       "declared outputs have it (`dims:` compiles for others)",
                       ones->dim[i].name);
    cx->options = ones;
}

void weft_onnx__probe(weft_onnx_ctx *cx, const Onnx__ModelProto *model, weft_onnx_run *run)
{
    if (cx->is_probe)
        return;
    cx->apart = weft_onnx__repeats_names(model->graph) && names_are_apart(cx, run);
    bool is_head = cx->options && cx->options->head;
    if (!is_head && weft_onnx__names_batch(model->graph) && has_bare_squeeze(model->graph))
        find_ones(cx, run);
}
